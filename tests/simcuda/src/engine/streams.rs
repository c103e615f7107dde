//! Contexts, streams and events: their making and their end.
//!
//! A destroyed stream stays in its context until its queued work is done: context waits and the legacy
//! stream still wait for it. What it did stays known to the context for ever.
#![forbid(unsafe_code)]

use super::keys::OpKey;
use super::pending::New;
use super::{ContextKey, Engine, Event, EventKey, StreamKey, StreamKind, StreamName, ThreadKey};
use crate::checker::{Clock, Fault, Flaw};

/// A context.
#[derive(Debug)]
pub(super) struct Context {
    pub device: u32,
    pub alive: bool,
    /// All its streams, also destroyed ones that still have work.
    pub streams: Vec<u64>,
    pub legacy: Option<u64>,
    /// What destroyed streams did: all of them, and those that the legacy stream waits for.
    pub gone: Clock,
    pub gone_blocking: Clock,
    /// When the last work of destroyed streams ended.
    pub gone_end_ns: u64,
    /// The most recent record of the whole context.
    pub recorder: OpKey,
    /// What streams created later wait for: pending records, the clocks of all, the ends of those
    /// done; None if the context never waited.
    pub awaited: Option<Vec<OpKey>>,
    pub awaited_clock: Clock,
    pub awaited_ns: u64,
}

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub context: u64,
    pub kind: StreamKind,
    /// What reports call it: the program's number, or its key.
    pub id: u64,
    pub priority: i32,
    pub alive: bool,
    /// Its most recent operation.
    pub tail: OpKey,
    /// When its last finished operation ended.
    pub end_ns: u64,
    /// Its clock while it lives; given at the first use that the checker sees.
    pub slot: Option<u32>,
    /// What its maker knew, until it has a clock; None if its users know that anyway.
    pub born: Option<Clock>,
}

impl Stream {
    /// The clock of what the stream has done; None if nothing was ever queued on it.
    pub fn active_slot(&self) -> Option<u32> {
        self.slot.filter(|_| self.tail != OpKey::NONE)
    }
}

impl<W, F: Flaw> Engine<W, F> {
    /// A context without streams on a device.
    pub fn create_context(&mut self, device: u32) -> ContextKey {
        let key = self.new_key();
        let context = Context {
            device,
            alive: true,
            streams: Vec::new(),
            legacy: None,
            gone: Clock::nothing(),
            gone_blocking: Clock::nothing(),
            gone_end_ns: 0,
            recorder: OpKey::NONE,
            awaited: None,
            awaited_clock: Clock::nothing(),
            awaited_ns: 0,
        };
        self.contexts.insert(key, context);
        ContextKey(key)
    }

    /// Destroys its streams and events; queued work still runs.
    pub fn destroy_context(&mut self, context: ContextKey) {
        let Some(c) = self.contexts.get_mut(&context.0) else { return };
        c.alive = false;
        self.events.retain(|_, event| event.context != context.0);
        for stream in c.streams.clone() {
            self.destroy_stream(StreamKey(stream));
        }
        self.drop_context_if_over(context.0);
    }

    /// A stream made by thread `t`; its work comes after what `t` knows now. At most one Legacy stream
    /// a context. Ready work of a lower `priority` number goes first, as a hint, when eager or lazy.
    pub fn create_stream(
        &mut self,
        t: ThreadKey,
        context: ContextKey,
        kind: StreamKind,
        priority: i32,
    ) -> StreamKey {
        let key = self.new_key();
        let born = self.known_by_maker(t);
        let Some(c) = self.contexts.get_mut(&context.0) else {
            debug_assert!(false, "a stream for context {}, which does not exist", context.0);
            return StreamKey(key);
        };
        c.streams.push(key);
        if kind == StreamKind::Legacy {
            debug_assert!(c.legacy.is_none(), "a second legacy stream");
            c.legacy = Some(key);
        }
        let (awaited, end_ns) = (c.awaited.clone(), c.awaited_ns);
        let awaited_clock = c.awaited_clock.clone();
        let context = context.0;
        let (alive, tail, slot) = (true, OpKey::NONE, None);
        let stream = Stream { context, kind, id: key, priority, alive, tail, end_ns, slot, born };
        self.prioritised |= priority != 0;
        self.streams.insert(key, stream);
        if let Some(awaited) = awaited {
            let slot = self.order_after_thread(t, key);
            self.learn_and_tick(slot, Some(awaited_clock));
            self.queue_wait(key, &awaited);
        }
        StreamKey(key)
    }

    /// Gives a stream the number by which reports name it; until then it is its key.
    pub fn number_stream(&mut self, stream: StreamKey, id: u64) {
        if let Some(s) = self.streams.get_mut(&stream.0) {
            s.id = id;
        }
    }

    /// What reports call a stream.
    pub fn stream_name(&self, stream: StreamKey) -> StreamName {
        let found = self.streams.get(&stream.0);
        let (kind, id) = found.map_or((StreamKind::NonBlocking, stream.0), |s| (s.kind, s.id));
        StreamName { kind, id }
    }

    /// The kind of a stream; None if it is gone.
    pub fn stream_kind(&self, stream: StreamKey) -> Option<StreamKind> {
        self.streams.get(&stream.0).map(|s| s.kind)
    }

    /// Queued work still runs, and context waits and the legacy stream still wait for it.
    pub fn destroy_stream(&mut self, stream: StreamKey) {
        let Some(s) = self.streams.get_mut(&stream.0).filter(|s| s.alive) else { return };
        s.alive = false;
        let (active, context, kind) = (s.active_slot(), s.context, s.kind);
        let slot = s.slot.take();
        let legacy_waits = follows_legacy(kind, self.checker.flaw);
        let order = &mut self.checker.order;
        if let (Some(slot), Some(c)) = (active, self.contexts.get_mut(&context)) {
            order.unite(&mut c.gone, order.clock(slot));
            if legacy_waits {
                order.unite(&mut c.gone_blocking, order.clock(slot));
            }
            order.retire(slot);
        } else if let Some(slot) = slot {
            order.withdraw(slot);
        }
        self.drop_stream_if_over(stream.0);
    }

    /// An event of the context, never recorded.
    pub fn create_event(&mut self, context: ContextKey) -> EventKey {
        let key = self.new_key();
        self.events.insert(key, Event { context: context.0, record: None });
        EventKey(key)
    }

    /// Forgets the event; waits made on it hold.
    pub fn destroy_event(&mut self, event: EventKey) {
        self.events.remove(&event.0);
    }

    /// What a stream that the thread makes must know and its users may not: where all threads are
    /// one actor, whoever uses the stream knows more.
    fn known_by_maker(&mut self, t: ThreadKey) -> Option<Clock> {
        if !self.checker.keeps_order() || !self.threads.are_separate() {
            return None;
        }
        let slot = self.host_slot(t);
        Some(self.checker.order.clock(slot).clone())
    }

    /// The stream's clock slot, taken at its first use, by the actor `user`.
    pub(super) fn slot_of(&mut self, stream: u64, user: u32) -> Option<u32> {
        let s = self.streams.get_mut(&stream).filter(|s| s.alive)?;
        if s.slot.is_none() {
            let slot = self.checker.order.add(Some(user), self.checker.flaw);
            s.slot = Some(slot);
            if let Some(born) = s.born.take() {
                self.checker.order.join(slot, &born);
            }
        }
        s.slot
    }

    /// Gives clock slots of the dead back, if that is worth while: a host thread has learnt something
    /// (`all`: what everything in a context did).
    pub(super) fn settle(&mut self, all: bool) {
        let order = &mut self.checker.order;
        if !order.is_wasteful(all) {
            return;
        }
        let (old, hosts) = (order.slots(), self.threads.slots());
        let streams = self.streams.values_mut().filter_map(|s| s.slot.as_mut());
        let actors = streams.chain(self.threads.own_slots());
        let width = order.settle(&hosts, actors, self.checker.flaw);
        if width < old {
            self.kept_clocks().for_each(|clock| clock.cut(width));
        }
    }

    /// The clocks that are nobody's.
    fn kept_clocks(&mut self) -> impl Iterator<Item = &mut Clock> {
        let contexts = self.contexts.values_mut();
        let of_contexts =
            contexts.flat_map(|c| [&mut c.gone, &mut c.gone_blocking, &mut c.awaited_clock]);
        let records = self.events.values_mut().filter_map(|e| e.record.as_mut());
        let born = self.streams.values_mut().filter_map(|s| s.born.as_mut());
        of_contexts
            .chain(records.filter_map(|record| record.clock.as_mut()))
            .chain(born)
            .chain(self.threads.signals())
    }

    /// Queues a wait for `awaited` on the stream, without the legacy rules.
    pub(super) fn queue_wait(&mut self, stream: u64, awaited: &[OpKey]) {
        let Some(s) = self.streams.get(&stream) else { return };
        let (tail, end_ns) = (s.tail, s.end_ns);
        let new = New { work: None, duration_ns: 0, event: 0, ..self.new_on(stream) };
        let op = self.add(new);
        self.pending.after(op, tail, end_ns);
        for &earlier in awaited {
            self.pending.after(op, earlier, 0);
        }
        self.queued(op);
    }

    /// A destroyed stream without work leaves its context.
    pub(super) fn drop_stream_if_over(&mut self, stream: u64) {
        let Some(s) = self.streams.get(&stream) else { return };
        if s.alive || self.pending.is_pending(s.tail) {
            return;
        }
        let (context, end_ns) = (s.context, s.end_ns);
        self.streams.remove(&stream);
        if let Some(c) = self.contexts.get_mut(&context) {
            c.streams.retain(|&key| key != stream);
            c.gone_end_ns = c.gone_end_ns.max(end_ns);
            if c.legacy == Some(stream) {
                c.legacy = None;
            }
        }
        self.drop_context_if_over(context);
    }

    fn drop_context_if_over(&mut self, context: u64) {
        if self.contexts.get(&context).is_some_and(|c| !c.alive && c.streams.is_empty()) {
            self.contexts.remove(&context);
        }
    }
}

/// Is a stream of this kind ordered against the legacy stream?
pub(super) fn follows_legacy(kind: StreamKind, flaw: impl Flaw) -> bool {
    match kind {
        StreamKind::Legacy => false,
        StreamKind::Blocking => true,
        StreamKind::PerThread => !flaw.has(Fault::PerThreadIsNonBlocking),
        StreamKind::NonBlocking => flaw.has(Fault::NonBlockingIsBlocking),
    }
}
