//! Scopes and history.
//!
//! Scopes name parts of a program's run; each tells what was allocated in it, and what of that is
//! still live. History keeps what happened last. Both are off, and cost a branch, until a program
//! begins a scope or asks for history; from then on an allocation and its free cost some tens of
//! nanoseconds more. What is told, as JSON, is described in docs/SNAPSHOT.md.

use std::ffi::{c_char, c_void};

use super::convert::{characters, characters_or_null, tell};
use super::guard::guarded;
use crate::error::cuddy_status;
use crate::process;

/// Begins a scope on the calling thread, inside the one that it is in. What this thread allocates
/// until cuddy_scope_end() belongs to it.
///
/// name: what it is called: not empty, without a slash. Scopes of one name in the same scope are
///       one; how often it was begun is counted ("step", not "step 17").
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (name, or 63 scopes are begun), CUDDY_ERROR_NOT_SUPPORTED
/// (too many names), CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
/// Thread-safe. Other threads are not touched. Never calls the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_scope_begin(name: *const c_char) -> cuddy_status {
    // SAFETY: NULL is refused there; the caller promises a C string.
    guarded(|| process::scope_begin(unsafe { characters(name, "name") }?))
}

/// Ends the scope that the calling thread began last. Blocks of it stay its own.
///
/// name: its name, to be sure; or NULL.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (the thread is in no scope, or in another: nothing is
/// ended then), CUDDY_ERROR_FORKED.
/// Thread-safe. Never calls the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_scope_end(name: *const c_char) -> cuddy_status {
    // SAFETY: the caller promises a C string, or NULL.
    guarded(|| process::scope_end(unsafe { characters_or_null(name, "name") }?))
}

/// Tells of every scope, as a JSON array: its path, how often it was begun, what is live of it,
/// its peak, and what was allocated over time, the scopes inside it included.
///
/// buffer, size, needed: where to write the text; as for cuddy_memory_summary().
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (buffer is NULL and size is not 0), CUDDY_ERROR_FORKED.
/// Thread-safe. Never calls the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_scopes(
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> cuddy_status {
    // SAFETY: NULL is refused there; the caller promises the rest.
    guarded(|| unsafe { tell(buffer, size, needed, process::scopes) })
}

/// Tells of the live blocks that were allocated in a scope, or in one inside it, as a JSON array:
/// where they are, how large, in which run of which scope they were allocated, and their labels.
/// Called when the scope has ended, these are what it leaked.
///
/// scope: its path, all names from the outermost on with slashes between, "epoch/step"; "" is
///        every block that was allocated since scopes or history were first used.
/// buffer, size, needed: where to write the text; as for cuddy_memory_summary().
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (scope is NULL or names none; buffer is NULL and size is
/// not 0), CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
/// Thread-safe. Never calls the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_leaks(
    scope: *const c_char,
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> cuddy_status {
    // SAFETY: NULL is refused there; the caller promises a C string.
    let leaks = || process::leaks(unsafe { characters(scope, "scope") }?);
    // SAFETY: NULL is refused there; the caller promises the rest.
    guarded(|| unsafe { tell(buffer, size, needed, leaks) })
}

/// Says what a block is for: a label that leaks and snapshots tell.
///
/// ptr:   the start of a live block, or any byte of it.
/// label: the text; "" takes it away.
///
/// Errors: CUDDY_ERROR_FOREIGN_POINTER, CUDDY_ERROR_DOUBLE_FREE, CUDDY_ERROR_INVALID_ARGUMENT
/// (label is NULL; or the block was allocated before scopes or history were used),
/// CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
/// Thread-safe. Never calls the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_annotate(ptr: *const c_void, label: *const c_char) -> cuddy_status {
    guarded(|| {
        // SAFETY: NULL is refused there; the caller promises a C string.
        process::annotate(ptr as u64, unsafe { characters(label, "label") }?)
    })
}

/// Keeps what happens to memory from now on: allocations, frees, growth, release, and requests
/// that found none.
///
/// events: how many of the last to keep, 64 bytes each, taken at once; 0 ends it. What was kept
///         before is forgotten.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (more than 2^28), CUDDY_ERROR_HOST_OUT_OF_MEMORY,
/// CUDDY_ERROR_FORKED.
/// Thread-safe. Never calls the driver.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_record_history(events: usize) -> cuddy_status {
    guarded(|| process::record_history(events))
}

/// Tells why the last request of the calling thread found no memory, as a JSON object: what was
/// asked for, where memory is, what limits it, which streams freed memory waits for, in which
/// scopes live memory was allocated, and what to do. docs/SNAPSHOT.md says what each name means. It
/// is "null" if no request has failed so, or if it was for more than any device has.
///
/// buffer, size, needed: where to write the text; as for cuddy_memory_summary().
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (buffer is NULL and size is not 0),
/// CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
/// Thread-safe. Never calls the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_last_out_of_memory(
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> cuddy_status {
    // SAFETY: NULL is refused there; the caller promises the rest.
    guarded(|| unsafe { tell(buffer, size, needed, process::last_out_of_memory) })
}

/// Keeps what happens to memory, as cuddy_record_history(), and writes a snapshot to a file where a
/// request finds no memory: the error's message says where it is. It is written at most every ten
/// seconds, over the one before. `cuddy report` shows it; `cuddy replay --fit` tells what would have
/// fitted. CUDDY_OOM_SNAPSHOT in the environment is the same, with 100000 events.
///
/// path:   the file; "%p" in it is the process's number. NULL ends the recorder, and history.
/// events: how many of the last events to keep, 64 bytes each, taken at once.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (path is empty, or no UTF-8; more than 2^28 events),
/// CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
/// Thread-safe. Never calls the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_flight_recorder(path: *const c_char, events: usize) -> cuddy_status {
    // SAFETY: the caller promises a C string, or NULL.
    guarded(|| process::flight_recorder(unsafe { characters_or_null(path, "path") }?, events))
}

/// Writes all that is known of memory, as JSON: of every device in use its counters and every
/// block, the last request that found no memory, the options, the scopes, and the history that was
/// kept.
///
/// buffer, size, needed: where to write the text; as for cuddy_memory_summary(). It may be longer
///         at the next call: make the buffer larger, until needed is at most size.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (buffer is NULL and size is not 0),
/// CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
/// Thread-safe. Never calls the driver. Other threads wait while blocks are listed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_snapshot(
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> cuddy_status {
    // SAFETY: NULL is refused there; the caller promises the rest.
    guarded(|| unsafe { tell(buffer, size, needed, process::snapshot) })
}
