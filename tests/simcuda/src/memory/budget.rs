//! A device's **budget**: how many bytes there are and who has them.
//!
//! `free = total - others - used` (never below zero), and a request is refused exactly when `free <
//! bytes`. `used` counts an allocation or a created handle from its making until the last of its
//! handle and mappings is gone.

use crate::types::{Code, code};

/// The bytes of one device.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Size of the device.
    pub total: u64,
    /// Bytes that other processes have taken.
    pub others: u64,
    /// Bytes in use by this process.
    pub used: u64,
    /// The most that `used` has been.
    pub peak: u64,
    /// Requests of at least this size are refused; 0 = none is.
    pub refuse_from: u64,
}

impl Budget {
    /// A device of `total` bytes, all free.
    pub fn new(total: u64) -> Self {
        Self { total, others: 0, used: 0, peak: 0, refuse_from: 0 }
    }

    /// What can still be had.
    pub fn free(&self) -> u64 {
        self.total.saturating_sub(self.others).saturating_sub(self.used)
    }

    /// Whether `bytes` could be taken now.
    pub fn check(&self, bytes: u64) -> Result<(), Code> {
        let refused = self.refuse_from != 0 && bytes >= self.refuse_from;
        if refused || self.free() < bytes { Err(code::OUT_OF_MEMORY) } else { Ok(()) }
    }

    /// Counts `bytes` as used.
    pub fn take(&mut self, bytes: u64) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
    }

    /// Counts `bytes` as free again.
    pub fn give(&mut self, bytes: u64) {
        debug_assert!(self.used >= bytes);
        self.used -= bytes;
    }
}
