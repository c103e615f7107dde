//! A physical **object**: bytes of a device or of the host, wherever they are mapped.
//!
//! Alive while it has a handle or a mapping.

use super::ipc::Imported;
use super::linear::{HostRange, MemoryFile};
use crate::types::AllocationProperties;
use std::cell::Cell;

/// Where an object's bytes are kept.
#[derive(Debug)]
pub enum Home {
    /// An extent of the linear memory file.
    Linear,
    /// A memory file of its own, which other processes can map too.
    Shared {
        /// The file.
        file: MemoryFile,
        /// This process's view of it.
        range: HostRange,
        /// Device and inode number: the file's identity.
        identity: (u64, u64),
    },
    /// Bytes of another process's allocation.
    Imported(Imported),
    /// Page-locked host memory of ours.
    Host(HostRange),
    /// The program's own memory.
    Foreign,
}

/// One object.
#[derive(Debug)]
pub struct Object {
    /// Its number, never given twice.
    pub id: u64,
    /// The device that it lies on.
    pub device: u32,
    /// Its size.
    pub bytes: u64,
    /// Where the bytes are.
    pub home: Home,
    /// Where the host finds them.
    pub base: u64,
    /// Handles that name it.
    pub handles: Vec<u64>,
    /// Mappings that show it.
    pub mappings: u32,
    /// Whether it counts against its device's budget.
    pub counted: bool,
    /// Whether its bytes were ever written.
    pub touched: Cell<bool>,
    /// How it was asked for (VMM).
    pub properties: AllocationProperties,
}

impl Object {
    /// An object that nothing names yet.
    pub fn new(id: u64, device: u32, bytes: u64, home: Home, base: u64) -> Self {
        let counted = matches!(home, Home::Linear | Home::Shared { .. });
        let (handles, mappings, touched) = (Vec::new(), 0, Cell::new(false));
        let properties = AllocationProperties::default();
        Self { id, device, bytes, home, base, handles, mappings, counted, touched, properties }
    }

    /// The memory file of its own, if it has one.
    pub fn file(&self) -> Option<i32> {
        match &self.home {
            Home::Shared { file, .. } => Some(file.fd),
            _ => None,
        }
    }

    /// An import: the exporter is told that it is not used here any more.
    pub fn leave(&self) {
        if let Home::Imported(imported) = &self.home {
            imported.leave();
        }
    }

    /// Whether nothing names it any more.
    pub fn is_dead(&self) -> bool {
        self.handles.is_empty() && self.mappings == 0
    }
}
