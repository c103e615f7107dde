//! **Host memory** that devices can reach: allocated here, or the program's own, registered.
//!
//! Its device address is its host address.

use super::linear::HostRange;
use super::object::Home;
use super::table::{Kind, Mapping};
use super::{Gone, Memory};
use crate::types::{Code, code};

const PAGE: u64 = 4096;

/// A wish for host memory.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The context that it belongs to.
    pub context: u64,
    /// That context's device.
    pub device: u32,
    /// How much.
    pub bytes: u64,
    /// `CU_MEMHOSTALLOC_*` or `CU_MEMHOSTREGISTER_*`.
    pub flags: u32,
}

/// `CU_MEMHOSTREGISTER_READ_ONLY`.
const READ_ONLY: u32 = 8;

impl Memory {
    fn enter_host(&mut self, start: u64, wish: Wish, kind: Kind, home: Home) -> u64 {
        let Wish { context, device, bytes, flags } = wish;
        let (object, buffer) = self.new_mapped(device, bytes, home, start);
        let read_only = kind == Kind::Registered && flags & READ_ONLY != 0;
        let mapping = Mapping {
            start,
            bytes,
            object,
            base: start,
            kind,
            device,
            context,
            readers: u64::MAX,
            writers: if read_only { 0 } else { u64::MAX },
            flags,
            buffer,
            sync_memops: false,
        };
        self.table.insert(mapping);
        object
    }

    /// `cuMemHostAlloc`: answers the address and the object.
    pub fn allocate_host(&mut self, wish: Wish) -> Result<(u64, u64), Code> {
        let rounded = wish.bytes.checked_next_multiple_of(PAGE).ok_or(code::OUT_OF_MEMORY)?;
        let range = HostRange::anonymous(rounded).map_err(|_| code::OUT_OF_MEMORY)?;
        let start = range.start;
        let object = self.enter_host(start, wish, Kind::Pinned, Home::Host(range));
        Ok((start, object))
    }

    /// `cuMemHostRegister`: answers the object.
    pub fn register(&mut self, start: u64, wish: Wish) -> Result<u64, Code> {
        if self.table.overlaps(start, wish.bytes) {
            return Err(code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        Ok(self.enter_host(start, wish, Kind::Registered, Home::Foreign))
    }

    /// Takes host memory out again; what was allocated here is gone.
    pub fn remove_host(&mut self, start: u64) -> Gone {
        let mapping = self.table.remove(start)?;
        self.drop_mapping(&mapping)
    }
}
