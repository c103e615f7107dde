//! Per-thread default streams.
//!
//! A program compiled with CUDA_API_PER_THREAD_DEFAULT_STREAM (nvcc --default-stream per-thread)
//! means CUDDY_STREAM_PER_THREAD by stream 0. For it the names of the functions that take a stream
//! stand for these, as the names of cuda.h do; others need not call them by name.

use std::ffi::{c_int, c_void};

use super::convert::cuddy_stream;
use super::graphs;
use super::host;
use super::memory::{self, cuddy_request};
use super::streams;
use crate::error::cuddy_status;

/// What the caller's stream 0 stands for.
fn named(stream: cuddy_stream) -> cuddy_stream {
    if stream.is_null() { 2 as cuddy_stream } else { stream }
}

/// cuddy_malloc(), where stream 0 is CUDDY_STREAM_PER_THREAD.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_malloc_ptsz(
    ptr: *mut *mut c_void,
    bytes: usize,
    device: c_int,
    stream: cuddy_stream,
) -> cuddy_status {
    // SAFETY: the caller's promises are the same.
    unsafe { memory::cuddy_malloc(ptr, bytes, device, named(stream)) }
}

/// cuddy_malloc_ex(), where stream 0 is CUDDY_STREAM_PER_THREAD.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_malloc_ex_ptsz(
    ptr: *mut *mut c_void,
    request: *const cuddy_request,
) -> cuddy_status {
    // SAFETY: the caller's promises are the same.
    unsafe { memory::malloc_ex(ptr, request, named) }
}

/// cuddy_record_stream(), where stream 0 is CUDDY_STREAM_PER_THREAD.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_record_stream_ptsz(ptr: *mut c_void, stream: cuddy_stream) -> cuddy_status {
    memory::cuddy_record_stream(ptr, named(stream))
}

/// cuddy_host_record_stream(), where stream 0 is CUDDY_STREAM_PER_THREAD.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_host_record_stream_ptsz(
    ptr: *mut c_void,
    stream: cuddy_stream,
) -> cuddy_status {
    host::cuddy_host_record_stream(ptr, named(stream))
}

/// cuddy_free_on(), where stream 0 is CUDDY_STREAM_PER_THREAD.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_free_on_ptsz(ptr: *mut c_void, stream: cuddy_stream) -> cuddy_status {
    memory::cuddy_free_on(ptr, named(stream))
}

/// cuddy_note_wait(), where stream 0 is CUDDY_STREAM_PER_THREAD.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_note_wait_ptsz(
    device: c_int,
    thief: cuddy_stream,
    donor: cuddy_stream,
) -> cuddy_status {
    streams::cuddy_note_wait(device, named(thief), named(donor))
}

/// cuddy_graph_begin(), where stream 0 is CUDDY_STREAM_PER_THREAD.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_graph_begin_ptsz(
    graph: *mut graphs::cuddy_graph,
    device: c_int,
    stream: cuddy_stream,
    pool: super::pools::cuddy_pool,
) -> cuddy_status {
    // SAFETY: the caller's promises are the same.
    unsafe { graphs::cuddy_graph_begin(graph, device, named(stream), pool) }
}

/// cuddy_graph_destroy(), where stream 0 is CUDDY_STREAM_PER_THREAD.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_graph_destroy_ptsz(
    graph: graphs::cuddy_graph,
    stream: cuddy_stream,
) -> cuddy_status {
    graphs::cuddy_graph_destroy(graph, named(stream))
}

/// cuddy_stream_open(), where stream 0 is CUDDY_STREAM_PER_THREAD.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_stream_open_ptsz(device: c_int, stream: cuddy_stream) -> cuddy_status {
    streams::cuddy_stream_open(device, named(stream))
}

/// cuddy_stream_open_ex(), where stream 0 is CUDDY_STREAM_PER_THREAD.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_stream_open_ex_ptsz(
    device: c_int,
    stream: cuddy_stream,
    flags: u32,
) -> cuddy_status {
    streams::cuddy_stream_open_ex(device, named(stream), flags)
}

/// cuddy_stream_retire(), where stream 0 is CUDDY_STREAM_PER_THREAD.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_stream_retire_ptsz(device: c_int, stream: cuddy_stream) -> cuddy_status {
    streams::cuddy_stream_retire(device, named(stream))
}
