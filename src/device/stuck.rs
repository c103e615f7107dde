#![forbid(unsafe_code)]
//! Stuck: what the driver failed to take back. It counts as reserved and as quarantined, serves
//! nobody, and is tried again by every later call that gives memory back, and by a miss that would
//! fail without it.
//!
//! `quarantined == what lies here + what there was no host memory to note`. A call that failed may
//! have had its effect: a driver that says at the second try that there is no such thing has taken it.

use super::Device;
use super::pools::Claimed;
use super::work::Work;
use crate::driver::Memory;
use crate::error::{DriverError, Error};
use crate::heap::PageRun;
use crate::mutants::mutant;
use crate::types::PoolId;

/// `CUDA_ERROR_INVALID_VALUE`: the driver knows of no such mapping, handle or range.
const UNKNOWN_TO_IT: i32 = 1;

/// A page that may still be mapped; in its pool's heap it is claimed.
#[derive(Clone, Copy, Debug)]
pub(super) struct StuckPage {
    pub claimed: Claimed,
    pub memory: Memory,
}

/// What waits for another try.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    pages: Vec<StuckPage>,
    /// Handles that are mapped nowhere.
    handles: Vec<Memory>,
    /// Segments stay claimed. They are not tried again: whoever got the address meanwhile would lose
    /// his.
    pub segments: Vec<Claimed>,
    /// Addresses with nothing mapped there.
    ranges: Vec<PageRun>,
}

impl Stuck {
    /// Whether another try could bring anything back.
    pub(super) fn may_come_back(&self) -> bool {
        !(self.pages.is_empty() && self.handles.is_empty() && self.ranges.is_empty())
    }

    /// Notes a page. Without host memory for that it is never tried again.
    pub(super) fn add_page(&mut self, page: StuckPage) {
        add(&mut self.pages, page);
    }

    /// Notes a handle that is mapped nowhere.
    pub(super) fn add_handle(&mut self, memory: Memory) {
        add(&mut self.handles, memory);
    }

    /// Notes a segment.
    pub(super) fn add_segment(&mut self, segment: Claimed) {
        add(&mut self.segments, segment);
    }

    /// Notes addresses.
    pub(super) fn add_range(&mut self, range: PageRun) {
        add(&mut self.ranges, range);
    }

    /// The driver has made this handle anew, so an old one of the same value is gone after all.
    pub(super) fn forget_handle(&mut self, memory: Memory) -> bool {
        let old = self.handles.iter().position(|&handle| handle == memory);
        old.map(|at| self.handles.swap_remove(at)).is_some()
    }

    /// The driver has handed these addresses out, so stuck ones among them have gone back after all.
    pub(super) fn forget_ranges(&mut self, handed_out: PageRun) {
        let end = |run: &PageRun| run.address.0 + run.bytes;
        let apart =
            |run: &PageRun| end(run) <= handed_out.address.0 || end(&handed_out) <= run.address.0;
        self.ranges.retain(|run| apart(run) || mutant("stuck-range-outlives-its-return"));
    }

    /// The device was reset: gives out the pages and the handles, and forgets the segments.
    pub(super) fn drain(&mut self) -> (Vec<StuckPage>, Vec<Memory>) {
        self.segments.clear();
        (std::mem::take(&mut self.pages), std::mem::take(&mut self.handles))
    }
}

fn add<T>(list: &mut Vec<T>, what: T) {
    if list.try_reserve(1).is_ok() && !mutant("stuck-forgotten") {
        list.push(what);
    }
}

/// Whether a second try has shown that it is gone.
fn is_gone(tried: Result<(), DriverError>) -> Result<(), DriverError> {
    match tried {
        Err(error) if error.code == UNKNOWN_TO_IT => Ok(()),
        other => other,
    }
}

impl Work<'_> {
    /// Tries again to take back what the driver failed to. How many bytes of physical memory that
    /// brought: handles that are kept now, and what is the driver's again. What fails is noted.
    pub(super) fn retry_stuck(&mut self) -> Result<u64, Error> {
        if !self.growing().stuck.may_come_back() || mutant("stuck-never-retried") {
            return Ok(0);
        }
        let page = self.device.page();
        let (mut back, stuck) = (0, self.growing().stuck.pages.len());
        self.growing().pages.reserve(stuck)?;
        for at in (0..stuck).rev() {
            let StuckPage { claimed, memory } = self.growing().stuck.pages[at];
            match is_gone(self.inside.unmap(claimed.run.address.0, claimed.run.bytes)) {
                Ok(()) => {
                    // Without host memory for the record it stays where it is.
                    self.device.no_page_at(claimed)?;
                    let growing = self.growing();
                    growing.stuck.pages.swap_remove(at);
                    growing.pages.keep(memory);
                    back += page;
                }
                Err(error) => self.note_failure(error),
            }
        }
        for at in (0..self.growing().stuck.handles.len()).rev() {
            let memory = self.growing().stuck.handles[at];
            match is_gone(self.inside.handle_release(memory)) {
                Ok(()) => {
                    self.growing().stuck.handles.swap_remove(at);
                    self.device.handle_is_gone(page);
                    back += page;
                }
                Err(error) => self.note_failure(error),
            }
        }
        for at in (0..self.growing().stuck.ranges.len()).rev() {
            let range = self.growing().stuck.ranges[at];
            match is_gone(self.inside.driver().address_free(range.address.0, range.bytes)) {
                Ok(()) => drop(self.growing().stuck.ranges.swap_remove(at)),
                Err(error) => self.note_failure(error),
            }
        }
        Ok(back)
    }

    /// Notes that the driver failed to take something back.
    pub(super) fn note_failure(&mut self, error: DriverError) {
        self.failed = Some(error);
    }

    /// The one rule for a call that gives back: it goes on after a failure, and says so in the end.
    pub(super) fn outcome(&mut self) -> Result<(), Error> {
        self.failed.take().map_or(Ok(()), |error| Err(error.into()))
    }
}

impl Device {
    /// A stuck page is unmapped after all: a gap is left, and its handle is kept.
    fn no_page_at(&self, Claimed { pool, run }: Claimed) -> Result<(), Error> {
        let mut books = self.books.lock();
        books.pools[pool].heap.commit_unmap(run)?;
        books.stats.quarantined -= run.bytes;
        books.stats.unmapped += run.bytes;
        books.pools.shrank(pool, run.bytes);
        Ok(())
    }

    /// A stuck handle is the driver's after all.
    pub(super) fn handle_is_gone(&self, page: u64) {
        let mut books = self.books.lock();
        books.stats.quarantined -= page;
        books.quarantined_outside -= page;
        books.stats.shrank(page);
    }

    /// A page that was mapped for a growth that failed, and could not be unmapped: claimed in the
    /// heap, counted as its pool's.
    pub(super) fn quarantine_mapped(&self, pool: PoolId, page: u64) {
        let mut books = self.books.lock();
        books.stats.unmapped -= page;
        books.stats.quarantined += page;
        books.pools.grew(pool, page);
    }
}
