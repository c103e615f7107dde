#![forbid(unsafe_code)]
//! Shares: what each stream has of the heap.
//!
//! For every stream: the tree of its free blocks, and a [`Holding`], the sums over its blocks. The
//! streams that have free blocks are listed, so that nothing walks over the others. Room is made
//! when a stream is first known; nothing later needs memory.

use super::slab::{NIL, Ration, reserve};
use crate::error::Error;
use crate::types::StreamSlot;

/// What a stream has of the heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Bytes of its free blocks.
    pub free: u64,
    /// Of them, what could be given back: whole pages inside one block, segments that are one block.
    pub releasable: u64,
    /// How many free blocks it has.
    pub free_blocks: u64,
    /// How many of its blocks are live, in limbo, or claimed.
    pub held_blocks: u64,
}

#[derive(Clone, Copy, Debug)]
struct Share {
    root: u32,
    /// Its place in the list, while it has free blocks.
    place: u32,
    holding: Holding,
}

/// The shares of all streams, by slot.
#[derive(Debug, Default)]
pub(super) struct Shares {
    shares: Vec<Share>,
    with_free: Vec<u32>,
}

impl Shares {
    /// Makes room for a stream.
    #[inline]
    pub(super) fn know(&mut self, stream: u32, ration: &mut Ration) -> Result<(), Error> {
        if (stream as usize) < self.shares.len() { Ok(()) } else { self.grow(stream, ration) }
    }

    #[cold]
    fn grow(&mut self, stream: u32, ration: &mut Ration) -> Result<(), Error> {
        let size = stream as usize + 1;
        let more = size - self.shares.len();
        reserve(&mut self.shares, more, ration)?;
        let more = size - self.with_free.len();
        reserve(&mut self.with_free, more, ration)?;
        let none = Share { root: NIL, place: NIL, holding: Holding::default() };
        self.shares.resize(size, none);
        Ok(())
    }

    /// How many slots have room.
    pub(super) fn len(&self) -> usize {
        self.shares.len()
    }

    /// The stream's tree; NIL for one that is not known.
    #[inline]
    pub(super) fn root(&self, stream: u32) -> u32 {
        self.shares.get(stream as usize).map_or(NIL, |share| share.root)
    }

    pub(super) fn set_root(&mut self, stream: u32, root: u32) {
        self.shares[stream as usize].root = root;
    }

    pub(super) fn holding(&self, stream: u32) -> Holding {
        self.shares.get(stream as usize).map_or(Holding::default(), |share| share.holding)
    }

    /// The streams that have free blocks.
    pub(super) fn with_free(&self) -> impl Iterator<Item = StreamSlot> + '_ {
        self.with_free.iter().map(|&stream| StreamSlot(stream))
    }

    /// The count of a stream's blocks that are live, in limbo or claimed.
    pub(super) fn held(&mut self, stream: u32) -> &mut u64 {
        &mut self.shares[stream as usize].holding.held_blocks
    }

    /// Adds a free block of (bytes, releasable bytes), or takes it out.
    pub(super) fn count(
        &mut self,
        stream: u32,
        apply: impl Fn(&mut u64, u64),
        (bytes, releasable): (u64, u64),
    ) {
        let share = &mut self.shares[stream as usize];
        let before = share.holding.free_blocks;
        apply(&mut share.holding.free, bytes);
        apply(&mut share.holding.releasable, releasable);
        apply(&mut share.holding.free_blocks, 1);
        if before == 0 {
            share.place = self.with_free.len() as u32;
            self.with_free.push(stream);
        } else if share.holding.free_blocks == 0 {
            let place = share.place as usize;
            self.with_free.swap_remove(place);
            if let Some(&moved) = self.with_free.get(place) {
                self.shares[moved as usize].place = place as u32;
            }
        }
    }
}
