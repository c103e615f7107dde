//! Streams, and the host functions that run in them.

use super::exports;
use std::ffi::c_void;

exports! {
    context fn cudaStreamCreate(stream: *mut u64) |d| d.cuStreamCreate(stream, 0);
    context fn cudaStreamCreateWithFlags(stream: *mut u64, flags: u32) |d| {
        d.cuStreamCreate(stream, flags)
    };
    context fn cudaStreamCreateWithPriority(stream: *mut u64, flags: u32, priority: i32) |d| {
        d.cuStreamCreateWithPriority(stream, flags, priority)
    };
    context fn cudaStreamDestroy(stream: u64) |d| d.cuStreamDestroy(stream);
    context fn cudaStreamSynchronize, fn cudaStreamSynchronize_ptsz (stream: u64) |d, lane| {
        d.cuStreamSynchronize(lane.of(stream))
    };
    context fn cudaStreamQuery, fn cudaStreamQuery_ptsz (stream: u64) |d, lane| {
        d.cuStreamQuery(lane.of(stream))
    };
    context fn cudaStreamWaitEvent, fn cudaStreamWaitEvent_ptsz (
        stream: u64, event: u64, flags: u32,
    ) |d, lane| {
        d.cuStreamWaitEvent(lane.of(stream), event, flags)
    };
    // The callback gets the stream and a cudaError_t, which is numbered like the driver's.
    context fn cudaStreamAddCallback, fn cudaStreamAddCallback_ptsz (
        stream: u64, function: *mut c_void, data: *mut c_void, flags: u32,
    ) |d, lane| {
        d.cuStreamAddCallback(lane.of(stream), function, data, flags)
    };
    context fn cudaLaunchHostFunc, fn cudaLaunchHostFunc_ptsz (
        stream: u64, function: *mut c_void, data: *mut c_void,
    ) |d, lane| {
        d.cuLaunchHostFunc(lane.of(stream), function, data)
    };
    context fn cudaStreamGetPriority, fn cudaStreamGetPriority_ptsz (
        stream: u64, priority: *mut i32,
    ) |d, lane| {
        d.cuStreamGetPriority(lane.of(stream), priority)
    };
    context fn cudaStreamGetFlags, fn cudaStreamGetFlags_ptsz (
        stream: u64, flags: *mut u32,
    ) |d, lane| {
        d.cuStreamGetFlags(lane.of(stream), flags)
    };
    context fn cudaStreamGetId, fn cudaStreamGetId_ptsz (stream: u64, id: *mut u64) |d, lane| {
        d.cuStreamGetId(lane.of(stream), id)
    };
    context fn cudaStreamGetDevice, fn cudaStreamGetDevice_ptsz (
        stream: u64, device: *mut i32,
    ) |d, lane| {
        d.cuStreamGetDevice(lane.of(stream), device)
    };
    context fn cudaStreamCopyAttributes, fn cudaStreamCopyAttributes_ptsz (
        to: u64, from: u64,
    ) |d, lane| {
        d.cuStreamCopyAttributes(lane.of(to), lane.of(from))
    };
    context fn cudaStreamGetAttribute, fn cudaStreamGetAttribute_ptsz (
        stream: u64, attribute: i32, value: *mut c_void,
    ) |d, lane| {
        d.cuStreamGetAttribute(lane.of(stream), attribute, value)
    };
    context fn cudaStreamSetAttribute, fn cudaStreamSetAttribute_ptsz (
        stream: u64, attribute: i32, value: *const c_void,
    ) |d, lane| {
        d.cuStreamSetAttribute(lane.of(stream), attribute, value)
    };
}
