//! The **history** of freed addresses: who took a range away, so that a late use can be explained.
//!
//! Bounded: the oldest entries are forgotten.

use std::collections::VecDeque;

const ENTRIES: usize = 4096;

/// The call that did something.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Name of the API function.
    pub function: &'static str,
    /// How many API calls had been made, this one included.
    pub call: u64,
    /// The host thread.
    pub thread: u64,
}

impl std::fmt::Display for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (call {}, host thread {})", self.function, self.call, self.thread)
    }
}

/// What was freed.
#[derive(Debug, Default)]
pub struct History {
    entries: VecDeque<(u64, u64, Caller)>,
}

impl History {
    /// Notes that `[start, start + bytes)` was taken away by `who`.
    pub fn freed(&mut self, start: u64, bytes: u64, who: Caller) {
        if self.entries.len() == ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back((start, start + bytes, who));
    }

    /// Who took `address` away last, and the range that went with it.
    pub fn last(&self, address: u64) -> Option<(u64, u64, Caller)> {
        let holds = |&&(start, end, _): &&(u64, u64, Caller)| start <= address && address < end;
        self.entries.iter().rev().find(holds).copied()
    }
}
