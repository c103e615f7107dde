#![forbid(unsafe_code)]
//! Pins: ranges whose pages stay where they are, because somebody beside us knows them: a network
//! card, a collective library, another process.
//!
//! Blocks in a pinned range are handed out, freed and cut as any other; only its pages (its segment)
//! are never claimed to go. A page can go iff no pin touches it. Pins are counted, and few.

use super::{Heap, PageRun, invalid};
use crate::error::Error;
use crate::heap::slab::{NIL, State};
use crate::mutants::mutant;
use crate::size::{align_down, align_up};
use crate::types::Address;

/// A pinned range, and how often it was pinned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pin {
    start: u64,
    end: u64,
    count: u64,
}

impl Heap {
    /// Pins the pages that [start, start + bytes) touches, once more.
    ///
    /// # Errors
    /// `InvalidArgument` unless all of it has pages that stay; `HostOutOfMemory`.
    pub fn pin(&mut self, start: Address, bytes: u64) -> Result<(), Error> {
        let end = start.0.checked_add(bytes).filter(|&end| end > start.0);
        let end = end.ok_or_else(|| invalid("bytes", bytes, "the size of a range in memory"))?;
        let mut n = self.block_at(start.0);
        let mut at = start.0;
        while n != NIL && at < end {
            if matches!(self.slab[n].state, State::Gap | State::ClaimedGap | State::ClaimedFree) {
                break;
            }
            at = self.slab[n].end();
            n = self.slab[n].next;
        }
        if at < end {
            return Err(invalid("bytes", bytes, "a range that is memory from end to end"));
        }
        let same = self.pins.iter_mut().find(|pin| (pin.start, pin.end) == (start.0, end));
        if let Some(pin) = same {
            pin.count += 1;
            return Ok(());
        }
        self.pins.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
        self.pins.push(Pin { start: start.0, end, count: 1 });
        Ok(())
    }

    /// Takes one pin of exactly this range off. Never needs memory.
    ///
    /// # Errors
    /// `InvalidArgument` if there is none.
    pub fn unpin(&mut self, start: Address, bytes: u64) -> Result<(), Error> {
        let end = start.0.saturating_add(bytes);
        let found = self.pins.iter().position(|pin| (pin.start, pin.end) == (start.0, end));
        let Some(at) = found else {
            return Err(invalid("bytes", bytes, "a range that is pinned: unpin what was pinned"));
        };
        self.pins[at].count -= 1;
        if self.pins[at].count == 0 || mutant("pin-does-not-count") {
            self.pins.swap_remove(at);
        }
        Ok(())
    }

    /// The size of the smallest pin that starts there.
    pub fn pinned_from(&self, start: Address) -> Option<u64> {
        let here = self.pins.iter().filter(|pin| pin.start == start.0);
        here.map(|pin| pin.end - pin.start).min()
    }

    /// Whether a pin touches the range.
    pub(super) fn is_pinned(&self, run: PageRun) -> bool {
        let (from, to) = (run.address.0, run.address.0 + run.bytes);
        self.pins.iter().any(|pin| pin.start < to && from < pin.end) && !mutant("pin-is-ignored")
    }

    /// The highest stretch of [from, to) with no pinned page, and with a page at all; the page's
    /// borders are those of the heap.
    pub(super) fn unpinned(&self, from: u64, mut to: u64) -> (u64, u64) {
        if self.pins.is_empty() || mutant("pin-is-ignored") {
            return (from, to);
        }
        loop {
            // The highest pin that touches what is left cuts it in two.
            let touching = self
                .pins
                .iter()
                .map(|pin| (align_down(pin.start, self.page), align_up(pin.end, self.page)));
            let highest = touching.filter(|&(start, end)| start < to && from < end);
            let Some((start, end)) = highest.max_by_key(|&(_, end)| end) else { return (from, to) };
            if self.pages_inside(end.max(from), to.max(end)).1 > 0 {
                return (end, to);
            }
            if start <= from {
                return (from, from);
            }
            to = start;
        }
    }
}
