//! A **call**: one API function at work.
//!
//! `answer = what the driver says`, and what is not success is the thread's last error.
//! A thread works in the context that is current to it; where there is none, in the primary context
//! of the device that it has set (0 at first), which is made current when it is first needed.
//! No panic leaves a call.

use crate::driver::{self, Driver};
use crate::types::{Code, Outcome, code};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

thread_local! {
    static DEVICE: Cell<i32> = const { Cell::new(0) };
    static BOUND: Cell<u64> = const { Cell::new(0) };
    static LAST: Cell<Code> = const { Cell::new(0) };
}

/// Counts the resets of devices: a thread that was bound before one is bound no more.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// The primary contexts that this runtime retains, by device.
static PRIMARY: Mutex<Vec<Option<u64>>> = Mutex::new(Vec::new());

unsafe extern "C" {
    /// The CUDA whose runtime this is: each of the two libraries defines its own.
    safe static SIMRT_MAJOR: i32;
}

/// 12 or 13.
pub fn major() -> i32 {
    SIMRT_MAJOR
}

/// Whether an error stays: work that the device ran has broken the context, and every later call
/// fails in the same way until the device is reset.
pub fn is_sticky(error: Code) -> bool {
    matches!(error, 214 | 226 | 700 | 702 | 710 | 714..=719 | 721 | 810 | 911)
}

/// The last error, which is forgotten then unless it is sticky.
pub fn take_last() -> Code {
    let last = LAST.get();
    if !is_sticky(last) {
        LAST.set(0);
    }
    last
}

/// The last error, which stays.
pub fn last() -> Code {
    LAST.get()
}

/// Keeps an answer if it is an error. A sticky one is not pushed out by another.
fn note(answer: Outcome) -> Code {
    match answer {
        Ok(()) => 0,
        Err(error) => {
            if !is_sticky(LAST.get()) {
                LAST.set(error);
            }
            error
        }
    }
}

fn guarded(body: impl FnOnce() -> Outcome) -> Code {
    note(catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(code::UNKNOWN)))
}

/// The driver, if it is of this runtime's CUDA or a later one.
fn fitting() -> Result<&'static Driver, Code> {
    let driver = driver::driver()?;
    if driver.version / 1000 < major() { Err(code::INSUFFICIENT_DRIVER) } else { Ok(driver) }
}

/// Runs a body that needs neither driver nor context.
pub fn plain(body: impl FnOnce(()) -> Outcome) -> Code {
    guarded(|| body(()))
}

/// Runs a body that needs the driver, and no context.
pub fn driver(body: impl FnOnce(&'static Driver) -> Outcome) -> Code {
    guarded(|| body(fitting()?))
}

/// Runs a body in the thread's context.
pub fn context(body: impl Fn(&'static Driver) -> Outcome) -> Code {
    guarded(|| {
        let driver = fitting()?;
        if BOUND.get() != GENERATION.load(Ordering::Relaxed) {
            bind(driver)?;
        }
        match body(driver) {
            // Somebody has taken the context away through the driver: then the call has done
            // nothing, and is made again in the device's own.
            Err(code::DEVICE_UNINITIALIZED) if bind(driver)? => body(driver),
            answer => answer,
        }
    })
}

/// Sees to it that the thread has a current context; true if it had none.
#[cold]
fn bind(driver: &Driver) -> Result<bool, Code> {
    let generation = GENERATION.load(Ordering::Relaxed);
    let mut current = 0;
    driver.cuCtxGetCurrent(&mut current)?;
    if current == 0 {
        driver.cuCtxSetCurrent(primary(driver, DEVICE.get())?)?;
    }
    BOUND.set(generation);
    Ok(current == 0)
}

/// A device's primary context, retained once for the process.
pub fn primary(driver: &Driver, device: i32) -> Result<u64, Code> {
    let place = usize::try_from(device).map_err(|_| code::INVALID_DEVICE)?;
    let mut contexts = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Some(context)) = contexts.get(place) {
        return Ok(*context);
    }
    let mut context = 0;
    driver.cuDevicePrimaryCtxRetain(&mut context, device)?;
    if contexts.len() <= place {
        contexts.resize(place + 1, None);
    }
    contexts[place] = Some(context);
    Ok(context)
}

/// The device that the thread works on.
pub fn device(driver: &Driver) -> Result<i32, Code> {
    let mut device = 0;
    match driver.cuCtxGetDevice(&mut device) {
        Ok(()) => Ok(device),
        Err(code::DEVICE_UNINITIALIZED) => Ok(DEVICE.get()),
        Err(other) => Err(other),
    }
}

/// Makes a device the thread's, and its primary context current.
pub fn set_device(driver: &Driver, device: i32) -> Outcome {
    let mut count = 0;
    driver.cuDeviceGetCount(&mut count)?;
    if count == 0 {
        return Err(code::NO_DEVICE);
    }
    if !(0..count).contains(&device) {
        return Err(code::INVALID_DEVICE);
    }
    driver.cuCtxSetCurrent(primary(driver, device)?)?;
    DEVICE.set(device);
    BOUND.set(GENERATION.load(Ordering::Relaxed));
    Ok(())
}

/// Destroys all that the process has on the thread's device.
pub fn reset_device(driver: &Driver) -> Outcome {
    let device = device(driver)?;
    {
        let mut contexts = PRIMARY.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = contexts.get_mut(device as usize) {
            *context = None;
        }
    }
    GENERATION.fetch_add(1, Ordering::Relaxed);
    crate::registry::forget(device);
    driver.cuDevicePrimaryCtxReset(device)?;
    driver.cuCtxSetCurrent(0)?;
    DEVICE.set(device);
    LAST.set(0);
    Ok(())
}
