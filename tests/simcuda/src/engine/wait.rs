//! Host waits and queries: what a host thread learns, and to what time it moves on.
#![forbid(unsafe_code)]

use super::keys::OpKey;
use super::run::Ran;
use super::{ContextKey, Engine, EventKey, Status, Step, StreamKey, Target, ThreadKey};
use crate::checker::{Clock, Fault, Flaw, Sound};

/// A host that asks this often in a row without queueing anything is waiting: what it asks for runs.
const SPINNING: u32 = 32;

/// A wait begun: work queued later by other threads does not prolong it.
#[derive(Debug)]
pub struct Wait {
    /// The operations waited for that were pending, with their streams.
    ops: Vec<(OpKey, u64)>,
    /// The event waited for, and its record.
    event: Option<(EventKey, OpKey)>,
    /// What the thread learns in the end; None while the checker is off.
    clock: Option<Clock>,
    /// When the last of those done at the beginning ended.
    end_ns: u64,
    /// Whether it is for a whole context.
    all: bool,
}

impl Wait {
    fn op(&mut self, op: OpKey, stream: u64, pending: bool) {
        if pending {
            self.ops.push((op, stream));
        }
    }
}

impl<W, F: Flaw> Engine<W, F> {
    /// Begins a wait: fixes what is waited for.
    pub fn begin_wait(&mut self, target: Target) -> Wait {
        let clock = self.checker.keeps_order().then(Clock::nothing);
        let all = matches!(target, Target::Context(_) | Target::Everything);
        let mut wait = Wait { ops: Vec::new(), event: None, clock, end_ns: 0, all };
        match target {
            Target::Stream(stream) => self.await_stream(&mut wait, stream.0),
            Target::Event(event) => self.await_event(&mut wait, event),
            Target::Context(context) => self.await_context(&mut wait, context),
            Target::Everything => {
                for context in self.contexts.keys().copied().collect::<Vec<_>>() {
                    self.await_context(&mut wait, ContextKey(context));
                }
            }
            Target::Op(op) => self.await_op(&mut wait, op),
        }
        if self.checker.flaw.has(Fault::WaitTeachesNothing) {
            wait.clock = None;
        }
        wait
    }

    fn await_stream(&self, wait: &mut Wait, stream: u64) {
        let Some(s) = self.streams.get(&stream) else { return };
        wait.op(s.tail, stream, self.pending.is_pending(s.tail));
        wait.end_ns = wait.end_ns.max(s.end_ns);
        if let (Some(clock), Some(slot)) = (&mut wait.clock, s.active_slot()) {
            self.checker.order.unite(clock, self.checker.order.clock(slot));
        }
    }

    fn await_event(&self, wait: &mut Wait, event: EventKey) {
        let Some(Some(record)) = self.events.get(&event.0).map(|e| &e.record) else { return };
        wait.op(record.op, record.stream, self.pending.is_pending(record.op));
        wait.event = Some((event, record.op));
        wait.end_ns = wait.end_ns.max(record.end_ns.unwrap_or(0));
        if let (Some(clock), Some(known)) = (&mut wait.clock, &record.clock) {
            self.checker.order.unite(clock, known);
        }
    }

    fn await_context(&self, wait: &mut Wait, context: ContextKey) {
        let Some(c) = self.contexts.get(&context.0) else { return };
        wait.op(c.recorder, 0, self.pending.is_pending(c.recorder));
        wait.end_ns = wait.end_ns.max(c.gone_end_ns);
        for (stream, s) in c.streams.iter().filter_map(|key| Some((key, self.streams.get(key)?))) {
            wait.op(s.tail, *stream, self.pending.is_pending(s.tail));
            wait.end_ns = wait.end_ns.max(s.end_ns);
        }
        if let Some(clock) = &mut wait.clock {
            self.join_context(clock, context.0, Sound);
        }
    }

    fn await_op(&mut self, wait: &mut Wait, op: OpKey) {
        if op == OpKey::NONE {
            return;
        }
        let is_tail = |key: &u64| self.streams.get(key).is_some_and(|s| s.tail == op);
        let last = Some(self.last_stream).filter(is_tail);
        match last.or_else(|| self.streams.keys().copied().find(is_tail)) {
            Some(stream) => self.await_stream(wait, stream),
            None => {
                let stream = self.pending.get(op).map(|op| op.stream);
                wait.op(op, stream.unwrap_or(0), stream.is_some());
            }
        }
    }

    /// What the waiter must do next; after `Finished` the wait is over. The host's time is then not
    /// before the end of what was waited for.
    pub fn step_wait(&mut self, t: ThreadKey, wait: &Wait) -> Step<W> {
        for &(op, _) in &wait.ops {
            self.want(op);
        }
        while wait.ops.iter().any(|&(op, _)| self.pending.is_pending(op)) {
            match self.run_for_waiter() {
                Ran::Work(op, work) => return Step::Run(op, work),
                Ran::Mark => {}
                Ran::Nothing => return Step::Blocked,
            }
        }
        self.wait_is_over(t, wait);
        Step::Finished
    }

    /// What must run so that an operation gets done soon. No host waits for it, and none learns
    /// of it.
    pub fn step_hasten(&mut self, op: OpKey) -> Step<W> {
        self.want(op);
        while self.pending.is_pending(op) {
            match self.run_for_waiter() {
                Ran::Work(op, work) => return Step::Run(op, work),
                Ran::Mark => {}
                Ran::Nothing => return Step::Blocked,
            }
        }
        Step::Finished
    }

    /// [`Self::begin_wait`] and one [`Self::step_wait`]. With several host threads prefer those two:
    /// here, work that others queue between two steps is waited for as well.
    pub fn step(&mut self, t: ThreadKey, target: Target) -> Step<W> {
        let wait = self.begin_wait(target);
        self.step_wait(t, &wait)
    }

    /// Done if the stream's work so far is done; then the thread knows it, and its time is not before
    /// the end of that work.
    pub fn query_stream(&mut self, t: ThreadKey, stream: StreamKey) -> Status {
        let found = self.streams.get(&stream.0).filter(|s| !self.pending.is_pending(s.tail));
        match found.map(|s| s.end_ns).filter(|_| !self.checker.keeps_order()) {
            Some(end_ns) => self.ended(end_ns),
            None => self.query(t, Target::Stream(stream)),
        }
    }

    /// Done if the event's most recent record is done (or there is none); then the thread knows it.
    pub fn query_event(&mut self, t: ThreadKey, event: EventKey) -> Status {
        let record = self.events.get(&event.0).and_then(|e| e.record.as_ref());
        let end_ns = record.and_then(|record| record.end_ns);
        match end_ns.filter(|_| !self.checker.keeps_order()) {
            Some(end_ns) => self.ended(end_ns),
            None => self.query(t, Target::Event(event)),
        }
    }

    /// Where no checker wants to know who learns what, a query of what is done only moves the time.
    fn ended(&mut self, end_ns: u64) -> Status {
        self.now_ns = self.now_ns.max(end_ns);
        Status::Done
    }

    fn query(&mut self, t: ThreadKey, target: Target) -> Status {
        let wait = self.begin_wait(target);
        let pending = wait.ops.iter().map(|&(op, _)| op).find(|&op| self.pending.is_pending(op));
        let Some(op) = pending else {
            self.wait_is_over(t, &wait);
            return Status::Done;
        };
        self.asked_in_vain += 1;
        if self.asked_in_vain >= SPINNING {
            self.want(op);
        }
        if let (true, Some(clock)) = (self.checker.flaw.has(Fault::NotReadyTeaches), &wait.clock) {
            self.host_learns(t, clock);
        }
        Status::NotReady
    }

    fn wait_is_over(&mut self, t: ThreadKey, wait: &Wait) {
        let mut end_ns = wait.end_ns;
        match wait.event.and_then(|(event, op)| self.end_of_record(event, op)) {
            Some(end) => end_ns = end_ns.max(end),
            None => {
                for s in wait.ops.iter().filter_map(|(_, stream)| self.streams.get(stream)) {
                    end_ns = end_ns.max(s.end_ns);
                }
            }
        }
        self.now_ns = self.now_ns.max(end_ns);
        if let Some(clock) = &wait.clock {
            self.host_learns(t, clock);
            self.settle(wait.all);
        }
    }

    /// When the record `op` of the event completed, if it is still the most recent one.
    fn end_of_record(&self, event: EventKey, op: OpKey) -> Option<u64> {
        let record = self.events.get(&event.0)?.record.as_ref()?;
        record.end_ns.filter(|_| record.op == op)
    }
}
