//! **Memory of graphs**: what allocation nodes give out.
//!
//! An allocation has one address, from the making of its node until neither a graph, nor an
//! executable, nor the program has it. Bytes stand behind the address from the first launch on, until
//! they are trimmed: `used <= reserved = sum of those with bytes`. It is live from the launch of its
//! node to its free; while it is, a [`Block`] says so, as for a pool.

use super::object::Home;
use super::pool::{Level, Mark};
use super::table::{Block, Kind, Mapping};
use super::{ALIGNMENT, Gone, LARGE, Memory};
use crate::types::{AccessDescriptor, Code, PoolProperties, code};
use std::collections::BTreeMap;

/// What stands for the pool in a [`Block`] of a graph's memory.
pub const NO_POOL: u64 = 0;

/// Whose free nodes free an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FreedBy {
    /// There is none.
    #[default]
    Nobody,
    /// The graph that allocates it: it never leaves that.
    Owner,
    /// Another graph.
    Other,
}

/// What an allocation node was asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Where it lies.
    pub pool: PoolProperties,
    /// The devices, besides its own, that may use it.
    pub access: Vec<AccessDescriptor>,
    /// How many bytes.
    pub bytes: u64,
}

impl Asked {
    /// The device that it lies on.
    pub fn device(&self) -> u32 {
        self.pool.location.id as u32
    }

    /// The bytes that are counted and judged.
    pub fn rounded(&self) -> u64 {
        self.bytes.next_multiple_of(ALIGNMENT)
    }

    fn pages(&self) -> u64 {
        self.bytes.next_multiple_of(LARGE)
    }

    /// Devices that may, a bit each.
    fn devices(&self, may: impl Fn(&AccessDescriptor) -> bool) -> u64 {
        let others = self.access.iter().filter(|a| may(a)).map(|a| 1 << a.location.id);
        others.fold(1 << self.device(), |bits, bit| bits | bit)
    }
}

/// An allocation.
#[derive(Debug)]
pub struct Allocation {
    /// What its node asks for.
    pub asked: Asked,
    /// Its node, which may be gone.
    pub node: u64,
    /// Whose free nodes free it.
    pub freed_by: FreedBy,
    /// Between the launch of its node and its free.
    pub live: bool,
    /// The bytes behind it.
    pub object: Option<u64>,
    /// The last free, if it was in stream order.
    pub mark: Option<Mark>,
}

/// The counts of a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Levels {
    /// Bytes of live allocations.
    pub used: Level,
    /// Bytes taken from the device.
    pub reserved: Level,
}

/// All of them.
#[derive(Debug, Default)]
pub struct GraphMemory {
    /// By address.
    pub all: BTreeMap<u64, Allocation>,
    levels: BTreeMap<u32, Levels>,
}

impl GraphMemory {
    /// The counts of a device.
    pub fn levels(&mut self, device: u32) -> &mut Levels {
        self.levels.entry(device).or_default()
    }

    /// An allocation, by its address.
    pub fn get(&self, address: u64) -> Result<&Allocation, Code> {
        self.all.get(&address).ok_or(code::INVALID_VALUE)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, address: u64) -> Result<&mut Allocation, Code> {
        self.all.get_mut(&address).ok_or(code::INVALID_VALUE)
    }
}

impl Memory {
    /// An address for what a node asks for.
    pub fn graph_address(&mut self, asked: Asked) -> Result<u64, Code> {
        let address = self.addresses.take(asked.pages(), LARGE).ok_or(code::OUT_OF_MEMORY)?;
        let (node, live, object, mark) = (0, false, None, None);
        let freed_by = FreedBy::Nobody;
        self.graphs.all.insert(address, Allocation { asked, node, freed_by, live, object, mark });
        Ok(address)
    }

    /// Puts bytes behind an address; answers their object and size if they are new.
    pub fn back_graph_memory(&mut self, start: u64) -> Result<Option<(u64, u64)>, Code> {
        let found = self.graphs.get(start)?;
        if found.object.is_some() {
            return Ok(None);
        }
        let (bytes, device) = (found.asked.pages(), found.asked.device());
        let readers = found.asked.devices(|a| a.flags & 1 != 0);
        let writers = found.asked.devices(|a| a.flags & 2 != 0);
        self.budgets[device as usize].check(bytes)?;
        let base = self.linear.take(bytes).ok_or(code::OUT_OF_MEMORY)?;
        self.budgets[device as usize].take(bytes);
        let (object, buffer) = self.new_mapped(device, bytes, Home::Linear, base);
        self.table.insert(Mapping {
            start,
            bytes,
            object,
            base,
            kind: Kind::Pool,
            device,
            context: 0,
            readers,
            writers,
            flags: 0,
            buffer,
            sync_memops: false,
        });
        self.graphs.levels(device).reserved.add(bytes);
        self.graphs.get_mut(start)?.object = Some(object);
        Ok(Some((object, bytes)))
    }

    /// Takes the bytes of an allocation that is not live away.
    pub fn unback_graph_memory(&mut self, start: u64) -> Gone {
        let found = self.graphs.all.get_mut(&start)?;
        found.object.take()?;
        let (bytes, device) = (found.asked.pages(), found.asked.device());
        self.graphs.levels(device).reserved.now -= bytes;
        let mapping = self.table.remove(start)?;
        self.drop_mapping(&mapping)
    }

    /// Nobody has the allocation any more: its address is free.
    pub fn forget_graph_memory(&mut self, start: u64) {
        if let Some(gone) = self.graphs.all.remove(&start) {
            self.addresses.give(start, gone.asked.pages());
        }
    }

    /// An allocation begins to live; answers the free that it must come after.
    pub fn revive_graph_memory(&mut self, start: u64) -> Option<Mark> {
        let buffer = self.unique();
        let found = self.graphs.all.get_mut(&start)?;
        found.live = true;
        let (mark, bytes) = (found.mark.take(), found.asked.bytes);
        let (used, device) = (found.asked.rounded(), found.asked.device());
        self.graphs.levels(device).used.add(used);
        self.table.insert_block(Block { start, bytes, pool: NO_POOL, buffer });
        mark
    }

    /// An allocation is freed.
    pub fn end_graph_memory(&mut self, start: u64, mark: Option<Mark>) {
        let Some(found) = self.graphs.all.get_mut(&start) else { return };
        (found.live, found.mark) = (false, mark);
        let (used, device) = (found.asked.rounded(), found.asked.device());
        self.graphs.levels(device).used.now -= used;
        self.table.remove_block(start);
    }
}
