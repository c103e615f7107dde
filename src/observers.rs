#![forbid(unsafe_code)]
//! Observers: what a program asked to be told of, and by which function of its own.
//!
//! A call of an observer is made with no lock held, so it may call anything. It *runs* from before
//! the call to after it; an observer is gone once it was removed and `running == 0`. While a thread
//! is inside a call, nothing that it does is told to anybody: no call nests in another.

use std::cell::Cell;
use std::sync::Condvar;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, sentence};
use crate::mutants::mutant;
use crate::sync::{self, Lock};

/// Nothing that could serve a request was found; who is told may free something.
pub(crate) const OUT_OF_MEMORY: u32 = 1;
/// More memory is held from the driver.
pub(crate) const GROWTH: u32 = 2;
/// Less memory is held from the driver.
pub(crate) const RELEASE: u32 = 4;
/// All that can be told.
const ALL: u32 = OUT_OF_MEMORY | GROWTH | RELEASE;

/// In place of a device's number: page-locked host memory.
pub(crate) const HOST: i32 = -3;

/// Rank of the lock around the list: nothing else is done under it.
const RANK: u8 = 20;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// One of the three.
    pub kind: u32,
    /// The device's number, or [`HOST`].
    pub device: i32,
    /// Bytes asked for, or by how many more or fewer are reserved.
    pub bytes: u64,
    pub allocated: u64,
    pub reserved: u64,
    pub limit: u64,
    /// The stream that asked, as it was passed; 0 where none did.
    pub stream: usize,
}

/// Calls a program's function (the first number) with what it wanted to be passed (the second).
pub(crate) type Call = fn(&Event, usize, usize);

struct Observer {
    id: u64,
    kinds: u32,
    call: Call,
    function: usize,
    user: usize,
    running: u32,
    removed: bool,
}

struct List {
    observers: Vec<Observer>,
    /// The latest id; none is used twice.
    last: u64,
}

static LIST: Lock<List, RANK> = Lock::new(List { observers: Vec::new(), last: 0 });
/// Told when a call of a removed observer has ended.
static ENDED: Condvar = Condvar::new();
/// What anybody wants to be told of.
static WANTED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Whether this thread is inside a call. No destructor: usable until the very end.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl List {
    fn publish(&self) {
        let standing = self.observers.iter().filter(|observer| !observer.removed);
        WANTED.store(standing.fold(0, |all, observer| all | observer.kinds), Ordering::Release);
    }
}

/// Whether anybody is to be told of this now, by this thread.
pub(crate) fn wants(kind: u32) -> bool {
    WANTED.load(Ordering::Acquire) & kind != 0 && !INSIDE.get()
}

/// Whether the calling thread is inside a call.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// From now on `call(event, function, user)` is made for events of these kinds. Its id.
pub(crate) fn add(kinds: u32, call: Call, function: usize, user: usize) -> Result<u64, Error> {
    if kinds == 0 || kinds & !ALL != 0 {
        let why = sentence!("{kinds:#x} is not one or more of the kinds of events, {ALL:#x}");
        return Err(Error::InvalidArgument { argument: "kinds", why });
    }
    let mut list = LIST.lock();
    list.observers.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
    list.last += 1;
    let id = list.last;
    list.observers.push(Observer { id, kinds, call, function, user, running: 0, removed: false });
    list.publish();
    Ok(id)
}

/// Makes no more calls of this observer, and waits for those that other threads are in, unless this
/// thread is inside a call itself: two that removed each other would wait for ever.
pub(crate) fn remove(id: u64) -> Result<(), Error> {
    let mut list = LIST.lock();
    let found = list.observers.iter_mut().find(|known| known.id == id && !known.removed);
    let Some(observer) = found else {
        let why = sentence!("{id} is no observer, or was removed before");
        return Err(Error::InvalidArgument { argument: "observer", why });
    };
    observer.removed = true;
    list.observers.retain(|known| !known.removed || known.running > 0);
    list.publish();
    if INSIDE.get() || mutant("observer-removal-waits-for-nobody") {
        return Ok(());
    }
    while list.observers.iter().any(|known| known.id == id) {
        list = list.wait(&ENDED);
    }
    Ok(())
}

/// Tells everybody who wants to know. No lock may be held.
pub(crate) fn tell(event: &Event) {
    if !wants(event.kind) {
        return;
    }
    sync::assert_holds_none();
    // Who comes while this is told is not told of it.
    let last = LIST.lock().last;
    let mut told = 0;
    while let Some(running) = Running::begin(event.kind, told, last) {
        told = running.id;
        (running.call)(event, running.function, running.user);
    }
}

/// A call under way.
struct Running {
    id: u64,
    call: Call,
    function: usize,
    user: usize,
}

impl Running {
    /// Begins the call of the next observer behind `told`.
    fn begin(kind: u32, told: u64, last: u64) -> Option<Self> {
        let mut list = LIST.lock();
        let wanted = |known: &&mut Observer| {
            !known.removed && known.kinds & kind != 0 && known.id > told && known.id <= last
        };
        // Ids rise from the first to the last.
        let observer = list.observers.iter_mut().find(wanted)?;
        observer.running += 1;
        INSIDE.set(!mutant("observer-calls-nest"));
        let Observer { id, call, function, user, .. } = *observer;
        Some(Self { id, call, function, user })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        INSIDE.set(false);
        let mut list = LIST.lock();
        if let Some(observer) = list.observers.iter_mut().find(|known| known.id == self.id) {
            observer.running -= 1;
            if observer.removed && observer.running == 0 {
                list.observers.retain(|known| known.id != self.id);
                ENDED.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::{Barrier, MutexGuard, PoisonError};

    use super::*;

    /// The list is the process's: one test at a time.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    const EVENT: Event = Event {
        kind: GROWTH,
        device: 0,
        bytes: 1,
        allocated: 0,
        reserved: 1,
        limit: u64::MAX,
        stream: 0,
    };

    static COUNT: AtomicU64 = AtomicU64::new(0);

    fn count(_: &Event, step: usize, _: usize) {
        COUNT.fetch_add(step as u64, Ordering::Relaxed);
    }

    #[test]
    fn only_who_wants_a_kind_is_told_of_it_until_removed() {
        let _alone = alone();
        COUNT.store(0, Ordering::Relaxed);
        assert!(add(0, count, 0, 0).is_err() && add(8, count, 0, 0).is_err());
        let one = add(GROWTH, count, 1, 0).expect("memory");
        let two = add(GROWTH | RELEASE, count, 100, 0).expect("memory");
        assert!(wants(GROWTH) && wants(RELEASE) && !wants(OUT_OF_MEMORY));
        tell(&EVENT);
        tell(&Event { kind: RELEASE, ..EVENT });
        tell(&Event { kind: OUT_OF_MEMORY, ..EVENT });
        assert_eq!(COUNT.load(Ordering::Relaxed), 201);
        remove(two).expect("there");
        assert!(remove(two).is_err(), "once");
        tell(&EVENT);
        assert_eq!(COUNT.load(Ordering::Relaxed), 202);
        remove(one).expect("there");
        assert!(!wants(GROWTH | RELEASE | OUT_OF_MEMORY));
    }

    fn remove_itself_and_add(event: &Event, _: usize, _: usize) {
        COUNT.fetch_add(1, Ordering::Relaxed);
        remove(MINE.load(Ordering::Relaxed)).expect("there");
        let late = add(GROWTH, count, 1000, 0).expect("memory");
        LATE.store(late, Ordering::Relaxed);
        tell(event);
    }

    static MINE: AtomicU64 = AtomicU64::new(0);
    static LATE: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn a_call_may_remove_its_own_observer_and_add_others_and_none_nests() {
        let _alone = alone();
        COUNT.store(0, Ordering::Relaxed);
        MINE.store(add(GROWTH, remove_itself_and_add, 0, 0).expect("memory"), Ordering::Relaxed);
        tell(&EVENT);
        assert_eq!(COUNT.load(Ordering::Relaxed), 1, "the late one is not told of this");
        tell(&EVENT);
        assert_eq!(COUNT.load(Ordering::Relaxed), 1001);
        remove(LATE.load(Ordering::Relaxed)).expect("there");
    }

    static BARRIER: Barrier = Barrier::new(2);
    static DONE: AtomicU64 = AtomicU64::new(0);

    fn slow(_: &Event, _: usize, _: usize) {
        BARRIER.wait();
        std::thread::sleep(std::time::Duration::from_millis(20));
        DONE.store(1, Ordering::Release);
    }

    #[test]
    fn removal_waits_for_calls_on_other_threads() {
        let _alone = alone();
        let id = add(GROWTH, slow, 0, 0).expect("memory");
        let teller = std::thread::spawn(|| tell(&EVENT));
        BARRIER.wait();
        remove(id).expect("there");
        assert_eq!(DONE.load(Ordering::Acquire), 1, "the call was over before");
        teller.join().expect("the thread lives");
    }
}
