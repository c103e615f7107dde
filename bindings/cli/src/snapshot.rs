//! A snapshot as `cuddy_snapshot()` writes it (docs/SNAPSHOT.md, which says what each field means).

#![allow(missing_docs)] // that page has them

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// The whole.
#[derive(Deserialize)]
pub struct Snapshot {
    pub format: String,
    pub version: u32,
    pub library: String,
    pub time_us: u64,
    pub devices: Vec<DevicePart>,
    /// The last request that found no memory.
    #[serde(default)]
    pub out_of_memory: Option<Shortage>,
    /// The options that the program ran with.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    pub scopes: Vec<ScopePart>,
    pub history: History,
    /// What the stacks of blocks and events name; empty if none were kept.
    #[serde(default)]
    pub frames: Vec<Frame>,
}

/// A place in the program: of Python a file and a line, else a module and an offset in it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Frame {
    pub name: String,
    pub file: String,
    pub line: u64,
    pub module: String,
    pub offset: u64,
}

/// A request that found no memory. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Shortage {
    pub time_us: u64,
    pub device: i32,
    pub requested: u64,
    pub cause: String,
    pub allocated: u64,
    pub active: u64,
    pub reserved: u64,
    pub cached: u64,
    pub limit: Option<u64>,
    pub largest_free: u64,
    pub largest_free_own: u64,
    pub free_bytes: u64,
    pub free_count: u64,
    pub device_free: Option<u64>,
    pub device_total: Option<u64>,
    pub used_elsewhere: Option<u64>,
    #[serde(default)]
    pub pool_limit: Option<u64>,
    #[serde(default)]
    pub pool_allocated: Option<u64>,
    pub waiting: Vec<Waiting>,
    pub scopes: Vec<Holder>,
    pub message: String,
}

/// A stream that freed memory waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Waiting {
    pub stream: u64,
    pub bytes: u64,
}

/// A scope that had live memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Holder {
    pub path: String,
    pub live_bytes: u64,
}

impl Shortage {
    /// What Cuddy could have had of the device.
    pub fn memory(&self) -> Option<u64> {
        let device = self.device_free.map(|free| free + self.reserved);
        match (device, self.limit) {
            (Some(device), Some(limit)) => Some(device.min(limit)),
            (device, limit) => device.or(limit),
        }
    }
}

#[derive(Deserialize)]
pub struct DevicePart {
    pub device: i32,
    pub stats: BTreeMap<String, u64>,
    pub segments: Vec<Segment>,
}

#[derive(Deserialize)]
pub struct Segment {
    pub pool: u32,
    pub address: u64,
    pub blocks: Vec<Block>,
}

#[derive(Deserialize)]
pub struct Block {
    pub bytes: u64,
    pub requested: u64,
    pub state: String,
    pub stream: u64,
    pub scope: u32,
    pub run: u64,
    #[serde(default)]
    pub label: String,
    /// Where it was allocated: places in `frames`, innermost first.
    #[serde(default)]
    pub stack: Vec<u32>,
}

#[derive(Deserialize)]
pub struct ScopePart {
    pub scope: u32,
    pub path: String,
    pub runs: u64,
    pub live_bytes: u64,
    pub live_count: u64,
    pub peak_bytes: u64,
    pub total_bytes: u64,
    pub total_count: u64,
}

#[derive(Deserialize)]
pub struct History {
    pub noted: u64,
    pub lost: u64,
    pub columns: Vec<String>,
    pub events: Vec<Event>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Alloc,
    Free,
    OutOfMemory,
    Growth,
    Release,
    #[serde(other)]
    Unknown,
}

/// A row of the history: the columns of version 1, in their order; stacks only where they were kept.
#[derive(Clone, Deserialize)]
pub struct Event(
    pub u64,                        // time_us
    pub Kind,                       // kind
    pub i32,                        // device
    pub u64,                        // stream
    pub u64,                        // address
    pub u64,                        // bytes
    pub u64,                        // requested
    pub u32,                        // scope
    IgnoredAny,                     // thread
    #[serde(default)] pub Vec<u32>, // stack: places in `frames`, innermost first
);

impl Event {
    /// One of device 0, for tests.
    #[cfg(test)]
    pub fn new(time: u64, kind: Kind, bytes: u64, scope: u32) -> Self {
        Self(time, kind, 0, 1, 512, bytes, bytes, scope, IgnoredAny, Vec::new())
    }
}

/// The columns; the last is left out where no stacks were kept.
const COLUMNS: [&str; 10] = [
    "time_us",
    "kind",
    "device",
    "stream",
    "address",
    "bytes",
    "requested",
    "scope",
    "thread",
    "stack",
];

impl Snapshot {
    /// Reads one; the error says what is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let hint = "a snapshot is what cuddy.memory.dump_snapshot(\"file.json\") or cuddy_snapshot() writes";
        let snapshot: Self = serde_json::from_slice(text)
            .map_err(|error| format!("no snapshot: {error}; {hint}"))?;
        if snapshot.format != "cuddy-snapshot" || snapshot.version != 1 {
            return Err(format!(
                "its form is {} {}, and this command reads cuddy-snapshot 1",
                snapshot.format, snapshot.version
            ));
        }
        let columns = &snapshot.history.columns;
        if *columns != COLUMNS && *columns != COLUMNS[..COLUMNS.len() - 1] {
            return Err(format!("its history has other columns than {}", COLUMNS.join(", ")));
        }
        Ok(snapshot)
    }
}
