//! **Memory**: `cuMemAlloc` and `cuMemFree` by way of the cache.
//!
//! Decisions are the cache's, taken under one lock; driver calls are made without it.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cuddy::mutants::mutant;

use crate::cache::{Aside, Cache, Leave, Place, Victim, capacity_of};
use crate::doors::Home;
use crate::driver::OUT_OF_MEMORY;
use crate::report::{self, Door, note, timed};
use crate::settings::{Mode, Settings};
use crate::table::{Address, Opaque};
use crate::{captures, fences, pools};

/// An address that no driver ever gives: what the driver says of it, it says of any that is not the
/// program's.
pub const NOBODYS: Address = 0x200;
/// Alignment of rows: what `cuMemAllocPitch` gives is asked of the driver once for each width.
type Pitch = unsafe extern "C" fn(*mut Address, *mut usize, usize, usize, u32) -> c_int;

/// All that is known in the process.
pub struct Books {
    /// The blocks.
    pub cache: Cache,
    /// Events of ours, by context.
    pub fences: BTreeMap<usize, fences::Fences>,
    /// By the context that owns memory: those whose work may use it too.
    users: BTreeMap<usize, Vec<usize>>,
    /// The stream-ordered pools.
    pub pools: pools::Pools,
    /// Row lengths that the driver gave, by width and element size.
    pitches: BTreeMap<(usize, u32), usize>,
}

static BOOKS: Mutex<Books> = Mutex::new(Books {
    cache: Cache::new(),
    fences: BTreeMap::new(),
    users: BTreeMap::new(),
    pools: pools::Pools::new(),
    pitches: BTreeMap::new(),
});
static FORKED: AtomicBool = AtomicBool::new(false);
static INTRODUCED: AtomicBool = AtomicBool::new(false);
static GAVE_UP: AtomicBool = AtomicBool::new(false);

/// The books, for a moment: no driver call is made meanwhile.
pub fn books() -> MutexGuard<'static, Books> {
    BOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Books {
    /// Takes a context out that may be about to end; its events end with it.
    pub fn set_aside(&mut self, context: usize) -> Option<Aside> {
        self.fences.remove(&context);
        self.users.remove(&context);
        self.users.values_mut().for_each(|users| users.retain(|user| *user != context));
        self.pools.forget(context);
        if mutant("preload-context-end-unseen") {
            return None;
        }
        self.cache.set_aside(context)
    }

    /// It has not ended.
    pub fn put_back(&mut self, aside: Aside) {
        self.cache.put_back(aside);
    }

    /// Work of `user` may use memory of `owner` from now on.
    pub fn add_user(&mut self, owner: usize, user: usize) {
        let users = self.users.entry(owner).or_default();
        if !users.contains(&user) {
            users.push(user);
        }
    }

    /// The other contexts whose work may use a context's memory: mostly none.
    pub fn users_of(&self, owner: usize) -> Vec<usize> {
        self.users.get(&owner).cloned().unwrap_or_default()
    }
}

/// The settings, read at the first allocation.
pub fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let text = std::env::var_os("CUDDY_PRELOAD").unwrap_or_default();
        let mut settings = Settings::read(text.as_bytes());
        // A tool that watches every allocation wants to see every allocation.
        let watched = std::env::var_os("CUDA_INJECTION64_PATH").is_some()
            || std::env::var_os("NV_SANITIZER_INJECTION_PORT_BASE").is_some();
        let off = cuddy::process::option(b"caching").is_ok_and(|it| it.value == "off");
        if watched || off {
            settings.mode = Mode::Off;
        }
        settings
    })
}

/// The mode in force, as `CUDDY_PRELOAD` has it.
pub fn mode_name() -> &'static str {
    match settings().mode {
        Mode::Strict => "strict",
        Mode::Fenced => "fenced",
        Mode::Off => "off",
    }
}

/// A bug of ours was caught: nothing more is cached.
pub fn give_up() {
    GAVE_UP.store(true, Ordering::Relaxed);
}

/// Whether this is the child of a process that had memory: it cannot use CUDA, and our books may be
/// locked for ever.
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Whether there is nothing of ours to look for: no context was introduced, or not in this process.
/// No lock is taken to say so, for the sake of children.
pub fn is_out() -> bool {
    is_forked() || !INTRODUCED.load(Ordering::Acquire)
}

extern "C" fn mark_child() {
    FORKED.store(!mutant("preload-child-unmarked"), Ordering::Relaxed);
}

/// Whether calls are the driver's alone.
pub fn is_off() -> bool {
    is_forked() || GAVE_UP.load(Ordering::Relaxed) || settings().mode == Mode::Off
}

/// A context allocates for the first time.
#[cold]
fn introduce(home: &Home, context: usize) -> bool {
    static WATCHED: OnceLock<bool> = OnceLock::new();
    // SAFETY: the handler is a function of this library, which is never unloaded, and does one
    // atomic store.
    let watched =
        *WATCHED.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(mark_child)) == 0 });
    let (Some(device), Some((_, total))) = (home.device(), home.memory()) else { return false };
    if watched {
        INTRODUCED.store(true, Ordering::Release);
        books().cache.introduce(context, device, settings().cap_of(total));
        report::begin();
    }
    watched
}

/// The current context, known to the books.
pub fn context(home: &Home) -> Option<usize> {
    let context = home.current()?;
    let known = books().cache.device_of(context).is_some();
    (known || introduce(home, context)).then_some(context)
}

/// `cuMemAlloc`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn alloc(
    home: &Home,
    real: unsafe extern "C" fn(*mut Address, usize) -> c_int,
    to: *mut Address,
    bytes: usize,
) -> c_int {
    let pass = || {
        // SAFETY: the program's own arguments.
        unsafe { real(to, bytes) }
    };
    if to.is_null() || bytes == 0 || is_off() {
        return pass();
    }
    let Some(current) = home.current() else { return pass() };
    let mut ready = books().cache.take(current, bytes as u64);
    if ready.is_none() {
        let known = books().cache.device_of(current).is_some();
        if !known && !introduce(home, current) {
            return pass();
        }
        ready = served(home, current, bytes as u64);
    }
    match ready {
        Some(address) => {
            // SAFETY: not null, and the caller's to write.
            unsafe { *to = address };
            0
        }
        // SAFETY: as for `pass`.
        None => unsafe { fresh(home, real, current, to, bytes) },
    }
}

/// A cached block, if one can be had without waiting.
fn served(home: &Home, context: usize, bytes: u64) -> Option<Address> {
    let mut books_now = books();
    if let Some(address) = books_now.cache.take(context, bytes) {
        return Some(address);
    }
    let waits = books_now.cache.waits(context, bytes);
    drop(books_now);
    if !waits {
        return None;
    }
    fences::advance(home, context);
    books().cache.take(context, bytes)
}

/// A block of the driver's. The last try is for just what was asked.
///
/// # Safety
/// `to` may be written.
unsafe fn fresh(
    home: &Home,
    real: unsafe extern "C" fn(*mut Address, usize) -> c_int,
    context: usize,
    to: *mut Address,
    bytes: usize,
) -> c_int {
    let ask = |capacity: u64| {
        // SAFETY: `to` is the program's to write.
        timed(home, Door::AllocCalls, Door::AllocTime, || unsafe { real(to, capacity as usize) })
    };
    let mut capacity = capacity_of(bytes as u64);
    let mut code = ask(capacity);
    if code == OUT_OF_MEMORY {
        if give_back(home, context) {
            code = ask(capacity);
        }
        if code == OUT_OF_MEMORY && capacity != bytes as u64 {
            capacity = bytes as u64;
            code = ask(capacity);
        }
        if code == 0 {
            note(Door::Rescue);
        }
    }
    if code != 0 {
        return code;
    }
    // SAFETY: the driver has just written there.
    let address = unsafe { *to };
    let mut books = books();
    books.cache.admit(context, address, capacity, bytes as u64);
    let device = books.cache.device_of(context).unwrap_or(0);
    let caches = books.cache.cached(device) > 0;
    drop(books);
    // Another process must not go short because we keep what nobody uses.
    if caches && home.memory().is_some_and(|(free, total)| free < total / 20) {
        let victims = self::books().cache.flush(device, true);
        captures::unless_any(|| free_all(home, &victims));
    }
    0
}

/// Gives the whole cache of a context's device back; whether there was anything.
pub fn give_back(home: &Home, context: usize) -> bool {
    let mut books = books();
    let Some(device) = books.cache.device_of(context) else { return false };
    if mutant("preload-nothing-given-back") {
        return false;
    }
    // Also while something captures: a thread that may allocate then may free, too.
    let victims = books.cache.flush(device, false);
    drop(books);
    free_all(home, &victims);
    pools::trim(home, device) || !victims.is_empty()
}

fn free_all(home: &Home, victims: &[Victim]) {
    for victim in victims {
        // A context that is broken keeps its memory until it ends; nothing else can be done.
        let _ = home.free(victim.context, victim.address);
    }
}

/// A call that allocates by other ways: if the device is out of memory, the cache is given back and
/// the call made once more.
pub fn with_rescue(home: &Home, call: impl Fn() -> c_int) -> c_int {
    report::begin();
    let code = call();
    if code != OUT_OF_MEMORY || is_off() {
        return code;
    }
    let Some(context) = home.current() else { return code };
    if !give_back(home, context) {
        return code;
    }
    let code = call();
    if code == 0 {
        note(Door::Rescue);
    }
    code
}

/// `cuMemAllocPitch`: rows as the driver lays them, in a block like any other.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn alloc_pitch(
    home: &Home,
    real: Pitch,
    to: *mut Address,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> c_int {
    // SAFETY: the program's own arguments.
    let ask = || unsafe { real(to, pitch, width, height, element) };
    if to.is_null() || pitch.is_null() || is_off() {
        return ask();
    }
    let Some(context) = context(home) else { return ask() };
    let row = books().pitches.get(&(width, element)).copied();
    let bytes = row.and_then(|row| row.checked_mul(height)).filter(|bytes| *bytes > 0);
    if let (Some(row), Some(bytes)) = (row, bytes)
        && let Some(address) = served(home, context, bytes as u64)
    {
        // SAFETY: neither is null, and both are the caller's to write.
        unsafe { (*to, *pitch) = (address, row) };
        return 0;
    }
    let code = timed(home, Door::AllocCalls, Door::AllocTime, || with_rescue(home, ask));
    if code == 0 {
        // SAFETY: the driver has just written both.
        let (address, row) = unsafe { (*to, *pitch) };
        let bytes = row as u64 * height as u64;
        let mut books = books();
        books.cache.admit(context, address, bytes, bytes);
        if books.pitches.len() < 1024 {
            books.pitches.insert((width, element), row);
        }
    }
    code
}

/// `cuMemFree`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn free(
    home: &Home,
    real: unsafe extern "C" fn(Address) -> c_int,
    address: Address,
) -> c_int {
    // SAFETY: a plain number; the driver judges it.
    let pass = |address| unsafe { real(address) };
    // Without a current context, the driver has its own word to say.
    if address == 0 || is_out() || home.current().is_none() {
        return pass(address);
    }
    let left = books().cache.leave(address);
    match left {
        Leave::Unknown => {
            note(Door::ForeignFree);
            pass(address)
        }
        Leave::Dead => pass(NOBODYS),
        Leave::Inside => pass(address),
        Leave::Pass(_) => timed(home, Door::FreeCalls, Door::FreeTime, || pass(address)),
        Leave::Keep { context, device } => match keep(home, context, device, address) {
            Ok(()) => 0,
            Err(_) => {
                // What the driver could not wait for, it says itself.
                note(Door::FailedFree);
                books().cache.forget(address);
                pass(address)
            }
        },
    }
}

/// Keeps a block that the program has freed, with the wait that the mode asks for.
fn keep(home: &Home, context: usize, device: i32, address: Address) -> Result<(), c_int> {
    if GAVE_UP.load(Ordering::Relaxed) {
        return Err(0);
    }
    if captures::any() {
        note(Door::CapturedFree);
        books().cache.rest(address);
        return Ok(());
    }
    if settings().mode == Mode::Fenced && home.can_fence() {
        books().cache.rest(address);
    } else {
        match captures::unless_any(|| wait(home, context)) {
            Some(waited) => {
                waited?;
                books().cache.settle(address);
            }
            None => {
                note(Door::CapturedFree);
                books().cache.rest(address);
                return Ok(());
            }
        }
    }
    let victims = books().cache.over(device);
    free_all(home, &victims);
    Ok(())
}

/// Waits for all work that may use a context's memory. What was in limbo is clean then.
fn wait(home: &Home, context: usize) -> Result<(), c_int> {
    let mut books = self::books();
    let epoch = books.cache.seal(context);
    let users = books.users_of(context);
    drop(books);
    let all = std::iter::once(context).chain(users);
    let waited = all.into_iter().try_for_each(|user| home.synchronize(user));
    if let Some(epoch) = epoch {
        let mut books = self::books();
        match waited {
            Ok(()) => books.cache.passed(context, epoch),
            Err(_) => books.cache.unseal(context, epoch),
        }
    }
    waited
}

/// `cuMemFreeAsync`: the driver frees in the stream's order; what it frees is no longer ours.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn free_async(
    _home: &Home,
    real: unsafe extern "C" fn(Address, Opaque) -> c_int,
    address: Address,
    stream: Opaque,
) -> c_int {
    let mut freed = address;
    if !is_out() {
        let mut books = books();
        match books.cache.look(address) {
            Place::Live { base, .. } if base == address => books.cache.forget(address),
            Place::Dead => freed = NOBODYS,
            _ => {}
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { real(freed, stream) }
}

/// `cuMemGetInfo`: what the program could have is free.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn info(
    home: &Home,
    real: unsafe extern "C" fn(*mut usize, *mut usize) -> c_int,
    free: *mut usize,
    total: *mut usize,
) -> c_int {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(free, total) };
    if code != 0 || free.is_null() || is_off() {
        return code;
    }
    let Some(context) = home.current() else { return code };
    let books = books();
    let Some(device) = books.cache.device_of(context) else { return code };
    let cached = books.cache.cached(device);
    drop(books);
    let more = cached + pools::idle(home, device);
    if more > 0 {
        let most = home.memory().map_or(u64::MAX, |(_, total)| total);
        // SAFETY: not null, and the driver has just written there.
        unsafe { *free = (*free as u64 + more).min(most) as usize };
    }
    code
}

/// `cuMemCreate`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn create(
    home: &Home,
    real: unsafe extern "C" fn(*mut u64, usize, *const c_void, u64) -> c_int,
    handle: *mut u64,
    bytes: usize,
    properties: *const c_void,
    flags: u64,
) -> c_int {
    note(Door::PassedAlloc);
    // SAFETY: the program's own arguments.
    with_rescue(home, || unsafe { real(handle, bytes, properties, flags) })
}

/// `cuMemAllocManaged`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn alloc_managed(
    home: &Home,
    real: unsafe extern "C" fn(*mut Address, usize, u32) -> c_int,
    to: *mut Address,
    bytes: usize,
    flags: u32,
) -> c_int {
    note(Door::PassedAlloc);
    // SAFETY: the program's own arguments.
    with_rescue(home, || unsafe { real(to, bytes, flags) })
}

/// `cuArrayCreate` and `cuArray3DCreate`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn array(
    home: &Home,
    real: unsafe extern "C" fn(*mut Opaque, *const c_void) -> c_int,
    to: *mut Opaque,
    what: *const c_void,
) -> c_int {
    note(Door::PassedAlloc);
    // SAFETY: the program's own arguments.
    with_rescue(home, || unsafe { real(to, what) })
}
