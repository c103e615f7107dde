//! **Pools**: the driver's stream-ordered memory. It stays the driver's; only the default pool of a
//! device keeps what it has across waits, up to the cap, where the program did not say how much.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;

use cuddy::mutants::mutant;

use crate::books::{books, context};
use crate::captures;
use crate::doors::Home;
use crate::process::{is_forked, settings};
use crate::report::{Door, note};
use crate::settings::{Async, Mode};
use crate::shortage::with_rescue;
use crate::table::{Address, Opaque};

/// `CU_MEMPOOL_ATTR_*`.
const RELEASE_THRESHOLD: c_int = 4;
const RESERVED_CURRENT: c_int = 5;
const USED_CURRENT: c_int = 7;

/// What was done to which pool.
#[derive(Debug)]
pub struct Pools {
    /// Contexts whose device's pool has been looked at.
    seen: BTreeSet<usize>,
    /// By device: the pool whose threshold is ours.
    raised: BTreeMap<i32, usize>,
    /// Pools whose threshold is the program's.
    theirs: BTreeSet<usize>,
}

impl Pools {
    /// Nothing was done.
    pub const fn new() -> Self {
        Self { seen: BTreeSet::new(), raised: BTreeMap::new(), theirs: BTreeSet::new() }
    }

    /// A context may be about to end.
    pub fn forget(&mut self, context: usize) {
        self.seen.remove(&context);
    }

    fn is_raised(&self, pool: usize) -> bool {
        self.raised.values().any(|its| *its == pool)
    }
}

fn attribute(home: &Home, pool: usize, attribute: c_int) -> Option<u64> {
    let mut value = 0u64;
    let pool = std::ptr::with_exposed_provenance_mut(pool);
    // SAFETY: a pool of the driver's, and these attributes are 64-bit numbers.
    let code =
        unsafe { home.reals.cuMemPoolGetAttribute?(pool, attribute, (&raw mut value).cast()) };
    (code == 0).then_some(value)
}

/// Raises the threshold of the default pool, once a device.
fn raise(home: &Home) {
    if is_forked() || settings().pool == Async::Off || settings().mode == Mode::Off {
        return;
    }
    let Some(context) = context(home) else { return };
    if captures::any() || !books().pools.seen.insert(context) {
        return;
    }
    let (Some(device), Some((_, total))) = (home.device(), home.memory()) else { return };
    let Some(pool) = default_pool(home, device) else { return };
    let theirs = books().pools.theirs.contains(&pool);
    if (theirs && !mutant("preload-threshold-overruled"))
        || attribute(home, pool, RELEASE_THRESHOLD) != Some(0)
    {
        return;
    }
    let mut value = settings().cap_of(total);
    let Some(set) = home.reals.cuMemPoolSetAttribute else { return };
    let handle = std::ptr::with_exposed_provenance_mut(pool);
    // SAFETY: a pool of the driver's, and this attribute is a 64-bit number.
    if unsafe { set(handle, RELEASE_THRESHOLD, (&raw mut value).cast()) } == 0 {
        books().pools.raised.insert(device, pool);
    }
}

fn default_pool(home: &Home, device: i32) -> Option<usize> {
    let mut pool = std::ptr::null_mut();
    // SAFETY: writes one handle.
    let code = unsafe { home.reals.cuDeviceGetDefaultMemPool?(&mut pool, device) };
    (code == 0).then(|| pool.expose_provenance())
}

/// What a pool of ours would give back without our threshold.
pub fn idle(home: &Home, device: i32) -> u64 {
    let Some(pool) = books().pools.raised.get(&device).copied() else { return 0 };
    let of = |which| attribute(home, pool, which).unwrap_or(0);
    of(RESERVED_CURRENT).saturating_sub(of(USED_CURRENT))
}

/// Gives back what a pool of ours keeps; whether that was anything.
pub fn trim(home: &Home, device: i32) -> bool {
    if captures::any() || idle(home, device) == 0 {
        return false;
    }
    let pool = books().pools.raised.get(&device).copied();
    let (Some(pool), Some(trim)) = (pool, home.reals.cuMemPoolTrimTo) else { return false };
    // SAFETY: a pool of the driver's.
    unsafe { trim(std::ptr::with_exposed_provenance_mut(pool), 0) == 0 }
}

/// `cuMemAllocAsync`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn alloc(
    home: &Home,
    real: unsafe extern "C" fn(*mut Address, usize, Opaque) -> c_int,
    to: *mut Address,
    bytes: usize,
    stream: Opaque,
) -> c_int {
    note(Door::PassedAlloc);
    raise(home);
    // SAFETY: the program's own arguments.
    with_rescue(home, || unsafe { real(to, bytes, stream) })
}

/// `cuMemAllocFromPoolAsync`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn alloc_from(
    home: &Home,
    real: unsafe extern "C" fn(*mut Address, usize, Opaque, Opaque) -> c_int,
    to: *mut Address,
    bytes: usize,
    pool: Opaque,
    stream: Opaque,
) -> c_int {
    note(Door::PassedAlloc);
    // SAFETY: the program's own arguments.
    with_rescue(home, || unsafe { real(to, bytes, pool, stream) })
}

/// `cuMemPoolSetAttribute`: what the program says of a threshold holds.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn set_attribute(
    _home: &Home,
    real: unsafe extern "C" fn(Opaque, c_int, Opaque) -> c_int,
    pool: Opaque,
    attribute: c_int,
    value: Opaque,
) -> c_int {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(pool, attribute, value) };
    if code == 0 && attribute == RELEASE_THRESHOLD && !is_forked() {
        let pool = pool.expose_provenance();
        let mut books = books();
        books.pools.raised.retain(|_, its| *its != pool);
        books.pools.theirs.insert(pool);
    }
    code
}

/// `cuMemPoolGetAttribute`: the program sees the threshold that it would have without us.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn get_attribute(
    _home: &Home,
    real: unsafe extern "C" fn(Opaque, c_int, Opaque) -> c_int,
    pool: Opaque,
    attribute: c_int,
    value: Opaque,
) -> c_int {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(pool, attribute, value) };
    if code == 0
        && attribute == RELEASE_THRESHOLD
        && !value.is_null()
        && !is_forked()
        && books().pools.is_raised(pool.expose_provenance())
    {
        // SAFETY: a 64-bit number, which the driver has just written.
        unsafe { value.cast::<u64>().write_unaligned(0) };
    }
    code
}
