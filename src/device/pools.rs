#![forbid(unsafe_code)]
//! The pools of one device: each an isolated set of ranges and segments, with its own heap.
//!
//! Streams, fences and limbo are the device's, and so are pages without an address: what one pool
//! unmaps another may map. `device.reserved == sum over the pools of heap.reserved + unmapped +
//! quarantined outside`.

use std::ops::{Index, IndexMut};

use crate::error::Error;
use crate::heap::{Figures, Heap};
use crate::types::{Address, PoolId};

/// One pool.
pub(super) struct Pool {
    pub heap: Heap,
}

/// A piece of a pool's memory that a miss or a trim has claimed, to unmap it or to give it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claimed {
    pub pool: PoolId,
    pub run: crate::heap::PageRun,
}

/// All pools of a device; the default one is always there.
pub(super) struct Pools {
    pools: Vec<Option<Pool>>,
}

impl Pools {
    /// The default pool alone, with this heap.
    pub(super) fn new(heap: Heap) -> Result<Self, Error> {
        let mut pools = Vec::new();
        pools.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
        pools.push(Some(Pool { heap }));
        Ok(Self { pools })
    }

    /// Every pool that there is, the default one first.
    pub(super) fn each(&self) -> impl Iterator<Item = (PoolId, &Pool)> {
        (0..).map(PoolId).zip(&self.pools).filter_map(|(id, pool)| Some((id, pool.as_ref()?)))
    }

    /// The same, to be changed.
    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = (PoolId, &mut Pool)> {
        (0..).map(PoolId).zip(&mut self.pools).filter_map(|(id, pool)| Some((id, pool.as_mut()?)))
    }

    /// The pools whose free memory may be taken back for a request to `pool`, in the order in which
    /// they are asked: its own first.
    pub(super) fn givers(&self, pool: PoolId) -> impl Iterator<Item = PoolId> {
        std::iter::once(pool)
    }

    /// The pool that has the address among its own, `hint` asked first; `hint` if none has.
    #[inline]
    pub(super) fn serving(&self, address: Address, hint: PoolId) -> PoolId {
        let _ = address;
        hint
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
}

/// For ids of pools that are there: nobody keeps one without keeping the pool.
impl Index<PoolId> for Pools {
    type Output = Pool;
    #[inline]
    fn index(&self, id: PoolId) -> &Pool {
        self.pools[id.0 as usize].as_ref().expect("whoever has a pool's id keeps the pool")
    }
}

impl IndexMut<PoolId> for Pools {
    #[inline]
    fn index_mut(&mut self, id: PoolId) -> &mut Pool {
        self.pools[id.0 as usize].as_mut().expect("whoever has a pool's id keeps the pool")
    }
}
