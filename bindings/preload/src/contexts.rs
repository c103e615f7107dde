//! **Contexts**: their ends take the cache along, and peers share their memory.

use std::ffi::c_int;

use crate::books::books;
use crate::doors::Home;
use crate::process::{is_forked, is_out};
use crate::table::Opaque;

/// Ends a context by `real`: what is cached in it goes with it, unless `is_over` says otherwise.
fn end(context: usize, real: impl FnOnce() -> c_int, is_over: impl FnOnce(c_int) -> bool) -> c_int {
    let aside = books().set_aside(context);
    let code = real();
    if let Some(aside) = aside
        && !is_over(code)
    {
        books().put_back(aside);
    }
    code
}

/// `cuCtxDestroy`, and `cuCtxDetach`: what is cached in a context that lives on after that is lost to
/// us, and ends with it.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn destroy(
    _home: &Home,
    real: unsafe extern "C" fn(Opaque) -> c_int,
    context: Opaque,
) -> c_int {
    // SAFETY: the program's own argument.
    let call = || unsafe { real(context) };
    if is_out() { call() } else { end(context.expose_provenance(), call, |code| code == 0) }
}

/// `cuDevicePrimaryCtxRelease` and `cuDevicePrimaryCtxReset`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn primary_end(
    home: &Home,
    real: unsafe extern "C" fn(c_int) -> c_int,
    device: c_int,
) -> c_int {
    // SAFETY: a plain number.
    let call = || unsafe { real(device) };
    if is_out() || books().cache.contexts_of(device).is_empty() {
        return call();
    }
    match home.primary(device) {
        Some(context) => end(context, call, |_| !home.primary_is_active(device)),
        None => call(),
    }
}

/// `cuCtxSynchronize`: what was freed before it is in use by nothing after it.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn synchronize(home: &Home, real: unsafe extern "C" fn() -> c_int) -> c_int {
    let context = if is_out() { None } else { home.current() };
    let sealed = context.and_then(|context| {
        let mut books = books();
        // Other contexts may use this one's memory: those are not waited for.
        let alone = books.users_of(context).is_empty();
        let epoch = if alone { books.cache.seal(context) } else { None };
        epoch.map(|epoch| (context, epoch))
    });
    // SAFETY: takes no arguments.
    let code = unsafe { real() };
    if let Some((context, epoch)) = sealed {
        match code {
            0 => books().cache.passed(context, epoch),
            _ => books().cache.unseal(context, epoch),
        }
    }
    code
}

/// `cuCtxEnablePeerAccess`: from now on the current context's work may use the peer's memory.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn enable_peer(
    home: &Home,
    real: unsafe extern "C" fn(Opaque, u32) -> c_int,
    peer: Opaque,
    flags: u32,
) -> c_int {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(peer, flags) };
    if code == 0
        && !is_forked()
        && let Some(user) = home.current()
    {
        books().add_user(peer.expose_provenance(), user);
    }
    code
}
