//! **Pools**: stream-ordered memory. A pool holds chunks; a chunk is cut into blocks, which the
//! program has, and fragments, which are free.
//!
//! `reserved = sum of chunks = used + sum of fragments`. A fragment's mark is the stream-ordered
//! free that made it: whoever gets the bytes next must come after that. No two neighbouring
//! fragments have the same mark. A whole chunk is one mapping while it is there, so that work queued
//! before a free still finds its bytes; which of them may be used in new work is what the blocks say.

use super::ipc_pool::PoolName;
use super::object::Home;
use super::table::{Block, Kind, Mapping};
use super::{ALIGNMENT, Gone, LARGE, Memory};
use crate::engine::{EventKey, StreamKey};
use crate::types::{Code, PoolProperties, code};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What a pool takes from the device at a time, if the device has it: the figure that programs see
/// in the pool's reserved bytes after a first small allocation.
pub const CHUNK: u64 = 32 << 20;
/// The least that it takes: a large page.
pub const LEAST: u64 = LARGE;

/// A stream-ordered free: the event that was recorded with it, and its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Done when the free is done.
    pub event: EventKey,
    /// Where the free was queued.
    pub stream: StreamKey,
}

#[derive(Clone, Copy, Debug)]
struct Fragment {
    bytes: u64,
    mark: Option<Mark>,
}

#[derive(Debug)]
struct Chunk {
    bytes: u64,
    object: u64,
}

/// A count with its high-water mark.
#[derive(Clone, Copy, Debug, Default)]
pub struct Level {
    /// Bytes now.
    pub now: u64,
    /// The most since the beginning or the last reset.
    pub high: u64,
}

impl Level {
    /// More bytes.
    pub fn add(&mut self, bytes: u64) {
        self.now += bytes;
        self.high = self.high.max(self.now);
    }

    /// The high-water mark begins anew: at what there is.
    pub fn reset(&mut self) {
        self.high = self.now;
    }
}

/// When memory freed on another stream may be used again.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// When the program ordered the allocation after the free.
    pub follow_events: bool,
    /// When the free happens to be done.
    pub opportunistic: bool,
    /// Before the device or the pool is said to be out of memory: the allocation is made to wait.
    pub internal: bool,
}

/// A memory pool.
#[derive(Debug)]
pub struct Pool {
    /// How it was asked for.
    pub properties: PoolProperties,
    /// The device that its memory lies on.
    pub device: u32,
    /// Whether the program destroyed it; it lives on while blocks of it do.
    pub destroyed: bool,
    /// The reuse policies.
    pub policy: Policy,
    /// Bytes that it may keep at a synchronisation.
    pub threshold: u64,
    /// Bytes taken from the device.
    pub reserved: Level,
    /// Bytes that the program has.
    pub used: Level,
    /// Devices that may read, a bit each.
    pub readers: u64,
    /// Devices that may write, a bit each.
    pub writers: u64,
    /// The number by which other processes know it, if they may.
    pub shared: Option<u64>,
    /// Whose pool this one stands for, if it was imported.
    pub imported: Option<PoolName>,
    /// Blocks that the program has.
    pub blocks: u64,
    chunks: BTreeMap<u64, Chunk>,
    free: BTreeMap<u64, Fragment>,
    /// The same fragments, by size and start.
    by_size: BTreeSet<(u64, u64)>,
    /// The marks of all fragments, with the number of fragments that have each.
    marks: HashMap<EventKey, (StreamKey, u32)>,
    unneeded: Vec<EventKey>,
    /// Starts of fragments that were not yet joined with their neighbours.
    alone: Vec<u64>,
}

impl Pool {
    /// An empty pool with the default attributes.
    pub fn new(device: u32, properties: PoolProperties) -> Self {
        let bit = 1 << device;
        Self {
            properties,
            device,
            destroyed: false,
            policy: Policy { follow_events: true, opportunistic: true, internal: true },
            threshold: 0,
            reserved: Level::default(),
            used: Level::default(),
            readers: bit,
            writers: bit,
            shared: None,
            imported: None,
            blocks: 0,
            chunks: BTreeMap::new(),
            free: BTreeMap::new(),
            by_size: BTreeSet::new(),
            marks: HashMap::new(),
            unneeded: Vec::new(),
            alone: Vec::new(),
        }
    }

    /// Whether a synchronisation has nothing to do here.
    pub fn is_settled(&self) -> bool {
        self.marks.is_empty() && !self.destroyed && (self.reserved.now <= self.threshold)
    }

    /// The events of marks that no fragment has any more; to be destroyed.
    pub fn unneeded(&mut self) -> Vec<EventKey> {
        std::mem::take(&mut self.unneeded)
    }

    /// The marks of all fragments.
    pub fn marks(&self) -> Vec<Mark> {
        self.marks.iter().map(|(&event, &(stream, _))| Mark { event, stream }).collect()
    }

    /// The best place for `bytes` among free bytes whose marks are `usable`: a fragment of just that
    /// size, else the beginning of the smallest run of neighbours that is large enough.
    pub fn find(&self, bytes: u64, usable: impl Fn(&Mark) -> bool) -> Option<u64> {
        let whole = |&&(_, start): &&(u64, u64)| {
            self.free.get(&start).is_some_and(|f| f.mark.is_none_or(|mark| usable(&mark)))
        };
        let fragment =
            self.by_size.range((bytes, 0)..(bytes + 1, 0)).find(whole).map(|(_, start)| *start);
        fragment.or_else(|| self.find_run(bytes, usable))
    }

    fn find_run(&self, bytes: u64, usable: impl Fn(&Mark) -> bool) -> Option<u64> {
        let mut best: Option<(u64, u64)> = None;
        let mut run = (0, 0);
        let mut close = |(start, end): (u64, u64)| {
            if end - start >= bytes && best.is_none_or(|(size, _)| end - start < size) {
                best = Some((end - start, start));
            }
        };
        for (&start, fragment) in &self.free {
            if fragment.mark.is_some_and(|mark| !usable(&mark)) {
                continue;
            }
            if start != run.1 || self.chunks.contains_key(&start) {
                close(run);
                run = (start, start);
            }
            run.1 = start + fragment.bytes;
        }
        close(run);
        best.map(|(_, start)| start)
    }

    fn hold(&mut self, mark: Option<Mark>) {
        if let Some(mark) = mark {
            self.marks.entry(mark.event).or_insert((mark.stream, 0)).1 += 1;
        }
    }

    fn let_go(&mut self, mark: Option<Mark>) {
        let Some(Mark { event, .. }) = mark else { return };
        if let Some((_, count)) = self.marks.get_mut(&event) {
            *count -= 1;
            if *count == 0 {
                self.marks.remove(&event);
                self.unneeded.push(event);
            }
        }
    }

    fn insert(&mut self, start: u64, fragment: Fragment) {
        if fragment.bytes > 0 {
            self.hold(fragment.mark);
            self.enter(start, fragment);
        }
    }

    fn enter(&mut self, start: u64, fragment: Fragment) {
        self.free.insert(start, fragment);
        self.by_size.insert((fragment.bytes, start));
    }

    fn remove(&mut self, start: u64) -> Option<Fragment> {
        let fragment = self.free.remove(&start)?;
        self.by_size.remove(&(fragment.bytes, start));
        self.let_go(fragment.mark);
        Some(fragment)
    }

    /// Takes `bytes` at `start` out of the free ones, where [`Self::find`] said; answers the frees
    /// that the new owner must come after.
    pub fn take(&mut self, start: u64, bytes: u64) -> Vec<Mark> {
        let end = start + bytes;
        let mut marks = Vec::new();
        while let Some((at, found)) = self.free.range(start..end).next().map(|(a, f)| (*a, *f)) {
            // The rest first, so that its mark is never without a holder.
            let rest = (at + found.bytes).saturating_sub(end);
            if rest > 0 {
                self.insert(end, Fragment { bytes: rest, mark: found.mark });
            }
            self.remove(at);
            marks.extend(found.mark.filter(|m| !marks.contains(m)));
        }
        self.used.add(bytes);
        self.blocks += 1;
        marks
    }

    /// A block is free again.
    pub fn give(&mut self, start: u64, bytes: u64, mark: Option<Mark>) {
        self.used.now -= bytes;
        self.blocks -= 1;
        self.insert(start, Fragment { bytes, mark });
        self.alone.push(start);
    }

    /// Joins what was freed of late with its neighbours, if it is `over`: where any free that is
    /// done is as good as another, one mark of a stream stands for many.
    pub fn join_all(&mut self, over: impl Fn(&Mark) -> bool) {
        let joins = self.policy.opportunistic;
        let alike = |a: &Mark, b: &Mark| joins && a.stream == b.stream && over(a) && over(b);
        let mut alone = std::mem::take(&mut self.alone);
        alone.retain(|&start| {
            let Some(fragment) = self.free.get(&start).copied() else { return false };
            if fragment.mark.is_some_and(|mark| !over(&mark)) {
                return true;
            }
            self.join(start + fragment.bytes, &alike);
            self.join(start, &alike);
            false
        });
        self.alone = alone;
    }

    /// Joins the fragments before and after `at` if one mark may stand for both.
    fn join(&mut self, at: u64, alike: &impl Fn(&Mark, &Mark) -> bool) {
        if self.chunks.contains_key(&at) {
            return;
        }
        let Some(&right) = self.free.get(&at) else { return };
        let Some((start, left)) = self.free.range(..at).next_back().map(|(s, f)| (*s, *f)) else {
            return;
        };
        let same = match (left.mark, right.mark) {
            (None, None) => true,
            (Some(a), Some(b)) => a == b || alike(&a, &b),
            (Some(only), None) | (None, Some(only)) => alike(&only, &only),
        };
        if start + left.bytes != at || !same {
            return;
        }
        // Of two marks of one stream the later one stands for both: event keys only grow.
        let mark = left.mark.max_by_event(right.mark);
        self.hold(mark);
        self.remove(at);
        self.remove(start);
        self.enter(start, Fragment { bytes: left.bytes + right.bytes, mark });
    }

    /// Takes off the marks that are `over`: their bytes are anybody's.
    pub fn clear_marks(&mut self, over: impl Fn(&Mark) -> bool) {
        let starts = self.free.iter().filter(|(_, f)| f.mark.is_some_and(|m| over(&m)));
        let starts: Vec<_> = starts.map(|(s, _)| *s).collect();
        for &start in &starts {
            if let Some(fragment) = self.remove(start) {
                self.insert(start, Fragment { mark: None, ..fragment });
            }
        }
        for start in starts {
            if let Some(bytes) = self.free.get(&start).map(|f| f.bytes) {
                self.join(start + bytes, &|_, _| false);
            }
            self.join(start, &|_, _| false);
        }
    }

    /// The last chunk that is free from end to end and of which every free is `done`.
    pub fn idle_chunk(&self, done: impl Fn(&Mark) -> bool) -> Option<u64> {
        let idle = |&(&start, chunk): &(&u64, &Chunk)| {
            let mut at = start;
            for (_, fragment) in self.free.range(start..start + chunk.bytes) {
                if !fragment.mark.is_none_or(|m| done(&m)) {
                    return false;
                }
                at += fragment.bytes;
            }
            at == start + chunk.bytes
        };
        self.chunks.iter().rev().find(idle).map(|(start, _)| *start)
    }

    /// The chunk that holds an address: its start, size and object.
    pub fn chunk(&self, address: u64) -> Option<(u64, u64, u64)> {
        let (&start, chunk) = self.chunks.range(..=address).next_back()?;
        (address - start < chunk.bytes).then_some((start, chunk.bytes, chunk.object))
    }

    fn chunk_starts(&self) -> Vec<u64> {
        self.chunks.keys().copied().collect()
    }
}

trait Later {
    fn max_by_event(self, other: Self) -> Self;
}

impl Later for Option<Mark> {
    fn max_by_event(self, other: Self) -> Self {
        if self.map(|m| m.event) >= other.map(|m| m.event) { self } else { other }
    }
}

impl Memory {
    /// The pool of a handle, be it destroyed or not.
    pub fn pool(&self, handle: u64) -> Option<&Pool> {
        self.pools.get(handle)
    }

    /// The same, to change it.
    pub fn pool_mut(&mut self, handle: u64) -> Option<&mut Pool> {
        self.pools.get_mut(handle)
    }

    /// The handles of all pools.
    pub fn pool_handles(&self) -> Vec<u64> {
        self.pools.iter().map(|(handle, _)| handle).collect()
    }

    /// A new pool.
    pub fn create_pool(&mut self, device: u32, properties: PoolProperties) -> u64 {
        self.pools.insert(Pool::new(device, properties))
    }

    /// A destroyed pool without blocks and chunks is no more.
    pub fn bury_pool(&mut self, handle: u64) {
        if self
            .pools
            .get(handle)
            .is_some_and(|p| p.destroyed && p.blocks == 0 && p.chunks.is_empty())
        {
            self.pools.remove(handle);
        }
    }

    /// A pool takes enough from its device for `bytes` in one piece: a chunk, or what the device
    /// and the pool's own limit still allow. Answers the chunk's start, size and object.
    pub fn grow_pool(&mut self, handle: u64, bytes: u64) -> Result<(u64, u64, u64), Code> {
        let pool = self.pools.get(handle).ok_or(code::INVALID_VALUE)?;
        let (device, reserved, most) = (pool.device, pool.reserved.now, pool.properties.most());
        let fits = |grain: u64| {
            let size = bytes.checked_next_multiple_of(grain).ok_or(code::OUT_OF_MEMORY)?;
            let within = reserved.checked_add(size).is_some_and(|sum| sum <= most);
            if !within {
                return Err(code::OUT_OF_MEMORY);
            }
            self.budgets[device as usize].check(size).map(|()| size)
        };
        let size = fits(CHUNK).or_else(|_| fits(LEAST))?;
        let (start, object) = self.new_chunk(handle, device, size)?;
        let pool = self.pools.get_mut(handle).ok_or(code::INVALID_VALUE)?;
        pool.reserved.add(size);
        pool.chunks.insert(start, Chunk { bytes: size, object });
        pool.insert(start, Fragment { bytes: size, mark: None });
        Ok((start, size, object))
    }

    fn new_chunk(&mut self, handle: u64, device: u32, bytes: u64) -> Result<(u64, u64), Code> {
        let pool = self.pools.get(handle).ok_or(code::INVALID_VALUE)?;
        let (readers, writers) = (pool.readers, pool.writers);
        let (home, base) = if pool.properties.handle_types & super::vmm::POSIX_FILE_DESCRIPTOR != 0
        {
            super::vmm::shared_home(device, bytes).map_err(|_| code::OUT_OF_MEMORY)?
        } else {
            (Home::Linear, self.linear.take(bytes).ok_or(code::OUT_OF_MEMORY)?)
        };
        let Some(start) = self.addresses.take(bytes, LARGE) else {
            if let Home::Linear = home {
                self.linear.give(base, bytes, false);
            }
            return Err(code::OUT_OF_MEMORY);
        };
        self.budgets[device as usize].take(bytes);
        let (object, buffer) = self.new_mapped(device, bytes, home, base);
        let kind = Kind::Pool;
        let (context, flags, sync_memops) = (0, 0, false);
        self.table.insert(Mapping {
            start,
            bytes,
            object,
            base,
            kind,
            device,
            context,
            readers,
            writers,
            flags,
            buffer,
            sync_memops,
        });
        Ok((start, object))
    }

    /// Gives a chunk that is free from end to end back to the device.
    pub fn release_chunk(&mut self, handle: u64, start: u64) -> Gone {
        let pool = self.pools.get_mut(handle)?;
        let chunk = pool.chunks.remove(&start)?;
        let inside: Vec<_> = pool.free.range(start..start + chunk.bytes).map(|(s, _)| *s).collect();
        for fragment in inside {
            pool.remove(fragment);
        }
        pool.reserved.now -= chunk.bytes;
        self.free(start)
    }

    /// The program gets `bytes` at `start` of a pool; answers the frees that it must come after.
    pub fn give_out(&mut self, handle: u64, start: u64, asked: u64) -> Result<Vec<Mark>, Code> {
        let bytes = asked.next_multiple_of(ALIGNMENT);
        let buffer = self.unique();
        let pool = self.pools.get_mut(handle).ok_or(code::INVALID_VALUE)?;
        let marks = pool.take(start, bytes);
        self.table.insert_block(Block { start, bytes: asked, pool: handle, buffer });
        Ok(marks)
    }

    /// Which devices may use a pool's memory: the device's bits in what there is and will be.
    pub fn set_pool_access(&mut self, handle: u64, device: u32, flags: i32) {
        let Some(pool) = self.pools.get_mut(handle) else { return };
        let bit = 1u64 << device;
        let set = |bits: u64, on: bool| if on { bits | bit } else { bits & !bit };
        pool.readers = set(pool.readers, flags & 1 != 0);
        pool.writers = set(pool.writers, flags & 2 != 0);
        let (readers, writers) = (pool.readers, pool.writers);
        for start in pool.chunk_starts().into_iter().chain(self.ipc.blocks_of(handle)) {
            if let Some(mapping) = self.table.find_mut(start) {
                (mapping.readers, mapping.writers) = (readers, writers);
            }
        }
    }

    /// `cuMemAlloc` memory that was freed in stream order: no new work may use it, and it is given
    /// back when the free is done.
    pub fn orphan(&mut self, start: u64, mark: Mark) {
        if let Some(mapping) = self.table.find_mut(start) {
            mapping.kind = Kind::Pool;
            mapping.context = 0;
            self.orphans.push((start, mark));
        }
    }

    /// Gives back the orphans whose free is `done`; answers their objects and events.
    pub fn bury_orphans(&mut self, done: impl Fn(&Mark) -> bool) -> Vec<(Gone, EventKey)> {
        let (over, left) =
            std::mem::take(&mut self.orphans).into_iter().partition(|(_, m)| done(m));
        self.orphans = left;
        let over: Vec<(u64, Mark)> = over;
        over.into_iter().map(|(start, mark)| (self.free(start), mark.event)).collect()
    }

    /// Whether there are orphans.
    pub fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }
}
