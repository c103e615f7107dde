#![forbid(unsafe_code)]
//! The front: cached blocks that are handed out and taken back without the books.
//!
//! A block that the books hand out to a lasting stream (built-in or held), out of the default pool, is
//! put on loan ([`super::lending`]). A thread may then free it to a shelf and get it from there again,
//! on the same stream; to the books it stays live meanwhile. Whoever needs the whole truth opens the
//! books by [`Device::all_books`]: every shelf is emptied, every tally gathered.
//!
//! `allocated == books.stats.allocated + sum over the tallies`, and likewise what else has a peak.
//! Names of streams are good within one *era*; a stream that is retired, a handle that is held anew,
//! a reset end it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::books::Books;
use super::{BOOKS, Device, Named};
use crate::mutants::mutant;
use crate::shelf::{self, Counted, Declared, Kept, Loans, OfDevice, Stopped, Tally};
use crate::size;
use crate::stats::cuddy_stats;
use crate::sync::Guard;
use crate::types::{Address, PoolId, StreamSlot};

/// Of what is reserved, a thread's shelf of a stream holds at most this part.
const PART: u64 = 64;

/// And at most so many bytes: what lies on a shelf is not there to be cut from or joined.
const MOST: u64 = 256 << 10;

/// What a device needs for it.
pub(super) struct Front {
    pub(super) loans: Loans,
    declared: Declared,
    /// Counts the changes of what names mean; from 1 on.
    era: AtomicU64,
    /// The most bytes on one shelf; 0 for no shelves at all.
    limit: AtomicU64,
    /// Counts the times that the books were opened by a request or a free: the heap's version.
    pub(super) version: AtomicU64,
    /// Whether several threads count, and so declare.
    shared: AtomicBool,
}

impl Front {
    pub(super) fn new() -> Self {
        Self {
            loans: Loans::new(),
            declared: Declared::default(),
            era: AtomicU64::new(1),
            limit: AtomicU64::new(0),
            version: AtomicU64::new(1),
            shared: AtomicBool::new(false),
        }
    }

    /// A new era: no name that a thread remembers means anything any more.
    pub(super) fn end_era(&self) {
        if mutant("shelf-era-goes-on") {
            return;
        }
        self.era.fetch_add(1, Ordering::AcqRel);
    }

    #[inline]
    pub(super) fn era(&self) -> u64 {
        self.era.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }
}

impl Device {
    /// A block off the calling thread's shelf, of the default pool.
    #[inline(always)]
    pub(crate) fn off_shelf(&self, stream: Named, requested: u64) -> Option<Address> {
        let bytes = size::round_up(requested)?;
        if stream.context.is_some() {
            return None;
        }
        let front = &self.front;
        let mut mine = shelf::try_mine()?;
        let (shelf, tally) = mine.of(self.id)?.named(name(stream), front.era())?;
        let block = shelf.take(bytes)?;
        front.loans.unshelve(block, bytes, requested);
        tally.served(&front.declared, bytes, requested);
        Some(block.address())
    }

    /// Frees a block to the calling thread's shelf. `false` if it has to be done by the books.
    #[inline(always)]
    pub(crate) fn to_shelf(&self, address: Address) -> bool {
        let Some(mut mine) = shelf::try_mine() else { return false };
        mine.of(self.id).is_some_and(|mine| self.front.put_on_shelf(mine, address).is_some())
    }

    /// The books, with what the calling thread has counted and its large blocks: the heap is about to
    /// change.
    pub(super) fn my_books(&self) -> Guard<'_, Books, BOOKS> {
        let mut books = self.books.lock();
        shelf::with_mine(|mine| self.front.open(&mut books, mine.of(self.id)));
        books
    }

    /// The books, with all that there is: every shelf emptied, every tally gathered. Some 15 us.
    pub(super) fn all_books(&self) -> Guard<'_, Books, BOOKS> {
        let mut books = self.books.lock();
        self.gather_all(&mut books, &mut shelf::stop_all());
        books
    }

    fn gather_all(&self, books: &mut Books, stopped: &mut Stopped) {
        if mutant("shelf-not-emptied") {
            return;
        }
        self.front.note(&mut books.stats);
        stopped.each(|theirs| {
            if let Some(theirs) = theirs.of(self.id) {
                theirs.empty(|block| self.front.back_to_heap(books, block));
                self.front.gather(&mut books.stats, &mut theirs.tally);
            }
        });
    }

    /// Counts the calling thread among those that have a tally. From the second on they declare, and
    /// change loans by atomic exchanges. One that has no place for a tally changes loans all the same.
    pub(super) fn know_me(&self, books: &mut Books) {
        let known = shelf::with_mine(|mine| mine.make(self.id).map(|mine| mine.known));
        let counts = match known {
            Some(Some(true)) => return,
            Some(Some(false)) => true,
            _ if self.front.shared.load(Ordering::Relaxed) || shelf::is_inside() => return,
            _ => false,
        };
        let mut stopped = shelf::stop_all();
        self.gather_all(books, &mut stopped);
        books.tallies += u32::from(counts);
        let shared = books.tallies > 1 || !counts;
        self.front.shared.store(shared, Ordering::Relaxed);
        stopped.each(|theirs| {
            if let Some(theirs) = theirs.of(self.id) {
                theirs.tally.share(shared);
            }
        });
        drop(stopped);
        shelf::with_mine(|mine| {
            if let Some(mine) = mine.of(self.id) {
                mine.known = true;
                mine.tally.share(shared);
            }
        });
        self.set_shelf_limit(books);
    }

    /// What is reserved has changed: so has what a shelf may hold.
    pub(super) fn set_shelf_limit(&self, books: &Books) {
        let limit = match self.options.caching {
            true => (books.stats.reserved / PART / u64::from(books.tallies.max(1))).min(MOST),
            false => 0,
        };
        self.front.limit.store(limit, Ordering::Relaxed);
    }

    /// Gives what lies on the calling thread's shelf of a stream to the heap, as of now.
    pub(super) fn clear_my_shelf(&self, books: &mut Books, stream: StreamSlot) {
        let front = &self.front;
        shelf::with_mine(|mine| {
            let (shelf, _) = mine.of(self.id)?.of(stream, front.era())?;
            shelf.empty(|block| front.back_to_heap(books, block));
            Some(())
        });
    }

    /// The device was reset: nothing is on loan or on a shelf any more.
    pub(super) fn forget_loans(&self, books: &mut Books) {
        self.front.end_era();
        let mut stopped = shelf::stop_all();
        self.gather_all(books, &mut stopped);
        self.front.loans.forget_all(&mut stopped);
    }

    /// The books have just handed a block out: notes the peaks, others' declared blocks counted in.
    pub(super) fn note_peaks(&self, books: &mut Books) {
        self.front.note(&mut books.stats);
    }

    /// Proves that the counters agree with the heap. For moments when no miss is under way.
    #[cfg(debug_assertions)]
    pub(super) fn check(&self, books: &mut Books) {
        let mut stopped = shelf::stop_all();
        self.gather_all(books, &mut stopped);
        self.front.loans.each(&mut stopped, |address, standing| {
            if let shelf::Standing::Out(lent) = standing {
                let restated = books.pools[PoolId::DEFAULT].heap.restate(address, lent.requested);
                assert!(restated.is_ok(), "a block on loan is not live: {address}");
            }
        });
        drop(stopped);
        books.check();
    }
}

impl Front {
    /// The books are open and the heap is about to change: takes in the calling thread's large blocks,
    /// and what it has counted.
    #[inline]
    pub(super) fn open(&self, books: &mut Books, mine: Option<&mut OfDevice>) {
        self.version.store(self.version.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.note(&mut books.stats);
        if let Some(mine) = mine {
            mine.empty_recent(|block| self.back_to_heap(books, block));
            self.gather(&mut books.stats, &mut mine.tally);
        }
    }

    /// Moves a block from out to the shelf of its stream, if there is one with room for it.
    #[inline(always)]
    pub(super) fn put_on_shelf(&self, mine: &mut OfDevice, address: Address) -> Option<()> {
        let (limit, version) = (self.limit(), self.version.load(Ordering::Relaxed));
        let alone = mine.tally.is_alone();
        let (block, lent, (shelf, tally)) = self.loans.shelve(address, alone, |lent| {
            let (shelf, tally) = mine.of(lent.stream, self.era())?;
            shelf.has_room(address, lent.bytes, limit, version).then_some((shelf, tally))
        })?;
        shelf.put(block, lent.bytes);
        tally.freed(&self.declared, lent.bytes, lent.requested);
        Some(())
    }

    /// Ends the loan of a block that was taken off a shelf. Its counters were moved when it was freed.
    pub(super) fn back_to_heap(&self, books: &mut Books, block: Kept) {
        let address = block.address();
        self.loans.end_shelved(block);
        let Books { pools, streams, .. } = books;
        let released = pools[PoolId::DEFAULT].heap.release(address, |slot| streams.epoch(slot));
        debug_assert!(released.is_ok(), "a block on a shelf is not live to the heap: {address}");
    }

    /// Adds what a thread has counted, the peaks noted.
    fn gather(&self, stats: &mut cuddy_stats, tally: &mut Tally) {
        if tally.is_empty() {
            return;
        }
        let [requested, allocated, blocks] = tally.take(&self.declared);
        add(&mut stats.requested, &mut stats.requested_peak, requested);
        add(&mut stats.allocated, &mut stats.allocated_peak, allocated);
        // A block on a shelf is neither allocated nor active.
        add(&mut stats.active, &mut stats.active_peak, allocated);
        add(&mut stats.live_block_count, &mut stats.live_block_peak_count, blocks);
        let served = std::mem::take(&mut tally.served);
        stats.malloc_count += served;
        stats.hit_count += served;
        stats.requested_total += std::mem::take(&mut tally.requested);
        stats.allocated_total += std::mem::take(&mut tally.allocated);
        stats.free_count += std::mem::take(&mut tally.freed);
    }

    /// Notes the peaks of what all threads have declared since the last time, beside what the books
    /// count. To be called before the books change what has a peak.
    fn note(&self, stats: &mut cuddy_stats) {
        // One thread alone declares nothing.
        if !self.shared.load(Ordering::Relaxed) || mutant("shelf-peak-forgotten") {
            return;
        }
        let [requested, allocated, blocks] = self.declared.take_highest();
        raise(stats.requested, &mut stats.requested_peak, requested);
        raise(stats.allocated, &mut stats.allocated_peak, allocated);
        raise(stats.active, &mut stats.active_peak, allocated);
        raise(stats.live_block_count, &mut stats.live_block_peak_count, blocks);
    }
}

/// A stream's name on shelves: 0 and 1 are the legacy default stream, both, by the name of 1.
#[inline]
pub(super) fn name(stream: Named) -> usize {
    stream.raw.max(1)
}

/// Adds to a counter of the books what was counted since, and notes its peak.
#[inline]
fn add(now: &mut u64, peak: &mut u64, counted: Counted) {
    raise(*now, peak, counted.highest);
    *now = now.saturating_add_signed(counted.now);
}

/// Notes a peak: so much above what the books count.
#[inline]
fn raise(now: u64, peak: &mut u64, highest: i64) {
    *peak = (*peak).max(now.saturating_add_signed(highest));
}
