#![forbid(unsafe_code)]
//! From a block's first address to its node, without a search.
//!
//! Open addressing with linear probing over node numbers. It holds exactly the blocks that somebody
//! may name: live, in limbo, claimed. At most two thirds full, so a probe ends.

use super::slab::{NIL, Ration, Slab};
use crate::error::Error;

/// A hash table of node numbers, keyed by the address of the node.
#[derive(Debug)]
pub(super) struct Table {
    /// A power of two of places, or none at all.
    places: Vec<u32>,
    count: usize,
}

impl Table {
    pub(super) fn new() -> Self {
        Self { places: Vec::new(), count: 0 }
    }

    /// How many blocks it holds.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Where the search for an address begins.
    fn home(&self, address: u64) -> usize {
        let mixed = (address >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize & (self.places.len() - 1)
    }

    /// Makes sure that the next `more` insertions need no memory.
    #[inline]
    pub(super) fn reserve(
        &mut self,
        more: usize,
        slab: &Slab,
        ration: &mut Ration,
    ) -> Result<(), Error> {
        ration.ask()?;
        if (self.count + more) * 3 <= self.places.len() * 2 {
            return Ok(());
        }
        self.grow(more, slab)
    }

    #[cold]
    fn grow(&mut self, more: usize, slab: &Slab) -> Result<(), Error> {
        let size = ((self.count + more) * 3 / 2 + 1).next_power_of_two().max(64);
        let mut places = Vec::new();
        places.try_reserve_exact(size).map_err(|_| Error::HostOutOfMemory)?;
        places.resize(size, NIL);
        let old = std::mem::replace(&mut self.places, places);
        self.count = 0;
        for n in old.into_iter().filter(|&n| n != NIL) {
            self.insert(slab, n);
        }
        Ok(())
    }

    /// The node that starts at `address`, or NIL.
    #[inline]
    pub(super) fn find(&self, slab: &Slab, address: u64) -> u32 {
        if self.places.is_empty() {
            return NIL;
        }
        let mut place = self.home(address);
        loop {
            let n = self.places[place];
            if n == NIL || slab[n].address == address {
                return n;
            }
            place = (place + 1) & (self.places.len() - 1);
        }
    }

    /// Adds a node, for which `reserve` has made room.
    pub(super) fn insert(&mut self, slab: &Slab, n: u32) {
        let mut place = self.home(slab[n].address);
        while self.places[place] != NIL {
            place = (place + 1) & (self.places.len() - 1);
        }
        self.places[place] = n;
        self.count += 1;
    }

    /// Takes a node out, and closes the hole so that every other one is still found.
    pub(super) fn remove(&mut self, slab: &Slab, n: u32) {
        let mask = self.places.len() - 1;
        let mut hole = self.home(slab[n].address);
        while self.places[hole] != n {
            if self.places[hole] == NIL {
                debug_assert!(false, "a block is not in the table");
                return;
            }
            hole = (hole + 1) & mask;
        }
        self.count -= 1;
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let other = self.places[place];
            if other == NIL {
                break;
            }
            // It may move to the hole if its home is not between the hole and where it is.
            let home = self.home(slab[other].address);
            if (place.wrapping_sub(home) & mask) >= (place.wrapping_sub(hole) & mask) {
                self.places[hole] = other;
                hole = place;
            }
        }
        self.places[hole] = NIL;
    }
}
