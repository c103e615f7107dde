#![forbid(unsafe_code)]
//! Sharing: free memory of one stream for another.
//!
//! Memory may cross for one of three reasons, cheapest first: it has *passed* (its last use is over,
//! as a fence or a host wait has shown); the asking stream has *seen* it (its work from now on is
//! ordered behind that use already); or a stream wait is put into the asking stream now. Whatever the
//! reason, it is then adopted, stamped with an epoch of the asking stream that begins after it.
//!
//! A stream wait is never put into or taken from a capture: neither stream may be capturing, and the
//! event has to answer a query as an event of plain work before anybody waits for it.

use super::Device;
use super::books::Books;
use super::fence::Fence;
use super::last_waits::Aim;
use super::reclaim::{Miss, Stop};
use super::take_back::STEP;
use super::wait::{Until, Wait};
use super::work::latest;
use crate::driver::StreamHandle;
use crate::error::Error;
use crate::heap::{Block, Found, Quest, Request, Spot};
use crate::mutants::mutant;
use crate::options::Sharing;
use crate::streams::{ANY, Streams};
use crate::sync::thread_number;
use crate::types::{PoolId, Stamp};

/// Whether memory with this stamp may be used.
type Usable<'a> = &'a dyn Fn(&Streams<Fence>, Stamp) -> bool;

/// How many blocks of a stream are looked at, as long as there are other ways.
const PATIENCE: usize = 64;

/// What was found for a request, and whose last use of it is not over yet.
struct Candidate {
    pool: PoolId,
    spot: Spot,
    stamps: Vec<Stamp>,
}

impl Miss<'_> {
    /// Free memory of any stream that has passed, or that this stream has seen.
    pub(super) fn adopt_passed(&mut self, thorough: bool) -> Result<Option<Block>, Stop> {
        let own = self.request.stamp.stream;
        let ready = |streams: &Streams<Fence>, stamp: Stamp| is_ready(streams, own, stamp);
        let found = self.look(thorough, &ready)?;
        found.map_or(Ok(None), |found| self.adopt(&found))
    }

    /// The same, after a fence for each stream that has memory for the request, and none under way;
    /// what is over by now shows at once.
    pub(super) fn adopt_idle(&mut self) -> Result<Option<Block>, Stop> {
        let own = self.request.stamp.stream;
        let passing = self.work.passing;
        let thread = thread_number();
        let home = self.work.device.books.lock().home;
        let could = |streams: &Streams<Fence>, stamp: Stamp| {
            is_ready(streams, own, stamp)
                || streams.home(stamp.stream) == home
                    && !streams.has_fences(stamp.stream)
                    && streams.recordable(stamp.stream, thread, passing).is_some()
        };
        let found = self.look(false, &could)?;
        let device = self.work.device;
        if found.is_none() && device.driver.has_context_events() {
            return self.adopt_idle_of_anybody();
        }
        let Some(found) = found else { return Ok(None) };
        if found.stamps.iter().any(|&stamp| self.may_be_capturing(stamp)) {
            return Ok(None);
        }
        for wait in device.waits_for(&found.stamps, passing)? {
            let Wait::Fence(stamp, fence) = wait else { continue };
            let over = device.is_over(&self.work.inside, &fence);
            device.recycle(fence);
            if over? {
                device.pass(stamp);
            }
        }
        self.adopt(&found)
    }

    /// The same for streams that nobody can record on now: one fence over the context for all.
    fn adopt_idle_of_anybody(&mut self) -> Result<Option<Block>, Stop> {
        let own = self.request.stamp.stream;
        let device = self.work.device;
        let home = device.books.lock().home;
        let could = |streams: &Streams<Fence>, stamp: Stamp| {
            is_ready(streams, own, stamp)
                || !streams.has_fences(stamp.stream) && streams.home(stamp.stream) == home
        };
        let Some(found) = self.look(false, &could)? else { return Ok(None) };
        let mut begun = Vec::new();
        begun.try_reserve(found.stamps.len()).map_err(|_| Error::HostOutOfMemory)?;
        for &stamp in &found.stamps {
            begun.push(device.books.lock().streams.begin_fence(stamp.stream));
        }
        device.record_over(home, &begun);
        device.settle_passed(&self.work.inside)?;
        self.adopt(&found)
    }

    /// Another stream's free memory, behind a stream wait that is put in now.
    pub(super) fn adopt_with_wait(&mut self) -> Result<Option<Block>, Stop> {
        let device = self.work.device;
        let (own, passing) = (self.request.stamp.stream, self.work.passing);
        let thread = thread_number();
        // Default streams have the same handle in every context, and ours is the one that is current.
        let (home, able) = {
            let books = device.books.lock();
            let here = books.streams.home(own) == books.home;
            (books.home, books.streams.recordable(own, thread, passing).filter(|_| here))
        };
        let Some(handle) = able else { return Ok(None) };
        let could = |streams: &Streams<Fence>, stamp: Stamp| {
            is_ready(streams, own, stamp)
                || streams.home(stamp.stream) == home
                    && match streams.fence_of(stamp) {
                        Some((_, fence)) => !fence.is_wide(),
                        None => streams.recordable(stamp.stream, thread, passing).is_some(),
                    }
        };
        let Some(found) = self.look(false, &could)? else { return Ok(None) };
        if !found.stamps.is_empty() && self.work.inside.may_be_capturing(StreamHandle(handle)) {
            return Ok(None);
        }
        for &stamp in &found.stamps {
            if !self.put_wait(stamp, StreamHandle(handle))? {
                return Ok(None);
            }
        }
        self.adopt(&found)
    }

    /// Whether the stamp's stream is one that we could record on, and may be capturing.
    fn may_be_capturing(&self, stamp: Stamp) -> bool {
        let device = self.work.device;
        let _recording = device.recording.lock();
        let donor = {
            let books = device.books.lock();
            books.streams.recordable(stamp.stream, thread_number(), self.work.passing)
        };
        donor.is_some_and(|donor| self.work.inside.may_be_capturing(StreamHandle(donor)))
    }

    /// Makes this stream wait for a stamp. `false` if that cannot be done without harm.
    fn put_wait(&mut self, stamp: Stamp, thief: StreamHandle) -> Result<bool, Stop> {
        let (device, inside) = (self.work.device, &self.work.inside);
        let (own, passing) = (self.request.stamp.stream, self.work.passing);
        if self.may_be_capturing(stamp) {
            return Ok(false);
        }
        let Some(Wait::Fence(covering, fence)) = device.waits_for(&[stamp], passing)?.pop() else {
            return Ok(device.books.lock().streams.passed(stamp));
        };
        // A captured event says so here, before it could draw this stream into the capture.
        let waited = device.is_plain(inside, &fence).and_then(|plain| match plain {
            false => Ok(false),
            true if mutant("device-wait-forgotten") => Ok(true),
            true => {
                let _recording = device.recording.lock();
                inside.stream_wait(thief, fence.event())?;
                Ok(true)
            }
        });
        device.recycle(fence);
        let waited = waited?;
        if waited {
            let mut books = device.books.lock();
            books.streams.saw(own, covering)?;
            books.stats.stream_wait_count += 1;
        }
        Ok(waited)
    }

    /// Waits, on the host, for the last users of free memory that would do.
    pub(super) fn wait_for_spot(&mut self, aim: Aim) -> Result<bool, Stop> {
        let could = |streams: &Streams<Fence>, stamp: Stamp| self.may_wait(streams, stamp, aim);
        let Some(found) = self.look(true, &could)? else { return Ok(false) };
        let waited = self.wait_for_stamps(&found.stamps)?;
        if !waited {
            self.until = Until::Now;
        }
        Ok(waited)
    }

    fn look(&self, thorough: bool, usable: Usable<'_>) -> Result<Option<Candidate>, Error> {
        self.work.device.look(self.pool, &self.request, thorough, usable)
    }

    fn adopt(&self, found: &Candidate) -> Result<Option<Block>, Stop> {
        Ok(self.work.device.adopt(&self.request, found)?)
    }

    /// Whether memory of other streams may be used at all.
    pub(super) fn shares(&self) -> bool {
        self.work.device.share_of(self.pool) != Sharing::Never || mutant("device-never-shares")
    }

    /// Whether a stream may be made to wait for another one's memory.
    pub(super) fn shares_with_wait(&self) -> bool {
        self.work.device.share_of(self.pool) == Sharing::Wait
    }
}

/// Whether memory with this stamp may be used by the stream now. Its own is not: a hit, which takes
/// that, has been tried; but beside another's it may be.
fn is_ready(streams: &Streams<Fence>, own: crate::types::StreamSlot, stamp: Stamp) -> bool {
    if own == ANY {
        return streams.passed(stamp);
    }
    streams.passed(stamp) || streams.has_seen(own, stamp) || mutant("device-shares-at-once")
}

impl Device {
    /// How a pool's memory may go from one stream to another.
    fn share_of(&self, pool: PoolId) -> Sharing {
        let own = self.books.lock().pools.get(pool).and_then(|pool| pool.share);
        own.filter(|_| !mutant("pool-shares-as-all")).unwrap_or(self.options.share)
    }

    /// Free memory of other streams that a request may have at once, without asking the driver.
    pub(super) fn adopt_ready(
        &self,
        pool: PoolId,
        request: &Request,
    ) -> Result<Option<Block>, Error> {
        let own = request.stamp.stream;
        let never = self.share_of(pool) == Sharing::Never && !mutant("device-never-shares");
        if never || !self.others_have(pool, request) {
            return Ok(None);
        }
        let ready = |streams: &Streams<Fence>, stamp: Stamp| is_ready(streams, own, stamp);
        let Some(found) = self.look(pool, request, false, &ready)? else { return Ok(None) };
        let block = self.adopt(request, &found)?;
        if block.is_some() {
            self.books.lock().stats.rung_passed_count += 1;
        }
        Ok(block)
    }

    /// Whether any other stream has anything that would do, or that would beside this one's.
    pub(super) fn others_have(&self, pool: PoolId, request: &Request) -> bool {
        let books = self.books.lock();
        let heap = &books.pools[pool].heap;
        let own = heap.holding(request.stamp.stream).free;
        heap.figures().free > own && heap.figures().free >= request.bytes
    }

    /// Looks for memory of any stream, in steps; a single block first, then neighbours.
    fn look(
        &self,
        pool: PoolId,
        request: &Request,
        thorough: bool,
        usable: Usable<'_>,
    ) -> Result<Option<Candidate>, Error> {
        let patience = if thorough { usize::MAX } else { PATIENCE };
        let mut quest = Quest::new(request, patience, true);
        let own = request.stamp.stream;
        loop {
            let books = &mut *self.books.lock();
            let Books { pools, streams, .. } = books;
            let heap = &pools[pool].heap;
            match heap.search(&mut quest, &mut |stamp| usable(streams, stamp), STEP) {
                Found::NotYet => {}
                Found::Nothing => return Ok(None),
                Found::Spot(spot) => {
                    let (mut stamps, mut outcome) = (Vec::new(), Ok(()));
                    heap.stamps_of(spot, request.bytes, &mut |stamp| {
                        if outcome.is_ok() && !is_ready(streams, own, stamp) {
                            outcome = latest(&mut stamps, stamp);
                        }
                    });
                    outcome?;
                    return Ok(Some(Candidate { pool, spot, stamps }));
                }
            }
        }
    }

    /// Makes what was found this stream's, if it is still there and ready.
    fn adopt(&self, request: &Request, found: &Candidate) -> Result<Option<Block>, Error> {
        let mut books = self.my_books();
        let own = request.stamp.stream;
        let Books { pools, streams, stats, .. } = &mut *books;
        // Memory that has passed needs no stamp; any other is this stream's from now on.
        let (mut passed, mut crosses) = (true, false);
        let heap = &mut pools[found.pool].heap;
        heap.stamps_of(found.spot, request.bytes, &mut |stamp| {
            passed &= streams.passed(stamp);
            crosses |= stamp.stream != own;
        });
        let mut request = *request;
        if !passed {
            request.stamp.epoch = streams.epoch(own);
        }
        let ready =
            &mut |stamp| is_ready(streams, own, stamp) || mutant("device-adopts-what-is-not-ready");
        let Some(block) = heap.adopt(found.spot, &request, ready)? else { return Ok(None) };
        stats.crossing_count += u64::from(crosses);
        books.serve(found.pool, &block);
        Ok(Some(block))
    }

    /// Whether an event is one of plain work: over or not, but of no capture.
    fn is_plain(&self, inside: &crate::driver::Inside<'_>, fence: &Fence) -> Result<bool, Error> {
        match self.check_alive(fence.home()) {
            Err(error) if super::work::is_gone(error) => return Ok(false),
            other => other?,
        }
        match inside.event_is_done(fence.event()) {
            Ok(_) => Ok(true),
            Err(error) if error.code == super::fences::CAPTURED_EVENT => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
