//! **Shortage**: what is cached goes back, so that nobody runs out of memory for our sake; and the
//! calls that allocate by other ways, which may need it.

use std::ffi::{c_int, c_void};

use cuddy::mutants::mutant;

use crate::books::books;
use crate::cache::Victim;
use crate::doors::Home;
use crate::driver::OUT_OF_MEMORY;
use crate::process::is_off;
use crate::report::{self, Door, note};
use crate::table::{Address, Opaque};
use crate::{captures, pools};

/// Gives the whole cache of a context's device back; whether there was anything.
pub fn give_back(home: &Home, context: usize) -> bool {
    let mut books = books();
    let Some(device) = books.cache.device_of(context) else { return false };
    if mutant("preload-nothing-given-back") {
        return false;
    }
    // Also while something captures: a thread that may allocate then may free, too.
    let victims = books.cache.flush(device, false);
    drop(books);
    free_all(home, &victims);
    pools::trim(home, device) || !victims.is_empty()
}

/// Gives these blocks back to the driver.
pub fn free_all(home: &Home, victims: &[Victim]) {
    for victim in victims {
        // A context that is broken keeps its memory until it ends; nothing else can be done.
        let _ = home.free(victim.context, victim.address);
    }
}

/// Gives back what is above the cap of a device, unless something captures: later then.
pub fn keep_within_cap(home: &Home, device: i32) {
    captures::unless_any(|| {
        let victims = books().cache.over(device);
        free_all(home, &victims);
    });
}

/// Gives back what nobody uses, if the device has little left: another process must not go short
/// because we keep it.
pub fn leave_some(home: &Home, device: i32) {
    if home.memory().is_some_and(|(free, total)| free < total / 20) {
        captures::unless_any(|| {
            let victims = books().cache.flush(device, true);
            free_all(home, &victims);
        });
    }
}

/// A call that allocates by other ways: if the device is out of memory, the cache is given back and
/// the call made once more.
pub fn with_rescue(home: &Home, call: impl Fn() -> c_int) -> c_int {
    report::begin();
    let code = call();
    if code != OUT_OF_MEMORY || is_off() {
        return code;
    }
    let Some(context) = home.current() else { return code };
    if !give_back(home, context) {
        return code;
    }
    let code = call();
    if code == 0 {
        note(Door::Rescue);
    }
    code
}

/// `cuMemGetInfo`: what the program could have is free.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn info(
    home: &Home,
    real: unsafe extern "C" fn(*mut usize, *mut usize) -> c_int,
    free: *mut usize,
    total: *mut usize,
) -> c_int {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(free, total) };
    if code != 0 || free.is_null() || is_off() {
        return code;
    }
    let Some(context) = home.current() else { return code };
    let books = books();
    let Some(device) = books.cache.device_of(context) else { return code };
    let cached = books.cache.cached(device);
    drop(books);
    let more = cached + pools::idle(home, device);
    if more > 0 {
        let most = home.memory().map_or(u64::MAX, |(_, total)| total);
        // SAFETY: not null, and the driver has just written there.
        unsafe { *free = (*free as u64 + more).min(most) as usize };
    }
    code
}

/// `cuMemCreate`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn create(
    home: &Home,
    real: unsafe extern "C" fn(*mut u64, usize, *const c_void, u64) -> c_int,
    handle: *mut u64,
    bytes: usize,
    properties: *const c_void,
    flags: u64,
) -> c_int {
    note(Door::PassedAlloc);
    // SAFETY: the program's own arguments.
    with_rescue(home, || unsafe { real(handle, bytes, properties, flags) })
}

/// `cuMemAllocManaged`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn alloc_managed(
    home: &Home,
    real: unsafe extern "C" fn(*mut Address, usize, u32) -> c_int,
    to: *mut Address,
    bytes: usize,
    flags: u32,
) -> c_int {
    note(Door::PassedAlloc);
    // SAFETY: the program's own arguments.
    with_rescue(home, || unsafe { real(to, bytes, flags) })
}

/// `cuArrayCreate` and `cuArray3DCreate`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn array(
    home: &Home,
    real: unsafe extern "C" fn(*mut Opaque, *const c_void) -> c_int,
    to: *mut Opaque,
    what: *const c_void,
) -> c_int {
    note(Door::PassedAlloc);
    // SAFETY: the program's own arguments.
    with_rescue(home, || unsafe { real(to, what) })
}
