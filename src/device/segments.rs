#![forbid(unsafe_code)]
//! Growing by segments: whole allocations of the driver, cut into blocks.
//!
//! Small requests get a segment that many fit into; when the limit or the device is too small for
//! that, a segment of just the request. With caching off it is always just the request.

use super::fence::Fence;
use super::pools::Claimed;
use super::reclaim::{Miss, Stop};
use super::work::{Turn, Work};
use super::{Device, open::SEGMENT_UNIT};
use crate::error::{Error, sentence};
use crate::heap::Block;
use crate::mutants::mutant;
use crate::size::{GRANULE, align_up};
use crate::streams::Streams;
use crate::types::{Address, PoolId, Stamp};

impl Miss<'_> {
    /// Gets a segment and cuts the block from it. `None` if memory lacks; `short` says how much.
    pub(super) fn grow_segment(&mut self) -> Result<Option<Block>, Stop> {
        for bytes in self.sizes() {
            let (room, own) = {
                let books = self.work.device.books.lock();
                (books.room(), books.pools[self.pool].room())
            };
            self.bounded = own < room;
            let room = room.min(own);
            self.obtainable = room;
            if bytes > room {
                self.short = bytes - room;
                continue;
            }
            match self.work.inside.memory_alloc(bytes) {
                Ok(address) => return self.enter(Address(address), bytes).map(Some),
                Err(error) if error.is_out_of_memory() => {
                    self.refused = Some(error);
                    self.obtainable = 0;
                    self.short = bytes;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// The sizes to try, larger ones first.
    fn sizes(&self) -> impl Iterator<Item = u64> + use<> {
        let options = &self.work.device.options;
        let exact = self.request.bytes + self.request.alignment - GRANULE;
        let whole = align_up(exact, SEGMENT_UNIT);
        // What repeats the size before it is left out below.
        let sizes = match exact {
            _ if !options.caching => [exact; 3],
            _ if exact <= options.segment_small / 2 => [options.segment_small, exact, exact],
            _ if exact < options.segment_large / 2 => [options.segment_large, whole, exact],
            _ => [whole, exact, exact],
        }
        .map(|bytes| align_up(bytes, GRANULE));
        (0..sizes.len())
            .filter(move |&at| at == 0 || sizes[at] != sizes[at - 1])
            .map(move |at| sizes[at])
    }

    /// Enters a segment into the books and takes the block from it.
    fn enter(&mut self, start: Address, bytes: u64) -> Result<Block, Stop> {
        self.work.recover_stuck(start, bytes)?;
        let device = self.work.device;
        let clean = Stamp { stream: self.request.stamp.stream, epoch: 0 };
        let owned = match start.0 % GRANULE {
            0 => device.owners.set(start, bytes, device.id, self.pool),
            _ => Err(Error::NotSupported(sentence!(
                "the driver allocated at {start}, which is not aligned to {GRANULE} bytes"
            ))),
        };
        // The books stay open until the block is taken: a hit of another thread must not get it, nor
        // see it uncounted.
        let mut books = device.my_books();
        if let Err(error) =
            owned.and_then(|()| books.pools[self.pool].heap.add_segment(start, bytes, clean))
        {
            drop(books);
            self.refuse(start, bytes);
            return Err(error.into());
        }
        books.stats.grew(bytes);
        books.pools.grew(self.pool, bytes);
        let block = books.take(self.pool, &self.request)?;
        device.note_peaks(&mut books);
        block.ok_or(Stop::Failed(Error::Internal("a new segment does not fit its request")))
    }

    /// Gives a segment back that could not be entered into the books.
    fn refuse(&mut self, start: Address, bytes: u64) {
        if self.work.inside.memory_free(start.0).is_err() {
            let mut books = self.work.device.books.lock();
            books.stats.grew(bytes);
            books.stats.quarantined += bytes;
            books.quarantined_outside += bytes;
        }
    }
}

impl Work<'_> {
    /// Gives a claimed segment back to the driver. How many bytes; what fails is quarantined.
    pub(super) fn free_segment(&mut self, claimed: Claimed) -> Result<u64, Error> {
        let Claimed { pool, run } = claimed;
        let freed = self.inside.memory_free(run.address.0);
        let device = self.device;
        if let Err(error) = freed {
            device.books.lock().stats.quarantined += run.bytes;
            self.growing().stuck.add_segment(claimed);
            self.note_failure(error);
            return Err(error.into());
        }
        let mut books = device.books.lock();
        books.pools[pool].heap.commit_remove(run)?;
        books.stats.shrank(run.bytes);
        books.pools.shrank(pool, run.bytes);
        Ok(run.bytes)
    }

    /// The driver has handed these addresses out, so segments there that it seemed to have failed to
    /// take back are gone after all.
    fn recover_stuck(&mut self, start: Address, bytes: u64) -> Result<(), Error> {
        let device = self.device;
        let stuck = &mut self.growing().stuck.segments;
        let overlaps = |Claimed { run, .. }: &Claimed| {
            run.address.0 < start.0.saturating_add(bytes) && start.0 < run.address.0 + run.bytes
        };
        while let Some(at) = stuck.iter().position(overlaps) {
            let Claimed { pool, run } = stuck.swap_remove(at);
            let mut books = device.books.lock();
            books.pools[pool].heap.commit_remove(run)?;
            books.stats.quarantined -= run.bytes;
            books.stats.shrank(run.bytes);
            books.pools.shrank(pool, run.bytes);
        }
        Ok(())
    }
}

impl Device {
    /// With caching off, gives what is free back to the driver, which waits as it always does.
    pub(super) fn pass_back(&self, pool: PoolId) -> Result<(), Error> {
        match self.pass_back_now(pool) {
            // The process is exiting, and the driver has taken everything back by itself.
            Err(Error::Shutdown) => Ok(()),
            other => other,
        }
    }

    fn pass_back_now(&self, pool: PoolId) -> Result<(), Error> {
        let Turn::Mine(mut work) = Work::begin(self, None)? else { return Ok(()) };
        self.settle_passed(&work.inside)?;
        // What graphs use is theirs until they are gone.
        let usable = |streams: &Streams<Fence>, stamp: Stamp| {
            !streams.is_captured(stamp.stream) || mutant("capture-passed-back")
        };
        let segments = self.claim(&[pool], u64::MAX, &usable)?;
        let mut outcome = Ok(());
        for segment in segments {
            if let Err(error) = work.free_segment(segment) {
                outcome = Err(error);
            }
        }
        outcome
    }
}
