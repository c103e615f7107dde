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

/// Tells of what a turn has changed, after it let go of its locks and its context: it is dropped
/// last.
pub(super) struct News<'d>(pub &'d Device);

impl Drop for News<'_> {
    fn drop(&mut self) {
        // What a callback does is told when the call that it was made in, or the next one, ends.
        if observers::is_inside() || mutant("observer-changes-not-told") {
            return;
        }
        let device = self.0;
        let (before, stats) = {
            let mut books = device.books.lock();
            let stats = books.stats;
            (std::mem::replace(&mut books.reserved_told, stats.reserved), stats)
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
    /// Serves by the ladder; where it ends without memory, calls the observers of that, with no
    /// lock held, and begins again from the top. They are called anew while what they do makes
    /// room.
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
                return Err(self.fail(pool, text));
            }
            let room = self.room_of(pool);
            if most.is_some_and(|most| !room.exceeds(most)) {
                return Err(self.fail(pool, after_calls(text, calls)));
            }
            most = Some(most.map_or(room, |most| room.or_more(most)));
            calls += 1;
            let event = self.failure(request, passing.1);
            observers::tell(&event);
            if mutant("observer-no-search-after-the-calls") {
                return Err(self.fail(pool, text));
            }
        }
    }

    /// The request has failed, and is counted so; its error.
    fn fail(&self, pool: PoolId, text: String) -> Error {
        let mut books = self.books.lock();
        books.stats.out_of_memory_count += 1;
        if pool != PoolId::DEFAULT {
            books.pools[pool].stats.out_of_memory_count += 1;
        }
        Error::OutOfMemory(text)
    }

    /// Whether somebody is there to be called, and could do anything: not in a capture, where a
    /// call to the driver may break what is captured, nor for what is larger than the device.
    fn can_be_helped(&self, request: &Request, slot: StreamSlot) -> bool {
        let told = mutant("observer-called-in-a-capture");
        let fits = !self.shows_free_memory || request.bytes <= self.total;
        let books = self.books.lock();
        let captured = [slot, request.stamp.stream].map(|slot| books.streams.is_captured(slot));
        observers::wants(observers::OUT_OF_MEMORY) && fits && (captured == [false; 2] || told)
    }

    fn room_of(&self, pool: PoolId) -> Room {
        let books = self.all_books();
        let left = books.stats.limit.saturating_sub(books.stats.allocated);
        let pool = &books.pools[pool];
        Room([left, pool.terms.limit.saturating_sub(pool.heap.figures().allocated)])
    }

    /// What is told of a request that found nothing.
    fn failure(&self, request: &Request, stream: usize) -> Event {
        let mut books = self.all_books();
        books.stats.rung_callback_count += 1;
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

fn after_calls(text: String, calls: u32) -> String {
    let times = if calls == 1 { "once" } else { "again and again" };
    sentence!("{text} The program's out-of-memory callbacks were called {times}, and did not help.")
}
