//! Version and errors.
//!
//! Every function that can fail returns a cuddy_status; 0 is success. A call that fails changes
//! nothing and leaves its outputs as they were. The sentence that belongs to a failure, with the
//! figures, is in cuddy_last_error().

use std::ffi::{CStr, c_char, c_int};

use super::last_error;
use crate::error::cuddy_status;

/// The version of the library that is running: CUDDY_VERSION of the header that it was built with.
///
/// A program may compare the two. Libraries of one soname (libcuddy.so.N) only add to each other.
///
/// Never fails. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_version() -> c_int {
    const fn number(text: &str) -> c_int {
        let (mut value, mut at) = (0, 0);
        while at < text.len() {
            value = value * 10 + (text.as_bytes()[at] - b'0') as c_int;
            at += 1;
        }
        value
    }
    const MAJOR: c_int = number(env!("CARGO_PKG_VERSION_MAJOR"));
    const MINOR: c_int = number(env!("CARGO_PKG_VERSION_MINOR"));
    const PATCH: c_int = number(env!("CARGO_PKG_VERSION_PATCH"));
    MAJOR * 10_000 + MINOR * 100 + PATCH
}

/// The same as text, "0.1.0". The text is constant.
///
/// Never fails. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_version_string() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The name of a status, "CUDDY_ERROR_OUT_OF_MEMORY". The text is constant.
///
/// status: what a function returned. A number that is no status gives "unknown status".
///
/// Never fails. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_status_name(status: c_int) -> *const c_char {
    STATUSES
        .iter()
        .find(|known| **known as c_int == status)
        .map_or(c"unknown status", |known| name_of(*known))
        .as_ptr()
}

/// What the calling thread's last failure was about, in one or more sentences; "" before the first.
///
/// The text belongs to the thread and changes with its next failure; a call that succeeds leaves it
/// alone. It is at most 4095 bytes long, UTF-8. Never NULL.
///
/// Never fails. Thread-safe: each thread has its own.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_last_error() -> *const c_char {
    last_error::pointer()
}

use cuddy_status::*;

/// Every status, in the order of the numbers.
const STATUSES: [cuddy_status; 20] = [
    CUDDY_OK,
    CUDDY_ERROR_INVALID_ARGUMENT,
    CUDDY_ERROR_OUT_OF_MEMORY,
    CUDDY_ERROR_NO_DRIVER,
    CUDDY_ERROR_INVALID_DEVICE,
    CUDDY_ERROR_INVALID_STREAM,
    CUDDY_ERROR_FOREIGN_POINTER,
    CUDDY_ERROR_INTERIOR_POINTER,
    CUDDY_ERROR_DOUBLE_FREE,
    CUDDY_ERROR_WRONG_DEVICE,
    CUDDY_ERROR_DRIVER,
    CUDDY_ERROR_DEVICE_RESET,
    CUDDY_ERROR_FORKED,
    CUDDY_ERROR_SHUTDOWN,
    CUDDY_ERROR_NOT_SUPPORTED,
    CUDDY_ERROR_HOST_OUT_OF_MEMORY,
    CUDDY_ERROR_INVALID_OPTION,
    CUDDY_ERROR_INTERNAL,
    CUDDY_ERROR_INVALID_POOL,
    CUDDY_ERROR_INVALID_GRAPH,
];

/// No `_` arm: a new status does not compile until it has a name.
fn name_of(status: cuddy_status) -> &'static CStr {
    match status {
        CUDDY_OK => c"CUDDY_OK",
        CUDDY_ERROR_INVALID_ARGUMENT => c"CUDDY_ERROR_INVALID_ARGUMENT",
        CUDDY_ERROR_OUT_OF_MEMORY => c"CUDDY_ERROR_OUT_OF_MEMORY",
        CUDDY_ERROR_NO_DRIVER => c"CUDDY_ERROR_NO_DRIVER",
        CUDDY_ERROR_INVALID_DEVICE => c"CUDDY_ERROR_INVALID_DEVICE",
        CUDDY_ERROR_INVALID_STREAM => c"CUDDY_ERROR_INVALID_STREAM",
        CUDDY_ERROR_FOREIGN_POINTER => c"CUDDY_ERROR_FOREIGN_POINTER",
        CUDDY_ERROR_INTERIOR_POINTER => c"CUDDY_ERROR_INTERIOR_POINTER",
        CUDDY_ERROR_DOUBLE_FREE => c"CUDDY_ERROR_DOUBLE_FREE",
        CUDDY_ERROR_WRONG_DEVICE => c"CUDDY_ERROR_WRONG_DEVICE",
        CUDDY_ERROR_DRIVER => c"CUDDY_ERROR_DRIVER",
        CUDDY_ERROR_DEVICE_RESET => c"CUDDY_ERROR_DEVICE_RESET",
        CUDDY_ERROR_FORKED => c"CUDDY_ERROR_FORKED",
        CUDDY_ERROR_SHUTDOWN => c"CUDDY_ERROR_SHUTDOWN",
        CUDDY_ERROR_NOT_SUPPORTED => c"CUDDY_ERROR_NOT_SUPPORTED",
        CUDDY_ERROR_HOST_OUT_OF_MEMORY => c"CUDDY_ERROR_HOST_OUT_OF_MEMORY",
        CUDDY_ERROR_INVALID_OPTION => c"CUDDY_ERROR_INVALID_OPTION",
        CUDDY_ERROR_INTERNAL => c"CUDDY_ERROR_INTERNAL",
        CUDDY_ERROR_INVALID_POOL => c"CUDDY_ERROR_INVALID_POOL",
        CUDDY_ERROR_INVALID_GRAPH => c"CUDDY_ERROR_INVALID_GRAPH",
    }
}
