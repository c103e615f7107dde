//! A report: two uses of the same bytes that nothing orders, or one use that is wrong by itself.
//!
//! Each report names both sides (what, operation number, stream, host thread) and the bytes. The
//! same pair of operations is reported once a kind; `more` counts the further ranges of that pair.
#![forbid(unsafe_code)]

use std::fmt;

/// How an operation uses bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AccessKind {
    /// The bytes are read.
    #[default]
    Read,
    /// The bytes are written.
    Write,
    /// The bytes are taken away (freed, unmapped, released): must come after every earlier use.
    Destroy,
    /// The bytes are given out in stream order: must come after every earlier use, and before every
    /// use by their new owner. They hold nothing yet.
    Allocate,
}

/// A use of the bytes `offset .. offset + bytes` of a physical object.
///
/// Objects are named by numbers that are never used again; two addresses that alias one page name
/// the same object and offset. An access of 0 bytes uses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The physical object.
    pub object: u64,
    /// First byte, counted from the object's start.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Read, written or taken away.
    pub kind: AccessKind,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReportKind {
    /// Two uses, at least one a write, that nothing orders.
    #[default]
    Race,
    /// Bytes were freed, unmapped or released while a use of them may still be running.
    DestroyUnderWork,
    /// A use of stream-ordered memory that nothing orders after its allocation.
    BeforeAllocation,
    /// A read of bytes that were never written.
    Uninitialised,
    /// A use of memory after its free.
    UseAfterFree,
    /// A use of an address where nothing is mapped.
    Unmapped,
    /// A use of mapped memory to which the device has no access (no `cuMemSetAccess`).
    NoAccess,
    /// A use of memory that belongs to another context or device without peer access.
    Foreign,
    /// A use that begins inside an allocation and leaves it.
    OutOfBounds,
    /// The host touched memory that only the device may touch.
    HostTouchesDevice,
}

impl ReportKind {
    /// The sentence that opens a report of this kind.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Race => "race: two uses of the same bytes that nothing orders",
            Self::DestroyUnderWork => "memory taken away while work may still use it",
            Self::BeforeAllocation => "use of memory that nothing orders after its allocation",
            Self::Uninitialised => "read of bytes that were never written",
            Self::UseAfterFree => "use after free",
            Self::Unmapped => "use of an unmapped address",
            Self::NoAccess => "use of memory that the device may not access",
            Self::Foreign => "use of memory of another context or device",
            Self::OutOfBounds => "use beyond the end of an allocation",
            Self::HostTouchesDevice => "host use of memory that only the device may touch",
        }
    }
}

/// One finding. Fields that do not apply are 0 or empty (`..Report::default()`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is wrong.
    pub kind: ReportKind,
    /// The earlier side in order of submission: use, label, operation number, stream, host thread.
    pub first: String,
    /// The later side.
    pub second: String,
    /// Operation number of the first side, 0 if it is no operation.
    pub first_op: u64,
    /// Operation number of the second side, 0 if it is no operation.
    pub second_op: u64,
    /// The physical object, with its label if it has one.
    pub object: u64,
    /// What the object was created as; empty if unknown.
    pub object_label: String,
    /// First byte concerned, from the object's start.
    pub offset: u64,
    /// Number of bytes of the first range found.
    pub bytes: u64,
    /// Further ranges of the same pair of operations, not reported one by one.
    pub more: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  first:  {}\n  second: {}\n", self.kind.title(), self.first, self.second)?;
        let end = self.offset.saturating_add(self.bytes);
        write!(f, "  bytes {:#x}..{end:#x}", self.offset)?;
        if self.object != 0 {
            write!(f, " of object {}", self.object)?;
        }
        if !self.object_label.is_empty() {
            write!(f, " ({})", self.object_label)?;
        }
        if self.more > 0 {
            write!(f, ", and {} more range(s) of the same two operations", self.more)?;
        }
        Ok(())
    }
}
