#![forbid(unsafe_code)]
//! Pools as the program names them, and the pool that each thread allocates in.
//!
//! A name is a number that is never used twice for different pools: `generation << 32 |
//! (device + 1) << 16 | number`. Below 2^16 lie the two names that are not of one pool: the calling
//! thread's current pool, and the default pool of whatever device. A thread's current pool on a
//! device is the one of that device that it pushed last and has not popped, else the default one.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use super::start::{Process, started, started_already};
use crate::device::{Device, PoolName, PoolTerms};
use crate::error::{Error, sentence};
use crate::mutants::mutant;
use crate::options::Sharing;
use crate::stats::cuddy_stats;
use crate::sync::refuse_after_fork;
use crate::types::{DeviceId, PoolId};

/// In place of a pool: the calling thread's current one.
pub const CURRENT_POOL: u64 = 0;
/// In place of a pool: the default one.
pub const DEFAULT_POOL: u64 = 1;
/// The most pools that a thread has pushed at once.
const DEEPEST: usize = 64;

/// How a pool is to be.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// The device, or [`super::CURRENT_DEVICE`].
    pub device: i32,
    /// The most that may be reserved in it, in bytes; 0 and `u64::MAX` are no limit.
    pub limit: u64,
    /// Whether the default pool may use its free memory before it fails.
    pub use_on_oom: bool,
}

/// Whether any thread has ever pushed a pool: until then nobody looks for one.
static PUSHED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The pools that this thread has pushed, the first `DEPTH` of them. No destructor.
    static SCOPES: [Cell<u64>; DEEPEST] = const { [const { Cell::new(0) }; DEEPEST] };
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Makes a private pool.
pub fn pool_create(options: PoolOptions) -> Result<u64, Error> {
    let process = started()?;
    let device = process.device(process.id(options.device)?)?;
    let limit = if options.limit == 0 { u64::MAX } else { options.limit };
    let terms = PoolTerms { limit, use_on_oom: options.use_on_oom };
    Ok(number(device.id(), device.create_pool(terms)?))
}

/// Ends a pool: nothing more is allocated in it. Its blocks stay valid; when the last one is freed,
/// its memory goes back.
pub fn pool_destroy(pool: u64) -> Result<(), Error> {
    let (device, name) = private(pool)?;
    device.destroy_pool(name)
}

/// Makes a pool the calling thread's current one on its device; [`DEFAULT_POOL`] makes the default
/// ones current on every device.
pub fn pool_push(pool: u64) -> Result<(), Error> {
    refuse_after_fork()?;
    if pool != DEFAULT_POOL {
        let (device, name) = private(pool)?;
        device.check_pool(name)?;
    }
    let depth = DEPTH.get();
    if depth == DEEPEST {
        return Err(Error::InvalidPool(sentence!(
            "this thread has pushed {DEEPEST} pools, which is the most: pop one for each that is \
             pushed"
        )));
    }
    PUSHED.store(true, Ordering::Relaxed);
    SCOPES.with(|scopes| scopes[depth].set(pool));
    DEPTH.set(depth + 1);
    Ok(())
}

/// Ends the scope that the calling thread's latest push of this pool began. The pool may have been
/// destroyed meanwhile.
pub fn pool_pop(pool: u64) -> Result<(), Error> {
    refuse_after_fork()?;
    let Some(last) = DEPTH.get().checked_sub(1) else {
        return Err(Error::InvalidPool(sentence!(
            "this thread has no pool to pop: each pop ends one push of the same thread"
        )));
    };
    let pushed = SCOPES.with(|scopes| scopes[last].get());
    if pushed != pool {
        return Err(Error::InvalidPool(sentence!(
            "pool {pool:#x} is not the one that this thread pushed last, which is {pushed:#x}: pop \
             pools in the opposite order"
        )));
    }
    DEPTH.set(if mutant("pool-pops-everything") { 0 } else { last });
    Ok(())
}

/// A pool's counters.
pub fn pool_stats(pool: u64) -> Result<cuddy_stats, Error> {
    let (device, name) = private(pool)?;
    device.pool_stats(name)
}

/// Every peak of a pool becomes what is now.
pub fn pool_reset_peaks(pool: u64) -> Result<(), Error> {
    let (device, name) = private(pool)?;
    device.reset_pool_peaks(name)
}

/// Sets the most that may be reserved in a pool; 0 and `u64::MAX` are no limit.
pub fn pool_set_limit(pool: u64, bytes: u64) -> Result<(), Error> {
    let (device, name) = private(pool)?;
    device.set_pool_limit(name, if bytes == 0 { u64::MAX } else { bytes })
}

/// Sets how a pool's memory may go from one stream to another; `None` is as the option `share` says.
pub fn pool_set_share(pool: u64, share: Option<Sharing>) -> Result<(), Error> {
    let (device, name) = private(pool)?;
    device.set_pool_share(name, share)
}

/// Gives a pool's cached memory back to the driver until no more than `keep` bytes are reserved in
/// it; waits for the streams that used it last. How many bytes were given back.
pub fn pool_trim(pool: u64, keep: u64) -> Result<u64, Error> {
    let (device, name) = private(pool)?;
    device.trim_pool(name, keep)
}

/// Gives all of a pool's cached memory back.
pub fn pool_empty_cache(pool: u64) -> Result<u64, Error> {
    pool_trim(pool, 0)
}

/// Whether any thread has a current pool of its own.
#[inline]
pub(super) fn any_pushed() -> bool {
    PUSHED.load(Ordering::Relaxed)
}

/// The pool of `device` that a request means by `pool`.
#[inline(always)]
pub(super) fn pool_on(device: &Device, pool: u64) -> Result<PoolName, Error> {
    match pool {
        CURRENT_POOL if !any_pushed() => Ok(PoolName::DEFAULT),
        CURRENT_POOL if mutant("pool-pushed-for-nothing") => Ok(PoolName::DEFAULT),
        CURRENT_POOL => Ok(current_on(device.id())),
        DEFAULT_POOL => Ok(PoolName::DEFAULT),
        _ => {
            let (id, name) = parts(pool)?;
            match id == device.id() {
                true => Ok(name),
                false => Err(Error::WrongDevice { named: device.id().0, actual: id.0 }),
            }
        }
    }
}

/// The calling thread's current pool on a device.
fn current_on(device: DeviceId) -> PoolName {
    SCOPES.with(|scopes| {
        let pushed = scopes[..DEPTH.get()].iter().rev().map(Cell::get);
        for pool in pushed {
            match parts(pool) {
                // The default pools of all devices.
                Err(_) => return PoolName::DEFAULT,
                Ok((id, name)) if id == device => return name,
                Ok(_) => {}
            }
        }
        PoolName::DEFAULT
    })
}

/// A private pool's device and name.
pub(super) fn private(pool: u64) -> Result<(&'static Device, PoolName), Error> {
    refuse_after_fork()?;
    let (id, name) = parts(pool)?;
    match started_already().and_then(|process: &Process| process.device_in_use(id)) {
        Some(device) => Ok((device, name)),
        None => Err(unknown(pool)),
    }
}

fn number(device: DeviceId, name: PoolName) -> u64 {
    u64::from(name.generation) << 32 | u64::from(device.0 + 1) << 16 | u64::from(name.id.0)
}

pub(super) fn parts(pool: u64) -> Result<(DeviceId, PoolName), Error> {
    let device = (pool >> 16 & 0xffff) as u32;
    let name = PoolName { id: PoolId((pool & 0xffff) as u32), generation: (pool >> 32) as u32 };
    match device > 0 && name.generation > 0 && name.id != PoolId::DEFAULT {
        true => Ok((DeviceId(device - 1), name)),
        false => Err(unknown(pool)),
    }
}

fn unknown(pool: u64) -> Error {
    Error::InvalidPool(match pool {
        CURRENT_POOL | DEFAULT_POOL => sentence!(
            "this call needs a pool of cuddy_pool_create(); the default pool is its device's"
        ),
        _ => sentence!("{pool:#x} is no pool: cuddy_pool_create() gives them out"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_apart_as_it_was_put_together() {
        for (device, id, generation) in [(0, 1, 1), (63, 511, u32::MAX), (5, 300, 77)] {
            let name = PoolName { id: PoolId(id), generation };
            let whole = number(DeviceId(device), name);
            assert_eq!(parts(whole), Ok((DeviceId(device), name)));
        }
        for none in [CURRENT_POOL, DEFAULT_POOL, 7, 1 << 16 | 1, 1 << 32 | 1, 1 << 32 | 1 << 16] {
            assert!(parts(none).is_err(), "{none:#x}");
        }
    }

    #[test]
    fn the_current_pool_is_the_devices_innermost() {
        let name = |id| PoolName { id: PoolId(id), generation: 1 };
        let push = |pool: u64| {
            SCOPES.with(|scopes| scopes[DEPTH.get()].set(pool));
            DEPTH.set(DEPTH.get() + 1);
        };
        push(number(DeviceId(0), name(1)));
        push(number(DeviceId(1), name(2)));
        assert_eq!((current_on(DeviceId(0)), current_on(DeviceId(1))), (name(1), name(2)));
        assert_eq!(current_on(DeviceId(2)), PoolName::DEFAULT);
        push(DEFAULT_POOL);
        assert_eq!(current_on(DeviceId(0)), PoolName::DEFAULT);
        push(number(DeviceId(0), name(3)));
        assert_eq!(
            (current_on(DeviceId(0)), current_on(DeviceId(1))),
            (name(3), PoolName::DEFAULT)
        );
        let wrong = pool_pop(DEFAULT_POOL).expect_err("another was pushed last").to_string();
        assert!(wrong.contains("opposite order"), "{wrong}");
        for pool in [number(DeviceId(0), name(3)), DEFAULT_POOL] {
            assert_eq!(pool_pop(pool), Ok(()));
        }
        assert_eq!(current_on(DeviceId(0)), name(1));
        DEPTH.set(0);
        let none = pool_pop(DEFAULT_POOL).expect_err("nothing is pushed").to_string();
        assert!(none.contains("no pool to pop"), "{none}");
    }
}
