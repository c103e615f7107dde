//! Contexts: created ones, and which is current to a thread.

use super::{exports, get, primary, put, put_if, require, wanted};
use crate::call::Call;
use crate::engine::Target;
use crate::types::{Code, Outcome, code};

exports! {
    fn cuCtxCreate(
        context: *mut u64, flags: u32, device: i32,
    ) |call| create(call, context, flags, device);
    fn cuCtxCreate_v2(context: *mut u64, flags: u32, device: i32) |call| {
        create(call, context, flags, device)
    };
    fn cuCtxCreate_v3(
        context: *mut u64, affinity: *const u8, count: i32, flags: u32, device: i32,
    ) |call| {
        require(affinity.is_null() && count == 0, code::NOT_SUPPORTED)?;
        create(call, context, flags, device)
    };
    fn cuCtxCreate_v4(
        context: *mut u64, parameters: *const [u64; 3], flags: u32, device: i32,
    ) |call| {
        let plain = parameters.is_null() || get(parameters)? == [0; 3];
        require(plain, code::NOT_SUPPORTED)?;
        create(call, context, flags, device)
    };
    fn cuCtxDestroy(context: u64) |call| destroy(call, context);
    fn cuCtxDestroy_v2(context: u64) |call| destroy(call, context);
    fn cuCtxPushCurrent(context: u64) |call| push(call, context);
    fn cuCtxPushCurrent_v2(context: u64) |call| push(call, context);
    fn cuCtxPopCurrent(context: *mut u64) |call| pop(call, context);
    fn cuCtxPopCurrent_v2(context: *mut u64) |call| pop(call, context);
    fn cuCtxSetCurrent(context: u64) |call| {
        call.started()?;
        require(context == 0 || call.contexts.contains_key(&context), code::INVALID_CONTEXT)?;
        let thread = call.thread;
        let stack = &mut call.thread(thread).stack;
        stack.pop();
        if context != 0 {
            stack.push(context);
        }
        Ok(())
    };
    fn cuCtxGetCurrent(context: *mut u64) |call| {
        call.started()?;
        let thread = call.thread;
        let top = call.thread(thread).stack.last().copied().unwrap_or(0);
        put(context, top)
    };
    fn cuCtxGetDevice(device: *mut i32) |call| {
        let context = call.current()?;
        put(device, call.contexts[&context].device as i32)
    };
    fn cuCtxGetDevice_v2(device: *mut i32, context: u64) |call| {
        let context = given_or_current(call, context)?;
        put(device, call.contexts[&context].device as i32)
    };
    fn cuCtxGetFlags(flags: *mut u32) |call| {
        let context = call.current()?;
        put(flags, call.contexts[&context].flags)
    };
    fn cuCtxSetFlags(flags: u32) |call| {
        let context = call.current()?;
        require(primary::are_flags(flags), code::INVALID_VALUE)?;
        if let Some(context) = call.contexts.get_mut(&context) {
            context.flags = flags;
        }
        Ok(())
    };
    fn cuCtxGetId(context: u64, id: *mut u64) |call| {
        let context = given_or_current(call, context)?;
        put(id, call.contexts[&context].id)
    };
    fn cuCtxGetApiVersion(context: u64, version: *mut u32) |call| {
        given_or_current(call, context)?;
        put(version, 3020)
    };
    fn cuCtxSynchronize() |call| {
        let context = call.context()?;
        synchronize(call, context)
    };
    fn cuCtxSynchronize_v2(context: u64) |call| {
        let context = given_or_current(call, context)?;
        call.healthy(context)?;
        synchronize(call, context)
    };
    fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) |call| {
        call.context()?;
        put_if(least, 0)?;
        put_if(greatest, GREATEST_PRIORITY)
    };
    fn cuCtxGetLimit(value: *mut usize, limit: i32) |call| {
        let context = call.context()?;
        let default = default_limit(limit).ok_or(code::UNSUPPORTED_LIMIT)?;
        let set = call.contexts[&context].limits.get(&limit).copied();
        put(value, set.unwrap_or(default) as usize)
    };
    fn cuCtxSetLimit(limit: i32, value: usize) |call| {
        let context = call.context()?;
        default_limit(limit).ok_or(code::UNSUPPORTED_LIMIT)?;
        let value = match limit {
            // Of compute capability 9.0 on, device code does not synchronise.
            SYNC_DEPTH => return Err(code::UNSUPPORTED_LIMIT),
            L2_FETCH_GRANULARITY => (value as u64).min(128),
            // What the device's attribute gives for it.
            PERSISTING_L2_SIZE => 0,
            _ => value as u64,
        };
        if let Some(context) = call.contexts.get_mut(&context) {
            context.limits.insert(limit, value);
        }
        Ok(())
    };
    fn cuCtxGetCacheConfig(config: *mut i32) |call| {
        let context = call.context()?;
        put(config, call.contexts[&context].cache_config)
    };
    fn cuCtxSetCacheConfig(config: i32) |call| {
        let context = call.context()?;
        require((0..=3).contains(&config), code::INVALID_VALUE)?;
        if let Some(context) = call.contexts.get_mut(&context) {
            context.cache_config = config;
        }
        Ok(())
    };
    fn cuFlushGPUDirectRDMAWrites(target: i32, scope: i32) |call| {
        call.context()?;
        require(target == 0 && matches!(scope, 100 | 200), code::INVALID_VALUE)
    };
    fn cuCtxResetPersistingL2Cache() |call| call.context().map(|_| ());
    fn cuThreadExchangeStreamCaptureMode(mode: *mut i32) |call| {
        call.started()?;
        let new = get(mode)?;
        require((0..=2).contains(&new), code::INVALID_VALUE)?;
        let thread = call.thread;
        let old = std::mem::replace(&mut call.thread(thread).capture_mode, new);
        put(mode, old)
    };
}

/// The most urgent stream priority; 0 is the least.
pub const GREATEST_PRIORITY: i32 = -5;

const SYNC_DEPTH: i32 = 3;
const L2_FETCH_GRANULARITY: i32 = 5;
const PERSISTING_L2_SIZE: i32 = 6;

fn default_limit(limit: i32) -> Option<u64> {
    match limit {
        0 => Some(1024),
        1 => Some(1 << 20),
        2 => Some(8 << 20),
        3 => Some(2),
        4 => Some(2048),
        5 => Some(64),
        6 => Some(0),
        _ => None,
    }
}

/// The context of a handle, or the current one for 0.
pub fn given_or_current(call: &mut Call, context: u64) -> Result<u64, Code> {
    if context == 0 {
        return call.current();
    }
    call.started()?;
    require(call.contexts.contains_key(&context), code::INVALID_CONTEXT)?;
    Ok(context)
}

fn create(call: &mut Call, context: *mut u64, flags: u32, device: i32) -> Outcome {
    let device = call.device(device)?;
    wanted(context)?;
    require(primary::are_flags(flags), code::INVALID_VALUE)?;
    let key = call.key();
    let handle = call.create_context(key, device, flags, false);
    let thread = call.thread;
    call.thread(thread).stack.push(handle);
    put(context, handle)
}

fn destroy(call: &mut Call, context: u64) -> Outcome {
    call.started()?;
    let known = call.contexts.get(&context).map(|c| c.primary);
    require(known == Some(false), code::INVALID_CONTEXT)?;
    primary::end(call, context);
    let thread = call.thread;
    let stack = &mut call.thread(thread).stack;
    if stack.last() == Some(&context) {
        stack.pop();
    }
    Ok(())
}

fn push(call: &mut Call, context: u64) -> Outcome {
    call.started()?;
    require(call.contexts.contains_key(&context), code::INVALID_CONTEXT)?;
    let thread = call.thread;
    call.thread(thread).stack.push(context);
    Ok(())
}

fn pop(call: &mut Call, context: *mut u64) -> Outcome {
    call.started()?;
    let thread = call.thread;
    let top = call.thread(thread).stack.pop().ok_or(code::INVALID_CONTEXT)?;
    put_if(context, top)
}

fn synchronize(call: &mut Call, context: u64) -> Outcome {
    call.no_capture_in(context)?;
    call.wait(Target::Context(call.contexts[&context].key));
    super::pool::synchronised(call);
    call.healthy(context)
}
