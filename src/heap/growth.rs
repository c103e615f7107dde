#![forbid(unsafe_code)]
//! Growth: where a request that missed goes, so that the fewest new pages are mapped for it.
//!
//! A *placement* covers part of one gap, and of the free blocks of the request's stream on both
//! sides of it. It costs the pages of the gap that it touches. Either all of the free block below
//! is used, or all of the one above, or neither: so of each gap the lowest and the highest position
//! suffice.
//!
//! The search does not visit all gaps. The lowest gap that is large enough alone comes from the
//! tree of gaps (which gathers the largest). A cheaper placement must use a free block beside a
//! gap; those are found in the stream's tree (which gathers `EDGE`) from the largest down: once the
//! largest has been tried, a block of t bytes saves at most 2 t. It ends when that saves no page,
//! or after `PATIENCE` blocks unless nothing within the caller's bound was found by then.

use super::slab::{EDGE, NIL, State, reserve};
use super::{Block, Growth, Heap, PATIENCE, PageRun, Request, check_request, tree};
use crate::error::Error;
use crate::size::{GRANULE, align_down, align_up};
use crate::types::{Address, Stamp};

/// A position for a block, at a gap.
#[derive(Clone, Copy, Debug)]
struct Placement {
    gap: u32,
    address: u64,
    new_bytes: u64,
}

impl Placement {
    /// Fewer new bytes win; of equals the lower address.
    fn better(self, other: Option<Self>) -> bool {
        other.is_none_or(|other| (self.new_bytes, self.address) < (other.new_bytes, other.address))
    }
}

/// A gap and what lies beside it for one stream.
struct Room {
    /// Where the free block below starts (or the gap).
    from: u64,
    gap_from: u64,
    gap_to: u64,
    /// Where the free block above ends (or the gap).
    to: u64,
}

impl Heap {
    /// A place for a request that `take` did not serve, claimed: the caller maps `maps` and
    /// commits, or aborts. `None` if no placement is found with at most `max_new_bytes` of new
    /// pages, and then none exists.
    ///
    /// Of the placements tried the one with the fewest new pages, of equals the lowest. It is the
    /// best of all if the stream has at most 64 free blocks beside gaps that could save a page.
    ///
    /// # Errors
    /// `InvalidArgument` for a request outside what [`Request`] says; `HostOutOfMemory`.
    pub fn claim_growth(
        &mut self,
        request: &Request,
        max_new_bytes: u64,
    ) -> Result<Option<Growth>, Error> {
        self.admit(request)?;
        let within = |place: &Placement| place.new_bytes <= max_new_bytes;
        let found = self.placement(request, PATIENCE).filter(within);
        let found = found.or_else(|| self.placement(request, usize::MAX).filter(within));
        let Some(place) = found else {
            return Ok(None);
        };
        self.slab.reserve(4, &mut self.ration)?;
        self.table.reserve(5, &self.slab, &mut self.ration)?;
        let mut maps = Vec::new();
        reserve(&mut maps, 1, &mut self.ration)?;
        let growth = self.claim_placement(request, place, maps);
        self.stepped();
        Ok(Some(growth))
    }

    /// The fewest bytes of new pages that any placement of the request needs; `None` if no
    /// addresses are left for it. Exact, and so linear in the free blocks beside gaps at worst.
    pub fn growth_needed(&self, request: &Request) -> Option<u64> {
        check_request(request).ok()?;
        self.placement(request, usize::MAX).map(|place| place.new_bytes)
    }

    /// The pages are mapped: the block is live, and what it leaves of them is free for its stream.
    /// Never needs memory.
    ///
    /// # Errors
    /// `Internal` if the growth is not of this heap; nothing was changed.
    pub fn commit_growth(&mut self, growth: Growth) -> Result<Block, Error> {
        let first = self.claimed_pieces(growth.claimed)?;
        let Block { address, bytes, requested, stream } = growth.block;
        let (start, end) = (address.0, address.0 + bytes);
        let mut block = self.table.find(&self.slab, start);
        if block == NIL {
            return Err(Error::Internal("a growth is not of this heap"));
        }
        let mut n = first;
        while n != NIL && self.slab[n].address < growth.claimed.address.0 + growth.claimed.bytes {
            let next = self.slab[n].next;
            if self.slab[n].state == State::ClaimedGap {
                self.slab[n].stream = stream.0;
                self.slab[n].epoch = growth.stamp.epoch;
            }
            self.unclaim(n);
            let at = self.slab[n].address;
            if at < start || at >= end {
                self.attach_free(n);
            } else if at == start {
                block = n;
            } else {
                self.fuse(block, n);
            }
            n = next;
        }
        self.slab[block].set_requested(requested);
        self.settle_as(block, State::Live);
        self.table.insert(&self.slab, block);
        self.stepped();
        Ok(growth.block)
    }

    /// The pages could not be mapped: everything is as it was before the claim, but for what others
    /// did meanwhile. Never needs memory.
    ///
    /// # Errors
    /// `Internal` if the growth is not of this heap; nothing was changed.
    pub fn abort_growth(&mut self, growth: Growth) -> Result<(), Error> {
        let first = self.claimed_pieces(growth.claimed)?;
        self.undo_growth(&growth, first, &[]);
        Ok(())
    }

    /// The pages could not be mapped, and these pages of the growth, which had been, could not be
    /// unmapped again: they become claimed pages of their own, to be unmapped later. All else is as
    /// [`Heap::abort_growth`] leaves it.
    ///
    /// # Errors
    /// `Internal` if the growth is not of this heap; `HostOutOfMemory`. Nothing was changed.
    pub fn abort_growth_but(&mut self, growth: &Growth, stuck: &[PageRun]) -> Result<(), Error> {
        let first = self.claimed_pieces(growth.claimed)?;
        self.slab.reserve(2 * stuck.len(), &mut self.ration)?;
        self.table.reserve(2 * stuck.len(), &self.slab, &mut self.ration)?;
        self.undo_growth(growth, first, stuck);
        Ok(())
    }

    /// Gives up the claim, whose first piece this is. Room for the stuck pages is reserved.
    fn undo_growth(&mut self, growth: &Growth, first: u32, stuck: &[PageRun]) {
        let mut n = first;
        let end = growth.claimed.address.0 + growth.claimed.bytes;
        while n != NIL && self.slab[n].address < end {
            let next = self.slab[n].next;
            let mapped = self.slab[n].state == State::ClaimedFree;
            self.unclaim(n);
            if mapped {
                self.attach_free(n);
            } else {
                self.part_with(n, stuck, growth.stamp);
            }
            n = next;
        }
        self.stepped();
    }

    /// Makes claimed pages of the stuck parts of a Loose block, and gaps of the rest. Room is reserved.
    fn part_with(&mut self, mut n: u32, stuck: &[PageRun], stamp: Stamp) {
        loop {
            let node = self.slab[n];
            let edges = stuck.iter().flat_map(|run| [run.address.0, run.address.0 + run.bytes]);
            let inside = edges.filter(|&at| node.address < at && at < node.end()).min();
            let upper = inside.map(|at| self.cut(n, at));
            let is_stuck =
                |run: &PageRun| (run.address.0..run.address.0 + run.bytes).contains(&node.address);
            if stuck.iter().any(is_stuck) {
                // Nobody has used it yet.
                (self.slab[n].stream, self.slab[n].epoch) = (stamp.stream.0, 0);
                self.settle_as(n, State::ClaimedFree);
                self.table.insert(&self.slab, n);
            } else {
                self.attach_gap(n);
            }
            match upper {
                Some(upper) => n = upper,
                None => break,
            }
        }
    }

    /// The first of the claimed blocks that tile `run`.
    fn claimed_pieces(&self, run: PageRun) -> Result<u32, Error> {
        let first = self.table.find(&self.slab, run.address.0);
        let (mut n, mut at) = (first, run.address.0);
        while n != NIL
            && at < run.address.0 + run.bytes
            && matches!(self.slab[n].state, State::ClaimedFree | State::ClaimedGap)
        {
            at = self.slab[n].end();
            n = self.slab[n].next;
        }
        let tiled = first != NIL && at == run.address.0 + run.bytes;
        tiled.then_some(first).ok_or(Error::Internal("a growth is not of this heap"))
    }

    /// The best placement found in at most `effort` free blocks beside gaps.
    fn placement(&self, request: &Request, effort: usize) -> Option<Placement> {
        let mut best = self.gap_alone(request).and_then(|gap| self.place_at(gap, request));
        let root = self.shares.root(request.stamp.stream.0);
        let (mut bytes, mut address) = (u64::MAX, u64::MAX);
        for _ in 0..effort {
            let n = tree::last_offering(&self.slab, root, EDGE, bytes, address);
            if n == NIL {
                break;
            }
            let node = &self.slab[n];
            (bytes, address) = (node.bytes, node.address);
            let least = request.bytes.saturating_sub(bytes.saturating_mul(2)).max(1);
            if best.is_some_and(|best| align_up(least, self.page) >= best.new_bytes) {
                break;
            }
            for gap in [node.prev, node.next] {
                if gap == NIL || self.slab[gap].state != State::Gap {
                    continue;
                }
                if let Some(place) = self.place_at(gap, request)
                    && place.better(best)
                {
                    best = Some(place);
                }
            }
        }
        best
    }

    /// The lowest gap that holds the request without its neighbours. With an alignment over the
    /// page: the lowest of the first 64 that are large enough, else one that fits in any position,
    /// else any.
    fn gap_alone(&self, request: &Request) -> Option<u32> {
        let slack = request.alignment.saturating_sub(self.page);
        let mut n = tree::first_gap(&self.slab, self.gaps, request.bytes, 0);
        let mut tried = 0;
        while n != NIL && slack > 0 {
            let node = &self.slab[n];
            let start = align_up(node.address, request.alignment);
            if start - node.address <= node.bytes - request.bytes {
                break;
            }
            tried += 1;
            if tried == PATIENCE {
                let sure = tree::first_gap(&self.slab, self.gaps, request.bytes + slack, 0);
                if sure != NIL {
                    return Some(sure);
                }
            }
            n = tree::first_gap(&self.slab, self.gaps, request.bytes, node.address + GRANULE);
        }
        (n != NIL).then_some(n)
    }

    /// The better of the lowest and the highest position at a gap.
    fn place_at(&self, gap: u32, request: &Request) -> Option<Placement> {
        let room = self.room(gap, request.stamp.stream.0);
        let lowest = align_up(room.from, request.alignment);
        let highest = align_down(room.to.checked_sub(request.bytes)?, request.alignment);
        if lowest > highest || highest < room.from {
            return None;
        }
        let at = |address| {
            let (from, to) = self.pages_touched(&room, address, address + request.bytes);
            Placement { gap, address, new_bytes: to - from }
        };
        let (low, high) = (at(lowest), at(highest));
        Some(if high.new_bytes < low.new_bytes { high } else { low })
    }

    fn room(&self, gap: u32, stream: u32) -> Room {
        let node = &self.slab[gap];
        let beside = |n: u32| {
            let free = n != NIL && self.slab[n].state == State::Free;
            (free && self.slab[n].stream == stream).then(|| self.slab[n])
        };
        Room {
            from: beside(node.prev).map_or(node.address, |below| below.address),
            gap_from: node.address,
            gap_to: node.end(),
            to: beside(node.next).map_or(node.end(), |above| above.end()),
        }
    }

    /// The part of the gap, in whole pages, that [start, end) touches; empty if it touches none.
    fn pages_touched(&self, room: &Room, start: u64, end: u64) -> (u64, u64) {
        let from = align_down(start, self.page).max(room.gap_from);
        let to = align_up(end, self.page).min(room.gap_to);
        (from, to.max(from))
    }

    /// Cuts and claims what a placement covers: its part of the free block below, of the gap, of
    /// the free block above, and the rest of the gap's pages that it touches. At most four cuts.
    fn claim_placement(
        &mut self,
        request: &Request,
        place: Placement,
        mut maps: Vec<PageRun>,
    ) -> Growth {
        let (start, end) = (place.address, place.address + request.bytes);
        let room = self.room(place.gap, request.stamp.stream.0);
        let (map_from, map_to) = self.pages_touched(&room, start, end);
        let (from, to) = if map_from < map_to {
            maps.push(PageRun { address: Address(map_from), bytes: map_to - map_from });
            (start.min(map_from), end.max(map_to))
        } else {
            (start, end)
        };

        let mut n = if room.from < room.gap_from { self.slab[place.gap].prev } else { place.gap };
        while n != NIL && self.slab[n].address < room.to {
            let next = self.slab[n].next;
            if self.slab[n].address < to && self.slab[n].end() > from {
                self.claim_part(n, [from, start, end, to]);
            }
            n = next;
        }
        self.refresh_beside(from, to);
        Growth {
            block: Block {
                address: Address(start),
                bytes: request.bytes,
                requested: request.requested,
                stream: request.stamp.stream,
            },
            maps,
            claimed: PageRun { address: Address(from), bytes: to - from },
            stamp: request.stamp,
        }
    }

    /// The neighbours of the blocks claimed in [from, to) may lie beside a gap no more.
    fn refresh_beside(&mut self, from: u64, to: u64) {
        let mut n = self.table.find(&self.slab, from);
        self.refresh(self.slab[n].prev);
        while n != NIL && self.slab[n].address < to {
            n = self.slab[n].next;
        }
        self.refresh(n);
    }
}
