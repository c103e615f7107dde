//! Memory and events shared with other processes by handle.

use super::memory::{announce, destroy_access, forget};
use super::{exports, put, require, wanted};
use crate::call::Call;
use crate::memory::ipc::Handle;
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
