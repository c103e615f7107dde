#![forbid(unsafe_code)]
//! Growing by pages: all or nothing.
//!
//! The heap says which pages a block needs; handles are taken from the kept ones or created, mapped,
//! and made accessible by one call a run. If any call fails, everything is put back: pages unmapped,
//! their handles kept, the claim aborted. What cannot be put back is quarantined.

use super::pools::Claimed;
use super::reclaim::{Miss, Stop};
use super::stuck::StuckPage;
use crate::driver::Memory;
use crate::error::{DriverError, Error};
use crate::heap::{Block, Growth, PageRun};
use crate::mutants::mutant;
use crate::types::Address;

/// From so many pages on, the driver is asked what it has before they are created one by one.
const MANY_PAGES: u64 = 32;

/// Why pages could not be mapped.
enum Failure {
    Driver(DriverError),
    PageMissing,
}

/// How far what was mapped could be unmapped again.
struct Unmapped {
    /// Pages that could not be, with their handles.
    stuck: Vec<(PageRun, Memory)>,
    /// Bytes of such pages that there was no host memory to note.
    unknown: u64,
}

impl Miss<'_> {
    /// Maps what the request needs. `None` if memory (then `short` says how much) or addresses lack.
    pub(super) fn grow_pages(&mut self, page: u64) -> Result<Option<Block>, Stop> {
        if self.plan.is_none() {
            self.plan = self.make_plan()?;
        }
        let Some(need) = self.plan.as_ref().map(Growth::new_bytes) else {
            // Free pages of other streams make room for addresses once they are unmapped.
            self.unreachable = true;
            self.short = self.request.bytes;
            return Ok(None);
        };
        self.unreachable = false;
        let own = self.work.device.books.lock().pools[self.pool].room();
        self.bounded = own < need;
        if self.bounded {
            self.obtainable = 0;
            self.short = need - own;
            return Ok(None);
        }
        self.short = self.fill(need, page)?;
        if self.short > 0 {
            return Ok(None);
        }
        let Some(plan) = self.plan.take() else { return Ok(None) };
        match self.map(&plan, page) {
            Ok(()) => self.commit(plan).map(Some),
            Err((failure, unmapped)) => {
                self.abort(plan, &unmapped, page)?;
                match failure {
                    Failure::Driver(error) if error.is_out_of_memory() => {
                        self.refused = Some(error);
                    }
                    Failure::Driver(error) => return Err(error.into()),
                    Failure::PageMissing => {
                        return Err(Error::Internal("a page that was counted is not there").into());
                    }
                }
                Ok(None)
            }
        }
    }

    /// Claims the place that needs the fewest new pages, on more addresses if need be.
    fn make_plan(&mut self) -> Result<Option<Growth>, Stop> {
        let plan = self.claim_place()?;
        if plan.is_some() {
            return Ok(plan);
        }
        let bytes = self.request.bytes + self.request.alignment;
        match self.work.device.reserve_more(self.pool, bytes)? {
            Some(range) => {
                self.work.growing().stuck.forget_ranges(range);
                self.claim_place()
            }
            None => Ok(None),
        }
    }

    fn claim_place(&mut self) -> Result<Option<Growth>, Stop> {
        let heap = &mut self.work.device.books.lock().pools[self.pool].heap;
        let before = heap.figures().claimed_mapped;
        let plan = heap.claim_growth(&self.request, u64::MAX)?;
        self.beside = heap.figures().claimed_mapped - before;
        Ok(plan)
    }

    /// Brings the kept handles up to `need` bytes. How many bytes are short.
    fn fill(&mut self, need: u64, page: u64) -> Result<u64, Stop> {
        let device = self.work.device;
        let mut kept = self.work.growing().pages.kept_bytes();
        let missing = need.saturating_sub(kept);
        self.obtainable = device.books.lock().room() / page * page;
        if self.obtainable < missing {
            return Ok(missing - self.obtainable);
        }
        if missing / page >= MANY_PAGES && device.shows_free_memory {
            let free = self.work.inside.memory_info()?.0 / page * page;
            self.obtainable = self.obtainable.min(free);
            if free < missing {
                return Ok(missing - free);
            }
        }
        self.work.growing().pages.reserve((need / page) as usize)?;
        while kept < need {
            match self.work.inside.handle_create(page) {
                Ok(memory) => {
                    if self.work.growing().stuck.forget_handle(memory) {
                        device.handle_is_gone(page);
                    }
                    self.work.growing().pages.keep(memory);
                    let mut books = device.books.lock();
                    books.stats.grew(page);
                    books.stats.unmapped += page;
                    kept += page;
                    self.created += page;
                }
                Err(error) if error.is_out_of_memory() => {
                    self.refused = Some(error);
                    self.obtainable = 0;
                    return Ok(need - kept);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(0)
    }

    /// Maps kept handles over the plan's runs. On failure all is undone, but for the pages returned.
    fn map(&mut self, plan: &Growth, page: u64) -> Result<(), (Failure, Unmapped)> {
        let mut mapped = 0;
        let mut failure = None;
        'runs: for run in &plan.maps {
            for address in pages_of(run, page) {
                let Some(memory) = self.work.growing().pages.unkeep() else {
                    failure = Some(Failure::PageMissing);
                    break 'runs;
                };
                if let Err(error) = self.work.inside.map(address, page, memory) {
                    // It may have had its effect: the address has to be free for the next time.
                    let _ = self.work.inside.unmap(address, page);
                    self.work.growing().pages.keep(memory);
                    failure = Some(Failure::Driver(error));
                    break 'runs;
                }
                self.work.growing().pages.note_mapped(address, memory);
                mapped += 1;
            }
            if mutant("device-no-set-access") {
                continue;
            }
            if let Err(error) = self.work.allow(*run) {
                failure = Some(Failure::Driver(error));
                break;
            }
        }
        match failure {
            None => Ok(()),
            Some(error) => Err((error, self.unmap_first(plan, page, mapped))),
        }
    }

    /// Unmaps the first `mapped` pages of a plan, as far as the driver does.
    fn unmap_first(&mut self, plan: &Growth, page: u64, mapped: usize) -> Unmapped {
        let mut unmapped = Unmapped { stuck: Vec::new(), unknown: 0 };
        let pages = plan.maps.iter().flat_map(|run| pages_of(run, page));
        for address in pages.take(mapped) {
            let undone = self.work.inside.unmap(address, page);
            let pages = &mut self.work.growing().pages;
            let Some(memory) = pages.note_unmapped(address) else { continue };
            match undone {
                Ok(()) => pages.keep(memory),
                Err(_) => {
                    self.created = self.created.saturating_sub(page);
                    let run = PageRun { address: Address(address), bytes: page };
                    match unmapped.stuck.try_reserve(1) {
                        Ok(()) => unmapped.stuck.push((run, memory)),
                        Err(_) => unmapped.unknown += page,
                    }
                }
            }
        }
        unmapped
    }

    /// Puts a claimed place back. Pages that are stuck in it stay claimed, and are tried again later.
    fn abort(&mut self, plan: Growth, unmapped: &Unmapped, page: u64) -> Result<(), Stop> {
        let device = self.work.device;
        if unmapped.stuck.is_empty() && unmapped.unknown == 0 {
            device.books.lock().pools[self.pool].heap.abort_growth(plan)?;
            return Ok(());
        }
        if unmapped.unknown == 0 && self.abort_but(&plan, unmapped, page).is_ok() {
            return Ok(());
        }
        // No host memory to tell the pages that are stuck from the rest: all of it stays claimed.
        let lost = unmapped.stuck.len() as u64 * page + unmapped.unknown;
        let mut books = device.books.lock();
        books.stats.unmapped -= lost;
        books.stats.quarantined += lost + self.beside;
        books.quarantined_outside += lost;
        Ok(())
    }

    /// Puts all of a claimed place back but the pages that are stuck in it.
    fn abort_but(&mut self, plan: &Growth, unmapped: &Unmapped, page: u64) -> Result<(), Error> {
        let (device, pool) = (self.work.device, self.pool);
        let mut runs = Vec::new();
        runs.try_reserve(unmapped.stuck.len()).map_err(|_| Error::HostOutOfMemory)?;
        runs.extend(unmapped.stuck.iter().map(|&(run, _)| run));
        device.books.lock().pools[pool].heap.abort_growth_but(plan, &runs)?;
        for &(run, memory) in &unmapped.stuck {
            device.quarantine_mapped(pool, page);
            let claimed = Claimed { pool, run };
            self.work.growing().stuck.add_page(StuckPage { claimed, memory });
        }
        Ok(())
    }

    /// The pages are there: the block is live.
    fn commit(&mut self, plan: Growth) -> Result<Block, Stop> {
        let bytes = plan.new_bytes();
        let mut books = self.work.device.my_books();
        let block = books.pools[self.pool].heap.commit_growth(plan)?;
        books.stats.unmapped -= bytes;
        books.pools.grew(self.pool, bytes);
        books.serve(self.pool, &block);
        self.work.device.note_peaks(&mut books);
        Ok(block)
    }
}

/// The addresses of a run's pages.
fn pages_of(run: &PageRun, page: u64) -> impl Iterator<Item = u64> {
    (run.address.0..run.address.0 + run.bytes).step_by(page as usize)
}
