//! The shelves: free blocks at a thread's own hand, of one device and one stream each.
//!
//! A hit takes a block of exactly its size, the one freed last: no search, no lock, no atomic
//! exchange. To the heap a block on a shelf is live ([`Loans`] knows better), so shelves are
//! bounded: small blocks lie in [`bins`], up to a limit in bytes; a large one only while the heap
//! would hand out the very same block ([`recent`]). Before a device is asked for memory its shelves
//! are emptied.
//!
//! Not synchronised: a thread reaches its own by [`with_mine`] and [`try_mine`], everybody's by
//! [`stop_all`].

mod bins;
mod gate;
mod loans;
mod recent;
mod tally;

use self::bins::{Bins, LARGEST_BYTES};
pub(crate) use self::gate::{Stopped, is_inside, stop_all, try_mine, with_mine};
pub(crate) use self::loans::{Kept, Lent, Loans, Standing};
use self::recent::Recent;
pub(crate) use self::tally::{Counted, Declared, Tally};

use crate::mutants::mutant;
use crate::types::{Address, DeviceId, StreamSlot};

/// Streams of one device that a thread has shelves for at once.
const MOST_SHELVES: usize = 16;

/// Among the first so many a thread has nameless ones; the rest is for streams that it allocates on.
const MOST_NAMELESS: usize = MOST_SHELVES / 2;

/// What no stream is called.
const NAMELESS: usize = 0;

/// A thread's free blocks of one stream.
#[derive(Debug)]
pub(crate) struct Shelf {
    /// How the thread names the stream, and in which era: names change their meaning from one to the
    /// next.
    name: usize,
    era: u64,
    stream: StreamSlot,
    recent: Recent,
    bins: Bins,
}

impl Shelf {
    const fn new(stream: StreamSlot, name: usize, era: u64) -> Self {
        Self { name, era, stream, recent: Recent::new(), bins: Bins::new() }
    }

    /// The stream whose blocks it holds.
    #[inline]
    pub(crate) fn stream(&self) -> StreamSlot {
        self.stream
    }

    /// A block of exactly `bytes`.
    #[inline]
    pub(crate) fn take(&mut self, bytes: u64) -> Option<Kept> {
        match bytes <= LARGEST_BYTES {
            true => self.bins.take(bytes),
            false => self.recent.take(bytes),
        }
    }

    /// Whether a block can be put here; `version` is the heap's.
    #[inline]
    pub(crate) fn has_room(&self, address: Address, bytes: u64, limit: u64, version: u64) -> bool {
        match bytes <= LARGEST_BYTES {
            true => is_small(bytes, limit) && self.bins.has_room(bytes, limit),
            false => self.recent.is_last(address, version),
        }
    }

    /// Puts a free block here, for which there is room.
    #[inline]
    pub(crate) fn put(&mut self, block: Kept, bytes: u64) {
        match bytes <= LARGEST_BYTES {
            true => self.bins.put(block, bytes),
            false => self.recent.put(),
        }
    }

    /// The heap, of this version, has just handed a block out.
    pub(crate) fn handed_out(&mut self, block: Kept, bytes: u64, version: u64) {
        if bytes > LARGEST_BYTES {
            self.recent.push(block, bytes, version);
        }
    }

    /// Takes out what keeps a block of `bytes` from being put here.
    pub(crate) fn make_room(&mut self, bytes: u64, limit: u64, each: impl FnMut(Kept)) {
        if bytes <= LARGEST_BYTES && is_small(bytes, limit) {
            self.bins.make_room(bytes, limit, each);
        }
    }

    /// Takes out everything.
    pub(crate) fn empty(&mut self, mut each: impl FnMut(Kept)) {
        self.recent.empty(&mut each);
        self.bins.empty(&mut each);
    }

    fn is_empty(&self) -> bool {
        self.bins.is_empty() && self.recent.is_empty()
    }
}

/// Whether a block of `bytes` can lie in the bins of a shelf with this limit.
#[inline]
fn is_small(bytes: u64, limit: u64) -> bool {
    bytes <= limit / 4
}

/// What a thread has of one device.
#[derive(Debug, Default)]
pub(crate) struct OfDevice {
    pub(crate) tally: Tally,
    /// Whether the device knows of the tally.
    pub(crate) known: bool,
    shelves: Vec<Shelf>,
    /// The shelf used last.
    last: usize,
}

impl OfDevice {
    /// The shelf of a stream that the thread names so, in this era.
    #[inline]
    pub(crate) fn named(&mut self, name: usize, era: u64) -> Option<(&mut Shelf, &mut Tally)> {
        self.shelf(|shelf| shelf.name == name && shelf.era == era)
    }

    /// The shelf of a stream.
    #[inline]
    pub(crate) fn of(&mut self, stream: StreamSlot, era: u64) -> Option<(&mut Shelf, &mut Tally)> {
        self.shelf(|shelf| shelf.stream == stream && shelf.era == era)
    }

    #[inline(always)]
    fn shelf(&mut self, is_it: impl Fn(&Shelf) -> bool) -> Option<(&mut Shelf, &mut Tally)> {
        if !self.shelves.get(self.last).is_some_and(&is_it) {
            self.search(is_it)?;
        }
        let shelf = self.shelves.get_mut(self.last)?;
        Some((shelf, &mut self.tally))
    }

    #[inline(never)]
    fn search(&mut self, is_it: impl Fn(&Shelf) -> bool) -> Option<()> {
        self.last = self.shelves.iter().position(is_it)?;
        Some(())
    }

    /// Sets a shelf up for a stream; not if there are too many, or host memory ran out.
    pub(crate) fn set_up(&mut self, stream: StreamSlot, name: usize, era: u64) {
        let same = self.shelves.iter_mut().find(|shelf| shelf.stream == stream);
        if let Some(shelf) = same {
            (shelf.name, shelf.era) = (name, era);
            return;
        }
        let unused = self.shelves.iter_mut().find(|shelf| shelf.era != era && shelf.is_empty());
        if let Some(shelf) = unused {
            *shelf = Shelf::new(stream, name, era);
            return;
        }
        if self.shelves.len() < MOST_SHELVES && self.shelves.try_reserve(1).is_ok() {
            self.shelves.push(Shelf::new(stream, name, era));
        }
    }

    /// The shelf of a stream, to free blocks to: a thread that only frees has one without a name.
    #[inline]
    pub(crate) fn shelf_for(&mut self, stream: StreamSlot, era: u64) -> Option<&mut Shelf> {
        if self.of(stream, era).is_none() && self.shelves.len() < MOST_NAMELESS {
            let name = if mutant("shelf-nameless-is-anybodys") { usize::MAX } else { NAMELESS };
            self.set_up(stream, name, era);
        }
        self.of(stream, era).map(|(shelf, _)| shelf)
    }

    /// Takes everything out of every shelf.
    pub(crate) fn empty(&mut self, mut each: impl FnMut(Kept)) {
        self.shelves.iter_mut().for_each(|shelf| shelf.empty(&mut each));
    }

    /// Takes the large blocks out of every shelf: the heap is about to change.
    #[inline]
    pub(crate) fn empty_recent(&mut self, mut each: impl FnMut(Kept)) {
        self.shelves.iter_mut().for_each(|shelf| shelf.recent.empty(&mut each));
    }
}

/// What a thread has of every device.
#[derive(Debug, Default)]
pub(crate) struct Shelves {
    devices: Vec<OfDevice>,
}

impl Shelves {
    /// Another thread takes these over: what the last one called a stream may be another one now.
    fn forget_names(&mut self) {
        if mutant("shelf-names-inherited") {
            return;
        }
        let shelves = self.devices.iter_mut().flat_map(|device| &mut device.shelves);
        shelves.for_each(|shelf| shelf.era = 0);
    }

    /// What there is of a device.
    #[inline]
    pub(crate) fn of(&mut self, device: DeviceId) -> Option<&mut OfDevice> {
        self.devices.get_mut(device.0 as usize)
    }

    /// The same, made if it is not there yet; `None` if host memory ran out.
    pub(crate) fn make(&mut self, device: DeviceId) -> Option<&mut OfDevice> {
        let count = device.0 as usize + 1;
        if self.devices.len() < count {
            self.devices.try_reserve(count - self.devices.len()).ok()?;
            self.devices.resize_with(count, OfDevice::default);
        }
        self.devices.get_mut(device.0 as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_good_within_its_era() {
        let mut mine = OfDevice::default();
        mine.set_up(StreamSlot(3), 0x1000, 1);
        assert!(mine.named(0x1000, 1).is_some() && mine.of(StreamSlot(3), 1).is_some());
        assert!(mine.named(0x1000, 2).is_none() && mine.of(StreamSlot(3), 2).is_none());
        mine.set_up(StreamSlot(4), 0x1000, 2);
        mine.set_up(StreamSlot(3), 0x2000, 2);
        let slot = |found: Option<(&mut Shelf, &mut Tally)>| found.map(|(shelf, _)| shelf.stream);
        assert_eq!(slot(mine.named(0x1000, 2)), Some(StreamSlot(4)));
        assert_eq!(slot(mine.named(0x2000, 2)), Some(StreamSlot(3)));
        for stream in 10..200 {
            mine.set_up(StreamSlot(stream), stream as usize, 2);
        }
        assert_eq!(mine.shelves.len(), MOST_SHELVES);
    }
}
