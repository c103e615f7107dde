//! Primary contexts: one a device, shared by all who retain it.

use super::{exports, put, require, wanted};
use crate::call::Call;
use crate::engine::Target;
use crate::state::State;
use crate::types::{Outcome, code};

exports! {
    fn cuDevicePrimaryCtxRetain(context: *mut u64, device: i32) |call| {
        let device = call.device(device)?;
        wanted(context)?;
        let handle = State::primary_handle(device);
        if !call.contexts.contains_key(&handle) {
            let (key, flags) = (call.key(), call.devices[device as usize].flags);
            call.create_context(key, device, flags, true);
        }
        call.devices[device as usize].retained += 1;
        put(context, handle)
    };
    fn cuDevicePrimaryCtxRelease(device: i32) |call| release(call, device);
    fn cuDevicePrimaryCtxRelease_v2(device: i32) |call| release(call, device);
    fn cuDevicePrimaryCtxReset(device: i32) |call| reset(call, device);
    fn cuDevicePrimaryCtxReset_v2(device: i32) |call| reset(call, device);
    fn cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) |call| set_flags(call, device, flags);
    fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) |call| set_flags(call, device, flags);
    fn cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32) |call| {
        let device = call.device(device)?;
        wanted(active)?;
        put(flags, call.devices[device as usize].flags)?;
        put(active, i32::from(call.contexts.contains_key(&State::primary_handle(device))))
    };
}

fn release(call: &mut Call, device: i32) -> Outcome {
    let device = call.device(device)?;
    let record = &mut call.devices[device as usize];
    require(record.retained > 0, code::INVALID_CONTEXT)?;
    record.retained -= 1;
    if record.retained == 0 {
        end(call, State::primary_handle(device));
    }
    Ok(())
}

/// Ends the context and all that is in it, whoever retains it.
fn reset(call: &mut Call, device: i32) -> Outcome {
    let device = call.device(device)?;
    call.devices[device as usize].retained = 0;
    end(call, State::primary_handle(device));
    call.devices[device as usize].error.map_or(Ok(()), Err)
}

/// Runs what is queued in a context, then destroys it.
pub fn end(call: &mut Call, handle: u64) {
    if let Some(key) = call.contexts.get(&handle).map(|c| c.key) {
        call.wait(Target::Context(key));
        call.destroy_context(handle);
    }
}

/// `CU_CTX_*`: one way of waiting at most.
pub fn are_flags(flags: u32) -> bool {
    flags & !0xff == 0 && matches!(flags & 7, 0 | 1 | 2 | 4)
}

fn set_flags(call: &mut Call, device: i32, flags: u32) -> Outcome {
    let device = call.device(device)?;
    require(are_flags(flags), code::INVALID_VALUE)?;
    call.devices[device as usize].flags = flags;
    if let Some(context) = call.contexts.get_mut(&State::primary_handle(device)) {
        context.flags = flags;
    }
    Ok(())
}
