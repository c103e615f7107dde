//! **Devices**: their primary contexts, each retained when a thread first needs it and kept; versions
//! and attributes.

use crate::{Code, Outcome, code, driver, put, thread};
use std::ffi::{c_char, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

/// What `cudaRuntimeGetVersion` says: 12.8.
pub const VERSION: i32 = 12080;

/// The driver is initialised from here on.
pub fn start() -> Outcome {
    static STARTED: OnceLock<Outcome> = OnceLock::new();
    *STARTED.get_or_init(|| driver::cuInit(0))
}

/// How many devices there are; none is an error.
pub fn count() -> Result<i32, Code> {
    start()?;
    let mut count = 0;
    driver::cuDeviceGetCount(&mut count)?;
    if count > 0 { Ok(count) } else { Err(code::NO_DEVICE) }
}

/// A device's primary context.
pub fn primary(device: i32) -> Result<u64, Code> {
    static RETAINED: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    let count = count()?;
    let at = usize::try_from(device).map_err(|_| code::INVALID_DEVICE)?;
    if device >= count {
        return Err(code::INVALID_DEVICE);
    }
    let mut retained = RETAINED.lock().unwrap_or_else(PoisonError::into_inner);
    if retained.len() <= at {
        retained.resize(at + 1, 0);
    }
    if retained[at] == 0 {
        driver::cuDevicePrimaryCtxRetain(&mut retained[at], device)?;
    }
    Ok(retained[at])
}

crate::exports! {
    fn rt_cudaDriverGetVersion(version: *mut i32) {
        put(version, 0)?;
        match driver::cuDriverGetVersion(version) {
            Err(code::INSUFFICIENT_DRIVER) => Ok(()),
            other => other,
        }
    }
    fn rt_cudaRuntimeGetVersion(version: *mut i32) {
        put(version, VERSION)
    }
    fn rt_cudaGetDeviceCount(number: *mut i32) {
        put(number, 0)?;
        put(number, count()?)
    }
    fn rt_cudaGetDevice(device: *mut i32) {
        put(device, thread::device())
    }
    fn rt_cudaSetDevice(device: i32) {
        thread::set_device(device)
    }
    fn rt_cudaDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) {
        start()?;
        driver::cuDeviceGetAttribute(value, attribute, device)
    }
    fn rt_cudaDeviceGetPCIBusId(id: *mut u8, room: i32, device: i32) {
        start()?;
        driver::cuDeviceGetPCIBusId(id, room, device)
    }
    fn rt_cudaDeviceSynchronize() {
        thread::context()?;
        driver::cuCtxSynchronize()
    }
    fn rt_cudaDeviceReset() {
        start()?;
        driver::cuDevicePrimaryCtxReset(thread::device())
    }
    fn rt_cudaDeviceGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        thread::context()?;
        driver::cuCtxGetStreamPriorityRange(least, greatest)
    }
    fn rt_cudaDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) {
        start()?;
        driver::cuDeviceCanAccessPeer(can, device, peer)
    }
    fn rt_cudaDeviceEnablePeerAccess(peer: i32, flags: u32) {
        thread::context()?;
        driver::cuCtxEnablePeerAccess(primary(peer)?, flags)
    }
    fn rt_cudaDeviceDisablePeerAccess(peer: i32) {
        thread::context()?;
        driver::cuCtxDisablePeerAccess(primary(peer)?)
    }
    fn rt_cudaDeviceGetDefaultMemPool(pool: *mut u64, device: i32) {
        start()?;
        driver::cuDeviceGetDefaultMemPool(pool, device)
    }
    fn rt_cudaDeviceGetMemPool(pool: *mut u64, device: i32) {
        start()?;
        driver::cuDeviceGetMemPool(pool, device)
    }
    fn rt_cudaDeviceSetMemPool(device: i32, pool: u64) {
        start()?;
        driver::cuDeviceSetMemPool(device, pool)
    }
    fn rt_cudaProfilerStart() {
        Ok(())
    }
    fn rt_cudaProfilerStop() {
        Ok(())
    }
    fn rt_cudaGetDriverEntryPoint(
        symbol: *const c_char, function: *mut *mut c_void, flags: u64, status: *mut i32,
    ) {
        entry_point(symbol, function, VERSION, flags, status)
    }
    fn rt_cudaGetDriverEntryPointByVersion(
        symbol: *const c_char, function: *mut *mut c_void, version: u32, flags: u64,
        status: *mut i32,
    ) {
        entry_point(symbol, function, version as i32, flags, status)
    }
}

fn entry_point(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: i32,
    flags: u64,
    status: *mut i32,
) -> Outcome {
    let resolve = driver::resolver().ok_or(code::INSUFFICIENT_DRIVER)?;
    let mut found = 0;
    // SAFETY: the caller's pointers (see the crate), and a result of our own.
    let code = unsafe { resolve(symbol, function, version, flags, &mut found) };
    if !status.is_null() {
        put(status, found)?;
    }
    if code == 0 { Ok(()) } else { Err(code) }
}
