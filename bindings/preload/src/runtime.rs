//! The **runtime**'s door: `cudaMalloc` and its family, for programs that link it dynamically.
//!
//! A program's own runtime is what its reference would have been bound to without us; there may be
//! two in a process. It serves the call by the driver functions that it was handed by our
//! `cuGetProcAddress`, so the memory comes from the one cache; here the call is only noted.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::loader;
use crate::report::{Door, note};

/// What is exported, in the order of `processor`'s numbers.
const NAMES: [&CStr; 8] = [
    c"cudaMalloc",
    c"cudaFree",
    c"cudaMallocPitch",
    c"cudaMemGetInfo",
    c"cudaMallocAsync",
    c"cudaFreeAsync",
    c"cudaMallocAsync_ptsz",
    c"cudaFreeAsync_ptsz",
];

/// `cudaErrorSharedObjectSymbolNotFound`.
const NO_SYMBOL: c_int = 302;

extern "C" fn no_runtime() -> c_int {
    NO_SYMBOL
}

/// Call sites and where they lead: a site's entry, once complete, never changes.
const SITES: usize = 1024;
static SITE: [AtomicUsize; SITES] = [const { AtomicUsize::new(0) }; SITES];
static LEADS_TO: [AtomicUsize; SITES] = [const { AtomicUsize::new(0) }; SITES];

/// The function that a call of `NAMES[number]`, returning to `caller`, would have reached.
pub extern "C" fn real_of(number: usize, caller: usize) -> usize {
    note(Door::Runtime);
    let at = (caller >> 2).wrapping_mul(0x9e37_79b9) % SITES;
    // A site calls one function, so the site alone is the key.
    let leads_to = LEADS_TO[at].load(Ordering::Acquire);
    if leads_to != 0 && SITE[at].load(Ordering::Relaxed) == caller {
        return leads_to;
    }
    let real = std::panic::catch_unwind(|| find(NAMES[number % NAMES.len()], caller)).unwrap_or(0);
    if real == 0 {
        return no_runtime as *const () as usize;
    }
    if SITE[at].compare_exchange(0, caller, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        LEADS_TO[at].store(real, Ordering::Release);
    }
    real
}

/// In the caller's own libraries; else in whatever comes after us; else in a runtime that is loaded.
fn find(name: &CStr, caller: usize) -> usize {
    let usable =
        |found: *mut c_void| (!found.is_null() && !loader::is_own(found.addr())).then_some(found);
    let within = scope_of(caller).and_then(|handle| usable(loader::look(handle, name)));
    let behind = || usable(loader::look(libc::RTLD_NEXT, name));
    let loaded = || {
        [c"libcudart.so.13", c"libcudart.so.12"].into_iter().find_map(|file| {
            // SAFETY: a C string; NOLOAD runs nothing.
            let handle =
                unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            if handle.is_null() { None } else { usable(loader::look(handle, name)) }
        })
    };
    let Some(found) = within.or_else(behind).or_else(loaded) else { return 0 };
    pin(found);
    found.expose_provenance()
}

/// A handle of the object that an address lies in.
fn scope_of(address: usize) -> Option<*mut c_void> {
    open_again(std::ptr::with_exposed_provenance_mut(address))
}

/// What was found must stay, since its address is kept.
fn pin(found: *mut c_void) {
    open_again(found);
}

/// Opens the object of an address, which is loaded, once more; `None` for the program itself.
fn open_again(address: *mut c_void) -> Option<*mut c_void> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address, and `info` outlives the call; all zeroes is a valid Dl_info.
    let info = unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init()
    };
    // SAFETY: the name is a C string of the loader's; NOLOAD runs nothing.
    let handle = unsafe {
        libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE)
    };
    (!handle.is_null()).then_some(handle)
}
