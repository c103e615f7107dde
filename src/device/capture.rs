#![forbid(unsafe_code)]
//! Capture: memory that a graph uses is the graph's until it is destroyed, even if it is freed.
//!
//! A request on a captured stream is served from the graph's pool, and stamped with the stream's
//! captured slot, which no fence ever passes: only the same captured stream, or one that is known to
//! come after it, uses that memory again. A block from elsewhere that is freed while its stream is
//! captured may be used by every launch: it waits in limbo for the graph's end. When a pool's last
//! graph is destroyed, and what was launched before that is over, its captured slots end, and all
//! that waited for them has passed.
//!
//! While a graph is begun nothing is recorded on the legacy stream or over a whole context, and
//! shelves are closed: every call looks whether its stream is captured.

use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLockReadGuard};

use super::books::Books;
use super::pool::PoolTerms;
use super::pools::PoolName;
use super::{Device, Named};
use crate::driver::{Context, StreamHandle};
use crate::error::{Error, sentence};
use crate::graphs::{GraphName, Member};
use crate::heap::Heap;
use crate::mutants::{mutant, slow_mutant};
use crate::streams::{Key, LEGACY};
use crate::sync::thread_number;
use crate::types::{Address, PoolId, Stamp, StreamSlot};

impl Device {
    /// Whether a capture that we know of may be under way.
    #[inline]
    pub(super) fn may_capture(&self) -> bool {
        self.captures.load(Ordering::Relaxed) > 0
    }

    /// Leave to make driver calls about a whole context, for as long as it is kept; `None` while a
    /// capture may be under way, which they would break.
    pub(super) fn over_whole_context(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let leave = self.whole_context.read().unwrap_or_else(PoisonError::into_inner);
        let refused = self.may_capture() && !mutant("capture-records-over-the-context");
        let _ = slow_mutant("capture-begins-amid-calls");
        (!refused).then_some(leave)
    }

    /// Returns once the calls are over that were begun before a capture was known of, and that would
    /// break it.
    fn let_calls_end(&self) {
        if !mutant("capture-begins-amid-calls") {
            drop(self.recording.lock());
            drop(self.whole_context.write());
        }
    }

    /// Says that a stream is captured from now on, or is about to be, into a graph whose memory is of
    /// a pool; without one, of a pool of its own.
    pub(crate) fn begin_graph(
        &self,
        stream: Named,
        pool: Option<PoolName>,
    ) -> Result<GraphName, Error> {
        if stream.is_any() || matches!(stream.raw, 0 | 1) {
            return Err(Error::InvalidStream(sentence!(
                "the legacy default stream cannot be captured: name another stream"
            )));
        }
        let heap = Heap::new(self.page())?;
        let begun = self.with_eager_slot(stream, |books, slot| {
            if books.graphs.capturing(slot).is_some() {
                return Err(Error::InvalidGraph(sentence!(
                    "stream {:#x} is captured into another graph already: end that one first",
                    stream.raw
                )));
            }
            let (id, owns) = match pool {
                Some(name) => (books.pools.open(self.id, name)?, false),
                None => {
                    let terms = PoolTerms { limit: u64::MAX, use_on_oom: false };
                    (books.pools.add(heap, terms)?.id, true)
                }
            };
            let begun = books.captured_slot(id, slot).and_then(|captured| {
                let own = Member { stream: slot, captured };
                books.graphs.begin((id, owns), stream.raw, own)
            });
            match &begun {
                Ok(_) => books.pools[id].graphs += 1,
                Err(_) if owns => books.pools[id].destroyed = true,
                Err(_) => {}
            }
            if begun.is_ok() {
                self.captures.fetch_add(1, Ordering::Relaxed);
                self.front.end_era();
            }
            begun
        });
        self.let_calls_end();
        begun
    }

    /// Says that the capture is over, whether it went well or not. What could not be fenced while it
    /// was under way is fenced now.
    pub(crate) fn end_graph(&self, name: GraphName) -> Result<(), Error> {
        {
            let _nobody_asks = self.recording.lock();
            let mut books = self.books.lock();
            let graph = books.graphs.get(name)?;
            if !graph.begun {
                return Err(Error::InvalidGraph(sentence!(
                    "this graph's capture was ended before"
                )));
            }
            graph.begun = false;
            self.captures.fetch_sub(1, Ordering::Relaxed);
        }
        if !self.may_capture() && !mutant("capture-never-fences-what-it-deferred") {
            self.record_deferred();
        }
        Ok(())
    }

    /// Says that the graph, and all that was made of it, is gone, or will not be launched again; its
    /// last launches were on `stream`, or are ordered before its work. Ends a capture that is still
    /// under way.
    pub(crate) fn destroy_graph(&self, name: GraphName, stream: Named) -> Result<(), Error> {
        if self.books.lock().graphs.get(name)?.begun {
            self.end_graph(name)?;
        }
        let last = match stream.is_any() {
            true => None,
            false => {
                Some(self.with_eager_slot(stream, |books, slot| books.note_launch(name, slot))?)
            }
        };
        if let Some(stamp) = last {
            let home = self.books.lock().streams.home(stamp.stream);
            let handle = {
                let _recording = self.recording.lock();
                let passing = Some((stamp.stream, stream.raw));
                self.books.lock().streams.recordable(stamp.stream, thread_number(), passing)
            };
            if let Some(handle) = handle {
                self.record_on(stamp, StreamHandle(handle), home);
            }
        }
        {
            let mut books = self.books.lock();
            if let Some(stamp) = last {
                books.streams.unpin(stamp.stream);
            }
            let graph = books.graphs.remove(name)?;
            let pool = &mut books.pools[graph.pool];
            pool.graphs -= 1;
            pool.destroyed |= graph.owns_pool;
        }
        // The graph is gone. What cannot be asked, or go back, now does so later.
        let _ = self.settle_launched();
        let _ = self.reap();
        Ok(())
    }

    fn settle_launched(&self) -> Result<(), Error> {
        let home = self.books.lock().home;
        let inside = self.driver.enter(Context(home.context), self.id, &self.calls)?;
        self.settle_passed(&inside).map(|_| ())
    }

    /// The pool and the slot of a request on a stream that is captured; `None` if it is not, or into
    /// no graph that we know. Any answer is void, and nothing noted, if slots were vacated since
    /// `vacated` was read: whoever asks looks for the slot again.
    pub(super) fn captured(
        &self,
        stream: Named,
        slot: StreamSlot,
        vacated: u64,
    ) -> Result<Option<(PoolId, StreamSlot)>, Error> {
        let unseen = mutant("capture-serves-from-the-default-pool");
        if unseen || !self.may_capture() || slot == LEGACY || stream.is_any() {
            return Ok(None);
        }
        if let Some(known) = self.books.lock().graphs.capturing(slot) {
            return Ok(Some(known));
        }
        let faulty = slow_mutant("device-slot-of-before");
        let unmoved = |books: &Books| books.streams.vacated() == vacated || faulty;
        self.joined(stream.raw, slot, unmoved)
    }

    /// The same for a stream whose handle may be used, and that may have joined a capture: if the
    /// slot is still that stream's.
    fn joined(
        &self,
        handle: usize,
        slot: StreamSlot,
        still: impl FnOnce(&Books) -> bool,
    ) -> Result<Option<(PoolId, StreamSlot)>, Error> {
        let Some(capture) = self.capture_of(handle)? else { return Ok(None) };
        self.learn_captures()?;
        let books = &mut *self.books.lock();
        if !still(books) {
            return Ok(None);
        }
        let pool = books.graphs.begun().find(|graph| graph.capture == Some(capture));
        let Some(pool) = pool.map(|graph| graph.pool) else { return Ok(None) };
        let captured = books.captured_slot(pool, slot)?;
        let graph = books.graphs.begun().find(|graph| graph.capture == Some(capture));
        if let Some(graph) = graph {
            graph.join(Member { stream: slot, captured })?;
        }
        Ok(Some((pool, captured)))
    }

    /// Graphs that were begun before their capture do not know its number yet: asks for it.
    pub(super) fn learn_captures(&self) -> Result<(), Error> {
        // No graph ends meanwhile: their streams live. And no answer of before is noted after ours.
        let _recording = self.recording.lock();
        let mut unknown: Vec<usize> = Vec::new();
        for graph in self.books.lock().graphs.begun().filter(|graph| graph.capture.is_none()) {
            unknown.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
            unknown.push(graph.handle);
        }
        for own in unknown {
            // What another's stream answers is no failure of this call.
            if let Ok(number @ Some(_)) = self.capture_of(own) {
                let mut books = self.books.lock();
                let its = books.graphs.begun().filter(|graph| graph.handle == own);
                its.for_each(|graph| graph.capture = number);
            }
        }
        Ok(())
    }

    /// The driver's number of the capture that a stream is in.
    fn capture_of(&self, handle: usize) -> Result<Option<u64>, Error> {
        let home = self.books.lock().home;
        let inside = self.driver.enter(Context(home.context), self.id, &self.calls)?;
        Ok(inside.capture_of(StreamHandle(handle))?)
    }

    /// A block is about to be freed: if its own stream is captured, the graph may use it.
    pub(super) fn note_capture(&self, pool: PoolId, address: Address) -> Result<(), Error> {
        if !self.may_capture() || mutant("capture-free-at-once") {
            return Ok(());
        }
        let (slot, stream, handle) = {
            let books = self.books.lock();
            let Some(block) = books.pools[pool].heap.find(address) else { return Ok(()) };
            // Of an earlier capture: the same stream may be captured anew.
            let slot = block.stream;
            let members = &books.pools[pool].captured;
            let earlier = members.iter().find(|member| member.captured == slot);
            let earlier = earlier.filter(|_| !mutant("capture-forgets-earlier-blocks"));
            let stream = earlier.map_or(slot, |member| member.stream);
            (slot, stream, books.streams.recordable(stream, thread_number(), None))
        };
        let known = self.books.lock().graphs.capturing(stream);
        let captured = match (known, handle) {
            (None, Some(handle)) if stream != LEGACY => self.joined(handle, stream, |_| true)?,
            (known, _) => known,
        };
        match captured {
            Some((_, captured)) if captured != slot => {
                self.books.lock().limbo.note(address, captured)
            }
            _ => Ok(()),
        }
    }

    /// Whether nothing may be recorded on the stream now.
    pub(super) fn is_deferred(&self, books: &Books, slot: StreamSlot) -> bool {
        if mutant("capture-records-on-legacy") {
            return false;
        }
        self.may_capture() && (slot == LEGACY || books.graphs.capturing(slot).is_some())
    }

    /// Records the fences that blocks in limbo wait for, and that a capture forbade.
    fn record_deferred(&self) {
        let mut begun: Vec<Stamp> = Vec::new();
        {
            let books = self.books.lock();
            books.limbo.waits(|_, stamp| {
                let streams = &books.streams;
                let lacks = !streams.passed(stamp) && streams.fence_of(stamp).is_none();
                if lacks && !streams.is_captured(stamp.stream) && begun.try_reserve(1).is_ok() {
                    begun.push(stamp);
                }
            });
        }
        self.record(&begun);
    }
}

impl Books {
    /// What has to pass until the launches of a graph that a stream was given so far are over. Pins
    /// the stream's slot, unless it fails.
    fn note_launch(&mut self, name: GraphName, slot: StreamSlot) -> Result<Stamp, Error> {
        let pool = self.graphs.get(name)?.pool;
        self.streams.epoch(slot);
        let stamp = self.streams.begin_fence(slot);
        super::work::latest(&mut self.pools[pool].launched, stamp)?;
        self.streams.pin(slot);
        Ok(stamp)
    }

    /// The slot of a stream's captured work in a pool.
    fn captured_slot(&mut self, pool: PoolId, stream: StreamSlot) -> Result<StreamSlot, Error> {
        let key = Key::Captured { pool: pool.0, stream: stream.0 };
        if let Some(slot) = self.streams.find(key) {
            return Ok(slot);
        }
        self.pools[pool].captured.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
        // The blocks that outlive the graphs are the stream's own in the end.
        self.pools[pool].heap.prepare(stream)?;
        let slot = self.streams.add_captured(key, stream)?;
        self.streams.pin(stream);
        self.pools[pool].captured.push(Member { stream, captured: slot });
        Ok(slot)
    }

    /// A block of captured work is freed outside of the capture: its stream may have used it since,
    /// beside the launches. What that was then has to be over too when the graphs are gone.
    pub(super) fn note_eager_use(
        &mut self,
        pool: PoolId,
        address: Address,
        begun: &mut Vec<Stamp>,
    ) -> Result<(), Error> {
        let Self { pools, streams, graphs, .. } = self;
        if pools[pool].captured.is_empty() {
            return Ok(());
        }
        let Some(block) = pools[pool].heap.find(address) else { return Ok(()) };
        let member = pools[pool].captured.iter().find(|member| member.captured == block.stream);
        let Some(stream) = member.map(|member| member.stream) else { return Ok(()) };
        if graphs.capturing(stream).is_some() || mutant("capture-forgets-eager-use") {
            return Ok(());
        }
        begun.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
        let now = Stamp { stream, epoch: streams.epoch(stream) };
        super::work::latest(&mut pools[pool].launched, now)?;
        begun.push(streams.begin_fence(stream));
        Ok(())
    }

    /// Ends the captured streams of pools whose graphs are gone, and their launches over.
    pub(super) fn end_captures(&mut self) {
        let Self { pools, streams, .. } = self;
        for (_, pool) in pools.each_mut() {
            let over = pool.launched.iter().all(|&stamp| streams.passed(stamp));
            let gone = pool.graphs == 0 && (over || mutant("capture-ends-before-its-launch"));
            if gone && !pool.captured.is_empty() {
                for member in pool.captured.drain(..) {
                    pool.heap.rename(member.captured, member.stream);
                    streams.end_captured(member.captured);
                    streams.unpin(member.stream);
                }
                pool.launched.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::{Home, Kind};

    /// What fails pins nothing: the stream's slot can be another stream's.
    #[test]
    fn a_launch_of_no_graph_pins_no_slot() {
        let home = Home { context: 1, id: 1 };
        let mut books = Books::new(2 << 20, home).expect("room");
        let slot = books.streams.add(Key::Id(7), Kind::Borrowed, 0x5000, 7, home).expect("room");
        let gone = GraphName { place: 0, generation: 1 };
        assert!(matches!(books.note_launch(gone, slot), Err(Error::InvalidGraph(_))));
        assert_eq!(books.streams.idle(), Some(slot));
    }
}
