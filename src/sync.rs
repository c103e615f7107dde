//! Locks with ranks, threads with numbers, and the mark that a fork leaves.
//!
//! A thread takes locks in rising rank only; debug builds check it. No lock stays poisoned: a panic
//! is turned into an error at the C boundary, and what a lock guards is whole whenever code that
//! could panic runs.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::Error;

/// A mutex that knows its place: a thread that holds rank `RANK` takes only higher ones.
pub(crate) struct Lock<T, const RANK: u8> {
    inner: Mutex<T>,
}

/// What [`Lock::lock`] gives; the lock is free again when it is dropped.
pub(crate) struct Guard<'a, T, const RANK: u8> {
    inner: MutexGuard<'a, T>,
    _rank: Rank<RANK>,
}

impl<T, const RANK: u8> Lock<T, RANK> {
    /// A free lock around `value`.
    pub(crate) const fn new(value: T) -> Self {
        Self { inner: Mutex::new(value) }
    }

    /// Waits for the lock and takes it.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T, RANK> {
        let rank = Rank::enter();
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Guard { inner, _rank: rank }
    }
}

impl<'a, T, const RANK: u8> Guard<'a, T, RANK> {
    /// Lets the lock go, waits for `signal`, and takes it again.
    pub(crate) fn wait(self, signal: &Condvar) -> Self {
        let Self { inner, _rank } = self;
        Self { inner: signal.wait(inner).unwrap_or_else(PoisonError::into_inner), _rank }
    }
}

impl<T, const RANK: u8> Deref for Guard<'_, T, RANK> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T, const RANK: u8> DerefMut for Guard<'_, T, RANK> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// The calling thread's note that it holds a lock of this rank.
struct Rank<const RANK: u8>;

#[cfg(debug_assertions)]
thread_local! {
    /// Bit `r` is set while this thread holds a lock of rank `r`.
    static HELD: Cell<u64> = const { Cell::new(0) };
}

impl<const RANK: u8> Rank<RANK> {
    #[inline]
    fn enter() -> Self {
        #[cfg(debug_assertions)]
        HELD.with(|held| {
            let before = held.get();
            assert!(before >> RANK == 0, "lock of rank {RANK} taken out of order: held {before:b}");
            held.set(before | 1 << RANK);
        });
        Self
    }
}

impl<const RANK: u8> Drop for Rank<RANK> {
    #[inline]
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        HELD.with(|held| held.set(held.get() & !(1 << RANK)));
    }
}

/// Proves, in debug builds, that the calling thread holds no lock: code of others comes next.
pub(crate) fn assert_holds_none() {
    #[cfg(debug_assertions)]
    HELD.with(|held| assert!(held.get() == 0, "locks are held: {:b}", held.get()));
}

thread_local! {
    /// This thread's number; 0 before it has asked. No destructor: usable until the very end.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// A number for the calling thread that no other thread of this process ever has.
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// No CUDA call has been made: a fork is harmless.
const FRESH: u8 = 0;
/// CUDA is or was in use: a child of this process cannot use it.
const USED: u8 = 1;
/// This is such a child.
const FORKED: u8 = 2;

static PHASE: AtomicU8 = AtomicU8::new(FRESH);

/// A reason for [`must_detour`]: this is the child of a fork that came after CUDA was used.
const FORK: u8 = 1;
/// Another one: somebody watches.
const WATCH: u8 = 2;

static DETOUR: AtomicU8 = AtomicU8::new(0);

/// Whether a call may not take the short way of a cached hit. One test for all reasons: a hit pays for
/// one.
#[inline]
pub(crate) fn must_detour() -> bool {
    DETOUR.load(Ordering::Relaxed) != 0
}

/// Says whether somebody watches.
pub(crate) fn set_watched(watched: bool) {
    match watched {
        true => DETOUR.fetch_or(WATCH, Ordering::Relaxed),
        false => DETOUR.fetch_and(!WATCH, Ordering::Relaxed),
    };
}

/// Whether somebody watches.
#[inline]
pub(crate) fn is_watched() -> bool {
    DETOUR.load(Ordering::Relaxed) & WATCH != 0
}

/// Fails in the child of a fork that came after CUDA was used. Takes no lock.
#[inline]
pub(crate) fn refuse_after_fork() -> Result<(), Error> {
    match PHASE.load(Ordering::Relaxed) {
        FORKED => Err(Error::Forked),
        _ => Ok(()),
    }
}

/// To be said before the first CUDA call: from here on, a child of a fork is marked.
///
/// When that call fails, [`unused`] takes it back. One caller at a time.
///
/// # Errors
/// `HostOutOfMemory`: then a child could not be told from its parent, and nothing may be used.
pub(crate) fn about_to_use() -> Result<(), Error> {
    static REGISTERED: AtomicU8 = AtomicU8::new(0);
    if REGISTERED.load(Ordering::Relaxed) == 0 {
        // SAFETY: `mark_child` is a function of this library, which stays loaded (a shared library
        // whose handler is registered is never unmapped: linked with -z nodelete), and it does
        // nothing but two atomic operations, which are safe in a forked child.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(mark_child)) };
        if refused != 0 {
            return Err(Error::HostOutOfMemory);
        }
        REGISTERED.store(1, Ordering::Relaxed);
    }
    let _ = PHASE.compare_exchange(FRESH, USED, Ordering::Relaxed, Ordering::Relaxed);
    Ok(())
}

/// CUDA turned out not to be usable: a fork is harmless again.
pub(crate) fn unused() {
    let _ = PHASE.compare_exchange(USED, FRESH, Ordering::Relaxed, Ordering::Relaxed);
}

extern "C" fn mark_child() {
    if PHASE.compare_exchange(USED, FORKED, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        DETOUR.fetch_or(FORK, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_upwards() {
        let (low, high) = (Lock::<_, 1>::new(1), Lock::<_, 2>::new(2));
        let (a, b) = (low.lock(), high.lock());
        assert_eq!(*a + *b, 3);
        drop(a);
        drop(b);
        drop(low.lock());
    }

    #[test]
    #[cfg(debug_assertions)]
    fn a_lock_out_of_order_is_caught() {
        let caught = std::panic::catch_unwind(|| {
            let (low, high) = (Lock::<_, 1>::new(1), Lock::<_, 2>::new(2));
            let _b = high.lock();
            let _a = low.lock();
        });
        assert!(caught.is_err());
    }

    #[test]
    fn a_panic_leaves_the_lock_usable() {
        let lock = std::sync::Arc::new(Lock::<_, 1>::new(7));
        let theirs = lock.clone();
        let _ = std::thread::spawn(move || {
            let _held = theirs.lock();
            panic!("on purpose");
        })
        .join();
        assert_eq!(*lock.lock(), 7);
    }

    #[test]
    fn every_thread_has_its_own_number() {
        let mine = thread_number();
        let theirs = std::thread::spawn(thread_number).join().expect("the thread lives");
        assert_eq!(mine, thread_number());
        assert_ne!(mine, theirs);
    }
}
