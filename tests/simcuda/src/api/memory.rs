//! Device memory: allocations and what is left.

use super::ipc::still_imported;
use super::{exports, put, put_if, require, wanted};
use crate::call::Call;
use crate::checker::{Access, AccessKind};
use crate::engine::Target;
use crate::memory::history::{Caller, Taken};
use crate::memory::table::{Kind, Mapping};
use crate::types::{Code, Outcome, code};

exports! {
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) |call| {
        call.started()?;
        wanted(address)?;
        put(address, allocate(call, bytes as u64)?)
    };
    fn cuMemAllocPitch_v2(
        address: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32,
    ) |call| {
        call.started()?;
        wanted(address)?;
        wanted(pitch)?;
        require(matches!(element, 4 | 8 | 16) && width > 0 && height > 0, code::INVALID_VALUE)?;
        let padded = width.checked_next_multiple_of(PITCH).ok_or(code::INVALID_VALUE)?;
        let bytes = padded.checked_mul(height).ok_or(code::INVALID_VALUE)?;
        put(address, allocate(call, bytes as u64)?)?;
        put(pitch, padded)
    };
    fn cuMemFree_v2(address: u64) |call| free(call, address);
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |call| {
        let context = call.context()?;
        let device = call.contexts[&context].device;
        let budget = call.memory.budgets[device as usize];
        put_if(free, budget.free() as usize)?;
        put_if(total, budget.total as usize)
    };
    fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64) |call| {
        call.context()?;
        let mapping = call.memory.table.find(address).ok_or(code::NOT_FOUND)?;
        let (start, size) = match mapping.kind {
            Kind::Pool => {
                let block = call.memory.table.block(address).ok_or(code::NOT_FOUND)?;
                (block.start, block.bytes)
            }
            _ => (mapping.start, mapping.bytes),
        };
        put_if(base, start)?;
        put_if(bytes, size as usize)
    };
}

const PITCH: usize = 512;

fn allocate(call: &mut Call, bytes: u64) -> Result<u64, Code> {
    let context = call.context()?;
    require(bytes > 0, code::INVALID_VALUE)?;
    call.about_bytes(bytes);
    let device = call.contexts[&context].device;
    let (start, object) = call.memory.allocate(device, context, bytes)?;
    announce(call, object, bytes, || format!("cuMemAlloc({bytes}) = {start:#x}"));
    Ok(start)
}

/// Tells the checker of a new object, and of the call that made it.
pub fn announce(call: &mut Call, object: u64, bytes: u64, label: impl FnOnce() -> String) {
    if call.engine.checker_ref().is_on() {
        let Caller { call: number, thread, .. } = call.caller();
        let label = format!("{}, call {number}, host thread {thread}", label());
        call.engine.checker().object_created(object, bytes, &label);
    }
}

/// Notes which call takes addresses away, and what was there: so much of the object at an offset.
pub fn note_freed(call: &mut Call, (start, bytes): (u64, u64), was: Option<(u64, u64)>) {
    let who = call.caller();
    let label = was.and_then(|(object, at)| call.engine.checker_ref().label_at(object, at));
    let was = label.unwrap_or_default().into();
    call.memory.history.freed(Taken { start, end: start + bytes, who, was });
}

/// The host takes a mapping's bytes away: judged against every earlier use.
pub fn destroy_access(call: &mut Call, mapping: &Mapping) {
    let thread = call.key();
    let end = mapping.end();
    let access = Access {
        object: mapping.object,
        offset: 0,
        bytes: mapping.bytes,
        kind: AccessKind::Destroy,
    };
    if call.engine.checker_ref().is_on() {
        let label = format!("{}({:#x}..{end:#x})", call.function, mapping.start);
        call.engine.host_access(thread, &[access], &label);
    }
    note_freed(call, (mapping.start, mapping.bytes), Some((mapping.object, 0)));
}

/// Tells the checker of an object's end.
pub fn forget(call: &mut Call, gone: Option<u64>) {
    if let Some(object) = gone {
        call.engine.checker().object_gone(object);
    }
}

/// Waits for the context that memory belongs to, as freeing does.
pub fn implied_wait(call: &mut Call, mapping: &Mapping) {
    if let Some(context) = call.contexts.get(&mapping.context) {
        let target = Target::Context(context.key);
        call.wait(target);
    }
}

fn free(call: &mut Call, address: u64) -> Outcome {
    let current = call.context()?;
    if address == 0 {
        return Ok(());
    }
    if let Some(block) = call.memory.table.block(address).copied() {
        require(block.start == address, code::INVALID_VALUE)?;
        return super::pool::free_now(call, block);
    }
    if call.memory.is_imported_block(address)
        && let Some(mapping) = call.memory.table.find(address).cloned()
    {
        destroy_access(call, &mapping);
        let gone = call.memory.remove_block_import(address);
        forget(call, gone);
        return Ok(());
    }
    let ours = |m: &&Mapping| m.start == address && matches!(m.kind, Kind::Device | Kind::Managed);
    let mapping =
        call.memory.table.find(address).filter(ours).cloned().ok_or(code::INVALID_VALUE)?;
    implied_wait(call, &mapping);
    call.healthy(current)?;
    let still = |m: &&Mapping| m.buffer == mapping.buffer;
    call.memory.table.find(address).filter(still).ok_or(code::INVALID_VALUE)?;
    let open_in = call.memory.ipc.open_in(mapping.object);
    still_imported(call, mapping.object, address, mapping.bytes, open_in);
    destroy_access(call, &mapping);
    let gone = call.memory.free(address);
    forget(call, gone);
    Ok(())
}
