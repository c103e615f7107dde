#![forbid(unsafe_code)]
//! Streams: who they are, how far they have come, and what stands behind their work.
//!
//! A stream has a *slot* for as long as it is known. Its *epoch* counts the fences begun on it; a
//! [`Stamp`] is passed once a fence of its epoch or a later one is known to be over:
//! `passed(stamp) == (stamp.epoch <= passed_epoch(stamp.stream))`.
//!
//! What one stream has *seen* of another is a vector clock: `seen[thief][donor] = e` says that the
//! thief's work from now on is ordered behind all that is stamped (donor, e) or earlier, by a wait
//! of the program's or of ours.
//!
//! A slot may be *vacated* once its stream is gone or idle, owns no block, and all that was stamped
//! with it has passed. Whoever gets it next goes on with the next epoch, so that no old stamp means
//! anything but "passed".
//!
//! Pure: handles and ids are numbers here, and a fence is whatever token the caller gives (`E`).

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

    /// Gives up a fence that turned out to be none, one copy a call; what it stood for is covered by
    /// later ones.
    pub(crate) fn detach(&mut self, is_it: impl Fn(&E) -> bool) -> Option<E> {
        for place in 0..self.fenced.len() {
            let slot = self.fenced[place];
            let fences = &mut self.streams[slot.0 as usize].fences;
            let Some(at) = fences.iter().position(|(_, fence)| is_it(fence)) else { continue };
            let (_, fence) = fences.remove(at)?;
            if fences.is_empty() {
                self.fenced.swap_remove(place);
            }
            return Some(fence);
        }
        None
    }

    /// A slot that could be vacated as far as is known here, from where the last look ended; `None`
    /// if none is among the next few.
    pub(crate) fn idle(&mut self) -> Option<StreamSlot> {
        const FEW: usize = 8;
        for _ in 0..FEW.min(self.streams.len()) {
            let slot = StreamSlot(self.next % self.streams.len() as u32);
            self.next = slot.0 + 1;
            let stream = &self.streams[slot.0 as usize];
            let may_go = matches!(stream.kind, Kind::Retired | Kind::Borrowed | Kind::PerThread(_));
            let over = stream.stamped.get() <= stream.passed && stream.fences.is_empty();
            let old = stream.kind != Kind::Retired || stream.passed >= stream.epoch;
            if may_go && over && old && stream.pins == 0 && !self.vacant.contains(&slot) {
                return Some(slot);
            }
        }
        None
    }

    /// Makes a slot of [`Streams::idle`] another stream's next: nothing but free memory that has
    /// passed may be stamped with it, and that goes with it.
    pub(crate) fn vacate(&mut self, slot: StreamSlot) {
        self.slots.retain(|_, known| *known != slot);
        self.streams[slot.0 as usize].kind = Kind::Retired;
        self.vacant.push(slot);
        self.vacated += 1;
    }

    /// How often a slot came to mean nothing.
    pub(crate) fn vacated(&self) -> u64 {
        self.vacated
    }

    /// The slot keeps its meaning until [`Streams::unpin`].
    pub(crate) fn pin(&mut self, slot: StreamSlot) {
        self.streams[slot.0 as usize].pins += 1;
    }

    /// Ends a [`Streams::pin`].
    pub(crate) fn unpin(&mut self, slot: StreamSlot) {
        let pins = &mut self.streams[slot.0 as usize].pins;
        *pins = pins.saturating_sub(1);
    }

    /// The thief was made to wait for all that the donor had been given: what the donor stamps later
    /// gets a new epoch, and the thief sees what the donor had seen.
    pub(crate) fn note_wait(&mut self, thief: StreamSlot, donor: StreamSlot) -> Result<(), Error> {
        if thief == donor {
            return Ok(());
        }
        let before = self.streams[donor.0 as usize].epoch;
        let mut told = std::mem::take(&mut self.streams[donor.0 as usize].seen);
        let seen = &mut self.streams[thief.0 as usize].seen;
        let room = seen.try_reserve(told.len() + 1);
        if room.is_ok() {
            for (&other, &epoch) in told.iter().filter(|(other, _)| **other != thief.0) {
                let known = seen.entry(other).or_insert(0);
                *known = (*known).max(epoch);
            }
            seen.insert(donor.0, before);
        }
        std::mem::swap(&mut self.streams[donor.0 as usize].seen, &mut told);
        room.map_err(|_| Error::HostOutOfMemory)?;
        if self.streams[donor.0 as usize].kind != Kind::Retired
            && !mutant("streams-seen-without-epoch")
        {
            self.streams[donor.0 as usize].epoch += 1;
        }
        Ok(())
    }

    /// The thief was made to wait for a fence of this stamp.
    pub(crate) fn saw(&mut self, thief: StreamSlot, fence: Stamp) -> Result<(), Error> {
        let seen = &mut self.streams[thief.0 as usize].seen;
        seen.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
        let known = seen.entry(fence.stream.0).or_insert(0);
        *known = (*known).max(fence.epoch);
        Ok(())
    }

    /// Whether the thief's work from now on is ordered behind what the stamp stands for.
    pub(crate) fn has_seen(&self, thief: StreamSlot, stamp: Stamp) -> bool {
        let seen = &self.streams[thief.0 as usize].seen;
        stamp.stream == thief
            || seen.get(&stamp.stream.0).is_some_and(|&epoch| {
                stamp.epoch <= epoch + u64::from(mutant("streams-seen-too-much"))
            })
    }

    /// Asks the next call that passes the stream for a fence.
    pub(crate) fn want_fence(&mut self, slot: StreamSlot) {
        let stream = &mut self.streams[slot.0 as usize];
        stream.wanted = matches!(stream.kind, Kind::Borrowed | Kind::PerThread(_));
    }

    /// Whether a call that passes the stream should record a fence: somebody wants it, or many
    /// frees have gathered that only such a call can fence.
    #[inline]
    pub(crate) fn is_due(&self, slot: StreamSlot) -> bool {
        let stream = &self.streams[slot.0 as usize];
        let many = stream.unfenced.get() >= FREES_A_FENCE
            && self.streams.len() > EVERYBODY.0 as usize + 2
            && matches!(stream.kind, Kind::Borrowed | Kind::PerThread(_));
        stream.wanted || many
    }

    /// Whether a fence is on its way: a later one of the same stream cannot be over before.
    pub(crate) fn has_fences(&self, slot: StreamSlot) -> bool {
        !self.streams[slot.0 as usize].fences.is_empty()
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
        let stream = &self.streams[slot.0 as usize];
        stream.stamped.set(stream.epoch);
        stream.unfenced.set(stream.unfenced.get().saturating_add(1));
        stream.epoch
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
            Kind::Retired | Kind::Everybody | Kind::Captured => None,
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
        stream.unfenced.set(0);
        stream.wanted = false;
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
        let early = u64::from(mutant("streams-fence-too-early"));
        let place = fences.partition_point(|(epoch, _)| *epoch + early < stamp.epoch);
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
        assert_eq!(slots, [LEGACY, ANY, EVERYBODY, here]);
        assert_eq!(streams.epoch(there), 1);
    }

    fn now(streams: &Streams<u32>, stream: StreamSlot) -> Stamp {
        Stamp { stream, epoch: streams.epoch(stream) }
    }

    fn held(streams: &mut Streams<u32>, id: u64) -> StreamSlot {
        streams.hold((id as usize) << 12, id, HOME).expect("host memory")
    }

    #[test]
    fn what_was_stamped_before_a_wait_is_seen_and_what_comes_after_is_not() {
        let mut streams = streams();
        let (a, b) = (held(&mut streams, 1), held(&mut streams, 2));
        let before = now(&streams, a);
        assert!(!streams.has_seen(b, before) && streams.has_seen(a, before));
        streams.note_wait(b, a).expect("host memory");
        let after = now(&streams, a);
        assert!(streams.has_seen(b, before) && !streams.has_seen(b, after));
        assert!(!streams.has_seen(a, now(&streams, b)), "a wait orders one way");
    }

    /// Waits of random streams for each other, against a closure over all of them.
    #[test]
    fn seen_is_a_vector_clock() {
        const STREAMS: usize = 5;
        let mut state = 7u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) as usize % below
        };
        for _ in 0..200 {
            let mut streams = streams();
            let slots: Vec<_> = (1..=STREAMS as u64).map(|id| held(&mut streams, id)).collect();
            // The shadow: of each stream, the set of stamps that its next work comes after.
            let mut frees: Vec<Stamp> = Vec::new();
            let mut after: Vec<Vec<bool>> = vec![Vec::new(); STREAMS];
            for _ in 0..60 {
                let (one, other) = (random(STREAMS), random(STREAMS));
                if random(2) == 0 {
                    frees.push(now(&streams, slots[one]));
                    after.iter_mut().enumerate().for_each(|(who, seen)| seen.push(who == one));
                } else {
                    streams.note_wait(slots[one], slots[other]).expect("host memory");
                    let theirs = after[other].clone();
                    after[one].iter_mut().zip(theirs).for_each(|(seen, theirs)| *seen |= theirs);
                }
            }
            for (who, slot) in slots.iter().enumerate() {
                for (at, &stamp) in frees.iter().enumerate() {
                    assert_eq!(streams.has_seen(*slot, stamp), after[who][at], "{who} {stamp:?}");
                }
            }
        }
    }

    #[test]
    fn a_vacated_slot_goes_on_with_its_epochs() {
        let mut streams = streams();
        let old = streams.add(Key::Id(5), Kind::Borrowed, 0x7000, 5, HOME).expect("host memory");
        let used = now(&streams, old);
        assert_eq!(streams.idle(), None, "its memory may be in use");
        let fence = streams.begin_fence(old);
        streams.attach(fence, 1).expect("host memory");
        while streams.pass(fence).is_some() {}
        streams.pin(old);
        assert_eq!(streams.idle(), None, "a call is using it");
        streams.unpin(old);
        let reader = held(&mut streams, 1);
        streams.note_wait(reader, old).expect("host memory");
        streams.note_wait(old, reader).expect("host memory");
        assert_eq!(streams.idle(), Some(old));
        streams.vacate(old);
        assert_eq!((streams.find(Key::Id(5)), streams.vacated()), (None, 1));
        assert_eq!(streams.idle(), None, "it is vacant already");
        let new = streams.add(Key::Id(6), Kind::Borrowed, 0x8000, 6, HOME).expect("host memory");
        assert_eq!(new, old);
        assert!(streams.passed(used) && !streams.passed(now(&streams, new)));
        assert!(!streams.has_seen(reader, now(&streams, new)), "that was another stream");
        assert!(!streams.has_seen(new, Stamp { stream: reader, epoch: 1 }), "so was that");
    }

    #[test]
    fn a_fence_is_due_when_it_is_wanted_or_many_frees_have_gathered() {
        let mut streams = streams();
        let one = streams.add(Key::Id(5), Kind::Borrowed, 0x7000, 5, HOME).expect("host memory");
        let held = held(&mut streams, 1);
        assert!(!streams.is_due(one));
        streams.want_fence(one);
        streams.want_fence(held);
        assert!(streams.is_due(one) && !streams.is_due(held));
        streams.begin_fence(one);
        assert!(!streams.is_due(one));
        (0..FREES_A_FENCE).for_each(|_| {
            assert!(!streams.is_due(one));
            streams.epoch(one);
        });
        assert!(streams.is_due(one));
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
