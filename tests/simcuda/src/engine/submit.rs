//! Queueing: what comes after what, for the checker's clocks and for the scheduler alike.
//!
//! Both follow the same rules at the same moment: `order_before_*` names the clocks that the next
//! operation of a stream takes in and the operations that it waits for.
#![forbid(unsafe_code)]

use super::keys::OpKey;
use super::pending::New;
use super::streams::follows_legacy;
use super::{
    ContextKey, Engine, EventKey, Job, Record, Schedule, StreamKey, StreamKind, ThreadKey,
};
use crate::checker::{Access, Clock, Fault, Flaw, Who};

impl<W, F: Flaw> Engine<W, F> {
    /// Queues work on a stream and judges its accesses now. It comes after the stream's earlier work,
    /// what the legacy rules say, and what the thread knows.
    ///
    /// A stream that does not exist is a mistake of the caller's: debug builds panic, others run the
    /// work as if on a stream of its own.
    pub fn submit(&mut self, t: ThreadKey, stream: StreamKey, job: Job<W>) -> OpKey {
        let op = self.submit_held(t, stream, job);
        self.queued(op);
        op
    }

    /// As [`Self::submit`], but the work is not ready before [`Self::gate_open`] of the gate.
    pub fn submit_gated(
        &mut self,
        t: ThreadKey,
        stream: StreamKey,
        job: Job<W>,
        gate: u64,
    ) -> OpKey {
        let op = self.submit_held(t, stream, job);
        if !self.gates_open.contains(&gate) {
            self.pending.hold(op);
            self.gates_shut.entry(gate).or_default().push(op);
        }
        self.queued(op);
        op
    }

    /// Opens a gate, for good.
    pub fn gate_open(&mut self, gate: u64) {
        self.gates_open.insert(gate);
        for op in self.gates_shut.remove(&gate).unwrap_or_default() {
            if self.pending.let_go(op, self.now_ns) {
                self.is_ready(op);
            }
        }
    }

    /// The event now stands for the stream's work so far.
    pub fn record(&mut self, t: ThreadKey, event: EventKey, stream: StreamKey) {
        if let Some(end_ns) = self.idle_since(stream.0) {
            return self.record_done(event, stream, end_ns);
        }
        let slot = self.order_next(t, stream.0);
        let clock = slot.map(|slot| self.checker.order.clock(slot).clone());
        let op = self.add(New { event: event.0, ..self.new_on(stream.0) });
        self.wait_for_earlier(op, stream.0);
        self.set_record(event, Record { op, clock, end_ns: None, stream: stream.0 });
        self.queued(op);
    }

    /// From when on a record on this stream would be done, if it would be done before anything else
    /// can happen, and nobody watches.
    fn idle_since(&self, stream: u64) -> Option<u64> {
        if self.schedule != Schedule::Eager || self.checker.keeps_order() || !self.is_quiet() {
            return None;
        }
        let s = self.streams.get(&stream).filter(|s| !self.pending.is_pending(s.tail))?;
        let mut end_ns = self.now_ns.max(s.end_ns);
        match s.kind {
            StreamKind::NonBlocking => {}
            StreamKind::Legacy => return None,
            StreamKind::Blocking | StreamKind::PerThread => {
                let legacy = self.contexts.get(&s.context)?.legacy;
                if let Some(l) = legacy.and_then(|key| self.streams.get(&key)) {
                    if self.pending.is_pending(l.tail) {
                        return None;
                    }
                    end_ns = end_ns.max(l.end_ns);
                }
            }
        }
        Some(end_ns)
    }

    fn record_done(&mut self, event: EventKey, stream: StreamKey, end_ns: u64) {
        let op = OpKey::new(self.new_number(), 0);
        self.asked_in_vain = 0;
        self.set_record(event, Record { op, clock: None, end_ns: Some(end_ns), stream: stream.0 });
        if let Some(s) = self.streams.get_mut(&stream.0) {
            s.end_ns = end_ns;
        }
    }

    /// The event now stands for all work of the context so far, on streams of every kind.
    pub fn record_context(&mut self, t: ThreadKey, event: EventKey, context: ContextKey) {
        let clock = self.checker.keeps_order().then(|| self.clock_of_context(t, context));
        let Some(c) = self.contexts.get(&context.0) else { return };
        let (streams, recorder, gone_end_ns) = (c.streams.clone(), c.recorder, c.gone_end_ns);
        let op = self.add(New { event: event.0, context: context.0, ..self.new_on(0) });
        self.pending.after(op, recorder, gone_end_ns);
        for stream in streams {
            self.after_stream(op, stream);
        }
        if let Some(c) = self.contexts.get_mut(&context.0) {
            c.recorder = op;
        }
        self.set_record(event, Record { op, clock, end_ns: None, stream: 0 });
        self.queued(op);
    }

    /// The stream's later work waits for the event's most recent record; never recorded: nothing.
    pub fn wait_event(&mut self, t: ThreadKey, stream: StreamKey, event: EventKey) {
        let Some((earlier, end_ns, clock)) = self.recorded(event) else { return };
        let slot = self.order_before_next(t, stream.0);
        self.learn_and_tick(slot, clock);
        let op = self.add(self.new_on(stream.0));
        self.wait_for_earlier(op, stream.0);
        self.pending.after(op, earlier, end_ns);
        self.queued(op);
    }

    /// The later work of all the context's streams, present and future, waits for the event.
    pub fn wait_event_context(&mut self, t: ThreadKey, context: ContextKey, event: EventKey) {
        let Some((earlier, end_ns, clock)) = self.recorded(event) else { return };
        let Some(c) = self.contexts.get_mut(&context.0) else { return };
        let pending = &self.pending;
        let awaited = c.awaited.get_or_insert_default();
        awaited.retain(|&op| pending.is_pending(op));
        if pending.is_pending(earlier) {
            awaited.push(earlier);
        }
        c.awaited_ns = c.awaited_ns.max(end_ns);
        if let Some(clock) = &clock {
            self.checker.order.unite(&mut c.awaited_clock, clock);
        }
        for stream in c.streams.clone() {
            let Some(s) = self.streams.get_mut(&stream).filter(|s| s.alive) else { continue };
            s.end_ns = s.end_ns.max(end_ns);
            let slot = self.order_after_thread(t, stream);
            self.learn_and_tick(slot, clock.clone());
            self.queue_wait(stream, &[earlier]);
        }
    }

    /// Accesses by the host itself at this moment; returns the operation number that reports name.
    pub fn host_access(&mut self, t: ThreadKey, accesses: &[Access], label: &str) -> u64 {
        let number = self.new_number();
        if self.checker.is_on() && !accesses.is_empty() {
            let slot = self.host_slot(t);
            if !self.checker.flaw.has(Fault::HostDoesNotTick) {
                self.checker.order.tick(slot);
            }
            let who = Who { stream: None, thread: self.threads.number(t) };
            self.checker.judge(slot, number, who, label.to_owned(), accesses);
        }
        number
    }

    /// As [`Self::submit`], and the event then stands for the stream's work up to and with this.
    pub fn submit_and_record(
        &mut self,
        t: ThreadKey,
        stream: StreamKey,
        job: Job<W>,
        event: EventKey,
    ) -> OpKey {
        let op = self.submit_held(t, stream, job);
        let slot = self.streams.get(&stream.0).and_then(|s| s.slot);
        let keeps = self.checker.keeps_order();
        let clock = slot.filter(|_| keeps).map(|slot| self.checker.order.clock(slot).clone());
        if let Some(queued) = self.pending.get(op) {
            queued.event = event.0;
        }
        self.set_record(event, Record { op, clock, end_ns: None, stream: stream.0 });
        self.queued(op);
        op
    }

    /// Whether the stream's next operation comes after the event's record by what the program
    /// ordered. An event that is gone or was never recorded comes before everything.
    pub fn comes_after(&mut self, t: ThreadKey, stream: StreamKey, event: EventKey) -> bool {
        let Some((_, _, Some(clock))) = self.recorded(event) else { return true };
        let Some(slot) = self.order_next(t, stream.0) else { return false };
        self.checker.order.knows_all_of(slot, &clock)
    }

    /// Whether the thread knows that the event's record is done.
    pub fn host_knows(&mut self, t: ThreadKey, event: EventKey) -> bool {
        let Some((_, _, Some(clock))) = self.recorded(event) else { return true };
        let slot = self.host_slot(t);
        self.checker.order.knows_all_of(slot, &clock)
    }

    /// Whether the event's most recent record is done; nobody learns it.
    pub fn is_done(&self, event: EventKey) -> bool {
        let op = self.events.get(&event.0).and_then(|e| e.record.as_ref()).map(|r| r.op);
        op.is_none_or(|op| !self.pending.is_pending(op))
    }

    fn submit_held(&mut self, t: ThreadKey, stream: StreamKey, job: Job<W>) -> OpKey {
        debug_assert!(self.streams.contains_key(&stream.0), "no such stream: {}", stream.0);
        if job.unknown_accesses {
            self.checker.count_unknown();
        }
        let slot = self.order_next(t, stream.0);
        let (work, duration_ns) = (Some(job.work), job.duration_ns);
        let op = self.add(New { work, duration_ns, ..self.new_on(stream.0) });
        self.wait_for_earlier(op, stream.0);
        if let Some(slot) = slot.filter(|_| self.checker.is_on()) {
            let stream = Some(self.stream_name(stream));
            let who = Who { stream, thread: self.threads.number(t) };
            self.checker.judge(slot, op.number(), who, job.label, &job.accesses);
        }
        op
    }

    // The checker's side: clocks. All answer the stream's slot, None when the checker is off.

    /// The stream's next operation: its clock takes in what comes before, and ticks.
    fn order_next(&mut self, t: ThreadKey, stream: u64) -> Option<u32> {
        let slot = self.order_before_next(t, stream);
        self.learn_and_tick(slot, None);
        slot
    }

    /// Takes in what the thread knows and what the legacy rules say. The caller ticks.
    fn order_before_next(&mut self, t: ThreadKey, stream: u64) -> Option<u32> {
        let slot = self.order_after_thread(t, stream)?;
        let s = self.streams.get(&stream)?;
        let c = self.contexts.get(&s.context)?;
        let (flaw, order) = (self.checker.flaw, &mut self.checker.order);
        if s.kind == StreamKind::Legacy && !flaw.has(Fault::LegacyIgnoresBlocking) {
            order.join(slot, &c.gone_blocking);
            for other in c.streams.iter().filter_map(|key| self.streams.get(key)) {
                let blocking = follows_legacy(other.kind, flaw);
                if let (true, true, Some(from)) = (blocking, other.alive, other.active_slot()) {
                    order.join_actor(slot, from);
                }
            }
        } else if follows_legacy(s.kind, flaw) && !flaw.has(Fault::BlockingIgnoresLegacy) {
            let legacy = c.legacy.and_then(|key| self.streams.get(&key));
            if let Some(from) = legacy.and_then(|l| l.active_slot()) {
                order.join_actor(slot, from);
            }
        }
        Some(slot)
    }

    pub(super) fn order_after_thread(&mut self, t: ThreadKey, stream: u64) -> Option<u32> {
        if !self.checker.keeps_order() {
            return None;
        }
        let host = self.host_slot(t);
        let slot = self.slot_of(stream, host)?;
        if !self.checker.flaw.has(Fault::SubmitTeachesNothing) {
            self.checker.order.join_actor(slot, host);
        }
        Some(slot)
    }

    pub(super) fn learn_and_tick(&mut self, slot: Option<u32>, clock: Option<Clock>) {
        let Some(slot) = slot else { return };
        if let Some(clock) = clock {
            self.checker.order.join(slot, &clock);
        }
        self.checker.order.tick(slot);
    }

    /// What is done when all work of the context so far is done, seen by a thread.
    fn clock_of_context(&mut self, t: ThreadKey, context: ContextKey) -> Clock {
        let mut clock = Clock::nothing();
        let host = self.host_slot(t);
        self.checker.order.unite(&mut clock, self.checker.order.clock(host));
        self.join_context(&mut clock, context.0, self.checker.flaw);
        clock
    }

    pub(super) fn join_context(&self, clock: &mut Clock, context: u64, flaw: impl Flaw) {
        let Some(c) = self.contexts.get(&context) else { return };
        let order = &self.checker.order;
        order.unite(clock, &c.gone);
        let alive = c.streams.iter().filter_map(|key| self.streams.get(key)).filter(|s| s.alive);
        for slot in alive.filter_map(|s| s.active_slot()) {
            order.unite(clock, order.clock(slot));
            if flaw.has(Fault::ContextRecordTakesOne) {
                return;
            }
        }
    }

    // The scheduler's side: operations.

    /// What is common to operations of a stream (0: none).
    pub(super) fn new_on(&self, stream: u64) -> New<W> {
        let s = self.streams.get(&stream);
        New {
            work: None,
            priority: s.map_or(0, |s| s.priority),
            stream,
            context: s.map_or(0, |s| s.context),
            event: 0,
            duration_ns: 0,
            now_ns: self.now_ns,
        }
    }

    pub(super) fn add(&mut self, new: New<W>) -> OpKey {
        let number = self.new_number();
        self.asked_in_vain = 0;
        self.pending.add(number, new)
    }

    /// `op` becomes the stream's tail, after its old tail and what the legacy rules say.
    fn wait_for_earlier(&mut self, op: OpKey, stream: u64) {
        let Some(s) = self.streams.get(&stream) else { return };
        let kind = s.kind;
        let Some(c) = self.contexts.get(&s.context) else { return };
        let (streams, legacy) = (&self.streams, c.legacy);
        self.pending.after(op, s.tail, s.end_ns);
        if kind == StreamKind::Legacy {
            self.pending.after(op, OpKey::NONE, c.gone_end_ns);
            for other in c.streams.iter().filter_map(|key| streams.get(key)) {
                if matches!(other.kind, StreamKind::Blocking | StreamKind::PerThread) {
                    self.pending.after(op, other.tail, other.end_ns);
                }
            }
        } else if let (true, Some(legacy)) = (kind != StreamKind::NonBlocking, legacy) {
            self.after_stream(op, legacy);
        }
    }

    fn after_stream(&mut self, op: OpKey, stream: u64) {
        if let Some(s) = self.streams.get(&stream) {
            self.pending.after(op, s.tail, s.end_ns);
        }
    }

    /// The event's most recent record: operation, end if done, clock.
    fn recorded(&self, event: EventKey) -> Option<(OpKey, u64, Option<Clock>)> {
        let record = self.events.get(&event.0)?.record.as_ref()?;
        let mut clock = record.clock.clone();
        if self.checker.flaw.has(Fault::EventIsLive)
            && let Some(slot) = self.streams.get(&record.stream).and_then(|s| s.slot)
        {
            clock = Some(self.checker.order.clock(slot).clone());
        }
        Some((record.op, record.end_ns.unwrap_or(0), clock))
    }

    fn set_record(&mut self, event: EventKey, mut record: Record) {
        let Some(event) = self.events.get_mut(&event.0) else { return };
        let old = event.record.take();
        if let (true, Some(old)) = (self.checker.flaw.has(Fault::FirstRecordKept), old) {
            record.clock = old.clock;
        }
        event.record = Some(record);
    }

    /// The operation is in the queue with all its needs: the schedule hears of it.
    pub(super) fn queued(&mut self, op: OpKey) {
        let Some(queued) = self.pending.get(op) else { return };
        let (stream, context) = (queued.stream, queued.context);
        if let Some(s) = self.streams.get_mut(&stream) {
            s.tail = op;
            self.last_stream = stream;
        }
        let ready = self.pending.ready_at_once(op);
        match self.schedule {
            Schedule::Eager => self.want(op),
            Schedule::Lazy => {}
            Schedule::Lag(k) => {
                let device = self.contexts.get(&context).map_or(0, |c| c.device);
                self.not_due.entry(device).or_default().push_back(op);
                self.want_due(device, k);
            }
            Schedule::Random(_) if ready => self.ready.add_idle(op),
            Schedule::Random(_) => {}
        }
    }
}
