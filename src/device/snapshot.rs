#![forbid(unsafe_code)]
//! Looking at a device: counters in one consistent cut, and a page of text for people.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use super::books::Books;
use super::human::{exact, short};
use super::work::{Turn, Work};
use super::{Device, MOST_STARTS, Store};
use crate::driver::Context;
use crate::error::{Error, Words, sentence};
use crate::heap::{BlockState, BlockView};
use crate::stats::cuddy_stats;
use crate::types::PoolId;

/// A block of a pool, and the handle of the stream that it is of.
pub(crate) type Laid = (PoolId, BlockView, usize);

/// Columns of the summary.
const WIDTH: usize = 78;

impl Device {
    /// The counters, all of one moment. No driver call.
    pub(crate) fn stats(&self) -> cuddy_stats {
        self.stats_in(&self.all_books())
    }

    fn stats_in(&self, books: &Books) -> cuddy_stats {
        let mut stats = books.stats;
        stats.active_peak = books.active_peak();
        stats.cached = stats.reserved - stats.active;
        stats.largest_free = books.pools.largest_free();
        stats.driver_call_count += self.calls.load(Ordering::Relaxed);
        stats
    }

    /// The counters, and every block of every pool in address order with its stream's handle, all of
    /// one moment.
    pub(crate) fn layout(&self) -> Result<(cuddy_stats, Vec<Laid>), Error> {
        let books = self.all_books();
        let stats = self.stats_in(&books);
        let mut blocks = Vec::new();
        for (id, pool) in books.pools.each() {
            for block in pool.heap.blocks() {
                let handle = match block.state {
                    BlockState::Gap | BlockState::Claimed { mapped: false } => 0,
                    _ => books.streams.names(block.stamp.stream).0,
                };
                blocks.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
                blocks.push((id, block, handle));
            }
        }
        Ok((stats, blocks))
    }

    /// Every peak becomes what is now.
    pub(crate) fn reset_peaks(&self) {
        self.all_books().reset_peaks();
    }

    /// Totals and counts of events start at zero.
    pub(crate) fn reset_accumulated(&self) {
        let mut books = self.all_books();
        books.stats.reset_accumulated();
        self.calls.store(0, Ordering::Relaxed);
    }

    /// Free and total bytes of the device; what the cache could give counts as free, as far as the
    /// limit allows.
    pub(crate) fn memory_info(&self) -> Result<(u64, u64), Error> {
        for _ in 0..MOST_STARTS {
            let Turn::Mine(work) = Work::begin(self, None)? else { continue };
            let (free, total) = work.inside.memory_info()?;
            let stats = self.all_books().stats;
            let reusable = stats.reserved
                - stats.active
                - stats.quarantined.min(stats.reserved - stats.active);
            let allowed = stats.limit.saturating_sub(stats.active);
            return Ok(((free + reusable).min(allowed), total));
        }
        Err(Error::DeviceReset(self.id.0))
    }

    /// What the driver says without any lock but its own; `None` if it fails.
    fn driver_memory(&self) -> Option<(u64, u64)> {
        let home = self.books.lock().home;
        let inside = self.driver.enter(Context(home.context), self.id, &self.calls).ok()?;
        inside.memory_info().ok()
    }

    /// A page of text: what is held, what it was at most, and how the device stands.
    pub(crate) fn summary(&self) -> String {
        let name = self.driver.device_name(self.id).unwrap_or_default();
        let store = match self.store {
            Store::Pages(page) => sentence!("pages of {}", short(page)),
            Store::Segments if self.options.caching => sentence!("segments"),
            Store::Segments => sentence!("no caching"),
        };
        let title = sentence!("Cuddy on device {}: {name} ({store})", self.id.0);
        page(&title, &self.stats(), self.driver_memory())
    }
}

/// The summary of a device that has not been used.
pub(crate) fn untouched(device: u32) -> String {
    let title = sentence!("Cuddy on device {device}: not in use");
    page(&title, &cuddy_stats::NONE, None)
}

/// The whole page.
fn page(title: &str, stats: &cuddy_stats, driver: Option<(u64, u64)>) -> String {
    let rule = sentence!("{:-<WIDTH$}", "");
    let mut text = Words::default();
    // What host memory has no room for is cut, here and below.
    let _ = writeln!(text, "{title:.WIDTH$}\n{rule}");
    let _ = writeln!(text, "{:<26}{:>12}{:>12}{:>16}", "", "now", "peak", "over time");
    let mut row = |name: &str, now: u64, peak: Option<u64>, total: Option<u64>| {
        let cell = |value: Option<u64>| value.map(short).unwrap_or_default();
        let line = sentence!("{name:<26}{:>12}{:>12}{:>16}", short(now), cell(peak), cell(total));
        let _ = writeln!(text, "{}", line.trim_end());
    };
    row("requested", stats.requested, Some(stats.requested_peak), Some(stats.requested_total));
    row(
        "allocated (live)",
        stats.allocated,
        Some(stats.allocated_peak),
        Some(stats.allocated_total),
    );
    row("active (live + limbo)", stats.active, Some(stats.active_peak), None);
    row(
        "reserved from the driver",
        stats.reserved,
        Some(stats.reserved_peak),
        Some(stats.reserved_total),
    );
    row("  cached, ready for reuse", stats.reserved - stats.active, None, None);
    row("    without an address", stats.unmapped, None, None);
    row("    largest free range", stats.largest_free, None, None);
    if stats.quarantined > 0 {
        row("  lost to failed calls", stats.quarantined, None, None);
    }
    let _ = writeln!(text, "{rule}");
    counts(&mut text, stats);
    let _ = writeln!(text, "{rule}");
    device(&mut text, stats, driver);
    text.into_string()
}

/// The counts, two a line.
fn counts(text: &mut Words, stats: &cuddy_stats) {
    let served = stats.hit_count + stats.miss_count;
    let share = |part: u64| match served {
        0 => String::new(),
        _ => sentence!(" ({:.1} %)", 100.0 * part as f64 / served as f64),
    };
    let blocks = sentence!("{} (peak {})", stats.live_block_count, stats.live_block_peak_count);
    let pairs = [
        ("live blocks", blocks, "in limbo", sentence!("{}", stats.limbo_block_count)),
        (
            "mallocs",
            sentence!("{}", stats.malloc_count),
            "frees",
            sentence!("{}", stats.free_count),
        ),
        (
            "hits",
            sentence!("{}{}", stats.hit_count, share(stats.hit_count)),
            "misses",
            sentence!("{}{}", stats.miss_count, share(stats.miss_count)),
        ),
        (
            "harvests",
            sentence!("{}", stats.harvest_count),
            "waits for a stream",
            sentence!("{}", stats.wait_count),
        ),
        (
            "retries",
            sentence!("{}", stats.retry_count),
            "out of memory",
            sentence!("{}", stats.out_of_memory_count),
        ),
        ("driver calls", sentence!("{}", stats.driver_call_count), "", String::new()),
    ];
    for (name, value, other, other_value) in pairs {
        let line = sentence!("{name:<14}{value:<26}{other:<20}{other_value}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// How the device stands: a bar, and what it is made of.
fn device(text: &mut Words, stats: &cuddy_stats, driver: Option<(u64, u64)>) {
    let limit = match stats.limit {
        u64::MAX => sentence!("none"),
        limit => exact(limit),
    };
    let _ = writeln!(text, "limit: {limit}");
    let Some((free, total)) = driver else { return };
    let outside = total.saturating_sub(free).saturating_sub(stats.reserved);
    let cached = stats.reserved - stats.active;
    let parts = [(stats.active, '#'), (cached, '+'), (outside, 'o')];
    let _ = writeln!(text, "device: {} [{}]", short(total), bar(total, &parts, 54));
    let legend = [("# active", stats.active), ("+ cached", cached), ("o other", outside)];
    let _ = text.write_str("  ");
    for (name, bytes) in legend {
        let _ = write!(text, "{name} {}   ", short(bytes));
    }
    let _ = writeln!(text, ". free {}", short(free));
    let _ = writeln!(
        text,
        "  in use on the device but not by this allocator: {} (contexts,\n  libraries, other \
         allocators, other processes)",
        short(outside)
    );
}

/// A bar of `width` characters; what is there at all shows as one at least.
fn bar(total: u64, parts: &[(u64, char)], width: usize) -> String {
    let mut bar = String::new();
    if bar.try_reserve(width).is_err() {
        return bar;
    }
    for &(bytes, mark) in parts {
        let share = (bytes as f64 / total.max(1) as f64 * width as f64).round() as usize;
        let cells = share.max(usize::from(bytes > 0)).min(width - bar.len());
        bar.extend(std::iter::repeat_n(mark, cells));
    }
    while bar.len() < width {
        bar.push('.');
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_narrow_and_has_the_figures() {
        let stats = cuddy_stats {
            requested: u64::MAX >> 8,
            reserved: 30 << 30,
            active: 20 << 30,
            quarantined: 2 << 20,
            limit: 40 << 30,
            hit_count: 999_999_999_999,
            miss_count: 123_456_789,
            live_block_count: 1_000_000,
            live_block_peak_count: 2_000_000,
            ..cuddy_stats::NONE
        };
        let title = format!("Cuddy on device 0: {}", "name ".repeat(40));
        let text = page(&title, &stats, Some((20 << 30, 80 << 30)));
        for line in text.lines() {
            assert!(line.chars().count() < 80, "{line:?} is too wide");
        }
        assert!(text.contains("not by this allocator: 30.0 GiB"), "{text}");
        assert!(text.contains("hits          999999999999 (100.0 %)"), "{text}");
    }

    #[test]
    fn the_bar_is_filled_in_proportion() {
        assert_eq!(bar(100, &[(50, '#'), (25, '+'), (0, 'o')], 8), "####++..");
        assert_eq!(bar(1 << 40, &[(1, '#'), (1, '+'), (1, 'o')], 8), "#+o.....");
        assert_eq!(bar(0, &[(0, '#')], 4), "....");
        assert_eq!(bar(8, &[(8, '#'), (8, '+')], 4), "####");
    }
}
