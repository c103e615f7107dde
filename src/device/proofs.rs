#![forbid(unsafe_code)]
//! Proofs for memory that is not the device's own: whether what a stream was given is over.
//!
//! A *use* is a slot that keeps its meaning from [`Device::begin_use`] to [`Device::end_use`]. It
//! is stamped when the memory is freed, and over once the stamp has passed. Captured work is over
//! when its graphs are gone and their last launches over, as for the device's own memory.

use super::wait::Until;
use super::work::{Turn, Work, latest};
use super::{Device, Named};
use crate::driver::{Context, Inside, StreamHandle};
use crate::error::{DriverError, Error, sentence};
use crate::mutants::mutant;
use crate::streams::{ANY, EVERYBODY};
use crate::sync::thread_number;
use crate::types::{Stamp, StreamSlot};

impl Device {
    /// The slot of what a stream is given from now on; [`Named::ANY`] is all work of the device's
    /// own context.
    pub(crate) fn begin_use(&self, stream: Named) -> Result<StreamSlot, Error> {
        // A stream can be asked about only where some context is current.
        let _inside = match self.driver.current_context()? {
            Some(_) => None,
            None => {
                let home = self.books.lock().home;
                Some(self.driver.enter(Context(home.context), self.id, &self.calls)?)
            }
        };
        let slot = self.with_slot(stream, |books, slot| {
            let slot = if slot == ANY { EVERYBODY } else { slot };
            books.streams.pin(slot);
            Ok(slot)
        })?;
        let refused = self.refuse_unknown_capture(stream, slot);
        if refused.is_err() {
            self.end_use(slot);
        }
        refused.map(|()| slot)
    }

    /// What a capture uses that nobody told us of would be used again while its graph is launched.
    fn refuse_unknown_capture(&self, stream: Named, slot: StreamSlot) -> Result<(), Error> {
        let (captured, home) = {
            let streams = &self.books.lock().streams;
            (streams.is_captured(slot), streams.home(slot))
        };
        let known = captured || stream.raw <= 1 || stream.is_any();
        if known || mutant("host-unknown-captures-welcome") {
            return Ok(());
        }
        let inside = self.driver.enter(Context(home.context), self.id, &self.calls)?;
        match inside.is_capturing(StreamHandle(stream.raw)) {
            false => Ok(()),
            true => Err(Error::InvalidGraph(sentence!(
                "stream {:#x} is being captured, and Cuddy was not told: call cuddy_graph_begin() \
                 before memory is used in a capture, so that it stays the graph's",
                stream.raw
            ))),
        }
    }

    /// Ends one [`Device::begin_use`].
    pub(crate) fn end_use(&self, slot: StreamSlot) {
        self.books.lock().streams.unpin(slot);
    }

    /// What has to pass until all is over that the slot's stream was given so far.
    pub(crate) fn stamp_use(&self, slot: StreamSlot) -> Stamp {
        Stamp { stream: slot, epoch: self.books.lock().streams.epoch(slot) }
    }

    /// The same for all work of the device's own context.
    pub(crate) fn stamp_everybody(&self) -> Stamp {
        self.stamp_use(EVERYBODY)
    }

    /// Whether the stamp has passed, as far as it is known.
    pub(crate) fn is_passed(&self, stamp: Stamp) -> bool {
        self.books.lock().streams.passed(stamp)
    }

    /// Whether it cannot be waited for: a graph holds it.
    pub(crate) fn is_held_by_graph(&self, stamp: Stamp) -> bool {
        let books = self.books.lock();
        !books.streams.passed(stamp) && books.streams.is_captured(stamp.stream)
    }

    /// Whether a fence can be recorded for the stamp by anybody at any time; else only a wait for
    /// the whole context shows that it is over.
    pub(crate) fn can_be_fenced(&self, stamp: Stamp) -> bool {
        let books = self.books.lock();
        self.driver.has_context_events()
            || books.streams.passed(stamp)
            || books.streams.fence_of(stamp).is_some()
            || books.streams.recordable(stamp.stream, thread_number(), None).is_some()
    }

    /// Records the fences that the stamps lack, as far as it can be done now: one a stream.
    pub(crate) fn fence_uses(&self, stamps: &[Stamp]) -> Result<(), Error> {
        let mut begun: Vec<Stamp> = Vec::new();
        {
            let mut books = self.books.lock();
            for &stamp in stamps {
                let streams = &mut books.streams;
                let lacks = !streams.passed(stamp)
                    && streams.fence_of(stamp).is_none()
                    && !streams.is_captured(stamp.stream);
                let open = begun.iter().all(|fence| fence.stream != stamp.stream);
                if lacks && open {
                    begun.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
                    begun.push(streams.begin_fence(stamp.stream));
                }
            }
        }
        self.record(&begun);
        Ok(())
    }

    /// Asks the driver about the stamps that have not passed, of each stream until one is not over.
    pub(crate) fn ask_uses(&self, stamps: &mut [Stamp]) -> Result<(), Error> {
        if stamps.is_empty() {
            return Ok(());
        }
        stamps.sort_unstable_by_key(|stamp| (stamp.stream, stamp.epoch));
        let home = self.books.lock().home;
        let inside = self.driver.enter(Context(home.context), self.id, &self.calls)?;
        let mut pending = None;
        for &stamp in stamps.iter() {
            if pending == Some(stamp.stream) {
                continue;
            }
            let fence = {
                let books = self.books.lock();
                if books.streams.passed(stamp) {
                    continue;
                }
                books.streams.fence_of(stamp)
            };
            let Some((covering, fence)) = fence else {
                pending = Some(stamp.stream);
                continue;
            };
            let over = self.is_over(&inside, &fence);
            if over == Ok(true) {
                self.pass(covering);
            }
            self.recycle(fence);
            match over? {
                true => {}
                false => pending = Some(stamp.stream),
            }
        }
        // Captured work is over with the last launches of its graphs: they have fences of their
        // own.
        let captured = {
            let streams = &self.books.lock().streams;
            stamps.iter().any(|stamp| streams.is_captured(stamp.stream))
        };
        if captured {
            self.settle_passed(&inside)?;
        }
        Ok(())
    }

    /// Waits until all the stamps have passed; `false` if that cannot be waited for. No lock may be
    /// held.
    pub(crate) fn wait_uses(&self, stamps: &[Stamp]) -> Result<bool, Error> {
        let mut last: Vec<Stamp> = Vec::new();
        for &stamp in stamps {
            latest(&mut last, stamp)?;
        }
        let home = self.books.lock().home;
        let inside = self.driver.enter(Context(home.context), self.id, &self.calls)?;
        let waits = self.waits_for(&last, None)?;
        self.wait(&inside, waits, Until::Over)
    }

    /// Sees whether the device was reset, and starts it anew if so. How often that has happened.
    pub(crate) fn generation(&self) -> Result<u64, Error> {
        match Work::begin(self, None)? {
            Turn::Mine(_) | Turn::Reset => {}
        }
        Ok(self.books.lock().generation)
    }

    /// Whether a capture that we know of, or can find, may be under way.
    pub(crate) fn is_capturing(&self) -> bool {
        self.look_for_captures().is_err() || self.may_capture()
    }

    /// Acts in the device's own context.
    pub(crate) fn within<R>(
        &self,
        act: impl FnOnce(&Inside<'_>) -> Result<R, DriverError>,
    ) -> Result<R, DriverError> {
        let home = self.books.lock().home;
        act(&self.driver.enter(Context(home.context), self.id, &self.calls)?)
    }
}
