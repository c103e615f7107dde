#![forbid(unsafe_code)]
//! Taking memory back that is free but lies in the wrong place: pages without a live block are
//! unmapped and kept for mapping elsewhere; segments without one go back to the driver.
//!
//! Unmapping acts at host time, so everybody who used the memory last has to have finished. Which
//! memory is taken is decided so that the fewest streams have to be waited for.

use super::Store;
use super::books::Books;
use super::fence::Fence;
use super::pools::Claimed;
use super::reclaim::{Miss, Stop};
use super::work::{Work, latest};
use crate::error::Error;
use crate::mutants::mutant;
use crate::streams::Streams;
use crate::types::{PoolId, Stamp, StreamSlot};

/// How many streams are tried one by one before sets of them are.
const MOST_ALONE: usize = 64;

impl Store {
    /// Claims free memory of the pools `from` (in this order) of at least `bytes`, if there is so
    /// much, whose last users are `usable`.
    pub(super) fn claim(
        self,
        books: &mut Books,
        from: &[PoolId],
        bytes: u64,
        usable: &dyn Fn(&Streams<Fence>, Stamp) -> bool,
    ) -> Result<Vec<Claimed>, Error> {
        let mut claimed = Vec::new();
        for &pool in from {
            let missing = bytes.saturating_sub(total(&claimed));
            if missing == 0 {
                break;
            }
            if let Err(error) = self.claim_of(books, pool, missing, usable, &mut claimed) {
                self.unclaim(books, &claimed)?;
                return Err(error);
            }
        }
        Ok(claimed)
    }

    /// The same of one pool.
    fn claim_of(
        self,
        books: &mut Books,
        pool: PoolId,
        bytes: u64,
        usable: &dyn Fn(&Streams<Fence>, Stamp) -> bool,
        claimed: &mut Vec<Claimed>,
    ) -> Result<(), Error> {
        let Books { pools, streams, .. } = books;
        // Gone with its last block, while we were on our way.
        let Some(heap) = pools.get_mut(pool).map(|pool| &mut pool.heap) else { return Ok(()) };
        let runs = match self {
            Self::Pages(_) => heap.claim_pages(bytes, &|stamp| usable(streams, stamp))?,
            Self::Segments => heap.claim_segments(bytes, &|stamp| usable(streams, stamp))?,
        };
        let room = claimed.try_reserve(runs.len());
        for run in runs {
            match room {
                Ok(()) => claimed.push(Claimed { pool, run }),
                Err(_) => self.unclaim(books, &[Claimed { pool, run }])?,
            }
        }
        room.map_err(|_| Error::HostOutOfMemory)
    }

    /// Puts claimed memory back as it was.
    pub(super) fn unclaim(self, books: &mut Books, runs: &[Claimed]) -> Result<(), Error> {
        for &Claimed { pool, run } in runs {
            match self {
                Self::Pages(_) => books.pools[pool].heap.abort_unmap(run)?,
                Self::Segments => books.pools[pool].heap.abort_remove(run)?,
            }
        }
        Ok(())
    }

    /// The least that can be taken back, in bytes.
    pub(super) fn unit(self) -> u64 {
        match self {
            Self::Pages(page) => page,
            Self::Segments => 1,
        }
    }
}

impl Miss<'_> {
    /// Takes back what the request is short of. `false` if that cannot be had.
    pub(super) fn take_back(&mut self) -> Result<bool, Stop> {
        if self.short == 0 {
            return Ok(false);
        }
        let mut runs = self.claim_enough()?;
        if runs.is_empty() {
            runs = self.claim_everything()?;
        }
        if runs.is_empty() {
            return Ok(false);
        }
        let taken = self.work.take(runs)?;
        self.taken_back |= taken > 0;
        Ok(taken > 0)
    }

    /// Claims what is short, so that as few streams as possible have to be waited for.
    fn claim_enough(&mut self) -> Result<Vec<Claimed>, Stop> {
        let store = self.work.device.store;
        let own = self.request.stamp.stream;
        let books = &mut *self.work.device.books.lock();
        let slots = books.slots_with_free(self.pool, own, store.unit())?;
        let mut tried = self.claim_from(books, &[])?;
        for slot in slots.iter().take(MOST_ALONE) {
            if tried.is_empty() {
                tried = self.claim_from(books, std::slice::from_ref(slot))?;
            }
        }
        let mut count = 2;
        while tried.is_empty() && count < 2 * slots.len() {
            tried = self.claim_from(books, &slots[..count.min(slots.len())])?;
            count *= 2;
        }
        Ok(tried)
    }

    /// Claims what is short from memory that has passed, or whose users are all in `waited`; nothing
    /// if it is not enough.
    fn claim_from(&self, books: &mut Books, waited: &[StreamSlot]) -> Result<Vec<Claimed>, Stop> {
        let store = self.work.device.store;
        let usable = |streams: &Streams<Fence>, stamp: Stamp| {
            streams.passed(stamp) || waited.contains(&stamp.stream)
        };
        let runs = store.claim(books, &self.givers(books)?, self.short, &usable)?;
        if total(&runs) >= self.short {
            return Ok(runs);
        }
        store.unclaim(books, &runs)?;
        Ok(Vec::new())
    }

    /// The pools whose memory helps this request.
    fn givers(&self, books: &Books) -> Result<Vec<PoolId>, Error> {
        match self.bounded {
            true => books.some_pools(std::iter::once(self.pool)),
            false => books.some_pools(books.pools.givers(self.pool)),
        }
    }

    /// Gives the plan up and claims all that is free, if the request could be served from it.
    fn claim_everything(&mut self) -> Result<Vec<Claimed>, Stop> {
        let store = self.work.device.store;
        self.drop_plan()?;
        let runs = {
            let books = &mut *self.work.device.books.lock();
            store.claim(books, &self.givers(books)?, u64::MAX, &|_, _| true)?
        };
        if !runs.is_empty() && self.is_possible(total(&runs)) {
            return Ok(runs);
        }
        store.unclaim(&mut self.work.device.books.lock(), &runs)?;
        Ok(Vec::new())
    }
}

impl Work<'_> {
    /// Waits for the last users of claimed memory, and takes it. How many bytes that was.
    pub(super) fn take(&mut self, runs: Vec<Claimed>) -> Result<u64, Stop> {
        let store = self.device.store;
        match self.wait_for_users(&runs) {
            Ok(true) => {}
            Ok(false) => return Err(Stop::Reset),
            Err(error) => {
                if self.still_mine() {
                    store.unclaim(&mut self.device.books.lock(), &runs)?;
                }
                return Err(error.into());
            }
        }
        let mut taken = 0;
        let mut failed = None;
        for run in runs {
            let took = match store {
                Store::Pages(_) => self.unmap(run),
                Store::Segments => self.free_segment(run),
            };
            match took {
                Ok(bytes) => taken += bytes,
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if taken == 0 => Err(error.into()),
            _ => Ok(taken),
        }
    }

    /// Waits until nobody uses the claimed memory. `false` if the device was reset meanwhile.
    fn wait_for_users(&mut self, runs: &[Claimed]) -> Result<bool, Error> {
        let mut stamps = Vec::new();
        let mut outcome = Ok(());
        let books = self.device.books.lock();
        for &Claimed { pool, run } in runs {
            books.pools[pool].heap.stamps(run, &mut |stamp| {
                if outcome.is_ok() && !books.streams.passed(stamp) {
                    outcome = latest(&mut stamps, stamp);
                }
            });
        }
        drop(books);
        outcome?;
        if mutant("device-no-fence-before-unmap") {
            return Ok(true);
        }
        let waits = self.device.waits_for(&stamps, self.passing)?;
        self.wait(waits)
    }
}

/// The bytes of all runs.
pub(super) fn total(runs: &[Claimed]) -> u64 {
    runs.iter().map(|claimed| claimed.run.bytes).sum()
}
