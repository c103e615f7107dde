//! A report: what one replay showed. All sizes are in bytes.
//!
//! A replay is clean when the trace completed, every block was used and found as it was left, no
//! two blocks overlapped, the checker saw accesses and complained of none, and the allocator's
//! counters agree with what was asked of it and what the device lent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What one replay showed. Every field is part of the output of `cuddy replay --json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// The trace's name.
    pub trace: String,
    /// Events in the trace, of every kind.
    pub events: u64,
    /// Whether every event was served.
    pub completed: bool,
    /// Why not.
    pub error: Option<String>,
    /// Peak of the sum of live requests, as asked for, in bytes.
    pub peak_requested: u64,
    /// Peak of the sum of live requests, each rounded up to 512 bytes.
    pub peak_allocated: u64,
    /// Peak of physical memory that the allocator held from the driver, in bytes.
    pub peak_reserved: u64,
    /// `peak_reserved / peak_allocated`.
    pub reserved_over_allocated: f64,
    /// The allocator's driver calls, by function.
    pub driver_calls: BTreeMap<String, u64>,
    /// How many of them from the third step on; null where the trace has no three steps.
    pub steady_state_driver_calls: Option<u64>,
    /// Time in those, in microseconds.
    pub steady_state_driver_time_us: Option<f64>,
    /// Time in the allocator's driver calls, in microseconds: virtual on the simulated device; on
    /// a GPU, measured over those allocator calls that made any.
    pub driver_time_us: f64,
    /// Measured host time of an allocator call, in nanoseconds: the mean of all.
    pub ns_per_op: f64,
    /// Complaints of the happens-before checker; null on a GPU, which has none.
    pub checker_reports: Option<u64>,
    /// Blocks of which a reading came out wrong.
    pub corrupt_blocks: u64,
    /// The smallest device on which the trace completes, over `peak_allocated`; with --fit only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fit_ratio: Option<f64>,
    /// That device's memory, in bytes; with --fit only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fit_bytes: Option<u64>,
    /// Of a program that ran short: what would have let its last request fit; with --fit only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub would_fit: Option<String>,

    /// Who served the memory: `cuddy` or `driver`.
    pub allocator: String,
    /// How, where it was Cuddy and chosen: `pages` or `segments`.
    pub backing: Option<String>,
    /// The device's name.
    pub device: String,
    /// Whether the device is simulated.
    pub simulated: bool,
    /// The memory that the allocator might use, in bytes.
    pub device_memory: u64,
    /// The simulated device's schedule.
    pub schedule: Option<String>,
    /// Allocator calls timed.
    pub operations: u64,
    /// Blocks that were given overlapping, misaligned or null addresses.
    pub misplaced_blocks: u64,
    /// Counters that disagree with what was asked or lent, and what was not given back when all was
    /// freed at the end; a sentence each.
    pub wrong_counters: Vec<String>,
    /// Bytes of pattern written into blocks.
    pub bytes_written: u64,
    /// Bytes of pattern read back and compared.
    pub bytes_read_back: u64,
    /// Accesses that the checker judged; null on a GPU.
    pub accesses_checked: Option<u64>,
    /// Kernel launches of which the checker did not know what they touch; null on a GPU.
    pub unknown_launches: Option<u64>,
    /// The replayer's own driver calls, by function: not among `driver_calls`.
    pub replay_driver_calls: BTreeMap<String, u64>,
    /// Virtual time in the replayer's own driver calls, in microseconds; null on a GPU.
    pub replay_driver_time_us: Option<f64>,
    /// Measured time of the whole replay, in seconds.
    pub seconds: f64,
    /// What the reader of the trace decided by itself, a sentence each.
    pub notes: Vec<String>,
    /// The first findings, in full: corrupt and misplaced blocks, complaints of the checker.
    pub findings: Vec<String>,
    /// The allocator's own summary at the end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub summary: Option<String>,
}

impl Report {
    /// Whether everything that was looked at was as it should be.
    pub fn clean(&self) -> bool {
        self.completed && self.sound()
    }

    /// Whether nothing wrong was seen, though the trace may not have completed.
    pub fn sound(&self) -> bool {
        self.checker_reports.unwrap_or(0) == 0
            && self.corrupt_blocks == 0
            && self.misplaced_blocks == 0
            && self.wrong_counters.is_empty()
            && (self.operations == 0 || self.accesses_checked != Some(0))
    }

    /// The allocator's driver calls, all functions together.
    pub fn driver_calls_total(&self) -> u64 {
        self.driver_calls.values().sum()
    }
}
