#![forbid(unsafe_code)]
//! The heap's equations, proved by counting everything anew.
//!
//! The sums are taken here from the blocks alone, not by the code that keeps them. Debug builds do
//! it themselves: after every step of a small heap, and often enough of a large one that a step
//! pays for a bounded number of blocks.

use super::slab::{EDGE, NIL, PAGE, State};
use super::{Figures, Heap, Holding};
use crate::size::GRANULE;
use crate::types::StreamSlot;

/// A step pays for the check of this many blocks.
const BLOCKS_A_STEP: usize = 64;

impl Heap {
    /// Panics with the equation that does not hold, if one does not. Linear in blocks.
    ///
    /// # Panics
    /// That is what it is for.
    pub fn check(&self) {
        let mut sums = Figures { segments: self.segments.len() as u64, ..Figures::default() };
        let (mut nodes, mut named, mut above) = (0, 0, 0);
        for segment in &self.segments {
            assert!(segment.start >= above, "segments overlap or are out of order");
            above = segment.start + segment.bytes;
            let (mut at, mut prev, mut n) = (segment.start, NIL, segment.first);
            while n != NIL {
                assert_eq!(self.slab[n].address, at, "blocks do not tile their segment");
                assert_eq!(self.slab[n].prev, prev, "a block's lower neighbour is another");
                self.check_block(n, &mut sums);
                named += usize::from(self.check_name(n));
                nodes += 1;
                (at, prev, n) = (self.slab[n].end(), n, self.slab[n].next);
            }
            assert_eq!(at, above, "blocks do not fill their segment");
        }
        assert_eq!(sums, self.figures, "a figure is not the sum over the blocks");
        assert_eq!(nodes, self.slab.used(), "records are lost");
        assert_eq!(named, self.table.count(), "the table holds more than the named blocks");
        self.check_trees(&sums);
        self.check_shares();
    }

    /// After every step: checks all, now or some steps later.
    #[inline]
    pub(super) fn stepped(&mut self) {
        if cfg!(debug_assertions) {
            self.unchecked += 1;
            if self.unchecked * BLOCKS_A_STEP >= self.slab.used() {
                self.unchecked = 0;
                self.check();
            }
        }
    }

    fn check_block(&self, n: u32, sums: &mut Figures) {
        let node = &self.slab[n];
        assert!(
            node.bytes > 0 && node.bytes.is_multiple_of(GRANULE),
            "a block is not whole granules"
        );
        match node.state {
            State::Live => {
                assert!(node.requested() <= node.bytes, "more requested than allocated");
                sums.requested += node.requested();
                sums.allocated += node.bytes;
                sums.live_blocks += 1;
            }
            State::Limbo => sums.limbo_blocks += 1,
            State::Free => {
                sums.free += node.bytes;
                sums.free_blocks += 1;
                sums.releasable += self.releasable(n);
                let next = self.beside_another(node.next, node.stream);
                sums.borders += u64::from(next);
                self.check_free(n);
            }
            State::Gap => {
                let whole = (node.address | node.bytes).is_multiple_of(self.page);
                assert!(node.paged && whole, "a gap is not whole pages");
                assert!(!self.beside(node.next, State::Gap, NIL), "two gaps are neighbours");
                sums.gap += node.bytes;
                sums.gaps += 1;
            }
            State::ClaimedFree => sums.claimed_mapped += node.bytes,
            State::ClaimedGap => sums.claimed_unmapped += node.bytes,
            State::Loose | State::Spare => panic!("a block was left in the middle of a step"),
        }
        if matches!(node.state, State::Live | State::Limbo) {
            sums.active += node.bytes;
        }
        if !matches!(node.state, State::Gap | State::ClaimedGap) {
            sums.reserved += node.bytes;
        }
    }

    fn check_free(&self, n: u32) {
        let node = &self.slab[n];
        let joined = self.beside(node.next, State::Free, node.stream);
        assert!(!joined, "two free blocks of one stream are neighbours");
        let edge = node.paged
            && [node.prev, node.next].iter().any(|&beside| self.beside(beside, State::Gap, NIL));
        assert_eq!(node.own & EDGE != 0, edge, "a free block's gap is not known");
        let page = node.paged && self.pages_inside(node.address, node.end()).1 > 0;
        assert_eq!(node.own & PAGE != 0, page, "a free block's pages are not known");
    }

    /// Whether the neighbour is in that state and of that stream.
    fn beside(&self, n: u32, state: State, stream: u32) -> bool {
        n != NIL && self.slab[n].state == state && self.slab[n].stream == stream
    }

    /// Whether the block has a name, and then that the table knows it.
    fn check_name(&self, n: u32) -> bool {
        let named = !matches!(self.slab[n].state, State::Free | State::Gap);
        if named {
            let found = self.table.find(&self.slab, self.slab[n].address);
            assert_eq!(found, n, "the table does not find a block");
        }
        named
    }

    /// What each stream has, counted anew.
    fn check_shares(&self) {
        let mut shares = Vec::new();
        // A check that there is no host memory for is left out: it must not be what fails.
        if shares.try_reserve_exact(self.shares.len()).is_err() {
            return;
        }
        shares.resize(self.shares.len(), Holding::default());
        for n in self.segments.iter().flat_map(|segment| self.from(segment.first)) {
            let node = &self.slab[n];
            let Some(share) = shares.get_mut(node.stream as usize) else { continue };
            match node.state {
                State::Free => {
                    share.free += node.bytes;
                    share.releasable += self.releasable(n);
                    share.free_blocks += 1;
                }
                State::Live | State::Limbo | State::ClaimedFree => share.held_blocks += 1,
                _ => {}
            }
        }
        let mut with_free = 0;
        for (stream, share) in shares.iter().enumerate() {
            let stream = StreamSlot(stream as u32);
            assert_eq!(
                self.holding(stream),
                *share,
                "a stream's share is not the sum of its blocks"
            );
            let listed = self.streams_with_free().filter(|&known| known == stream).count();
            assert_eq!(listed, usize::from(share.free_blocks > 0), "a stream with free blocks");
            with_free += listed;
        }
        assert_eq!(self.streams_with_free().count(), with_free);
    }

    /// Whether the neighbour is free memory of another stream.
    fn beside_another(&self, n: u32, stream: u32) -> bool {
        n != NIL && self.slab[n].state == State::Free && self.slab[n].stream != stream
    }

    fn check_trees(&self, sums: &Figures) {
        let mut free = 0;
        for stream in 0..self.shares.len() as u32 {
            let root = self.shares.root(stream);
            free += self.check_by_size(root, stream, (0, 0), (u64::MAX, u64::MAX));
        }
        assert_eq!(free, sums.free_blocks, "the trees do not hold every free block");
        let gaps = self.check_by_address(self.gaps, 0, u64::MAX);
        assert_eq!(gaps, sums.gaps, "the tree of gaps does not hold every gap");
    }

    /// Counts a stream's tree: keys between the bounds, so in order, and gathered rightly.
    fn check_by_size(&self, t: u32, stream: u32, from: (u64, u64), to: (u64, u64)) -> u64 {
        if t == NIL {
            return 0;
        }
        let node = &self.slab[t];
        let key = (node.bytes, node.address);
        assert!(from < key && key < to, "a tree of free blocks is out of order");
        assert_eq!(
            (node.state, node.stream),
            (State::Free, stream),
            "a tree holds another's block"
        );
        let any = |child: u32| if child == NIL { 0 } else { self.slab[child].any };
        assert_eq!(node.any, node.own | any(node.left) | any(node.right), "offers not gathered");
        1 + self.check_by_size(node.left, stream, from, key)
            + self.check_by_size(node.right, stream, key, to)
    }

    /// Counts the tree of gaps, likewise.
    fn check_by_address(&self, t: u32, from: u64, to: u64) -> u64 {
        if t == NIL {
            return 0;
        }
        let node = &self.slab[t];
        assert!(from <= node.address && node.address < to, "the tree of gaps is out of order");
        assert_eq!(node.state, State::Gap, "the tree of gaps holds something else");
        let largest = |child: u32| if child == NIL { 0 } else { self.slab[child].epoch };
        let gathered = node.bytes.max(largest(node.left)).max(largest(node.right));
        assert_eq!(node.epoch, gathered, "the largest gap is not gathered");
        1 + self.check_by_address(node.left, from, node.address)
            + self.check_by_address(node.right, node.address + 1, to)
    }
}
