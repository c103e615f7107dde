#![forbid(unsafe_code)]
//! Fences: events recorded behind streams, asked, waited for, and used again.
//!
//! A fence is *begun* in the books, recorded with no lock held, then attached. Whatever was stamped
//! before the beginning is covered. A fence that could not be recorded loses nothing: its stamp is
//! covered by any later one, or by a wait for the whole context.

use super::Device;
use super::fence::Fence;
use super::work::{CONTEXT_IS_DESTROYED, is_gone};
use crate::driver::{Context, Event, Inside, StreamHandle};
use crate::error::{DriverError, Error};
use crate::streams::Home;
use crate::sync::thread_number;
use crate::types::{Stamp, StreamSlot};

/// The driver's answer about an event that belongs to a captured graph.
const CAPTURED_EVENT: i32 = 907;

/// What the driver would say if host memory ran out for an event.
const OUT_OF_MEMORY: i32 = 2;

/// What to wait for.
pub(super) enum Wait {
    /// One fence.
    Fence(Stamp, Fence),
    /// All work of a context: nothing less can be had.
    Context(Home),
}

impl Device {
    /// Records the fences that were begun, as well as can be: what fails is left to be waited for.
    pub(super) fn record(&self, begun: &[Stamp]) {
        for (at, &stamp) in begun.iter().enumerate() {
            let recording = self.recording.lock();
            let books = self.books.lock();
            if books.streams.passed(stamp) || books.streams.fence_of(stamp).is_some() {
                continue;
            }
            let home = books.streams.home(stamp.stream);
            let handle = books.streams.recordable(stamp.stream, thread_number(), None);
            drop(books);
            match handle {
                Some(handle) => self.record_on(stamp, StreamHandle(handle), home),
                None if self.driver.has_context_events() => {
                    drop(recording);
                    self.record_over(home, &begun[at..]);
                }
                None => {}
            }
        }
    }

    /// Records one begun fence on a stream whose handle may be used now.
    pub(super) fn record_on(&self, stamp: Stamp, stream: StreamHandle, home: Home) {
        let recorded = self.with_event(home, |inside, event| inside.event_record(event, stream));
        if let Ok(fence) = recorded {
            let unkept = self.books.lock().streams.attach(stamp, fence);
            unkept.unwrap_or_else(|fence| self.recycle(fence));
        }
    }

    /// Records one fence over everything that a context has been given, for those of the begun ones
    /// that are of it. Streams that nobody waits for get none: each would cost a query of its own.
    fn record_over(&self, home: Home, begun: &[Stamp]) {
        let recorded = self.with_event(home, |inside, event| inside.event_record_context(event));
        let Ok(fence) = recorded else { return };
        for &stamp in begun {
            let mut books = self.books.lock();
            if books.streams.home(stamp.stream) == home {
                let unkept = books.streams.attach(stamp, fence.clone());
                drop(books);
                unkept.unwrap_or_else(|fence| self.recycle(fence));
            }
        }
        self.recycle(fence);
    }

    /// An event of the context, spare or new, that `record` has recorded.
    fn with_event(
        &self,
        home: Home,
        record: impl FnOnce(&Inside<'_>, Event) -> Result<(), DriverError>,
    ) -> Result<Fence, DriverError> {
        self.check_alive(home)?;
        let inside = self.driver.enter(Context(home.context), self.id, &self.calls)?;
        let own = self.books.lock().home == home;
        let Some((count, spare)) = self.spares.lock().take(own) else {
            return Err(DriverError { function: "cuEventCreate", code: OUT_OF_MEMORY });
        };
        let event = match spare.map_or_else(|| inside.event_create(), Ok) {
            Ok(event) => event,
            Err(error) => {
                self.spares.lock().give(count, None);
                return Err(error);
            }
        };
        let fence = Fence::new(event, home, count);
        match record(&inside, event) {
            Ok(()) => Ok(fence),
            Err(error) => {
                self.recycle(fence);
                Err(error)
            }
        }
    }

    /// Fails if a context that is not our own was destroyed. Ours is retained, and checked by misses.
    fn check_alive(&self, home: Home) -> Result<(), DriverError> {
        if self.books.lock().home == home {
            return Ok(());
        }
        match self.driver.context_id(Context(home.context))? {
            Some(id) if id != home.id => {
                Err(DriverError { function: "cuCtxGetId", code: CONTEXT_IS_DESTROYED })
            }
            _ => Ok(()),
        }
    }

    /// Lets go of one copy of a fence. The last one gives the event back to be used again.
    pub(super) fn recycle(&self, fence: Fence) {
        let Some((event, home, count)) = fence.into_parts() else { return };
        if self.books.lock().home == home {
            self.spares.lock().give(count, Some(event));
            return;
        }
        self.spares.lock().give(count, None);
        // Of another context: it cannot be kept. If that one is gone, so is its event.
        if self.check_alive(home).is_ok()
            && let Ok(inside) = self.driver.enter(Context(home.context), self.id, &self.calls)
        {
            let _ = inside.event_destroy(event);
        }
    }

    /// Asks the oldest fences of every stream, and settles limbo. How many blocks became free.
    pub(super) fn settle_passed(&self, inside: &Inside<'_>) -> Result<usize, Error> {
        loop {
            let mut oldest: Vec<(Stamp, Fence)> = Vec::new();
            self.books.lock().streams.oldest_fences(|stamp, fence| {
                if oldest.try_reserve(1).is_ok() {
                    oldest.push((stamp, fence.clone()));
                }
            });
            let mut passed = false;
            for (stamp, fence) in oldest {
                if self.is_over(inside, &fence)? {
                    self.pass(stamp);
                    passed = true;
                }
                self.recycle(fence);
            }
            if !passed {
                return Ok(self.all_books().settle());
            }
        }
    }

    /// Whether a fence is over.
    fn is_over(&self, inside: &Inside<'_>, fence: &Fence) -> Result<bool, Error> {
        match self.check_alive(fence.home()) {
            Ok(()) => {}
            // The context is gone, and all its work with it.
            Err(error) if is_gone(error) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
        match inside.event_is_done(fence.event()) {
            Ok(done) => Ok(done),
            // It says nothing about the stream's own work; a wait for more will have to do.
            Err(DriverError { code: CAPTURED_EVENT, .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Notes that a fence is over, and takes back the events that are not needed any more.
    fn pass(&self, stamp: Stamp) {
        loop {
            let done = self.books.lock().streams.pass(stamp);
            match done {
                Some(fence) => self.recycle(fence),
                None => return,
            }
        }
    }

    /// What has to be waited for, so that all the stamps have passed. Fences that are missing are
    /// recorded now, where the handle may be used.
    pub(super) fn waits_for(
        &self,
        stamps: &[Stamp],
        passing: Option<(StreamSlot, usize)>,
    ) -> Result<Vec<Wait>, Error> {
        let mut waits: Vec<Wait> = Vec::new();
        waits.try_reserve(stamps.len()).map_err(|_| Error::HostOutOfMemory)?;
        for &stamp in stamps {
            let _recording = self.recording.lock();
            let mut books = self.books.lock();
            if books.streams.passed(stamp) {
                continue;
            }
            let home = books.streams.home(stamp.stream);
            let handle = books.streams.recordable(stamp.stream, thread_number(), passing);
            let mut fence = books.streams.fence_of(stamp);
            if let (None, Some(handle)) = (&fence, handle) {
                let begun = books.streams.begin_fence(stamp.stream);
                drop(books);
                self.record_on(begun, StreamHandle(handle), home);
                fence = self.books.lock().streams.fence_of(stamp);
            }
            match fence {
                Some((covering, fence)) => waits.push(Wait::Fence(covering, fence)),
                None if waits
                    .iter()
                    .any(|wait| matches!(wait, Wait::Context(it) if *it == home)) => {}
                None => waits.push(Wait::Context(home)),
            }
        }
        Ok(waits)
    }

    /// Gives up to wait; what was recorded for it stays recorded.
    pub(super) fn let_go(&self, waits: Vec<Wait>) {
        for wait in waits {
            if let Wait::Fence(_, fence) = wait {
                self.recycle(fence);
            }
        }
    }

    /// Waits until all of it is over. No lock may be held.
    pub(super) fn wait(&self, inside: &Inside<'_>, waits: Vec<Wait>) -> Result<(), Error> {
        let mut outcome = Ok(());
        for wait in waits {
            if outcome.is_ok() {
                self.books.lock().stats.wait_count += 1;
                outcome = self.wait_one(inside, &wait);
            }
            if let Wait::Fence(_, fence) = wait {
                self.recycle(fence);
            }
        }
        outcome
    }

    fn wait_one(&self, inside: &Inside<'_>, wait: &Wait) -> Result<(), Error> {
        let home = match wait {
            Wait::Context(home) => *home,
            Wait::Fence(stamp, fence) => match self.wait_fence(inside, fence) {
                Ok(()) => {
                    self.pass(*stamp);
                    return Ok(());
                }
                Err(DriverError { code: CAPTURED_EVENT, .. }) => fence.home(),
                Err(error) => return Err(error.into()),
            },
        };
        self.wait_context(home)
    }

    fn wait_fence(&self, inside: &Inside<'_>, fence: &Fence) -> Result<(), DriverError> {
        match self.check_alive(fence.home()) {
            Ok(()) => inside.event_synchronize(fence.event()),
            Err(error) if is_gone(error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Waits for all work of a context; a context that is gone has none.
    fn wait_context(&self, home: Home) -> Result<(), Error> {
        let begun = self.books.lock().streams.begin_fences_of(home)?;
        let waited = self.check_alive(home).and_then(|()| {
            self.driver.enter(Context(home.context), self.id, &self.calls)?.synchronize()
        });
        match waited {
            Ok(()) => {}
            Err(error) if is_gone(error) && self.books.lock().home != home => {}
            Err(error) => return Err(error.into()),
        }
        begun.into_iter().for_each(|stamp| self.pass(stamp));
        Ok(())
    }
}
