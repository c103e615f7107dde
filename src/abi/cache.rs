//! Cache.
//!
//! Freed memory is kept for the next allocation. These give it back to the driver, for other
//! libraries and other processes; Cuddy itself does so when the device runs short.

use std::ffi::c_int;

use super::convert::write_if_wanted;
use super::guard::guarded;
use crate::error::cuddy_status;
use crate::process;

/// Gives every free page and segment back to the driver. Waits for the work that still uses them.
///
/// device: a device's number, CUDDY_CURRENT_DEVICE or CUDDY_ALL_DEVICES.
/// freed:  where to write how many bytes were given back; may be NULL.
///
/// Errors: CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER,
/// CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN. CUDDY_ERROR_DRIVER says that
/// the driver failed to take something back, after all the rest has gone; the next call tries it again.
/// Thread-safe. Other threads go on allocating from what stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_empty_cache(device: c_int, freed: *mut usize) -> cuddy_status {
    guarded(|| {
        let bytes = process::empty_cache(device)?;
        // SAFETY: NULL or writable, as the caller promises.
        unsafe { write_if_wanted(freed, bytes) };
        Ok(())
    })
}

/// Gives free pages and segments back to the driver until at most so many bytes are reserved.
///
/// device:     a device's number, CUDDY_CURRENT_DEVICE or CUDDY_ALL_DEVICES (each by itself).
/// keep_bytes: bytes that may stay reserved, live blocks included; 0 is cuddy_empty_cache().
/// freed:      where to write how many bytes were given back; may be NULL.
///
/// Errors, threads and waiting: as cuddy_empty_cache().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_trim(
    device: c_int,
    keep_bytes: usize,
    freed: *mut usize,
) -> cuddy_status {
    guarded(|| {
        let bytes = process::trim(device, keep_bytes as u64)?;
        // SAFETY: NULL or writable, as the caller promises.
        unsafe { write_if_wanted(freed, bytes) };
        Ok(())
    })
}
