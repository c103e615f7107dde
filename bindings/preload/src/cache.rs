#![forbid(unsafe_code)]
//! The **cache**: whole driver allocations, and which of them may be handed out again.
//!
//! A block is what one `cuMemAlloc` of ours gave. It is in one state: *live* (the program has it),
//! *leaving* (its free is under way), or cached: in *limbo* (work may still use it, and no fence has
//! been recorded), *fenced* (a fence is), or *clean* (nothing uses it any more). Only clean blocks
//! are handed out, to a request of their own context that fills at least 8/9 of them.
//!
//! `cached(device)` is the sum of the capacities of its cached blocks, always; it is at most the cap
//! after [`Cache::over`] and before the next free. Numbers only: what is decided here is done by
//! the hooks.

mod addresses;
mod ends;
mod shelf;
mod tally;
mod waiting;

use cuddy::mutants::mutant;

use crate::few::Few;
use addresses::Addresses;
pub use ends::Aside;
use shelf::Shelf;
pub use tally::Tally;
use waiting::Waiting;

/// From here on the driver maps in units of this size anyway.
const LARGE: u64 = 2 << 20;
/// Below it, blocks are rounded to this.
const SMALL: u64 = 512;

/// What to ask the driver for, to serve a request of so many bytes.
pub fn capacity_of(bytes: u64) -> u64 {
    let unit = if bytes < LARGE { SMALL } else { LARGE };
    bytes.checked_next_multiple_of(unit).unwrap_or(bytes)
}

/// The largest block that may serve a request: one that is 12.5 % too large.
fn most_for(bytes: u64) -> u64 {
    capacity_of(bytes).max(bytes.saturating_add(bytes / 8))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Live,
    Leaving,
    Limbo,
    Fenced(u64),
    Clean,
}

#[derive(Clone, Debug)]
struct Block {
    address: u64,
    capacity: u64,
    asked: u64,
    context: usize,
    state: State,
    tainted: bool,
    /// 0 for the driver's own allocation, else the number of the reuse.
    reuse: u64,
    /// Its place in the list of its bucket, while it is clean.
    place: u32,
    older: u32,
    newer: u32,
}

const NONE: u32 = u32::MAX;

/// A context's cached blocks of one capacity.
#[derive(Clone, Debug, Default)]
struct Bucket {
    clean: Vec<u32>,
    /// How many are in limbo or fenced.
    waiting: u32,
}

/// A context's cached blocks, by capacity, and its fences.
#[derive(Clone, Debug, Default)]
struct Room {
    device: i32,
    buckets: Few<u64, Bucket>,
    waiting: Waiting,
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Not in a block of ours.
    Unknown,
    /// In what the program has: the request's range, the block's capacity, the number of its reuse.
    Live { base: u64, asked: u64, capacity: u64, reuse: u64 },
    /// In a block of ours, but in nothing that the program has.
    Dead,
}

/// What a free comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Not a block of ours: the driver's to judge.
    Unknown,
    /// In a block of ours, which the program does not have: as wrong as an address never given out.
    Dead,
    /// Inside a live block: the driver's to refuse.
    Inside,
    /// A block that must not be reused; it is the driver's again, and no longer known here.
    Pass(Why),
    /// Leaving: [`Cache::rest`], [`Cache::settle`] or [`Cache::forget`] comes next.
    Keep { context: usize, device: i32 },
}

/// Why a block goes back to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was exported, or an attribute of it was set.
    Tainted,
    /// It alone is larger than the cap.
    TooLarge,
}

/// A block that the driver gets back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    pub context: usize,
    pub address: u64,
    pub capacity: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Cache {
    blocks: Vec<Block>,
    spare: Vec<u32>,
    addresses: Addresses,
    rooms: Few<usize, Room>,
    shelves: Few<i32, Shelf>,
    epoch: u64,
    reuses: u64,
    tally: Tally,
}

impl Cache {
    /// An empty one.
    pub const fn new() -> Self {
        Self {
            blocks: Vec::new(),
            spare: Vec::new(),
            addresses: Addresses::new(),
            rooms: Few::new(),
            shelves: Few::new(),
            epoch: 0,
            reuses: 0,
            tally: Tally::NONE,
        }
    }

    /// What happened so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// The device of a context that has been introduced.
    pub fn device_of(&self, context: usize) -> Option<i32> {
        self.rooms.get(context).map(|room| room.device)
    }

    /// Contexts of a device.
    pub fn contexts_of(&self, device: i32) -> Vec<usize> {
        let of_it = self.rooms.iter().filter(|(_, room)| room.device == device);
        of_it.map(|(context, _)| *context).collect()
    }

    /// Makes a context known; a device's cap is the one that was said last.
    pub fn introduce(&mut self, context: usize, device: i32, cap: u64) {
        self.rooms.or_insert(context, Room::default).device = device;
        let empty = Shelf { oldest: NONE, newest: NONE, cached: 0, cap };
        self.shelves.or_insert(device, || empty).cap = cap;
    }

    /// Bytes of a device that a request could have without the driver, once their fences have passed.
    pub fn cached(&self, device: i32) -> u64 {
        self.shelves.get(device).map_or(0, |shelf| shelf.cached)
    }

    /// Hands out the smallest clean block that fits.
    pub fn take(&mut self, context: usize, bytes: u64) -> Option<u64> {
        let room = self.rooms.get_mut(context)?;
        let most = if mutant("preload-takes-any-size") { u64::MAX } else { most_for(bytes) };
        let slot = room.buckets.between(bytes, most).find_map(|(_, of)| of.clean.pop())?;
        let device = room.device;
        self.unlink(device, slot);
        self.reuses += 1;
        let block = &mut self.blocks[slot as usize];
        (block.state, block.asked, block.reuse) = (State::Live, bytes, self.reuses);
        let address = block.address;
        self.tally.hits += 1;
        self.lives(bytes);
        Some(address)
    }

    /// Whether a block that is not clean yet would fit.
    pub fn waits(&mut self, context: usize, bytes: u64) -> bool {
        let Some(room) = self.rooms.get_mut(context) else { return false };
        room.buckets.between(bytes, most_for(bytes)).any(|(_, bucket)| bucket.waiting > 0)
    }

    /// A block that the driver has just given for a request.
    pub fn admit(&mut self, context: usize, address: u64, capacity: u64, asked: u64) {
        // What the driver gives anew was freed behind our back, if we still know it.
        self.forget(address);
        let state = State::Live;
        let (older, newer) = (NONE, NONE);
        self.enter(Block {
            address,
            capacity,
            asked,
            context,
            state,
            tainted: false,
            reuse: 0,
            place: 0,
            older,
            newer,
        });
        self.tally.misses += 1;
        self.lives(asked);
        self.tally.held += capacity;
        self.tally.held_peak = self.tally.held_peak.max(self.tally.held);
    }

    fn enter(&mut self, block: Block) {
        let address = block.address;
        let slot = match self.spare.pop() {
            Some(slot) => {
                self.blocks[slot as usize] = block;
                slot
            }
            None => {
                self.blocks.push(block);
                self.blocks.len() as u32 - 1
            }
        };
        self.addresses.insert(address, slot);
    }

    fn lives(&mut self, asked: u64) {
        self.tally.live += asked;
        self.tally.live_peak = self.tally.live_peak.max(self.tally.live);
    }

    /// A free of this address begins.
    pub fn leave(&mut self, address: u64) -> Leave {
        self.start_of(address).map_or_else(|left| left, |slot| self.leave_slot(slot))
    }

    /// A free of this address, whose block may still be in use: [`Cache::leave`] and
    /// [`Cache::rest`] in one.
    pub fn retire(&mut self, address: u64) -> Leave {
        let slot = match self.start_of(address) {
            Ok(slot) => slot,
            Err(left) => return left,
        };
        let left = self.leave_slot(slot);
        if matches!(left, Leave::Keep { .. }) {
            self.shelve(slot, State::Limbo);
        }
        left
    }

    fn leave_slot(&mut self, slot: u32) -> Leave {
        let block = &mut self.blocks[slot as usize];
        let (context, capacity, address) = (block.context, block.capacity, block.address);
        let Some(room) = self.rooms.get(context) else { return Leave::Unknown };
        let device = room.device;
        let why = if block.tainted {
            self.tally.tainted += 1;
            Why::Tainted
        } else if self.shelves.get(device).is_none_or(|shelf| capacity > shelf.cap) {
            self.tally.too_large += 1;
            Why::TooLarge
        } else {
            block.state = State::Leaving;
            self.tally.live -= block.asked;
            return Leave::Keep { context, device };
        };
        self.forget(address);
        Leave::Pass(why)
    }

    /// A leaving block may still be in use.
    pub fn rest(&mut self, address: u64) {
        if let Some(slot) = self.leaving(address) {
            self.shelve(slot, State::Limbo);
        }
    }

    /// A leaving block is in use by nothing any more.
    pub fn settle(&mut self, address: u64) {
        if let Some(slot) = self.leaving(address) {
            self.shelve(slot, State::Clean);
        }
    }

    fn leaving(&self, address: u64) -> Option<u32> {
        let slot = self.starting(address)?;
        (self.blocks[slot as usize].state == State::Leaving).then_some(slot)
    }

    fn shelve(&mut self, slot: u32, state: State) {
        let block = &mut self.blocks[slot as usize];
        block.state = state;
        let (context, capacity, address) = (block.context, block.capacity, block.address);
        let Some(room) = self.rooms.get_mut(context) else { return };
        let bucket = room.buckets.or_insert(capacity, Bucket::default);
        if state == State::Clean {
            block.place = bucket.clean.len() as u32;
            bucket.clean.push(slot);
        } else {
            bucket.waiting += 1;
            room.waiting.limbo.push((slot, address));
        }
        let device = room.device;
        self.link(device, slot);
        self.tally.kept += 1;
    }

    /// A block is no longer ours to know: the driver has it, or gets it.
    pub fn forget(&mut self, address: u64) {
        if let Some(slot) = self.starting(address) {
            self.remove(slot);
        }
    }

    fn remove(&mut self, slot: u32) {
        let block = self.blocks[slot as usize].clone();
        match block.state {
            State::Live => self.tally.live -= block.asked,
            State::Leaving => {}
            State::Clean | State::Limbo | State::Fenced(_) => {
                let mut device = None;
                if let Some(room) = self.rooms.get_mut(block.context) {
                    device = Some(room.device);
                    let bucket = room.buckets.get_mut(block.capacity);
                    match bucket {
                        Some(bucket) if block.state == State::Clean => {
                            let place = block.place as usize;
                            bucket.clean.swap_remove(place);
                            if let Some(moved) = bucket.clean.get(place) {
                                self.blocks[*moved as usize].place = block.place;
                            }
                        }
                        Some(bucket) => bucket.waiting -= 1,
                        None => {}
                    }
                }
                if let Some(device) = device {
                    self.unlink(device, slot);
                }
            }
        }
        self.addresses.remove(block.address);
        self.tally.held -= block.capacity;
        // Lists of limbo and fences name it by slot and address: neither matches any more.
        self.blocks[slot as usize].address = 0;
        self.spare.push(slot);
    }
}

#[cfg(test)]
#[path = "cache_test.rs"]
mod tests;
