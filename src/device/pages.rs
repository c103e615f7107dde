#![forbid(unsafe_code)]
//! Pages: which physical memory lies at which address, and which is kept without one.
//!
//! Each handle is in exactly one place: mapped, kept, or quarantined (forgotten here, counted in the
//! statistics). Room for a handle is made before it is got, so that giving back never allocates.

use std::collections::HashMap;

use super::peers::joined;
use crate::driver::Memory;
use crate::error::Error;
use crate::hash::ByNumber;
use crate::heap::PageRun;

/// The handles of one device.
#[derive(Debug)]
pub(super) struct Pages {
    page_bytes: u64,
    mapped: HashMap<u64, Memory, ByNumber>,
    kept: Vec<Memory>,
}

impl Pages {
    pub(super) fn new(page_bytes: u64) -> Self {
        Self { page_bytes, mapped: HashMap::default(), kept: Vec::new() }
    }

    /// Makes room for `count` more handles, wherever they go.
    pub(super) fn reserve(&mut self, count: usize) -> Result<(), Error> {
        self.mapped.try_reserve(count + self.kept.len()).map_err(|_| Error::HostOutOfMemory)?;
        self.kept.try_reserve(self.mapped.len() + count).map_err(|_| Error::HostOutOfMemory)
    }

    /// Keeps a handle that has no address.
    pub(super) fn keep(&mut self, memory: Memory) {
        self.kept.push(memory);
    }

    /// Takes a kept handle.
    pub(super) fn unkeep(&mut self) -> Option<Memory> {
        self.kept.pop()
    }

    /// Notes that a handle is mapped at `address`.
    pub(super) fn note_mapped(&mut self, address: u64, memory: Memory) {
        self.mapped.insert(address, memory);
    }

    /// Forgets what is mapped at `address`.
    pub(super) fn note_unmapped(&mut self, address: u64) -> Option<Memory> {
        self.mapped.remove(&address)
    }

    /// Where pages are mapped, those that follow each other as one run.
    pub(super) fn mapped_runs(&self, page: u64) -> Result<Vec<PageRun>, Error> {
        let mut addresses = Vec::new();
        addresses.try_reserve(self.mapped.len()).map_err(|_| Error::HostOutOfMemory)?;
        addresses.extend(self.mapped.keys().copied());
        joined(addresses, page)
    }

    /// Bytes of the handles kept without an address.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.kept.len() as u64 * self.page_bytes
    }

    /// Every mapped address with its handle, and every kept handle: for a device that was reset.
    pub(super) fn drain(&mut self) -> (impl Iterator<Item = (u64, Memory)> + use<>, Vec<Memory>) {
        (std::mem::take(&mut self.mapped).into_iter(), std::mem::take(&mut self.kept))
    }
}
