#![forbid(unsafe_code)]
//! Telling observers: what a turn changed of what is reserved, and that a request finds no memory.
//!
//! `reserved == reserved when an observer was added + growth told - release told`, once the turns
//! under way have ended.

use super::Device;
use crate::error::{Error, sentence};
use crate::heap::Request;
use crate::mutants::mutant;
use crate::observers::{self, Event};
use crate::types::{Address, PoolId, StreamSlot};

/// Tells of what a turn has changed, after it let go of its locks and its context: it is dropped last.
pub(super) struct News<'d>(pub &'d Device);

impl Drop for News<'_> {
    fn drop(&mut self) {
        // What a callback does is told when the call that it was made in, or the next one, ends.
        if observers::is_inside() {
            return;
        }
        let device = self.0;
        let (before, stats) = {
            let mut books = device.books.lock();
            let before = std::mem::replace(&mut books.reserved_told, 0);
            books.reserved_told = books.stats.reserved;
            (before, books.stats)
        };
        let kind = match stats.reserved {
            now if now == before => return,
            now if now > before => observers::GROWTH,
            _ => observers::RELEASE,
        };
        if !observers::wants(kind) {
            return;
        }
        let allocated = device.all_books().stats.allocated;
        observers::tell(&Event {
            kind,
            device: device.id.0 as i32,
            bytes: stats.reserved.abs_diff(before),
            allocated: allocated.min(stats.reserved),
            reserved: stats.reserved,
            limit: stats.limit,
            stream: 0,
        });
    }
}

/// How much room live memory leaves, of the device and of the pool.
#[derive(Clone, Copy)]
struct Room([u64; 2]);

impl Room {
    /// Whether there is more of either.
    fn exceeds(self, most: Self) -> bool {
        self.0[0] > most.0[0] || self.0[1] > most.0[1]
    }

    /// The more of both.
    fn or_more(self, most: Self) -> Self {
        Self([self.0[0].max(most.0[0]), self.0[1].max(most.0[1])])
    }
}

impl Device {
    /// Serves by the ladder; where it ends without memory, calls the observers of that, with no lock
    /// held, and begins again from the top. They are called anew while what they do makes room.
    ///
    /// `None`: the device was reset under us.
    pub(super) fn serve_with_help(
        &self,
        pool: PoolId,
        request: &Request,
        passing: (StreamSlot, usize),
        wait_ms: u64,
    ) -> Result<Option<Address>, Error> {
        let mut most: Option<Room> = None;
        let mut calls = 0u32;
        loop {
            let served = self.serve_slowly(pool, request, passing, wait_ms);
            let Err(Error::OutOfMemory(text)) = served else { return served };
            if !self.can_be_helped(request, passing.0) {
                return Err(Error::OutOfMemory(text));
            }
            let room = self.room_of(pool);
            if most.is_some_and(|most| !room.exceeds(most)) {
                return Err(Error::OutOfMemory(after_calls(text, calls)));
            }
            most = Some(most.map_or(room, |most| room.or_more(most)));
            calls += 1;
            let event = self.failure(pool, request, passing.1);
            observers::tell(&event);
            if mutant("observer-no-search-after-the-calls") {
                return Err(Error::OutOfMemory(text));
            }
        }
    }

    /// Whether somebody is there to be called, and could do anything: not in a capture, where a call
    /// to the driver may break what is captured, nor for what is larger than the device.
    fn can_be_helped(&self, request: &Request, slot: StreamSlot) -> bool {
        let fits = !self.shows_free_memory || request.bytes <= self.total;
        observers::wants(observers::OUT_OF_MEMORY)
            && fits
            && !self.books.lock().streams.is_captured(slot)
            && !self.books.lock().streams.is_captured(request.stamp.stream)
    }

    fn room_of(&self, pool: PoolId) -> Room {
        let books = self.all_books();
        let left = books.stats.limit.saturating_sub(books.stats.allocated);
        let pool = &books.pools[pool];
        Room([left, pool.terms.limit.saturating_sub(pool.heap.figures().allocated)])
    }

    /// What is told of a request that found nothing. It has not failed yet, and is not counted so.
    fn failure(&self, pool: PoolId, request: &Request, stream: usize) -> Event {
        let mut books = self.all_books();
        let pools = (pool != PoolId::DEFAULT).then_some(pool);
        let books = &mut *books;
        books.stats.rung_callback_count += 1;
        uncount(&mut books.stats.out_of_memory_count);
        if let Some(pool) = pools {
            uncount(&mut books.pools[pool].stats.out_of_memory_count);
        }
        Event {
            kind: observers::OUT_OF_MEMORY,
            device: self.id.0 as i32,
            bytes: request.requested,
            allocated: books.stats.allocated,
            reserved: books.stats.reserved,
            limit: books.stats.limit,
            stream,
        }
    }
}

fn uncount(count: &mut u64) {
    *count = count.saturating_sub(1);
}

fn after_calls(text: String, calls: u32) -> String {
    let times = if calls == 1 { "once" } else { "again and again" };
    sentence!("{text} The program's out-of-memory callbacks were called {times}, and did not help.")
}
