//! **Memory**: physical objects, the addresses that show them, and the budgets that they count
//! against.
//!
//! An object lives while it has a handle or a mapping; its bytes move with it wherever it is
//! mapped. Its number is never used again. Device addresses come from one reserved range that the
//! host cannot touch.

pub mod board;
pub mod budget;
pub mod extents;
pub mod graph;
pub mod history;
pub mod host;
pub mod ipc;
pub mod ipc_pool;
pub mod linear;
pub mod managed;
pub mod object;
pub mod pool;
pub mod table;
pub mod vmm;

use crate::slots::Slots;
use crate::types::{Code, PoolProperties, code};
use budget::Budget;
use extents::Extents;
use history::History;
use linear::{HostRange, Linear};
use object::{Home, Object};
use pool::{Mark, Pool};
use std::collections::{BTreeMap, HashMap};
use table::{Kind, Mapping, Table};

/// Addresses of `cuMemAlloc` are multiples of this, and sizes are rounded up to it.
pub const ALIGNMENT: u64 = 512;
const LARGE: u64 = 2 << 20;
const ADDRESSES: u64 = 16 << 40;
/// Valgrind has less than 2^36 for its client.
const LEAST_ADDRESSES: u64 = 1 << 33;

/// All memory of the simulated machine, as this process sees it.
#[derive(Debug)]
pub struct Memory {
    /// One a device.
    pub budgets: Vec<Budget>,
    /// The page table.
    pub table: Table,
    /// What was freed lately, and by whom.
    pub history: History,
    /// What is shared with other processes by handle.
    pub ipc: ipc::Ipc,
    /// Unit of VMM sizes and addresses.
    pub granularity: u64,
    linear: Linear,
    arena: HostRange,
    addresses: Extents,
    objects: HashMap<u64, Object>,
    handles: BTreeMap<u64, vmm::Handle>,
    reservations: BTreeMap<u64, u64>,
    /// The pool that each device's `cuMemAllocAsync` takes from, and its default pool.
    pub device_pools: Vec<DevicePools>,
    pools: Slots<Pool>,
    orphans: Vec<(u64, Mark)>,
    /// What allocation nodes of graphs give out.
    pub graphs: graph::GraphMemory,
    /// What is known of managed memory.
    pub managed: managed::Stretches,
    next: u64,
}

/// The pools of a device.
#[derive(Clone, Copy, Debug)]
pub struct DevicePools {
    /// The one that it always has.
    pub default: u64,
    /// The one that allocations without a pool come from.
    pub current: u64,
}

/// Where the values of pool handles lie.
const POOL_SLOTS: u64 = 9;

/// What died with the last reference to an object.
pub type Gone = Option<u64>;

impl Memory {
    /// Devices of the given sizes.
    pub fn new(totals: &[u64], granularity: u64) -> std::io::Result<Self> {
        let wish = totals.iter().fold(0u64, |sum, t| sum.saturating_add(*t)).saturating_mul(2);
        let arena = HostRange::reserve(ADDRESSES, LEAST_ADDRESSES)?;
        arena.keep_private();
        // Where addresses are scarce, as under valgrind, which also reads all of it at the end.
        let plenty = wish.clamp(1 << 40, 64 << 40);
        let room = match HostRange::reserve(plenty, plenty) {
            Ok(_) => plenty,
            Err(_) => wish.max(1 << 28),
        };
        let first = arena.start.next_multiple_of(granularity.max(LARGE));
        let mut new = Self {
            budgets: totals.iter().map(|&t| Budget::new(t)).collect(),
            table: Table::default(),
            history: History::default(),
            ipc: ipc::Ipc::default(),
            granularity,
            linear: Linear::new(room)?,
            addresses: Extents::new(first, arena.start + arena.bytes),
            arena,
            objects: HashMap::new(),
            handles: BTreeMap::new(),
            reservations: BTreeMap::new(),
            device_pools: Vec::new(),
            pools: Slots::new(POOL_SLOTS),
            orphans: Vec::new(),
            graphs: graph::GraphMemory::default(),
            managed: managed::Stretches::default(),
            next: 1,
        };
        for device in 0..totals.len() as u32 {
            let default = new.create_pool(device, PoolProperties::of_device(device));
            new.device_pools.push(DevicePools { default, current: default });
        }
        Ok(new)
    }

    /// No device, no address.
    pub fn empty() -> Self {
        Self {
            budgets: Vec::new(),
            table: Table::default(),
            history: History::default(),
            ipc: ipc::Ipc::default(),
            granularity: LARGE,
            linear: Linear::empty(),
            arena: HostRange { start: 0, bytes: 0 },
            addresses: Extents::default(),
            objects: HashMap::new(),
            handles: BTreeMap::new(),
            reservations: BTreeMap::new(),
            device_pools: Vec::new(),
            pools: Slots::new(POOL_SLOTS),
            orphans: Vec::new(),
            graphs: graph::GraphMemory::default(),
            managed: managed::Stretches::default(),
            next: 1,
        }
    }

    /// A number that was never given before.
    pub fn unique(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Whether `address` is one that only devices use.
    pub fn is_device_address(&self, address: u64) -> bool {
        self.arena.contains(address)
    }

    /// Those addresses: the first, and how many.
    pub fn device_addresses(&self) -> (u64, u64) {
        (self.arena.start, self.arena.bytes)
    }

    /// The object of this number.
    pub fn object(&self, id: u64) -> Option<&Object> {
        self.objects.get(&id)
    }

    /// Says that an object's bytes were written, so that they must be given back to the system.
    pub fn touched(&self, id: u64) {
        if let Some(object) = self.objects.get(&id) {
            object.touched.set(true);
        }
    }

    fn new_object(&mut self, device: u32, bytes: u64, home: Home, base: u64) -> &mut Object {
        let id = self.unique();
        self.objects.entry(id).or_insert(Object::new(id, device, bytes, home, base))
    }

    /// Memory that has one mapping from the start: its number, and that of the mapping's buffer.
    fn new_mapped(&mut self, device: u32, bytes: u64, home: Home, base: u64) -> (u64, u64) {
        let object = self.new_object(device, bytes, home, base);
        object.mappings = 1;
        (object.id, self.unique())
    }

    /// `cuMemAlloc`: memory and an address for it. Answers the address and the object.
    pub fn allocate(&mut self, device: u32, context: u64, bytes: u64) -> Result<(u64, u64), Code> {
        let rounded = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(code::OUT_OF_MEMORY)?;
        self.budgets[device as usize].check(rounded)?;
        let base = self.linear.take(rounded).ok_or(code::OUT_OF_MEMORY)?;
        let align = if rounded >= LARGE { LARGE } else { ALIGNMENT };
        let Some(start) = self.addresses.take(rounded, align) else {
            self.linear.give(base, rounded, false);
            return Err(code::OUT_OF_MEMORY);
        };
        self.budgets[device as usize].take(rounded);
        let (object, buffer) = self.new_mapped(device, rounded, Home::Linear, base);
        let bit = 1 << device;
        let mapping = Mapping {
            start,
            bytes,
            object,
            base,
            kind: Kind::Device,
            device,
            context,
            readers: bit,
            writers: bit,
            flags: 0,
            buffer,
            sync_memops: false,
        };
        self.table.insert(mapping);
        Ok((start, object))
    }

    /// `cuMemFree`, once nobody uses the memory any more.
    pub fn free(&mut self, start: u64) -> Gone {
        let mapping = self.table.remove(start)?;
        if self.is_device_address(start) {
            self.addresses.give(start, mapping.bytes.next_multiple_of(ALIGNMENT));
        }
        self.forget_advice(&mapping);
        self.drop_mapping(&mapping)
    }

    fn drop_mapping(&mut self, mapping: &Mapping) -> Gone {
        let object = self.objects.get_mut(&mapping.object)?;
        object.mappings -= 1;
        self.bury(mapping.object)
    }

    /// Ends an object that has neither handle nor mapping.
    fn bury(&mut self, id: u64) -> Gone {
        if !self.objects.get(&id)?.is_dead() {
            return None;
        }
        let object = self.objects.remove(&id)?;
        self.ipc.buried(id);
        if object.counted {
            self.budgets[object.device as usize].give(object.bytes);
        }
        if let Home::Linear = object.home {
            self.linear.give(object.base, object.bytes, object.touched.get());
        }
        Some(id)
    }

    /// The live objects of one kind, for leak checks; `None` for a name that this module does not
    /// know.
    pub fn count(&self, what: &str) -> Option<u64> {
        let of = |wanted: &[Kind]| self.table.iter().filter(|m| wanted.contains(&m.kind)).count();
        let count = match what {
            "handles" => self.handles.values().map(|h| h.references as usize).sum(),
            "reservations" => self.reservations.len(),
            "mappings" => of(&[Kind::Virtual]),
            "allocations" => of(&[Kind::Device]),
            "imports" => of(&[Kind::Imported]),
            "managed_allocations" => of(&[Kind::Managed]),
            "managed_stretches" => self.managed.count(),
            "host_allocations" => of(&[Kind::Pinned]),
            "host_allocation_bytes" => {
                self.table.iter().filter(|m| m.kind == Kind::Pinned).map(|m| m.bytes as usize).sum()
            }
            "host_registrations" => of(&[Kind::Registered]),
            "pool_allocations" => self.table.block_count(),
            "graph_allocations" => self.graphs.all.len(),
            "pools" => self.pools.count(),
            "objects" => self.objects.len(),
            _ => return None,
        };
        Some(count as u64)
    }

    /// The allocations and host memory that belong to a context, which is being destroyed.
    pub fn of_context(&self, context: u64) -> Vec<Mapping> {
        self.table.iter().filter(|m| m.context == context && context != 0).cloned().collect()
    }
}
