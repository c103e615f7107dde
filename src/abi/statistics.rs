//! Statistics.
//!
//! Always counted, exactly. A device that Cuddy has not used has zeros, and asking does not make a
//! context on it.

use std::ffi::{c_char, c_int};

use super::convert::{Growing, characters_or_null, fill, tell};
use super::guard::{guarded, guarded_bytes};
use crate::error::cuddy_status;
use crate::process;
use crate::stats::cuddy_stats;

// SAFETY: `#[repr(C)]`, begins with `struct_size: u64`, and holds numbers only.
unsafe impl Growing for cuddy_stats {
    const NAME: &'static str = "cuddy_stats";
}

/// Bytes of live blocks, after rounding.
///
/// device: a device's number, or CUDDY_CURRENT_DEVICE.
///
/// Returns 0 if there is no such device; cuddy_last_error() says so. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_memory_allocated(device: c_int) -> usize {
    guarded_bytes(|| Ok(process::stats(device)?.allocated))
}

/// The most bytes of live blocks since the start or cuddy_reset_peak_memory_stats().
///
/// device, result, threads: as cuddy_memory_allocated().
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_max_memory_allocated(device: c_int) -> usize {
    guarded_bytes(|| Ok(process::stats(device)?.allocated_peak))
}

/// Physical bytes held from the driver: live blocks, blocks that a stream may still use, and cache.
///
/// device, result, threads: as cuddy_memory_allocated().
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_memory_reserved(device: c_int) -> usize {
    guarded_bytes(|| Ok(process::stats(device)?.reserved))
}

/// The most physical bytes held since the start or cuddy_reset_peak_memory_stats().
///
/// device, result, threads: as cuddy_memory_allocated().
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_max_memory_reserved(device: c_int) -> usize {
    guarded_bytes(|| Ok(process::stats(device)?.reserved_peak))
}

/// Copies a device's counters, all of one moment.
///
/// device: a device's number, or CUDDY_CURRENT_DEVICE.
/// stats:  where to write; its struct_size must be set.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (stats is NULL or its struct_size is none),
/// CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
/// Thread-safe. Never calls the driver for a device in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_memory_stats(
    device: c_int,
    stats: *mut cuddy_stats,
) -> cuddy_status {
    // SAFETY: NULL is refused there; the caller promises struct_size bytes.
    guarded(|| unsafe { fill(stats, "stats", || process::stats(device)) })
}

/// Starts every peak anew, from the value of now.
///
/// device: a device's number, CUDDY_CURRENT_DEVICE or CUDDY_ALL_DEVICES.
///
/// Errors: CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_FORKED,
/// CUDDY_ERROR_SHUTDOWN. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_reset_peak_memory_stats(device: c_int) -> cuddy_status {
    guarded(|| process::reset_peak_stats(device))
}

/// Starts every total, and every count of events, anew from 0.
///
/// device, errors, threads: as cuddy_reset_peak_memory_stats().
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_reset_accumulated_memory_stats(device: c_int) -> cuddy_status {
    guarded(|| process::reset_accumulated_stats(device))
}

/// Writes a table of the counters for people to read.
///
/// device: a device's number, CUDDY_CURRENT_DEVICE or CUDDY_ALL_DEVICES.
/// buffer: where to write the text, cut to size - 1 bytes and ended by 0; NULL if size is 0.
/// size:   the buffer's bytes.
/// needed: where to write the bytes that the whole text needs, the 0 included; may be NULL. If it
///         is above size, the text was cut.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (buffer is NULL and size is not 0), and as
/// cuddy_memory_stats(). Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_memory_summary(
    device: c_int,
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> cuddy_status {
    // SAFETY: the caller promises `size` writable bytes, and `needed` NULL or writable.
    guarded(|| unsafe { tell(buffer, size, needed, || process::summary(device)) })
}

/// Writes the counters of every device in use, of page-locked host memory and of the scopes in the
/// text format of Prometheus: a program serves it, or writes it to a file for the textfile
/// collector of the node exporter.
///
/// buffer, size, needed: where to write the text; as for cuddy_memory_summary().
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (buffer is NULL and size is not 0),
/// CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
/// Thread-safe. Never calls the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_export_prometheus(
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> cuddy_status {
    // SAFETY: NULL is refused there; the caller promises the rest.
    guarded(|| unsafe { tell(buffer, size, needed, process::prometheus) })
}

/// Writes what cuddy_export_prometheus() tells to a file, now and again and again, from a thread of
/// Cuddy's own: for `cuddy top`, and for the textfile collector of the node exporter. Who reads sees
/// a whole file. CUDDY_EXPORT in the environment is the same, every 500 ms; CUDDY_EXPORT=on is a
/// file that `cuddy top` finds by the process's number.
///
/// path:     the file; "%p" in it is the process's number. NULL ends it. What was begun before ends.
/// every_ms: milliseconds from one file to the next, at least 1.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (path is empty, no UTF-8 or cannot be written; every_ms is
/// 0), CUDDY_ERROR_NOT_SUPPORTED (no thread can be started), CUDDY_ERROR_HOST_OUT_OF_MEMORY,
/// CUDDY_ERROR_FORKED.
/// Thread-safe. Never calls the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_export_metrics(path: *const c_char, every_ms: u64) -> cuddy_status {
    // SAFETY: NULL is refused there; the caller promises a C string.
    guarded(|| process::export_metrics(unsafe { characters_or_null(path, "path") }?, every_ms))
}
