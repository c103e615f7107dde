//! The engine: streams, events and host threads; what may run, what runs next, and when it ends.
//!
//! Work is queued (`submit`, `record`, `wait_event`), judged by the checker at that moment, and handed
//! out to the caller to run: by `poll` when the schedule wants it run, by `step_wait` when a host
//! thread waits. An operation is handed out only when everything that CUDA orders before it is done:
//! - the stream's earlier operations;
//! - on the legacy stream, the earlier operations of the context's blocking and per-thread streams, and
//!   on those, the legacy stream's earlier operations; non-blocking streams are exempt;
//! - for a wait, the event's most recent record at the time of the call.
//!
//! Virtual time: an operation starts at max(time submitted, ends of what it comes after) and ends after
//! its duration; a host wait moves the host's time to the end of what it waited for. Nothing sleeps.
//!
//! The engine is pure: no memory, no CUDA types, no threads. One lock of the caller's protects it.
#![forbid(unsafe_code)]

pub mod capture;
mod fast_hash;
mod keys;
mod pending;
mod ready;
mod run;
mod streams;
mod submit;
mod threads;
mod wait;

use crate::checker::{Checker, Clock, Flaw, Sound};
pub(crate) use fast_hash::FastHash;
pub use keys::{
    ContextKey, EventKey, Job, OpKey, Schedule, Status, Step, StreamKey, StreamKind, StreamName,
    Target, ThreadKey,
};
use pending::Pending;
use ready::{Dice, Ready};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use streams::{Context, Stream};
use threads::Threads;
pub use wait::Wait;

/// An event's most recent record.
#[derive(Debug)]
struct Record {
    op: OpKey,
    /// What is done when the record is done; None if recorded while the checker was off.
    clock: Option<Clock>,
    /// When it completed.
    end_ns: Option<u64>,
    /// The stream it was recorded on, or 0.
    stream: u64,
}

/// An event.
#[derive(Debug)]
struct Event {
    context: u64,
    /// None: never recorded.
    record: Option<Record>,
}

/// Streams, events and host threads of all devices; `W` is the work, opaque here.
#[derive(Debug)]
pub struct Engine<W, F: Flaw = Sound> {
    checker: Checker<F>,
    threads: Threads,
    contexts: BTreeMap<u64, Context>,
    streams: HashMap<u64, Stream, FastHash>,
    events: HashMap<u64, Event, FastHash>,
    keys_given: u64,
    operations: u64,
    /// The stream of the operation queued last.
    last_stream: u64,
    pending: Pending<W>,
    ready: Ready,
    schedule: Schedule,
    dice: Dice,
    /// Operations of each device that are not due yet under `lag:k`, in order of submission.
    not_due: HashMap<u32, VecDeque<OpKey>, FastHash>,
    gates_open: HashSet<u64>,
    gates_shut: HashMap<u64, Vec<OpKey>>,
    prioritised: bool,
    /// Queries answered "not ready" since the last submission.
    asked_in_vain: u32,
    now_ns: u64,
}

impl<W> Engine<W> {
    /// An engine with no contexts, eager, checker off, host threads ordered, at virtual time 0.
    #[must_use]
    pub fn new() -> Self {
        Self::with_flaw(Sound)
    }
}

impl<W> Default for Engine<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W, F: Flaw> Engine<W, F> {
    /// As `new`, with a deliberate fault.
    #[doc(hidden)]
    pub fn with_flaw(flaw: F) -> Self {
        Self {
            checker: Checker::new(flaw),
            threads: Threads::default(),
            contexts: BTreeMap::new(),
            streams: HashMap::default(),
            events: HashMap::default(),
            keys_given: 0,
            operations: 0,
            last_stream: 0,
            pending: Pending::new(),
            ready: Ready::default(),
            schedule: Schedule::Eager,
            dice: Dice::new(0),
            not_due: HashMap::default(),
            gates_open: HashSet::new(),
            gates_shut: HashMap::new(),
            prioritised: false,
            asked_in_vain: 0,
            now_ns: 0,
        }
    }

    /// The checker, to set and to read.
    pub fn checker(&mut self) -> &mut Checker<F> {
        &mut self.checker
    }

    /// The checker, to read.
    pub fn checker_ref(&self) -> &Checker<F> {
        &self.checker
    }

    /// Streams, alive or destroyed, that have queued or running operations; in order of creation.
    pub fn pending_streams(&self) -> Vec<StreamKey> {
        let busy =
            |(&key, s): (&u64, &Stream)| self.pending.is_pending(s.tail).then_some(StreamKey(key));
        let mut keys: Vec<_> = self.streams.iter().filter_map(busy).collect();
        keys.sort_unstable();
        keys
    }

    /// Number of queued or running operations, records and waits included.
    pub fn pending_ops(&self) -> usize {
        self.pending.len()
    }

    /// Is the operation queued or running?
    pub fn is_pending(&self, op: OpKey) -> bool {
        self.pending.is_pending(op)
    }

    /// Virtual time of the host in nanoseconds; never goes back.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Moves the host's virtual time on.
    pub fn advance(&mut self, ns: u64) {
        self.now_ns = self.now_ns.saturating_add(ns);
    }

    /// Virtual time at which the event's most recent record completed; None while it has not, and for
    /// an event never recorded.
    pub fn event_time_ns(&self, event: EventKey) -> Option<u64> {
        self.events.get(&event.0)?.record.as_ref()?.end_ns
    }

    fn new_key(&mut self) -> u64 {
        self.keys_given += 1;
        self.keys_given
    }

    fn new_number(&mut self) -> u64 {
        self.operations += 1;
        self.operations
    }
}
