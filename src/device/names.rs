#![forbid(unsafe_code)]
//! Names: how a caller names a stream, and which stream that is.
//!
//! A created stream is told from every other one by the id that its driver gives it; a held one by its
//! handle, until it is retired.

use std::sync::atomic::Ordering;

use super::Device;
use crate::driver::{Context, StreamHandle};
use crate::error::{DriverError, Error, sentence};
use crate::mutants::{mutant, slow_mutant};
use crate::options::StreamTrust;
use crate::streams::{Home, Key, Kind};
use crate::sync::thread_number;
use crate::types::StreamSlot;

/// How a caller names a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    /// The handle's value: 0 or 1 the legacy default stream, 2 the calling thread's own.
    pub raw: usize,
    /// The context that default streams are of; `None` is the device's own.
    pub context: Option<Home>,
}

impl Named {
    /// The handle that stands for no stream in particular.
    pub(crate) const ANY: usize = usize::MAX;

    pub(super) fn key(self) -> Key {
        match (self.raw, self.context) {
            (Self::ANY, _) => Key::Any,
            (0 | 1, None) => Key::Legacy,
            (2, None) => Key::Thread(thread_number()),
            (0 | 1, Some(home)) => Key::Elsewhere { context: home.id, thread: 0 },
            (2, Some(home)) => Key::Elsewhere { context: home.id, thread: thread_number() },
            (handle, _) => Key::Held(handle),
        }
    }
}

impl Device {
    /// Keeps a stream's handle until it is retired.
    pub(crate) fn open_stream(&self, stream: Named) -> Result<(), Error> {
        self.hold_stream(stream).map(|_| ())
    }

    /// The slot of a stream whose handle is kept; `None` for a default stream, whose always is.
    pub(super) fn hold_stream(&self, stream: Named) -> Result<Option<StreamSlot>, Error> {
        let Some(handle) = stream.created_or_built_in()? else { return Ok(None) };
        let id = match self.driver.has_stream_ids() {
            true => self.stream_id(handle)?,
            false => 0,
        };
        let home = self.home_of(handle)?;
        let mut books = self.books.lock();
        self.vacate_idle(&mut books);
        self.front.end_era();
        books.streams.hold(handle.0, id, home).map(Some)
    }

    /// Records a held stream's last fence, and never touches its handle again.
    pub(crate) fn retire_stream(&self, stream: Named) -> Result<(), Error> {
        let Some(handle) = stream.created_or_built_in()? else { return Ok(()) };
        let nobody_asks = self.looking.lock();
        self.end_found(handle, &nobody_asks)?;
        let nobody_asks = (!mutant("capturable-asks-the-retired")).then_some(nobody_asks);
        let _ = slow_mutant("capturable-asks-the-retired");
        let mut books = self.books.lock();
        let Some(last) = books.streams.retire(handle.0) else {
            return Err(Error::InvalidStream(sentence!(
                "stream {:#x} is not open on device {}: open it first, and retire it once",
                handle.0,
                self.id.0
            )));
        };
        self.front.end_era();
        let home = books.streams.home(last.stream);
        drop((books, nobody_asks));
        let _nobody_records = self.recording.lock();
        self.record_on(last, handle, home);
        Ok(())
    }

    /// The slot of a stream, whether it is known already or not; it is another's by now if a slot was
    /// vacated since before the call.
    pub(super) fn slot(&self, stream: Named) -> Result<StreamSlot, Error> {
        let vacated = self.books.lock().streams.vacated();
        let slot = self.eager_slot(stream)?;
        Ok(self.captured(stream, slot, vacated)?.map_or(slot, |(_, captured)| captured))
    }

    /// The slot of a stream's own work, whether the stream is captured or not.
    pub(super) fn eager_slot(&self, stream: Named) -> Result<StreamSlot, Error> {
        let known = self.books.lock().streams.find(stream.key());
        known.map_or_else(|| self.meet(stream), Ok)
    }

    /// The slot of a stream that its key does not name yet.
    pub(super) fn meet(&self, stream: Named) -> Result<StreamSlot, Error> {
        let key = stream.key();
        match key {
            Key::Thread(_) | Key::Elsewhere { .. } => {
                let mut books = self.books.lock();
                // Another thread may have met it meanwhile.
                if let Some(slot) = books.streams.find(key) {
                    return Ok(slot);
                }
                let (kind, home) = match (key, stream.context) {
                    (Key::Thread(thread), _) => (Kind::PerThread(thread), books.home),
                    (_, other) => (Kind::Borrowed, other.unwrap_or(books.home)),
                };
                self.vacate_idle(&mut books);
                return books.streams.add(key, kind, stream.raw, 0, home);
            }
            Key::Legacy | Key::Any | Key::Held(_) | Key::Id(_) | Key::Captured { .. } => {}
        }
        let handle = StreamHandle(stream.raw);
        if self.options.streams == StreamTrust::Trusted {
            self.open_stream(stream)?;
            return self.eager_slot(stream);
        }
        if !self.driver.has_stream_ids() {
            return Err(Error::InvalidStream(sentence!(
                "this driver (CUDA {}) cannot tell one stream from another that comes to have the \
                 same handle: open stream {:#x} with cuddy_stream_open(), or set streams:trusted \
                 if the program destroys no stream",
                version_text(self.driver.version()),
                handle.0
            )));
        }
        let id = self.stream_id(handle)?;
        if let Some(slot) = self.books.lock().streams.find(Key::Id(id)) {
            return Ok(slot);
        }
        let home = self.home_of(handle)?;
        let mut books = self.books.lock();
        match books.streams.find(Key::Id(id)) {
            Some(slot) => Ok(slot),
            None => {
                self.vacate_idle(&mut books);
                books.streams.add(Key::Id(id), Kind::Borrowed, handle.0, id, home)
            }
        }
    }

    /// The id of a stream that the caller vouches for.
    pub(super) fn stream_id(&self, stream: StreamHandle) -> Result<u64, Error> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match self.driver.stream_id(stream) {
            // The calling thread may have no context at all.
            Err(DriverError { code: 201, .. }) => {
                let own = self.books.lock().home;
                let inside = self.driver.enter(Context(own.context), self.id, &self.calls)?;
                inside.driver().stream_id(stream)
            }
            answer => answer,
        }
        .map_err(|error| bad_stream(stream, error))
    }

    /// The context of a created stream, which must be one of this device.
    pub(super) fn home_of(&self, stream: StreamHandle) -> Result<Home, Error> {
        let own = self.books.lock().home;
        let context = match self.driver.stream_context(stream) {
            // As for the id: the calling thread may have no context at all.
            Err(DriverError { code: 201, .. }) => {
                let inside = self.driver.enter(Context(own.context), self.id, &self.calls)?;
                inside.driver().stream_context(stream)
            }
            answer => answer,
        }
        .map_err(|error| bad_stream(stream, error))?;
        if context.0 == own.context {
            return Ok(own);
        }
        let id = self.driver.context_id(context)?.unwrap_or(context.0 as u64);
        let inside = self.driver.enter(context, self.id, &self.calls)?;
        let actual = inside.driver().current_device()?;
        match actual == self.id || self.is_peer(actual) {
            true => Ok(Home { context: context.0, id }),
            false => Err(Error::WrongDevice { named: self.id.0, actual: actual.0 }),
        }
    }

    /// What `context`, current on the calling thread, is to this device: `None` is its own.
    pub(crate) fn home_if_other(&self, context: Context) -> Result<Option<Home>, Error> {
        let own = self.books.lock().home;
        if context.0 == own.context {
            return Ok(None);
        }
        let id = self.driver.context_id(context)?.unwrap_or(context.0 as u64);
        Ok(Some(Home { context: context.0, id }))
    }
}

/// The handle of a stream that a program created; `None` for a default stream (0, 1 and 2), which is
/// always known.
pub(super) fn created(stream: Named) -> Option<StreamHandle> {
    (stream.raw > 2).then_some(StreamHandle(stream.raw))
}

/// The driver refused a stream handle.
fn bad_stream(stream: StreamHandle, error: DriverError) -> Error {
    match error.code {
        1 | 201 | 400 | 709 => {
            Error::InvalidStream(sentence!("{:#x} is not a valid stream: {error}", stream.0))
        }
        _ => error.into(),
    }
}

/// 12040 as 12.4.
fn version_text(version: i32) -> String {
    sentence!("{}.{}", version / 1000, version % 1000 / 10)
}
