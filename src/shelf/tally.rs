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

/// What is counted and has a peak: bytes asked for, bytes of live blocks, live blocks (one counts as
/// 512 here, so that one credit does for all).
const PEAKED: usize = 3;
/// Which of these are blocks.
const BLOCKS: usize = 2;

/// A live block, in what is counted of them.
const A_BLOCK: i64 = 512;

/// What all threads have declared, for one device.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    sum: [AtomicI64; PEAKED],
    /// The largest sum since the books last changed.
    highest: [AtomicI64; PEAKED],
}

impl Declared {
    /// The most that was declared since the books last changed, which they are about to do.
    pub(crate) fn take_highest(&self) -> [i64; PEAKED] {
        let mut highest = [0, 1, 2].map(|which| self.take_highest_of(which));
        highest[BLOCKS] /= A_BLOCK;
        highest
    }

    fn take_highest_of(&self, which: usize) -> i64 {
        let sum = self.sum[which].load(Ordering::SeqCst);
        if self.highest[which].load(Ordering::SeqCst) == sum {
            // As it is while one thread counts: no exchange is needed.
            return sum;
        }
        self.highest[which].swap(sum, Ordering::SeqCst).max(sum)
    }

    /// What a thread had declared is in the books from now on. The highest is lowered first: whoever
    /// declares in between makes it too high for a moment, never too low.
    fn take_back(&self, which: usize, bytes: i64) {
        self.highest[which].fetch_sub(bytes, Ordering::SeqCst);
        self.sum[which].fetch_sub(bytes, Ordering::SeqCst);
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

/// What was counted of one thing, and how high it was: exact where one thread counts, else the declared
/// sums say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) now: i64,
    pub(crate) highest: i64,
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
    #[inline(always)]
    pub(crate) fn served(&mut self, declared: &Declared, bytes: u64, requested: u64) {
        self.served += 1;
        self.requested += requested;
        self.allocated += bytes;
        for (count, by) in self.counts.iter_mut().zip([requested as i64, bytes as i64, A_BLOCK]) {
            count.now += by;
            if count.now > count.highest {
                count.highest = count.now;
            }
        }
        if self.shared {
            self.declare(declared);
        }
    }

    /// A block went to a shelf.
    #[inline(always)]
    pub(crate) fn freed(&mut self, declared: &Declared, bytes: u64, requested: u64) {
        self.freed += 1;
        for (count, by) in self.counts.iter_mut().zip([requested as i64, bytes as i64, A_BLOCK]) {
            count.now -= by;
        }
        if self.shared {
            self.declare(declared);
        }
    }

    /// Whether nothing was counted since the last time that everything was taken out.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.served | self.freed == 0
    }

    #[inline(never)]
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

    /// Takes out what was counted.
    pub(crate) fn take(&mut self, declared: &Declared) -> [Counted; PEAKED] {
        let mut counted = [0, 1, 2].map(|which| {
            let Count { now, highest, declared: ahead } = std::mem::take(&mut self.counts[which]);
            if ahead != 0 {
                declared.take_back(which, ahead);
            }
            Counted { now, highest: if self.shared { i64::MIN } else { highest } }
        });
        let Counted { now, highest } = &mut counted[BLOCKS];
        (*now, *highest) = (*now / A_BLOCK, *highest / A_BLOCK);
        counted
    }

    /// Whether no other thread has a tally of this device.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        !self.shared
    }

    /// Whether several threads count. To be changed when nothing is counted (it was just gathered).
    pub(crate) fn share(&mut self, shared: bool) {
        self.shared = shared;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the same frees and allocations through tallies and a plain sum; gives both peaks.
    fn peaks(threads: usize, gather_every: u64) -> (i64, i64) {
        let declared = Declared::default();
        let mut tallies: Vec<Tally> = (0..threads).map(|_| Tally::default()).collect();
        tallies.iter_mut().for_each(|tally| tally.share(threads > 1));
        let mut live: Vec<Vec<u64>> = vec![Vec::new(); threads];
        let (mut now, mut peak, mut books, mut books_peak) = (0i64, 0i64, 0i64, 0i64);
        let mut random = 7u64;
        for step in 0..50_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (which, draw) = ((random >> 60) as usize % threads, random >> 33);
            let bytes = 512 * (1 + draw % 300);
            if draw % 5 < 2 + u64::from(step / 5000 % 2 == 0) {
                tallies[which].served(&declared, bytes, bytes - 1);
                live[which].push(bytes);
                now += bytes as i64;
            } else if let Some(bytes) = live[which].pop() {
                tallies[which].freed(&declared, bytes, bytes - 1);
                now -= bytes as i64;
            }
            peak = peak.max(now);
            if draw % gather_every == 0 {
                books_peak = books_peak.max(books + declared.take_highest()[1]);
                for tally in &mut tallies {
                    let Counted { now: counted, highest } = tally.take(&declared)[1];
                    books_peak = books_peak.max(books.saturating_add(highest));
                    books += counted;
                }
                assert_eq!(books, now, "the tallies and the books together are the truth");
            }
        }
        books_peak = books_peak.max(books + declared.take_highest()[1]);
        for tally in &mut tallies {
            books_peak = books_peak.max(books.saturating_add(tally.take(&declared)[1].highest));
        }
        (peak, books_peak)
    }

    #[test]
    fn a_thread_alone_has_exact_peaks() {
        for gather_every in [1, 10, 1000, 1 << 40] {
            let (peak, noted) = peaks(1, gather_every);
            assert_eq!(peak, noted);
        }
    }

    #[test]
    fn of_several_threads_peaks_are_never_too_low_and_hardly_too_high() {
        for (threads, gather_every) in [(2, 1000), (3, 1), (8, 100), (8, 1 << 40)] {
            let (peak, noted) = peaks(threads, gather_every);
            assert!(noted >= peak, "{noted} is below {peak}");
            assert!(noted <= peak + 2 * CREDIT * threads as i64, "{noted} is far above {peak}");
        }
    }
}
