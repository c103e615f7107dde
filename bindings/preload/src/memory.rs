//! **Memory**: `cuMemAlloc` and `cuMemFree` by way of the cache.
//!
//! Decisions are the cache's, taken under one lock; driver calls are made without it. A hit takes
//! the lock once, a free in fenced mode once, a free that waits twice.

use std::ffi::c_int;

use crate::books::{books, context, introduce};
use crate::cache::{Leave, Place, capacity_of};
use crate::doors::Home;
use crate::driver::OUT_OF_MEMORY;
use crate::process::{has_given_up, is_off, is_out, settings};
use crate::report::{Door, note, timed};
use crate::settings::Mode;
use crate::shortage::{give_back, keep_within_cap, leave_some, with_rescue};
use crate::table::{Address, Opaque};
use crate::{captures, fences};

/// An address that no driver ever gives: what the driver says of it, it says of any that is not the
/// program's.
pub const NOBODYS: Address = 0x200;
/// Alignment of rows: what `cuMemAllocPitch` gives is asked of the driver once for each width.
type Pitch = unsafe extern "C" fn(*mut Address, *mut usize, usize, usize, u32) -> c_int;

/// `cuMemAlloc`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn alloc(
    home: &Home,
    real: unsafe extern "C" fn(*mut Address, usize) -> c_int,
    to: *mut Address,
    bytes: usize,
) -> c_int {
    let pass = || {
        // SAFETY: the program's own arguments.
        unsafe { real(to, bytes) }
    };
    if to.is_null() || bytes == 0 || is_off() {
        return pass();
    }
    let Some(current) = home.current() else { return pass() };
    let ready = fences::take(home, current, bytes as u64);
    if ready.is_none() {
        let known = books().cache.device_of(current).is_some();
        if !known && !introduce(home, current) {
            return pass();
        }
    }
    match ready {
        Some(address) => {
            // SAFETY: not null, and the caller's to write.
            unsafe { *to = address };
            0
        }
        // SAFETY: as for `pass`.
        None => unsafe { fresh(home, real, current, to, bytes) },
    }
}

/// A block of the driver's. The last try is for just what was asked.
///
/// # Safety
/// `to` may be written.
unsafe fn fresh(
    home: &Home,
    real: unsafe extern "C" fn(*mut Address, usize) -> c_int,
    context: usize,
    to: *mut Address,
    bytes: usize,
) -> c_int {
    let ask = |capacity: u64| {
        // SAFETY: `to` is the program's to write.
        timed(home, Door::AllocCalls, Door::AllocTime, || unsafe { real(to, capacity as usize) })
    };
    let mut capacity = capacity_of(bytes as u64);
    let mut code = ask(capacity);
    if code == OUT_OF_MEMORY {
        if give_back(home, context) {
            code = ask(capacity);
        }
        if code == OUT_OF_MEMORY && capacity != bytes as u64 {
            capacity = bytes as u64;
            code = ask(capacity);
        }
        if code == 0 {
            note(Door::Rescue);
        }
    }
    if code != 0 {
        return code;
    }
    // SAFETY: the driver has just written there.
    let address = unsafe { *to };
    let mut books = books();
    books.cache.admit(context, address, capacity, bytes as u64);
    let device = books.cache.device_of(context).unwrap_or(0);
    let caches = books.cache.cached(device) > 0;
    drop(books);
    if caches {
        leave_some(home, device);
    }
    0
}

/// `cuMemAllocPitch`: rows as the driver lays them, in a block like any other.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn alloc_pitch(
    home: &Home,
    real: Pitch,
    to: *mut Address,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> c_int {
    // SAFETY: the program's own arguments.
    let ask = || unsafe { real(to, pitch, width, height, element) };
    if to.is_null() || pitch.is_null() || is_off() {
        return ask();
    }
    let Some(context) = context(home) else { return ask() };
    let row = books().pitches.get(&(width, element)).copied();
    let bytes = row.and_then(|row| row.checked_mul(height)).filter(|bytes| *bytes > 0);
    if let (Some(row), Some(bytes)) = (row, bytes)
        && let Some(address) = fences::take(home, context, bytes as u64)
    {
        // SAFETY: neither is null, and both are the caller's to write.
        unsafe { (*to, *pitch) = (address, row) };
        return 0;
    }
    let code = timed(home, Door::AllocCalls, Door::AllocTime, || with_rescue(home, ask));
    if code == 0 {
        // SAFETY: the driver has just written both.
        let (address, row) = unsafe { (*to, *pitch) };
        let bytes = row as u64 * height as u64;
        let mut books = books();
        books.cache.admit(context, address, bytes, bytes);
        if books.pitches.len() < 1024 {
            books.pitches.insert((width, element), row);
        }
    }
    code
}

/// `cuMemFree`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn free(
    home: &Home,
    real: unsafe extern "C" fn(Address) -> c_int,
    address: Address,
) -> c_int {
    // SAFETY: a plain number; the driver judges it.
    let pass = |address| unsafe { real(address) };
    // Without a current context, the driver has its own word to say.
    if address == 0 || is_out() || home.current().is_none() {
        return pass(address);
    }
    let fenced = settings().mode == Mode::Fenced && home.can_fence() && !has_given_up();
    let mut now = books();
    let left = if fenced { now.cache.retire(address) } else { now.cache.leave(address) };
    let is_over = match left {
        Leave::Keep { device, .. } if fenced => now.cache.is_over(device),
        _ => false,
    };
    drop(now);
    match left {
        Leave::Unknown => {
            note(Door::ForeignFree);
            pass(address)
        }
        Leave::Dead => pass(NOBODYS),
        Leave::Inside => pass(address),
        Leave::Pass(_) => timed(home, Door::FreeCalls, Door::FreeTime, || pass(address)),
        Leave::Keep { device, .. } if fenced => {
            if captures::any() {
                note(Door::CapturedFree);
            } else if is_over {
                keep_within_cap(home, device);
            }
            0
        }
        Leave::Keep { context, device } => match keep(home, context, device, address) {
            Ok(()) => 0,
            Err(_) => {
                // What the driver could not wait for, it says itself.
                note(Door::FailedFree);
                books().cache.forget(address);
                pass(address)
            }
        },
    }
}

/// Keeps a block that the program has freed, with the wait that the driver's own free has.
fn keep(home: &Home, context: usize, device: i32, address: Address) -> Result<(), c_int> {
    if has_given_up() {
        return Err(0);
    }
    let waited =
        if captures::any() { None } else { captures::unless_any(|| wait(home, context, address)) };
    match waited {
        Some(waited) => {
            if waited? {
                keep_within_cap(home, device);
            }
        }
        None => {
            note(Door::CapturedFree);
            books().cache.rest(address);
        }
    }
    Ok(())
}

/// Waits for all work that may use a context's memory: then this block is clean, and what was in
/// limbo is too. Answers whether the device's cache is above its cap.
fn wait(home: &Home, context: usize, address: Address) -> Result<bool, c_int> {
    let mut now = books();
    let epoch = now.cache.seal(context);
    let users = now.users_of(context);
    drop(now);
    let all = std::iter::once(context).chain(users);
    let waited = all.into_iter().try_for_each(|user| home.synchronize(user));
    let mut now = books();
    if let Some(epoch) = epoch {
        match waited {
            Ok(()) => now.cache.passed(context, epoch),
            Err(_) => now.cache.unseal(context, epoch),
        }
    }
    waited?;
    now.cache.settle(address);
    Ok(now.cache.device_of(context).is_some_and(|device| now.cache.is_over(device)))
}

/// `cuMemFreeAsync`: the driver frees in the stream's order; what it frees is no longer ours.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn free_async(
    _home: &Home,
    real: unsafe extern "C" fn(Address, Opaque) -> c_int,
    address: Address,
    stream: Opaque,
) -> c_int {
    let mut freed = address;
    if !is_out() {
        let mut books = books();
        match books.cache.look(address) {
            Place::Live { base, .. } if base == address => books.cache.forget(address),
            Place::Dead => freed = NOBODYS,
            _ => {}
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { real(freed, stream) }
}
