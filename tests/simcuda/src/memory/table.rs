//! The **page table**: which physical bytes lie behind an address, and who may touch them.
//!
//! An address is a byte of at most one mapping. An access is legal when every byte of it lies in
//! mappings that let its actor read or write; nothing else is ever touched.

use std::collections::{BTreeMap, HashSet};

/// What made a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `cuMemAlloc`.
    Device,
    /// `cuMemMap`.
    Virtual,
    /// `cuIpcOpenMemHandle`.
    Imported,
    /// `cuMemHostAlloc`.
    Pinned,
    /// `cuMemHostRegister`.
    Registered,
    /// A chunk of a memory pool; [`Block`]s say what of it is allocated.
    Pool,
    /// `cuMemAllocManaged`.
    Managed,
}

/// An allocation in a memory pool.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// First address.
    pub start: u64,
    /// Its length, as asked for.
    pub bytes: u64,
    /// The pool's handle.
    pub pool: u64,
    /// A number that no other allocation ever has.
    pub buffer: u64,
}

impl Block {
    /// One past the last address.
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// A range of addresses with one physical object behind it, from the object's first byte on.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Length.
    pub bytes: u64,
    /// The physical object.
    pub object: u64,
    /// Where the host finds the object's first byte.
    pub base: u64,
    /// What made it.
    pub kind: Kind,
    /// The device that owns the memory.
    pub device: u32,
    /// The context that it was allocated in; 0 for VMM mappings.
    pub context: u64,
    /// Devices that may read, a bit each.
    pub readers: u64,
    /// Devices that may write, a bit each.
    pub writers: u64,
    /// The flags of a host allocation or registration.
    pub flags: u32,
    /// A number that no other mapping ever has.
    pub buffer: u64,
    /// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
    pub sync_memops: bool,
}

impl Mapping {
    /// One past the last address.
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }

    /// Whether the memory is the host's.
    pub fn is_host(&self) -> bool {
        matches!(self.kind, Kind::Pinned | Kind::Registered)
    }
}

/// Who touches memory.
#[derive(Clone, Copy, Debug)]
pub struct Actor {
    /// The device that runs the work.
    pub device: u32,
    /// The context of its stream.
    pub context: u64,
    /// A copy or fill engine may also use what the owner of the memory may use; a kernel may not.
    pub engine: bool,
}

/// Why an access is illegal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The first address that is not legal.
    pub address: u64,
    /// What is wrong with it.
    pub reason: Reason,
}

/// The kinds of [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nothing is mapped there.
    Unmapped,
    /// Something is mapped, which this device may not touch so.
    NoAccess,
    /// The work was wrong before it began.
    Poisoned,
}

/// All mappings of a process.
#[derive(Debug, Default)]
pub struct Table {
    maps: BTreeMap<u64, Mapping>,
    peers: HashSet<(u64, u64)>,
    blocks: BTreeMap<u64, Block>,
}

impl Table {
    /// Enters a mapping. The caller has checked that the range is free.
    pub fn insert(&mut self, mapping: Mapping) {
        debug_assert!(!self.overlaps(mapping.start, mapping.bytes));
        self.maps.insert(mapping.start, mapping);
    }

    /// Takes the mapping that starts at `start` out.
    pub fn remove(&mut self, start: u64) -> Option<Mapping> {
        self.maps.remove(&start)
    }

    /// The mapping that holds `address`.
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        self.maps.range(..=address).next_back().map(|(_, m)| m).filter(|m| address < m.end())
    }

    /// The same, to change it.
    pub fn find_mut(&mut self, address: u64) -> Option<&mut Mapping> {
        self.maps.range_mut(..=address).next_back().map(|(_, m)| m).filter(|m| address < m.end())
    }

    /// Enters an allocation of a pool.
    pub fn insert_block(&mut self, block: Block) {
        self.blocks.insert(block.start, block);
    }

    /// Takes the allocation that starts at `start` out.
    pub fn remove_block(&mut self, start: u64) -> Option<Block> {
        self.blocks.remove(&start)
    }

    /// The allocation of a pool that holds `address`.
    pub fn block(&self, address: u64) -> Option<&Block> {
        self.blocks.range(..=address).next_back().map(|(_, b)| b).filter(|b| address < b.end())
    }

    /// How many allocations of pools there are.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Whether anything is mapped in the range.
    pub fn overlaps(&self, start: u64, bytes: u64) -> bool {
        self.maps
            .range(..start.saturating_add(bytes))
            .next_back()
            .is_some_and(|(_, m)| m.end() > start)
    }

    /// The mappings that make up `[start, start + bytes)` exactly, without a gap and none cut;
    /// `None` otherwise.
    pub fn exactly(&self, start: u64, bytes: u64) -> Option<Vec<u64>> {
        let end = start.checked_add(bytes)?;
        let mut at = start;
        let mut starts = Vec::new();
        while at < end {
            let mapping = self.maps.get(&at)?;
            starts.push(at);
            at = mapping.end();
        }
        (at == end && bytes > 0).then_some(starts)
    }

    /// All mappings, by address.
    pub fn iter(&self) -> impl Iterator<Item = &Mapping> {
        self.maps.values()
    }

    /// Lets kernels of context `from` use the allocations of context `to`; false if they already
    /// may.
    pub fn enable_peer(&mut self, from: u64, to: u64) -> bool {
        self.peers.insert((from, to))
    }

    /// Takes it back; false if it was not so.
    pub fn disable_peer(&mut self, from: u64, to: u64) -> bool {
        self.peers.remove(&(from, to))
    }

    /// Forgets what was said of a context.
    pub fn forget_context(&mut self, context: u64) {
        self.peers.retain(|&(from, to)| from != context && to != context);
    }

    /// Whether `actor` may touch `mapping`.
    pub fn permits(&self, mapping: &Mapping, actor: Actor, write: bool) -> bool {
        let allowed = if write { mapping.writers } else { mapping.readers };
        let has = |device: u32| allowed >> device & 1 == 1;
        has(actor.device)
            || actor.engine && has(mapping.device)
            || mapping.context != 0 && self.peers.contains(&(actor.context, mapping.context))
    }

    /// Visits the pieces of an access in order: mapping, offset in its object, length.
    pub fn walk<'a>(
        &'a self,
        actor: Actor,
        address: u64,
        bytes: u64,
        write: bool,
        mut each: impl FnMut(&'a Mapping, u64, u64),
    ) -> Result<(), Fault> {
        let end = address.saturating_add(bytes);
        let mut at = address;
        while at < end {
            let fault = |reason| Fault { address: at, reason };
            let mapping = self.find(at).ok_or(fault(Reason::Unmapped))?;
            if !self.permits(mapping, actor, write) {
                return Err(fault(Reason::NoAccess));
            }
            // One use stays in one allocation of a pool, whatever lies next to it.
            let limit = match mapping.kind {
                Kind::Pool => {
                    let block = self.block(at).filter(|b| b.start <= address);
                    block.ok_or(fault(Reason::Unmapped))?.end()
                }
                _ => mapping.end(),
            };
            let to = end.min(limit);
            each(mapping, at - mapping.start, to - at);
            at = to;
        }
        Ok(())
    }
}
