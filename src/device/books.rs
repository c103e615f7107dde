#![forbid(unsafe_code)]
//! The books of one device: what a hit needs, under one lock that no driver call is made under.
//!
//! The counters are kept beside the heap's own sums, and must agree with them:
//! `stats.allocated == heap.allocated`, `stats.active == heap.active`, and
//! `stats.reserved == heap.reserved + unmapped + quarantined outside the heap` whenever no miss is
//! under way.

use std::collections::HashSet;

use super::fence::Fence;
use crate::error::Error;
use crate::hash::ByNumber;
use crate::heap::{Block, FreeError, Heap, Request, Standing};
use crate::limbo::Limbo;
use crate::mutants::mutant;
use crate::stats::cuddy_stats;
use crate::streams::{Home, Streams};
use crate::types::{Address, DeviceId, Stamp, StreamSlot};

/// All that is known about a device without asking its driver.
pub(super) struct Books {
    pub heap: Heap,
    pub streams: Streams<Fence>,
    pub limbo: Limbo,
    pub stats: cuddy_stats,
    /// The device's own (primary) context.
    pub home: Home,
    /// How often the device was reset under us.
    pub generation: u64,
    /// Blocks that a reset took away while they were live.
    pub lost: HashSet<u64, ByNumber>,
    /// The part of `stats.quarantined` that the heap does not count as reserved.
    pub quarantined_outside: u64,
    /// Threads that have a tally of this device.
    pub tallies: u32,
}

impl Books {
    /// A block from the cache.
    #[inline]
    pub(super) fn take(&mut self, request: &Request) -> Result<Option<Block>, Error> {
        let found = self.heap.take(request)?;
        if let Some(block) = &found {
            self.serve(block);
        }
        Ok(found)
    }

    /// Counts a block that is handed out.
    #[inline]
    pub(super) fn serve(&mut self, block: &Block) {
        self.stats.served(block.bytes, block.requested);
        if !self.lost.is_empty() {
            self.lost.remove(&block.address.0);
        }
    }

    /// Frees a block that only its own stream used.
    #[inline]
    pub(super) fn release(&mut self, device: DeviceId, address: Address) -> Result<(), Error> {
        let Self { heap, streams, stats, .. } = self;
        match heap.release(address, |slot| streams.epoch(slot)) {
            Ok(block) => {
                stats.freed(block.bytes, block.requested);
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
        address: Address,
        begun: &mut Vec<Stamp>,
    ) -> Result<(), Error> {
        let Self { heap, streams, limbo, stats, .. } = self;
        match heap.release_to_limbo(address, |slot| streams.epoch(slot)) {
            Ok(block) => {
                stats.freed_to_limbo(block.bytes, block.requested);
                limbo.hold(address, block.bytes, |slot| {
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
        let Self { heap, streams, limbo, stats, .. } = self;
        limbo.settle(
            |stamp| streams.passed(stamp),
            |address| {
                if let Ok(block) = heap.settle(address)
                    && !mutant("device-counter-skipped")
                {
                    stats.settled(block.bytes);
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
    pub(super) fn live(&self, device: DeviceId, address: Address) -> Result<Block, Error> {
        if let Some(block) = self.heap.find(address) {
            return Ok(block);
        }
        let error = match self.heap.classify(address) {
            Standing::Live(block) | Standing::LiveInterior(block) => return Ok(block),
            Standing::Foreign => FreeError::Foreign,
            Standing::Limbo(_) | Standing::Free | Standing::Gap | Standing::Claimed => {
                FreeError::AlreadyFree
            }
        };
        Err(self.explain(device, address, error))
    }

    /// What may still be got from the driver within the limit, in bytes.
    pub(super) fn room(&self) -> u64 {
        match mutant("device-limit-ignored") {
            true => u64::MAX,
            false => self.stats.limit.saturating_sub(self.stats.reserved),
        }
    }

    /// The slots that have at least a page (or a segment) free, `first` in front.
    pub(super) fn slots_with_free(
        &self,
        first: StreamSlot,
        bytes: u64,
    ) -> Result<Vec<StreamSlot>, Error> {
        let mut slots = Vec::new();
        slots.try_reserve(self.streams.len() + 1).map_err(|_| Error::HostOutOfMemory)?;
        let others = (0..self.streams.len() as u32).map(StreamSlot).filter(|slot| *slot != first);
        let all = std::iter::once(first).chain(others);
        slots.extend(all.filter(|slot| self.heap.largest_free(*slot) >= bytes));
        Ok(slots)
    }

    /// Proves that the counters agree with the heap. For moments when no miss is under way.
    #[cfg(debug_assertions)]
    pub(super) fn check(&self) {
        let figures = self.heap.figures();
        let stats = &self.stats;
        assert_eq!(stats.requested, figures.requested, "requested");
        assert_eq!(stats.allocated, figures.allocated, "allocated");
        assert_eq!(stats.active, figures.active, "active");
        assert_eq!(stats.live_block_count, figures.live_blocks, "live blocks");
        assert_eq!(stats.limbo_block_count, figures.limbo_blocks, "blocks in limbo");
        assert_eq!(stats.limbo_block_count, self.limbo.len() as u64, "waiting blocks");
        let kept = figures.reserved + stats.unmapped + self.quarantined_outside;
        assert_eq!(stats.reserved, kept, "reserved");
    }
}
