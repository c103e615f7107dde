#![forbid(unsafe_code)]
//! The front: cached blocks that are handed out and taken back without the books.
//!
//! A block that the books hand out to a lasting stream (built-in or held), out of the default pool, is put on loan. Its thread
//! may then free it to a shelf and get it from there again, on the same stream; to the books it stays
//! live meanwhile. Whoever needs the whole truth opens the books by [`Device::all_books`]: every
//! shelf is emptied, every tally gathered.
//!
//! `allocated == books.stats.allocated + sum over the tallies`, and likewise what else has a peak.
//! Names of streams are good within one *era*; a stream that is retired, a handle that is held anew,
//! a reset end it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::books::Books;
use super::{BOOKS, Device, Named};
use crate::error::Error;
use crate::heap::Block;
use crate::mutants::mutant;
use crate::shelf::{self, A_BLOCK, Declared, Kept, Lent, Loans, PEAKED, Standing, Stopped, Tally};
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
    loans: Loans,
    declared: Declared,
    /// Counts the changes of what names mean; from 1 on.
    era: AtomicU64,
    /// The most bytes on one shelf; 0 for no shelves at all.
    limit: AtomicU64,
    /// Counts the times that the books were opened by a request or a free: the heap's version.
    version: AtomicU64,
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
    fn era(&self) -> u64 {
        self.era.load(Ordering::Acquire)
    }

    #[inline]
    fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }
}

impl Device {
    /// A block off the calling thread's shelf, of the default pool.
    #[inline]
    pub(crate) fn off_shelf(&self, stream: Named, requested: u64) -> Option<Address> {
        let bytes = size::round_up(requested)?;
        if stream.context.is_some() {
            return None;
        }
        let front = &self.front;
        shelf::try_mine(|mine| {
            let (shelf, tally) = mine.of(self.id)?.named(name(stream), front.era())?;
            let block = shelf.take(bytes)?;
            front.loans.unshelve(block, bytes, requested);
            tally.served(&front.declared, bytes, requested);
            Some(block.address())
        })
    }

    /// Frees a block to the calling thread's shelf. `false` if it has to be done by the books.
    #[inline]
    pub(crate) fn to_shelf(&self, address: Address) -> bool {
        let front = &self.front;
        let shelved = shelf::try_mine(|mine| {
            let mine = mine.of(self.id)?;
            let (limit, version) = (front.limit(), front.version.load(Ordering::Relaxed));
            let (block, lent, (shelf, tally)) = front.loans.shelve(address, |lent| {
                let (shelf, tally) = mine.of(lent.stream, front.era())?;
                shelf.has_room(address, lent.bytes, limit, version).then_some((shelf, tally))
            })?;
            shelf.put(block, lent.bytes);
            tally.freed(&front.declared, lent.bytes, lent.requested);
            Some(())
        });
        shelved.is_some()
    }

    /// The books, with what the calling thread has counted and its large blocks: the heap is about to
    /// change.
    pub(super) fn my_books(&self) -> Guard<'_, Books, BOOKS> {
        let mut books = self.books.lock();
        let front = &self.front;
        front.version.store(front.version.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        shelf::with_mine(|mine| {
            if let Some(mine) = mine.of(self.id) {
                mine.empty_recent(|block| front.back_to_heap(&mut books, block));
                front.gather(&mut books.stats, &mut mine.tally);
            }
        });
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
        stopped.each(|theirs| {
            if let Some(theirs) = theirs.of(self.id) {
                theirs.empty(|block| self.front.back_to_heap(books, block));
                self.front.gather(&mut books.stats, &mut theirs.tally);
            }
        });
    }

    /// Puts a block that the books have just handed out on loan, if its stream is a lasting one.
    pub(super) fn lend(&self, books: &mut Books, pool: PoolId, address: Address, stream: Named) {
        let front = &self.front;
        let Some(block) = books.pools[pool].heap.find(address) else { return };
        let lasting = stream.context.is_none() && books.streams.is_lasting(block.stream);
        if !lasting || !self.options.caching || pool != PoolId::DEFAULT || self.may_capture() {
            return;
        }
        self.know_me(books);
        if front.limit() == 0 {
            return;
        }
        if front.loans.is_full() {
            front.loans.make_room(&mut shelf::stop_all());
        }
        let Block { bytes, requested, stream: slot, .. } = block;
        let lent = Lent { bytes, requested, stream: slot };
        let Some(kept) = front.loans.lend(address, lent) else { return };
        let (era, version) = (front.era(), front.version.load(Ordering::Relaxed));
        shelf::with_mine(|mine| {
            let mine = mine.make(self.id)?;
            mine.set_up(slot, name(stream), era);
            let (shelf, _) = mine.of(slot, era)?;
            shelf.handed_out(kept, bytes, version);
            Some(())
        });
    }

    /// Counts the calling thread among those that have a tally. From the second on they declare.
    pub(super) fn know_me(&self, books: &mut Books) {
        let known = shelf::with_mine(|mine| mine.make(self.id).map(|mine| mine.known));
        let Some(Some(false)) = known else { return };
        let mut stopped = shelf::stop_all();
        self.gather_all(books, &mut stopped);
        books.tallies += 1;
        let shared = books.tallies > 1;
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

    /// Takes off the calling thread's shelf what keeps a block from being put there.
    pub(super) fn make_shelf_room(&self, books: &mut Books, address: Address) {
        let (front, limit) = (&self.front, self.front.limit());
        let Some(Standing::Out(lent)) = front.loans.standing(address) else { return };
        shelf::with_mine(|mine| {
            let (shelf, _) = mine.of(self.id)?.of(lent.stream, front.era())?;
            shelf.make_room(lent.bytes, limit, |other| front.back_to_heap(books, other));
            Some(())
        });
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

    /// The error for an address that the books refuse: to them a block on a shelf is live.
    pub(super) fn explain_shelved(&self, error: Error) -> Error {
        match error {
            Error::InteriorPointer { pointer, start } if self.is_shelved(start) => {
                Error::DoubleFree(pointer)
            }
            error => error,
        }
    }

    fn is_shelved(&self, start: Address) -> bool {
        matches!(self.front.loans.standing(start), Some(Standing::Shelved(_)))
    }

    /// Whether a block is on loan, out or shelved.
    pub(super) fn is_lent(&self, address: Address) -> bool {
        self.front.loans.standing(address).is_some()
    }

    /// The books alone are to say what becomes of this block: ends its loan, if it is on one.
    pub(super) fn end_loan(&self, books: &mut Books, address: Address) -> Result<(), Error> {
        let loans = &self.front.loans;
        match loans.end_out(address) {
            Some(lent) => books.pools[PoolId::DEFAULT].heap.restate(address, lent.requested),
            None if loans.standing(address).is_some() => Err(Error::DoubleFree(address)),
            None => Ok(()),
        }
    }

    /// From now on the block is freed by the books. Fails if it is free already.
    pub(super) fn bar(&self, address: Address) -> Result<(), Error> {
        let loans = &self.front.loans;
        match loans.bar(address) || loans.standing(address).is_none() {
            true => Ok(()),
            false => Err(Error::DoubleFree(address)),
        }
    }

    /// What was asked for, of a live block; an error if it lies on a shelf.
    pub(super) fn requested(&self, block: &Block, asked: Address) -> Result<u64, Error> {
        match self.front.loans.standing(block.address) {
            Some(Standing::Out(lent)) => Ok(lent.requested),
            Some(Standing::Shelved(_)) => Err(Error::DoubleFree(asked)),
            None => Ok(block.requested),
        }
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
            if let Standing::Out(lent) = standing {
                let restated = books.pools[PoolId::DEFAULT].heap.restate(address, lent.requested);
                assert!(restated.is_ok(), "a block on loan is not live: {address}");
            }
        });
        drop(stopped);
        books.check();
    }
}

impl Front {
    /// Ends the loan of a block that was taken off a shelf. Its counters were moved when it was freed.
    fn back_to_heap(&self, books: &mut Books, block: Kept) {
        let address = block.address();
        self.loans.end_shelved(block);
        let Books { pools, streams, .. } = books;
        let released = pools[PoolId::DEFAULT].heap.release(address, |slot| streams.epoch(slot));
        debug_assert!(released.is_ok(), "a block on a shelf is not live to the heap: {address}");
    }

    /// Adds what a thread has counted.
    fn gather(&self, stats: &mut cuddy_stats, tally: &mut Tally) {
        if tally.is_empty() {
            return;
        }
        self.note(stats);
        for (which, counters) in peaked(stats).into_iter().enumerate() {
            let (counted, highest) = tally.take(&self.declared, which);
            for (now, peak, unit) in counters.into_iter().flatten() {
                *peak = (*peak).max(sum(*now, highest / unit));
                *now = sum(*now, counted / unit);
            }
        }
        let served = std::mem::take(&mut tally.served);
        stats.malloc_count += served;
        stats.hit_count += served;
        stats.requested_total += std::mem::take(&mut tally.requested);
        stats.allocated_total += std::mem::take(&mut tally.allocated);
        stats.free_count += std::mem::take(&mut tally.freed);
    }

    /// Notes the peaks of what all threads have declared. To be called before and after the books
    /// change what has a peak, where several threads count.
    fn note(&self, stats: &mut cuddy_stats) {
        // One thread alone declares nothing.
        if !self.shared.load(Ordering::Relaxed) || mutant("shelf-peak-forgotten") {
            return;
        }
        for (which, counters) in peaked(stats).into_iter().enumerate() {
            let highest = self.declared.take_highest(which);
            for (now, peak, unit) in counters.into_iter().flatten() {
                *peak = (*peak).max(sum(*now, highest / unit));
            }
        }
    }
}

/// A stream's name on shelves: 0 and 1 are the legacy default stream, both.
#[inline]
fn name(stream: Named) -> usize {
    stream.raw.max(1)
}

/// A counter of the books, its peak, and what a tally counts for one of it.
type Peaked<'s> = Option<(&'s mut u64, &'s mut u64, i64)>;

/// For each thing that tallies count, the counters that it moves: a block on a shelf is neither
/// allocated nor active.
fn peaked(stats: &mut cuddy_stats) -> [[Peaked<'_>; 2]; PEAKED] {
    [
        [Some((&mut stats.requested, &mut stats.requested_peak, 1)), None],
        [
            Some((&mut stats.allocated, &mut stats.allocated_peak, 1)),
            Some((&mut stats.active, &mut stats.active_peak, 1)),
        ],
        [Some((&mut stats.live_block_count, &mut stats.live_block_peak_count, A_BLOCK)), None],
    ]
}

/// What was counted in the books and what was counted since.
fn sum(now: u64, by: i64) -> u64 {
    now.saturating_add_signed(by)
}
