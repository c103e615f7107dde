//! Events.

use super::context::given_or_current;
use super::{exports, put, require, wanted};
use crate::call::Call;
use crate::engine::{EventKey, Status, Target};
use crate::graphs::Node;
use crate::hand_off::LOOK;
use crate::memory::ipc::SharedEvent;
use crate::state::Event;
use crate::submit::StreamRef;
use crate::types::{Code, Outcome, code};
use crate::work::Body;

exports! {
    fn cuEventCreate(event: *mut u64, flags: u32) |call| {
        let context = call.context()?;
        wanted(event)?;
        let interprocess_with_timing = flags & 6 == 4;
        require(flags & !7 == 0 && !interprocess_with_timing, code::INVALID_VALUE)?;
        let owner = call.contexts[&context].key;
        let key = call.engine.create_event(owner);
        let shared = match flags & INTERPROCESS {
            0 => None,
            _ => Some(call.memory.ipc.create_event()?),
        };
        let handle = call.events.insert(Event { key, context, flags, recorded: false, shared });
        put(event, handle)
    };
    fn cuEventDestroy(event: u64) |call| destroy(call, event);
    fn cuEventDestroy_v2(event: u64) |call| destroy(call, event);
    fn cuEventRecord, fn cuEventRecord_ptsz (
        event: u64, stream: u64,
    ) |call| record(call, event, stream, 0);
    fn cuEventRecordWithFlags, fn cuEventRecordWithFlags_ptsz (
        event: u64, stream: u64, flags: u32,
    ) |call| {
        record(call, event, stream, flags)
    };
    fn cuEventQuery(event: u64) |call| {
        let (handle, (event, context)) = (event, find(call, event)?);
        call.drain();
        if foreign(call, handle)?.is_some() {
            return Err(code::NOT_READY);
        }
        let key = call.key();
        let status = call.engine.query_event(key, event);
        call.healthy(context)?;
        require(status == Status::Done, code::NOT_READY)
    };
    fn cuEventSynchronize(event: u64) |call| {
        let (handle, (event, context)) = (event, find(call, event)?);
        if let Some((shared, record)) = foreign(call, handle)? {
            while !shared.is_over(record) {
                call.sleep(LOOK);
            }
            return call.healthy(context);
        }
        call.wait(Target::Event(event));
        super::pool::synchronised(call);
        call.healthy(context)
    };
    fn cuEventElapsedTime(ms: *mut f32, start: u64, end: u64) |call| elapsed(call, ms, start, end);
    fn cuEventElapsedTime_v2(
        ms: *mut f32, start: u64, end: u64,
    ) |call| elapsed(call, ms, start, end);
    fn cuCtxRecordEvent(context: u64, event: u64) |call| {
        let context = given_or_current(call, context)?;
        call.healthy(context)?;
        call.no_capture_in(context)?;
        let owner = call.contexts[&context].key;
        let event = call.events.get_mut(event).ok_or(code::INVALID_HANDLE)?;
        require(event.context == context, code::INVALID_HANDLE)?;
        require(event.shared.is_none(), code::NOT_SUPPORTED)?;
        event.recorded = true;
        let (event, thread) = (event.key, call.key());
        call.captures.forget_event(event);
        call.engine.record_context(thread, event, owner);
        Ok(())
    };
    fn cuCtxWaitEvent(context: u64, event: u64) |call| {
        let context = given_or_current(call, context)?;
        call.healthy(context)?;
        let owner = call.contexts[&context].key;
        let event = call.events.get(event).ok_or(code::INVALID_HANDLE)?;
        require(event.shared.is_none(), code::NOT_SUPPORTED)?;
        let event = event.key;
        if let Some(capture) = call.captures.recorded_in(event) {
            return Err(call.spoil_captures(capture.as_slice(), code::CAPTURE_UNSUPPORTED));
        }
        call.no_capture_in(context)?;
        let thread = call.key();
        call.engine.wait_event_context(thread, owner, event);
        Ok(())
    };
}

fn find(call: &mut Call, event: u64) -> Result<(EventKey, u64), Code> {
    call.context()?;
    let event = call.events.get(event).ok_or(code::INVALID_HANDLE)?;
    let (key, context) = (event.key, event.context);
    call.healthy(context)?;
    call.event_is_free(key)?;
    Ok((key, context))
}

fn destroy(call: &mut Call, event: u64) -> Outcome {
    call.started()?;
    let event = call.events.remove(event).ok_or(code::INVALID_HANDLE)?;
    call.captures.forget_event(event.key);
    call.engine.destroy_event(event.key);
    event.shared.iter().for_each(SharedEvent::destroy);
    Ok(())
}

/// `CU_EVENT_INTERPROCESS`.
const INTERPROCESS: u32 = 4;

/// The event's last record, if another process made it and it is not done yet.
pub fn foreign(call: &Call, event: u64) -> Result<Option<(SharedEvent, u64)>, Code> {
    let event = call.events.get(event).ok_or(code::INVALID_HANDLE)?;
    let shared = event.shared.as_ref();
    Ok(shared.and_then(|shared| Some((shared.clone(), shared.pending()?))))
}

/// Tells the other processes of a record. What it depends on is run at once as far as it can be: the
/// others wait for it, and nobody here may ever.
fn publish(call: &mut Call, stream: &StreamRef, shared: SharedEvent) {
    let record = shared.record();
    let label = || format!("the end of record {record} of an interprocess event");
    let op = call.submit(stream, Body::Publish(shared, record), 0, label);
    call.hasten(op);
}

fn record(call: &mut Call, event: u64, stream: u64, flags: u32) -> Outcome {
    let stream = call.stream(stream)?;
    let capturing = call.is_capturing(&stream);
    require(flags == 0 || flags == 1 && capturing, code::INVALID_VALUE)?;
    let found = call.events.get_mut(event).ok_or(code::INVALID_HANDLE)?;
    require(found.context == stream.context, code::INVALID_HANDLE)?;
    if flags == 1 {
        return call.capture_node(&stream, Node::EventRecord(event)).map(|_| ());
    }
    if capturing {
        found.recorded = true;
        let event = found.key;
        call.captures.record(stream.key, event);
        return Ok(());
    }
    record_on(call, &stream, event)
}

/// Records an event on a stream that is not captured.
pub fn record_on(call: &mut Call, stream: &StreamRef, event: u64) -> Outcome {
    let found = call.events.get_mut(event).ok_or(code::INVALID_HANDLE)?;
    found.recorded = true;
    let (event, shared, thread) = (found.key, found.shared.clone(), call.key());
    call.captures.forget_event(event);
    call.engine.record(thread, event, stream.key);
    if let Some(shared) = shared {
        publish(call, stream, shared);
    }
    Ok(())
}

/// Milliseconds of virtual time between two records that are both done.
fn elapsed(call: &mut Call, ms: *mut f32, start: u64, end: u64) -> Outcome {
    let (start, end) = (timed(call, start)?, timed(call, end)?);
    call.drain();
    let times = (call.engine.event_time_ns(start), call.engine.event_time_ns(end));
    let (Some(from), Some(to)) = times else { return Err(code::NOT_READY) };
    put(ms, (to as f64 - from as f64) as f32 / 1e6)
}

fn timed(call: &mut Call, handle: u64) -> Result<EventKey, Code> {
    let (key, _) = find(call, handle)?;
    let fit = call.events.get(handle).is_some_and(|e| e.recorded && e.flags & 2 == 0);
    require(fit, code::INVALID_HANDLE)?;
    Ok(key)
}
