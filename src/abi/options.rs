//! Options.
//!
//! The environment variable CUDDY_CONF sets options before the program does, as
//! "key:value,key:value". An entry of it that cannot be used is left out and said once on stderr. The
//! keys are listed by cuddy_list_options(), by `cuddy doctor` and in docs/OPTIONS.md.

use std::ffi::c_char;
use std::fmt::Write;

use super::convert::{tell, text};
use super::guard::guarded;
use crate::error::{Words, cuddy_status};
use crate::process;

/// Sets one option. It takes effect for devices that are not in use yet; the limits for all.
///
/// key:   the option's name, for example "memory_limit".
/// value: as it would stand in CUDDY_CONF, for example "1.5GiB".
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (a pointer is NULL), CUDDY_ERROR_INVALID_OPTION (no such
/// option, a value that it does not take, or one that cannot change any more; the message says what
/// is accepted), CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN. Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_set_option(
    key: *const c_char,
    value: *const c_char,
) -> cuddy_status {
    guarded(|| {
        // SAFETY: NULL is refused there; the caller promises a text that ends with 0.
        let key = unsafe { text(key, "key") }?;
        // SAFETY: as above.
        let value = unsafe { text(value, "value") }?;
        process::set_option(key, value)
    })
}

/// Tells the value of one option, as text that cuddy_set_option() takes.
///
/// key:    the option's name.
/// buffer, size, needed: where to write the text; as for cuddy_memory_summary().
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (key is NULL, or buffer is and size is not 0),
/// CUDDY_ERROR_INVALID_OPTION (no such option), CUDDY_ERROR_FORKED. Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_get_option(
    key: *const c_char,
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> cuddy_status {
    guarded(|| {
        // SAFETY: NULL is refused there; the caller promises a text that ends with 0.
        let key = unsafe { text(key, "key") }?;
        // SAFETY: the caller promises `size` writable bytes, and `needed` NULL or writable.
        unsafe { tell(buffer, size, needed, || Ok(process::option(key)?.value)) }
    })
}

/// Lists every option, one a line, its parts separated by tabs: key, value, where the value came
/// from (default, CUDDY_CONF or program), values accepted, meaning.
///
/// buffer, size, needed: where to write the text; as for cuddy_memory_summary().
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (buffer is NULL and size is not 0), CUDDY_ERROR_FORKED.
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_list_options(
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> cuddy_status {
    let lines = || {
        let mut lines = Words::default();
        for option in process::options()? {
            let (row, value, source) = (option.row, option.value, option.source);
            // What host memory has no room for is cut.
            let _ = writeln!(lines, "{}\t{value}\t{source}\t{}\t{}", row.name, row.kind, row.help);
        }
        Ok(lines.into_string())
    };
    // SAFETY: the caller promises `size` writable bytes, and `needed` NULL or writable.
    guarded(|| unsafe { tell(buffer, size, needed, lines) })
}
