#![forbid(unsafe_code)]
//! Streams: who they are, how far they have come, and what stands behind their work.
//!
//! A stream has a *slot* for as long as it is known. Its *epoch* counts the fences begun on it; a
//! [`Stamp`] is passed once a fence of its epoch or a later one is known to be over:
//! `passed(stamp) == (stamp.epoch <= passed_epoch(stamp.stream))`.
//!
//! Pure: handles and ids are numbers here, and a fence is whatever token the caller gives (`E`).

mod fences;
mod seen;
mod slots;

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};

use crate::error::{Error, sentence};
use crate::hash::ByNumber;
use crate::mutants::mutant;
use crate::types::{Stamp, StreamSlot};

/// What tells a stream from every other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// The legacy default stream of the device's own (primary) context.
    Legacy,
    /// The default stream of the thread of this number, in the device's own context.
    Thread(u64),
    /// A held stream, by its handle: good until it is retired.
    Held(usize),
    /// Any created stream, by the id that the driver gave it.
    Id(u64),
    /// No stream in particular: see [`ANY`].
    Any,
    /// The work of a stream that is captured into the graphs of a pool.
    Captured {
        /// The pool's number.
        pool: u32,
        /// The stream's slot.
        stream: u32,
    },
    /// A default stream of another context; thread 0 is the legacy one.
    Elsewhere {
        /// That context's id.
        context: u64,
        /// The thread whose default stream it is.
        thread: u64,
    },
}

/// How long a stream's handle may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The legacy default stream: always.
    Legacy,
    /// A per-thread default stream: always, but by that thread alone.
    PerThread(u64),
    /// Until it is retired.
    Held,
    /// Only in the call that passes it.
    Borrowed,
    /// No more; a last fence was begun when it was retired.
    Retired,
    /// Runs whenever a graph is launched: nothing can be recorded behind it.
    Captured,
    /// Stands for all streams of the device's own context; only a fence over that covers it.
    Everybody,
}

/// The context that a stream lives in, as the driver names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    /// The context's handle.
    pub context: usize,
    /// Its id; 0 where the driver has none.
    pub id: u64,
}

/// One stream.
#[derive(Debug)]
struct Stream<E> {
    kind: Kind,
    handle: usize,
    id: u64,
    home: Home,
    epoch: u64,
    passed: u64,
    fences: VecDeque<(u64, E)>,
    /// The latest epoch that a free was stamped with.
    stamped: Cell<u64>,
    /// How many frees were stamped since the last fence was begun.
    unfenced: Cell<u32>,
    /// Somebody waits for a fence that only a call which passes the stream can record.
    wanted: bool,
    /// What later work of this stream is ordered behind: of each donor, up to this epoch.
    seen: HashMap<u32, u64, ByNumber>,
    /// Calls under way that know the slot.
    pins: u32,
    /// Its captures are not told: each call asks.
    capturable: bool,
}

/// The streams of one device.
#[derive(Debug)]
pub(crate) struct Streams<E> {
    streams: Vec<Stream<E>>,
    slots: HashMap<Key, StreamSlot, ByNumber>,
    /// The slots that have fences: a miss looks at no others.
    fenced: Vec<StreamSlot>,
    /// Slots that nobody has.
    vacant: Vec<StreamSlot>,
    /// How often a slot was vacated: since then it may mean another stream.
    vacated: u64,
    /// Where the next look for a slot to vacate begins.
    next: u32,
}

/// The slot of the legacy default stream.
pub(crate) const LEGACY: StreamSlot = StreamSlot(0);
/// The slot of requests that name no stream: what is handed out to it may be used by anybody at once.
/// It never has memory whose last use is not over.
pub(crate) const ANY: StreamSlot = StreamSlot(1);
/// The slot of memory that anybody may have used up to its free; whoever gets it next has to wait
/// for the whole context.
pub(crate) const EVERYBODY: StreamSlot = StreamSlot(2);
/// After so many frees a stream that others cannot fence is fenced by the next call that passes it.
const FREES_A_FENCE: u32 = 64;
/// The most slots that a stamp can name.
const MOST_SLOTS: usize = 1 << 24;

impl<E: Clone> Streams<E> {
    /// The registry of a device whose own context is `home`: it knows the legacy stream.
    pub(crate) fn new(home: Home) -> Result<Self, Error> {
        let mut streams = Self {
            streams: Vec::new(),
            slots: HashMap::default(),
            fenced: Vec::new(),
            vacant: Vec::new(),
            vacated: 0,
            next: 0,
        };
        let legacy = streams.add(Key::Legacy, Kind::Legacy, 1, 0, home)?;
        let any = streams.add(Key::Any, Kind::Everybody, usize::MAX, 0, home)?;
        let everybody = streams.add(Key::Id(u64::MAX), Kind::Everybody, 0, 0, home)?;
        debug_assert_eq!((legacy, any, everybody), (LEGACY, ANY, EVERYBODY));
        Ok(streams)
    }

    /// The slot of a stream that is known.
    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<StreamSlot> {
        match key {
            Key::Legacy => Some(LEGACY),
            Key::Any => Some(ANY),
            _ => self.slots.get(&key).copied(),
        }
    }

    /// A slot for a stream that is not known yet.
    pub(crate) fn add(
        &mut self,
        key: Key,
        kind: Kind,
        handle: usize,
        id: u64,
        home: Home,
    ) -> Result<StreamSlot, Error> {
        if self.streams.len() >= MOST_SLOTS {
            return Err(Error::InvalidStream(sentence!(
                "{MOST_SLOTS} streams have been used on this device, which is the most"
            )));
        }
        self.streams.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
        // Two keys: a held stream is known by its handle and by its id.
        self.slots.try_reserve(2).map_err(|_| Error::HostOutOfMemory)?;
        self.vacant.try_reserve(self.streams.len() + 1).map_err(|_| Error::HostOutOfMemory)?;
        let mut seen = HashMap::default();
        let (slot, passed) = match self.vacant.pop() {
            Some(slot) if mutant("streams-slot-restarts") => (slot, 0),
            Some(slot) => (slot, self.streams[slot.0 as usize].epoch),
            None => (StreamSlot(self.streams.len() as u32), 0),
        };
        if mutant("streams-slot-keeps-what-it-saw")
            && let Some(old) = self.streams.get_mut(slot.0 as usize)
        {
            seen = std::mem::take(&mut old.seen);
        }
        let stream = Stream {
            kind,
            handle,
            id,
            home,
            epoch: passed + 1,
            passed,
            fences: VecDeque::new(),
            stamped: Cell::new(0),
            unfenced: Cell::new(0),
            wanted: false,
            seen,
            pins: 0,
            capturable: false,
        };
        match self.streams.get_mut(slot.0 as usize) {
            Some(old) => *old = stream,
            None => self.streams.push(stream),
        }
        self.slots.insert(key, slot);
        Ok(slot)
    }

    /// A slot for the captured work of a stream: it is of no context, so nothing that is waited for
    /// on the host ever covers it.
    pub(crate) fn add_captured(
        &mut self,
        key: Key,
        stream: StreamSlot,
    ) -> Result<StreamSlot, Error> {
        let (handle, id) = self.names(stream);
        self.add(key, Kind::Captured, handle, id, Home { context: 0, id: u64::MAX })
    }

    /// Whether a slot is that of captured work.
    pub(crate) fn is_captured(&self, slot: StreamSlot) -> bool {
        self.streams[slot.0 as usize].kind == Kind::Captured
    }

    /// Captured work runs no more: all that was stamped with it, or will be, has passed.
    pub(crate) fn end_captured(&mut self, slot: StreamSlot) {
        let stream = &mut self.streams[slot.0 as usize];
        stream.kind = Kind::Retired;
        stream.passed = stream.epoch;
        self.slots.retain(|_, known| *known != slot);
    }

    /// Makes a stream held: its handle is good until [`Streams::retire`].
    ///
    /// A stream that was borrowed before keeps its slot. If the handle was held by a stream of
    /// another id, that one was destroyed without a word; it is treated as borrowed from now on.
    pub(crate) fn hold(&mut self, handle: usize, id: u64, home: Home) -> Result<StreamSlot, Error> {
        if let Some(slot) = self.find(Key::Held(handle)) {
            let stream = &mut self.streams[slot.0 as usize];
            if stream.id == id {
                return Ok(slot);
            }
            stream.kind = Kind::Borrowed;
            self.slots.remove(&Key::Held(handle));
        }
        let known = self.find(Key::Id(id)).filter(|_| id != 0);
        let Some(slot) = known else {
            let slot = self.add(Key::Held(handle), Kind::Held, handle, id, home)?;
            if id != 0 {
                self.slots.insert(Key::Id(id), slot);
            }
            return Ok(slot);
        };
        self.slots.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
        self.slots.insert(Key::Held(handle), slot);
        let stream = &mut self.streams[slot.0 as usize];
        (stream.kind, stream.handle) = (Kind::Held, handle);
        Ok(slot)
    }

    /// From now on each call asks whether the held stream is being captured.
    pub(crate) fn make_capturable(&mut self, slot: StreamSlot) {
        self.streams[slot.0 as usize].capturable = true;
    }

    /// The handles of the streams that are to be asked.
    pub(crate) fn capturable(&self) -> impl Iterator<Item = usize> + '_ {
        let asked = |stream: &&Stream<E>| stream.capturable && stream.kind == Kind::Held;
        self.streams.iter().filter(asked).map(|stream| stream.handle)
    }

    /// Forgets a held stream's handle, and begins its last fence: whatever is stamped from now on
    /// is covered by it, since the stream gets no more work.
    pub(crate) fn retire(&mut self, handle: usize) -> Option<Stamp> {
        let slot = self.slots.remove(&Key::Held(handle))?;
        let stream = &mut self.streams[slot.0 as usize];
        self.slots.remove(&Key::Id(stream.id));
        stream.kind = Kind::Retired;
        Some(Stamp { stream: slot, epoch: stream.epoch })
    }

    /// The stream's handle as it was last passed, and its id (0 when it was never asked for).
    pub(crate) fn names(&self, slot: StreamSlot) -> (usize, u64) {
        let stream = &self.streams[slot.0 as usize];
        (stream.handle, stream.id)
    }

    /// Whether the stream's name alone says what its requests need: it means the stream until
    /// somebody says otherwise, and whether that is captured is told.
    pub(crate) fn is_lasting(&self, slot: StreamSlot) -> bool {
        let Stream { kind, capturable, .. } = self.streams[slot.0 as usize];
        matches!(kind, Kind::Legacy | Kind::PerThread(_) | Kind::Held) && !capturable
    }

    /// The context that the stream lives in.
    pub(crate) fn home(&self, slot: StreamSlot) -> Home {
        self.streams[slot.0 as usize].home
    }

    /// The device's own context was replaced by `home`: no work is left, and no created stream.
    pub(crate) fn reset(&mut self, home: Home) {
        self.fenced.clear();
        for stream in &mut self.streams {
            stream.fences.clear();
            stream.seen.clear();
            stream.passed = stream.epoch;
            stream.epoch += 1;
            match stream.kind {
                Kind::Legacy | Kind::PerThread(_) | Kind::Everybody => stream.home = home,
                Kind::Held | Kind::Borrowed | Kind::Captured | Kind::Retired => {
                    stream.kind = Kind::Retired;
                }
            }
        }
        let streams = &self.streams;
        self.slots.retain(|_, slot| streams[slot.0 as usize].kind != Kind::Retired);
    }
}

#[cfg(test)]
mod tests;
