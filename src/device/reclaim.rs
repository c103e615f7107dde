#![forbid(unsafe_code)]
//! The way down when the cache misses: one ladder, the cheapest rung first.
//!
//! A miss ends in a block, or in an error after which the device is as it was before: nothing that
//! this miss got from the driver is kept, and nothing that was free is lost.

use super::wait::Until;
use super::work::{Turn, Work};
use super::{Device, Store};
use crate::driver::StreamHandle;
use crate::error::{DriverError, Error, sentence};
use crate::heap::{Block, Growth, Request};
use crate::mutants::mutant;
use crate::types::{Address, PoolId, StreamSlot};

/// One miss on its way down.
pub(super) struct Miss<'d> {
    pub work: Work<'d>,
    pub pool: PoolId,
    pub request: Request,
    /// The place claimed for the block, while memory for it is gathered.
    pub plan: Option<Growth>,
    /// Bytes of free memory that the place takes in beside its new pages.
    pub beside: u64,
    /// The pool's own limit is what stands in the way: memory of others is no help.
    pub bounded: bool,
    /// Bytes that are lacking to carry the plan out.
    pub short: u64,
    /// Bytes that could still be got from the driver when `short` was found.
    pub obtainable: u64,
    /// Bytes of pages that this miss has created.
    pub created: u64,
    /// The driver's refusal, if it came to that.
    pub refused: Option<DriverError>,
    /// The driver has no more addresses.
    pub unreachable: bool,
    /// Memory was taken back for this miss.
    pub taken_back: bool,
    /// The host waited for this miss.
    pub waited: bool,
    /// How long it may.
    pub until: Until,
}

/// The rungs that serve a request.
#[derive(Clone, Copy, Debug)]
enum Rung {
    Own,
    Passed,
    FirstFresh,
    Waiting,
    Fresh,
}

/// Why the way down ends early.
pub(super) enum Stop {
    Failed(Error),
    /// The device was reset while we waited: start again from the top.
    Reset,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<DriverError> for Stop {
    fn from(error: DriverError) -> Self {
        Self::Failed(error.into())
    }
}

/// Serves a request that the cache could not. `None`: the device was reset under us.
pub(super) fn serve(
    device: &Device,
    pool: PoolId,
    request: &Request,
    passing: (StreamSlot, usize),
    wait_ms: u64,
) -> Result<Option<Address>, Error> {
    let Turn::Mine(work) = Work::begin(device, Some(passing))? else { return Ok(None) };
    let mut miss = Miss {
        work,
        pool,
        request: *request,
        plan: None,
        beside: 0,
        bounded: false,
        short: 0,
        obtainable: 0,
        created: 0,
        refused: None,
        unreachable: false,
        taken_back: false,
        waited: false,
        until: Until::after(wait_ms),
    };
    let found = miss.refuse_unknown_capture().and_then(|()| miss.descend());
    let served = miss.end(found);
    if served.is_ok() {
        // The request is served. What cannot go back now does so later.
        let _ = device.decay();
    }
    served
}

impl Miss<'_> {
    /// The ladder. A rung that changed something sends us back to the top.
    fn descend(&mut self) -> Result<Block, Stop> {
        loop {
            // 1. A block of this stream that was freed since the cache was asked.
            if let Some(block) = self.take()? {
                return self.served_by(Rung::Own, block);
            }
            if self.is_captured() && !mutant("capture-climbs-the-whole-ladder") {
                return self.descend_captured();
            }
            // Nothing below helps against live memory: fail at once, and wait for nobody.
            if self.is_hopeless() && self.work.retry_stuck()? == 0 {
                return Err(Stop::Failed(self.out_of_memory()));
            }
            // 2. Memory of any stream whose last use is over, or that this stream comes after.
            if self.work.device.settle_passed(&self.work.inside)? > 0 {
                continue;
            }
            if let Some(block) = self.share(Self::adopt_ready)? {
                return self.served_by(Rung::Passed, block);
            }
            // What destroyed pools leave behind goes back.
            self.work.reap()?;
            // 3. Fresh memory, as long as growth is small.
            if self.may_grow_freely()
                && let Some(block) = self.grow()?
            {
                return self.served_by(Rung::FirstFresh, block);
            }
            // 4. Another stream's memory, behind a stream wait.
            if self.shares_with_wait()
                && let Some(block) = self.share(Self::adopt_with_wait)?
            {
                return self.served_by(Rung::Waiting, block);
            }
            // 5. Fresh memory within the limit: nobody has to be waited for.
            if let Some(block) = self.grow()? {
                return self.served_by(Rung::Fresh, block);
            }
            // All of what has passed, and not only the first of it.
            if let Some(block) = self.share(|miss| miss.adopt_passed(true))? {
                return self.served_by(Rung::Passed, block);
            }
            // 6. Pages and segments that nobody uses, and that lie elsewhere.
            if self.work.retry_stuck()? > 0 || self.take_back_passed()? {
                continue;
            }
            // Memory of a private pool that was made to help out.
            if let Some(block) = self.borrow()? {
                return self.served_by(Rung::Passed, block);
            }
            // 7. A wait for the last users of memory that would be enough, and for nobody else.
            if self.waits_at_all() && self.wait_for_memory()? {
                self.waited = true;
                if mutant("device-no-second-search") {
                    return Err(Stop::Failed(self.out_of_memory()));
                }
                continue;
            }
            // Memory that another miss has claimed and may leave behind.
            if self.wait_for_others()? {
                continue;
            }
            // 9. Nothing is left to try.
            return Err(Stop::Failed(self.out_of_memory()));
        }
    }

    /// Memory for a capture that nobody told us of would be lost to it with its free.
    fn refuse_unknown_capture(&self) -> Result<(), Stop> {
        let Some((slot, handle)) = self.work.passing else { return Ok(()) };
        if handle <= 1 || handle == usize::MAX || self.is_captured() {
            return Ok(());
        }
        let plain = self.work.device.books.lock().streams.home(slot).context != 0;
        match plain && self.work.inside.is_capturing(StreamHandle(handle)) {
            true => Err(Stop::Failed(Error::InvalidGraph(sentence!(
                "stream {handle:#x} is being captured, and Cuddy was not told: call \
                 cuddy_graph_begin() before memory is allocated in a capture, so that it stays \
                 the graph's"
            )))),
            false => Ok(()),
        }
    }

    /// Whether the request is for the work of a captured stream.
    fn is_captured(&self) -> bool {
        self.work.device.books.lock().streams.is_captured(self.request.stamp.stream)
    }

    /// In a capture: fresh memory within the limit, and nothing that asks, waits or takes back.
    fn descend_captured(&mut self) -> Result<Block, Stop> {
        match self.grow()? {
            Some(block) => self.served_by(Rung::Fresh, block),
            None => Err(Stop::Failed(self.out_of_memory())),
        }
    }

    /// Counts the rung that served.
    fn served_by(&mut self, rung: Rung, block: Block) -> Result<Block, Stop> {
        let mut books = self.work.device.books.lock();
        let stats = &mut books.stats;
        let count = match rung {
            Rung::Own => &mut stats.rung_own_count,
            Rung::Passed => &mut stats.rung_passed_count,
            Rung::FirstFresh => &mut stats.rung_growth_count,
            Rung::Waiting => &mut stats.rung_stream_wait_count,
            Rung::Fresh => &mut stats.rung_fresh_count,
        };
        *count += 1;
        stats.rung_harvest_count += u64::from(self.taken_back && !self.waited);
        stats.rung_host_wait_count += u64::from(self.waited);
        Ok(block)
    }

    /// Memory of other streams, if the request may have it.
    fn share(
        &mut self,
        way: impl FnOnce(&mut Self) -> Result<Option<Block>, Stop>,
    ) -> Result<Option<Block>, Stop> {
        if self.shares() && self.others_have_free_memory() { way(self) } else { Ok(None) }
    }

    fn others_have_free_memory(&self) -> bool {
        self.work.device.others_have(self.pool, &self.request)
    }

    fn adopt_ready(&mut self) -> Result<Option<Block>, Stop> {
        match self.adopt_passed(false)? {
            None => self.adopt_idle(),
            found => Ok(found),
        }
    }

    /// Whether fresh memory comes before another stream's: while what is reserved stays near the most
    /// that was ever active at once, or nobody else has any.
    fn may_grow_freely(&self) -> bool {
        if !self.shares_with_wait() || !self.others_have_free_memory() {
            return false;
        }
        let device = self.work.device;
        let (stats, peak) = {
            let books = device.books.lock();
            (books.stats, books.active_peak())
        };
        let peak = peak.max(stats.active + self.request.bytes);
        let allowed = peak as f64 * (1.0 + device.options.share_growth);
        (stats.reserved + self.request.bytes) as f64 <= allowed
    }

    fn take(&mut self) -> Result<Option<Block>, Stop> {
        let mut books = self.work.device.all_books();
        let found = books.take(self.pool, &self.request)?;
        self.work.device.note_peaks(&mut books);
        Ok(found)
    }

    /// A block out of a pool that serves the default one rather than let it fail.
    fn borrow(&mut self) -> Result<Option<Block>, Stop> {
        if self.pool != PoolId::DEFAULT {
            return Ok(None);
        }
        let mut books = self.work.device.books.lock();
        let mut after = PoolId::DEFAULT;
        // One by one, by number: a list would need host memory.
        loop {
            let next = books.pools.lenders().find(|&pool| pool > after);
            let Some(pool) = next else { return Ok(None) };
            if let Some(block) = books.take(pool, &self.request)? {
                return Ok(Some(block));
            }
            after = pool;
        }
    }

    fn grow(&mut self) -> Result<Option<Block>, Stop> {
        match self.work.device.store {
            Store::Pages(page) => self.grow_pages(page),
            Store::Segments => self.grow_segment(),
        }
    }

    /// Whether live memory alone stands in the way: within the limit, or on the device.
    fn is_hopeless(&self) -> bool {
        let device = self.work.device;
        let stats = device.all_books().stats;
        let most = if device.shows_free_memory { device.total } else { u64::MAX };
        let held = stats.allocated + stats.quarantined;
        let books = device.books.lock();
        let pool = &books.pools[self.pool];
        let room = pool.terms.limit.saturating_sub(pool.heap.figures().allocated);
        stats.limit.min(most).saturating_sub(held).min(room) < self.request.bytes
    }

    /// Whether the request could be served if everything that is not live were at hand: `bytes` of
    /// free and freed memory beside what is kept and what the driver may still give.
    pub(super) fn is_possible(&mut self, bytes: u64) -> bool {
        let kept = self.work.growing().pages.kept_bytes();
        let device = self.work.device;
        // A block may share its first and its last page with live ones.
        let live = device.books.lock().stats.allocated > 0;
        let shared = if live { 2 * device.store.unit() } else { 0 };
        bytes + kept + self.obtainable.min(device.total) + shared >= self.request.bytes
    }

    /// Gives the claimed place up.
    pub(super) fn drop_plan(&mut self) -> Result<(), Error> {
        match self.plan.take() {
            Some(plan) => self.work.device.books.lock().pools[self.pool].heap.abort_growth(plan),
            None => Ok(()),
        }
    }

    /// Counts the outcome, and puts back what a failure leaves behind.
    fn end(mut self, found: Result<Block, Stop>) -> Result<Option<Address>, Error> {
        if matches!(found, Err(Stop::Reset)) || !self.work.still_mine() {
            return Ok(None);
        }
        self.drop_plan()?;
        let pages = matches!(self.work.device.store, Store::Pages(_));
        match found {
            Ok(block) => {
                let mut books = self.work.device.books.lock();
                if self.pool != PoolId::DEFAULT {
                    books.pools[self.pool].stats.miss_count += 1;
                }
                books.stats.miss_count += 1;
                books.stats.harvest_count += u64::from(self.taken_back && pages);
                books.stats.retry_count += u64::from(self.taken_back);
                #[cfg(debug_assertions)]
                self.work.device.check(&mut books);
                Ok(Some(block.address))
            }
            Err(Stop::Failed(error)) => {
                // What this miss created for nothing goes back.
                let _ = self.work.release_kept(self.created);
                #[cfg(debug_assertions)]
                self.work.device.check(&mut self.work.device.books.lock());
                Err(error)
            }
            Err(Stop::Reset) => Ok(None),
        }
    }
}
