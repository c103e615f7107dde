#![forbid(unsafe_code)]
//! Epochs and fences: a stream's *epoch* counts the fences begun on it, and a stamp is passed once a
//! fence of its epoch or a later one is known to be over.

use super::{EVERYBODY, FREES_A_FENCE, Home, Kind, Streams};
use crate::error::Error;
use crate::mutants::mutant;
use crate::types::{Stamp, StreamSlot};

impl<E: Clone> Streams<E> {
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

    /// Whether frees have gathered that only a call which passes the stream can fence, and there are
    /// others who may want them.
    pub(crate) fn is_behind(&self, slot: StreamSlot) -> bool {
        let stream = &self.streams[slot.0 as usize];
        stream.unfenced.get() > 0
            && self.streams.len() > EVERYBODY.0 as usize + 2
            && matches!(stream.kind, Kind::Borrowed)
    }

    /// The latest epoch that a free was stamped with.
    pub(crate) fn stamped(&self, slot: StreamSlot) -> u64 {
        self.streams[slot.0 as usize].stamped.get()
    }

    /// Whether a fence is on its way: a later one of the same stream cannot be over before.
    pub(crate) fn has_fences(&self, slot: StreamSlot) -> bool {
        !self.streams[slot.0 as usize].fences.is_empty()
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

    /// The first fence that covers the stamp, if one was recorded.
    pub(crate) fn fence_of(&self, stamp: Stamp) -> Option<(Stamp, E)> {
        self.fence_after(stamp, 0)
    }

    /// The fence that covers the stamp, after so many others that do.
    pub(crate) fn fence_after(&self, stamp: Stamp, others: usize) -> Option<(Stamp, E)> {
        let fences = &self.streams[stamp.stream.0 as usize].fences;
        let early = u64::from(mutant("streams-fence-too-early"));
        let place = fences.partition_point(|(epoch, _)| *epoch + early < stamp.epoch);
        let (epoch, fence) = fences.get(place + others)?;
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
}
