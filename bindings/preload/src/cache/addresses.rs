#![forbid(unsafe_code)]
//! **Addresses**: the block that holds one, and what the program may know of it.

use std::collections::BTreeMap;

use super::{Block, Cache, Leave, Place, State};

/// How many guesses there are.
const GUESSES: usize = 256;

/// Blocks' slots by their addresses.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    all: BTreeMap<u64, u32>,
    /// A slot for each few of the addresses: where a block starts there, the tree is not asked.
    guesses: [u32; GUESSES],
}

/// Blocks start on multiples of 512 bytes, large ones of 2 MiB.
fn guess(address: u64) -> usize {
    ((address >> 9) ^ (address >> 21)) as usize % GUESSES
}

impl Addresses {
    pub const fn new() -> Self {
        Self { all: BTreeMap::new(), guesses: [0; GUESSES] }
    }

    pub fn insert(&mut self, address: u64, slot: u32) {
        self.all.insert(address, slot);
        self.guesses[guess(address)] = slot;
    }

    pub fn remove(&mut self, address: u64) {
        self.all.remove(&address);
    }

    /// The slots of all blocks, by address.
    pub fn slots(&self) -> Vec<u32> {
        self.all.values().copied().collect()
    }
}

impl Cache {
    /// The slot of the block that starts here.
    pub(super) fn starting(&self, address: u64) -> Option<u32> {
        let guessed = self.addresses.guesses[guess(address)];
        match self.blocks.get(guessed as usize) {
            // A block that has gone has the address 0.
            Some(block) if block.address == address && address != 0 => Some(guessed),
            _ => self.addresses.all.get(&address).copied(),
        }
    }

    /// The block that holds an address, with its slot.
    fn around(&self, address: u64) -> Option<(u32, &Block)> {
        let guessed = self.addresses.guesses[guess(address)];
        match self.blocks.get(guessed as usize) {
            Some(block) if block.address == address && address != 0 => {
                return Some((guessed, block));
            }
            _ => {}
        }
        let (start, slot) = self.addresses.all.range(..=address).next_back()?;
        let block = &self.blocks[*slot as usize];
        (address - start < block.capacity).then_some((*slot, block))
    }

    /// What is known of an address.
    pub fn look(&self, address: u64) -> Place {
        match self.around(address) {
            None => Place::Unknown,
            Some((_, b)) if b.state == State::Live && address - b.address < b.asked => {
                Place::Live {
                    base: b.address,
                    asked: b.asked,
                    capacity: b.capacity,
                    reuse: b.reuse,
                }
            }
            Some(_) => Place::Dead,
        }
    }

    /// The live block around this address is never to be reused.
    pub fn taint(&mut self, address: u64) {
        if let Some((slot, _)) = self.around(address) {
            self.blocks[slot as usize].tainted = true;
        }
    }

    /// The live block that starts here.
    pub(super) fn start_of(&self, address: u64) -> Result<u32, Leave> {
        let (slot, block) = self.around(address).ok_or(Leave::Unknown)?;
        match address - block.address {
            offset if block.state != State::Live || offset >= block.asked => Err(Leave::Dead),
            0 => Ok(slot),
            _ => Err(Leave::Inside),
        }
    }
}
