#![forbid(unsafe_code)]
//! Waiting for the GPU, on the host and aimed: at the fences of the memory that is wanted, and at
//! nothing else.
//!
//! Where a fence is missing and nobody but the stream's own callers could record it, it is asked for,
//! and meanwhile the wait is for all work of the context: less cannot be had. No lock is held while
//! anybody waits.

use std::time::{Duration, Instant};

use super::Device;
use super::fence::Fence;
use super::fences::CAPTURED_EVENT;
use super::work::is_gone;
use crate::driver::{Context, Inside, StreamHandle};
use crate::error::{DriverError, Error};
use crate::mutants::mutant;
use crate::streams::Home;
use crate::sync::thread_number;
use crate::types::{Stamp, StreamSlot};

/// How often a fence that may still come is looked for before the context is waited for instead.
const LOOKS: u32 = 4;
/// The shortest and the longest pause between two looks.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];

/// What to wait for.
pub(super) enum Wait {
    /// One fence.
    Fence(Stamp, Fence),
    /// The end of graphs that nobody has destroyed yet: it may never come.
    Never,
    /// All work of a context, unless these stamps pass first: nothing less can be had.
    Context(Home, Vec<Stamp>),
}

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// As long as it takes.
    Over,
    /// No longer than this.
    Time(Instant),
    /// Not at all.
    Now,
}

impl Until {
    /// So many milliseconds from now; `u64::MAX` is as long as it takes.
    pub(super) fn after(milliseconds: u64) -> Self {
        match milliseconds {
            0 => Self::Now,
            u64::MAX => Self::Over,
            some => Instant::now()
                .checked_add(Duration::from_millis(some))
                .map_or(Self::Over, Self::Time),
        }
    }

    fn is_up(self) -> bool {
        match self {
            Self::Over => false,
            Self::Time(end) => Instant::now() >= end,
            Self::Now => true,
        }
    }
}

impl Device {
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
            if self.books.lock().streams.is_captured(stamp.stream) {
                waits.push(Wait::Never);
                continue;
            }
            let home = self.books.lock().streams.home(stamp.stream);
            if let Some(wait) = self.fence_for(stamp, passing) {
                waits.extend(wait);
                continue;
            }
            let of_home = waits.iter_mut().find_map(|wait| match wait {
                Wait::Context(other, stamps) if *other == home => Some(stamps),
                _ => None,
            });
            match of_home {
                Some(stamps) => {
                    stamps.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
                    stamps.push(stamp);
                }
                None => {
                    let mut stamps = Vec::new();
                    stamps.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
                    stamps.push(stamp);
                    waits.push(Wait::Context(home, stamps));
                }
            }
        }
        Ok(waits)
    }

    /// The fence that covers a stamp, recorded now if need be: `Some(None)` if the stamp has passed,
    /// `None` if there is no fence and none can be recorded by this thread.
    fn fence_for(
        &self,
        stamp: Stamp,
        passing: Option<(StreamSlot, usize)>,
    ) -> Option<Option<Wait>> {
        let _recording = self.recording.lock();
        let mut books = self.books.lock();
        if books.streams.passed(stamp) {
            return Some(None);
        }
        let home = books.streams.home(stamp.stream);
        let handle = books.streams.recordable(stamp.stream, thread_number(), passing);
        let handle = handle.filter(|_| !self.is_deferred(&books, stamp.stream));
        let mut fence = books.streams.fence_of(stamp);
        match (&fence, handle) {
            (None, Some(handle)) => {
                let begun = books.streams.begin_fence(stamp.stream);
                drop(books);
                self.record_on(begun, StreamHandle(handle), home);
                fence = self.books.lock().streams.fence_of(stamp);
            }
            (None, None) => books.streams.want_fence(stamp.stream),
            (Some(_), _) => {}
        }
        fence.map(|(covering, fence)| Some(Wait::Fence(covering, fence)))
    }

    /// Waits until all of it is over, or the time is up (then `false`). No lock may be held.
    pub(super) fn wait(
        &self,
        inside: &Inside<'_>,
        waits: Vec<Wait>,
        until: Until,
    ) -> Result<bool, Error> {
        let mut outcome = Ok(true);
        for wait in waits {
            if outcome == Ok(true) {
                self.books.lock().stats.wait_count += 1;
                outcome = self.wait_one(inside, &wait, until);
            }
            if let Wait::Fence(_, fence) = wait {
                self.recycle(fence);
            }
        }
        outcome
    }

    fn wait_one(&self, inside: &Inside<'_>, wait: &Wait, until: Until) -> Result<bool, Error> {
        let (home, stamps) = match wait {
            Wait::Never => return Ok(false),
            Wait::Context(home, stamps) => (*home, stamps.as_slice()),
            Wait::Fence(stamp, fence) => match self.wait_fence(inside, fence, until) {
                Ok(true) => {
                    self.pass(*stamp);
                    return Ok(true);
                }
                Ok(false) => return Ok(false),
                Err(DriverError { code: CAPTURED_EVENT, .. }) => (fence.home(), [].as_slice()),
                Err(error) => return Err(error.into()),
            },
        };
        self.wait_context(inside, home, stamps, until)
    }

    fn wait_fence(
        &self,
        inside: &Inside<'_>,
        fence: &Fence,
        until: Until,
    ) -> Result<bool, DriverError> {
        match self.check_alive(fence.home()) {
            Ok(()) if until == Until::Over => {
                inside.event_synchronize(fence.event()).map(|()| true)
            }
            Ok(()) => {
                let mut pause = PAUSES[0];
                loop {
                    match inside.event_is_done(fence.event())? {
                        false if !until.is_up() => rest(&mut pause),
                        done => return Ok(done),
                    }
                }
            }
            Err(error) if is_gone(error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Records one fence over a context for what these stamps stand for. What is stamped after it is
    /// not covered.
    fn fence_over(&self, home: Home, stamps: &[Stamp]) -> Result<(), Error> {
        let mut begun = Vec::new();
        begun.try_reserve(stamps.len()).map_err(|_| Error::HostOutOfMemory)?;
        if mutant("device-fence-not-begun") {
            begun.extend(stamps);
        } else {
            let mut books = self.books.lock();
            begun.extend(stamps.iter().map(|stamp| books.streams.begin_fence(stamp.stream)));
        }
        self.record_over(home, &begun);
        Ok(())
    }

    /// Waits for all work of a context, or for the stamps, if a fence of their own comes to be
    /// recorded meanwhile and is over first; a context that is gone has no work.
    fn wait_context(
        &self,
        inside: &Inside<'_>,
        home: Home,
        stamps: &[Stamp],
        until: Until,
    ) -> Result<bool, Error> {
        if until != Until::Over && self.driver.has_context_events() {
            self.fence_over(home, stamps)?;
        }
        let (mut pause, mut looks) = (PAUSES[0], 0);
        while !stamps.is_empty() && (looks < LOOKS || until != Until::Over) {
            if self.are_fenced(stamps) {
                self.settle_passed(inside)?;
                let waits = self.waits_for(stamps, None)?;
                return self.wait_fences(inside, waits, until);
            }
            if until.is_up() {
                return Ok(false);
            }
            rest(&mut pause);
            looks += 1;
        }
        // While a graph is captured nothing may be done to a whole context.
        if until != Until::Over || self.may_capture() {
            return Ok(false);
        }
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
        Ok(true)
    }
}

impl Device {
    /// Whether each of the stamps has passed, or has a fence by now.
    fn are_fenced(&self, stamps: &[Stamp]) -> bool {
        let books = self.books.lock();
        let streams = &books.streams;
        stamps.iter().all(|&stamp| streams.passed(stamp) || streams.fence_of(stamp).is_some())
    }

    /// Waits for fences alone.
    fn wait_fences(
        &self,
        inside: &Inside<'_>,
        waits: Vec<Wait>,
        until: Until,
    ) -> Result<bool, Error> {
        let mut outcome = Ok(true);
        for wait in waits {
            let Wait::Fence(stamp, fence) = wait else { continue };
            if outcome == Ok(true) {
                outcome = self.wait_fence(inside, &fence, until).map_err(Error::from);
                if outcome == Ok(true) {
                    self.pass(stamp);
                }
            }
            self.recycle(fence);
        }
        outcome
    }
}

/// A pause, and the next one longer.
fn rest(pause: &mut Duration) {
    std::thread::sleep(*pause);
    *pause = (*pause * 2).min(PAUSES[1]);
}
