#![forbid(unsafe_code)]
//! Recent: large blocks that the heap handed out one right after another, and that were freed in the
//! opposite order.
//!
//! `blocks[..out]` are with callers, `blocks[out..len]` are free. As long as the heap's version is
//! `version`, nothing but these handouts has happened to it since the first of them; so with the free
//! ones given back it is what it was before they were handed out, and would hand out the same again.
//! Kept here, they cost it nothing: no block lies elsewhere than it would without shelves.

use super::loans::Kept;
use crate::types::Address;

/// Handouts that are remembered.
const DEEP: usize = 4;

/// See the module.
#[derive(Debug)]
pub(super) struct Recent {
    version: u64,
    out: usize,
    len: usize,
    blocks: [(Kept, u64); DEEP],
}

impl Recent {
    pub(super) const fn new() -> Self {
        Self { version: 0, out: 0, len: 0, blocks: [(Kept::NONE, 0); DEEP] }
    }

    /// The free block that is next, if it has exactly `bytes`.
    #[inline]
    pub(super) fn take(&mut self, bytes: u64) -> Option<Kept> {
        if self.out >= self.len {
            return None;
        }
        let (block, size) = *self.blocks.get(self.out)?;
        if size != bytes {
            return None;
        }
        self.out += 1;
        Some(block)
    }

    /// Whether a block is the last one that was handed out, of a heap of this version.
    #[inline]
    pub(super) fn is_last(&self, address: Address, version: u64) -> bool {
        let last = self.out.checked_sub(1).and_then(|at| self.blocks.get(at));
        version == self.version && last.is_some_and(|(block, _)| block.address() == address)
    }

    /// The last one that was handed out is free.
    #[inline]
    pub(super) fn put(&mut self) {
        self.out = self.out.saturating_sub(1);
    }

    /// The heap, of this version by now, has handed out another block. To be called with none free.
    pub(super) fn push(&mut self, block: Kept, bytes: u64, version: u64) {
        debug_assert!(self.is_empty());
        if self.version + 1 != version {
            (self.out, self.len) = (0, 0);
        } else if self.len == DEEP {
            self.blocks.copy_within(1.., 0);
            (self.out, self.len) = (DEEP - 1, DEEP - 1);
        }
        self.version = version;
        self.blocks[self.len] = (block, bytes);
        (self.out, self.len) = (self.out + 1, self.len + 1);
    }

    /// Takes the free ones out.
    #[inline]
    pub(super) fn empty(&mut self, each: &mut impl FnMut(Kept)) {
        while self.out < self.len {
            self.len -= 1;
            each(self.blocks[self.len].0);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.out == self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(number: u64) -> Kept {
        Kept::new(Address(number << 20), number as usize)
    }

    #[test]
    fn the_last_handout_alone_can_come_back_and_go_out_again() {
        let mut recent = Recent::new();
        recent.push(kept(1), 1000, 7);
        recent.push(kept(2), 2000, 8);
        assert!(!recent.is_last(Address(1 << 20), 8), "not the last");
        assert!(!recent.is_last(Address(2 << 20), 9), "the heap has changed");
        assert!(recent.is_last(Address(2 << 20), 8));
        recent.put();
        assert!(recent.is_last(Address(1 << 20), 8));
        recent.put();
        assert!(!recent.is_last(Address(1 << 20), 8), "it is free already");
        assert_eq!(recent.take(2000), None, "the other one is next");
        assert_eq!(recent.take(1000).map(Kept::address), Some(Address(1 << 20)));
        assert_eq!(recent.take(1000), None);
        let mut given = Vec::new();
        recent.empty(&mut |block| given.push(block.address().0 >> 20));
        assert_eq!((given, recent.is_empty()), (vec![2], true));
        recent.push(kept(3), 3000, 9);
        recent.put();
        assert!(recent.is_last(Address(1 << 20), 9), "what was given back changed nothing");
    }

    #[test]
    fn another_change_of_the_heap_ends_it_and_old_handouts_are_forgotten() {
        let mut recent = Recent::new();
        (1..=6).for_each(|number| recent.push(kept(number), 1000, number));
        for number in (3..=6).rev() {
            assert!(recent.is_last(Address(number << 20), 6));
            recent.put();
        }
        assert!(!recent.is_last(Address(2 << 20), 6));
        recent.empty(&mut |_| ());
        recent.push(kept(9), 1000, 9);
        recent.put();
        assert!(!recent.is_last(Address(6 << 20), 9));
    }
}
