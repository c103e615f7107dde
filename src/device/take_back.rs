#![forbid(unsafe_code)]
//! Taking memory back that is free but lies in the wrong place: pages without a live block are
//! unmapped and kept for mapping elsewhere; segments without one go back to the driver.
//!
//! Unmapping acts at host time, so everybody who used the memory last has to have finished. Which
//! memory is taken is decided so that the fewest streams have to be waited for.

use super::books::Books;
use super::fence::Fence;
use super::last_waits::Aim;
use super::pools::Claimed;
use super::reclaim::{Miss, Stop};
use super::wait::Until;
use super::work::{Waited, Work, latest};
use super::{Device, Store};
use crate::error::Error;
use crate::heap::Harvest;
use crate::mutants::mutant;
use crate::streams::Streams;
use crate::types::{PoolId, Stamp, StreamSlot};

/// How many blocks are looked at before the books are let go for a moment.
pub(super) const STEP: usize = 1000;

impl Store {
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

impl Device {
    /// Claims free memory of at least `bytes`, if there is so much: of these pools, in this order;
    /// whose last users are `usable`. In steps: nobody waits long for the books.
    pub(super) fn claim(
        &self,
        from: &[PoolId],
        bytes: u64,
        usable: &dyn Fn(&Streams<Fence>, Stamp) -> bool,
    ) -> Result<Vec<Claimed>, Error> {
        let mut claimed = Vec::new();
        for &giver in from {
            let missing = bytes.saturating_sub(total(&claimed));
            if missing == 0 {
                break;
            }
            if let Err(error) = self.claim_of(giver, missing, usable, &mut claimed) {
                self.store.unclaim(&mut self.books.lock(), &claimed)?;
                return Err(error);
            }
        }
        Ok(claimed)
    }

    /// The same of one pool.
    fn claim_of(
        &self,
        pool: PoolId,
        bytes: u64,
        usable: &dyn Fn(&Streams<Fence>, Stamp) -> bool,
        claimed: &mut Vec<Claimed>,
    ) -> Result<(), Error> {
        let mut harvest = Harvest::new(bytes);
        let mut done = Ok(false);
        let runs = loop {
            let books = &mut *self.books.lock();
            let Books { pools, streams, .. } = books;
            // Gone with its last block, while we were on our way.
            let Some(heap) = pools.get_mut(pool).map(|pool| &mut pool.heap) else { return Ok(()) };
            let usable = |stamp| usable(streams, stamp);
            match self.store {
                Store::Segments => break heap.claim_segments(bytes, &usable)?,
                Store::Pages(_) => done = heap.claim_some_pages(&mut harvest, &usable, STEP),
            }
            if done != Ok(false) {
                break harvest.into_runs();
            }
        };
        let room = claimed.try_reserve(runs.len()).map_err(|_| Error::HostOutOfMemory);
        for run in runs {
            match room {
                Ok(()) => claimed.push(Claimed { pool, run }),
                Err(_) => self.store.unclaim(&mut self.books.lock(), &[Claimed { pool, run }])?,
            }
        }
        room?;
        done.map(|_| ())
    }
}

impl Miss<'_> {
    /// Takes back what has passed, if that is as much as the request is short of.
    pub(super) fn take_back_passed(&mut self) -> Result<bool, Stop> {
        if self.short == 0 {
            return Ok(false);
        }
        let runs = self.claim_enough(&[], Aim::Own)?;
        self.take_claimed(runs)
    }

    /// Takes back what the request is short of, and waits for its last users: for as few streams as
    /// possible. `false` if that cannot be had.
    pub(super) fn take_back(&mut self, aim: Aim) -> Result<bool, Stop> {
        if self.short == 0 {
            return Ok(false);
        }
        let streams = self.streams_to_wait_for(aim)?;
        let mut runs = self.claim_enough(&streams, aim)?;
        if runs.is_empty() && aim == Aim::Any {
            runs = self.claim_everything()?;
        }
        self.take_claimed(runs)
    }

    fn take_claimed(&mut self, runs: Vec<Claimed>) -> Result<bool, Stop> {
        if runs.is_empty() {
            return Ok(false);
        }
        let taken = self.work.take(runs, self.until)?;
        self.taken_back |= taken > 0;
        Ok(taken > 0)
    }

    /// The fewest streams whose free memory is enough: this one's own, else one alone (that with the
    /// least that is enough), else those that have most.
    fn streams_to_wait_for(&self, aim: Aim) -> Result<Vec<StreamSlot>, Error> {
        let own = self.request.stamp.stream;
        let books = self.work.device.books.lock();
        let mut holdings: Vec<(u64, StreamSlot)> = Vec::new();
        let helps = |giver: &PoolId| !self.bounded || *giver == self.pool;
        let all = books.pools.givers(self.pool).filter(helps);
        for giver in all {
            let heap = &books.pools[giver].heap;
            for stream in heap.streams_with_free() {
                let bytes = heap.holding(stream).releasable;
                let latest = Stamp { stream, epoch: books.streams.stamped(stream) };
                if bytes > 0 && self.may_wait(&books.streams, latest, aim) {
                    holdings.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
                    holdings.push((bytes, stream));
                }
            }
        }
        drop(books);
        // One sum a stream, over all pools.
        holdings.sort_unstable_by_key(|&(_, stream)| stream);
        holdings.dedup_by(|again, kept| {
            let same = again.1 == kept.1;
            kept.0 += if same { again.0 } else { 0 };
            same
        });
        let enough = |&&(bytes, _): &&(u64, StreamSlot)| bytes >= self.short;
        let alone = holdings.iter().find(|(bytes, stream)| *stream == own && *bytes >= self.short);
        let alone = alone.or_else(|| holdings.iter().filter(enough).min());
        if let Some(&alone) = alone {
            holdings.clear();
            holdings.push(alone);
        }
        // The request's own stream first, then those that have most.
        holdings.sort_unstable_by_key(|&(bytes, stream)| (stream != own, u64::MAX - bytes));
        let mut sum: u64 = 0;
        let needed = holdings.iter().position(|(bytes, _)| {
            sum = sum.saturating_add(*bytes);
            sum >= self.short
        });
        holdings.truncate(needed.map_or(holdings.len(), |last| last + 1));
        let mut streams = Vec::new();
        streams.try_reserve(holdings.len()).map_err(|_| Error::HostOutOfMemory)?;
        streams.extend(holdings.iter().map(|&(_, stream)| stream));
        Ok(streams)
    }

    /// Claims what is short from memory that has passed, or whose users are all in `waited`; nothing
    /// if it is not enough.
    fn claim_enough(&self, waited: &[StreamSlot], aim: Aim) -> Result<Vec<Claimed>, Stop> {
        let usable = |streams: &Streams<Fence>, stamp: Stamp| {
            streams.passed(stamp)
                || waited.contains(&stamp.stream) && self.may_wait(streams, stamp, aim)
        };
        let device = self.work.device;
        let runs = device.claim(&self.givers()?, self.short, &usable)?;
        if total(&runs) >= self.short {
            return Ok(runs);
        }
        device.store.unclaim(&mut device.books.lock(), &runs)?;
        Ok(Vec::new())
    }

    /// The pools whose memory helps this request.
    fn givers(&self) -> Result<Vec<PoolId>, Error> {
        let books = self.work.device.books.lock();
        match self.bounded {
            true => books.some_pools(std::iter::once(self.pool)),
            false => books.some_pools(books.pools.givers(self.pool)),
        }
    }

    /// Gives the plan up and claims all that is free, if the request could be served from it.
    fn claim_everything(&mut self) -> Result<Vec<Claimed>, Stop> {
        let device = self.work.device;
        self.drop_plan()?;
        let runs = device.claim(&self.givers()?, u64::MAX, &|_, _| true)?;
        if !runs.is_empty() && self.is_possible(total(&runs)) {
            return Ok(runs);
        }
        device.store.unclaim(&mut device.books.lock(), &runs)?;
        Ok(Vec::new())
    }
}

impl Work<'_> {
    /// Waits for the last users of claimed memory, and takes it. How many bytes that was: none if
    /// the time was up first.
    pub(super) fn take(&mut self, runs: Vec<Claimed>, until: Until) -> Result<u64, Stop> {
        let store = self.device.store;
        match self.wait_for_users(&runs, until) {
            Ok(Waited::ToTheEnd) => {}
            Ok(Waited::TooShort) => {
                store.unclaim(&mut self.device.books.lock(), &runs)?;
                return Ok(0);
            }
            Ok(Waited::Reset) => return Err(Stop::Reset),
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

    /// Waits until nobody uses the claimed memory.
    fn wait_for_users(&mut self, runs: &[Claimed], until: Until) -> Result<Waited, Error> {
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
            return Ok(Waited::ToTheEnd);
        }
        let waits = self.device.waits_for(&stamps, self.passing)?;
        self.wait(waits, until)
    }
}

/// The bytes of all runs.
pub(super) fn total(runs: &[Claimed]) -> u64 {
    runs.iter().map(|claimed| claimed.run.bytes).sum()
}
