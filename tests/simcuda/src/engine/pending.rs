//! The pending operations: those queued and not finished, and who waits for whom.
//!
//! `waiting == number of unfinished operations in needs + 1 if its gate is shut`; an operation is
//! ready when that is 0. A finished operation's place is used again, so memory follows what is pending.
#![forbid(unsafe_code)]

use super::keys::OpKey;

/// Where a pending operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    Ready,
    Running,
}

/// A queued operation. Records and waits have no work.
#[derive(Debug)]
pub(super) struct Op<W> {
    key: OpKey,
    pub work: Option<W>,
    pub state: State,
    /// Somebody waits for it, or the schedule wants it run.
    pub wanted: bool,
    pub priority: i32,
    /// 0: a record of a whole context.
    pub stream: u64,
    pub context: u64,
    /// The event that this operation records, or 0.
    pub event: u64,
    pub duration_ns: u64,
    /// Virtual time before which it cannot start.
    pub start_ns: u64,
    waiting: u32,
    needs: Vec<OpKey>,
    needed_by: Vec<u32>,
}

/// What to queue.
pub(super) struct New<W> {
    pub work: Option<W>,
    pub priority: i32,
    pub stream: u64,
    pub context: u64,
    pub event: u64,
    pub duration_ns: u64,
    pub now_ns: u64,
}

/// All pending operations.
#[derive(Debug)]
pub(super) struct Pending<W> {
    all: Vec<Op<W>>,
    free: Vec<u32>,
    /// What [`Pending::want`] has still to look at; empty between calls.
    todo: Vec<OpKey>,
}

impl<W> Pending<W> {
    pub fn new() -> Self {
        Self { all: Vec::new(), free: Vec::new(), todo: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Adds an operation with no needs.
    pub fn add(&mut self, number: u64, new: New<W>) -> OpKey {
        let reused = self.free.pop();
        let place = reused.map_or(self.all.len(), |place| place as usize);
        let key = OpKey::new(number, place);
        let (needs, needed_by) = match reused {
            Some(_) => {
                let old = &mut self.all[place];
                (std::mem::take(&mut old.needs), std::mem::take(&mut old.needed_by))
            }
            None => Default::default(),
        };
        let op = Op {
            key,
            work: new.work,
            state: State::Waiting,
            wanted: false,
            priority: new.priority,
            stream: new.stream,
            context: new.context,
            event: new.event,
            duration_ns: new.duration_ns,
            start_ns: new.now_ns,
            waiting: 0,
            needs,
            needed_by,
        };
        if reused.is_some() {
            self.all[place] = op;
        } else {
            self.all.push(op);
        }
        key
    }

    /// Queued or running?
    #[inline]
    pub fn is_pending(&self, key: OpKey) -> bool {
        key != OpKey::NONE && self.all.get(key.place()).is_some_and(|op| op.key == key)
    }

    #[inline]
    pub fn get(&mut self, key: OpKey) -> Option<&mut Op<W>> {
        self.all.get_mut(key.place()).filter(|op| op.key == key && key != OpKey::NONE)
    }

    /// For choosing: smaller goes first.
    pub fn priority(&self, key: OpKey) -> i32 {
        self.all[key.place()].priority
    }

    /// `op` comes after `earlier`, or after the virtual time `done_ns` if that is done. True if it is.
    pub fn after(&mut self, op: OpKey, earlier: OpKey, done_ns: u64) -> bool {
        let done = !self.is_pending(earlier);
        let later = &mut self.all[op.place()];
        if done {
            later.start_ns = later.start_ns.max(done_ns);
        } else {
            later.waiting += 1;
            later.needs.push(earlier);
            self.all[earlier.place()].needed_by.push(op.place() as u32);
        }
        done
    }

    /// The operation also waits for something else (a gate).
    pub fn hold(&mut self, op: OpKey) {
        self.all[op.place()].waiting += 1;
    }

    /// One thing that the operation waited for came at `at_ns`; true if it is ready now.
    pub fn let_go(&mut self, op: OpKey, at_ns: u64) -> bool {
        self.all[op.place()].let_go(at_ns)
    }

    /// Marks the operation ready if it waits for nothing; true then.
    pub fn ready_at_once(&mut self, op: OpKey) -> bool {
        let op = &mut self.all[op.place()];
        if op.waiting == 0 {
            op.state = State::Ready;
        }
        op.waiting == 0
    }

    /// Takes a finished operation out. `ready` is told of each operation that became ready; the
    /// answer is (stream, context, event, end).
    pub fn finish(
        &mut self,
        key: OpKey,
        mut ready: impl FnMut(OpKey, bool),
    ) -> Option<(u64, u64, u64, u64)> {
        let op = self.get(key)?;
        let end = op.start_ns.saturating_add(op.duration_ns);
        let facts = (op.stream, op.context, op.event, end);
        op.key = OpKey::NONE;
        op.work = None;
        op.needs.clear();
        let mut later = std::mem::take(&mut op.needed_by);
        for place in later.drain(..) {
            let op = &mut self.all[place as usize];
            if op.let_go(end) {
                ready(op.key, op.wanted);
            }
        }
        self.all[key.place()].needed_by = later;
        self.free.push(key.place() as u32);
        Some(facts)
    }

    /// Marks `key` and all that it needs as wanted; `ready` is told of those that can run.
    pub fn want(&mut self, key: OpKey, mut ready: impl FnMut(OpKey)) {
        let mut todo = std::mem::take(&mut self.todo);
        todo.push(key);
        while let Some(key) = todo.pop() {
            let Some(op) = self.get(key) else { continue };
            if std::mem::replace(&mut op.wanted, true) {
                continue;
            }
            if op.state == State::Ready {
                ready(key);
            }
            todo.extend_from_slice(&op.needs);
        }
        self.todo = todo;
    }

    /// Every pending operation, in order of submission.
    pub fn keys(&self) -> Vec<OpKey> {
        let pending = self.all.iter().map(|op| op.key).filter(|&key| key != OpKey::NONE);
        let mut keys: Vec<OpKey> = pending.collect();
        keys.sort_unstable();
        keys
    }
}

impl<W> Op<W> {
    fn let_go(&mut self, at_ns: u64) -> bool {
        self.waiting -= 1;
        self.start_ns = self.start_ns.max(at_ns);
        let ready = self.waiting == 0 && self.state == State::Waiting;
        if ready {
            self.state = State::Ready;
        }
        ready
    }
}
