//! The names and small types of the engine. Keys are numbers that are never used twice.
#![forbid(unsafe_code)]

use crate::checker::Access;

/// A host thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadKey(pub u64);

/// A stream, counted from 1: the number that reports name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey(pub u64);

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventKey(pub u64);

/// A context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextKey(pub u64);

/// A queued operation: its number, and below that its place in the store of pending operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpKey(pub u64);

/// Bits of an [`OpKey`] that say its place: 2^28 operations can be pending, 2^36 in all.
const PLACE_BITS: u32 = 28;

impl OpKey {
    /// Stands for no operation; always done.
    pub const NONE: Self = Self(0);

    pub(super) fn new(number: u64, place: usize) -> Self {
        assert!(place < 1 << PLACE_BITS && number < 1 << (64 - PLACE_BITS), "too many operations");
        Self(number << PLACE_BITS | place as u64)
    }

    /// Operation number, from 1 in order of submission: the number that reports name.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0 >> PLACE_BITS
    }

    pub(super) fn place(self) -> usize {
        (self.0 & ((1 << PLACE_BITS) - 1)) as usize
    }
}

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

/// What reports call a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamName {
    /// A default stream is called one.
    pub kind: StreamKind,
    /// The program's number for it.
    pub id: u64,
}

impl std::fmt::Display for StreamName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            StreamKind::Legacy => "legacy ",
            StreamKind::PerThread => "per-thread ",
            StreamKind::Blocking | StreamKind::NonBlocking => "",
        };
        write!(f, "{kind}stream {}", self.id)
    }
}

/// When queued work runs. Records and waits are queued operations too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// As soon as its dependencies are done.
    #[default]
    Eager,
    /// Only when somebody waits, only what the waiter needs.
    Lazy,
    /// When this many more operations have been queued on the same device, or somebody waits.
    Lag(u64),
    /// At random, honouring only true dependencies; the seed reproduces the run.
    Random(u64),
}

/// Work for a stream.
#[derive(Clone, Debug)]
pub struct Job<W> {
    /// Handed back by [`Engine::poll`](super::Engine::poll) or
    /// [`Engine::step`](super::Engine::step) when it is to run.
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
    /// Run this work (the lock may be dropped meanwhile), call
    /// [`Engine::finished`](super::Engine::finished), then ask again.
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
    /// One operation. The waiter's clock learns from it only if it is still the last of its stream
    /// when the wait begins, as it is for a synchronous call: submit, then wait, under one lock.
    Op(OpKey),
    /// All work of all contexts.
    Everything,
}
