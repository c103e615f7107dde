#![forbid(unsafe_code)]
//! Work: the turn of one miss, trim or the like: the growth lock, the device's context, and the
//! knowledge that the context is still the one that our memory belongs to.

use super::books::Books;
use super::observe::News;
use super::pools::Claimed;
use super::wait::{Until, Wait};
use super::{Device, GROWTH, Growing, Store};
use crate::driver::{Context, Driver, Inside, Memory};
use crate::error::{DriverError, Error};
use crate::heap::{BlockState, Heap, PageRun};
use crate::mutants::mutant;
use crate::streams::Home;
use crate::sync::Guard;
use crate::types::{Address, PoolId, Stamp, StreamSlot};

/// `CUDA_ERROR_INVALID_CONTEXT`.
const INVALID_CONTEXT: i32 = 201;
/// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
pub(super) const CONTEXT_IS_DESTROYED: i32 = 709;

/// One turn.
pub(super) struct Work<'d> {
    pub device: &'d Device,
    pub inside: Inside<'d>,
    /// The stream that the caller passed, whose handle may be used in this call.
    pub passing: Option<(StreamSlot, usize)>,
    generation: u64,
    growth: Option<Guard<'d, Growing, GROWTH>>,
    /// The last field: what it tells is told when the turn has let go of everything.
    _news: News<'d>,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// What was waited for is over.
    ToTheEnd,
    /// The time was up first.
    TooShort,
    /// The device was reset meanwhile, and all claims are void.
    Reset,
}

/// The device was reset: everything known about it is gone, and it starts anew.
pub(super) enum Turn<'d> {
    Mine(Work<'d>),
    Reset,
}

impl<'d> Work<'d> {
    /// Waits for the turn, and makes the device's context current.
    pub(super) fn begin(
        device: &'d Device,
        passing: Option<(StreamSlot, usize)>,
    ) -> Result<Turn<'d>, Error> {
        let mut growth = device.growth.lock();
        let (home, generation) = {
            let books = device.books.lock();
            (books.home, books.generation)
        };
        let entered = device.driver.enter(Context(home.context), device.id, &device.calls);
        let gone = match &entered {
            Ok(inside) => match inside.context_id() {
                Ok(id) => id.is_some_and(|id| id != home.id),
                Err(error) => is_gone(error).then_some(true).ok_or(error)?,
            },
            Err(error) => is_gone(*error).then_some(true).ok_or(*error)?,
        };
        if gone {
            drop(entered);
            device.start_anew(&mut growth)?;
            return Ok(Turn::Reset);
        }
        let growth = Some(growth);
        Ok(Turn::Mine(Self {
            device,
            inside: entered?,
            passing,
            generation,
            growth,
            _news: News(device),
        }))
    }

    /// What misses change.
    pub(super) fn growing(&mut self) -> &mut Growing {
        // Taken out only inside `wait`, which puts it back before it returns.
        self.growth.as_mut().expect("a turn holds the growth lock outside of its waits")
    }

    /// Waits for the GPU, while others may have their turn.
    pub(super) fn wait(&mut self, waits: Vec<Wait>, until: Until) -> Result<Waited, Error> {
        if waits.is_empty() {
            return Ok(Waited::ToTheEnd);
        }
        self.growing().waiting += 1;
        self.growth = None;
        let waited = self.device.wait(&self.inside, waits, until);
        let mut growth = self.device.growth.lock();
        growth.waiting -= 1;
        self.device.returned.notify_all();
        self.growth = Some(growth);
        match (waited?, self.still_mine()) {
            (_, false) => Ok(Waited::Reset),
            (false, true) => Ok(Waited::TooShort),
            (true, true) => Ok(Waited::ToTheEnd),
        }
    }

    /// Lets another turn that waits for the GPU come to its end. `false` if there is none.
    pub(super) fn wait_for_others(&mut self) -> bool {
        match self.growth.take() {
            Some(growth) if growth.waiting > 0 => {
                self.growth = Some(growth.wait(&self.device.returned));
                true
            }
            held => {
                self.growth = held;
                false
            }
        }
    }

    /// Whether the device is still the one that it was when the turn began.
    pub(super) fn still_mine(&self) -> bool {
        self.still_mine_in(&self.device.books.lock())
    }

    /// The same, with the books open.
    pub(super) fn still_mine_in(&self, books: &Books) -> bool {
        books.generation == self.generation
    }

    /// Gives a handle back to the driver. What fails is quarantined.
    pub(super) fn release(&mut self, memory: Memory, page: u64) -> Result<u64, DriverError> {
        let released = match mutant("device-handle-leak") {
            true => Ok(()),
            false => self.inside.handle_release(memory),
        };
        let mut books = self.device.books.lock();
        match released {
            Ok(()) => {
                books.stats.shrank(page);
                Ok(page)
            }
            Err(error) => {
                books.stats.quarantined += page;
                books.quarantined_outside += page;
                Err(error)
            }
        }
    }

    /// Gives kept handles back until `bytes` are given back or none is left. How many bytes.
    pub(super) fn release_kept(&mut self, bytes: u64) -> Result<u64, DriverError> {
        let Store::Pages(page) = self.device.store else { return Ok(0) };
        let mut released = 0;
        while released < bytes {
            let Some(memory) = self.growing().pages.unkeep() else { break };
            self.device.books.lock().stats.unmapped -= page;
            released += self.release(memory, page)?;
        }
        Ok(released)
    }

    /// Unmaps the pages of a claimed run and keeps their handles. How many bytes that was.
    ///
    /// A page whose unmapping fails stays claimed and is quarantined.
    pub(super) fn unmap(&mut self, Claimed { pool, run }: Claimed) -> Result<u64, Error> {
        let Store::Pages(page) = self.device.store else { return Ok(0) };
        if mutant("device-release-live-page") {
            let _ = self.inside.unmap(run.address.0 + run.bytes, page);
        }
        let mut failed = None;
        let mut unmapped = 0;
        // A stretch of pages that went well is committed as one piece.
        let mut stretch = PageRun { address: run.address, bytes: 0 };
        for offset in (0..run.bytes).step_by(page as usize) {
            let address = run.address.0 + offset;
            match self.inside.unmap(address, page) {
                Ok(()) => {
                    if stretch.bytes == 0 {
                        stretch.address = Address(address);
                    }
                    stretch.bytes += page;
                }
                Err(error) => {
                    unmapped += self.keep(pool, &mut stretch, page)?;
                    self.growing().pages.note_unmapped(address);
                    self.device.books.lock().stats.quarantined += page;
                    failed.get_or_insert(error);
                }
            }
        }
        unmapped += self.keep(pool, &mut stretch, page)?;
        match failed {
            Some(error) if unmapped == 0 => Err(error.into()),
            _ => Ok(unmapped),
        }
    }

    /// Notes that a stretch of a claimed run has no pages any more: they are kept without address.
    fn keep(&mut self, pool: PoolId, stretch: &mut PageRun, page: u64) -> Result<u64, Error> {
        let run = *stretch;
        stretch.bytes = 0;
        if run.bytes == 0 {
            return Ok(0);
        }
        let committed = self.device.books.lock().pools[pool].heap.commit_unmap(run);
        if committed.is_err() {
            // No host memory for the record: these pages stay claimed, and are lost.
            self.device.books.lock().stats.quarantined += run.bytes;
            return Ok(0);
        }
        for offset in (0..run.bytes).step_by(page as usize) {
            let pages = &mut self.growing().pages;
            if let Some(memory) = pages.note_unmapped(run.address.0 + offset) {
                pages.keep(memory);
            }
        }
        let mut books = self.device.books.lock();
        books.stats.unmapped += run.bytes;
        books.pools.shrank(pool, run.bytes);
        Ok(run.bytes)
    }
}

impl Device {
    /// The context was destroyed or reset under us: every block is gone. Starts with a new one.
    fn start_anew(&self, growth: &mut Growing) -> Result<(), Error> {
        let page = match self.store {
            Store::Pages(page) => page,
            Store::Segments => super::open::SEGMENT_UNIT,
        };
        let home = Self::retain(self.driver, self.id)?;
        self.give_up_pages(home, growth);
        self.spares.lock().forget_events();
        let mut books = self.books.lock();
        let books = &mut *books;
        self.forget_loans(books);
        for (_, pool) in books.pools.each_mut() {
            // Without host memory for their addresses, they are foreign from now on, not lost.
            if books.lost.try_reserve(pool.heap.figures().live_blocks as usize).is_ok() {
                let live = pool.heap.blocks().filter(|block| block.state == BlockState::Live);
                books.lost.extend(live.map(|block| block.address.0));
            }
            pool.heap = Heap::new(page)?;
            pool.stats.lose_everything();
            pool.captured.clear();
            pool.launched.clear();
        }
        books.limbo = Default::default();
        books.streams.reset(home);
        books.home = home;
        books.generation += 1;
        books.quarantined_outside = 0;
        books.helpers.clear();
        books.stats.lose_everything();
        Ok(())
    }

    /// Physical memory may have outlived the context: gives it back; a driver that refuses says that
    /// it is gone. The addresses stay reserved, so that no new block comes to lie where a lost one
    /// was.
    fn give_up_pages(&self, home: Home, growth: &mut Growing) {
        growth.stuck.clear();
        let (mapped, kept) = growth.pages.drain();
        let Store::Pages(page) = self.store else { return };
        let entered = self.driver.enter(Context(home.context), self.id, &self.calls);
        let Ok(inside) = entered else { return };
        for (address, memory) in mapped {
            if inside.unmap(address, page).is_ok() {
                let _ = inside.handle_release(memory);
            }
        }
        for memory in kept {
            let _ = inside.handle_release(memory);
        }
    }

    /// Takes a reference on the device's primary context.
    pub(super) fn retain(driver: &Driver, id: crate::types::DeviceId) -> Result<Home, Error> {
        let context = driver.primary_retain(id)?;
        match driver.context_id(context) {
            Ok(number) => Ok(Home { context: context.0, id: number.unwrap_or(0) }),
            Err(error) => {
                let _ = driver.primary_release(id);
                Err(error.into())
            }
        }
    }
}

/// Whether the driver says that the context is no more.
pub(super) fn is_gone(error: DriverError) -> bool {
    matches!(error.code, CONTEXT_IS_DESTROYED | INVALID_CONTEXT)
}

/// One stamp a stream, the latest, of many.
pub(super) fn latest(stamps: &mut Vec<Stamp>, stamp: Stamp) -> Result<(), Error> {
    match stamps.iter_mut().find(|known| known.stream == stamp.stream) {
        Some(known) => known.epoch = known.epoch.max(stamp.epoch),
        None => {
            stamps.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
            stamps.push(stamp);
        }
    }
    Ok(())
}
