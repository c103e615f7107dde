#![forbid(unsafe_code)]
//! Out of memory, explained: what was asked, where the memory is, why it was not enough, what to do.

use std::fmt::Write;

use super::human::exact;
use super::pool::Pool;
use super::reclaim::Miss;
use super::{Device, Store};
use crate::error::{DriverError, Error, Words, sentence};
use crate::heap::Figures;
use crate::stats::cuddy_stats;
use crate::types::PoolId;

/// Figures of the moment at which a request failed.
struct Scene {
    device: u32,
    asked: u64,
    alignment: u64,
    stats: cuddy_stats,
    figures: Figures,
    /// The largest free block of the request's stream, and of any.
    largest: (u64, u64),
    /// What the driver says: free and total bytes.
    driver: Option<(u64, u64)>,
    refused: Option<DriverError>,
    unreachable: bool,
    pages: bool,
    /// Of a private pool: its limit, and what is reserved and live in it.
    pool: Option<(u64, u64, u64)>,
}

impl Miss<'_> {
    /// The error for a request that nothing could serve.
    pub(super) fn out_of_memory(&mut self) -> Error {
        let device = self.work.device;
        let driver = self.work.inside.memory_info().ok();
        let books = device.all_books();
        let Pool { heap, terms, .. } = &books.pools[self.pool];
        let (limit, held) = (terms.limit, heap.figures());
        let own = heap.largest_free(self.request.stamp.stream);
        let scene = Scene {
            device: device.id.0,
            asked: self.request.requested,
            alignment: self.request.alignment,
            // What this miss created for nothing goes back; it is not held against the request.
            stats: without_created(books.stats, self.created),
            figures: heap.figures(),
            largest: (own, heap.largest_free_of_any()),
            driver: driver.map(|(free, total)| (free + self.created, total)),
            refused: self.refused,
            unreachable: self.unreachable,
            pages: matches!(device.store, Store::Pages(_)),
            pool: (self.pool != PoolId::DEFAULT).then_some((limit, held.reserved, held.allocated)),
        };
        drop(books);
        Error::OutOfMemory(scene.text())
    }
}

fn without_created(stats: cuddy_stats, created: u64) -> cuddy_stats {
    let created = created.min(stats.unmapped);
    cuddy_stats { reserved: stats.reserved - created, unmapped: stats.unmapped - created, ..stats }
}

impl Device {
    /// The error for a request that no device can ever serve.
    pub(super) fn beyond_reach(&self, asked: u64) -> Error {
        self.books.lock().stats.out_of_memory_count += 1;
        Error::OutOfMemory(sentence!(
            "{} were asked for on device {}, which is more than any device has: it has {}. \
             A size like this is usually a negative number or an overflow in the program.",
            exact(asked),
            self.id.0,
            exact(self.total)
        ))
    }
}

impl Scene {
    /// The explanation, as sentences.
    fn text(&self) -> String {
        let mut text = Words::default();
        let _ = write!(
            text,
            "{} were asked for on device {}, and could not be had. ",
            exact(self.asked),
            self.device
        );
        self.in_pool(&mut text);
        self.cause(&mut text);
        self.holdings(&mut text);
        self.ranges(&mut text);
        self.outside(&mut text);
        self.advice(&mut text);
        text.into_string()
    }

    fn limited(&self) -> bool {
        let limit = self.pool.map_or(u64::MAX, |(limit, ..)| limit).min(self.stats.limit);
        self.refused.is_none() && !self.unreachable && limit != u64::MAX
    }

    /// How the private pool stands that the request was for.
    fn in_pool(&self, text: &mut Words) {
        let Some((limit, reserved, live)) = self.pool else { return };
        let _ = write!(
            text,
            "The request was for a private pool, which has reserved {}, {} of it in live blocks",
            exact(reserved),
            exact(live)
        );
        let _ = match limit {
            u64::MAX => text.write_str(", and has no limit of its own. "),
            limit => write!(text, ", and whose own limit is {}. ", exact(limit)),
        };
    }

    /// Whether the pool's own limit forbids it.
    fn is_pools_limit(&self) -> bool {
        self.pool.is_some_and(|(limit, _, live)| limit.saturating_sub(live) < self.asked)
    }

    fn cause(&self, text: &mut Words) {
        let limit = self.stats.limit;
        let left = limit.saturating_sub(self.stats.reserved);
        if self.is_pools_limit() {
            return;
        }
        let _ = match self.refused {
            Some(error) => write!(text, "The driver gave no more memory: {error}. "),
            None if self.unreachable => {
                write!(text, "The driver gave no addresses for a block of this size. ")
            }
            None if limit == u64::MAX => write!(text, "The device has too little memory left. "),
            None if self.asked > limit => {
                write!(text, "The limit of this device is {}. ", exact(limit))
            }
            None => write!(
                text,
                "The limit of this device is {}, of which {} are not reserved yet. ",
                exact(limit),
                exact(left)
            ),
        };
    }

    fn holdings(&self, text: &mut Words) {
        let stats = &self.stats;
        let blocks = if stats.live_block_count == 1 { "block" } else { "blocks" };
        let _ = write!(
            text,
            "Cuddy has reserved {}: {} in {} live {blocks}, {} cached",
            exact(stats.reserved),
            exact(stats.allocated),
            stats.live_block_count,
            exact(
                stats.reserved
                    - stats.active
                    - stats.quarantined.min(stats.reserved - stats.active)
            ),
        );
        let limbo = stats.active - stats.allocated;
        if limbo > 0 {
            let _ = write!(
                text,
                ", {} in {} freed blocks that streams still use",
                exact(limbo),
                stats.limbo_block_count
            );
        }
        if stats.unmapped > 0 {
            let _ = write!(text, " (of it {} without an address)", exact(stats.unmapped));
        }
        if stats.quarantined > 0 {
            let _ = write!(
                text,
                ", and {} lost because the driver failed to take them back",
                exact(stats.quarantined)
            );
        }
        let _ = text.write_str(". ");
    }

    fn ranges(&self, text: &mut Words) {
        let (own, any) = self.largest;
        if any == 0 {
            let _ = text.write_str("No range of its memory is free. ");
            return;
        }
        let _ = write!(text, "The largest free range is {}", exact(any));
        let _ = match own {
            own if own == any => write!(text, ", on the stream that asked"),
            own => {
                write!(text, ", on another stream; on the stream that asked it is {}", exact(own))
            }
        };
        let aligned = if self.alignment > 512 {
            sentence!(" aligned to {} bytes", self.alignment)
        } else {
            String::new()
        };
        let _ = match any {
            any if any < self.asked && !self.pages && self.figures.free >= self.asked => write!(
                text,
                ": smaller than the request, and segments cannot be joined, although {} are free \
                 in {} ranges. ",
                exact(self.figures.free),
                self.figures.free_blocks
            ),
            any if any < self.asked => write!(text, ": smaller than the request{aligned}. "),
            _ => write!(text, ", which does not fit the request{aligned}. "),
        };
    }

    fn outside(&self, text: &mut Words) {
        let Some((free, total)) = self.driver else { return };
        let used = total.saturating_sub(free).saturating_sub(self.stats.reserved);
        let _ = write!(
            text,
            "The device has {}, of which {} are free and {} are used outside Cuddy (CUDA contexts, \
             libraries, other allocators, other processes). ",
            exact(total),
            exact(free),
            exact(used)
        );
    }

    fn advice(&self, text: &mut Words) {
        let used_outside = self.driver.map_or(0, |(free, total)| {
            total.saturating_sub(free).saturating_sub(self.stats.reserved)
        });
        let total = self.driver.map_or(u64::MAX, |(_, total)| total);
        let _ = text.write_str(if self.asked > total {
            "Ask for less: the whole device is smaller than this."
        } else if self.is_pools_limit() {
            "Free blocks of the pool that are not needed, ask for less, or raise its limit with \
             cuddy_pool_set_limit()."
        } else if self.limited() {
            "Free blocks that are not needed, ask for less, or raise the limit with \
             cuddy_set_memory_limit() or cuddy_set_memory_fraction()."
        } else if used_outside > self.stats.reserved {
            "Most of the memory is used outside Cuddy: end other processes on this device, or free \
             what other libraries hold; else ask for less."
        } else {
            "Free blocks that are not needed, or ask for less; cuddy_memory_summary() shows what \
             is held."
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> Scene {
        let stats = cuddy_stats {
            reserved: 1 << 30,
            active: 3 << 28,
            allocated: 1 << 29,
            live_block_count: 1,
            limbo_block_count: 3,
            limit: 1 << 30,
            ..cuddy_stats::NONE
        };
        Scene {
            device: 3,
            asked: 1 << 29,
            alignment: 512,
            stats,
            figures: Figures { free: 1 << 28, free_blocks: 2, ..Figures::default() },
            largest: (1 << 20, 1 << 28),
            driver: Some((2 << 30, 4 << 30)),
            refused: None,
            unreachable: false,
            pages: true,
            pool: None,
        }
    }

    #[test]
    fn every_figure_is_there_in_both_forms() {
        let text = scene().text();
        for part in [
            "512.0 MiB (536870912 bytes) were asked for on device 3",
            "The limit of this device is 1.00 GiB (1073741824 bytes), of which 0 bytes",
            "reserved 1.00 GiB (1073741824 bytes): 512.0 MiB (536870912 bytes) in 1 live block,",
            "256.0 MiB (268435456 bytes) cached",
            "256.0 MiB (268435456 bytes) in 3 freed blocks that streams still use",
            "The largest free range is 256.0 MiB (268435456 bytes), on another stream",
            "it is 1.00 MiB (1048576 bytes): smaller than the request",
            "has 4.00 GiB (4294967296 bytes), of which 2.00 GiB (2147483648 bytes) are free",
            "1.00 GiB (1073741824 bytes) are used outside Cuddy",
            "raise the limit",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }

    #[test]
    fn a_pools_own_limit_is_named() {
        let mut pooled = scene();
        pooled.pool = Some((1 << 29, 1 << 28, 1 << 20));
        let text = pooled.text();
        for part in [
            "for a private pool, which has reserved 256.0 MiB (268435456 bytes)",
            "whose own limit is 512.0 MiB (536870912 bytes)",
            "cuddy_pool_set_limit()",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert!(!text.contains("The limit of this device"), "{text}");
        pooled.pool = Some((u64::MAX, 1 << 28, 1 << 20));
        assert!(pooled.text().contains("no limit of its own"), "{}", pooled.text());
        assert!(pooled.text().contains("The limit of this device"), "{}", pooled.text());
    }

    #[test]
    fn the_cause_decides_the_advice() {
        let mut full = scene();
        full.stats.limit = u64::MAX;
        full.refused = Some(DriverError { function: "cuMemCreate", code: 2 });
        let text = full.text();
        assert!(text.contains("cuMemCreate returned 2 (CUDA_ERROR_OUT_OF_MEMORY)"), "{text}");
        assert!(!text.contains("limit"), "{text}");
        full.driver = Some((0, 8 << 30));
        assert!(full.text().contains("end other processes"), "{}", full.text());
        full.asked = 9 << 30;
        assert!(full.text().ends_with("the whole device is smaller than this."), "{}", full.text());
    }
}
