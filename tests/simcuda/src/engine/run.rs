//! Running: what the schedule hands out, and what happens when it is finished.
//!
//! An operation is handed out once, when it is ready. It runs when it is *wanted* (eager wants all;
//! `lag:k` all but the last k of a device; a waiter what it waits for) with everything that it needs;
//! the random schedule also runs what nobody wants. Records and waits have no work: they finish here.
#![forbid(unsafe_code)]

use super::keys::OpKey;
use super::pending::State;
use super::ready::Dice;
use super::{Engine, Schedule};
use crate::checker::Flaw;

/// What was run for a waiter.
pub(super) enum Ran<W> {
    /// This work is to be run.
    Work(OpKey, W),
    /// A record or a wait; it is complete.
    Mark,
    /// Nothing can run.
    Nothing,
}

impl<W, F: Flaw> Engine<W, F> {
    /// May change at any time.
    pub fn set_schedule(&mut self, schedule: Schedule) {
        self.schedule = schedule;
        self.dice = Dice::new(if let Schedule::Random(seed) = schedule { seed } else { 0 });
        self.ready.clear();
        self.not_due.clear();
        for op in self.pending.keys() {
            let Some(pending) = self.pending.get(op) else { continue };
            let (ready, wanted, context) =
                (pending.state == State::Ready, pending.wanted, pending.context);
            if ready && wanted {
                self.ready.add_wanted(op);
            }
            match schedule {
                Schedule::Eager => self.want(op),
                Schedule::Lazy => {}
                Schedule::Lag(k) => {
                    let device = self.contexts.get(&context).map_or(0, |c| c.device);
                    self.not_due.entry(device).or_default().push_back(op);
                    self.want_due(device, k);
                }
                Schedule::Random(_) if ready && !wanted => self.ready.add_idle(op),
                Schedule::Random(_) => {}
            }
        }
    }

    /// Whether [`Self::poll`] has nothing to hand out.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.ready.nothing_wanted() && !matches!(self.schedule, Schedule::Random(_))
    }

    /// After every API call: work that the schedule wants run now. Ask until None, running each and
    /// telling [`Self::finished`].
    pub fn poll(&mut self) -> Option<(OpKey, W)> {
        let random = matches!(self.schedule, Schedule::Random(_));
        loop {
            if random && !self.dice.roll() {
                return None;
            }
            let Some(op) = self.next(false) else {
                self.dice.poll_ends();
                return None;
            };
            if let Some(work) = self.start(op) {
                return Some((op, work));
            }
        }
    }

    /// Work handed out by [`Self::poll`] or a step has run. Anything else is ignored.
    pub fn finished(&mut self, op: OpKey) {
        if self.pending.get(op).is_none_or(|op| op.state != State::Running) {
            debug_assert!(false, "operation {} is not running", op.number());
            return;
        }
        self.complete(op);
    }

    /// One operation for a waiter: the next wanted one, or what the dice say.
    pub(super) fn run_for_waiter(&mut self) -> Ran<W> {
        match self.next(true) {
            None => Ran::Nothing,
            Some(op) => self.start(op).map_or(Ran::Mark, |work| Ran::Work(op, work)),
        }
    }

    /// The operation and all that it needs are wanted from now on.
    pub(super) fn want(&mut self, op: OpKey) {
        let ready = &mut self.ready;
        self.pending.want(op, |op| ready.add_wanted(op));
    }

    /// All but the last `k` operations of the device are wanted.
    pub(super) fn want_due(&mut self, device: u32, k: u64) {
        loop {
            let Some(queue) = self.not_due.get_mut(&device) else { return };
            if queue.len() as u64 <= k {
                return;
            }
            if let Some(op) = queue.pop_front() {
                self.want(op);
            }
        }
    }

    /// An operation became ready after it was queued.
    pub(super) fn is_ready(&mut self, op: OpKey) {
        let wanted = self.pending.get(op).is_some_and(|op| op.wanted);
        if wanted {
            self.ready.add_wanted(op);
        } else if matches!(self.schedule, Schedule::Random(_)) {
            self.ready.add_idle(op);
        }
    }

    /// Chooses a ready operation.
    fn next(&mut self, for_waiter: bool) -> Option<OpKey> {
        loop {
            let op = match self.schedule {
                Schedule::Random(_) => self.ready.any(&mut self.dice, for_waiter),
                _ if self.prioritised => {
                    let pending = &self.pending;
                    self.ready.best(|op| pending.priority(op))
                }
                _ => self.ready.first(),
            }?;
            if self.pending.get(op).is_some_and(|op| op.state == State::Ready) {
                return Some(op);
            }
        }
    }

    /// Takes the work out to be run; an operation without work is complete at once.
    fn start(&mut self, op: OpKey) -> Option<W> {
        let pending = self.pending.get(op)?;
        pending.state = State::Running;
        let work = pending.work.take();
        if work.is_none() {
            self.complete(op);
        }
        work
    }

    fn complete(&mut self, op: OpKey) {
        let random = matches!(self.schedule, Schedule::Random(_));
        let ready = &mut self.ready;
        let freed = self.pending.finish(op, |later, wanted| {
            if wanted {
                ready.add_wanted(later);
            } else if random {
                ready.add_idle(later);
            }
        });
        let Some((stream, _, event, end_ns)) = freed else { return };
        if let Some(record) = self.events.get_mut(&event).and_then(|e| e.record.as_mut())
            && record.op == op
        {
            record.end_ns = Some(end_ns);
        }
        if let Some(s) = self.streams.get_mut(&stream) {
            s.end_ns = s.end_ns.max(end_ns);
            if !s.alive {
                self.drop_stream_if_over(stream);
            }
        }
    }
}
