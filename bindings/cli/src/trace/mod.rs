//! A trace: what one process asked of one device's allocator, in program order.
//!
//! However it was written down, a [`Trace`] obeys one grammar: an `Alloc` names a slot that holds
//! no live block, a `Free` or `Record` one that does, and no block has zero bytes. [`Builder`] is
//! the only way to make one, so whoever replays a trace need not check it again.

mod builder;
mod cuddy;
mod gputrace;
mod open;
mod pickle;
mod rmm;
mod snapshot;
mod text;

pub use builder::Builder;
pub use open::{Format, open, read};

use std::collections::BTreeMap;
use std::fmt;

use crate::snapshot::Shortage;

/// A stream's number in a trace; 0 is the default stream.
pub type StreamNumber = u32;

/// A place to keep one live block; reused after the block is freed.
pub type Slot = u32;

/// One line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Allocate `bytes` (as asked for, > 0) for use on `stream`, and keep the block in `slot`.
    Alloc {
        /// Where the block is kept.
        slot: Slot,
        /// Its stream.
        stream: StreamNumber,
        /// Bytes asked for.
        bytes: u64,
    },
    /// Free the block in `slot`, in the order of `stream`.
    Free {
        /// Where the block was kept.
        slot: Slot,
        /// The stream whose order the free follows.
        stream: StreamNumber,
    },
    /// The block in `slot` is also used on `stream`; `None` is some other stream, not known which.
    Record {
        /// Where the block is kept.
        slot: Slot,
        /// The other stream.
        stream: Option<StreamNumber>,
    },
    /// `waiter` waits for all work queued so far on `awaited`; the host goes on.
    Wait {
        /// The stream that waits.
        waiter: StreamNumber,
        /// The stream that it waits for.
        awaited: StreamNumber,
    },
    /// The host waits for the whole device.
    Synchronize,
    /// Give unused memory back to the device.
    EmptyCache,
    /// A phase begins; the label is `labels[index]`.
    Marker {
        /// Index into [`Trace::labels`].
        index: u32,
    },
}

/// A whole trace, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What it calls itself, or its file's name.
    pub name: String,
    /// What happened, in order.
    pub events: Vec<Event>,
    /// The line (or, in a snapshot, the entry) that each event came from, counted from 1.
    pub lines: Vec<u32>,
    /// The labels of the markers.
    pub labels: Vec<String>,
    /// Slots in use at most; every slot number is below it.
    pub slots: u32,
    /// Streams named; every stream number is below it.
    pub streams: u32,
    /// What a reader had to decide by itself, one sentence each.
    pub notes: Vec<String>,
    /// Of a program that ran short: its last request is in the trace.
    pub short: Option<Short>,
}

/// A request that found no memory, and the options that the program ran with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Short {
    /// The request, and where memory was.
    pub shortage: Shortage,
    /// Values by name.
    pub options: BTreeMap<String, String>,
}

/// The figures of a trace that do not depend on any allocator, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ideal {
    /// Peak of the sum of live requests, as asked for.
    pub requested: u64,
    /// Peak of the sum of live requests, each rounded up to 512 bytes: what no allocator can beat.
    pub allocated: u64,
}

impl Trace {
    /// Calls that an allocator serves: every event but waits and markers.
    pub fn operations(&self) -> u64 {
        let served = |event: &&Event| !matches!(event, Event::Wait { .. } | Event::Marker { .. });
        self.events.iter().filter(served).count() as u64
    }

    /// Whether any stream waits for another by a line of its own.
    pub fn has_waits(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Wait { .. }))
    }

    /// Peaks that the trace asks for by itself.
    pub fn ideal(&self) -> Ideal {
        let mut live = vec![0u64; self.slots as usize];
        let mut now = Ideal::default();
        let mut peak = Ideal::default();
        for event in &self.events {
            match *event {
                Event::Alloc { slot, bytes, .. } => {
                    live[slot as usize] = bytes;
                    now.requested += bytes;
                    now.allocated += bytes.next_multiple_of(512);
                    peak.requested = peak.requested.max(now.requested);
                    peak.allocated = peak.allocated.max(now.allocated);
                }
                Event::Free { slot, .. } => {
                    let bytes = std::mem::take(&mut live[slot as usize]);
                    now.requested -= bytes;
                    now.allocated -= bytes.next_multiple_of(512);
                }
                _ => {}
            }
        }
        peak
    }

    /// Index of the event where the steady state begins: the third marker that begins a step.
    ///
    /// Steps are markers named `step_...`, or `forward` where there are none; a trace with fewer
    /// than three has no steady state.
    pub fn steady_state_from(&self) -> Option<usize> {
        let third = |is_step: &dyn Fn(&str) -> bool| {
            let step = |event: &Event| match *event {
                Event::Marker { index } => is_step(&self.labels[index as usize]),
                _ => false,
            };
            let mut steps = self.events.iter().enumerate().filter(|(_, event)| step(event));
            steps.nth(2).map(|(index, _)| index)
        };
        third(&|label| label.starts_with("step_")).or_else(|| third(&|label| label == "forward"))
    }
}

/// Why a trace was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// Line, entry or byte that is wrong, such as "line 12"; empty if the whole file is.
    pub place: String,
    /// What is wrong with it.
    pub reason: String,
}

impl TraceError {
    /// A complaint about one line of text.
    pub fn line(number: u64, reason: impl Into<String>) -> Self {
        Self { place: format!("line {number}"), reason: reason.into() }
    }

    /// A complaint about the file as a whole.
    pub fn whole(reason: impl Into<String>) -> Self {
        Self { place: String::new(), reason: reason.into() }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for TraceError {}
