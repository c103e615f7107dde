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

use std::collections::{BTreeMap, VecDeque};

use cuddy::mutants::mutant;

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

/// A device's cached blocks, by age.
#[derive(Clone, Debug)]
struct Shelf {
    oldest: u32,
    newest: u32,
    cached: u64,
    cap: u64,
}

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
    buckets: BTreeMap<u64, Bucket>,
    limbo: Vec<(u32, u64)>,
    fenced: VecDeque<(u64, Vec<(u32, u64)>)>,
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

/// What happened so far, and the peaks of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests served from the cache.
    pub hits: u64,
    /// Requests that the driver served.
    pub misses: u64,
    /// Frees that kept the block.
    pub kept: u64,
    /// Frees of blocks that must not be reused.
    pub tainted: u64,
    /// Frees of blocks larger than the cap.
    pub too_large: u64,
    /// Cached blocks given back to the driver.
    pub evicted: u64,
    /// Bytes that the program has, as asked, now and at most.
    pub live: u64,
    pub live_peak: u64,
    /// Bytes held from the driver, now and at most.
    pub held: u64,
    pub held_peak: u64,
    /// Bytes cached at most.
    pub cached_peak: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    blocks: Vec<Block>,
    spare: Vec<u32>,
    by_address: BTreeMap<u64, u32>,
    rooms: BTreeMap<usize, Room>,
    shelves: BTreeMap<i32, Shelf>,
    epoch: u64,
    reuses: u64,
    tally: Tally,
}

/// The blocks of a context that may be about to end.
#[derive(Debug)]
pub struct Aside {
    context: usize,
    room: Room,
    blocks: Vec<Block>,
}

impl Cache {
    /// An empty one.
    pub const fn new() -> Self {
        Self {
            blocks: Vec::new(),
            spare: Vec::new(),
            by_address: BTreeMap::new(),
            rooms: BTreeMap::new(),
            shelves: BTreeMap::new(),
            epoch: 0,
            reuses: 0,
            tally: Tally {
                hits: 0,
                misses: 0,
                kept: 0,
                tainted: 0,
                too_large: 0,
                evicted: 0,
                live: 0,
                live_peak: 0,
                held: 0,
                held_peak: 0,
                cached_peak: 0,
            },
        }
    }

    /// What happened so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// The device of a context that has been introduced.
    pub fn device_of(&self, context: usize) -> Option<i32> {
        self.rooms.get(&context).map(|room| room.device)
    }

    /// Contexts of a device.
    pub fn contexts_of(&self, device: i32) -> Vec<usize> {
        let of_it = self.rooms.iter().filter(|(_, room)| room.device == device);
        of_it.map(|(context, _)| *context).collect()
    }

    /// Makes a context known; a device's cap is the one that was said last.
    pub fn introduce(&mut self, context: usize, device: i32, cap: u64) {
        self.rooms.entry(context).or_default().device = device;
        let empty = Shelf { oldest: NONE, newest: NONE, cached: 0, cap };
        self.shelves.entry(device).or_insert(empty).cap = cap;
    }

    /// Bytes of a device that a request could have without the driver, once their fences have passed.
    pub fn cached(&self, device: i32) -> u64 {
        self.shelves.get(&device).map_or(0, |shelf| shelf.cached)
    }

    /// Hands out the smallest clean block that fits.
    pub fn take(&mut self, context: usize, bytes: u64) -> Option<u64> {
        let room = self.rooms.get_mut(&context)?;
        let most = if mutant("preload-takes-any-size") { u64::MAX } else { most_for(bytes) };
        let fitting = room.buckets.range_mut(bytes..=most);
        let slot = fitting.filter_map(|(_, bucket)| bucket.clean.pop()).next()?;
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
    pub fn waits(&self, context: usize, bytes: u64) -> bool {
        let Some(room) = self.rooms.get(&context) else { return false };
        room.buckets.range(bytes..=most_for(bytes)).any(|(_, bucket)| bucket.waiting > 0)
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
        self.by_address.insert(address, slot);
    }

    fn lives(&mut self, asked: u64) {
        self.tally.live += asked;
        self.tally.live_peak = self.tally.live_peak.max(self.tally.live);
    }

    /// The block that holds an address, with its slot.
    fn around(&self, address: u64) -> Option<(u32, &Block)> {
        let (start, slot) = self.by_address.range(..=address).next_back()?;
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

    /// A free of this address begins.
    pub fn leave(&mut self, address: u64) -> Leave {
        let Some((slot, block)) = self.around(address) else { return Leave::Unknown };
        if block.state != State::Live || address - block.address >= block.asked {
            return Leave::Dead;
        }
        if address != block.address {
            return Leave::Inside;
        }
        let (context, capacity, asked, tainted) =
            (block.context, block.capacity, block.asked, block.tainted);
        let Some(device) = self.device_of(context) else { return Leave::Unknown };
        let why = if tainted {
            self.tally.tainted += 1;
            Why::Tainted
        } else if self.shelves.get(&device).is_none_or(|shelf| capacity > shelf.cap) {
            self.tally.too_large += 1;
            Why::TooLarge
        } else {
            self.blocks[slot as usize].state = State::Leaving;
            self.tally.live -= asked;
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
        let slot = *self.by_address.get(&address)?;
        (self.blocks[slot as usize].state == State::Leaving).then_some(slot)
    }

    fn shelve(&mut self, slot: u32, state: State) {
        let block = &mut self.blocks[slot as usize];
        block.state = state;
        let (context, capacity, address) = (block.context, block.capacity, block.address);
        let Some(room) = self.rooms.get_mut(&context) else { return };
        let bucket = room.buckets.entry(capacity).or_default();
        if state == State::Clean {
            block.place = bucket.clean.len() as u32;
            bucket.clean.push(slot);
        } else {
            bucket.waiting += 1;
            room.limbo.push((slot, address));
        }
        let device = room.device;
        self.link(device, slot);
        self.tally.kept += 1;
    }

    /// Puts all of a context's limbo behind one fence, which the caller records next; `None` if
    /// there is nothing in limbo.
    pub fn seal(&mut self, context: usize) -> Option<u64> {
        let room = self.rooms.get_mut(&context)?;
        let mut batch = std::mem::take(&mut room.limbo);
        batch.retain(|(slot, address)| {
            let block = &self.blocks[*slot as usize];
            block.address == *address && block.context == context && block.state == State::Limbo
        });
        if batch.is_empty() {
            return None;
        }
        self.epoch += 1;
        for (slot, _) in &batch {
            self.blocks[*slot as usize].state = State::Fenced(self.epoch);
        }
        room.fenced.push_back((self.epoch, batch));
        Some(self.epoch)
    }

    /// The fence could not be recorded: its blocks are in limbo again.
    pub fn unseal(&mut self, context: usize, epoch: u64) {
        let batch = self.batch(context, |of| of == epoch);
        for (slot, address) in batch {
            // It may be listed twice: given back out of limbo, and given to us again by the driver.
            if !matches!(self.blocks[slot as usize].state, State::Fenced(_)) {
                continue;
            }
            self.blocks[slot as usize].state = State::Limbo;
            if let Some(room) = self.rooms.get_mut(&context) {
                room.limbo.push((slot, address));
            }
        }
    }

    /// This fence has passed, and with it all that are older.
    pub fn passed(&mut self, context: usize, epoch: u64) {
        let batch = self.batch(context, |of| of <= epoch);
        for (slot, _) in batch {
            let block = &mut self.blocks[slot as usize];
            if !matches!(block.state, State::Fenced(_)) {
                continue;
            }
            block.state = State::Clean;
            let room = self.rooms.get_mut(&context);
            if let Some(bucket) = room.and_then(|room| room.buckets.get_mut(&block.capacity)) {
                bucket.waiting -= 1;
                block.place = bucket.clean.len() as u32;
                bucket.clean.push(slot);
            }
        }
    }

    /// Takes the blocks out that are still behind these fences.
    fn batch(&mut self, context: usize, of: impl Fn(u64) -> bool) -> Vec<(u32, u64)> {
        let Some(room) = self.rooms.get_mut(&context) else { return Vec::new() };
        let mut taken = Vec::new();
        let blocks = &self.blocks;
        room.fenced.retain_mut(|(epoch, batch)| {
            if !of(*epoch) {
                return true;
            }
            let still = |(slot, address): &(u32, u64)| {
                let block = &blocks[*slot as usize];
                block.address == *address && block.state == State::Fenced(*epoch)
            };
            taken.extend(std::mem::take(batch).into_iter().filter(still));
            false
        });
        taken
    }

    /// Takes the oldest cached blocks out, until the device's cache is within its cap.
    pub fn over(&mut self, device: i32) -> Vec<Victim> {
        let mut victims = Vec::new();
        while let Some(shelf) = self.shelves.get(&device) {
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
        let mut at = self.shelves.get(&device).map_or(NONE, |shelf| shelf.oldest);
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

    /// A block is no longer ours to know: the driver has it, or gets it.
    pub fn forget(&mut self, address: u64) {
        if let Some(slot) = self.by_address.get(&address) {
            self.remove(*slot);
        }
    }

    fn remove(&mut self, slot: u32) {
        let block = self.blocks[slot as usize].clone();
        match block.state {
            State::Live => self.tally.live -= block.asked,
            State::Leaving => {}
            State::Clean | State::Limbo | State::Fenced(_) => {
                let mut device = None;
                if let Some(room) = self.rooms.get_mut(&block.context) {
                    device = Some(room.device);
                    let bucket = room.buckets.get_mut(&block.capacity);
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
        self.by_address.remove(&block.address);
        self.tally.held -= block.capacity;
        // Lists of limbo and fences name it by slot and address: neither matches any more.
        self.blocks[slot as usize].address = 0;
        self.spare.push(slot);
    }

    /// Takes everything of a context out, before the driver ends it. [`Cache::put_back`] undoes it.
    pub fn set_aside(&mut self, context: usize) -> Option<Aside> {
        let mut blocks = Vec::new();
        let slots: Vec<u32> = self.by_address.values().copied().collect();
        for slot in slots {
            if self.blocks[slot as usize].context == context {
                blocks.push(self.blocks[slot as usize].clone());
                self.remove(slot);
            }
        }
        let room = self.rooms.remove(&context)?;
        Some(Aside { context, room, blocks })
    }

    /// The context has not ended after all. What was behind a fence is in limbo again.
    pub fn put_back(&mut self, aside: Aside) {
        let Aside { context, room, blocks } = aside;
        let device = room.device;
        self.rooms.insert(context, Room { device, ..Room::default() });
        for block in blocks {
            let (state, address, asked) = (block.state, block.address, block.asked);
            self.tally.held += block.capacity;
            self.enter(Block { state: State::Leaving, older: NONE, newer: NONE, ..block });
            match state {
                State::Live => {
                    self.tally.live += asked;
                    if let Some(slot) = self.leaving(address) {
                        self.blocks[slot as usize].state = State::Live;
                    }
                }
                State::Leaving => {}
                State::Clean => self.settle(address),
                State::Limbo | State::Fenced(_) => self.rest(address),
            }
            if matches!(state, State::Clean | State::Limbo | State::Fenced(_)) {
                self.tally.kept -= 1;
            }
        }
    }

    fn link(&mut self, device: i32, slot: u32) {
        let capacity = self.blocks[slot as usize].capacity;
        let Some(shelf) = self.shelves.get_mut(&device) else { return };
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

    fn unlink(&mut self, device: i32, slot: u32) {
        let block = &mut self.blocks[slot as usize];
        let (older, newer, capacity) = (block.older, block.newer, block.capacity);
        (block.older, block.newer) = (NONE, NONE);
        let Some(shelf) = self.shelves.get_mut(&device) else { return };
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

#[cfg(test)]
#[path = "cache_test.rs"]
mod tests;
