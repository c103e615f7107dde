//! Pools.
//!
//! A private pool is an isolated part of a device's memory: what is freed in it serves later requests
//! to it, and nobody else. It can have a limit of its own, it has counters of its own, and it is
//! given back as a whole. Blocks of any pool are freed with cuddy_free().
//!
//! Names of pools are never used twice. 0 and 1 name none of them: in place of a pool,
//! CUDDY_POOL_CURRENT is the one that the calling thread pushed last on the device, and
//! CUDDY_POOL_DEFAULT the device's default pool.

use std::ffi::c_int;

use super::convert::{Growing, fill, given, invalid, read, write_if_wanted};
use super::guard::guarded;
use crate::error::cuddy_status;
use crate::options::Sharing;
use crate::process;
use crate::stats::cuddy_stats;

/// A pool's name.
#[allow(non_camel_case_types)]
pub type cuddy_pool = u64;

/// In place of a pool: the calling thread's current one.
pub const CUDDY_POOL_CURRENT: cuddy_pool = 0;

/// In place of a pool: the default one.
pub const CUDDY_POOL_DEFAULT: cuddy_pool = 1;

const _: () = assert!(
    CUDDY_POOL_CURRENT == process::CURRENT_POOL && CUDDY_POOL_DEFAULT == process::DEFAULT_POOL
);

/// A flag of a pool: before a request to the default pool fails for want of memory, it may be served
/// from this one's free memory.
pub const CUDDY_POOL_USE_ON_OOM: u32 = 1;

/// How a pool is to be. Set the whole of it to 0, then struct_size, then what is wanted.
///
/// Fields are added at the end only; 0 in one of them means what it meant before it was there.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct cuddy_pool_options {
    /// sizeof(cuddy_pool_options).
    pub struct_size: u64,
    /// The most that may be reserved in the pool, in bytes; 0 or CUDDY_NO_LIMIT for none.
    pub limit: u64,
    /// The device's number, or CUDDY_CURRENT_DEVICE.
    pub device: i32,
    /// 0, or CUDDY_POOL_USE_ON_OOM.
    pub flags: u32,
}

// SAFETY: `#[repr(C)]`, begins with `struct_size: u64`, and holds numbers only.
unsafe impl Growing for cuddy_pool_options {
    const NAME: &'static str = "cuddy_pool_options";
}

/// Makes a private pool.
///
/// options: how it is to be.
/// pool:    where to write its name.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (a pointer is NULL, a struct_size that is none, unknown
/// flags), CUDDY_ERROR_NOT_SUPPORTED (the device has too many pools), CUDDY_ERROR_INVALID_DEVICE,
/// CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN,
/// CUDDY_ERROR_HOST_OUT_OF_MEMORY.
/// Thread-safe. No memory is reserved before the first allocation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_pool_create(
    options: *const cuddy_pool_options,
    pool: *mut cuddy_pool,
) -> cuddy_status {
    guarded(|| {
        let absent = cuddy_pool_options { struct_size: 0, limit: 0, device: 0, flags: 0 };
        // SAFETY: NULL is refused; else the caller promises as many bytes as struct_size says.
        let options = unsafe { read(options, "options", absent) }?;
        given(pool, "pool")?;
        if options.flags & !CUDDY_POOL_USE_ON_OOM != 0 {
            let why = format_args!("its flags {:#x} are not all known", options.flags);
            return Err(invalid("options", why));
        }
        let name = process::pool_create(process::PoolOptions {
            device: options.device,
            limit: options.limit,
            use_on_oom: options.flags & CUDDY_POOL_USE_ON_OOM != 0,
        })?;
        // SAFETY: not NULL, and the caller promises that it may be written.
        unsafe { pool.write(name) };
        Ok(())
    })
}

/// Ends a pool: nothing more is allocated in it. Its blocks stay valid, and are freed as ever; with
/// the last of them its memory goes back to the driver, as soon as no work uses it any more.
///
/// pool: a pool of cuddy_pool_create(). It may be destroyed before its blocks are freed, or after.
///
/// Errors: CUDDY_ERROR_INVALID_POOL (no pool, or destroyed before), CUDDY_ERROR_DRIVER,
/// CUDDY_ERROR_FORKED.
/// Thread-safe. Waits for nobody: memory that work still uses goes back at a later call that needs
/// the driver.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_pool_destroy(pool: cuddy_pool) -> cuddy_status {
    guarded(|| process::pool_destroy(pool))
}

/// Makes a pool the calling thread's current one: until it is popped, this thread's allocations on
/// the pool's device come from it, unless they name another pool.
///
/// pool: a pool of cuddy_pool_create(), or CUDDY_POOL_DEFAULT, which goes back to the default
///       pool on every device.
///
/// Pools may be pushed over each other, 64 deep. Other threads are not touched.
///
/// Errors: CUDDY_ERROR_INVALID_POOL (no pool, destroyed, or too many pushed), CUDDY_ERROR_FORKED.
/// Thread-safe. Never calls the driver.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_pool_push(pool: cuddy_pool) -> cuddy_status {
    guarded(|| process::pool_push(pool))
}

/// Ends what this thread's last cuddy_pool_push() began.
///
/// pool: the pool that was pushed last; it may have been destroyed meanwhile.
///
/// Errors: CUDDY_ERROR_INVALID_POOL (nothing is pushed, or another pool was pushed last: nothing is
/// popped then), CUDDY_ERROR_FORKED.
/// Thread-safe. Never calls the driver.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_pool_pop(pool: cuddy_pool) -> cuddy_status {
    guarded(|| process::pool_pop(pool))
}

/// Fills in a pool's counters, all of one moment.
///
/// pool:  a pool of cuddy_pool_create().
/// stats: as for cuddy_memory_stats(). Counters of what only a device has (unmapped, quarantined,
///        waits, harvests, driver calls) are 0; reserved is what is mapped in the pool.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (stats is NULL, a struct_size that is none),
/// CUDDY_ERROR_INVALID_POOL, CUDDY_ERROR_FORKED.
/// Thread-safe. Never calls the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_pool_stats(
    pool: cuddy_pool,
    stats: *mut cuddy_stats,
) -> cuddy_status {
    // SAFETY: NULL is refused; else the caller promises as many bytes as struct_size says.
    guarded(|| unsafe { fill(stats, "stats", || process::pool_stats(pool)) })
}

/// Makes every peak of a pool what is now.
///
/// pool: a pool of cuddy_pool_create().
///
/// Errors: CUDDY_ERROR_INVALID_POOL, CUDDY_ERROR_FORKED.
/// Thread-safe. Never calls the driver.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_pool_reset_peak_stats(pool: cuddy_pool) -> cuddy_status {
    guarded(|| process::pool_reset_peaks(pool))
}

/// Sets the most that may be reserved in a pool.
///
/// pool:  a pool of cuddy_pool_create().
/// bytes: the limit; 0 or CUDDY_NO_LIMIT for none. Below what is reserved now, free memory of the
///        pool is given back, after a wait for the work that uses it; live blocks stay.
///
/// Errors: CUDDY_ERROR_INVALID_POOL, CUDDY_ERROR_DRIVER, CUDDY_ERROR_DEVICE_RESET,
/// CUDDY_ERROR_FORKED.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_pool_set_limit(pool: cuddy_pool, bytes: usize) -> cuddy_status {
    guarded(|| process::pool_set_limit(pool, bytes as u64))
}

/// A pool's way of sharing: as the option share says.
pub const CUDDY_SHARE_AS_CONFIGURED: c_int = 0;
/// A pool's way of sharing: behind a stream wait where memory is short.
pub const CUDDY_SHARE_WAIT: c_int = 1;
/// A pool's way of sharing: only what nobody uses any more.
pub const CUDDY_SHARE_PASSED: c_int = 2;
/// A pool's way of sharing: never without the driver.
pub const CUDDY_SHARE_NEVER: c_int = 3;

/// Sets how a stream gets memory of a pool that another stream freed.
///
/// pool:  a pool of cuddy_pool_create().
/// share: a CUDDY_SHARE_ constant.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (another number), CUDDY_ERROR_INVALID_POOL (no pool, or
/// destroyed), CUDDY_ERROR_FORKED.
/// Thread-safe. It holds for the requests from now on.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_pool_set_share(pool: cuddy_pool, share: c_int) -> cuddy_status {
    guarded(|| {
        let share = match share {
            CUDDY_SHARE_AS_CONFIGURED => None,
            CUDDY_SHARE_WAIT => Some(Sharing::Wait),
            CUDDY_SHARE_PASSED => Some(Sharing::Passed),
            CUDDY_SHARE_NEVER => Some(Sharing::Never),
            _ => return Err(invalid("share", format_args!("{share} is no way of sharing"))),
        };
        process::pool_set_share(pool, share)
    })
}

/// Gives a pool's free memory back to the driver until at most so many bytes are reserved in it.
/// Waits for the work that still uses it.
///
/// pool:       a pool of cuddy_pool_create(). cuddy_empty_cache() empties all pools of a device.
/// keep_bytes: bytes that may stay reserved, live blocks included; 0 gives back all that is free.
/// freed:      where to write how many bytes were given back; may be NULL.
///
/// Errors: CUDDY_ERROR_INVALID_POOL, CUDDY_ERROR_DRIVER, CUDDY_ERROR_DEVICE_RESET,
/// CUDDY_ERROR_FORKED.
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_pool_trim(
    pool: cuddy_pool,
    keep_bytes: usize,
    freed: *mut usize,
) -> cuddy_status {
    guarded(|| {
        let bytes = process::pool_trim(pool, keep_bytes as u64)?;
        // SAFETY: NULL or writable, as the caller promises.
        unsafe { write_if_wanted(freed, bytes) };
        Ok(())
    })
}
