#![forbid(unsafe_code)]
//! Tallies: what a thread has added to a device's counters since they were last gathered.
//!
//! `counter == counter in the books + sum over the tallies`; a tally has one writer, its thread.
//!
//! Peaks. A thread that is alone keeps its own highest value: its peaks are exact. Of several, each
//! *declares* at least what it holds, up to [`CREDIT`] ahead, and takes back what it declared too
//! much; the largest sum of all that was declared, together with the books, is the peak: never too
//! low, and at most 2 [`CREDIT`] a thread too high.

use std::sync::atomic::{AtomicI64, Ordering};

/// How far ahead a thread declares, in bytes.
const CREDIT: i64 = 32 << 10;

/// What has a peak: bytes asked for, bytes of live blocks, the same and bytes in limbo, live blocks
/// (a block counts as 512 here, so that one credit does for all).
pub(crate) const PEAKED: usize = 4;

/// A live block, in what is counted of them.
pub(crate) const A_BLOCK: i64 = 512;

/// What all threads have declared, for one device.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    sum: [AtomicI64; PEAKED],
    /// The largest sum since the books last changed.
    highest: [AtomicI64; PEAKED],
}

impl Declared {
    /// The most that was declared since the books last changed, which they are about to do.
    pub(crate) fn take_highest(&self, which: usize) -> i64 {
        let sum = self.sum[which].load(Ordering::SeqCst);
        self.highest[which].swap(sum, Ordering::SeqCst).max(sum)
    }

    fn change(&self, which: usize, by: i64) {
        let sum = self.sum[which].fetch_add(by, Ordering::SeqCst) + by;
        if by > 0 {
            self.highest[which].fetch_max(sum, Ordering::SeqCst);
        }
    }
}

/// One counter of one thread.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    now: i64,
    highest: i64,
    declared: i64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: [Count; PEAKED],
    /// Whether other threads have tallies of this device.
    shared: bool,
    /// Blocks handed out and their bytes, and blocks freed: they only grow.
    pub(crate) served: u64,
    pub(crate) requested: u64,
    pub(crate) allocated: u64,
    pub(crate) freed: u64,
}

impl Tally {
    /// A block came off a shelf.
    #[inline]
    pub(crate) fn served(&mut self, declared: &Declared, bytes: u64, requested: u64) {
        self.served += 1;
        self.requested += requested;
        self.allocated += bytes;
        self.add(declared, [requested as i64, bytes as i64, bytes as i64, A_BLOCK]);
    }

    /// A block went to a shelf.
    #[inline]
    pub(crate) fn freed(&mut self, declared: &Declared, bytes: u64, requested: u64) {
        self.freed += 1;
        self.add(declared, [-(requested as i64), -(bytes as i64), -(bytes as i64), -A_BLOCK]);
    }

    #[inline]
    fn add(&mut self, declared: &Declared, by: [i64; PEAKED]) {
        for (count, by) in self.counts.iter_mut().zip(by) {
            count.now += by;
            count.highest = count.highest.max(count.now);
        }
        if self.shared {
            self.declare(declared);
        }
    }

    fn declare(&mut self, declared: &Declared) {
        for (which, count) in self.counts.iter_mut().enumerate() {
            let ahead = count.declared - count.now;
            if !(0..=2 * CREDIT).contains(&ahead) {
                let by = CREDIT - ahead;
                count.declared += by;
                declared.change(which, by);
            }
        }
    }

    /// Takes out what there is of a counter, and its highest value: exact where nothing is declared.
    pub(crate) fn take(&mut self, declared: &Declared, which: usize) -> (i64, i64) {
        let count = std::mem::take(&mut self.counts[which]);
        if count.declared != 0 {
            declared.change(which, -count.declared);
        }
        (count.now, if self.shared { i64::MIN } else { count.highest })
    }

    /// Whether several threads count. To be changed when nothing is counted (it was just gathered).
    pub(crate) fn share(&mut self, shared: bool) {
        self.shared = shared;
    }
}
