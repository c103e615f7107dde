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
use crate::streams::{Home, Streams};
use crate::sync::thread_number;
use crate::types::{Stamp, StreamSlot};

/// How often a fence that may still come is looked for before the context is waited for instead.
const LOOKS: u32 = 4;
/// How often fences that are recorded are asked in a row before the first pause.
const SPINS: u32 = 2000;
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
        // One over the whole context will do, but unrelated work may hold it up.
        let own = |fence: &(Stamp, Fence)| !fence.1.is_wide();
        let mut fence = books.streams.fence_of(stamp).filter(own);
        match (&fence, handle) {
            (None, Some(handle)) => {
                let begun = books.streams.begin_fence(stamp.stream);
                drop(books);
                self.record_on(begun, StreamHandle(handle), home);
                fence = self.books.lock().streams.fence_of(begun).filter(own);
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

    /// Waits for the stamps by what can be had: a fence of their own that somebody comes to record
    /// meanwhile, or one over the whole context, whichever is over first; where there is neither, for
    /// all work of the context. A context that is gone has no work.
    fn wait_context(
        &self,
        inside: &Inside<'_>,
        home: Home,
        stamps: &[Stamp],
        until: Until,
    ) -> Result<bool, Error> {
        let wide = !stamps.is_empty() && self.driver.has_context_events();
        let wide = wide && !mutant("device-waits-for-the-context") && {
            if !self.are_fenced(stamps) {
                self.fence_over(home, stamps)?;
            }
            self.want_fences(stamps);
            true
        };
        let (mut pause, mut looks) = (PAUSES[0], 0);
        while !stamps.is_empty() {
            if self.have_passed(inside, stamps)? {
                return Ok(true);
            }
            if until.is_up() {
                return Ok(false);
            }
            let fenced = wide && self.are_fenced(stamps);
            if !fenced && looks >= LOOKS && until == Until::Over {
                break;
            }
            // Most waits are short: only a longer one sleeps between two looks.
            if fenced && looks < SPINS {
                std::thread::yield_now()
            } else {
                rest(&mut pause)
            }
            looks += 1;
        }
        if until != Until::Over {
            return Ok(false);
        }
        let Some(_whole) = self.over_whole_context() else { return Ok(false) };
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

    /// Records one fence over a context for those of the stamps that have none, if there is any.
    pub(super) fn fence_if_unfenced(&self, home: Home, stamps: &[Stamp]) -> Result<(), Error> {
        match self.driver.has_context_events() && !self.are_fenced(stamps) {
            true => self.fence_over(home, stamps),
            false => Ok(()),
        }
    }

    /// Asks the next calls that pass these streams for fences of their own.
    fn want_fences(&self, stamps: &[Stamp]) {
        let mut books = self.books.lock();
        stamps.iter().for_each(|stamp| books.streams.want_fence(stamp.stream));
    }

    /// Whether each of the stamps has a fence by now, or has passed.
    fn are_fenced(&self, stamps: &[Stamp]) -> bool {
        let books = self.books.lock();
        let streams = &books.streams;
        stamps.iter().all(|&stamp| streams.passed(stamp) || streams.fence_of(stamp).is_some())
    }

    /// Asks every fence that covers one of the stamps; whether all have passed.
    fn have_passed(&self, inside: &Inside<'_>, stamps: &[Stamp]) -> Result<bool, Error> {
        let mut all = true;
        for &stamp in stamps {
            // A later fence may be over first: an earlier one may be over the whole context.
            for others in 0.. {
                let fence = {
                    let books = self.books.lock();
                    let covering = books.streams.fence_after(stamp, others);
                    covering.filter(|_| !books.streams.passed(stamp))
                };
                let Some((covering, fence)) = fence else { break };
                let over = self.is_over(inside, &fence);
                self.recycle(fence);
                if over? {
                    self.pass(covering);
                    break;
                }
            }
            all &= self.books.lock().streams.passed(stamp);
        }
        Ok(all)
    }

    /// Whether the stamp can be waited for without waiting for anybody else: it has a fence of its
    /// own, or gets one in this call.
    pub(super) fn is_aimed(
        &self,
        streams: &Streams<Fence>,
        stamp: Stamp,
        passing: Option<(StreamSlot, usize)>,
    ) -> bool {
        streams.passed(stamp)
            || streams.recordable(stamp.stream, thread_number(), passing).is_some()
            || streams.fence_of(stamp).is_some_and(|(_, fence)| !fence.is_wide())
    }
}

/// A pause, and the next one longer.
fn rest(pause: &mut Duration) {
    std::thread::sleep(*pause);
    *pause = (*pause * 2).min(PAUSES[1]);
}
