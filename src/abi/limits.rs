//! Limits.
//!
//! At every moment a device's reserved bytes are at most its limit. It has none unless one is set
//! here, in bytes or as a share of its memory (the later call holds), or by the options memory_limit
//! and memory_fraction (the lower of the two holds).

use std::ffi::c_int;

use super::convert::given;
use super::guard::guarded;
use crate::error::cuddy_status;
use crate::process;

/// Sets the most that Cuddy may reserve on a device, in bytes.
///
/// device: a device's number, CUDDY_CURRENT_DEVICE or CUDDY_ALL_DEVICES.
/// bytes:  the limit; 0 or CUDDY_NO_LIMIT for none. Below what is reserved now, free memory is given
///         back, after a wait for the work that uses it; live blocks stay, and nothing is reserved
///         until enough of them are freed.
///
/// Errors: CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER,
/// CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_set_memory_limit(device: c_int, bytes: usize) -> cuddy_status {
    guarded(|| process::set_memory_limit(device, bytes as u64))
}

/// Sets the most that Cuddy may reserve on a device, as a share of its memory.
///
/// device:   a device's number, CUDDY_CURRENT_DEVICE or CUDDY_ALL_DEVICES.
/// fraction: above 0, at most 1.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (another fraction), and as cuddy_set_memory_limit().
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_set_memory_fraction(device: c_int, fraction: f64) -> cuddy_status {
    guarded(|| process::set_memory_fraction(device, fraction))
}

/// Tells a device's limit.
///
/// device: a device's number, or CUDDY_CURRENT_DEVICE.
/// bytes:  where to write it, in bytes; CUDDY_NO_LIMIT if there is none.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (bytes is NULL), CUDDY_ERROR_INVALID_DEVICE,
/// CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_memory_limit(device: c_int, bytes: *mut usize) -> cuddy_status {
    guarded(|| {
        given(bytes, "bytes")?;
        let limit = process::memory_limit(device)?;
        // SAFETY: not NULL, and the caller promises that it may be written.
        unsafe { bytes.write(limit as usize) };
        Ok(())
    })
}

/// Tells how much memory an allocation could still get, and how much the device has.
///
/// Unlike cudaMemGetInfo(), free memory that Cuddy keeps for reuse counts as free, and a limit
/// counts too.
///
/// device:      a device's number, or CUDDY_CURRENT_DEVICE.
/// free_bytes:  where to write the first. It need not be in one piece.
/// total_bytes: where to write the second.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (a pointer is NULL), CUDDY_ERROR_INVALID_DEVICE,
/// CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER, CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED,
/// CUDDY_ERROR_SHUTDOWN.
/// Thread-safe. Asks the driver: it makes the device's primary context if there is none yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_mem_get_info(
    device: c_int,
    free_bytes: *mut usize,
    total_bytes: *mut usize,
) -> cuddy_status {
    guarded(|| {
        given(free_bytes, "free_bytes")?;
        given(total_bytes, "total_bytes")?;
        let (free, total) = process::mem_get_info(device)?;
        // SAFETY: not NULL, and the caller promises that it may be written.
        unsafe { free_bytes.write(free as usize) };
        // SAFETY: as above.
        unsafe { total_bytes.write(total as usize) };
        Ok(())
    })
}
