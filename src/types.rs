#![forbid(unsafe_code)]
//! The nouns that every floor shares, each a type of its own so that they cannot be mixed up.

use std::fmt;

/// An address in a device's memory (or in host memory that the device sees). Never dereferenced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64);

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A device's number, as `cuDeviceGet` counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u32);

/// A pool's place among its device's; 0 is the default pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u32);

impl PoolId {
    /// The pool that serves whatever names no other.
    pub const DEFAULT: Self = Self(0);
}

/// A stream's place in its device's registry; a slot is one stream for as long as it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamSlot(pub u32);

/// When freed memory was last used: by which stream, and at which of that stream's epochs.
///
/// Work that `stream` was given up to `epoch` may still be using the memory. Later work of the same
/// stream is ordered behind it by the stream itself; anybody else needs a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The stream that used the memory last.
    pub stream: StreamSlot,
    /// The stream's epoch at the free; a fence of this epoch or a later one covers it.
    pub epoch: u64,
}
