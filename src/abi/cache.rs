//! Cache.
//!
//! Freed memory is kept for the next allocation. These give it back to the driver, for other
//! libraries and other processes; Cuddy itself does so when the device runs short.

use std::ffi::{c_int, c_void};

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
/// CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
/// CUDDY_ERROR_DRIVER says that the driver failed to take something back; all the rest has gone, and
/// the next call tries it again.
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

/// Lets time pass for an idle program: gives back what has decayed (options decay_ms, decay_waste),
/// what destroyed pools left, and tries again what the driver failed to take back. Waits for nobody.
/// A busy program need not call this: requests that miss the cache let memory decay too.
///
/// device: a device's number, CUDDY_CURRENT_DEVICE or CUDDY_ALL_DEVICES.
/// freed:  where to write how many bytes were given back; may be NULL.
///
/// Errors: as cuddy_empty_cache().
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_tick(device: c_int, freed: *mut usize) -> cuddy_status {
    guarded(|| {
        let bytes = process::tick(device)?;
        // SAFETY: NULL or writable, as the caller promises.
        unsafe { write_if_wanted(freed, bytes) };
        Ok(())
    })
}

/// Keeps memory where it is: its pages are neither given back nor mapped elsewhere before
/// cuddy_unpin(). For memory that is registered with a network card or a collective library, or that
/// another process knows. Blocks in it may be freed; it then serves other requests, in its place.
///
/// pointer: a live block, or an address in one.
/// bytes:   how much, neighbouring blocks included; 0 for the rest of the block.
///
/// Pins of one range are counted; ranges may overlap.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (not all of the range is memory in use or cached),
/// CUDDY_ERROR_FOREIGN_POINTER, CUDDY_ERROR_DOUBLE_FREE (the block is free),
/// CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
/// No driver call is made.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_pin(pointer: *mut c_void, bytes: usize) -> cuddy_status {
    guarded(|| process::pin(pointer.addr() as u64, bytes as u64))
}

/// Ends one cuddy_pin() of the same range. The block may have been freed meanwhile.
///
/// pointer: as it was pinned.
/// bytes:   as it was pinned; 0 for the smallest pin that begins there.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (this range is not pinned), CUDDY_ERROR_FOREIGN_POINTER,
/// CUDDY_ERROR_FORKED.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_unpin(pointer: *mut c_void, bytes: usize) -> cuddy_status {
    guarded(|| process::unpin(pointer.addr() as u64, bytes as u64))
}
