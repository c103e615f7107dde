//! Observers.
//!
//! A program can be called when a request finds no memory, so that it frees something, and when
//! memory is got from the driver or given back to it. A callback runs on the thread whose call it is
//! about, within that call and with no lock of Cuddy's held: it may call any function of Cuddy's,
//! and wait for other threads. What it does itself is told to nobody while it does it: callbacks do not
//! nest, and a request that finds no memory inside one fails. It must return: an exception that leaves
//! it ends the process, and longjmp() out of it leaves it running for ever, so that nobody could wait
//! for its removal. Where nobody observes, and for all that the cache serves, observers cost nothing.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::convert::{cuddy_stream, given};
use super::guard::guarded;
use crate::error::cuddy_status;
use crate::process;

/// A kind of event: nothing that could serve a request was found, after all else was tried. When all
/// callbacks have returned, the search begins again; they are called again as long as it fails and
/// live memory has become less, or a limit was raised. Not told in a captured stream, where a call of
/// the driver's may break the capture.
pub const CUDDY_EVENT_OUT_OF_MEMORY: u32 = 1;

/// A kind of event: more memory is reserved than when this was told last.
pub const CUDDY_EVENT_GROWTH: u32 = 2;

/// A kind of event: less memory is reserved than when this was told last.
pub const CUDDY_EVENT_RELEASE: u32 = 4;

/// In place of a device's number in an event: page-locked host memory.
pub const CUDDY_HOST_MEMORY: i32 = -3;

/// An observer; 0 is none.
#[allow(non_camel_case_types)]
pub type cuddy_observer = u64;

/// What a callback is told. It lives until the callback returns. Fields are added at the end only.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct cuddy_event {
    /// The bytes of this struct: how much of it there is.
    pub struct_size: u64,
    /// One of CUDDY_EVENT_OUT_OF_MEMORY, CUDDY_EVENT_GROWTH and CUDDY_EVENT_RELEASE.
    pub kind: u32,
    /// The device's number, or CUDDY_HOST_MEMORY.
    pub device: i32,
    /// Out of memory: bytes asked for. Else: by how many bytes more or fewer are reserved now. Threads
    /// that grow at once may share one event; the sum is exact.
    pub bytes: u64,
    /// Bytes of live blocks, at that moment.
    pub allocated: u64,
    /// Bytes held from the driver, at that moment.
    pub reserved: u64,
    /// The limit; UINT64_MAX when there is none.
    pub limit: u64,
    /// Out of memory: the stream of the request, as it was passed. Else NULL.
    pub stream: cuddy_stream,
}

/// A function of the program's: event is what happened, user what cuddy_observe() was given.
#[allow(non_camel_case_types)]
pub type cuddy_callback =
    Option<unsafe extern "C-unwind" fn(event: *const cuddy_event, user: *mut c_void)>;

/// Calls the program's function. A panic of a function written in Rust ends here.
fn call(event: &process::Event, function: usize, user: usize) {
    let told = cuddy_event {
        struct_size: size_of::<cuddy_event>() as u64,
        kind: event.kind,
        device: event.device,
        bytes: event.bytes,
        allocated: event.allocated,
        reserved: event.reserved,
        limit: event.limit,
        stream: event.stream as cuddy_stream,
    };
    let function: *const c_void = std::ptr::with_exposed_provenance(function);
    // SAFETY: `function` is a cuddy_callback that cuddy_observe() was given, and was not NULL. A
    // pointer to a function and one to data have one size here.
    let function = unsafe { std::mem::transmute::<*const c_void, cuddy_callback>(function) };
    let user = std::ptr::with_exposed_provenance_mut(user);
    if let Some(function) = function {
        // SAFETY: the caller of cuddy_observe() promises that the function may be called like this;
        // `told` outlives the call. What is unwound is either caught here or ends the process.
        let _ = catch_unwind(AssertUnwindSafe(|| unsafe { function(&told, user) }));
    }
}

/// Asks to be called when certain things happen.
///
/// observer: where to write the observer's name.
/// kinds:    CUDDY_EVENT_OUT_OF_MEMORY, CUDDY_EVENT_GROWTH and CUDDY_EVENT_RELEASE, or-ed.
/// callback: the function to call, by any thread, and by several at once.
/// user:     passed to it as it is; it must be good until cuddy_unobserve() returns.
///
/// Observers are called in the order in which they were added.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (observer or callback is NULL, kinds is 0 or has unknown
/// bits), CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
/// Thread-safe; may be called in a callback. Never calls the driver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_observe(
    observer: *mut cuddy_observer,
    kinds: u32,
    callback: cuddy_callback,
    user: *mut c_void,
) -> cuddy_status {
    guarded(|| {
        given(observer, "observer")?;
        let function = callback.map_or(std::ptr::null(), |callback| callback as *const c_void);
        given(function, "callback")?;
        let user = user.expose_provenance();
        let name = process::observe(kinds, call, function.expose_provenance(), user)?;
        // SAFETY: not NULL, and the caller promises that it may be written.
        unsafe { observer.write(name) };
        Ok(())
    })
}

/// Ends that. When it returns, the callback is not running and is never called again: calls that
/// other threads are in are waited for. Called inside any callback it does not wait, since two that
/// removed each other would wait for ever: then calls under way on other threads may still run on.
///
/// observer: what cuddy_observe() wrote.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (no observer, or removed before), CUDDY_ERROR_FORKED.
/// Thread-safe. The caller must not hold what the callback waits for. Never calls the driver.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_unobserve(observer: cuddy_observer) -> cuddy_status {
    guarded(|| process::unobserve(observer))
}
