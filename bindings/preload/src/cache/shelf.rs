#![forbid(unsafe_code)]
//! The **shelf** of a device: its cached blocks by age, and which of them the driver gets back.

use cuddy::mutants::mutant;

use super::{Cache, NONE, State, Victim};

/// A device's cached blocks, by age.
#[derive(Clone, Debug)]
pub(super) struct Shelf {
    pub oldest: u32,
    pub newest: u32,
    pub cached: u64,
    pub cap: u64,
}

impl Cache {
    /// Whether a device's cache is above its cap.
    pub fn is_over(&self, device: i32) -> bool {
        let over = |shelf: &Shelf| shelf.cached > shelf.cap && shelf.oldest != NONE;
        self.shelves.get(device).is_some_and(over)
    }

    /// Takes the oldest cached blocks out, until the device's cache is within its cap.
    pub fn over(&mut self, device: i32) -> Vec<Victim> {
        let mut victims = Vec::new();
        while let Some(shelf) = self.shelves.get(device) {
            let enough = shelf.cached <= shelf.cap || mutant("preload-cap-ignored");
            if enough || shelf.oldest == NONE {
                break;
            }
            victims.push(self.evict(shelf.oldest));
        }
        victims
    }

    /// Takes all cached blocks of a device out, or just the clean ones.
    pub fn flush(&mut self, device: i32, only_clean: bool) -> Vec<Victim> {
        let mut victims = Vec::new();
        let mut at = self.shelves.get(device).map_or(NONE, |shelf| shelf.oldest);
        while at != NONE {
            let block = &self.blocks[at as usize];
            let next = block.newer;
            if !only_clean || block.state == State::Clean {
                victims.push(self.evict(at));
            }
            at = next;
        }
        victims
    }

    fn evict(&mut self, slot: u32) -> Victim {
        let block = &self.blocks[slot as usize];
        let victim =
            Victim { context: block.context, address: block.address, capacity: block.capacity };
        self.remove(slot);
        self.tally.evicted += 1;
        victim
    }

    pub(super) fn link(&mut self, device: i32, slot: u32) {
        let capacity = self.blocks[slot as usize].capacity;
        let Some(shelf) = self.shelves.get_mut(device) else { return };
        let newest = std::mem::replace(&mut shelf.newest, slot);
        if newest == NONE {
            shelf.oldest = slot;
        } else {
            self.blocks[newest as usize].newer = slot;
        }
        let block = &mut self.blocks[slot as usize];
        (block.older, block.newer) = (newest, NONE);
        shelf.cached += capacity;
        self.tally.cached_peak = self.tally.cached_peak.max(shelf.cached);
    }

    pub(super) fn unlink(&mut self, device: i32, slot: u32) {
        let block = &mut self.blocks[slot as usize];
        let (older, newer, capacity) = (block.older, block.newer, block.capacity);
        (block.older, block.newer) = (NONE, NONE);
        let Some(shelf) = self.shelves.get_mut(device) else { return };
        shelf.cached -= capacity;
        match older {
            NONE => shelf.oldest = newer,
            older => self.blocks[older as usize].newer = newer,
        }
        match newer {
            NONE => shelf.newest = older,
            newer => self.blocks[newer as usize].older = older,
        }
    }
}
