#![forbid(unsafe_code)]
//! Starting anew on a device that was reset under us: every block is gone, and what a block of
//! before is freed with says so.
//!
//! No new block may come to lie where a lost one was, so the addresses stay reserved: those of the
//! last few resets. With an older one's, what is known of its blocks goes: nobody can tell then what a pointer of before means.

use super::books::Books;
use super::stuck::StuckPage;
use super::work::Work;
use super::{Device, Growing, Store};
use crate::driver::Context;
use crate::error::Error;
use crate::heap::{BlockState, PageRun};
use crate::mutants::mutant;
use crate::streams::Home;

/// How many resets are remembered.
const MOST: usize = 16;

/// The addresses of before the last resets, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Graves(Vec<Vec<PageRun>>);

impl Graves {
    /// Adds the addresses of before this reset; gives out the oldest ones, if there are too many.
    /// Those that there is no host memory to note stay reserved for ever.
    fn dig(&mut self, ranges: Vec<PageRun>) -> Vec<PageRun> {
        if ranges.is_empty() || self.0.try_reserve(1).is_err() {
            return Vec::new();
        }
        self.0.push(ranges);
        let full = self.0.len() > MOST && !mutant("reset-keeps-all-addresses");
        if full { self.0.remove(0) } else { Vec::new() }
    }
}

impl Device {
    /// The context was destroyed or reset under us: every block is gone. Starts with a new one.
    pub(super) fn start_anew(&self, growth: &mut Growing) -> Result<(), Error> {
        let home = Self::retain(self.driver, self.id)?;
        self.give_up_pages(home, growth);
        self.spares.lock().forget_events();
        let old = self.forget_all(home, growth);
        self.enable_peers_anew(home);
        for range in old {
            if self.driver.address_free(range.address.0, range.bytes).is_err() {
                growth.stuck.add_range(range);
            }
        }
        Ok(())
    }

    /// Nothing of before is left in the books. The addresses that nobody needs to be kept from.
    fn forget_all(&self, home: Home, growth: &mut Growing) -> Vec<PageRun> {
        let books = &mut *self.books.lock();
        self.forget_loans(books);
        let old = growth.graves.dig(books.bury(self.store));
        for range in &old {
            let inside = |at: &u64| (range.address.0..range.address.0 + range.bytes).contains(at);
            books.lost.retain(|at| !inside(at));
        }
        books.limbo = Default::default();
        self.forget_found(books);
        books.streams.reset(home);
        books.home = home;
        books.generation += 1;
        books.quarantined_outside = 0;
        books.helpers.clear();
        books.stats.lose_everything();
        old
    }

    /// Physical memory may have outlived the context: gives it back; a driver that refuses says that
    /// it is gone.
    fn give_up_pages(&self, home: Home, growth: &mut Growing) {
        let (stuck, handles) = growth.stuck.drain();
        let (mapped, kept) = growth.pages.drain();
        let Store::Pages(page) = self.store else { return };
        let entered = self.driver.enter(Context(home.context), self.id, &self.calls);
        let Ok(inside) = entered else { return };
        let stuck = stuck.into_iter();
        let stuck = stuck.map(|StuckPage { claimed, memory }| (claimed.run.address.0, memory));
        for (address, memory) in mapped.chain(stuck) {
            if inside.unmap(address, page).is_ok() {
                let _ = inside.handle_release(memory);
            }
        }
        for memory in kept.into_iter().chain(handles) {
            let _ = inside.handle_release(memory);
        }
    }
}

impl Books {
    /// Empties every heap, and remembers its live blocks as lost; gives the addresses that it had.
    fn bury(&mut self, store: Store) -> Vec<PageRun> {
        let mut ranges = Vec::new();
        for (_, pool) in self.pools.each_mut() {
            // Without host memory for their addresses, they are foreign from now on, not lost.
            if self.lost.try_reserve(pool.heap.figures().live_blocks as usize).is_ok() {
                let live = pool.heap.blocks().filter(|block| block.state == BlockState::Live);
                self.lost.extend(live.map(|block| block.address.0));
            }
            // Segments have gone with their addresses.
            let reserved = pool.heap.ranges().filter(|_| matches!(store, Store::Pages(_)));
            for range in reserved {
                if ranges.try_reserve(1).is_ok() {
                    ranges.push(range);
                }
            }
            pool.heap.clear();
            pool.stats.lose_everything();
            pool.captured.clear();
            pool.launched.clear();
        }
        ranges
    }
}

impl Work<'_> {
    /// Gives addresses back; what the driver does not take is tried again later.
    pub(super) fn give_up_addresses(&mut self, range: PageRun) {
        let freed = self.inside.driver().address_free(range.address.0, range.bytes);
        if let Err(error) = freed {
            self.growing().stuck.add_range(range);
            self.note_failure(error);
        }
    }
}
