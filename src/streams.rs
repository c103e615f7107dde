#![forbid(unsafe_code)]
//! Streams: who they are, how far they have come, and what stands behind their work.
//!
//! A stream has a *slot* for as long as it is known. Its *epoch* counts the fences begun on it; a
//! [`Stamp`] is passed once a fence of its epoch or a later one is known to be over:
//! `passed(stamp) == (stamp.epoch <= passed_epoch(stamp.stream))`.
//!
//! Pure: handles and ids are numbers here, and a fence is whatever token the caller gives (`E`).

use std::collections::{HashMap, VecDeque};

use crate::error::{Error, sentence};
use crate::hash::ByNumber;
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
}

/// The streams of one device.
#[derive(Debug)]
pub(crate) struct Streams<E> {
    streams: Vec<Stream<E>>,
    slots: HashMap<Key, StreamSlot, ByNumber>,
    /// The slots that have fences: a miss looks at no others.
    fenced: Vec<StreamSlot>,
}

/// The slot of the legacy default stream.
pub(crate) const LEGACY: StreamSlot = StreamSlot(0);
/// The most slots that a stamp can name.
const MOST_SLOTS: usize = 1 << 24;

impl<E: Clone> Streams<E> {
    /// The registry of a device whose own context is `home`: it knows the legacy stream.
    pub(crate) fn new(home: Home) -> Result<Self, Error> {
        let mut streams =
            Self { streams: Vec::new(), slots: HashMap::default(), fenced: Vec::new() };
        let legacy = streams.add(Key::Legacy, Kind::Legacy, 1, 0, home)?;
        debug_assert_eq!(legacy, LEGACY);
        Ok(streams)
    }

    /// The slot of a stream that is known.
    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<StreamSlot> {
        match key {
            Key::Legacy => Some(LEGACY),
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
        let slot = StreamSlot(self.streams.len() as u32);
        let fences = VecDeque::new();
        self.streams.push(Stream { kind, handle, id, home, epoch: 1, passed: 0, fences });
        self.slots.insert(key, slot);
        Ok(slot)
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

    /// Whether the stream's name means it until somebody says otherwise.
    pub(crate) fn is_lasting(&self, slot: StreamSlot) -> bool {
        let kind = self.streams[slot.0 as usize].kind;
        matches!(kind, Kind::Legacy | Kind::PerThread(_) | Kind::Held)
    }

    /// The context that the stream lives in.
    pub(crate) fn home(&self, slot: StreamSlot) -> Home {
        self.streams[slot.0 as usize].home
    }

    /// The epoch that a free of this moment is stamped with.
    #[inline]
    pub(crate) fn epoch(&self, slot: StreamSlot) -> u64 {
        self.streams[slot.0 as usize].epoch
    }

    /// Whether the work that the stamp stands for is known to be over.
    pub(crate) fn passed(&self, stamp: Stamp) -> bool {
        stamp.epoch <= self.streams[stamp.stream.0 as usize].passed
    }

    /// The handle to record a fence with, if the calling thread may use it now.
    ///
    /// `passing` is the stream that the current call was given, with its handle.
    pub(crate) fn recordable(
        &self,
        slot: StreamSlot,
        thread: u64,
        passing: Option<(StreamSlot, usize)>,
    ) -> Option<usize> {
        let stream = &self.streams[slot.0 as usize];
        match stream.kind {
            Kind::Legacy | Kind::Held => Some(stream.handle),
            Kind::PerThread(owner) => (owner == thread).then_some(stream.handle),
            Kind::Borrowed => passing.filter(|(own, _)| *own == slot).map(|(_, handle)| handle),
            Kind::Retired => None,
        }
    }

    /// Begins a fence: everything stamped so far is covered by whatever is recorded on the stream
    /// from now on. Record it after this, then [`Streams::attach`] it.
    pub(crate) fn begin_fence(&mut self, slot: StreamSlot) -> Stamp {
        let stream = &mut self.streams[slot.0 as usize];
        let stamp = Stamp { stream: slot, epoch: stream.epoch };
        if stream.kind != Kind::Retired {
            stream.epoch += 1;
        }
        stamp
    }

    /// Begins a fence on every stream of a context, for a wait that covers them all.
    pub(crate) fn begin_fences_of(&mut self, home: Home) -> Result<Vec<Stamp>, Error> {
        let mut stamps = Vec::new();
        stamps.try_reserve(self.streams.len()).map_err(|_| Error::HostOutOfMemory)?;
        for index in 0..self.streams.len() {
            if self.streams[index].home == home {
                stamps.push(self.begin_fence(StreamSlot(index as u32)));
            }
        }
        Ok(stamps)
    }

    /// Keeps the token of a begun fence; gives it back if host memory ran out.
    pub(crate) fn attach(&mut self, stamp: Stamp, fence: E) -> Result<(), E> {
        let fences = &mut self.streams[stamp.stream.0 as usize].fences;
        if fences.try_reserve(1).is_err() || self.fenced.try_reserve(1).is_err() {
            return Err(fence);
        }
        if fences.is_empty() {
            self.fenced.push(stamp.stream);
        }
        let place = fences.partition_point(|(epoch, _)| *epoch <= stamp.epoch);
        fences.insert(place, (stamp.epoch, fence));
        Ok(())
    }

    /// The first fence that covers the stamp, if one was recorded.
    pub(crate) fn fence_of(&self, stamp: Stamp) -> Option<(Stamp, E)> {
        let fences = &self.streams[stamp.stream.0 as usize].fences;
        let place = fences.partition_point(|(epoch, _)| *epoch < stamp.epoch);
        let (epoch, fence) = fences.get(place)?;
        Some((Stamp { stream: stamp.stream, epoch: *epoch }, fence.clone()))
    }

    /// The oldest fence of each stream that has one.
    pub(crate) fn oldest_fences(&self, mut each: impl FnMut(Stamp, &E)) {
        for &stream in &self.fenced {
            if let Some((epoch, fence)) = self.streams[stream.0 as usize].fences.front() {
                each(Stamp { stream, epoch: *epoch }, fence);
            }
        }
    }

    /// Notes that a fence is over, and gives out one token that nobody needs any more: to be asked
    /// until there is none.
    pub(crate) fn pass(&mut self, stamp: Stamp) -> Option<E> {
        let stream = &mut self.streams[stamp.stream.0 as usize];
        stream.passed = stream.passed.max(stamp.epoch);
        let (_, fence) = stream.fences.pop_front_if(|(epoch, _)| *epoch <= stamp.epoch)?;
        if stream.fences.is_empty() {
            self.fenced.retain(|fenced| *fenced != stamp.stream);
        }
        Some(fence)
    }

    /// The device's own context was replaced by `home`: no work is left, and no created stream.
    pub(crate) fn reset(&mut self, home: Home) {
        self.fenced.clear();
        for stream in &mut self.streams {
            stream.fences.clear();
            stream.passed = stream.epoch;
            stream.epoch += 1;
            match stream.kind {
                Kind::Legacy | Kind::PerThread(_) => stream.home = home,
                Kind::Held | Kind::Borrowed | Kind::Retired => stream.kind = Kind::Retired,
            }
        }
        let streams = &self.streams;
        self.slots.retain(|_, slot| streams[slot.0 as usize].kind != Kind::Retired);
    }

    /// How many streams are known.
    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Home = Home { context: 0xc0, id: 7 };

    fn streams() -> Streams<u32> {
        Streams::new(HOME).expect("host memory")
    }

    #[test]
    fn a_stamp_is_passed_by_its_own_fence_or_a_later_one() {
        let mut streams = streams();
        let early = Stamp { stream: LEGACY, epoch: streams.epoch(LEGACY) };
        let fence = streams.begin_fence(LEGACY);
        let late = Stamp { stream: LEGACY, epoch: streams.epoch(LEGACY) };
        streams.attach(fence, 1).expect("host memory");
        assert_eq!(streams.fence_of(early), Some((fence, 1)));
        assert_eq!(streams.fence_of(late), None);
        assert!(!streams.passed(early));
        assert_eq!(streams.pass(fence), Some(1));
        assert_eq!(streams.pass(fence), None);
        assert!(streams.passed(early) && !streams.passed(late));
        assert_eq!(streams.fence_of(early), None);
    }

    #[test]
    fn fences_attached_out_of_order_stay_sorted() {
        let mut streams = streams();
        let (first, second) = (streams.begin_fence(LEGACY), streams.begin_fence(LEGACY));
        streams.attach(second, 2).expect("host memory");
        streams.attach(first, 1).expect("host memory");
        assert_eq!(streams.fence_of(first), Some((first, 1)));
        let oldest = |streams: &Streams<u32>| {
            let mut seen = Vec::new();
            streams.oldest_fences(|stamp, token| seen.push((stamp, *token)));
            seen
        };
        assert_eq!(oldest(&streams), [(first, 1)]);
        let done: Vec<_> = std::iter::from_fn(|| streams.pass(second)).collect();
        assert_eq!(done, [1, 2]);
        assert_eq!(oldest(&streams), []);
    }

    #[test]
    fn a_recycled_handle_is_another_stream() {
        let mut streams = streams();
        let old = streams.hold(0x5000, 11, HOME).expect("host memory");
        assert_eq!(streams.hold(0x5000, 11, HOME), Ok(old));
        let last = streams.retire(0x5000).expect("it was held");
        assert_eq!(streams.recordable(old, 1, Some((old, 0x5000))), None);
        let new = streams.hold(0x5000, 12, HOME).expect("host memory");
        assert_ne!(old, new);
        // The old one's memory is covered by its last fence, whenever it is freed.
        assert_eq!(streams.epoch(old), last.epoch);
        assert_eq!(streams.begin_fence(old), last);
        assert_eq!(streams.retire(0x6000), None);
    }

    #[test]
    fn a_held_stream_destroyed_without_a_word_is_not_touched_again() {
        let mut streams = streams();
        let old = streams.hold(0x5000, 11, HOME).expect("host memory");
        let new = streams.hold(0x5000, 12, HOME).expect("host memory");
        assert_eq!(streams.recordable(old, 1, None), None);
        assert_eq!(streams.recordable(new, 1, None), Some(0x5000));
    }

    #[test]
    fn a_borrowed_stream_keeps_its_slot_when_it_is_opened() {
        let mut streams = streams();
        let borrowed =
            streams.add(Key::Id(5), Kind::Borrowed, 0x7000, 5, HOME).expect("host memory");
        assert_eq!(streams.recordable(borrowed, 1, None), None);
        assert_eq!(streams.recordable(borrowed, 1, Some((borrowed, 0x7000))), Some(0x7000));
        assert_eq!(streams.hold(0x7000, 5, HOME), Ok(borrowed));
        assert_eq!(streams.recordable(borrowed, 1, None), Some(0x7000));
    }

    #[test]
    fn a_per_thread_stream_is_fenced_by_its_thread_alone() {
        let mut streams = streams();
        let slot =
            streams.add(Key::Thread(3), Kind::PerThread(3), 2, 0, HOME).expect("host memory");
        assert_eq!(streams.recordable(slot, 3, None), Some(2));
        assert_eq!(streams.recordable(slot, 4, Some((slot, 2))), None);
    }

    #[test]
    fn a_wait_for_a_context_covers_its_streams_and_no_others() {
        let mut streams = streams();
        let other = Home { context: 0xd0, id: 8 };
        let here = streams.hold(1 << 12, 1, HOME).expect("host memory");
        let there = streams.hold(2 << 12, 2, other).expect("host memory");
        let stamps = streams.begin_fences_of(HOME).expect("host memory");
        let slots: Vec<_> = stamps.iter().map(|stamp| stamp.stream).collect();
        assert_eq!(slots, [LEGACY, here]);
        assert_eq!(streams.epoch(there), 1);
    }

    #[test]
    fn after_a_reset_nothing_is_pending_and_created_streams_are_gone() {
        let mut streams = streams();
        let held = streams.hold(0x5000, 11, HOME).expect("host memory");
        let stamp = Stamp { stream: LEGACY, epoch: streams.epoch(LEGACY) };
        let fence = streams.begin_fence(held);
        streams.attach(fence, 1).expect("host memory");
        let home = Home { context: 0xc0, id: 9 };
        streams.reset(home);
        assert!(streams.passed(stamp) && streams.passed(fence));
        assert_eq!((streams.fence_of(fence), streams.find(Key::Held(0x5000))), (None, None));
        assert_eq!((streams.home(LEGACY), streams.find(Key::Id(11))), (home, None));
        let next = Stamp { stream: LEGACY, epoch: streams.epoch(LEGACY) };
        assert!(!streams.passed(next));
    }
}
