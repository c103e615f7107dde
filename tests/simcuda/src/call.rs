//! A **call**: one API function at work, holding the lock.
//!
//! [`enter`] is the only way from C into the library: it counts the call, lets faults fire, charges
//! virtual time, runs the body, then whatever work the schedule wants run. No panic leaves it.
//! Inside, waits drop the lock.

use crate::engine::{OpKey, Target, ThreadKey};
use crate::faults::Strike;
use crate::hand_off::{HOST_FUNCTION, Task};
use crate::memory::history::Caller;
use crate::memory::table::{Fault, Reason};
use crate::state::State;
use crate::types::{Code, Outcome, code};
use crate::work::{Body, Kernel, Work};
use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::new()));
static CHANGED: Condvar = Condvar::new();
static WAITERS: AtomicU64 = AtomicU64::new(0);
/// Why calls are refused, whatever they are: 0 while they are not.
static REFUSED: AtomicI32 = AtomicI32::new(0);
static NEXT_THREAD: AtomicU64 = AtomicU64::new(1);

/// This process is a child forked after `cuInit`.
static FORKED: AtomicBool = AtomicBool::new(false);

/// What a host thread knows of itself: one look-up gives all of it.
struct Me {
    /// 0: it has made no call yet.
    number: Cell<u64>,
    in_host_function: Cell<bool>,
}

thread_local! {
    static ME: Me = const { Me { number: Cell::new(0), in_host_function: Cell::new(false) } };
    static HELD: RefCell<Option<MutexGuard<'static, State>>> = const { RefCell::new(None) };
}

/// The number of this host thread: 1, 2, ... in the order of their first calls, never used twice.
pub fn thread_number() -> u64 {
    ME.with(Me::number)
}

impl Me {
    #[inline]
    fn number(&self) -> u64 {
        if self.number.get() == 0 {
            self.number.set(NEXT_THREAD.fetch_add(1, Ordering::Relaxed));
        }
        self.number.get()
    }
}

/// Says that this thread begins or ends a host function of the program.
pub fn in_host_function(now: bool) {
    ME.with(|me| me.in_host_function.set(now));
}

/// Takes the lock for the time of a fork: nobody else holds it in the child then.
extern "C" fn before_fork() {
    // Late in a thread's life there is nowhere to keep it: then it is given back at once.
    let _ = HELD.try_with(|held| held.replace(Some(lock())));
}

extern "C" fn after_fork() {
    let _ = HELD.try_with(|held| held.replace(None));
}

extern "C" fn in_child() {
    REFUSED.store(code::NOT_INITIALIZED, Ordering::Relaxed);
    FORKED.store(true, Ordering::Relaxed);
    after_fork();
}

/// From the first `cuInit` on, a forked child finds the driver unusable, as it does with a real
/// one.
pub fn watch_forks() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers stay loaded (the library is never unloaded) and let no panic out.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
    });
}

extern "C" fn at_exit() {
    let _ = REFUSED.compare_exchange(0, code::DEINITIALIZED, Ordering::Relaxed, Ordering::Relaxed);
}

/// From the first `cuInit` on, the process's exit ends the driver too: whatever runs after that, as
/// handlers and destructors do that were there before it, finds it shut down.
pub fn watch_exit() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler stays loaded (the library is never unloaded) and cannot panic.
        unsafe { libc::atexit(at_exit) };
    });
}

/// Whether this process is a child forked after `cuInit`.
pub fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// One exported symbol: its name, its stream convention, its page in the books.
#[derive(Debug)]
pub struct Site {
    symbol: &'static str,
    per_thread: bool,
    page: AtomicU32,
    since: AtomicI32,
}

impl Site {
    /// The site of a symbol.
    pub const fn new(symbol: &'static str, per_thread: bool) -> Self {
        Self { symbol, per_thread, page: AtomicU32::new(u32::MAX), since: AtomicI32::new(0) }
    }

    fn page(&self, state: &mut State) -> usize {
        let known = self.page.load(Ordering::Relaxed);
        if known != u32::MAX {
            return known as usize;
        }
        let page = state.books.page(crate::books::base_name(self.symbol));
        let since = if self.needs_nothing() { 0 } else { crate::entries::since(self.symbol) };
        self.since.store(since, Ordering::Relaxed);
        self.page.store(page as u32, Ordering::Relaxed);
        page
    }

    fn needs_nothing(&self) -> bool {
        crate::faults::NEEDS_NOTHING.contains(&crate::books::base_name(self.symbol))
    }
}

/// See the module.
pub struct Call {
    guard: Option<MutexGuard<'static, State>>,
    /// The calling host thread.
    pub thread: u64,
    /// Name of the function, without suffixes.
    pub function: &'static str,
    /// Whether stream 0 means the per-thread default stream.
    pub per_thread: bool,
    bytes: u64,
    units: u64,
}

impl Deref for Call {
    type Target = State;
    fn deref(&self) -> &State {
        self.guard
            .as_deref()
            .expect("the lock is only given up inside sleep(), which takes it again")
    }
}

impl DerefMut for Call {
    fn deref_mut(&mut self) -> &mut State {
        self.guard
            .as_deref_mut()
            .expect("the lock is only given up inside sleep(), which takes it again")
    }
}

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs an API function's body.
pub fn enter(site: &'static Site, body: impl FnOnce(&mut Call) -> Outcome) -> Code {
    let (thread, in_host_function) = ME.with(|me| (me.number(), me.in_host_function.get()));
    let refused = REFUSED.load(Ordering::Relaxed);
    if (refused != 0 || in_host_function) && !site.needs_nothing() {
        return if refused != 0 { refused } else { code::NOT_PERMITTED };
    }
    match catch_unwind(AssertUnwindSafe(|| Call::new(site, thread).run(site, body))) {
        Ok(result) => result,
        Err(_) => {
            eprintln!("simcuda: {} panicked: a defect of the simulator", site.symbol);
            code::UNKNOWN
        }
    }
}

/// Runs a control function's body; `failed` is its answer if it panics.
pub fn control<T>(failed: T, body: impl FnOnce(&mut Call) -> T) -> T {
    let run = || {
        let mut call = Call::internal("simcuda");
        let answer = body(&mut call);
        call.drain();
        answer
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(failed)
}

impl Call {
    fn new(site: &Site, thread: u64) -> Self {
        let (function, per_thread) = (site.symbol, site.per_thread);
        Self { guard: Some(lock()), thread, function, per_thread, bytes: 0, units: 0 }
    }

    /// The lock, for something that is no API call.
    pub fn internal(function: &'static str) -> Self {
        let guard = Some(lock());
        Self { guard, thread: thread_number(), function, per_thread: false, bytes: 0, units: 0 }
    }

    /// The lock, if nobody has it for long: for a signal's handler, which must not wait.
    pub fn at_once(function: &'static str) -> Option<Self> {
        let guard = (0..1000).find_map(|_| match STATE.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now();
                None
            }
        });
        let thread = thread_number();
        guard.map(|it| Self {
            guard: Some(it),
            thread,
            function,
            per_thread: false,
            bytes: 0,
            units: 0,
        })
    }

    fn run(mut self, site: &Site, body: impl FnOnce(&mut Self) -> Outcome) -> Code {
        let page = site.page(&mut self);
        let function = self.books.count(page);
        let (name, fixed) = (function.name, function.cost.fixed);
        self.function = name;
        if self.started && site.since.load(Ordering::Relaxed) > self.config.driver {
            return code::NOT_SUPPORTED;
        }
        let began = self.engine.now_ns();
        self.engine.advance(fixed);
        let strike = self.faults.on_call(name);
        let result = match strike {
            None => self.gated(body).err().unwrap_or(0),
            Some(Strike::Before(code)) => code,
            Some(Strike::After(code)) => self.gated(body).err().unwrap_or(code),
            Some(Strike::Meets(meeting)) => {
                self.guard = None;
                (meeting.function)(meeting.argument);
                self.guard = Some(lock());
                self.gated(body).err().unwrap_or(0)
            }
        };
        self.charge(page, result);
        self.drain();
        if !self.graphs.leaving.is_empty() {
            crate::api::graph_exec::settle(&mut self);
        }
        let spent = self.engine.now_ns().saturating_sub(began);
        self.books.driver_ns += spent;
        result
    }

    #[inline]
    fn gated(&mut self, body: impl FnOnce(&mut Self) -> Outcome) -> Outcome {
        self.may_call()?;
        body(self)
    }

    /// Says how many bytes this call is about.
    pub fn about_bytes(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    /// Says how many pages or mappings this call is about.
    pub fn about_units(&mut self, units: u64) {
        self.units = units;
    }

    fn charge(&mut self, page: usize, result: Code) {
        if result != 0 || (self.bytes | self.units) == 0 {
            return;
        }
        let cost = self.books.function(page).cost;
        let by_size = u128::from(cost.per_mib) * u128::from(self.bytes) / (1 << 20);
        let by_unit = cost.per_unit * self.units.saturating_sub(1);
        self.engine.advance(by_size as u64 + by_unit);
    }

    /// The engine's key of the calling thread.
    pub fn key(&mut self) -> ThreadKey {
        let thread = self.thread;
        self.thread_key(thread)
    }

    /// This call, for the history.
    pub fn caller(&self) -> Caller {
        Caller { function: self.function, call: self.books.serial, thread: self.thread }
    }

    /// Runs what the schedule wants run now.
    #[inline]
    pub fn drain(&mut self) {
        if !self.engine.is_quiet() {
            self.run_due();
        }
    }

    fn run_due(&mut self) {
        while let Some((op, work)) = self.engine.poll() {
            self.perform(op, work);
        }
    }

    /// Waits until a target is done, running work meanwhile. The lock is dropped while nothing can
    /// run.
    pub fn wait(&mut self, target: Target) {
        let thread = self.key();
        let wait = self.engine.begin_wait(target);
        let generation = self.generation;
        let mut slept = Duration::ZERO;
        while self.generation == generation {
            match self.engine.step_wait(thread, &wait) {
                crate::engine::Step::Finished => return,
                crate::engine::Step::Run(op, work) => self.perform(op, work),
                crate::engine::Step::Blocked => self.wait_blocked(&mut slept),
            }
        }
    }

    /// Runs an operation and all that it needs, as far as that is possible now; the host learns
    /// nothing of it.
    pub fn hasten(&mut self, op: OpKey) {
        let generation = self.generation;
        while self.generation == generation {
            match self.engine.step_hasten(op) {
                crate::engine::Step::Run(op, work) => self.perform(op, work),
                crate::engine::Step::Finished | crate::engine::Step::Blocked => return,
            }
        }
    }

    fn wait_blocked(&mut self, slept: &mut Duration) {
        const ROUND: Duration = Duration::from_secs(1);
        const PATIENCE: Duration = Duration::from_secs(30);
        if self.sleep(ROUND) {
            return;
        }
        *slept += ROUND;
        if *slept == PATIENCE {
            eprintln!(
                "simcuda: {} (host thread {}) has waited {} s: what it waits for needs a gate that nobody has opened \
                 (simcuda_gate_open), or a host function that has not returned",
                self.function,
                self.thread,
                PATIENCE.as_secs()
            );
        }
    }

    /// Gives up the lock until something changes or the time is over; true if something changed.
    pub fn sleep(&mut self, most: Duration) -> bool {
        let Some(guard) = self.guard.take() else { return false };
        WAITERS.fetch_add(1, Ordering::Relaxed);
        let (guard, over) =
            CHANGED.wait_timeout(guard, most).unwrap_or_else(PoisonError::into_inner);
        WAITERS.fetch_sub(1, Ordering::Relaxed);
        self.guard = Some(guard);
        !over.timed_out()
    }

    /// Wakes the waiters.
    pub fn wake(&self) {
        if WAITERS.load(Ordering::Relaxed) > 0 {
            CHANGED.notify_all();
        }
    }

    fn perform(&mut self, op: OpKey, work: Work) {
        match work.body {
            Body::Host(function) => {
                self.hand_off(op, Task::Function(function), Some(HOST_FUNCTION))
            }
            Body::SpinReal { ns } | Body::Kernel(Kernel::SpinReal { ns }) => {
                self.hand_off(op, Task::Sleep(Duration::from_nanos(ns)), None);
            }
            Body::Await(event, record) => {
                self.hand_off(op, Task::Await(event, record), Some(HOST_FUNCTION));
            }
            _ => {
                let result = crate::machine::run(&self.memory, &work);
                if let Err(fault) = result {
                    self.spoil(work.actor.context, fault);
                }
                self.engine.finished(op);
                self.wake();
            }
        }
    }

    /// A context whose work touched what it may not: every later call on it fails, and so it is with
    /// whatever context this process makes on the device later. Only a new process helps.
    fn spoil(&mut self, context: u64, fault: Fault) {
        let what = match fault.reason {
            Reason::Poisoned => {
                "an address that was not legal when the work was submitted".to_owned()
            }
            Reason::Unmapped => format!("{:#x}, where nothing is mapped", fault.address),
            Reason::NoAccess => format!("{:#x}, which its device may not touch so", fault.address),
        };
        self.complaint = format!("work touched {what}");
        let Some(context) = self.contexts.get_mut(&context) else { return };
        let error = *context.error.get_or_insert(code::ILLEGAL_ADDRESS);
        let device = context.device as usize;
        self.devices[device].error.get_or_insert(error);
    }
}
