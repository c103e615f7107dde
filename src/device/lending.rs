#![forbid(unsafe_code)]
//! Lending: the books hand a block out on loan, and take it back.
//!
//! What a thread does over and over, with the stream and the device that it used before, takes one
//! visit to the books and one to the thread's own: [`Device::hand_out`], [`Device::take_back`]. What
//! these cannot do is done by [`Device::malloc`] and [`Device::free`], step by step.

use std::sync::atomic::Ordering;

use super::books::Books;
use super::front::{Front, name};
use super::{Device, Named, PoolName, Want};
use crate::error::Error;
use crate::heap::{Block, Request};
use crate::shelf::{self, Lent, Shelf, Standing};
use crate::size::GRANULE;
use crate::types::{Address, PoolId, Stamp};

impl Device {
    /// A block of `bytes` out of the stream's own free memory, for a thread that has a shelf of this
    /// stream. `None` says nothing else.
    pub(super) fn hand_out(&self, want: &Want, bytes: u64) -> Option<Address> {
        if want.pool != PoolName::DEFAULT || want.stream.context.is_some() || self.may_capture() {
            return None;
        }
        let front = &self.front;
        let mut books = self.books.lock();
        shelf::with_mine(|mine| {
            let mine = mine.of(self.id)?;
            let (name, era) = (name(want.stream), front.era());
            let stream = mine.named(name, era)?.0.stream();
            if books.streams.is_due(stream) || front.loans.is_full() {
                return None;
            }
            front.open(&mut books, Some(mine));
            let alignment = want.alignment.max(GRANULE);
            let stamp = Stamp { stream, epoch: 0 };
            let request = Request { bytes, requested: want.bytes, alignment, stamp };
            let block = books.take(PoolId::DEFAULT, &request).ok()??;
            books.hit(PoolId::DEFAULT);
            front.lend_from(mine.named(name, era)?.0, &block);
            Some(block.address)
        })?
    }

    /// Frees a block that is on loan: to the calling thread's shelf, after taking out what was in the
    /// way, or to the heap. `false` says that it was not done, and nothing else.
    pub(super) fn take_back(&self, address: Address) -> bool {
        if self.may_capture() {
            return false;
        }
        let front = &self.front;
        let mut books = self.books.lock();
        let taken = shelf::with_mine(|mine| {
            let mine = mine.of(self.id).filter(|mine| mine.known)?;
            let Some(Standing::Out(lent)) = front.loans.standing(address) else { return None };
            if books.limbo.is_noted(address) {
                return None;
            }
            front.open(&mut books, Some(mine));
            if let Some(shelf) = mine.shelf_for(lent.stream, front.era()) {
                shelf.make_room(lent.bytes, front.limit(), |other| {
                    front.back_to_heap(&mut books, other);
                });
                if front.put_on_shelf(mine, address).is_some() {
                    return Some(());
                }
            }
            let lent = front.loans.end_out(address, mine.tally.is_alone())?;
            let Books { pools, streams, stats, .. } = &mut *books;
            let released = pools[PoolId::DEFAULT].heap.release(address, |slot| streams.epoch(slot));
            debug_assert!(released.is_ok(), "a block on loan is not live to the heap: {address}");
            stats.freed(lent.bytes, lent.requested);
            Some(())
        });
        taken.flatten().is_some()
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
        shelf::with_mine(|mine| {
            let (mine, era) = (mine.make(self.id)?, front.era());
            mine.set_up(block.stream, name(stream), era);
            let (shelf, _) = mine.of(block.stream, era)?;
            front.lend_from(shelf, &block);
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
    fn is_lent(&self, address: Address) -> bool {
        self.front.loans.standing(address).is_some()
    }

    /// The books alone are to say what becomes of this block: ends its loan, if it is on one.
    pub(super) fn end_loan(&self, books: &mut Books, address: Address) -> Result<(), Error> {
        let loans = &self.front.loans;
        if self.is_lent(address) {
            // From now on loans are changed by exchanges.
            self.know_me(books);
        }
        match loans.end_out(address, false) {
            Some(lent) => books.pools[PoolId::DEFAULT].heap.restate(address, lent.requested),
            None if self.is_lent(address) => Err(Error::DoubleFree(address)),
            None => Ok(()),
        }
    }

    /// From now on the block is freed by the books. Fails if it is free already.
    pub(super) fn bar(&self, books: &mut Books, address: Address) -> Result<(), Error> {
        let loans = &self.front.loans;
        if self.is_lent(address) {
            // From now on loans are changed by exchanges.
            self.know_me(books);
        }
        match loans.bar(address) || !self.is_lent(address) {
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
}

impl Front {
    /// Puts a block that the books have just handed out on loan; the thread's shelf takes note.
    #[inline]
    fn lend_from(&self, shelf: &mut Shelf, block: &Block) {
        let Block { address, bytes, requested, stream } = *block;
        if let Some(kept) = self.loans.lend(address, Lent { bytes, requested, stream }) {
            shelf.handed_out(kept, bytes, self.version.load(Ordering::Relaxed));
        }
    }
}
