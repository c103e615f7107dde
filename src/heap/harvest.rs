#![forbid(unsafe_code)]
//! Harvest: which pages to take out from under free memory.
//!
//! A page can go when every byte of it is free and every stamp on it is usable. The pages inside
//! one free block are found in the streams' trees (which gather `PAGE`), from the largest block
//! down, the highest pages of a block first. Only if those are not enough, and more than one stream
//! has free memory, are all blocks walked for pages that several free blocks share.
//!
//! Claimed pages are nobody's until they are committed (they become a gap) or aborted (each piece
//! becomes free again, with the stamp that it had).

use super::slab::{NIL, PAGE, State, reserve};
use super::{Heap, PageRun, tree};
use crate::error::Error;
use crate::mutants::mutant;
use crate::types::{Address, Stamp};

/// Whether memory with this stamp may go.
type Usable<'a> = &'a dyn Fn(Stamp) -> bool;

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
        let mut runs = Vec::new();
        let claimed = self.claim_inside(bytes, usable, &mut runs).and_then(|sum| {
            let streams = self.roots.iter().filter(|&&root| root != NIL).count();
            if sum < bytes && (streams > 1 || mutant("heap-release-live-page")) {
                self.claim_shared(bytes - sum, usable, &mut runs)?;
            }
            Ok(())
        });
        if let Err(error) = claimed {
            for &run in &runs {
                self.abort_unmap(run)?;
            }
            return Err(error);
        }
        self.stepped();
        Ok(runs)
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

    /// Pages inside single free blocks. Gives how many bytes, and adds the runs.
    fn claim_inside(
        &mut self,
        bytes: u64,
        usable: Usable,
        runs: &mut Vec<PageRun>,
    ) -> Result<u64, Error> {
        let mut sum: u64 = 0;
        let mut below = (u64::MAX, u64::MAX);
        while sum < bytes {
            let n = self.largest_with_page(below);
            if n == NIL {
                break;
            }
            let node = self.slab[n];
            below = (node.bytes, node.address);
            if !usable(self.stamp(n)) {
                continue;
            }
            let run = self.highest_pages(node.address, node.end(), bytes - sum);
            self.claim_run(n, run, runs)?;
            sum += run.bytes;
        }
        Ok(sum)
    }

    /// The highest pages inside [from, end): enough for `bytes`, or all.
    fn highest_pages(&self, from: u64, end: u64, bytes: u64) -> PageRun {
        let (first, inside) = self.pages_inside(from, end);
        let wanted = bytes.div_ceil(self.page).saturating_mul(self.page).min(inside);
        PageRun { address: Address(first + inside - wanted), bytes: wanted }
    }

    /// Of all streams the largest free block before `below` that has a whole page inside.
    fn largest_with_page(&self, below: (u64, u64)) -> u32 {
        let key = |n: u32| (self.slab[n].bytes, self.slab[n].address);
        self.roots
            .iter()
            .map(|&root| tree::last_offering(&self.slab, root, PAGE, below.0, below.1))
            .filter(|&n| n != NIL)
            .max_by_key(|&n| key(n))
            .unwrap_or(NIL)
    }

    /// Pages that several free blocks share, in all ranges, the lowest stretch first. Linear in
    /// blocks.
    fn claim_shared(
        &mut self,
        bytes: u64,
        usable: Usable,
        runs: &mut Vec<PageRun>,
    ) -> Result<(), Error> {
        let mut sum: u64 = 0;
        for place in 0..self.segments.len() {
            let mut n = self.segments[place].first;
            while n != NIL && self.slab[n].paged && sum < bytes {
                let from = self.slab[n].address;
                let (end, after) = self.stretch(n, usable);
                let run = self.highest_pages(from, end, bytes - sum);
                if run.bytes > 0 {
                    self.claim_run(n, run, runs)?;
                    sum += run.bytes;
                }
                n = if end == from { self.slab[n].next } else { after };
            }
        }
        Ok(())
    }

    /// From `n` on, where the blocks end that may go, and the block after them.
    fn stretch(&self, mut n: u32, usable: Usable) -> (u64, u32) {
        let mut end = self.slab[n].address;
        while n != NIL {
            let node = &self.slab[n];
            let may_go = node.state == State::Free && usable(self.stamp(n));
            let live = mutant("heap-release-live-page") && node.state == State::Live;
            if !(may_go || live) {
                break;
            }
            (end, n) = (node.end(), node.next);
        }
        (end, n)
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
            let upper = self.cut(last, to);
            self.table.insert(&self.slab, upper);
        }
        if cut_first {
            first = self.cut(first, from);
            self.table.insert(&self.slab, first);
        }
        Ok(first)
    }
}
