//! **Host memory** that devices can reach: allocated here, or the program's own, registered.
//!
//! Its device address is its host address.

use super::linear::HostRange;
use super::object::Home;
use super::table::{Kind, Mapping};
use super::{Gone, Memory};
use crate::types::{Code, code};

const PAGE: u64 = 4096;

impl Memory {
    fn enter_host(
        &mut self,
        context: u64,
        device: u32,
        start: u64,
        bytes: u64,
        flags: u32,
        kind: Kind,
        home: Home,
    ) -> u64 {
        let object = self.new_object(device, bytes, home, start);
        object.mappings = 1;
        let object = object.id;
        let read_only = kind == Kind::Registered && flags & 8 != 0;
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
            buffer: self.unique(),
            sync_memops: false,
        };
        self.table.insert(mapping);
        object
    }

    /// `cuMemHostAlloc`: answers the address and the object.
    pub fn allocate_host(
        &mut self,
        context: u64,
        device: u32,
        bytes: u64,
        flags: u32,
    ) -> Result<(u64, u64), Code> {
        let rounded = bytes.checked_next_multiple_of(PAGE).ok_or(code::OUT_OF_MEMORY)?;
        let range = HostRange::anonymous(rounded).map_err(|_| code::OUT_OF_MEMORY)?;
        let start = range.start;
        let object =
            self.enter_host(context, device, start, bytes, flags, Kind::Pinned, Home::Host(range));
        Ok((start, object))
    }

    /// `cuMemHostRegister`.
    pub fn register(
        &mut self,
        context: u64,
        device: u32,
        start: u64,
        bytes: u64,
        flags: u32,
    ) -> Result<u64, Code> {
        if self.table.overlaps(start, bytes) {
            return Err(code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        Ok(self.enter_host(context, device, start, bytes, flags, Kind::Registered, Home::Foreign))
    }

    /// Takes host memory out again; what was allocated here is gone.
    pub fn remove_host(&mut self, start: u64) -> Gone {
        let mapping = self.table.remove(start)?;
        self.drop_mapping(&mapping)
    }
}
