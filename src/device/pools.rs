#![forbid(unsafe_code)]
//! The pools of one device: each an isolated set of ranges and segments, with its own heap, figures
//! and limit.
//!
//! Streams, fences and limbo are the device's, and so are pages without an address: what one pool
//! unmaps another may map. `device.reserved == sum over the pools of heap.reserved + unmapped +
//! quarantined outside`. A pool that was destroyed goes on for as long as it has blocks; its number
//! is given to another only after its last byte has gone back.

use std::ops::{Index, IndexMut};

use super::pool::{Pool, PoolTerms};
use crate::error::{Error, sentence};
use crate::heap::{Block, Figures, Heap, PageRun};
use crate::mutants::mutant;
use crate::owners::MOST_POOLS;
use crate::types::{Address, DeviceId, PoolId};

/// A pool as its holders name it: its number, and which of those that ever had that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolName {
    pub id: PoolId,
    pub generation: u32,
}

impl PoolName {
    /// The default pool, of which there is only ever one.
    pub(crate) const DEFAULT: Self = Self { id: PoolId::DEFAULT, generation: 0 };
}

/// A piece of a pool's memory that a miss or a trim has claimed, to unmap it or to give it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claimed {
    pub pool: PoolId,
    pub run: PageRun,
}

/// A number for a pool, taken or not.
#[derive(Default)]
struct Place {
    generation: u32,
    pool: Option<Pool>,
}

/// All pools of a device; the default one is always there.
pub(super) struct Pools {
    places: Vec<Place>,
    /// How many there are.
    count: usize,
}

impl Pools {
    /// The default pool alone, with this heap.
    pub(super) fn new(heap: Heap) -> Result<Self, Error> {
        let mut places = Vec::new();
        places.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
        let terms = PoolTerms { limit: u64::MAX, use_on_oom: false };
        places.push(Place { generation: 0, pool: Some(Pool::new(heap, terms)) });
        Ok(Self { places, count: 1 })
    }

    /// Makes a private pool.
    pub(super) fn add(&mut self, heap: Heap, terms: PoolTerms) -> Result<PoolName, Error> {
        let vacant = self.places.iter().position(|place| place.pool.is_none());
        let at = match vacant {
            Some(at) => at,
            None if self.places.len() < MOST_POOLS => {
                self.places.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
                self.places.push(Place::default());
                self.places.len() - 1
            }
            None => {
                return Err(Error::NotSupported(sentence!(
                    "a device has at most {MOST_POOLS} pools at once: destroy those that are not \
                     needed, and free their blocks"
                )));
            }
        };
        let place = &mut self.places[at];
        place.generation = place.generation.wrapping_add(1).max(1);
        place.pool = Some(Pool::new(heap, terms));
        self.count += 1;
        Ok(PoolName { id: PoolId(at as u32), generation: place.generation })
    }

    /// Takes a pool out whose memory is gone.
    pub(super) fn remove(&mut self, id: PoolId) {
        if id != PoolId::DEFAULT && self.places[id.0 as usize].pool.take().is_some() {
            self.count -= 1;
        }
    }

    /// The pool of this number, if there is one.
    #[inline]
    pub(super) fn get(&self, id: PoolId) -> Option<&Pool> {
        self.places.get(id.0 as usize)?.pool.as_ref()
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, id: PoolId) -> Option<&mut Pool> {
        self.places.get_mut(id.0 as usize)?.pool.as_mut()
    }

    /// The pool of this name, if it is there and not destroyed.
    #[inline]
    pub(super) fn open(&self, device: DeviceId, name: PoolName) -> Result<PoolId, Error> {
        match self.places.get(name.id.0 as usize) {
            Some(Place { generation, pool: Some(pool) })
                if *generation == name.generation
                    && (!pool.destroyed || mutant("pool-serves-when-destroyed")) =>
            {
                Ok(name.id)
            }
            _ => Err(self.not_open(device, name)),
        }
    }

    /// Why a name names no pool.
    #[cold]
    fn not_open(&self, device: DeviceId, name: PoolName) -> Error {
        let known = self.places.get(name.id.0 as usize);
        let ever = known.is_some_and(|place| place.generation >= name.generation);
        Error::InvalidPool(match ever && name.generation > 0 {
            true => sentence!("this pool of device {} was destroyed", device.0),
            false => sentence!("device {} never had a pool of this number", device.0),
        })
    }

    /// Every pool that there is, the default one first.
    pub(super) fn each(&self) -> impl Iterator<Item = (PoolId, &Pool)> {
        let pools = self.places.iter().map(|place| place.pool.as_ref());
        (0..).map(PoolId).zip(pools).filter_map(|(id, pool)| Some((id, pool?)))
    }

    /// The same, to be changed.
    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = (PoolId, &mut Pool)> {
        let pools = self.places.iter_mut().map(|place| place.pool.as_mut());
        (0..).map(PoolId).zip(pools).filter_map(|(id, pool)| Some((id, pool?)))
    }

    /// The pools whose free memory may be taken back for a request to `pool`, in the order in which
    /// they are asked: its own, those that nobody holds, then for a private pool the default one,
    /// and for the default one those that were made for it.
    pub(super) fn givers(&self, pool: PoolId) -> impl Iterator<Item = PoolId> {
        let own = self.get(pool).filter(|own| !own.is_graphs()).map(|_| pool);
        let default = Some(PoolId::DEFAULT).filter(|default| *default != pool);
        let others = move |giver: bool| {
            let fits = move |(id, other): &(PoolId, &Pool)| {
                *id != pool && other.destroyed == giver && other.gives(pool == PoolId::DEFAULT)
            };
            self.each().filter(fits).map(|(id, _)| id)
        };
        own.into_iter().chain(others(true)).chain(default).chain(others(false))
    }

    /// The pools whose free memory goes back when a device's cache is emptied: all but those that
    /// graphs own.
    pub(super) fn trimmable(&self) -> impl Iterator<Item = PoolId> {
        self.each().filter(|(_, pool)| !pool.is_graphs()).map(|(id, _)| id)
    }

    /// The private pools that the default one may be served from before it fails.
    pub(super) fn lenders(&self) -> impl Iterator<Item = PoolId> {
        let lends = |pool: &Pool| !pool.destroyed && pool.gives(true);
        self.each().filter(move |(_, pool)| lends(pool)).map(|(id, _)| id)
    }

    /// The pool that serves the address: of those that can share a cell of the owners' table, the
    /// one that has it; `hint` is that cell's. `None` if there is no such pool any more.
    #[inline]
    pub(super) fn serving(&self, address: Address, hint: PoolId) -> Option<PoolId> {
        if self.count == 1 && hint == PoolId::DEFAULT {
            return Some(hint);
        }
        self.search(address, hint)
    }

    fn search(&self, address: Address, hint: PoolId) -> Option<PoolId> {
        let has = |id: PoolId| self.get(id).is_some_and(|pool| pool.heap.find(address).is_some());
        if has(hint) {
            return Some(hint);
        }
        let live = self.each().map(|(id, _)| id).find(|&id| has(id));
        // No live block: whoever has the address at all says what it is.
        let owning = || self.each().find(|(_, pool)| pool.heap.covers(address)).map(|(id, _)| id);
        live.or_else(owning).or_else(|| self.get(hint).map(|_| hint))
    }

    /// The largest free block of any pool and stream.
    pub(super) fn largest_free(&self) -> u64 {
        self.each().map(|(_, pool)| pool.heap.largest_free_of_any()).max().unwrap_or(0)
    }

    /// The sums over all blocks of all pools.
    pub(super) fn figures(&self) -> Figures {
        let add = |sum: Figures, figures: Figures| Figures {
            requested: sum.requested + figures.requested,
            allocated: sum.allocated + figures.allocated,
            active: sum.active + figures.active,
            reserved: sum.reserved + figures.reserved,
            free: sum.free + figures.free,
            gap: sum.gap + figures.gap,
            claimed_mapped: sum.claimed_mapped + figures.claimed_mapped,
            claimed_unmapped: sum.claimed_unmapped + figures.claimed_unmapped,
            releasable: sum.releasable + figures.releasable,
            live_blocks: sum.live_blocks + figures.live_blocks,
            limbo_blocks: sum.limbo_blocks + figures.limbo_blocks,
            free_blocks: sum.free_blocks + figures.free_blocks,
            borders: sum.borders + figures.borders,
            gaps: sum.gaps + figures.gaps,
            segments: sum.segments + figures.segments,
        };
        self.each().map(|(_, pool)| pool.heap.figures()).fold(Figures::default(), add)
    }

    /// Counts a block that a pool hands out.
    #[inline]
    pub(super) fn served(&mut self, id: PoolId, block: &Block) {
        if id != PoolId::DEFAULT {
            self[id].stats.served(block.bytes, block.requested);
        }
    }

    /// Counts a block that a pool gets back, to be used again at once or later.
    #[inline]
    pub(super) fn freed(&mut self, id: PoolId, block: &Block, at_once: bool) {
        if id != PoolId::DEFAULT {
            let stats = &mut self[id].stats;
            stats.freed_to_limbo(block.bytes, block.requested);
            if at_once {
                stats.settled(block.bytes);
            }
        }
    }

    /// Counts memory that was mapped into a pool.
    pub(super) fn grew(&mut self, id: PoolId, bytes: u64) {
        if id != PoolId::DEFAULT {
            self[id].stats.grew(bytes);
        }
    }

    /// Counts memory that was unmapped from a pool.
    pub(super) fn shrank(&mut self, id: PoolId, bytes: u64) {
        if id != PoolId::DEFAULT {
            self[id].stats.shrank(bytes);
        }
    }
}

/// For numbers of pools that are there: nobody keeps one without keeping the pool.
impl Index<PoolId> for Pools {
    type Output = Pool;
    #[inline]
    fn index(&self, id: PoolId) -> &Pool {
        self.places[id.0 as usize].pool.as_ref().expect("whoever has its number keeps the pool")
    }
}

impl IndexMut<PoolId> for Pools {
    #[inline]
    fn index_mut(&mut self, id: PoolId) -> &mut Pool {
        self.places[id.0 as usize].pool.as_mut().expect("whoever has its number keeps the pool")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: DeviceId = DeviceId(0);
    const PAGE: u64 = 2 << 20;
    const PLAIN: PoolTerms = PoolTerms { limit: u64::MAX, use_on_oom: false };
    const LENDING: PoolTerms = PoolTerms { limit: u64::MAX, use_on_oom: true };

    fn heap() -> Heap {
        Heap::new(PAGE).expect("a page")
    }

    fn pools() -> Pools {
        Pools::new(heap()).expect("host memory")
    }

    fn givers(pools: &Pools, to: PoolId) -> Vec<u32> {
        pools.givers(to).map(|id| id.0).collect()
    }

    #[test]
    fn a_number_that_is_used_again_is_another_pool() {
        let mut pools = pools();
        let first = pools.add(heap(), PLAIN).expect("room");
        assert_eq!(pools.open(DEVICE, first), Ok(first.id));
        pools[first.id].destroyed = true;
        assert!(pools.open(DEVICE, first).is_err());
        assert!(pools[first.id].is_over());
        pools.remove(first.id);
        let second = pools.add(heap(), PLAIN).expect("room");
        assert_eq!(first.id, second.id);
        let refused = pools.open(DEVICE, first).expect_err("it was destroyed").to_string();
        assert!(refused.contains("was destroyed"), "{refused}");
        assert_eq!(pools.open(DEVICE, second), Ok(second.id));
        let never = PoolName { id: PoolId(9), generation: 1 };
        let refused = pools.open(DEVICE, never).expect_err("it never was").to_string();
        assert!(refused.contains("never had"), "{refused}");
        assert_eq!(pools.open(DEVICE, PoolName::DEFAULT), Ok(PoolId::DEFAULT));
    }

    #[test]
    fn who_gives_to_whom() {
        let mut pools = pools();
        let plain = pools.add(heap(), PLAIN).expect("room").id;
        let lending = pools.add(heap(), LENDING).expect("room").id;
        let left = pools.add(heap(), PLAIN).expect("room").id;
        let graph = pools.add(heap(), LENDING).expect("room").id;
        pools[left].destroyed = true;
        pools[graph].graphs = 1;
        assert_eq!((plain.0, lending.0, left.0, graph.0), (1, 2, 3, 4));
        assert_eq!(givers(&pools, PoolId::DEFAULT), [0, 3, 2]);
        assert_eq!(givers(&pools, plain), [1, 3, 0]);
        assert_eq!(givers(&pools, graph), [3, 0]);
        assert_eq!(pools.lenders().collect::<Vec<_>>(), [lending]);
        assert_eq!(pools.trimmable().map(|id| id.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn an_address_is_found_where_segments_share_a_cell() {
        let mut pools = pools();
        let other = pools.add(heap(), PLAIN).expect("room").id;
        let stamp = crate::types::Stamp { stream: crate::types::StreamSlot(0), epoch: 0 };
        let request = crate::heap::Request { bytes: 512, requested: 1, alignment: 512, stamp };
        pools[PoolId::DEFAULT].heap.add_segment(Address(4096), 512, stamp).expect("room");
        pools[other].heap.add_segment(Address(8192), 512, stamp).expect("room");
        let block = pools[PoolId::DEFAULT].heap.take(&request).expect("memory").expect("free");
        assert_eq!(pools.serving(block.address, other), Some(PoolId::DEFAULT));
        // Freed: its pool still knows it, and can say so.
        pools[PoolId::DEFAULT].heap.release(block.address, |_| 1).expect("live");
        assert_eq!(pools.serving(block.address, other), Some(PoolId::DEFAULT));
        assert_eq!(pools.serving(Address(8192), PoolId::DEFAULT), Some(other));
        pools.remove(other);
        assert_eq!(pools.serving(Address(8192), other), None);
    }

    #[test]
    fn there_is_an_end_to_pools() {
        let mut pools = pools();
        let made = (1..MOST_POOLS).filter(|_| pools.add(heap(), PLAIN).is_ok()).count();
        assert_eq!(made, MOST_POOLS - 1);
        let refused = pools.add(heap(), PLAIN).expect_err("full").to_string();
        assert!(refused.contains("at most 512 pools"), "{refused}");
        pools.remove(PoolId(7));
        assert_eq!(pools.add(heap(), PLAIN).expect("room again").id, PoolId(7));
    }
}
