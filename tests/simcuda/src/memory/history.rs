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

/// A range that was taken away.
#[derive(Clone, Debug)]
pub struct Taken {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// By which call.
    pub who: Caller,
    /// What it was, as the checker knew it; empty if it did not.
    pub was: Box<str>,
}

impl std::fmt::Display for Taken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { start, end, who, was } = self;
        write!(f, "{start:#x}..{end:#x} was taken away by {who}")?;
        if was.is_empty() { Ok(()) } else { write!(f, "; it was {was}") }
    }
}

/// What was freed.
#[derive(Debug, Default)]
pub struct History {
    entries: VecDeque<Taken>,
}

impl History {
    /// Notes that a range was taken away.
    pub fn freed(&mut self, taken: Taken) {
        if self.entries.len() == ENTRIES {
            self.entries.pop_front();
        }
        self.entries.push_back(taken);
    }

    /// Who took `address` away last, and the range that went with it.
    pub fn last(&self, address: u64) -> Option<&Taken> {
        self.entries.iter().rev().find(|it| (it.start..it.end).contains(&address))
    }
}
