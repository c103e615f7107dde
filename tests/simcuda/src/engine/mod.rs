//! The engine: streams, events and host threads; what may run, what runs next, and when it ends.
#![forbid(unsafe_code)]

use crate::checker::{Access, Checker, Flaw, Sound};
use std::marker::PhantomData;

/// A host thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadKey(pub u64);
/// A stream; unique for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey(pub u64);
/// An event; unique for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventKey(pub u64);
/// A context; unique for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextKey(pub u64);
/// A queued operation; unique for ever. `number()` is the number that reports name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpKey(pub u64);

/// How a stream is ordered against its context's legacy stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// The context's legacy default stream.
    Legacy,
    /// A thread's default stream: ordered against the legacy stream like a blocking one.
    PerThread,
    /// Ordered against the legacy stream, both ways.
    Blocking,
    /// Not ordered against the legacy stream.
    NonBlocking,
}

/// When queued work runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// As soon as its dependencies are done.
    #[default]
    Eager,
    /// Only when somebody waits, only what the waiter needs.
    Lazy,
    /// When this many more operations have been queued on the same context, or somebody waits.
    Lag(u64),
    /// At random, honouring only true dependencies; the seed reproduces the run.
    Random(u64),
}

/// Work for a stream.
#[derive(Clone, Debug)]
pub struct Job<W> {
    /// Handed back by [`Engine::poll`] or [`Engine::step`] when it is to run.
    pub work: W,
    /// The bytes that it uses; ignored when the checker is off.
    pub accesses: Vec<Access>,
    /// Virtual duration in nanoseconds.
    pub duration_ns: u64,
    /// What a report calls it; may be empty when the checker is off.
    pub label: String,
    /// True if it may use bytes that `accesses` does not name; counted.
    pub unknown_accesses: bool,
}

/// Answer of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All the work asked about is done.
    Done,
    /// Some of it is not.
    NotReady,
}

/// What a waiter must do next.
#[derive(Debug)]
pub enum Step<W> {
    /// What was waited for is done, and the waiting thread's clock knows it.
    Finished,
    /// Run this work (the lock may be dropped meanwhile), call [`Engine::finished`], then ask again.
    Run(OpKey, W),
    /// Nothing can run until a gate opens or work in flight on another thread finishes.
    Blocked,
}

/// What a host thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// All work queued on a stream so far.
    Stream(StreamKey),
    /// The event's most recent record; an event never recorded is done.
    Event(EventKey),
    /// All work queued on a context so far, destroyed streams included.
    Context(ContextKey),
    /// One operation.
    Op(OpKey),
    /// All work of all contexts.
    Everything,
}

/// A wait begun: work queued later by other threads does not prolong it.
#[derive(Debug)]
pub struct Wait {
    _private: (),
}

/// See the module.
pub struct Engine<W, F: Flaw = Sound> {
    checker: Checker<F>,
    work: PhantomData<W>,
}

impl<W> Engine<W, Sound> {
    /// An engine with no contexts, eager, checker off, host threads ordered, at virtual time 0.
    pub fn new() -> Self {
        todo!()
    }
}

impl<W> Default for Engine<W, Sound> {
    fn default() -> Self {
        Self::new()
    }
}

#[allow(unused_variables)]
impl<W, F: Flaw> Engine<W, F> {
    /// May change at any time.
    pub fn set_schedule(&mut self, schedule: Schedule) {
        todo!()
    }
    /// The checker.
    pub fn checker(&mut self) -> &mut Checker<F> {
        &mut self.checker
    }
    /// The checker, to read.
    pub fn checker_ref(&self) -> &Checker<F> {
        &self.checker
    }
    /// True (the default): all host threads share one clock. False: separate clocks, joined only by signals.
    pub fn set_threads_ordered(&mut self, ordered: bool) {
        todo!()
    }
    /// The key of a host thread; the same for the same `os_thread`.
    pub fn thread(&mut self, os_thread: u64) -> ThreadKey {
        todo!()
    }
    /// What the thread did so far comes before whatever follows an `await_signal` of the same tag.
    pub fn signal(&mut self, t: ThreadKey, tag: u64) {
        todo!()
    }
    /// The other end of `signal`; without a signal before it, nothing.
    pub fn await_signal(&mut self, t: ThreadKey, tag: u64) {
        todo!()
    }
    /// A context without streams.
    pub fn create_context(&mut self, device: u32) -> ContextKey {
        todo!()
    }
    /// Destroys its streams; queued work still runs.
    pub fn destroy_context(&mut self, context: ContextKey) {
        todo!()
    }
    /// A stream, created by thread `t`. At most one Legacy a context.
    pub fn create_stream(
        &mut self,
        t: ThreadKey,
        context: ContextKey,
        kind: StreamKind,
        priority: i32,
    ) -> StreamKey {
        todo!()
    }
    /// Queued work still runs, and context waits still cover it.
    pub fn destroy_stream(&mut self, stream: StreamKey) {
        todo!()
    }
    /// An event, never recorded.
    pub fn create_event(&mut self, context: ContextKey) -> EventKey {
        todo!()
    }
    /// Forgets the event; waits made on it hold.
    pub fn destroy_event(&mut self, event: EventKey) {
        todo!()
    }
    /// Queues work: ordered after the stream's earlier work, by the legacy rules, and after what the thread knows. Judges its accesses now.
    pub fn submit(&mut self, t: ThreadKey, stream: StreamKey, job: Job<W>) -> OpKey {
        todo!()
    }
    /// As `submit`, but not ready before `gate_open(gate)`.
    pub fn submit_gated(
        &mut self,
        t: ThreadKey,
        stream: StreamKey,
        job: Job<W>,
        gate: u64,
    ) -> OpKey {
        todo!()
    }
    /// Opens a gate, for good.
    pub fn gate_open(&mut self, gate: u64) {
        todo!()
    }
    /// The event now stands for the stream's work so far.
    pub fn record(&mut self, t: ThreadKey, event: EventKey, stream: StreamKey) {
        todo!()
    }
    /// The event now stands for all work of the context so far.
    pub fn record_context(&mut self, t: ThreadKey, event: EventKey, context: ContextKey) {
        todo!()
    }
    /// The stream's later work waits for the event's most recent record; never recorded: nothing.
    pub fn wait_event(&mut self, t: ThreadKey, stream: StreamKey, event: EventKey) {
        todo!()
    }
    /// The later work of all the context's streams, present and future, waits for the event.
    pub fn wait_event_context(&mut self, t: ThreadKey, context: ContextKey, event: EventKey) {
        todo!()
    }
    /// Done if the stream's work so far is done; then the thread knows it.
    pub fn query_stream(&mut self, t: ThreadKey, stream: StreamKey) -> Status {
        todo!()
    }
    /// Done if the event's most recent record is done (or there is none); then the thread knows it.
    pub fn query_event(&mut self, t: ThreadKey, event: EventKey) -> Status {
        todo!()
    }
    /// Accesses by the host itself at this moment. Returns the operation number that reports name.
    pub fn host_access(&mut self, t: ThreadKey, accesses: &[Access], label: &str) -> u64 {
        todo!()
    }
    /// Begins a wait: fixes what is waited for.
    pub fn begin_wait(&mut self, t: ThreadKey, target: Target) -> Wait {
        todo!()
    }
    /// What the waiter must do next; after `Finished` the wait is over.
    pub fn step_wait(&mut self, t: ThreadKey, wait: &Wait) -> Step<W> {
        todo!()
    }
    /// `begin_wait` and one `step_wait`. With several host threads prefer those two: here, work that others queue between two steps is waited for as well.
    pub fn step(&mut self, t: ThreadKey, target: Target) -> Step<W> {
        todo!()
    }
    /// After every API call: work that the schedule wants run now. Ask until None.
    pub fn poll(&mut self) -> Option<(OpKey, W)> {
        todo!()
    }
    /// Work handed out by `poll` or `step` has run.
    pub fn finished(&mut self, op: OpKey) {
        todo!()
    }
    /// Streams, alive or destroyed, that have queued or running work.
    pub fn pending_streams(&self) -> Vec<StreamKey> {
        todo!()
    }
    /// Queued or running operations, records and waits included.
    pub fn pending_ops(&self) -> usize {
        todo!()
    }
    /// Virtual time of the host, nanoseconds.
    pub fn now_ns(&self) -> u64 {
        todo!()
    }
    /// Moves the host's virtual time on.
    pub fn advance(&mut self, ns: u64) {
        todo!()
    }
    /// Virtual time at which the event's most recent record completed; None while it has not.
    pub fn event_time_ns(&self, event: EventKey) -> Option<u64> {
        todo!()
    }
}
