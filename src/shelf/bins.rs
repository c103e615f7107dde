#![forbid(unsafe_code)]
//! Bins: free blocks sorted by their exact size, the one freed last of each on top.
//!
//! `bytes == sum over the bins (count * size)`; `used` has the bit of every bin that is not empty.

use super::loans::Kept;

/// Granules of the largest block that has a bin.
const LARGEST: usize = 128;
/// Blocks of one size: a bin fills a cache line.
const DEEP: usize = 7;
/// Words of `used`.
const WORDS: usize = LARGEST / 64 + 1;
const GRANULE_BITS: u32 = 9;

/// Bytes of the largest block that has a bin.
pub(crate) const LARGEST_BYTES: u64 = (LARGEST as u64) << GRANULE_BITS;

/// Free blocks of one size.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Bin {
    count: u64,
    blocks: [Kept; DEEP],
}

/// See the module.
#[derive(Debug)]
pub(super) struct Bins {
    bytes: u64,
    used: [u64; WORDS],
    /// By size in granules; there are no blocks of none.
    bins: [Bin; LARGEST + 1],
}

impl Bins {
    pub(super) const fn new() -> Self {
        const EMPTY: Bin = Bin { count: 0, blocks: [Kept::NONE; DEEP] };
        Self { bytes: 0, used: [0; WORDS], bins: [EMPTY; LARGEST + 1] }
    }

    /// The block of exactly `bytes` that was freed last.
    #[inline]
    pub(super) fn take(&mut self, bytes: u64) -> Option<Kept> {
        let bin = self.bins.get_mut((bytes >> GRANULE_BITS) as usize)?;
        let top = bin.count.checked_sub(1)?;
        let block = *bin.blocks.get(top as usize)?;
        bin.count = top;
        self.bytes -= bytes;
        Some(block)
    }

    /// Whether a block of `bytes` can be put here.
    #[inline]
    pub(super) fn has_room(&self, bytes: u64, limit: u64) -> bool {
        let bin = self.bins.get((bytes >> GRANULE_BITS) as usize);
        bin.is_some_and(|bin| bin.count < DEEP as u64) && self.bytes + bytes <= limit
    }

    /// Puts a free block here, for which there is room.
    #[inline]
    pub(super) fn put(&mut self, block: Kept, bytes: u64) {
        let granules = (bytes >> GRANULE_BITS) as usize;
        let Some(bin) = self.bins.get_mut(granules) else { return };
        if let Some(top) = bin.blocks.get_mut(bin.count as usize) {
            *top = block;
            bin.count += 1;
            self.bytes += bytes;
            self.used[granules / 64 % WORDS] |= 1 << (granules % 64);
        }
    }

    /// Takes out what keeps a block of `bytes` from being put here.
    pub(super) fn make_room(&mut self, bytes: u64, limit: u64, mut each: impl FnMut(Kept)) {
        if self.bytes + bytes > limit {
            self.empty(each);
        } else {
            self.empty_bin((bytes >> GRANULE_BITS) as usize, &mut each);
        }
    }

    /// Takes out everything.
    pub(super) fn empty(&mut self, mut each: impl FnMut(Kept)) {
        for word in 0..WORDS {
            while self.used[word] != 0 {
                self.empty_bin(word * 64 + self.used[word].trailing_zeros() as usize, &mut each);
            }
        }
    }

    fn empty_bin(&mut self, granules: usize, each: &mut impl FnMut(Kept)) {
        let Some(bin) = self.bins.get_mut(granules) else { return };
        let count = std::mem::take(&mut bin.count);
        self.bytes -= count * ((granules as u64) << GRANULE_BITS);
        self.used[granules / 64] &= !(1 << (granules % 64));
        bin.blocks.iter().take(count as usize).for_each(|&block| each(block));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    #[cfg(test)]
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::types::Address;

    #[test]
    fn they_give_what_they_were_given_and_keep_the_limit() {
        let limit = 1 << 20;
        let mut bins = Bins::new();
        let mut free: BTreeSet<(u64, u64)> = BTreeSet::new();
        let (mut random, mut hits, mut refused) = (3u64, 0, 0);
        for step in 0..100_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let draw = random >> 33;
            let bytes = 512 * (1 + draw % 140);
            match draw >> 20 & 3 {
                0 => {
                    if let Some(block) = bins.take(bytes) {
                        let known = free.remove(&(block.address().0, bytes));
                        assert!(known, "not the size that was put there");
                        hits += 1;
                    } else {
                        let same = free.iter().filter(|block| block.1 == bytes).count();
                        assert_eq!(same, 0, "a block of that size is there");
                    }
                }
                1 if bins.has_room(bytes, limit) => {
                    bins.put(Kept::new(Address(step << 20), step as usize), bytes);
                    free.insert((step << 20, bytes));
                }
                1 => {
                    refused += 1;
                    bins.make_room(bytes, limit, |block| {
                        let gone = free.iter().find(|other| other.0 == block.address().0).copied();
                        assert!(free.remove(&gone.expect("it was there")));
                    });
                    assert_eq!(bins.has_room(bytes, limit), bytes <= LARGEST_BYTES);
                }
                _ => {}
            }
            assert_eq!(bins.bytes(), free.iter().map(|block| block.1).sum::<u64>());
            assert!(bins.bytes() <= limit);
        }
        assert!(hits > 1000 && refused > 1000, "{hits} hits, {refused} refused");
        let mut count = 0;
        bins.empty(|_| count += 1);
        assert_eq!((count, bins.is_empty()), (free.len(), true));
    }
}
