//! A gate: what one thread alone uses, many times a microsecond, and others may stop now and then.
//!
//! The owner enters by a plain store and leaves by one; whoever stops the gates pays for both sides
//! (`membarrier`). At every moment at most one of these holds for a gate's content: its owner is
//! inside, or somebody holds `ALL` with every owner outside.
//!
//! Why it is safe. The owner stores `busy`, then loads `STOP`; a stopper stores `STOP`, then (after a
//! barrier on every processor that runs this process) loads each `busy`. If the owner's store came
//! before that barrier, the stopper sees it and waits. Otherwise the owner's load came after the
//! barrier, sees `STOP`, leaves, and waits for `ALL`. Where the system has no such barrier, the
//! owner's store is a sequentially consistent exchange, and the stopper's fence is one too.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, compiler_fence, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Shelves;

/// One thread's gate. It outlives its thread: another thread takes it over, as it is.
struct Gate {
    /// The owner is inside, or holds `ALL` for this gate.
    busy: AtomicBool,
    content: UnsafeCell<Shelves>,
    /// Its thread has ended. Changed under `ALL` only.
    orphaned: AtomicBool,
}

// SAFETY: `content` is reached by the owner between entering and leaving, and by a stopper while
// every owner is outside; the module says why these exclude each other. `Shelves` is made of numbers,
// which may be used from any thread.
unsafe impl Sync for Gate {}

/// Somebody holds `ALL` and wants every owner outside.
static STOP: AtomicBool = AtomicBool::new(false);

/// Every gate there is. Held by stoppers, and by owners that find `STOP` set.
static ALL: Mutex<Vec<&'static Gate>> = Mutex::new(Vec::new());

/// How the two sides see each other: not asked yet, by `membarrier`, or by costlier stores.
static BARRIER: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const SYSTEM: u8 = 1;
const NONE: u8 = 2;

/// Of `membarrier(2)`.
const PRIVATE_EXPEDITED: i32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

thread_local! {
    /// The thread's gate. No destructor: it can be read until the thread's very end.
    static MINE: Cell<Option<&'static Gate>> = const { Cell::new(None) };
    /// It gets none: host memory ran out, or the thread is ending.
    static WITHOUT: Cell<bool> = const { Cell::new(false) };
}

/// Sets `busy` back whatever happens inside.
struct Inside(&'static Gate);

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

/// Lets the calling thread use what is its own. `None` where it has nothing of the kind, or is in
/// the middle of using it (a signal handler, or `work` itself, came back here).
///
/// `work` must be short and must not wait: a stopper waits for it.
#[inline]
pub(crate) fn with_mine<R>(work: impl FnOnce(&mut Shelves) -> R) -> Option<R> {
    let gate = match MINE.get() {
        Some(gate) => gate,
        None => get_gate()?,
    };
    if gate.busy.load(Ordering::Relaxed) {
        return None;
    }
    let _all = if enter(gate) { None } else { Some(step_aside(gate)) };
    let _inside = Inside(gate);
    // SAFETY: this thread is the gate's owner (nobody else has it in `MINE`) and was outside until
    // now, so no other reference of its is alive; no stopper has one, as the module says, and with
    // `ALL` held there is no stopper.
    Some(work(unsafe { &mut *gate.content.get() }))
}

/// The calling thread's own, for work that can as well be done elsewhere: `None` also where the thread
/// has never come by [`with_mine`], or a stopper is at work. Never waits; the same rules hold for as
/// long as the answer lives.
#[inline(always)]
pub(crate) fn try_mine() -> Option<Mine> {
    let gate = MINE.get()?;
    if gate.busy.load(Ordering::Relaxed) {
        return None;
    }
    let undisturbed = enter(gate);
    let inside = Mine { inside: Inside(gate), _stays: PhantomData };
    undisturbed.then_some(inside)
}

/// What is the calling thread's own, while it is inside.
pub(crate) struct Mine {
    inside: Inside,
    /// It stays with its thread.
    _stays: PhantomData<*mut Shelves>,
}

impl Deref for Mine {
    type Target = Shelves;
    #[inline(always)]
    fn deref(&self) -> &Shelves {
        // SAFETY: as below; `self` is borrowed, so no reference to change it is alive.
        unsafe { &*self.inside.0.content.get() }
    }
}

impl DerefMut for Mine {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Shelves {
        // SAFETY: as in `with_mine`: this thread owns the gate and was outside, so that this is the
        // only one of its kind, and it is borrowed alone; no stopper was seen after entering.
        unsafe { &mut *self.inside.0.content.get() }
    }
}

/// Whether the calling thread is in the middle of using its own.
pub(crate) fn is_inside() -> bool {
    MINE.get().is_some_and(|gate| gate.busy.load(Ordering::Relaxed))
}

/// The owner enters; `false`, and still has to leave, if a stopper is at work.
#[inline]
fn enter(gate: &Gate) -> bool {
    if BARRIER.load(Ordering::Relaxed) == SYSTEM {
        gate.busy.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    } else {
        gate.busy.swap(true, Ordering::SeqCst);
    }
    !STOP.load(Ordering::Acquire)
}

/// A stopper is at work: waits for it, and keeps others away.
#[cold]
fn step_aside(gate: &'static Gate) -> MutexGuard<'static, Vec<&'static Gate>> {
    gate.busy.store(false, Ordering::Release);
    let all = lock();
    gate.busy.store(true, Ordering::Relaxed);
    all
}

/// Every thread's own, while no thread can use it.
pub(crate) struct Stopped {
    all: MutexGuard<'static, Vec<&'static Gate>>,
}

/// Keeps every thread away from its own for as long as the answer lives: no call of [`with_mine`] is
/// under way or gets in. Costs some 15 us, and waits for whoever is inside. Not to be called inside
/// [`with_mine`], nor while another answer of this thread lives.
///
/// # Panics
/// In debug builds, if the calling thread is inside.
pub(crate) fn stop_all() -> Stopped {
    if let Some(gate) = MINE.get() {
        debug_assert!(!gate.busy.load(Ordering::Relaxed), "stopped from inside");
    }
    let stopped = Stopped { all: lock() };
    STOP.store(true, Ordering::SeqCst);
    make_visible();
    for gate in stopped.all.iter() {
        let mut rounds = 0u32;
        while gate.busy.load(Ordering::Acquire) {
            rounds += 1;
            if rounds.is_multiple_of(64) {
                std::thread::yield_now()
            } else {
                std::hint::spin_loop()
            }
        }
    }
    stopped
}

impl Stopped {
    /// Shows `each` what is every thread's.
    pub(crate) fn each(&mut self, mut each: impl FnMut(&mut Shelves)) {
        for gate in self.all.iter() {
            // SAFETY: every owner is outside and stays there: it will see `STOP` and wait for `ALL`,
            // which is held here, as any other stopper does; and `self` is borrowed whole.
            each(unsafe { &mut *gate.content.get() });
        }
    }
}

/// Lets everybody go on, before `ALL` is let go.
impl Drop for Stopped {
    fn drop(&mut self) {
        STOP.store(false, Ordering::Release);
    }
}

/// Orders the stopper's store before its loads, on every processor.
fn make_visible() {
    fence(Ordering::SeqCst);
    if BARRIER.load(Ordering::Relaxed) == SYSTEM {
        membarrier(PRIVATE_EXPEDITED);
    }
}

/// Whether the system did it.
fn membarrier(command: i32) -> bool {
    // SAFETY: the call takes numbers only.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

fn lock() -> MutexGuard<'static, Vec<&'static Gate>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calling thread's gate: one that an ended thread left, or a new one.
#[cold]
fn get_gate() -> Option<&'static Gate> {
    if WITHOUT.get() {
        return None;
    }
    let gate = make_gate();
    WITHOUT.set(gate.is_none());
    MINE.set(gate);
    gate
}

fn make_gate() -> Option<&'static Gate> {
    let mut all = lock();
    if BARRIER.load(Ordering::Relaxed) == UNKNOWN {
        // Once it has been registered it cannot fail any more.
        let kind = if membarrier(REGISTER_PRIVATE_EXPEDITED) { SYSTEM } else { NONE };
        BARRIER.store(kind, Ordering::Relaxed);
    }
    let key = exit_key()?;
    let left = all.iter().copied().find(|gate| gate.orphaned.load(Ordering::Relaxed));
    let gate = match left {
        Some(gate) => {
            // SAFETY: its owner has ended, and stoppers are kept away by `ALL`.
            unsafe { &mut *gate.content.get() }.forget_names();
            gate
        }
        None => {
            all.try_reserve(1).ok()?;
            let mut place = Vec::new();
            place.try_reserve_exact(1).ok()?;
            place.push(Gate {
                busy: AtomicBool::new(false),
                content: UnsafeCell::new(Shelves::default()),
                orphaned: AtomicBool::new(false),
            });
            let gate = place.leak().first()?;
            all.push(gate);
            gate
        }
    };
    // SAFETY: the key exists; the value is only handed back to `thread_ends`.
    let kept = unsafe { libc::pthread_setspecific(key, std::ptr::from_ref(gate).cast()) };
    gate.orphaned.store(kept != 0, Ordering::Relaxed);
    (kept == 0).then_some(gate)
}

/// The key by which the system tells us that a thread ends; `None` if it has no more of them. Under
/// `ALL`.
fn exit_key() -> Option<libc::pthread_key_t> {
    static KEY: Mutex<Option<libc::pthread_key_t>> = Mutex::new(None);
    let mut known = KEY.lock().unwrap_or_else(PoisonError::into_inner);
    if known.is_none() {
        let mut key = 0;
        // SAFETY: `key` is writable; `thread_ends` stays loaded (linked with -z nodelete), and lets
        // no panic out.
        let failed = unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) };
        *known = (failed == 0).then_some(key);
    }
    *known
}

/// A thread ends: what is on its shelves is found by stoppers, and by the thread that takes them over.
extern "C" fn thread_ends(_gate: *mut libc::c_void) {
    WITHOUT.set(true);
    if let Some(gate) = MINE.take() {
        let _all = lock();
        gate.orphaned.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::DeviceId;

    const DEVICE: DeviceId = DeviceId(60);

    /// Two counters that only ever move together, while a thread is inside.
    fn count() {
        let inside = with_mine(|mine| {
            let mine = mine.make(DEVICE).expect("host memory");
            mine.tally.served += 1;
            std::hint::spin_loop();
            mine.tally.freed += 1;
        });
        assert!(inside.is_some());
    }

    fn sum() -> u64 {
        let mut sum = 0;
        stop_all().each(|mine| {
            if let Some(mine) = mine.of(DEVICE) {
                assert_eq!(mine.tally.served, mine.tally.freed, "a thread was inside");
                sum += mine.tally.served;
            }
        });
        sum
    }

    #[test]
    fn a_stopper_sees_nobody_inside_and_nothing_is_lost_with_a_thread() {
        const ROUNDS: u64 = 30_000;
        for _ in 0..3 {
            let before = sum();
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| (0..ROUNDS).for_each(|_| count()));
                }
                for _ in 0..300 {
                    sum();
                }
            });
            assert_eq!(sum(), before + 3 * ROUNDS);
        }
    }

    #[test]
    fn inside_there_is_no_second_way_in() {
        let nested = with_mine(|_| with_mine(|_| ()));
        assert_eq!(nested, Some(None));
        assert_eq!(with_mine(|_| 7), Some(7));
    }

    #[test]
    fn a_panic_inside_lets_the_thread_out() {
        let caught = std::panic::catch_unwind(|| with_mine(|_| panic!("on purpose")));
        assert!(caught.is_err());
        assert_eq!(with_mine(|_| 7), Some(7));
        drop(stop_all());
    }
}
