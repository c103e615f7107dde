#![forbid(unsafe_code)]
//! Out of memory, explained: what was asked, where the memory is, why it was not enough, what to do.
//!
//! A [`Scene`] has the figures of the moment at which a request failed; `text` tells them as sentences,
//! `data` as JSON.

mod data;
mod text;

use std::cell::Cell;

use super::books::Books;
use super::human::exact;
use super::pool::Pool;
use super::reclaim::Miss;
use super::{Device, Store};
use crate::error::{DriverError, Error, sentence};
use crate::heap::Figures;
use crate::stats::cuddy_stats;
use crate::streams::EVERYBODY;
use crate::types::PoolId;

/// How many of the streams are named that freed memory waits for.
const STREAMS: usize = 4;

/// What a stream keeps from being reused: its handle, and bytes; no bytes are no stream.
type Waiting = [(usize, u64); STREAMS];

/// Figures of the moment at which a request failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    device: u32,
    asked: u64,
    alignment: u64,
    /// The handle of the stream that asked.
    stream: usize,
    stats: cuddy_stats,
    figures: Figures,
    /// The largest free block of the request's stream, and of any.
    largest: (u64, u64),
    /// What the driver says: free and total bytes.
    driver: Option<(u64, u64)>,
    refused: Option<DriverError>,
    unreachable: bool,
    pages: bool,
    /// Of a private pool: its limit, and what is reserved and live in it.
    pool: Option<(u64, u64, u64)>,
    waiting: Waiting,
}

/// Why there was no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The private pool's own limit.
    PoolLimit,
    /// The driver gave no memory.
    Driver(DriverError),
    /// The driver gave no addresses.
    Addresses,
    /// The device's memory is used up.
    Device,
    /// The device's limit.
    Limit,
}

thread_local! {
    /// The scene of the last miss on this thread that found nothing. No destructor.
    static SCENE: Cell<Option<Scene>> = const { Cell::new(None) };
}

/// The scene of the out-of-memory error that this thread has just been given, once.
pub(crate) fn take_scene() -> Option<Scene> {
    SCENE.take()
}

impl Miss<'_> {
    /// The error for a request that nothing could serve.
    pub(super) fn out_of_memory(&mut self) -> Error {
        let device = self.work.device;
        let driver = self.work.inside.memory_info().ok();
        let books = device.all_books();
        let Pool { heap, terms, .. } = &books.pools[self.pool];
        let (limit, held) = (terms.limit, heap.figures());
        let stream = self.request.stamp.stream;
        let scene = Scene {
            device: device.id.0,
            asked: self.request.requested,
            alignment: self.request.alignment,
            stream: books.streams.names(stream).0,
            // What this miss created for nothing goes back; it is not held against the request.
            stats: without_created(books.stats, self.created),
            figures: heap.figures(),
            largest: (heap.largest_free(stream), heap.largest_free_of_any()),
            driver: driver.map(|(free, total)| (free + self.created, total)),
            refused: self.refused,
            unreachable: self.unreachable,
            pages: matches!(device.store, Store::Pages(_)),
            pool: (self.pool != PoolId::DEFAULT).then_some((limit, held.reserved, held.allocated)),
            waiting: waited_for(&books),
        };
        drop(books);
        SCENE.set(Some(scene));
        Error::OutOfMemory(scene.text())
    }
}

fn without_created(stats: cuddy_stats, created: u64) -> cuddy_stats {
    let created = created.min(stats.unmapped);
    cuddy_stats { reserved: stats.reserved - created, unmapped: stats.unmapped - created, ..stats }
}

/// The streams that most of the freed memory waits for, most first. A block that waits for several
/// counts for each; of very many streams, those met first are looked at.
fn waited_for(books: &Books) -> Waiting {
    let mut met = [(0, 0); 8 * STREAMS];
    books.limbo.waits(|bytes, stamp| {
        // A fence over a whole context is no stream's.
        if stamp.stream == EVERYBODY {
            return;
        }
        let handle = books.streams.names(stamp.stream).0;
        let place = met.iter_mut().find(|(known, sum)| *known == handle || *sum == 0);
        if let Some(place) = place {
            *place = (handle, place.1 + bytes);
        }
    });
    met.sort_unstable_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    std::array::from_fn(|rank| met[rank])
}

impl Device {
    /// The error for a request that no device can ever serve.
    pub(super) fn beyond_reach(&self, asked: u64) -> Error {
        SCENE.set(None);
        self.books.lock().stats.out_of_memory_count += 1;
        Error::OutOfMemory(sentence!(
            "{} were asked for on device {}, which is more than any device has: it has {}. \
             A size like this is usually a negative number or an overflow in the program.",
            exact(asked),
            self.id.0,
            exact(self.total)
        ))
    }
}

impl Scene {
    /// The device's number.
    pub(crate) fn device(&self) -> u32 {
        self.device
    }

    /// Whether a limit decides, the device's or the pool's.
    fn is_limited(&self) -> bool {
        let limit = self.pool.map_or(u64::MAX, |(limit, ..)| limit).min(self.stats.limit);
        self.refused.is_none() && !self.unreachable && limit != u64::MAX
    }

    /// Whether the pool's own limit forbids it.
    fn is_pools_limit(&self) -> bool {
        self.pool.is_some_and(|(limit, _, live)| limit.saturating_sub(live) < self.asked)
    }

    fn cause(&self) -> Cause {
        match self.refused {
            _ if self.is_pools_limit() => Cause::PoolLimit,
            Some(error) => Cause::Driver(error),
            None if self.unreachable => Cause::Addresses,
            None if self.stats.limit == u64::MAX => Cause::Device,
            None => Cause::Limit,
        }
    }

    /// Reserved, free for reuse.
    fn cached(&self) -> u64 {
        let held = self.stats.reserved - self.stats.active;
        held - self.stats.quarantined.min(held)
    }

    /// What is used on the device and is not ours; `None` if the driver does not say.
    fn used_elsewhere(&self) -> Option<u64> {
        let (free, total) = self.driver?;
        Some(total.saturating_sub(free).saturating_sub(self.stats.reserved))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 GiB reserved under a limit of 1 GiB, half of it live.
    pub(super) fn scene() -> Scene {
        let stats = cuddy_stats {
            reserved: 1 << 30,
            active: 3 << 28,
            allocated: 1 << 29,
            live_block_count: 1,
            limbo_block_count: 3,
            limit: 1 << 30,
            ..cuddy_stats::NONE
        };
        Scene {
            device: 3,
            asked: 1 << 29,
            alignment: 512,
            stream: 0x7f00,
            stats,
            figures: Figures { free: 1 << 28, free_blocks: 2, ..Figures::default() },
            largest: (1 << 20, 1 << 28),
            driver: Some((2 << 30, 4 << 30)),
            refused: None,
            unreachable: false,
            pages: true,
            pool: None,
            waiting: [(0x7f10, 1 << 27), (1, 1 << 26), (0, 0), (0, 0)],
        }
    }
}
