#![forbid(unsafe_code)]
//! The books of one device: what a hit needs, under one lock that no driver call is made under.
//!
//! The counters are kept beside the heaps' own sums, and must agree with them:
//! `stats.allocated == sum of heap.allocated`, `stats.active == sum of heap.active`, and
//! `stats.reserved == sum of heap.reserved + unmapped + quarantined outside the heaps` whenever no
//! miss is under way.

use std::collections::HashSet;

use super::decay::Decay;
use super::fence::Fence;
use super::peers::Peers;
use super::pools::{PoolName, Pools};
use crate::error::Error;
use crate::graphs::Graphs;
use crate::hash::ByNumber;
use crate::heap::{Block, FreeError, Heap, Request, Standing};
use crate::limbo::Limbo;
use crate::mutants::mutant;
use crate::stats::cuddy_stats;
use crate::streams::{Home, Streams};
use crate::types::{Address, DeviceId, PoolId, Stamp, StreamSlot};

/// All that is known about a device without asking its driver.
pub(super) struct Books {
    pub pools: Pools,
    pub graphs: Graphs,
    pub streams: Streams<Fence>,
    pub limbo: Limbo,
    pub stats: cuddy_stats,
    /// The device's own (primary) context.
    pub home: Home,
    /// How often the device was reset under us.
    pub generation: u64,
    /// Blocks that a reset took away while they were live.
    pub lost: HashSet<u64, ByNumber>,
    /// The part of `stats.quarantined` that no heap does not count as reserved.
    pub quarantined_outside: u64,
    /// Streams of our own that wait for callers' events.
    pub helpers: Vec<StreamSlot>,
    /// Blocks have been handed out that are anybody's.
    pub any_in_use: bool,
    /// The devices that may use this one's memory.
    pub peers: Peers,
    /// Where the device stands in its window of decay.
    pub decay: Decay,
    /// Threads that have a tally of this device.
    pub tallies: u32,
    /// What was reserved when observers were told last.
    pub reserved_told: u64,
}

impl Books {
    /// The books of a device that has no memory yet; a page, or what stands for one, is so large.
    pub(super) fn new(page: u64, home: Home) -> Result<Self, Error> {
        Ok(Self {
            pools: Pools::new(Heap::new(page)?)?,
            graphs: Default::default(),
            streams: Streams::new(home)?,
            limbo: Limbo::default(),
            stats: cuddy_stats::NONE,
            home,
            generation: 0,
            lost: Default::default(),
            quarantined_outside: 0,
            helpers: Vec::new(),
            any_in_use: false,
            peers: Default::default(),
            decay: Default::default(),
            tallies: 0,
            reserved_told: 0,
        })
    }

    /// A block from a pool's cache.
    #[inline]
    pub(super) fn take(&mut self, pool: PoolId, request: &Request) -> Result<Option<Block>, Error> {
        let found = self.pools[pool].heap.take(request)?;
        if let Some(block) = &found {
            self.serve(pool, block);
        }
        Ok(found)
    }

    /// Counts a block that is handed out.
    #[inline]
    pub(super) fn serve(&mut self, pool: PoolId, block: &Block) {
        self.stats.served(block.bytes, block.requested);
        self.pools.served(pool, block);
        if !self.lost.is_empty() {
            self.lost.remove(&block.address.0);
        }
    }

    /// Counts a request that the cache served.
    #[inline]
    pub(super) fn hit(&mut self, pool: PoolId) {
        self.stats.hit_count += 1;
        if pool != PoolId::DEFAULT {
            self.pools[pool].stats.hit_count += 1;
        }
    }

    /// The pool that serves an address; see [`Pools::serving`].
    #[inline]
    pub(super) fn serving(&self, address: Address, hint: PoolId) -> Result<PoolId, Error> {
        self.pools.serving(address, hint).ok_or(Error::ForeignPointer(address))
    }

    /// Frees a block that only its own stream used.
    #[inline]
    pub(super) fn release(
        &mut self,
        device: DeviceId,
        pool: PoolId,
        address: Address,
    ) -> Result<(), Error> {
        let Self { pools, streams, stats, .. } = self;
        match pools[pool].heap.release(address, |slot| streams.epoch(slot)) {
            Ok(block) => {
                stats.freed(block.bytes, block.requested);
                pools.freed(pool, &block, true);
                Ok(())
            }
            Err(error) => Err(self.explain(device, address, error)),
        }
    }

    /// Frees a block that other streams use too. The fences that it now waits for are in `begun`;
    /// they are to be recorded once the books are closed.
    pub(super) fn release_to_limbo(
        &mut self,
        device: DeviceId,
        pool: PoolId,
        address: Address,
        begun: &mut Vec<Stamp>,
    ) -> Result<(), Error> {
        let Self { pools, streams, limbo, stats, .. } = self;
        match pools[pool].heap.release_to_limbo(address, |slot| streams.epoch(slot)) {
            Ok(block) => {
                stats.freed_to_limbo(block.bytes, block.requested);
                pools.freed(pool, &block, false);
                limbo.hold((pool, address), block.bytes, |slot| {
                    let stamp = streams.begin_fence(slot);
                    // Without room the fence is recorded later, when somebody wants the block.
                    if begun.try_reserve(1).is_ok() {
                        begun.push(stamp);
                    }
                    stamp
                });
                Ok(())
            }
            Err(error) => Err(self.explain(device, address, error)),
        }
    }

    /// Makes every block in limbo whose users have finished free again; how many those were.
    pub(super) fn settle(&mut self) -> usize {
        self.end_captures();
        let Self { pools, streams, limbo, stats, .. } = self;
        limbo.settle(
            |stamp| streams.passed(stamp),
            |pool, address| {
                if let Ok(block) = pools[pool].heap.settle(address)
                    && !mutant("device-counter-skipped")
                {
                    stats.settled(block.bytes);
                    if pool != PoolId::DEFAULT {
                        pools[pool].stats.settled(block.bytes);
                    }
                }
            },
        )
    }

    /// The error for an address that cannot be freed.
    fn explain(&self, device: DeviceId, address: Address, error: FreeError) -> Error {
        match error {
            _ if self.lost.contains(&address.0) => Error::DeviceReset(device.0),
            FreeError::AlreadyFree => Error::DoubleFree(address),
            FreeError::Interior { start } => Error::InteriorPointer { pointer: address, start },
            FreeError::Foreign => Error::ForeignPointer(address),
        }
    }

    /// The live block that `address` lies in, or why there is none.
    pub(super) fn live(
        &self,
        device: DeviceId,
        pool: PoolId,
        address: Address,
    ) -> Result<Block, Error> {
        let heap = &self.pools[pool].heap;
        if let Some(block) = heap.find(address) {
            return Ok(block);
        }
        let error = match heap.classify(address) {
            Standing::Live(block) | Standing::LiveInterior(block) => return Ok(block),
            Standing::Foreign => FreeError::Foreign,
            Standing::Limbo(_) | Standing::Free | Standing::Gap | Standing::Claimed => {
                FreeError::AlreadyFree
            }
        };
        Err(self.explain(device, address, error))
    }

    /// A list of pools, while the pools are changed.
    pub(super) fn some_pools(
        &self,
        pools: impl Iterator<Item = PoolId>,
    ) -> Result<Vec<PoolId>, Error> {
        let mut list = Vec::new();
        for pool in pools {
            list.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
            list.push(pool);
        }
        Ok(list)
    }

    /// The name's pool, kept from going away until [`Books::unpin`].
    pub(super) fn pin(&mut self, device: DeviceId, name: PoolName) -> Result<PoolId, Error> {
        let id = self.pools.open(device, name)?;
        self.pools[id].users += 1;
        Ok(id)
    }

    /// Ends what [`Books::pin`] began.
    pub(super) fn unpin(&mut self, id: PoolId) {
        self.pools[id].users -= 1;
    }

    /// What may still be got from the driver within the limit, in bytes.
    pub(super) fn room(&self) -> u64 {
        match mutant("device-limit-ignored") {
            true => u64::MAX,
            false => self.stats.limit.saturating_sub(self.stats.reserved),
        }
    }

    /// Proves that the counters agree with the heaps. For moments when no miss is under way.
    #[cfg(debug_assertions)]
    pub(super) fn check(&self) {
        let figures = self.pools.figures();
        let stats = &self.stats;
        assert_eq!(stats.requested, figures.requested, "requested");
        assert_eq!(stats.allocated, figures.allocated, "allocated");
        assert_eq!(stats.active, figures.active, "active");
        assert_eq!(stats.live_block_count, figures.live_blocks, "live blocks");
        assert_eq!(stats.limbo_block_count, figures.limbo_blocks, "blocks in limbo");
        assert_eq!(stats.limbo_block_count, self.limbo.len() as u64, "waiting blocks");
        for (id, pool) in self.pools.each().filter(|(id, _)| *id != PoolId::DEFAULT) {
            let (own, figures) = (&pool.stats, pool.heap.figures());
            assert_eq!(own.requested, figures.requested, "requested in {id:?}");
            assert_eq!(own.allocated, figures.allocated, "allocated in {id:?}");
            assert_eq!(own.active, figures.active, "active in {id:?}");
            assert_eq!(own.reserved, figures.reserved, "reserved in {id:?}");
            assert_eq!(own.limbo_block_count, figures.limbo_blocks, "limbo in {id:?}");
        }
        let kept = figures.reserved + stats.unmapped + self.quarantined_outside;
        assert_eq!(stats.reserved, kept, "reserved");
    }
}
