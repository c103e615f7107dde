#![forbid(unsafe_code)]
//! Looking at the heap without changing it: figures, and what stands at an address.

use super::slab::{NIL, State};
use super::{BlockState, BlockView, Figures, Heap, Holding, PageRun, Standing, tree};
use crate::types::{Address, Stamp, StreamSlot};

/// The stamp of addresses with no page: nobody has used it.
const NOBODY: Stamp = Stamp { stream: StreamSlot(NIL), epoch: 0 };

impl Heap {
    /// The sums over all blocks. Constant time.
    pub fn figures(&self) -> Figures {
        self.figures
    }

    /// The size of the stream's largest free block, 0 without any. O(log n).
    pub fn largest_free(&self, stream: StreamSlot) -> u64 {
        self.largest_of(self.shares.root(stream.0))
    }

    /// The size of the largest free block of any stream, 0 without any. O(log n) for each stream.
    pub fn largest_free_of_any(&self) -> u64 {
        self.shares.with_free().map(|stream| self.largest_free(stream)).max().unwrap_or(0)
    }

    /// What a stream has of the heap. Constant time.
    pub fn holding(&self, stream: StreamSlot) -> Holding {
        self.shares.holding(stream.0)
    }

    /// The streams that have free blocks, in no order.
    pub fn streams_with_free(&self) -> impl Iterator<Item = StreamSlot> + '_ {
        self.shares.with_free()
    }

    /// The size of the largest gap, 0 without any. Constant time.
    pub fn largest_gap(&self) -> u64 {
        tree::largest(&self.slab, self.gaps)
    }

    /// Whether the address lies in one of the ranges and segments. O(log n) for n of them.
    pub fn covers(&self, address: Address) -> bool {
        self.segment_of(address.0).is_some()
    }

    /// The range or segment that the address lies in. O(log n) for n of them.
    pub fn range_of(&self, address: Address) -> Option<PageRun> {
        let it = self.segments[self.segment_of(address.0)?];
        Some(PageRun { address: Address(it.start), bytes: it.bytes })
    }

    /// The ranges and segments: where each starts, and its bytes.
    pub fn ranges(&self) -> impl Iterator<Item = PageRun> + '_ {
        self.segments.iter().map(|it| PageRun { address: Address(it.start), bytes: it.bytes })
    }

    /// What stands at an address: for messages about addresses that are not what they should be.
    ///
    /// Linear in the blocks of the segment, unless a live block starts there.
    pub fn classify(&self, address: Address) -> Standing {
        let mut n = self.table.find(&self.slab, address.0);
        if n == NIL {
            n = self.block_at(address.0);
        }
        if n == NIL {
            return Standing::Foreign;
        }
        match self.slab[n].state {
            State::Live if self.slab[n].address == address.0 => Standing::Live(self.block(n)),
            State::Live => Standing::LiveInterior(self.block(n)),
            State::Limbo => Standing::Limbo(self.block(n)),
            State::Free => Standing::Free,
            State::Gap => Standing::Gap,
            _ => Standing::Claimed,
        }
    }

    /// All blocks, in address order.
    pub fn blocks(&self) -> impl Iterator<Item = BlockView> + '_ {
        self.segments.iter().flat_map(move |segment| {
            self.from(segment.first).map(move |n| self.view(n, segment.start))
        })
    }

    /// The blocks from `first` to the end of their segment.
    pub(super) fn from(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        let following = |&n: &u32| Some(self.slab[n].next).filter(|&n| n != NIL);
        std::iter::successors(Some(first), following)
    }

    /// The block that `address` lies in, or NIL. Linear in the blocks of the segment.
    pub(super) fn block_at(&self, address: u64) -> u32 {
        let Some(place) = self.segment_of(address) else {
            return NIL;
        };
        let mut n = self.segments[place].first;
        while n != NIL && self.slab[n].end() <= address {
            n = self.slab[n].next;
        }
        n
    }

    fn largest_of(&self, root: u32) -> u64 {
        let last = tree::last(&self.slab, root);
        if last == NIL { 0 } else { self.slab[last].bytes }
    }

    fn view(&self, n: u32, segment: u64) -> BlockView {
        let node = &self.slab[n];
        let unmapped = matches!(node.state, State::Gap | State::ClaimedGap);
        let (state, requested) = match node.state {
            State::Live => (BlockState::Live, node.requested()),
            State::Limbo => (BlockState::Limbo, node.requested()),
            State::Free => (BlockState::Free, 0),
            State::Gap => (BlockState::Gap, 0),
            State::ClaimedGap => (BlockState::Claimed { mapped: false }, 0),
            _ => (BlockState::Claimed { mapped: true }, 0),
        };
        BlockView {
            address: Address(node.address),
            bytes: node.bytes,
            requested,
            state,
            stamp: if unmapped { NOBODY } else { self.stamp(n) },
            segment: Address(segment),
        }
    }
}
