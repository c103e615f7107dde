//! Memory and events shared with other processes by handle.

use super::memory::{announce, destroy_access, forget};
use super::pool::alive;
use super::{exports, get, put, require, wanted};
use crate::call::Call;
use crate::checker::{Report, ReportKind};
use crate::memory::ipc::Handle;
use crate::memory::vmm::POSIX_FILE_DESCRIPTOR;
use crate::state::Event;
use crate::types::{Outcome, code};

exports! {
    fn cuIpcGetMemHandle(handle: *mut Handle, address: u64) |call| {
        call.context()?;
        wanted(handle)?;
        let exported = call.memory.export_ipc(address)?;
        put(handle, exported)
    };
    fn cuIpcOpenMemHandle(address: *mut u64, handle: Handle, flags: u32) |call| {
        open(call, address, &handle, flags)
    };
    fn cuIpcOpenMemHandle_v2(address: *mut u64, handle: Handle, flags: u32) |call| {
        open(call, address, &handle, flags)
    };
    fn cuIpcCloseMemHandle(address: u64) |call| {
        call.context()?;
        if let Some(mapping) = call.memory.close_ipc(address)? {
            destroy_access(call, &mapping);
            let gone = call.memory.remove_import(address);
            forget(call, gone);
        }
        Ok(())
    };
    fn cuIpcGetEventHandle(handle: *mut Handle, event: u64) |call| {
        call.context()?;
        wanted(handle)?;
        let event = call.events.get(event).ok_or(code::INVALID_HANDLE)?;
        let shared = event.shared.as_ref().ok_or(code::INVALID_HANDLE)?;
        put(handle, shared.handle()?)
    };
    fn cuIpcOpenEventHandle(event: *mut u64, handle: Handle) |call| {
        let context = call.context()?;
        wanted(event)?;
        let shared = Some(call.memory.ipc.open_event(&handle)?);
        let owner = call.contexts[&context].key;
        let key = call.engine.create_event(owner);
        let new = Event { key, context, flags: DISABLE_TIMING, recorded: false, shared };
        put(event, call.events.insert(new))
    };
    fn cuMemPoolExportToShareableHandle(to: *mut i32, pool: u64, kind: i32, flags: u64) |call| {
        call.started()?;
        wanted(to)?;
        require(flags == 0 && kind == POSIX_FILE_DESCRIPTOR, code::INVALID_VALUE)?;
        alive(call, pool)?;
        put(to, call.memory.export_pool(pool)?)
    };
    fn cuMemPoolImportFromShareableHandle(pool: *mut u64, from: usize, kind: i32, flags: u64) |call| {
        call.started()?;
        wanted(pool)?;
        require(flags == 0 && kind == POSIX_FILE_DESCRIPTOR, code::INVALID_VALUE)?;
        put(pool, call.memory.import_pool(from as i32)?)
    };
    fn cuMemPoolExportPointer(data: *mut Handle, address: u64) |call| {
        call.started()?;
        wanted(data)?;
        put(data, call.memory.export_block(address)?)
    };
    fn cuMemPoolImportPointer(address: *mut u64, pool: u64, data: *const Handle) |call| {
        call.started()?;
        wanted(address)?;
        let data = get(data)?;
        alive(call, pool)?;
        let (start, object, bytes) = call.memory.import_block(pool, &data)?;
        announce(call, object, bytes, || format!("cuMemPoolImportPointer = {start:#x}"));
        put(address, start)
    };
}

/// Freeing what other processes have open leaves them with memory that is not defined.
pub fn still_imported(call: &mut Call, object: u64, start: u64, bytes: u64, open_in: Vec<u32>) {
    if open_in.is_empty() || !call.engine.checker_ref().is_on() {
        return;
    }
    let pids: Vec<_> = open_in.iter().map(u32::to_string).collect();
    let who = call.caller();
    call.engine.checker().report(Report {
        kind: ReportKind::DestroyUnderWork,
        first: format!("imported and not given back by process {}", pids.join(", ")),
        second: format!("{start:#x}..{:#x} freed by {who}", start + bytes),
        object,
        bytes,
        ..Report::default()
    });
}

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, which has to be given.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

fn open(call: &mut Call, address: *mut u64, handle: &Handle, flags: u32) -> Outcome {
    let context = call.context()?;
    wanted(address)?;
    require(flags == LAZY_ENABLE_PEER_ACCESS, code::INVALID_VALUE)?;
    let device = call.contexts[&context].device;
    let (start, new) = call.memory.open_ipc(handle, context, device)?;
    if let Some((object, bytes)) = new {
        announce(call, object, bytes, || format!("cuIpcOpenMemHandle = {start:#x}"));
    }
    put(address, start)
}
