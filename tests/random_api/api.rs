//! The C interface, called as a C program calls it. A status other than 0 is an error here, with the
//! sentence that belongs to it.

use std::ffi::{CStr, c_void};

use cuddy::abi::cache::{cuddy_empty_cache, cuddy_pin, cuddy_tick, cuddy_trim, cuddy_unpin};
use cuddy::abi::graphs::{cuddy_graph_begin, cuddy_graph_destroy, cuddy_graph_end};
use cuddy::abi::limits::{
    cuddy_mem_get_info, cuddy_memory_limit, cuddy_set_memory_fraction, cuddy_set_memory_limit,
};
use cuddy::abi::memory::{
    cuddy_block, cuddy_block_info, cuddy_free, cuddy_free_after, cuddy_free_on, cuddy_malloc,
    cuddy_malloc_ex, cuddy_record_stream, cuddy_request,
};
use cuddy::abi::observers::{cuddy_event, cuddy_observe};
use cuddy::abi::pools::{
    cuddy_pool_create, cuddy_pool_destroy, cuddy_pool_options, cuddy_pool_pop, cuddy_pool_push,
    cuddy_pool_reset_peak_stats, cuddy_pool_set_limit, cuddy_pool_stats, cuddy_pool_trim,
};
use cuddy::abi::statistics::{
    cuddy_memory_stats, cuddy_memory_summary, cuddy_reset_accumulated_memory_stats,
    cuddy_reset_peak_memory_stats,
};
use cuddy::abi::streams::{
    CUDDY_STREAM_CAPTURABLE, cuddy_note_wait, cuddy_stream_open, cuddy_stream_open_ex,
    cuddy_stream_retire,
};
use cuddy::abi::version::cuddy_last_error;
use cuddy::abi::watching::{cuddy_leaks, cuddy_scope_begin};
use cuddy::error::cuddy_status;
use cuddy::stats::cuddy_stats;

/// The device that programs run on.
pub const DEVICE: i32 = 0;

/// A call that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    pub status: cuddy_status,
    /// For whoever reads of it.
    #[allow(dead_code)]
    pub text: String,
}

pub type Outcome<T> = Result<T, Failed>;

fn check(status: cuddy_status) -> Outcome<()> {
    if status == cuddy_status::CUDDY_OK {
        return Ok(());
    }
    // SAFETY: never NULL, and the thread's own until its next failure.
    let text = unsafe { CStr::from_ptr(cuddy_last_error()) };
    Err(Failed { status, text: text.to_string_lossy().into_owned() })
}

/// What a call writes, if it succeeds; what it must leave alone, if it fails.
fn given<T: Copy + PartialEq + std::fmt::Debug>(
    before: T,
    call: impl FnOnce(*mut T) -> cuddy_status,
) -> Outcome<T> {
    let mut value = before;
    let outcome = check(call(&raw mut value));
    if outcome.is_err() {
        assert_eq!(value, before, "a call that failed wrote its output");
    }
    outcome.map(|()| value)
}

fn pointer(at: u64) -> *mut c_void {
    at as *mut c_void
}

fn stream_of(handle: usize) -> *mut c_void {
    handle as *mut c_void
}

pub fn malloc(bytes: u64, stream: usize) -> Outcome<u64> {
    let stream = stream_of(stream);
    // SAFETY: the pointer is to a local.
    let call = |to| unsafe { cuddy_malloc(to, bytes as usize, DEVICE, stream) };
    given(pointer(8), call).map(|at| at as u64)
}

pub fn malloc_ex(request: Request) -> Outcome<u64> {
    let Request { bytes, alignment, stream, flags, pool, wait_ms, tag } = request;
    let request = cuddy_request {
        struct_size: size_of::<cuddy_request>() as u64,
        bytes,
        alignment,
        stream: stream_of(stream),
        device: DEVICE,
        flags,
        pool,
        wait_ms,
        tag: tag.map_or(std::ptr::null(), CStr::as_ptr),
    };
    // SAFETY: both pointers are to locals.
    given(pointer(8), |to| unsafe { cuddy_malloc_ex(to, &raw const request) }).map(|at| at as u64)
}

/// What `cuddy_malloc_ex` is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    pub bytes: u64,
    pub alignment: u64,
    pub stream: usize,
    pub flags: u32,
    pub pool: u64,
    pub wait_ms: u64,
    pub tag: Option<&'static CStr>,
}

pub fn free(at: u64) -> Outcome<()> {
    check(cuddy_free(pointer(at)))
}

pub fn free_on(at: u64, stream: usize) -> Outcome<()> {
    check(cuddy_free_on(pointer(at), stream_of(stream)))
}

pub fn free_after(at: u64, event: usize) -> Outcome<()> {
    // SAFETY: the event is valid during the call.
    check(unsafe { cuddy_free_after(pointer(at), event as *mut c_void) })
}

pub fn record_stream(at: u64, stream: usize) -> Outcome<()> {
    check(cuddy_record_stream(pointer(at), stream_of(stream)))
}

/// Start, bytes requested and offset of the live block that an address lies in.
pub fn block_info(at: u64) -> Outcome<(u64, u64, u64)> {
    let mut info = cuddy_block {
        struct_size: size_of::<cuddy_block>() as u64,
        address: pointer(0),
        bytes: 0,
        requested: 0,
        offset: 0,
        stream: stream_of(0),
        device: 0,
        reserved: 0,
    };
    // SAFETY: the pointer is to a local of that size.
    check(unsafe { cuddy_block_info(pointer(at), &raw mut info) })?;
    Ok((info.address as u64, info.requested, info.offset))
}

pub fn stream_open(stream: usize) -> Outcome<()> {
    check(cuddy_stream_open(DEVICE, stream_of(stream)))
}

pub fn stream_open_capturable(stream: usize) -> Outcome<()> {
    check(cuddy_stream_open_ex(DEVICE, stream_of(stream), CUDDY_STREAM_CAPTURABLE))
}

pub fn stream_retire(stream: usize) -> Outcome<()> {
    check(cuddy_stream_retire(DEVICE, stream_of(stream)))
}

pub fn note_wait(thief: usize, donor: usize) -> Outcome<()> {
    check(cuddy_note_wait(DEVICE, stream_of(thief), stream_of(donor)))
}

pub fn empty_cache() -> Outcome<usize> {
    // SAFETY: the pointer is to a local.
    given(7, |freed| unsafe { cuddy_empty_cache(DEVICE, freed) })
}

pub fn trim(keep: u64) -> Outcome<usize> {
    // SAFETY: the pointer is to a local.
    given(7, |freed| unsafe { cuddy_trim(DEVICE, keep as usize, freed) })
}

pub fn tick() -> Outcome<usize> {
    // SAFETY: the pointer is to a local.
    given(7, |freed| unsafe { cuddy_tick(DEVICE, freed) })
}

pub fn pin(at: u64) -> Outcome<()> {
    check(cuddy_pin(pointer(at), 0))
}

pub fn unpin(at: u64) -> Outcome<()> {
    check(cuddy_unpin(pointer(at), 0))
}

pub fn scope_begin(name: &CStr) -> Outcome<()> {
    // SAFETY: a C string.
    check(unsafe { cuddy_scope_begin(name.as_ptr()) })
}

/// All live blocks that are known, as a JSON array.
pub fn leaks() -> String {
    let mut needed = 0;
    // SAFETY: the pointers are to locals; no bytes are written.
    check(unsafe { cuddy_leaks(c"".as_ptr(), std::ptr::null_mut(), 0, &raw mut needed) })
        .expect("it tells");
    let mut text = vec![0u8; needed];
    let buffer = text.as_mut_ptr().cast();
    // SAFETY: the pointers are to locals of that size.
    check(unsafe { cuddy_leaks(c"".as_ptr(), buffer, needed, &raw mut needed) }).expect("it tells");
    let text = CStr::from_bytes_with_nul(&text).expect("one 0, at its end");
    text.to_str().expect("UTF-8").to_owned()
}

pub fn set_memory_limit(bytes: u64) -> Outcome<()> {
    check(cuddy_set_memory_limit(DEVICE, bytes as usize))
}

pub fn set_memory_fraction(fraction: f64) -> Outcome<()> {
    check(cuddy_set_memory_fraction(DEVICE, fraction))
}

pub fn memory_limit() -> Outcome<u64> {
    // SAFETY: the pointer is to a local.
    given(7usize, |bytes| unsafe { cuddy_memory_limit(DEVICE, bytes) }).map(|bytes| bytes as u64)
}

pub fn mem_get_info() -> Outcome<(usize, usize)> {
    let mut total = 7;
    // SAFETY: both pointers are to locals.
    let free = given(7, |free| unsafe { cuddy_mem_get_info(DEVICE, free, &raw mut total) })?;
    Ok((free, total))
}

fn no_stats() -> cuddy_stats {
    // SAFETY: a structure of numbers.
    let mut stats: cuddy_stats = unsafe { std::mem::zeroed() };
    stats.struct_size = size_of::<cuddy_stats>() as u64;
    stats
}

pub fn stats() -> cuddy_stats {
    let mut stats = no_stats();
    // SAFETY: the pointer is to a local of that size.
    check(unsafe { cuddy_memory_stats(DEVICE, &raw mut stats) }).expect("statistics");
    stats
}

pub fn pool_stats(pool: u64) -> Outcome<cuddy_stats> {
    let mut stats = no_stats();
    // SAFETY: the pointer is to a local of that size.
    check(unsafe { cuddy_pool_stats(pool, &raw mut stats) })?;
    Ok(stats)
}

pub fn reset_peaks() -> Outcome<()> {
    check(cuddy_reset_peak_memory_stats(DEVICE))
}

pub fn reset_accumulated() -> Outcome<()> {
    check(cuddy_reset_accumulated_memory_stats(DEVICE))
}

/// How many bytes the summary needs; it is written, and cut, into so many.
pub fn summary(room: usize) -> Outcome<usize> {
    let mut text = vec![0u8; room];
    let buffer = text.as_mut_ptr().cast();
    // SAFETY: the pointers are to locals of that size.
    let needed =
        given(7usize, |needed| unsafe { cuddy_memory_summary(DEVICE, buffer, room, needed) })?;
    assert!(text.contains(&0), "the text has no end");
    Ok(needed)
}

pub fn pool_create(limit: u64, flags: u32) -> Outcome<u64> {
    let struct_size = size_of::<cuddy_pool_options>() as u64;
    let options = cuddy_pool_options { struct_size, limit, device: DEVICE, flags };
    // SAFETY: both pointers are to locals.
    given(7, |pool| unsafe { cuddy_pool_create(&raw const options, pool) })
}

pub fn pool_destroy(pool: u64) -> Outcome<()> {
    check(cuddy_pool_destroy(pool))
}

pub fn pool_push(pool: u64) -> Outcome<()> {
    check(cuddy_pool_push(pool))
}

pub fn pool_pop(pool: u64) -> Outcome<()> {
    check(cuddy_pool_pop(pool))
}

pub fn pool_set_limit(pool: u64, bytes: u64) -> Outcome<()> {
    check(cuddy_pool_set_limit(pool, bytes as usize))
}

pub fn pool_reset_peaks(pool: u64) -> Outcome<()> {
    check(cuddy_pool_reset_peak_stats(pool))
}

pub fn pool_trim(pool: u64, keep: u64) -> Outcome<usize> {
    // SAFETY: the pointer is to a local.
    given(7, |freed| unsafe { cuddy_pool_trim(pool, keep as usize, freed) })
}

pub fn graph_begin(stream: usize, pool: u64) -> Outcome<u64> {
    // SAFETY: the pointer is to a local.
    given(7, |graph| unsafe { cuddy_graph_begin(graph, DEVICE, stream_of(stream), pool) })
}

pub fn graph_end(graph: u64) -> Outcome<()> {
    check(cuddy_graph_end(graph))
}

pub fn graph_destroy(graph: u64, stream: usize) -> Outcome<()> {
    check(cuddy_graph_destroy(graph, stream_of(stream)))
}

/// A function that is called when something happens.
pub type Callback = unsafe extern "C-unwind" fn(*const cuddy_event, *mut c_void);

pub fn observe(kinds: u32, callback: Callback) -> Outcome<u64> {
    // SAFETY: the callback is a function, which needs nothing.
    given(7, |observer| unsafe {
        cuddy_observe(observer, kinds, Some(callback), std::ptr::null_mut())
    })
}
