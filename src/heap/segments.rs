#![forbid(unsafe_code)]
//! Ranges and segments: where the heap has addresses.
//!
//! They are sorted and do not overlap. Two that touch stay two: a block never spans them, because
//! they were reserved, and are given back, one by one.

use super::slab::{NIL, Node, State, reserve};
use super::{Heap, PageRun, invalid};
use crate::error::Error;
use crate::size::{GRANULE, LARGEST_REQUEST};
use crate::types::{Address, Stamp};

/// A contiguous range of addresses that blocks tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// The block at its start: the lower one stays when blocks are cut or joined, so this does too.
    pub(super) first: u32,
}

impl Heap {
    /// Adds a range of addresses to map pages in, all one gap.
    ///
    /// # Errors
    /// `InvalidArgument` unless start and size are multiples of the page, the size is not zero, the
    /// end is at most 2^62, and nothing overlaps; `HostOutOfMemory`.
    pub fn add_range(&mut self, start: Address, bytes: u64) -> Result<(), Error> {
        let n = self.add(start.0, bytes, self.page, true)?;
        self.attach_gap(n);
        self.stepped();
        Ok(())
    }

    /// Adds a segment that the driver gave whole: one free block with this stamp.
    ///
    /// # Errors
    /// `InvalidArgument` unless start and size are multiples of 512, the size is not zero, the end
    /// is at most 2^62, nothing overlaps, and the stream's slot is below 2^24; `HostOutOfMemory`.
    pub fn add_segment(&mut self, start: Address, bytes: u64, stamp: Stamp) -> Result<(), Error> {
        self.know_stream(stamp.stream)?;
        let n = self.add(start.0, bytes, GRANULE, false)?;
        self.slab[n].stream = stamp.stream.0;
        self.slab[n].epoch = stamp.epoch;
        self.attach_free(n);
        self.stepped();
        Ok(())
    }

    /// Takes a range out that is wholly gap.
    ///
    /// # Errors
    /// `InvalidArgument` if no range starts there, or any of it is mapped or claimed.
    pub fn remove_range(&mut self, start: Address) -> Result<(), Error> {
        let place = self.segment_place(start.0)?;
        let n = self.segments[place].first;
        if self.slab[n].state != State::Gap || self.slab[n].bytes != self.segments[place].bytes {
            return Err(invalid("start", start.0, "the start of a range with no page mapped"));
        }
        self.drop_segment(place);
        Ok(())
    }

    /// Claims segments that are free, of one stream or several, with `usable` stamps: at least
    /// `bytes` if there are that many, else all; `u64::MAX` for all. The largest first, the highest
    /// among equals, and last the smallest that is enough. Of each segment it visits the blocks up
    /// to the first that is not free.
    ///
    /// # Errors
    /// `HostOutOfMemory`, with nothing claimed.
    pub fn claim_segments(
        &mut self,
        bytes: u64,
        usable: &dyn Fn(Stamp) -> bool,
    ) -> Result<Vec<PageRun>, Error> {
        let mut runs: Vec<PageRun> = Vec::new();
        let mut pieces = 0;
        for &Segment { start, bytes, first } in &self.segments {
            let may_go = |n: u32| {
                self.slab[n].state == State::Free && !self.slab[n].paged && usable(self.stamp(n))
            };
            let run = PageRun { address: Address(start), bytes };
            if self.from(first).all(may_go) && !self.is_pinned(run) {
                reserve(&mut runs, 1, &mut self.ration)?;
                runs.push(run);
                pieces += self.from(first).count();
            }
        }
        runs.sort_unstable_by_key(|run| std::cmp::Reverse((run.bytes, run.address)));
        keep_enough(&mut runs, bytes);
        self.table.reserve(pieces, &self.slab, &mut self.ration)?;
        for run in &runs {
            let place = self.segment_place(run.address.0)?;
            let mut n = self.segments[place].first;
            while n != NIL {
                self.claim(n, State::ClaimedFree);
                n = self.slab[n].next;
            }
        }
        self.stepped();
        Ok(runs)
    }

    /// A claimed segment has gone back to the driver. Never needs memory.
    ///
    /// # Errors
    /// `Internal` if that is not a claimed segment of this heap; nothing was changed.
    pub fn commit_remove(&mut self, run: PageRun) -> Result<(), Error> {
        let place = self.claimed_segment(run)?;
        let mut n = self.segments[place].first;
        while n != NIL {
            self.table.remove(&self.slab, n);
            n = self.slab[n].next;
        }
        self.drop_segment(place);
        Ok(())
    }

    /// A claimed segment stays: free again, of the streams and with the stamps that it had. Never
    /// needs memory.
    ///
    /// # Errors
    /// `Internal` if that is not a claimed segment of this heap; nothing was changed.
    pub fn abort_remove(&mut self, run: PageRun) -> Result<(), Error> {
        let place = self.claimed_segment(run)?;
        let mut n = self.segments[place].first;
        while n != NIL {
            let next = self.slab[n].next;
            self.unclaim(n);
            self.attach_free(n);
            n = next;
        }
        self.stepped();
        Ok(())
    }

    /// The index of the segment that `address` lies in.
    pub(super) fn segment_of(&self, address: u64) -> Option<usize> {
        let place = self.segments.partition_point(|segment| segment.start <= address);
        let place = place.checked_sub(1)?;
        let Segment { start, bytes, .. } = self.segments[place];
        (address - start < bytes).then_some(place)
    }

    /// The index of the segment that starts at `start`.
    fn segment_place(&self, start: u64) -> Result<usize, Error> {
        self.segments
            .binary_search_by_key(&start, |segment| segment.start)
            .map_err(|_| invalid("start", start, "the start of a range or segment"))
    }

    fn claimed_segment(&self, run: PageRun) -> Result<usize, Error> {
        let place = self.segment_place(run.address.0).ok();
        let claimed = place.filter(|&place| {
            let Segment { bytes, first, .. } = self.segments[place];
            let claimed = |n: u32| self.slab[n].state == State::ClaimedFree && !self.slab[n].paged;
            bytes == run.bytes && self.from(first).all(claimed)
        });
        claimed.ok_or(Error::Internal("a segment to remove is not claimed"))
    }

    /// Makes a segment of one Loose block.
    fn add(&mut self, start: u64, bytes: u64, unit: u64, paged: bool) -> Result<u32, Error> {
        if start == 0 || !start.is_multiple_of(unit) || start > LARGEST_REQUEST {
            return Err(invalid("start", start, "a multiple of the page (or 512), not 0, to 2^62"));
        }
        if bytes == 0 || !bytes.is_multiple_of(unit) || bytes > LARGEST_REQUEST - start {
            return Err(invalid("bytes", bytes, "pages (or multiples of 512) that end by 2^62"));
        }
        let place = self.segments.partition_point(|segment| segment.start < start);
        let below = place.checked_sub(1).map(|below| self.segments[below]);
        let above = self.segments.get(place);
        if below.is_some_and(|below| below.start + below.bytes > start)
            || above.is_some_and(|above| start + bytes > above.start)
        {
            return Err(invalid("start", start, "clear of the ranges that are there"));
        }
        self.slab.reserve(1, &mut self.ration)?;
        reserve(&mut self.segments, 1, &mut self.ration)?;
        let first = self.slab.make(Node::new(start, bytes, paged));
        self.segments.insert(place, Segment { start, bytes, first });
        self.figures.segments += 1;
        Ok(first)
    }

    fn drop_segment(&mut self, place: usize) {
        let mut n = self.segments[place].first;
        while n != NIL {
            let next = self.slab[n].next;
            self.withdraw(n);
            self.slab.drop(n);
            n = next;
        }
        self.segments.remove(place);
        self.figures.segments -= 1;
        self.stepped();
    }
}

/// Of runs sorted from the largest, keeps the fewest that are enough; the last is the smallest that
/// will do.
fn keep_enough(runs: &mut Vec<PageRun>, bytes: u64) {
    let mut sum: u64 = 0;
    let Some(last) = runs.iter().position(|run| {
        sum = sum.saturating_add(run.bytes);
        sum >= bytes
    }) else {
        return;
    };
    let missing = bytes - (sum - runs[last].bytes);
    let smallest = runs.iter().rposition(|run| run.bytes >= missing).unwrap_or(last);
    runs.swap(last, smallest.max(last));
    runs.truncate(if bytes == 0 { 0 } else { last + 1 });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept of runs of these sizes.
    fn kept(sizes: &[u64], bytes: u64) -> Vec<u64> {
        let mut runs: Vec<PageRun> =
            sizes.iter().map(|&bytes| PageRun { address: Address(0), bytes }).collect();
        keep_enough(&mut runs, bytes);
        runs.iter().map(|run| run.bytes).collect()
    }

    #[test]
    fn the_fewest_and_smallest_that_are_enough() {
        assert_eq!(kept(&[9, 7, 4, 2, 1], 0), []);
        assert_eq!(kept(&[9, 7, 4, 2, 1], 1), [1]);
        assert_eq!(kept(&[9, 7, 4, 2, 1], 3), [4]);
        assert_eq!(kept(&[9, 7, 4, 2, 1], 9), [9]);
        assert_eq!(kept(&[9, 7, 4, 2, 1], 10), [9, 1]);
        assert_eq!(kept(&[9, 7, 4, 2, 1], 16), [9, 7]);
        assert_eq!(kept(&[9, 7, 4, 2, 1], 17), [9, 7, 1]);
        assert_eq!(kept(&[9, 7, 4, 2, 1], 23), [9, 7, 4, 2, 1]);
        assert_eq!(kept(&[9, 7, 4, 2, 1], u64::MAX), [9, 7, 4, 2, 1]);
        assert_eq!(kept(&[], 5), []);
    }
}
