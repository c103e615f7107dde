//! The shelves: free blocks at a thread's own hand, of one device and one stream each.
//!
//! A hit takes a block of exactly its size, the one freed last: no search, no lock, no atomic
//! exchange. To the heap a block on a shelf is live ([`Loans`] knows better), so shelves are
//! bounded: `bytes of a shelf <= limit`, none of its blocks over a quarter of that. Before a device
//! is asked for memory its shelves are emptied.
//!
//! Not synchronised: a thread reaches its own by [`with_mine`], everybody's by [`stop_all`].

mod gate;
mod loans;
mod tally;

pub(crate) use self::gate::{Stopped, stop_all, with_mine};
pub(crate) use self::loans::{Lent, Loans, Standing};
pub(crate) use self::tally::{A_BLOCK, Declared, PEAKED, Tally};

use crate::mutants::mutant;
use crate::types::{Address, DeviceId, StreamSlot};

/// Sizes that a shelf has room for at once; a power of two.
const BINS: usize = 32;
/// Blocks of one size: a bin fills a cache line.
const DEEP: usize = 7;
/// Streams of one device that a thread has shelves for at once.
const MOST_SHELVES: usize = 16;
const GRANULE_BITS: u32 = 9;

/// Free blocks of one size, the one freed last on top.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Bin {
    /// Their size, in granules.
    granules: u32,
    count: u32,
    blocks: [u64; DEEP],
}

/// A thread's free blocks of one stream.
#[derive(Debug)]
pub(crate) struct Shelf {
    stream: StreamSlot,
    /// How the thread names the stream, and in which era: names change their meaning from one to the
    /// next.
    name: usize,
    era: u64,
    /// Bytes in the bins.
    bytes: u64,
    bins: [Bin; BINS],
}

impl Shelf {
    fn new(stream: StreamSlot, name: usize, era: u64) -> Self {
        let bins = [Bin::default(); BINS];
        Self { stream, name, era, bytes: 0, bins }
    }

    /// A block of exactly `bytes`.
    #[inline]
    pub(crate) fn take(&mut self, bytes: u64) -> Option<Address> {
        let granules = bytes >> GRANULE_BITS;
        let bin = &mut self.bins[place(granules)];
        if u64::from(bin.granules) == granules && bin.count > 0 {
            bin.count -= 1;
            self.bytes -= bytes;
            return bin.blocks.get(bin.count as usize).copied().map(Address);
        }
        None
    }

    /// Whether a block of `bytes` can be put here.
    #[inline]
    pub(crate) fn has_room(&self, bytes: u64, limit: u64) -> bool {
        let granules = bytes >> GRANULE_BITS;
        let bin = &self.bins[place(granules)];
        let fits =
            bin.count == 0 || (u64::from(bin.granules) == granules && (bin.count as usize) < DEEP);
        fits && is_small(bytes, limit) && self.bytes + bytes <= limit
    }

    /// Puts a free block here, for which there is room.
    #[inline]
    pub(crate) fn put(&mut self, address: Address, bytes: u64, limit: u64) {
        debug_assert!(self.has_room(bytes, limit));
        let granules = bytes >> GRANULE_BITS;
        let bin = &mut self.bins[place(granules)];
        bin.granules = granules as u32;
        if let Some(top) = bin.blocks.get_mut(bin.count as usize) {
            *top = address.0;
            bin.count += 1;
            self.bytes += bytes;
        }
    }

    /// Takes out what keeps a block of `bytes` from being put here.
    pub(crate) fn make_room(&mut self, bytes: u64, limit: u64, mut each: impl FnMut(Address)) {
        if !is_small(bytes, limit) {
            return;
        }
        if self.bytes + bytes > limit {
            (0..BINS).for_each(|at| self.empty_bin(at, &mut each));
        } else {
            self.empty_bin(place(bytes >> GRANULE_BITS), &mut each);
        }
    }

    /// Takes out everything.
    pub(crate) fn empty(&mut self, mut each: impl FnMut(Address)) {
        (0..BINS).for_each(|at| self.empty_bin(at, &mut each));
    }

    fn empty_bin(&mut self, at: usize, each: &mut impl FnMut(Address)) {
        let bin = &mut self.bins[at];
        let count = std::mem::take(&mut bin.count);
        self.bytes -= u64::from(count) * (u64::from(bin.granules) << GRANULE_BITS);
        bin.blocks.iter().take(count as usize).for_each(|&block| each(Address(block)));
    }

    fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

/// Which bin a size goes to.
#[inline]
fn place(granules: u64) -> usize {
    (granules.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as usize & (BINS - 1)
}

/// Whether a block of `bytes` can ever lie on a shelf with this limit.
#[inline]
pub(crate) fn is_small(bytes: u64, limit: u64) -> bool {
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
        let is_it = |shelf: &Shelf| shelf.name == name && shelf.era == era;
        self.shelf(is_it)
    }

    /// The shelf of a stream.
    #[inline]
    pub(crate) fn of(&mut self, stream: StreamSlot, era: u64) -> Option<(&mut Shelf, &mut Tally)> {
        self.shelf(|shelf| shelf.stream == stream && shelf.era == era)
    }

    #[inline]
    fn shelf(&mut self, is_it: impl Fn(&Shelf) -> bool) -> Option<(&mut Shelf, &mut Tally)> {
        if !self.shelves.get(self.last).is_some_and(&is_it) {
            self.last = self.shelves.iter().position(is_it)?;
        }
        let shelf = self.shelves.get_mut(self.last)?;
        Some((shelf, &mut self.tally))
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

    /// Takes everything out of every shelf.
    pub(crate) fn empty(&mut self, mut each: impl FnMut(Address)) {
        self.shelves.iter_mut().for_each(|shelf| shelf.empty(&mut each));
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
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_shelf_gives_what_it_was_given_and_keeps_its_limit() {
        let limit = 64 << 10;
        let mut shelf = Shelf::new(StreamSlot(1), 1, 1);
        let mut free: BTreeSet<(u64, u64)> = BTreeSet::new();
        let (mut random, mut hits, mut refused) = (3u64, 0, 0);
        for step in 0..100_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let draw = random >> 33;
            let bytes = 512 * (1 + draw % 60);
            match draw >> 20 & 3 {
                0 => {
                    if let Some(address) = shelf.take(bytes) {
                        assert!(
                            free.remove(&(address.0, bytes)),
                            "not the size that was put there"
                        );
                        hits += 1;
                    } else {
                        let other = free.iter().filter(|block| block.1 == bytes).count();
                        assert_eq!(other, 0, "a block of that size is there");
                    }
                }
                1 if shelf.has_room(bytes, limit) => {
                    shelf.put(Address(step << 20), bytes, limit);
                    free.insert((step << 20, bytes));
                }
                1 => {
                    refused += 1;
                    shelf.make_room(bytes, limit, |address| {
                        let gone = free.iter().find(|block| block.0 == address.0).copied();
                        assert!(free.remove(&gone.expect("it was there")));
                    });
                    assert_eq!(shelf.has_room(bytes, limit), is_small(bytes, limit));
                }
                _ => {}
            }
            assert_eq!(shelf.bytes, free.iter().map(|block| block.1).sum::<u64>());
            assert!(shelf.bytes <= limit);
        }
        assert!(hits > 1000 && refused > 1000, "{hits} hits, {refused} refused");
        let mut count = 0;
        shelf.empty(|_| count += 1);
        assert_eq!((count, shelf.is_empty()), (free.len(), true));
    }

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
