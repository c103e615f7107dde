#![forbid(unsafe_code)]
//! Blocks tile their segment: how one is cut, joined, and moved between states.
//!
//! No step but `cut` needs a record, and its callers have reserved it. `withdraw` takes a block out
//! of its tree and of the figures, `settle_as`, `attach_free` and `attach_gap` put it back in
//! another state; between them it is Loose, and nothing merges with it. So the figures hold by
//! construction: each is a sum over the blocks that are not Loose.

use super::Heap;
use super::slab::{EDGE, NIL, Node, PAGE, State};
use super::tree::{self, ByAddress, BySize};
use crate::mutants::mutant;
use crate::size::{align_down, align_up};

impl Heap {
    /// The whole pages inside [from, to): their first address and their bytes.
    pub(super) fn pages_inside(&self, from: u64, to: u64) -> (u64, u64) {
        let first = align_up(from, self.page);
        (first, align_down(to, self.page).saturating_sub(first))
    }

    /// Cuts a block that is in no tree at `at`, inside it; gives the upper part, in the same state.
    pub(super) fn cut(&mut self, n: u32, at: u64) -> u32 {
        let node = self.slab[n];
        debug_assert!(node.address < at && at < node.end());
        let upper =
            Node { address: at, bytes: node.end() - at, prev: n, left: NIL, right: NIL, ..node };
        let m = self.slab.make(upper);
        if node.next != NIL {
            self.slab[node.next].prev = m;
        }
        let lower = &mut self.slab[n];
        lower.bytes = at - lower.address;
        lower.next = m;
        m
    }

    /// Joins a block with its upper neighbour; both are Loose. The lower one's record stays.
    pub(super) fn fuse(&mut self, lower: u32, upper: u32) {
        let gone = self.slab[upper];
        debug_assert!(self.slab[lower].next == upper);
        let node = &mut self.slab[lower];
        node.bytes += gone.bytes;
        node.next = gone.next;
        node.epoch = if mutant("heap-wrong-epoch") {
            node.epoch.min(gone.epoch)
        } else {
            node.epoch.max(gone.epoch)
        };
        if gone.next != NIL {
            self.slab[gone.next].prev = lower;
        }
        self.slab.drop(upper);
    }

    /// Takes a block out of its tree and the figures.
    pub(super) fn withdraw(&mut self, n: u32) {
        let node = self.slab[n];
        match node.state {
            State::Free => {
                let root = self.shares.root(node.stream);
                let root = tree::remove::<BySize>(&mut self.slab, root, n);
                self.shares.set_root(node.stream, root);
            }
            State::Gap => self.gaps = tree::remove::<ByAddress>(&mut self.slab, self.gaps, n),
            _ => {}
        }
        self.count(n, |sum, amount| *sum -= amount);
        self.slab[n].state = State::Loose;
    }

    /// Puts a Loose block into a state that has no tree: live, in limbo, claimed.
    pub(super) fn settle_as(&mut self, n: u32, state: State) {
        self.slab[n].state = state;
        self.count(n, |sum, amount| *sum += amount);
    }

    /// Puts a Loose block among the free ones of its stream, joined with free neighbours of the
    /// same stream; gives the block that it became.
    pub(super) fn attach_free(&mut self, mut n: u32) -> u32 {
        let stream = self.slab[n].stream;
        let prev = self.slab[n].prev;
        if self.joins(prev, State::Free, stream) {
            self.withdraw(prev);
            self.fuse(prev, n);
            n = prev;
        }
        let next = self.slab[n].next;
        if self.joins(next, State::Free, stream) {
            self.withdraw(next);
            self.fuse(n, next);
        }
        self.slab[n].own = self.offers(n);
        self.settle_as(n, State::Free);
        let root = tree::insert::<BySize>(&mut self.slab, self.shares.root(stream), n);
        self.shares.set_root(stream, root);
        n
    }

    /// Puts a Loose block among the gaps, joined with gaps beside it.
    pub(super) fn attach_gap(&mut self, mut n: u32) {
        let prev = self.slab[n].prev;
        if self.joins(prev, State::Gap, NIL) {
            self.withdraw(prev);
            self.fuse(prev, n);
            n = prev;
        }
        let next = self.slab[n].next;
        if self.joins(next, State::Gap, NIL) {
            self.withdraw(next);
            self.fuse(n, next);
        }
        self.slab[n].stream = NIL;
        self.settle_as(n, State::Gap);
        self.gaps = tree::insert::<ByAddress>(&mut self.slab, self.gaps, n);
        self.refresh(self.slab[n].prev);
        self.refresh(self.slab[n].next);
    }

    /// A block that is in no name yet becomes claimed; its place in the table is reserved.
    pub(super) fn claim(&mut self, n: u32, state: State) {
        self.withdraw(n);
        self.settle_as(n, state);
        self.table.insert(&self.slab, n);
    }

    /// A claimed block becomes Loose.
    pub(super) fn unclaim(&mut self, n: u32) {
        self.withdraw(n);
        self.table.remove(&self.slab, n);
    }

    /// Cuts a block at the points that lie inside it; claims what lies between the first point and
    /// the last, and leaves the rest as it was.
    pub(super) fn claim_part(&mut self, mut n: u32, points: [u64; 4]) {
        let mapped = self.slab[n].state != State::Gap;
        let claimed = if mapped { State::ClaimedFree } else { State::ClaimedGap };
        let [from, .., to] = points;
        self.withdraw(n);
        loop {
            let node = self.slab[n];
            let inside = points.into_iter().find(|&at| node.address < at && at < node.end());
            let upper = inside.map(|at| self.cut(n, at));
            if (from..to).contains(&node.address) {
                self.claim(n, claimed);
            } else if mapped {
                self.attach_free(n);
            } else {
                self.attach_gap(n);
            }
            match upper {
                Some(upper) => n = upper,
                None => break,
            }
        }
    }

    /// Whether a neighbour is in that state, and of that stream, so that it joins.
    fn joins(&self, n: u32, state: State, stream: u32) -> bool {
        if n == NIL {
            return false;
        }
        let node = &self.slab[n];
        let over_live = mutant("heap-merge-live") && node.state == State::Live;
        (node.state == state || (over_live && state == State::Free)) && node.stream == stream
    }

    /// What a free block offers: a gap beside it, a whole page inside it.
    pub(super) fn offers(&self, n: u32) -> u8 {
        let node = &self.slab[n];
        if !node.paged {
            return 0;
        }
        let is_gap = |n: u32| n != NIL && self.slab[n].state == State::Gap;
        let edge = if is_gap(node.prev) || is_gap(node.next) { EDGE } else { 0 };
        let page = if self.pages_inside(node.address, node.end()).1 > 0 { PAGE } else { 0 };
        edge | page
    }

    /// A neighbour became a gap, or is one no more: what a free block offers may have changed.
    pub(super) fn refresh(&mut self, n: u32) {
        if n == NIL || self.slab[n].state != State::Free {
            return;
        }
        let own = self.offers(n);
        if own != self.slab[n].own {
            let stream = self.slab[n].stream;
            let root = tree::remove::<BySize>(&mut self.slab, self.shares.root(stream), n);
            self.slab[n].own = own;
            let root = tree::insert::<BySize>(&mut self.slab, root, n);
            self.shares.set_root(stream, root);
        }
    }

    /// What of a free block could be given back to the driver now.
    pub(super) fn releasable(&self, n: u32) -> u64 {
        let node = &self.slab[n];
        if node.paged {
            self.pages_inside(node.address, node.end()).1
        } else if node.prev == NIL && node.next == NIL {
            node.bytes
        } else {
            0
        }
    }

    /// How many of its neighbours are free blocks of other streams.
    fn borders(&self, n: u32) -> u64 {
        if self.shares.len() < 2 {
            return 0;
        }
        let node = &self.slab[n];
        let other = |m: u32| {
            m != NIL && self.slab[m].state == State::Free && self.slab[m].stream != node.stream
        };
        u64::from(other(node.prev)) + u64::from(other(node.next))
    }

    /// Adds a block to the figures, or takes it out of them.
    fn count(&mut self, n: u32, apply: impl Fn(&mut u64, u64)) {
        let Node { state, bytes, stream, .. } = self.slab[n];
        match state {
            State::Live => {
                let requested = self.slab[n].requested();
                let sums = &mut self.figures;
                if !(mutant("heap-skip-counter") && requested != bytes) {
                    apply(&mut sums.requested, requested);
                }
                apply(&mut sums.allocated, bytes);
                apply(&mut sums.active, bytes);
                apply(&mut sums.reserved, bytes);
                apply(&mut sums.live_blocks, 1);
                apply(self.shares.held(stream), 1);
            }
            State::Limbo => {
                apply(&mut self.figures.active, bytes);
                apply(&mut self.figures.reserved, bytes);
                apply(&mut self.figures.limbo_blocks, 1);
                apply(self.shares.held(stream), 1);
            }
            State::Free => {
                let releasable = self.releasable(n);
                let borders = self.borders(n);
                self.shares.count(stream, &apply, (bytes, releasable));
                let sums = &mut self.figures;
                apply(&mut sums.borders, borders);
                apply(&mut sums.free, bytes);
                apply(&mut sums.reserved, bytes);
                apply(&mut sums.releasable, releasable);
                apply(&mut sums.free_blocks, 1);
            }
            State::Gap => {
                apply(&mut self.figures.gap, bytes);
                apply(&mut self.figures.gaps, 1);
            }
            State::ClaimedFree => {
                apply(&mut self.figures.claimed_mapped, bytes);
                apply(self.shares.held(stream), 1);
                apply(&mut self.figures.reserved, bytes);
            }
            State::ClaimedGap => apply(&mut self.figures.claimed_unmapped, bytes),
            State::Loose | State::Spare => {}
        }
    }
}
