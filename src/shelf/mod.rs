//! The shelves: free blocks at a thread's own hand, of one device and one stream each.
//!
//! A hit takes a block of exactly its size, the one freed last: no search, no lock, no atomic
//! exchange. To the heap a block on a shelf is live ([`Loans`] knows better), so shelves are
//! bounded: `bytes in the bins <= limit`, and beside them one larger block, the one freed last.
//! Before a device is asked for memory its shelves are emptied.
//!
//! Not synchronised: a thread reaches its own by [`with_mine`], everybody's by [`stop_all`].

mod gate;
mod loans;
mod tally;

pub(crate) use self::gate::{Stopped, stop_all, with_mine};
pub(crate) use self::loans::{Lent, Loans, Standing};
pub(crate) use self::tally::{A_BLOCK, Declared, PEAKED, Tally};

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
    /// A larger block, and its size; 0 for none.
    large: u64,
    large_bytes: u64,
    bins: [Bin; BINS],
}

impl Shelf {
    fn new(stream: StreamSlot, name: usize, era: u64) -> Self {
        let bins = [Bin::default(); BINS];
        Self { stream, name, era, bytes: 0, large: 0, large_bytes: 0, bins }
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
        if self.large_bytes == bytes && bytes > 0 {
            self.large_bytes = 0;
            return Some(Address(self.large));
        }
        None
    }

    /// Whether a block of `bytes` can be put here.
    #[inline]
    pub(crate) fn has_room(&self, bytes: u64, limit: u64) -> bool {
        if is_large(bytes, limit) {
            return self.large_bytes == 0;
        }
        let granules = bytes >> GRANULE_BITS;
        let bin = &self.bins[place(granules)];
        let fits =
            bin.count == 0 || (u64::from(bin.granules) == granules && (bin.count as usize) < DEEP);
        fits && self.bytes + bytes <= limit
    }

    /// Puts a free block here, for which there is room.
    #[inline]
    pub(crate) fn put(&mut self, address: Address, bytes: u64, limit: u64) {
        debug_assert!(self.has_room(bytes, limit));
        if is_large(bytes, limit) {
            (self.large, self.large_bytes) = (address.0, bytes);
            return;
        }
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
        if is_large(bytes, limit) {
            self.take_large().into_iter().for_each(each);
        } else if self.bytes + bytes > limit {
            (0..BINS).for_each(|at| self.empty_bin(at, &mut each));
        } else {
            self.empty_bin(place(bytes >> GRANULE_BITS), &mut each);
        }
    }

    /// Takes out the large block.
    pub(crate) fn take_large(&mut self) -> Option<Address> {
        (std::mem::take(&mut self.large_bytes) > 0).then_some(Address(self.large))
    }

    /// Takes out everything.
    pub(crate) fn empty(&mut self, mut each: impl FnMut(Address)) {
        self.take_large().into_iter().for_each(&mut each);
        (0..BINS).for_each(|at| self.empty_bin(at, &mut each));
    }

    fn empty_bin(&mut self, at: usize, each: &mut impl FnMut(Address)) {
        let bin = &mut self.bins[at];
        let count = std::mem::take(&mut bin.count);
        self.bytes -= u64::from(count) * (u64::from(bin.granules) << GRANULE_BITS);
        bin.blocks.iter().take(count as usize).for_each(|&block| each(Address(block)));
    }

    fn is_empty(&self) -> bool {
        self.bytes == 0 && self.large_bytes == 0
    }
}

/// Which bin a size goes to.
#[inline]
fn place(granules: u64) -> usize {
    (granules.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as usize & (BINS - 1)
}

/// Whether a block is one of those that a shelf holds one of. Bins count granules in 32 bits.
#[inline]
fn is_large(bytes: u64, limit: u64) -> bool {
    bytes > limit / 4 || bytes >> (GRANULE_BITS + 32) != 0
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
        if !self.shelves.get(self.last).is_some_and(|shelf| is_it(shelf)) {
            self.last = self.shelves.iter().position(|shelf| is_it(shelf))?;
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
