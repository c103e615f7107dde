//! Host memory.
//!
//! Page-locked memory of the host, which devices copy from and to without the program waiting.
//! Getting it from the driver costs milliseconds; here it is kept and handed out again. A freed
//! block is used again only when the work that uses it is known to be over, never behind a wait of
//! a stream: the host would not be held back by that. So say which streams use a block
//! (cuddy_host_record_stream()): after its free they are waited for, and nobody else. Of a block
//! for which no stream was recorded, all work of its device's primary context is waited for, as
//! cudaFreeHost() does; a program that records every stream says so with
//! CUDDY_HOST_STREAMS_RECORDED, and gets unused blocks back at once.
//!
//! Blocks are cut from driver allocations: those up to 256 KiB from shared ones of 2 MiB, others
//! from any that is less than 16 times as large. No request is rounded by more than 2 MiB. Before
//! the driver is asked for more, whole allocations that are free go back, until no more is
//! page-locked than was ever in use at once and an eighth of it (or 2 MiB) more. The memory is of
//! the primary context of the device that was current when it was got; all devices can use it where
//! addresses are unified. It is placed by the calling thread's memory policy when it is got; reuse
//! does not look where it lies. A reset of that device takes it away; that is noticed by the next
//! call which needs the driver.

use std::ffi::c_void;

use super::convert::{Growing, cuddy_stream, fill, given, write_if_wanted};
use super::guard::guarded;
use crate::error::cuddy_status;
use crate::process;
use crate::stats::cuddy_host_stats;

/// A flag of host memory: page-locked to all contexts, as CU_MEMHOSTALLOC_PORTABLE.
pub const CUDDY_HOST_PORTABLE: u32 = 1;

/// A flag of host memory: mapped into device addresses, as CU_MEMHOSTALLOC_DEVICEMAP.
pub const CUDDY_HOST_MAPPED: u32 = 2;

/// A flag of host memory: write-combined, slow to read on the host; as
/// CU_MEMHOSTALLOC_WRITECOMBINED.
pub const CUDDY_HOST_WRITE_COMBINED: u32 = 4;

/// A flag of host memory: the program records every stream that uses the block, so that one of
/// which none was recorded is free at once.
pub const CUDDY_HOST_STREAMS_RECORDED: u32 = 256;

// SAFETY: `#[repr(C)]`, begins with `struct_size: u64`, and holds numbers only.
unsafe impl Growing for cuddy_host_stats {
    const NAME: &'static str = "cuddy_host_stats";
}

/// Allocates page-locked host memory.
///
/// ptr:   where to write the address, a multiple of 512.
/// bytes: how many are wanted; rounded up to a multiple of 512. 0 gives success and NULL.
/// flags: CUDDY_HOST_PORTABLE, CUDDY_HOST_MAPPED, CUDDY_HOST_WRITE_COMBINED and
///        CUDDY_HOST_STREAMS_RECORDED, or-ed; 0 for none. Memory is reused for the same flags only.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (ptr is NULL, unknown flags), CUDDY_ERROR_OUT_OF_MEMORY
/// (all that is cached went back, and freed blocks were waited for, before), CUDDY_ERROR_NO_DRIVER,
/// CUDDY_ERROR_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN, CUDDY_ERROR_HOST_OUT_OF_MEMORY.
/// Thread-safe. Calls the driver only when no free block fits; waits for streams only when the
/// driver has no memory, or cannot record what a freed block waits for (before CUDA 12.5).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_host_malloc(
    ptr: *mut *mut c_void,
    bytes: usize,
    flags: u32,
) -> cuddy_status {
    guarded(|| {
        given(ptr, "ptr")?;
        let address = process::host_malloc(bytes as u64, flags)?;
        // SAFETY: not NULL, and the caller promises that it may be written.
        unsafe { ptr.write(std::ptr::with_exposed_provenance_mut(address as usize)) };
        Ok(())
    })
}

/// Gives a block of host memory back. It is used again when the work that its streams had been
/// given by now is over.
///
/// ptr: what cuddy_host_malloc() gave; NULL does nothing.
///
/// Errors: CUDDY_ERROR_DOUBLE_FREE, CUDDY_ERROR_INTERIOR_POINTER, CUDDY_ERROR_FOREIGN_POINTER,
/// CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED; with the option caching off CUDDY_ERROR_DRIVER,
/// after which the block is free all the same.
/// Thread-safe; any thread may free. Never waits, unless caching is off. Calls the driver for one
/// free in 16, or in 1 MiB, to mark the end of the streams' work.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_host_free(ptr: *mut c_void) -> cuddy_status {
    guarded(|| process::host_free(ptr as u64))
}

/// Says that a stream uses a block of host memory: after its free it is not used again before the
/// work that the stream had been given by then is over.
///
/// ptr:    the start of a live block; NULL does nothing.
/// stream: the stream, of any device; CUDDY_STREAM_ANY is all work of the primary context of the
///         block's device. It must be valid during the call. A captured stream's use lasts until
///         its graph is destroyed.
///
/// Errors: CUDDY_ERROR_DOUBLE_FREE, CUDDY_ERROR_INTERIOR_POINTER, CUDDY_ERROR_FOREIGN_POINTER,
/// CUDDY_ERROR_INVALID_STREAM, CUDDY_ERROR_INVALID_GRAPH (the stream is captured, and no
/// cuddy_graph_begin() said so), CUDDY_ERROR_DRIVER, CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED,
/// CUDDY_ERROR_SHUTDOWN, CUDDY_ERROR_HOST_OUT_OF_MEMORY.
/// Thread-safe. Calls the driver to tell which stream a handle is.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_host_record_stream(ptr: *mut c_void, stream: cuddy_stream) -> cuddy_status {
    guarded(|| process::host_record_stream(ptr as u64, stream as usize))
}

/// Gives all host memory that is free back to the driver. Waits for the work that still uses it.
///
/// freed: where to write how many bytes were given back; may be NULL.
///
/// Errors: CUDDY_ERROR_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_HOST_OUT_OF_MEMORY.
/// Thread-safe. While a graph is captured nothing is given back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_host_empty_cache(freed: *mut usize) -> cuddy_status {
    guarded(|| {
        let bytes = process::host_empty_cache()?;
        // SAFETY: NULL or writable, as the caller promises.
        unsafe { write_if_wanted(freed, bytes) };
        Ok(())
    })
}

/// Copies the counters of host memory, all of one moment.
///
/// stats: where to write; its struct_size must be set.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (stats is NULL or its struct_size is none),
/// CUDDY_ERROR_FORKED. Thread-safe. Never calls the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_host_memory_stats(stats: *mut cuddy_host_stats) -> cuddy_status {
    // SAFETY: NULL is refused there; the caller promises struct_size bytes.
    guarded(|| unsafe { fill(stats, "stats", process::host_stats) })
}

/// Starts every peak of host memory anew, from the value of now.
///
/// Errors: CUDDY_ERROR_FORKED. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_host_reset_peak_memory_stats() -> cuddy_status {
    guarded(process::host_reset_peak_stats)
}

/// Starts every total of host memory, and every count of events, anew from 0.
///
/// Errors, threads: as cuddy_host_reset_peak_memory_stats().
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_host_reset_accumulated_memory_stats() -> cuddy_status {
    guarded(process::host_reset_accumulated_stats)
}
