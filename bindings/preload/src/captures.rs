//! **Captures**: which streams are being captured into a graph, as far as the hooks have seen.
//!
//! While any is, nothing is waited for, recorded or asked of the device on the cache's account: each
//! of these can end a capture. A capture begins only when no such call is under way.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use cuddy::mutants::mutant;

use crate::doors::Home;
use crate::table::Opaque;

type Begin1 = unsafe extern "C" fn(Opaque) -> c_int;
type Begin2 = unsafe extern "C" fn(Opaque, c_int) -> c_int;
type BeginToGraph =
    unsafe extern "C" fn(Opaque, Opaque, *const Opaque, *const c_void, usize, c_int) -> c_int;
type End = unsafe extern "C" fn(Opaque, *mut Opaque) -> c_int;

/// A stream, and for a thread's own default stream the thread.
type Key = (usize, usize);

/// The legacy default stream, and the calling thread's own.
const LEGACY: usize = 1;
const OF_THREAD: usize = 2;

static CAPTURING: RwLock<BTreeSet<Key>> = RwLock::new(BTreeSet::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn key(stream: Opaque, default: usize) -> Key {
    let stream = match stream.expose_provenance() {
        0 => default,
        other => other,
    };
    // SAFETY: takes no arguments.
    let thread = if stream == OF_THREAD { unsafe { libc::pthread_self() as usize } } else { 0 };
    (stream, thread)
}

/// Whether anything captures.
pub fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0 && !mutant("preload-waits-in-captures")
}

/// Does something that no capture would survive, if there is none; none begins meanwhile.
pub fn unless_any<R>(act: impl FnOnce() -> R) -> Option<R> {
    let none = CAPTURING.read().unwrap_or_else(PoisonError::into_inner);
    (none.is_empty() || mutant("preload-waits-in-captures")).then(act)
}

fn begin(stream: Opaque, default: usize, real: impl FnOnce() -> c_int) -> c_int {
    let mut all = CAPTURING.write().unwrap_or_else(PoisonError::into_inner);
    let code = real();
    if code == 0 {
        all.insert(key(stream, default));
        COUNT.store(all.len(), Ordering::Release);
    }
    code
}

fn over(key: Key) {
    let mut all = CAPTURING.write().unwrap_or_else(PoisonError::into_inner);
    all.remove(&key);
    COUNT.store(all.len(), Ordering::Release);
}

/// `cuStreamBeginCapture` of CUDA 10.0.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn begin_1(_home: &Home, real: Begin1, stream: Opaque) -> c_int {
    // SAFETY: the program's own arguments.
    begin(stream, LEGACY, || unsafe { real(stream) })
}

/// Its per-thread form.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn begin_1_per_thread(_home: &Home, real: Begin1, stream: Opaque) -> c_int {
    // SAFETY: the program's own arguments.
    begin(stream, OF_THREAD, || unsafe { real(stream) })
}

/// `cuStreamBeginCapture`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn begin_2(_home: &Home, real: Begin2, stream: Opaque, mode: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    begin(stream, LEGACY, || unsafe { real(stream, mode) })
}

/// Its per-thread form.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn begin_2_per_thread(_home: &Home, real: Begin2, stream: Opaque, mode: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    begin(stream, OF_THREAD, || unsafe { real(stream, mode) })
}

/// `cuStreamBeginCaptureToGraph`.
///
/// # Safety
/// As cuda.h says.
#[allow(clippy::too_many_arguments)]
pub unsafe fn begin_to_graph(
    _home: &Home,
    real: BeginToGraph,
    stream: Opaque,
    graph: Opaque,
    nodes: *const Opaque,
    edges: *const c_void,
    count: usize,
    mode: c_int,
) -> c_int {
    // SAFETY: the program's own arguments.
    begin(stream, LEGACY, || unsafe { real(stream, graph, nodes, edges, count, mode) })
}

/// Its per-thread form.
///
/// # Safety
/// As cuda.h says.
#[allow(clippy::too_many_arguments)]
pub unsafe fn begin_to_graph_per_thread(
    _home: &Home,
    real: BeginToGraph,
    stream: Opaque,
    graph: Opaque,
    nodes: *const Opaque,
    edges: *const c_void,
    count: usize,
    mode: c_int,
) -> c_int {
    // SAFETY: the program's own arguments.
    begin(stream, OF_THREAD, || unsafe { real(stream, graph, nodes, edges, count, mode) })
}

fn ended(home: &Home, stream: Opaque, default: usize, code: c_int) -> c_int {
    let key = key(stream, default);
    // A capture that was invalid is over too, and its end an error; the wrong thread ends nothing.
    if any() && (code == 0 || home.is_capturing(key.0) == Some(false)) {
        over(key);
    }
    code
}

/// `cuStreamEndCapture`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn end(home: &Home, real: End, stream: Opaque, graph: *mut Opaque) -> c_int {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(stream, graph) };
    ended(home, stream, LEGACY, code)
}

/// Its per-thread form.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn end_per_thread(home: &Home, real: End, stream: Opaque, graph: *mut Opaque) -> c_int {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(stream, graph) };
    ended(home, stream, OF_THREAD, code)
}

/// `cuStreamDestroy`: ends a capture too.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn stream_destroy(
    _home: &Home,
    real: unsafe extern "C" fn(Opaque) -> c_int,
    stream: Opaque,
) -> c_int {
    // SAFETY: the program's own argument.
    let code = unsafe { real(stream) };
    if code == 0 && any() {
        over(key(stream, LEGACY));
    }
    code
}
