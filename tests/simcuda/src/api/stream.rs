//! Streams, and the host functions that run in them.

use super::capture::discard;
use super::context::GREATEST_PRIORITY;
use super::event::foreign;
use super::{exports, put, put_if, require, wanted};
use crate::call::Call;
use crate::engine::{Status, StreamKind, Target};
use crate::graphs::Node;
use crate::memory::ipc::SharedEvent;
use crate::state::Stream;
use crate::submit::StreamRef;
use crate::types::{Outcome, code};
use crate::work::{Body, HostFunction};

exports! {
    fn cuStreamCreate(stream: *mut u64, flags: u32) |call| create(call, stream, flags, 0);
    fn cuStreamCreateWithPriority(stream: *mut u64, flags: u32, priority: i32) |call| {
        create(call, stream, flags, priority)
    };
    fn cuStreamDestroy(stream: u64) |call| destroy(call, stream);
    fn cuStreamDestroy_v2(stream: u64) |call| destroy(call, stream);
    fn cuStreamSynchronize, fn cuStreamSynchronize_ptsz (stream: u64) |call| {
        let stream = call.stream(stream)?;
        call.wait(Target::Stream(stream.key));
        super::pool::synchronised(call);
        call.healthy(stream.context)
    };
    fn cuStreamQuery, fn cuStreamQuery_ptsz (stream: u64) |call| {
        let stream = call.stream(stream)?;
        call.drain();
        let key = call.key();
        let status = call.engine.query_stream(key, stream.key);
        call.healthy(stream.context)?;
        require(status == Status::Done, code::NOT_READY)
    };
    fn cuStreamWaitEvent, fn cuStreamWaitEvent_ptsz (stream: u64, event: u64, flags: u32) |call| {
        let stream = call.stream(stream)?;
        wait_event(call, &stream, event, flags)
    };
    fn cuStreamGetId, fn cuStreamGetId_ptsz (stream: u64, id: *mut u64) |call| {
        let stream = call.stream(stream)?;
        put(id, stream.id)
    };
    fn cuStreamGetCtx, fn cuStreamGetCtx_ptsz (stream: u64, context: *mut u64) |call| {
        let stream = call.stream(stream)?;
        put(context, stream.context)
    };
    fn cuStreamGetCtx_v2, fn cuStreamGetCtx_v2_ptsz (
        stream: u64, context: *mut u64, green: *mut u64,
    ) |call| {
        let stream = call.stream(stream)?;
        put_if(green, 0)?;
        put(context, stream.context)
    };
    fn cuStreamGetDevice, fn cuStreamGetDevice_ptsz (stream: u64, device: *mut i32) |call| {
        let stream = call.stream(stream)?;
        put(device, stream.device as i32)
    };
    fn cuStreamGetFlags, fn cuStreamGetFlags_ptsz (stream: u64, flags: *mut u32) |call| {
        call.stream(stream)?;
        put(flags, call.streams.get(stream).map_or(0, |s| s.flags))
    };
    fn cuStreamGetPriority, fn cuStreamGetPriority_ptsz (stream: u64, priority: *mut i32) |call| {
        call.stream(stream)?;
        put(priority, call.streams.get(stream).map_or(0, |s| s.priority))
    };
    fn cuLaunchHostFunc, fn cuLaunchHostFunc_ptsz (stream: u64, f: u64, data: u64) |call| {
        let stream = call.stream(stream)?;
        require(f != 0, code::INVALID_VALUE)?;
        let body = Body::Host(HostFunction::Function { f, data });
        call.submit(&stream, body, HOST_NS, || format!("cuLaunchHostFunc({f:#x}, {data:#x})"));
        Ok(())
    };
    fn cuStreamAddCallback, fn cuStreamAddCallback_ptsz (
        stream: u64, f: u64, data: u64, flags: u32,
    ) |call| {
        let found = call.stream(stream)?;
        require(f != 0 && flags == 0, code::INVALID_VALUE)?;
        let body = Body::Host(HostFunction::Callback { f, stream, data });
        call.submit(&found, body, HOST_NS, || format!("cuStreamAddCallback({f:#x}, {data:#x})"));
        Ok(())
    };
}

/// A host function's virtual duration: a guess.
pub const HOST_NS: u64 = 10_000;

fn create(call: &mut Call, to: *mut u64, flags: u32, priority: i32) -> Outcome {
    let context = call.context()?;
    wanted(to)?;
    require(flags <= 1, code::INVALID_VALUE)?;
    let priority = priority.clamp(GREATEST_PRIORITY, 0);
    let kind = if flags == 1 { StreamKind::NonBlocking } else { StreamKind::Blocking };
    let (thread, owner) = (call.key(), call.contexts[&context].key);
    let key = call.engine.create_stream(thread, owner, kind, priority);
    let id = call.unique();
    call.engine.number_stream(key, id);
    let handle = call.streams.insert(Stream { key, context, flags, priority, id });
    put(to, handle)
}

/// Outside a capture the wait is the stream's; inside it is an edge, or a node if it is `flags`
/// 1, "external": for an event that has nothing to do with the capture.
fn wait_event(call: &mut Call, stream: &StreamRef, event: u64, flags: u32) -> Outcome {
    let capturing = call.is_capturing(stream);
    require(flags == 0 || flags == 1 && capturing, code::INVALID_VALUE)?;
    let found = call.events.get(event).ok_or(code::INVALID_HANDLE)?;
    let elsewhere = found.shared.as_ref().is_some_and(SharedEvent::is_foreign);
    let (key, recorded) = (found.key, found.recorded || elsewhere);
    if flags == 1 {
        return call.capture_node(stream, Node::EventWait(event)).map(|_| ());
    }
    if call.capture_wait(stream, key, recorded)? || capturing {
        return Ok(());
    }
    wait_on(call, stream, event)
}

/// Makes a stream that is not captured wait for an event.
pub fn wait_on(call: &mut Call, stream: &StreamRef, event: u64) -> Outcome {
    if let Some((shared, record)) = foreign(call, event)? {
        let label = || format!("a wait for record {record} of another process's event");
        call.submit(stream, Body::Await(shared, record), 0, label);
        return Ok(());
    }
    let key = call.events.get(event).ok_or(code::INVALID_HANDLE)?.key;
    let thread = call.key();
    call.engine.wait_event(thread, stream.key, key);
    Ok(())
}

/// The handle is free at once; queued work still runs.
fn destroy(call: &mut Call, stream: u64) -> Outcome {
    call.started()?;
    let stream = call.streams.remove(stream).ok_or(code::INVALID_HANDLE)?;
    if let Some(ended) = call.captures.stream_gone(stream.key) {
        discard(call, ended.graph);
    }
    call.engine.destroy_stream(stream.key);
    Ok(())
}
