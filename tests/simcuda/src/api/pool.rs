//! Memory pools: `cuMemAllocAsync` and what belongs to it.
//!
//! An allocation is an operation of its stream (it gives the bytes out), and so is a free (it takes
//! them away). Bytes freed on one stream pass to another by the pool's policies only, and whoever
//! gets them is made to come after the free; the checker judges all of it.
//!
//! On a stream that is captured both become nodes of the graph ([`graph_memory`]).

use super::graph_memory;
use super::ipc::still_imported;
use super::memory::{announce, forget, note_freed};
use super::{exports, get, put, require, wanted};
use crate::call::Call;
use crate::checker::{Access, AccessKind};
use crate::engine::Job;
use crate::memory::ALIGNMENT;
use crate::memory::graph::NO_POOL;
use crate::memory::history::Caller;
use crate::memory::pool::{Mark, Pool};
use crate::memory::table::{Actor, Block, Kind, Mapping};
use crate::memory::vmm::POSIX_FILE_DESCRIPTOR;
use crate::submit::StreamRef;
use crate::types::{
    AccessDescriptor, Code, LOCATION_DEVICE, Location, Outcome, PoolProperties, code,
};
use crate::work::{Body, Work};

exports! {
    fn cuDeviceGetDefaultMemPool(pool: *mut u64, device: i32) |call| {
        let device = call.device(device)?;
        put(pool, call.memory.device_pools[device as usize].default)
    };
    fn cuDeviceGetMemPool(pool: *mut u64, device: i32) |call| {
        let device = call.device(device)?;
        put(pool, call.memory.device_pools[device as usize].current)
    };
    fn cuDeviceSetMemPool(device: i32, pool: u64) |call| {
        let device = call.device(device)?;
        let found = alive(call, pool)?;
        require(found.device == device && found.imported.is_none(), code::INVALID_VALUE)?;
        call.memory.device_pools[device as usize].current = pool;
        Ok(())
    };
    fn cuMemPoolCreate(pool: *mut u64, asked: *const PoolProperties) |call| {
        call.started()?;
        wanted(pool)?;
        let asked = get(asked)?;
        let device = check(call, &asked)?;
        put(pool, call.memory.create_pool(device, asked))
    };
    fn cuMemPoolDestroy(pool: u64) |call| {
        call.started()?;
        let device = alive(call, pool)?.device as usize;
        require(call.memory.device_pools[device].default != pool, code::INVALID_VALUE)?;
        let pools = &mut call.memory.device_pools[device];
        if pools.current == pool {
            pools.current = pools.default;
        }
        if let Some(pool) = call.memory.pool_mut(pool) {
            pool.destroyed = true;
        }
        release(call, pool, 0);
        Ok(())
    };
    fn cuMemPoolTrimTo(pool: u64, keep: usize) |call| {
        call.started()?;
        alive(call, pool)?;
        release(call, pool, keep as u64);
        Ok(())
    };
    fn cuMemPoolSetAttribute(pool: u64, attribute: i32, value: *const u8) |call| {
        call.started()?;
        alive(call, pool)?;
        set_attribute(call, pool, attribute, value)
    };
    fn cuMemPoolGetAttribute(pool: u64, attribute: i32, value: *mut u8) |call| {
        call.started()?;
        wanted(value)?;
        get_attribute(alive(call, pool)?, attribute, value)
    };
    fn cuMemPoolSetAccess(pool: u64, wanted: *const AccessDescriptor, count: usize) |call| {
        call.started()?;
        alive(call, pool)?;
        set_access(call, pool, wanted, count)
    };
    fn cuMemPoolGetAccess(flags: *mut i32, pool: u64, location: *const Location) |call| {
        call.started()?;
        wanted(flags)?;
        let location = get(location)?;
        require(location.kind == LOCATION_DEVICE, code::INVALID_VALUE)?;
        let device = call.device(location.id)?;
        let pool = alive(call, pool)?;
        put(flags, (pool.readers >> device & 1 | (pool.writers >> device & 1) << 1) as i32)
    };
    fn cuMemAllocAsync, fn cuMemAllocAsync_ptsz (
        address: *mut u64, bytes: usize, stream: u64,
    ) |call| {
        call.started()?;
        wanted(address)?;
        let stream = call.stream(stream)?;
        let pool = call.memory.device_pools[stream.device as usize].current;
        put(address, allocate_on(call, &stream, pool, bytes as u64)?)
    };
    fn cuMemAllocFromPoolAsync, fn cuMemAllocFromPoolAsync_ptsz (
        address: *mut u64, bytes: usize, pool: u64, stream: u64,
    ) |call| {
        call.started()?;
        wanted(address)?;
        let stream = call.stream(stream)?;
        require(alive(call, pool)?.imported.is_none(), code::INVALID_VALUE)?;
        put(address, allocate_on(call, &stream, pool, bytes as u64)?)
    };
    fn cuMemFreeAsync, fn cuMemFreeAsync_ptsz (address: u64, stream: u64) |call| {
        let stream = call.stream(stream)?;
        free_on(call, &stream, address)
    };
}

/// A pool that the program has not destroyed.
pub fn alive(call: &Call, pool: u64) -> Result<&Pool, Code> {
    call.memory.pool(pool).filter(|p| !p.destroyed).ok_or(code::INVALID_VALUE)
}

/// Whether memory can be had so; answers the device.
pub fn check(call: &Call, asked: &PoolProperties) -> Result<u32, Code> {
    require(asked.kind == 1 && asked.location.kind == LOCATION_DEVICE, code::INVALID_VALUE)?;
    require(asked.handle_types & !POSIX_FILE_DESCRIPTOR == 0, code::NOT_SUPPORTED)?;
    require(asked.reserved == [0; 54], code::INVALID_VALUE)?;
    call.device(asked.location.id)
}

fn set_attribute(call: &mut Call, pool: u64, attribute: i32, value: *const u8) -> Outcome {
    let pool = call.memory.pool_mut(pool).ok_or(code::INVALID_VALUE)?;
    let flag = || get(value.cast::<i32>()).map(|v| v != 0);
    let number = || get(value.cast::<u64>());
    match attribute {
        1 => pool.policy.follow_events = flag()?,
        2 => pool.policy.opportunistic = flag()?,
        3 => pool.policy.internal = flag()?,
        4 => pool.threshold = number()?,
        6 | 8 => {
            require(number()? == 0, code::INVALID_VALUE)?;
            if attribute == 6 { pool.reserved.reset() } else { pool.used.reset() }
        }
        _ => return Err(code::INVALID_VALUE),
    }
    Ok(())
}

fn get_attribute(pool: &Pool, attribute: i32, value: *mut u8) -> Outcome {
    let number = match attribute {
        1 => return put(value.cast(), i32::from(pool.policy.follow_events)),
        2 => return put(value.cast(), i32::from(pool.policy.opportunistic)),
        3 => return put(value.cast(), i32::from(pool.policy.internal)),
        4 => pool.threshold,
        5 => pool.reserved.now,
        6 => pool.reserved.high,
        7 => pool.used.now,
        8 => pool.used.high,
        _ => return Err(code::INVALID_VALUE),
    };
    put(value.cast(), number)
}

/// All of it or nothing: each descriptor is checked before the first takes effect.
fn set_access(
    call: &mut Call,
    pool: u64,
    wanted: *const AccessDescriptor,
    count: usize,
) -> Outcome {
    require(count <= 4096, code::INVALID_VALUE)?;
    let owner = alive(call, pool)?.device;
    let read = |i| get(wanted.wrapping_add(i));
    let all = (0..count).map(read).collect::<Result<Vec<AccessDescriptor>, _>>()?;
    for one in &all {
        require(one.location.kind == LOCATION_DEVICE, code::INVALID_VALUE)?;
        let device = call.device(one.location.id)?;
        require(matches!(one.flags, 0 | 1 | 3), code::INVALID_VALUE)?;
        // A pool's own device always has all of it.
        require(device != owner || one.flags == 3, code::INVALID_VALUE)?;
    }
    for one in all {
        call.memory.set_pool_access(pool, one.location.id as u32, one.flags);
    }
    Ok(())
}

/// How much a pool may be asked to do for an allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Effort {
    /// Bytes that the stream's next operation comes after anyhow.
    Ordered,
    /// Also bytes whose free happens to be done.
    Done,
    /// Also bytes that have to be waited for.
    Wait,
}

/// Allocates from a pool in the order of a stream.
pub fn allocate_on(
    call: &mut Call,
    stream: &StreamRef,
    pool: u64,
    bytes: u64,
) -> Result<u64, Code> {
    require(bytes > 0, code::INVALID_VALUE)?;
    if call.is_capturing(stream) {
        return graph_memory::capture_allocation(call, stream, pool, bytes);
    }
    let rounded = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(code::OUT_OF_MEMORY)?;
    call.engine.checker().keep_order();
    let state = &mut **call;
    if let Some(pool) = state.memory.pool_mut(pool) {
        pool.join_all(|mark| state.engine.is_done(mark.event));
    }
    let start = place(call, stream, pool, rounded)?;
    let marks = call.memory.give_out(pool, start, bytes)?;
    let thread = call.key();
    for mark in marks {
        if mark.stream != stream.key {
            call.engine.wait_event(thread, stream.key, mark.event);
        }
    }
    tidy(call, pool);
    let accesses = accesses(call, pool, start, rounded, AccessKind::Allocate);
    let function = call.function;
    if let Some(it) = accesses.first() {
        let Caller { call: number, thread, .. } = call.caller();
        let name = call.engine.stream_name(stream.key);
        let label = format!(
            "{function}({bytes}) = {start:#x}, call {number}, host thread {thread}, {name}"
        );
        call.engine.checker().part_named(it.object, (it.offset, it.offset + bytes), &label);
    }
    let job = job(call, stream, accesses, || format!("{function}({bytes}) = {start:#x}"));
    call.engine.submit(thread, stream.key, job);
    Ok(start)
}

/// Finds room, as the policies say; takes more from the device if there is none.
fn place(call: &mut Call, stream: &StreamRef, pool: u64, bytes: u64) -> Result<u64, Code> {
    let near = [Effort::Ordered, Effort::Done];
    if let Some(start) = near.into_iter().find_map(|e| find(call, stream, pool, bytes, e)) {
        return Ok(start);
    }
    let no_room = match grow(call, pool, bytes) {
        Ok(start) => return Ok(start),
        Err(why) => why,
    };
    if let Some(start) = find(call, stream, pool, bytes, Effort::Wait) {
        return Ok(start);
    }
    // Free memory in pieces too small, here or in the device's other pools.
    let device = call.memory.pool(pool).map(|p| p.device);
    for other in call.memory.pool_handles() {
        if call.memory.pool(other).map(|p| p.device) == device {
            release(call, other, 0);
        }
    }
    grow(call, pool, bytes).map_err(|_| no_room)
}

fn find(call: &mut Call, stream: &StreamRef, pool: u64, bytes: u64, effort: Effort) -> Option<u64> {
    let found = call.memory.pool(pool)?;
    let (policy, marks) = (found.policy, found.marks());
    let thread = call.key();
    let engine = &mut call.engine;
    let mut usable = |mark: &Mark| {
        mark.stream == stream.key
            || engine.host_knows(thread, mark.event)
            || policy.follow_events && engine.comes_after(thread, stream.key, mark.event)
            || effort >= Effort::Done && policy.opportunistic && engine.is_done(mark.event)
            || effort >= Effort::Wait && policy.internal
    };
    let mut refused: Vec<_> = marks.into_iter().filter(|m| !usable(m)).map(|m| m.event).collect();
    refused.sort_unstable();
    call.memory.pool(pool)?.find(bytes, |mark| refused.binary_search(&mark.event).is_err())
}

/// A new chunk costs what creating and mapping its memory does.
fn grow(call: &mut Call, pool: u64, bytes: u64) -> Result<u64, Code> {
    let (start, size, object) = call.memory.grow_pool(pool, bytes)?;
    announce(call, object, size, || format!("{size} bytes of memory pool {pool:#x}"));
    charge(call, &["cuMemCreate", "cuMemMap", "cuMemSetAccess"], size);
    Ok(start)
}

fn charge(call: &mut Call, steps: &[&str], bytes: u64) {
    for step in steps {
        let page = call.books.page_of(step);
        let cost = call.books.function(page).cost;
        call.engine.advance(cost.fixed + cost.per_mib * (bytes >> 20));
    }
}

/// Frees in the order of a stream: memory of a pool, or of `cuMemAlloc`.
pub fn free_on(call: &mut Call, stream: &StreamRef, address: u64) -> Outcome {
    if call.is_capturing(stream) {
        return graph_memory::capture_free(call, stream, address);
    }
    call.engine.checker().keep_order();
    let thread = call.key();
    let context = call.contexts.get(&stream.context).ok_or(code::INVALID_CONTEXT)?.key;
    let block = call.memory.table.block(address).copied().filter(|b| b.start == address);
    if block.is_some_and(|b| b.pool == NO_POOL) {
        return graph_memory::free_on(call, stream, address);
    }
    let imported = call.memory.is_imported_block(address);
    let linear = |m: &&Mapping| m.start == address && (m.kind == Kind::Device || imported);
    let (start, bytes) = match (&block, call.memory.table.find(address).filter(linear)) {
        (Some(block), _) => (block.start, block.bytes),
        (None, Some(mapping)) => (mapping.start, mapping.bytes),
        (None, None) => return Err(code::INVALID_VALUE),
    };
    let accesses = match &block {
        Some(b) => {
            accesses(call, b.pool, start, bytes.next_multiple_of(ALIGNMENT), AccessKind::Destroy)
        }
        None => call.memory.table.find(start).map_or(Vec::new(), |m| {
            vec![Access { object: m.object, offset: 0, bytes, kind: AccessKind::Destroy }]
        }),
    };
    let was = accesses.first().map(|it| (it.object, it.offset));
    let end = start + bytes;
    let job = job(call, stream, accesses, || format!("cuMemFreeAsync({start:#x}..{end:#x})"));
    let event = call.engine.create_event(context);
    call.engine.submit_and_record(thread, stream.key, job, event);
    note_freed(call, (start, bytes), was);
    let mark = Mark { event, stream: stream.key };
    match block {
        Some(block) => give_back(call, &block, Some(mark)),
        None => {
            if let Some(object) = call.memory.table.find(start).map(|m| m.object) {
                let open_in = call.memory.ipc.open_in(object);
                still_imported(call, object, start, bytes, open_in);
            }
            call.memory.leave_block(start);
            call.memory.orphan(start, mark);
        }
    }
    Ok(())
}

/// `cuMemFree` of memory of a pool: nothing is waited for, and the program vouches that every use
/// is over.
pub fn free_now(call: &mut Call, block: Block) -> Outcome {
    if block.pool == NO_POOL {
        return graph_memory::free_now(call, block.start);
    }
    let thread = call.key();
    let bytes = block.bytes.next_multiple_of(ALIGNMENT);
    let accesses = accesses(call, block.pool, block.start, bytes, AccessKind::Destroy);
    let was = accesses.first().map(|it| (it.object, it.offset));
    let label = format!("{}({:#x}..{:#x})", call.function, block.start, block.end());
    call.engine.host_access(thread, &accesses, &label);
    note_freed(call, (block.start, block.bytes), was);
    give_back(call, &block, None);
    Ok(())
}

fn give_back(call: &mut Call, block: &Block, mark: Option<Mark>) {
    let open_in = call.memory.block_gone(block);
    still_imported(call, 0, block.start, block.bytes, open_in);
    call.memory.table.remove_block(block.start);
    if let Some(pool) = call.memory.pool_mut(block.pool) {
        pool.give(block.start, block.bytes.next_multiple_of(ALIGNMENT), mark);
    }
    tidy(call, block.pool);
    if call.memory.pool(block.pool).is_some_and(|p| p.destroyed) {
        release(call, block.pool, 0);
    }
}

/// The events of frees that nobody asks about any more.
fn tidy(call: &mut Call, pool: u64) {
    let unneeded = call.memory.pool_mut(pool).map(Pool::unneeded).unwrap_or_default();
    for event in unneeded {
        call.engine.destroy_event(event);
    }
}

/// Gives chunks back to the device until the pool holds no more than `keep` bytes: those that are
/// free from end to end, and whose frees are done.
fn release(call: &mut Call, pool: u64, keep: u64) {
    loop {
        let state = &mut **call;
        let Some(found) = state.memory.pool(pool) else { return };
        if found.reserved.now <= keep {
            break;
        }
        let engine = &state.engine;
        let Some(start) = found.idle_chunk(|mark| engine.is_done(mark.event)) else { break };
        let gone = call.memory.release_chunk(pool, start);
        forget(call, gone);
        charge(call, &["cuMemUnmap", "cuMemRelease"], 0);
    }
    tidy(call, pool);
    call.memory.bury_pool(pool);
}

/// The host has waited for a stream, an event or a context: what was freed there is anybody's, and
/// pools shrink to their release thresholds.
pub fn synchronised(call: &mut Call) {
    graph_memory::sweep(call);
    if call.memory.has_orphans() {
        let state = &mut **call;
        let engine = &state.engine;
        for (gone, event) in state.memory.bury_orphans(|mark| engine.is_done(mark.event)) {
            call.engine.destroy_event(event);
            forget(call, gone);
        }
    }
    for handle in call.memory.pool_handles() {
        let Some(pool) = call.memory.pool(handle) else { continue };
        if pool.is_settled() {
            continue;
        }
        let (marks, threshold, destroyed) = (pool.marks(), pool.threshold, pool.destroyed);
        let thread = call.key();
        let known = |mark: &Mark| call.engine.host_knows(thread, mark.event);
        let known: Vec<_> = marks.into_iter().filter(known).collect();
        if let Some(pool) = call.memory.pool_mut(handle) {
            pool.clear_marks(|mark| known.contains(mark));
        }
        release(call, handle, if destroyed { 0 } else { threshold });
    }
}

/// The bytes of a block, as the checker knows them; nothing while it is off.
fn accesses(call: &Call, pool: u64, start: u64, bytes: u64, kind: AccessKind) -> Vec<Access> {
    let on = call.engine.checker_ref().is_on();
    let chunk = call.memory.pool(pool).filter(|_| on).and_then(|p| p.chunk(start));
    let access = |(at, _, object)| Access { object, offset: start - at, bytes, kind };
    chunk.map(access).into_iter().collect()
}

/// An operation that only gives bytes out or takes them away.
pub fn job(
    call: &Call,
    stream: &StreamRef,
    accesses: Vec<Access>,
    label: impl FnOnce() -> String,
) -> Job<Work> {
    let actor = Actor { device: stream.device, context: stream.context, engine: true };
    let work = Work { actor, body: Body::Nothing, poisoned: false };
    let label = if call.engine.checker_ref().is_on() { label() } else { String::new() };
    Job { work, accesses, duration_ns: 0, label, unknown_accesses: false }
}
