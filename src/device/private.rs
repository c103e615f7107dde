#![forbid(unsafe_code)]
//! Private pools: made, looked at, emptied, and gone when their last byte is.
//!
//! A pool that is destroyed serves nobody. Its blocks stay valid; with the last of them its memory
//! goes back to the driver as soon as nobody uses it any more: at once if that can be seen, else at a
//! later miss or trim of the device. Nobody waits for it.

use super::pool::PoolTerms;
use super::pools::PoolName;
use super::reclaim::Stop;
use super::take_back::total;
use super::wait::{Until, Wait};
use super::work::{Turn, Work, latest};
use super::{Device, Store, open};
use crate::error::Error;
use crate::heap::Heap;
use crate::options::Sharing;
use crate::stats::cuddy_stats;
use crate::types::{PoolId, Stamp};

impl Device {
    /// Makes a private pool. No driver call: it gets its addresses with its first block.
    pub(crate) fn create_pool(&self, terms: PoolTerms) -> Result<PoolName, Error> {
        let heap = Heap::new(self.page())?;
        self.books.lock().pools.add(heap, terms)
    }

    /// Ends a pool. Its blocks stay valid until they are freed.
    pub(crate) fn destroy_pool(&self, name: PoolName) -> Result<(), Error> {
        let mut books = self.books.lock();
        let id = books.pools.open(self.id, name)?;
        books.pools[id].destroyed = true;
        let idle = books.pools[id].is_idle();
        drop(books);
        if idle {
            // The pool is gone. What cannot go back now does so later.
            let _ = self.reap();
        }
        Ok(())
    }

    /// Fails unless the name is that of a pool that is there and not destroyed.
    pub(crate) fn check_pool(&self, name: PoolName) -> Result<(), Error> {
        self.books.lock().pools.open(self.id, name).map(|_| ())
    }

    /// A pool's counters, all of one moment. What only a device has (kept pages, driver calls) is 0.
    pub(crate) fn pool_stats(&self, name: PoolName) -> Result<cuddy_stats, Error> {
        let books = self.books.lock();
        let pool = &books.pools[books.pools.open(self.id, name)?];
        let mut stats = pool.stats;
        stats.limit = pool.terms.limit;
        stats.cached = stats.reserved.saturating_sub(stats.active);
        stats.largest_free = pool.heap.largest_free_of_any();
        Ok(stats)
    }

    /// Every peak of a pool becomes what is now.
    pub(crate) fn reset_pool_peaks(&self, name: PoolName) -> Result<(), Error> {
        let mut books = self.books.lock();
        let id = books.pools.open(self.id, name)?;
        books.pools[id].stats.reset_peaks();
        Ok(())
    }

    /// Sets a pool's own limit, and gives back what is cached in it above that.
    pub(crate) fn set_pool_limit(&self, name: PoolName, bytes: u64) -> Result<(), Error> {
        {
            // A miss under way has asked for the room that there was: it ends first.
            let _growth = self.growth.lock();
            let mut books = self.books.lock();
            let id = books.pools.open(self.id, name)?;
            books.pools[id].terms.limit = bytes;
            if books.pools[id].heap.figures().reserved <= bytes {
                return Ok(());
            }
        }
        self.trim_pool(name, bytes).map(|_| ())
    }

    /// Sets how the pool's memory may go from one stream to another; `None` is as configured.
    pub(crate) fn set_pool_share(
        &self,
        name: PoolName,
        share: Option<Sharing>,
    ) -> Result<(), Error> {
        let mut books = self.books.lock();
        let id = books.pools.open(self.id, name)?;
        books.pools[id].share = share;
        Ok(())
    }

    /// Gives a pool's cached memory back to the driver until no more than `keep` bytes are reserved in
    /// it. Waits for the streams that used it last. How many bytes were given back.
    pub(crate) fn trim_pool(&self, name: PoolName, keep: u64) -> Result<u64, Error> {
        self.look_for_captures()?;
        let id = self.books.lock().pin(self.id, name)?;
        let outcome = self.trim_pinned(id, keep);
        self.books.lock().unpin(id);
        outcome
    }

    fn trim_pinned(&self, id: PoolId, keep: u64) -> Result<u64, Error> {
        let mut work = match Work::begin(self, None) {
            Ok(Turn::Mine(work)) => work,
            Ok(Turn::Reset) | Err(Error::Shutdown) => return Ok(0),
            Err(error) => return Err(error),
        };
        let given = work.trim_pool(id, keep);
        match given.and_then(|given| work.outcome().map(|()| given).map_err(Stop::Failed)) {
            Ok(given) => Ok(given),
            Err(Stop::Reset | Stop::Failed(Error::Shutdown)) => Ok(0),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// Gives back the memory of destroyed pools that nobody uses any more. Waits for nobody.
    pub(super) fn reap(&self) -> Result<(), Error> {
        match Work::begin(self, None) {
            Ok(Turn::Mine(mut work)) => match work.reap() {
                Err(Error::Shutdown) => Ok(()),
                outcome => outcome,
            },
            Ok(Turn::Reset) | Err(Error::Shutdown) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The page's bytes, or what stands for it where segments serve.
    pub(super) fn page(&self) -> u64 {
        match self.store {
            Store::Pages(page) => page,
            Store::Segments => open::SEGMENT_UNIT,
        }
    }
}

impl Work<'_> {
    /// See [`Device::trim_pool`].
    fn trim_pool(&mut self, id: PoolId, keep: u64) -> Result<u64, Stop> {
        let device = self.device;
        let reserved = || device.books.lock().pools[id].heap.figures().reserved;
        if reserved() <= keep || device.books.lock().pools[id].is_graphs() {
            return Ok(0);
        }
        self.empty_limbo()?;
        let excess = reserved().saturating_sub(keep);
        let runs = device.claim(&[id], excess, &|_, _| true)?;
        if total(&runs) == 0 {
            return Ok(0);
        }
        let taken = self.take(runs, Until::Over)?;
        if let Store::Pages(_) = device.store {
            self.release_kept(taken);
        }
        Ok(taken)
    }

    /// See [`Device::reap`].
    pub(super) fn reap(&mut self) -> Result<(), Error> {
        let device = self.device;
        let mut after = PoolId::DEFAULT;
        loop {
            let next = {
                let books = device.books.lock();
                let ending = |(id, pool): (PoolId, &super::pool::Pool)| {
                    (id > after && pool.is_idle()).then_some(id)
                };
                books.pools.each().find_map(ending)
            };
            let Some(id) = next else { return Ok(()) };
            self.reap_one(id)?;
            after = id;
        }
    }

    /// Takes what has passed of a destroyed pool's memory, and ends it if that was all.
    fn reap_one(&mut self, id: PoolId) -> Result<(), Error> {
        let device = self.device;
        self.see_passed(id)?;
        let usable = |streams: &crate::streams::Streams<super::fence::Fence>, stamp: Stamp| {
            streams.passed(stamp)
        };
        let runs = device.claim(&[id], u64::MAX, &usable)?;
        if !runs.is_empty() {
            let taken = match self.take(runs, Until::Now) {
                Ok(taken) => taken,
                Err(Stop::Reset) => return Ok(()),
                Err(Stop::Failed(error)) => return Err(error),
            };
            self.release_kept(taken);
        }
        self.end_pool(id)
    }

    /// Asks whether the last users of a pool's free memory have finished; records the fences that are
    /// missing, where that can be done now.
    fn see_passed(&mut self, id: PoolId) -> Result<(), Error> {
        let device = self.device;
        let mut stamps: Vec<Stamp> = Vec::new();
        {
            let books = device.books.lock();
            for block in books.pools[id].heap.blocks() {
                let free = block.state == crate::heap::BlockState::Free;
                if free && !books.streams.passed(block.stamp) {
                    latest(&mut stamps, block.stamp)?;
                }
            }
        }
        let waits = device.waits_for(&stamps, self.passing)?;
        for wait in waits {
            if let Wait::Fence(_, fence) = wait {
                device.recycle(fence);
            }
        }
        device.settle_passed(&self.inside).map(|_| ())
    }

    /// Gives a pool's addresses and its number back, once nothing of it is left.
    fn end_pool(&mut self, id: PoolId) -> Result<(), Error> {
        let device = self.device;
        loop {
            let mut books = device.books.lock();
            if !books.pools.get(id).is_some_and(|pool| pool.is_over()) {
                return Ok(());
            }
            let Some(range) = books.pools[id].heap.ranges().next() else {
                books.pools.remove(id);
                return Ok(());
            };
            books.pools[id].heap.remove_range(range.address)?;
            drop(books);
            self.give_up_addresses(range);
        }
    }
}
