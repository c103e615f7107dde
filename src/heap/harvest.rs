#![forbid(unsafe_code)]
//! Harvest: which pages to take out from under free memory.
//!
//! A page can go when every byte of it is free and every stamp on it is usable. The pages inside
//! one free block are found in the streams' trees (which gather `PAGE`), from the largest block of
//! all down, the highest pages of a block first. Only if those are not enough, and free blocks of
//! several streams are neighbours, are the runs of free blocks walked for pages that those share.
//!
//! A [`Harvest`] goes in steps of a bounded number of blocks; between two of them everything may
//! change.
//!
//! Claimed pages are nobody's until they are committed (they become a gap) or aborted (each piece
//! becomes free again, with the stamp that it had).

use std::collections::BinaryHeap;

use super::slab::{NIL, PAGE, State, reserve};
use super::{Heap, PageRun, tree};
use crate::error::Error;
use crate::mutants::mutant;
use crate::types::{Address, Stamp};

/// Whether memory with this stamp may go.
type Usable<'a> = &'a dyn Fn(Stamp) -> bool;

/// Claiming pages, on the way.
#[derive(Debug)]
pub struct Harvest {
    wanted: u64,
    sum: u64,
    runs: Vec<PageRun>,
    /// Of each stream the largest block not looked at yet: its size, address and stream.
    next: BinaryHeap<(u64, u64, u32)>,
    walk: Walk,
}

/// What a harvest looks at next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    Begin,
    /// Pages inside single blocks.
    Inside,
    /// Runs of blocks, from this stream and key on.
    Shared(u32, (u64, u64)),
    End,
}

impl Harvest {
    /// Claims at least `wanted` bytes, or all that there are.
    pub fn new(wanted: u64) -> Self {
        let next = BinaryHeap::new();
        Self { wanted, sum: 0, runs: Vec::new(), next, walk: Walk::Begin }
    }

    /// What is claimed, in bytes.
    pub fn bytes(&self) -> u64 {
        self.sum
    }

    /// What is claimed.
    pub fn runs(&self) -> &[PageRun] {
        &self.runs
    }

    /// What is claimed, given up by the harvest.
    pub fn into_runs(self) -> Vec<PageRun> {
        self.runs
    }
}

impl Heap {
    /// Claims pages that are free and whose stamps are `usable`: at least `bytes` if there are that
    /// many, else all; `u64::MAX` for all. O(log n) for each free block that gives some.
    ///
    /// # Errors
    /// `HostOutOfMemory`, with nothing claimed.
    pub fn claim_pages(
        &mut self,
        bytes: u64,
        usable: &dyn Fn(Stamp) -> bool,
    ) -> Result<Vec<PageRun>, Error> {
        let mut harvest = Harvest::new(bytes);
        if let Err(error) = self.claim_some_pages(&mut harvest, usable, usize::MAX) {
            for &run in harvest.runs() {
                self.abort_unmap(run)?;
            }
            return Err(error);
        }
        Ok(harvest.runs)
    }

    /// One step of a harvest, over about `effort` blocks. Whether it has come to its end.
    ///
    /// # Errors
    /// `HostOutOfMemory`; what the harvest has claimed so far stays claimed.
    pub fn claim_some_pages(
        &mut self,
        harvest: &mut Harvest,
        usable: &dyn Fn(Stamp) -> bool,
        effort: usize,
    ) -> Result<bool, Error> {
        let mut left = effort;
        if harvest.walk == Walk::Begin {
            self.line_up(harvest)?;
        }
        if harvest.walk == Walk::Inside && self.claim_inside(harvest, usable, &mut left)? {
            let shared = self.figures.borders > 0 || mutant("heap-release-live-page");
            harvest.walk = if shared { Walk::Shared(0, (0, 0)) } else { Walk::End };
        }
        if let Walk::Shared(stream, key) = harvest.walk {
            harvest.walk = self.claim_shared(harvest, stream, key, usable, &mut left)?;
        }
        self.stepped();
        Ok(harvest.walk == Walk::End || harvest.sum >= harvest.wanted)
    }

    /// Tells the stamps on a claimed run (pages or a segment): whom to wait for before it goes.
    pub fn stamps(&self, run: PageRun, each: &mut dyn FnMut(Stamp)) {
        let mut n = self.claimed_at(run.address.0);
        while n != NIL && self.slab[n].address < run.address.0.saturating_add(run.bytes) {
            each(self.stamp(n));
            n = self.slab[n].next;
        }
    }

    /// The pages are unmapped: a gap is left. A claimed run, or whole pages of one.
    ///
    /// Of a whole run it never needs memory.
    ///
    /// # Errors
    /// `Internal` if those are not claimed pages of this heap; `HostOutOfMemory` for a part of a
    /// run. Nothing was changed, the run is still claimed.
    pub fn commit_unmap(&mut self, run: PageRun) -> Result<(), Error> {
        let first = self.isolate(run)?;
        self.unclaim(first);
        while self.slab[first].end() < run.address.0 + run.bytes {
            let next = self.slab[first].next;
            self.unclaim(next);
            self.fuse(first, next);
        }
        self.attach_gap(first);
        self.stepped();
        Ok(())
    }

    /// The pages stay mapped: free again, of the streams and with the stamps that they had. Else as
    /// `commit_unmap`.
    ///
    /// # Errors
    /// As `commit_unmap`.
    pub fn abort_unmap(&mut self, run: PageRun) -> Result<(), Error> {
        let mut n = self.isolate(run)?;
        while n != NIL && self.slab[n].address < run.address.0 + run.bytes {
            let next = self.slab[n].next;
            self.unclaim(n);
            self.attach_free(n);
            n = next;
        }
        self.stepped();
        Ok(())
    }

    /// Notes every stream's largest block that has a page inside.
    fn line_up(&self, harvest: &mut Harvest) -> Result<(), Error> {
        let streams = self.shares.with_free().count();
        harvest.next.try_reserve(streams).map_err(|_| Error::HostOutOfMemory)?;
        for stream in self.shares.with_free() {
            self.line_up_again(harvest, stream.0, (u64::MAX, u64::MAX));
        }
        harvest.walk = Walk::Inside;
        Ok(())
    }

    /// The stream's largest block before `below` that has a page inside, if there is one.
    fn line_up_again(&self, harvest: &mut Harvest, stream: u32, below: (u64, u64)) {
        let root = self.shares.root(stream);
        let n = tree::last_offering(&self.slab, root, PAGE, below.0, below.1);
        if n != NIL {
            // There is room: it takes the place of the one that was there for this stream.
            harvest.next.push((self.slab[n].bytes, self.slab[n].address, stream));
        }
    }

    /// Pages inside single free blocks, the largest block of all streams first. Whether there are no
    /// more.
    fn claim_inside(
        &mut self,
        harvest: &mut Harvest,
        usable: Usable,
        left: &mut usize,
    ) -> Result<bool, Error> {
        while harvest.sum < harvest.wanted {
            if *left == 0 {
                return Ok(false);
            }
            *left -= 1;
            let Some((bytes, address, stream)) = harvest.next.pop() else { return Ok(true) };
            self.line_up_again(harvest, stream, (bytes, address));
            let n = tree::at_least(&self.slab, self.shares.root(stream), bytes, address);
            let there = n != NIL && (self.slab[n].bytes, self.slab[n].address) == (bytes, address);
            if !there || !self.slab[n].paged || !usable(self.stamp(n)) {
                continue;
            }
            let end = self.slab[n].end();
            let run = self.highest_pages(address, end, harvest.wanted - harvest.sum);
            if run.bytes > 0 {
                self.claim_run(n, run, &mut harvest.runs)?;
                harvest.sum += run.bytes;
            }
        }
        Ok(false)
    }

    /// The highest pages inside [from, end), above a pinned one if there is any: enough for `bytes`, or all.
    fn highest_pages(&self, from: u64, end: u64, bytes: u64) -> PageRun {
        let (from, end) = self.unpinned(from, end);
        let (first, inside) = self.pages_inside(from, end);
        let wanted = bytes.div_ceil(self.page).saturating_mul(self.page).min(inside);
        PageRun { address: Address(first + inside - wanted), bytes: wanted }
    }

    /// Pages that several free blocks share: each run of free blocks is walked once, from its lowest
    /// block. Where to go on.
    fn claim_shared(
        &mut self,
        harvest: &mut Harvest,
        mut stream: u32,
        mut key: (u64, u64),
        usable: Usable,
        left: &mut usize,
    ) -> Result<Walk, Error> {
        while (stream as usize) < self.shares.len() {
            let n = tree::at_least(&self.slab, self.shares.root(stream), key.0, key.1);
            if *left == 0 || harvest.sum >= harvest.wanted {
                return Ok(Walk::Shared(stream, key));
            }
            *left -= 1;
            if n == NIL {
                (stream, key) = (stream + 1, (0, 0));
                continue;
            }
            let node = self.slab[n];
            key = (node.bytes, node.address + 1);
            if !node.paged || self.may_go(node.prev, usable) {
                continue;
            }
            let end = self.stretch(n, usable, left);
            let run = self.highest_pages(node.address, end, harvest.wanted - harvest.sum);
            if run.bytes > 0 {
                self.claim_run(n, run, &mut harvest.runs)?;
                harvest.sum += run.bytes;
            }
        }
        Ok(Walk::End)
    }

    fn may_go(&self, n: u32, usable: Usable) -> bool {
        n != NIL
            && (self.slab[n].state == State::Free && usable(self.stamp(n))
                || mutant("heap-release-live-page") && self.slab[n].state == State::Live)
    }

    /// From `n` on, where the blocks end that may go.
    fn stretch(&self, mut n: u32, usable: Usable, left: &mut usize) -> u64 {
        let mut end = self.slab[n].address;
        while self.may_go(n, usable) {
            *left = left.saturating_sub(1);
            (end, n) = (self.slab[n].end(), self.slab[n].next);
        }
        end
    }

    /// Claims a run that lies in `first` and the blocks after it, all free.
    fn claim_run(
        &mut self,
        first: u32,
        run: PageRun,
        runs: &mut Vec<PageRun>,
    ) -> Result<(), Error> {
        let (from, to) = (run.address.0, run.address.0 + run.bytes);
        let (mut pieces, mut n) = (0, first);
        while n != NIL && self.slab[n].address < to {
            pieces += 1;
            n = self.slab[n].next;
        }
        self.slab.reserve(2, &mut self.ration)?;
        self.table.reserve(pieces, &self.slab, &mut self.ration)?;
        reserve(runs, 1, &mut self.ration)?;
        n = first;
        while n != NIL && self.slab[n].address < to {
            let next = self.slab[n].next;
            if self.slab[n].end() > from {
                self.claim_part(n, [from, from, to, to]);
            }
            n = next;
        }
        runs.push(run);
        Ok(())
    }

    /// The block claimed from free memory that `address` lies in, or NIL.
    fn claimed_at(&self, address: u64) -> u32 {
        let mut n = self.table.find(&self.slab, address);
        if n == NIL {
            n = self.block_at(address);
        }
        if n != NIL && self.slab[n].state == State::ClaimedFree { n } else { NIL }
    }

    /// Makes the blocks claimed from free memory tile `run` exactly; gives the first.
    fn isolate(&mut self, run: PageRun) -> Result<u32, Error> {
        let wrong = Error::Internal("pages to unmap are not claimed");
        let from = run.address.0;
        let Some(to) = from.checked_add(run.bytes).filter(|&to| to > from) else {
            return Err(wrong);
        };
        let mut first = self.claimed_at(from);
        let mut last = first;
        while last != NIL && self.slab[last].end() < to {
            last = self.slab[last].next;
            if last != NIL && self.slab[last].state != State::ClaimedFree {
                return Err(wrong);
            }
        }
        if last == NIL || !self.slab[first].paged || !(from | to).is_multiple_of(self.page) {
            return Err(wrong);
        }
        let (cut_first, cut_last) = (self.slab[first].address < from, self.slab[last].end() > to);
        if cut_first || cut_last {
            self.slab.reserve(2, &mut self.ration)?;
            self.table.reserve(2, &self.slab, &mut self.ration)?;
        }
        if cut_last {
            self.cut_claimed(last, to);
        }
        if cut_first {
            first = self.cut_claimed(first, from);
        }
        Ok(first)
    }

    /// Makes two claimed blocks of one; gives the upper. Room is reserved.
    fn cut_claimed(&mut self, n: u32, at: u64) -> u32 {
        let upper = self.cut(n, at);
        self.table.insert(&self.slab, upper);
        *self.shares.held(self.slab[upper].stream) += u64::from(!mutant("heap-share-miscounted"));
        upper
    }
}
