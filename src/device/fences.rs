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
use crate::mutants::mutant;
use crate::streams::Home;
use crate::sync::thread_number;
use crate::types::Stamp;

/// The driver's answer about an event that belongs to a captured graph.
pub(super) const CAPTURED_EVENT: i32 = 907;

/// What the driver would say if host memory ran out for an event.
const OUT_OF_MEMORY: i32 = 2;

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
            if books.streams.is_captured(stamp.stream) || self.is_deferred(&books, stamp.stream) {
                continue;
            }
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
        let recorded =
            self.with_event(home, false, |inside, event| inside.event_record(event, stream));
        if let Ok(fence) = recorded {
            let unkept = self.books.lock().streams.attach(stamp, fence);
            unkept.unwrap_or_else(|fence| self.recycle(fence));
        }
    }

    /// Records one fence over everything that a context has been given, for those of the begun ones
    /// that are of it. Streams that nobody waits for get none: each would cost a query of its own.
    pub(super) fn record_over(&self, home: Home, begun: &[Stamp]) {
        let Some(_whole) = self.over_whole_context() else { return };
        let recorded =
            self.with_event(home, true, |inside, event| inside.event_record_context(event));
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
        wide: bool,
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
        let fence = Fence::new(event, home, wide, count);
        match record(&inside, event) {
            Ok(()) => Ok(fence),
            Err(error) => {
                self.recycle(fence);
                Err(error)
            }
        }
    }

    /// Fails if a context that is not our own was destroyed. Ours is retained, and checked by misses.
    pub(super) fn check_alive(&self, home: Home) -> Result<(), DriverError> {
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
        {
            // Under the books: a reset, which forgets the spares, comes before or after.
            let books = self.books.lock();
            let own = books.home == home;
            self.spares.lock().give(count, own.then_some(event));
            if own {
                return;
            }
        }
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
            let (mut passed, mut failed) = (false, None);
            for (stamp, fence) in oldest {
                match failed.is_none().then(|| self.is_over(inside, &fence)) {
                    Some(Ok(true)) => {
                        self.pass(stamp);
                        passed = true;
                    }
                    Some(Err(error)) => failed = Some(error),
                    Some(Ok(false)) | None => {}
                }
                self.recycle(fence);
            }
            match failed {
                Some(error) => return Err(error),
                None if !passed => return Ok(self.all_books().settle()),
                None => {}
            }
        }
    }

    /// Whether a fence is over.
    pub(super) fn is_over(&self, inside: &Inside<'_>, fence: &Fence) -> Result<bool, Error> {
        match self.check_alive(fence.home()) {
            Ok(()) => {}
            // The context is gone, and all its work with it.
            Err(error) if is_gone(error) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
        match inside.event_is_done(fence.event()) {
            Ok(done) => Ok(done),
            // It says nothing about the stream's own work, and never will.
            Err(DriverError { code: CAPTURED_EVENT, .. }) => {
                self.drop_captured(fence);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Gives up an event that turned out to be a capture's: others may cover what it stood for.
    fn drop_captured(&self, fence: &Fence) {
        if mutant("capture-keeps-captured-events") {
            return;
        }
        loop {
            let detached = self.books.lock().streams.detach(|kept| kept.event() == fence.event());
            match detached {
                Some(copy) => self.recycle(copy),
                None => return,
            }
        }
    }

    /// Notes that a fence is over, and takes back the events that are not needed any more.
    pub(super) fn pass(&self, stamp: Stamp) {
        loop {
            let done = self.books.lock().streams.pass(stamp);
            match done {
                Some(fence) => self.recycle(fence),
                None => return,
            }
        }
    }
}
