#![forbid(unsafe_code)]
//! Ranges and segments: where the heap has addresses.
//!
//! They are sorted and do not overlap. Two that touch stay two: a block never spans them, because they
//! were reserved, and are given back, one by one.

use super::slab::{Node, State, reserve};
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
    /// `InvalidArgument` unless start and size are multiples of 512, the size is not zero, the end is
    /// at most 2^62, nothing overlaps, and the stream's slot is below 2^24; `HostOutOfMemory`.
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

    /// Claims segments that are one free block whose stamp is `usable`: at least `bytes` if there are
    /// that many, else all; `u64::MAX` for all. The largest first, the highest among equals, and last
    /// the smallest that is enough. Linear in segments.
    ///
    /// # Errors
    /// `HostOutOfMemory`, with nothing claimed.
    pub fn claim_segments(
        &mut self,
        bytes: u64,
        usable: &dyn Fn(Stamp) -> bool,
    ) -> Result<Vec<PageRun>, Error> {
        let mut runs: Vec<PageRun> = Vec::new();
        for segment in &self.segments {
            let node = &self.slab[segment.first];
            let whole = node.state == State::Free && !node.paged && node.bytes == segment.bytes;
            if whole && usable(self.stamp(segment.first)) {
                reserve(&mut runs, 1, &mut self.ration)?;
                runs.push(PageRun { address: Address(segment.start), bytes: segment.bytes });
            }
        }
        runs.sort_unstable_by_key(|run| std::cmp::Reverse((run.bytes, run.address)));
        keep_enough(&mut runs, bytes);
        self.table.reserve(runs.len(), &self.slab, &mut self.ration)?;
        for run in &runs {
            let place = self.segment_place(run.address.0)?;
            self.claim(self.segments[place].first, State::ClaimedFree);
        }
        self.stepped();
        Ok(runs)
    }

    /// A claimed segment has gone back to the driver.
    ///
    /// # Errors
    /// `Internal` if that is not a claimed segment of this heap; nothing was changed.
    pub fn commit_remove(&mut self, run: PageRun) -> Result<(), Error> {
        let place = self.claimed_segment(run)?;
        let n = self.segments[place].first;
        self.table.remove(&self.slab, n);
        self.drop_segment(place);
        Ok(())
    }

    /// A claimed segment stays: it is free again.
    ///
    /// # Errors
    /// `Internal` if that is not a claimed segment of this heap; nothing was changed.
    pub fn abort_remove(&mut self, run: PageRun) -> Result<(), Error> {
        let place = self.claimed_segment(run)?;
        let n = self.segments[place].first;
        self.unclaim(n);
        self.attach_free(n);
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
            let node = &self.slab[self.segments[place].first];
            let whole = node.bytes == run.bytes && run.bytes == self.segments[place].bytes;
            node.state == State::ClaimedFree && !node.paged && whole
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
        let n = self.segments[place].first;
        self.withdraw(n);
        self.slab.drop(n);
        self.segments.remove(place);
        self.figures.segments -= 1;
        self.stepped();
    }
}

/// Of runs sorted from the largest, keeps the fewest that are enough; the last is the smallest that will
/// do.
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
