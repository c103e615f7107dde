//! **Managed memory**: one address for the host and for all devices.
//!
//! Here it is memory of the host that devices reach too, so nothing ever moves; advice and
//! prefetches are kept in the books, page by page. The stretches of an allocation tile it: neighbours
//! differ.

use super::linear::HostRange;
use super::object::Home;
use super::table::{Kind, Mapping};
use super::{Memory, host::Wish};
use crate::types::{Code, code};
use std::collections::BTreeMap;

/// The unit of advice.
pub const PAGE: u64 = 4096;

/// A place that memory can be wished to: a device, or the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nowhere in particular.
    Nowhere,
    /// The host, by the kind of location that was named.
    Host {
        /// `CUmemLocationType`: 2 = host, 3 = a NUMA node, 4 = the calling thread's.
        kind: i32,
        /// The node.
        id: i32,
    },
    /// A device.
    Device(u32),
}

/// What is known of some pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Mostly read.
    pub read_mostly: bool,
    /// Where it should lie.
    pub preferred: Place,
    /// Devices that will use it, a bit each; the host is [`HOST_BIT`].
    pub accessed_by: u64,
    /// Where it was prefetched to last.
    pub prefetched: Place,
}

/// The host's bit in [`Advice::accessed_by`].
pub const HOST_BIT: u64 = 1 << 63;

impl Default for Advice {
    fn default() -> Self {
        let nowhere = Place::Nowhere;
        Self { read_mostly: false, preferred: nowhere, accessed_by: 0, prefetched: nowhere }
    }
}

/// Start to end and advice, of all managed memory.
#[derive(Debug, Default)]
pub struct Stretches {
    map: BTreeMap<u64, (u64, Advice)>,
}

impl Stretches {
    fn split(&mut self, at: u64) {
        let Some((_, stretch)) = self.map.range_mut(..at).next_back() else { return };
        let (end, advice) = *stretch;
        if end > at {
            stretch.0 = at;
            self.map.insert(at, (end, advice));
        }
    }

    /// Changes what is known of `[start, end)`.
    pub fn change(&mut self, start: u64, end: u64, mut change: impl FnMut(&mut Advice)) {
        self.split(start);
        self.split(end);
        self.map.range_mut(start..end).for_each(|(_, (_, advice))| change(advice));
    }

    /// What is known of the pages of `[start, end)`.
    pub fn of(&self, start: u64, end: u64) -> Vec<Advice> {
        let touching = self.map.range(..end).rev().take_while(|(_, (e, _))| *e > start);
        touching.map(|(_, (_, advice))| *advice).collect()
    }

    /// How many stretches there are.
    pub fn count(&self) -> usize {
        self.map.len()
    }

    fn remove(&mut self, start: u64, end: u64) {
        self.map.retain(|at, _| !(start..end).contains(at));
    }
}

impl Memory {
    /// `cuMemAllocManaged`: answers the address and the object.
    pub fn allocate_managed(&mut self, wish: Wish) -> Result<(u64, u64), Code> {
        let Wish { context, device, bytes, flags } = wish;
        let rounded = bytes.checked_next_multiple_of(PAGE).ok_or(code::OUT_OF_MEMORY)?;
        let range = HostRange::sparse(rounded).map_err(|_| code::OUT_OF_MEMORY)?;
        let start = range.start;
        let (object, buffer) = self.new_mapped(device, bytes, Home::Host(range), start);
        self.table.insert(Mapping {
            start,
            bytes,
            object,
            base: start,
            kind: Kind::Managed,
            device,
            context,
            readers: u64::MAX,
            writers: u64::MAX,
            flags,
            buffer,
            sync_memops: false,
        });
        self.managed.map.insert(start, (start + rounded, Advice::default()));
        Ok((start, object))
    }

    /// The pages of a range that lies in managed memory.
    pub fn managed_pages(&self, start: u64, bytes: u64) -> Result<(u64, u64), Code> {
        let end = start.checked_add(bytes).filter(|end| *end > start).ok_or(code::INVALID_VALUE)?;
        let mut at = start;
        while at < end {
            let m = self.table.find(at).filter(|m| m.kind == Kind::Managed);
            at = m.ok_or(code::INVALID_VALUE)?.end();
        }
        Ok((start & !(PAGE - 1), end.next_multiple_of(PAGE)))
    }

    /// Forgets the advice of an allocation that ends.
    pub fn forget_advice(&mut self, mapping: &Mapping) {
        if mapping.kind == Kind::Managed {
            self.managed.remove(mapping.start, mapping.end().next_multiple_of(PAGE));
        }
    }
}
