//! The **doors**: how a program comes to a driver function, and which one it gets.
//!
//! Exported symbols lead to our hooks by the loader's own order. What `dlsym` and `cuGetProcAddress`
//! found is swapped for a hook by its identity: only if it is the very function that this process's
//! *home* driver gives for a name of the table. Home is the first driver seen in the base namespace
//! (with another interposer in it, if one stands behind us); a driver loaded a second time, in a
//! namespace of its own, is left alone.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicPtr, Ordering};

use cuddy::mutants::mutant;

use crate::loader;
use crate::report::{Door, note};
use crate::table::{self, DEFAULT, PER_THREAD, ROWS, Reals};

/// The driver of this process.
#[derive(Debug)]
pub struct Home {
    /// Its functions.
    pub reals: Reals,
    /// Its version, 0 if it does not say.
    pub version: c_int,
    /// What it gives for the table's names, and what to hand out instead.
    identities: Vec<(usize, usize)>,
    /// The simulator's clock of virtual time, in a simulated driver.
    pub clock: Option<extern "C" fn() -> u64>,
}

static HOME: AtomicPtr<Home> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// This thread is asking a driver for its functions: what it looks up meanwhile is its own.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// What `dlsym` is to do: answer `value`, or become it.
#[repr(C)]
#[derive(Debug)]
pub struct Verdict {
    value: usize,
    jump: usize,
}

/// The driver, if this process has one.
pub fn home() -> Option<&'static Home> {
    match known() {
        Some(home) => Some(home),
        None => find_home(),
    }
}

fn known() -> Option<&'static Home> {
    // SAFETY: null, or a box that `settle` gave up for ever.
    unsafe { HOME.load(Ordering::Acquire).as_ref() }
}

/// A hook was reached by its exported name: the driver is what comes after us, or one that is loaded
/// already.
#[cold]
fn find_home() -> Option<&'static Home> {
    note(Door::Symbol);
    // SAFETY: a C string; NOLOAD runs nothing.
    let loaded =
        || unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    settle(&|name| {
        let behind = loader::look(libc::RTLD_NEXT, name);
        if !behind.is_null() {
            return behind;
        }
        let handle = loaded();
        if handle.is_null() { handle } else { loader::look(handle, name) }
    })
}

/// Makes a driver this process's home, unless there is one.
fn settle(resolve: &dyn Fn(&CStr) -> *mut c_void) -> Option<&'static Home> {
    if ASKING.with(|asking| asking.replace(true)) {
        return None;
    }
    let home = Home::ask(resolve);
    ASKING.with(|asking| asking.set(false));
    if !table::is_driver(&home) {
        return None;
    }
    let mine = Box::into_raw(Box::new(home));
    let none = std::ptr::null_mut();
    if HOME.compare_exchange(none, mine, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: another thread was faster, and nobody has seen this one.
        drop(unsafe { Box::from_raw(mine) });
    }
    known()
}

impl Home {
    fn ask(resolve: &dyn Fn(&CStr) -> *mut c_void) -> Self {
        let foreign = |name: &CStr| {
            let found = resolve(name);
            let found = match loader::is_own(found.addr()) {
                true => loader::look_behind(name),
                false => found,
            };
            if loader::is_own(found.addr()) { std::ptr::null_mut() } else { found }
        };
        // SAFETY: functions of a CUDA driver have the signatures of cuda.h, and what is found in one
        // is kept loaded by whoever calls this.
        let reals = unsafe { Reals::fill(&foreign) };
        let mut home = Self { reals, version: 0, identities: Vec::new(), clock: None };
        if let Some(ask) = home.reals.cuDriverGetVersion {
            // SAFETY: writes one int.
            let _ = unsafe { ask(&mut home.version) };
        }
        let clock = foreign(c"simcuda_driver_time_ns");
        if !clock.is_null() {
            // SAFETY: the simulated driver's function has this signature (simcuda.h).
            home.clock =
                Some(unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> u64>(clock) });
        }
        for row in ROWS {
            home.learn(foreign(row.symbol), (row.ours)());
        }
        for row in ROWS {
            for flag in [0, DEFAULT, PER_THREAD] {
                // Without the flag, and in an ordinary form, it is the ordinary function.
                if flag == row.flag || (flag == 0 && row.flag == DEFAULT) {
                    home.learn(home.named(row.base, row.version, flag), (row.ours)());
                }
            }
        }
        home
    }

    fn learn(&mut self, real: *mut c_void, ours: usize) {
        let real = real.expose_provenance();
        if real != 0 && !loader::is_own(real) && self.ours_for(real).is_none() {
            self.identities.push((real, ours));
        }
    }

    /// What the driver itself gives for a name.
    fn named(&self, base: &CStr, version: c_int, flag: u64) -> *mut c_void {
        let mut found = std::ptr::null_mut();
        let to = &mut found;
        let code = if let Some(ask) = self.reals.cuGetProcAddress_v2 {
            let mut status = 0;
            // SAFETY: a C string, and locals for the results.
            unsafe { ask(base.as_ptr(), to, version, flag, &mut status) }
        } else if let Some(ask) = self.reals.cuGetProcAddress {
            // SAFETY: as above.
            unsafe { ask(base.as_ptr(), to, version, flag) }
        } else {
            1
        };
        if code == 0 { found } else { std::ptr::null_mut() }
    }

    /// The hook for one of this driver's functions.
    pub fn ours_for(&self, real: usize) -> Option<usize> {
        self.identities.iter().find(|(its, _)| *its == real).map(|(_, ours)| *ours)
    }
}

/// Decides for `dlsym(handle, name)`, called from `caller`.
pub unsafe extern "C" fn decide_dlsym(
    handle: *mut c_void,
    name: *const c_char,
    caller: usize,
) -> Verdict {
    let next = loader::next_dlsym();
    // SAFETY: the caller of dlsym vouches for its name.
    unsafe { decide(next, handle, name, caller, &|name| loader::look(handle, name)) }
}

/// Decides for `dlvsym(handle, name, version)`.
pub unsafe extern "C" fn decide_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
    caller: usize,
) -> Verdict {
    type LookVersion =
        unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
    let next = loader::next_dlvsym();
    let look = |name: &CStr| {
        // SAFETY: not 0, or `decide` would not ask: the address of a dlvsym.
        let look = unsafe { std::mem::transmute::<usize, LookVersion>(next) };
        // SAFETY: the program's own arguments.
        unsafe { look(handle, name.as_ptr(), version) }
    };
    // SAFETY: the caller of dlvsym vouches for its name.
    unsafe { decide(next, handle, name, caller, &look) }
}

extern "C" fn nothing() -> usize {
    0
}

/// # Safety
/// `name` is null or a C string.
unsafe fn decide(
    next: usize,
    handle: *mut c_void,
    name: *const c_char,
    caller: usize,
    look: &dyn Fn(&CStr) -> *mut c_void,
) -> Verdict {
    if next == 0 {
        return Verdict { value: nothing as *const () as usize, jump: 1 };
    }
    let pass = Verdict { value: next, jump: 1 };
    // SAFETY: a C string by the caller's promise, so each byte up to the zero may be read.
    let of_cuda =
        !name.is_null() && unsafe { *name == b'c' as c_char && *name.add(1) == b'u' as c_char };
    if handle == libc::RTLD_NEXT && mutant("preload-dlsym-calls") {
        // SAFETY: as above; the name is there.
        let found = look(unsafe { CStr::from_ptr(name) });
        return Verdict { value: found.expose_provenance(), jump: 0 };
    }
    if !of_cuda || handle == libc::RTLD_NEXT || loader::is_own(caller) {
        return pass;
    }
    // SAFETY: not null, and a C string by the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    if table::row_of(name).is_none() || ASKING.with(Cell::get) {
        return pass;
    }
    if handle == libc::RTLD_DEFAULT {
        let first = loader::look(handle, name);
        // Ours is the only one: without us there would be none.
        let alone = loader::is_own(first.addr()) && loader::look(libc::RTLD_NEXT, name).is_null();
        return if alone { Verdict { value: 0, jump: 0 } } else { pass };
    }
    let found = look(name);
    let value = catch_unwind(std::panic::AssertUnwindSafe(|| swapped(handle, name, found)));
    Verdict { value: value.unwrap_or(found.expose_provenance()), jump: 0 }
}

/// What the program gets for a function that `dlsym` found by a name of the table.
fn swapped(handle: *mut c_void, name: &CStr, found: *mut c_void) -> usize {
    let real = found.expose_provenance();
    if real == 0 {
        return 0;
    }
    if loader::is_own(real) {
        // By a handle of the whole program: without us it would find what comes after us.
        let behind = loader::look(libc::RTLD_NEXT, name);
        if behind.is_null() {
            return 0;
        }
        note(Door::Dlsym);
        return real;
    }
    let home = match known() {
        Some(home) => Some(home),
        None if is_a_driver_of_ours(handle, name, found) => {
            settle(&|name| loader::look(handle, name))
        }
        None => None,
    };
    let ours = if mutant("preload-any-namespace") {
        table::row_of(name).map(|row| (row.ours)())
    } else {
        home.and_then(|home| home.ours_for(real))
    };
    match ours {
        Some(ours) => {
            note(Door::Dlsym);
            ours
        }
        None => real,
    }
}

/// Whether a function lies in a driver (or an interposer before one), in the namespace of ours; it
/// is kept loaded then.
fn is_a_driver_of_ours(handle: *mut c_void, name: &CStr, found: *mut c_void) -> bool {
    let names_functions = [c"cuGetProcAddress_v2", c"cuGetProcAddress"];
    if names_functions.iter().all(|name| loader::look(handle, name).is_null()) {
        return false;
    }
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address, and `info` outlives the call; all zeroes is a valid Dl_info.
    let info = unsafe {
        if libc::dladdr(found, info.as_mut_ptr()) == 0 {
            return false;
        }
        info.assume_init()
    };
    // SAFETY: the name is a C string of the loader's; NOLOAD runs nothing.
    let again = unsafe {
        libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE)
    };
    // The same file may be there once more, in another namespace: then it has another address.
    let same = !again.is_null() && loader::look(again, name) == found;
    // A program that asks dlerror after a success expects nothing there.
    // SAFETY: takes no arguments.
    unsafe { libc::dlerror() };
    same || mutant("preload-any-namespace")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_there_is_no_home_and_names_stay_unknown() {
        assert!(home().is_none());
        assert_eq!(swapped(libc::RTLD_DEFAULT, c"cuMemAlloc_v2", std::ptr::null_mut()), 0);
        // A function of that name in a library that is no driver.
        let theirs = libc::strlen as *mut c_void;
        assert_eq!(swapped(libc::RTLD_DEFAULT, c"cuMemAlloc_v2", theirs), theirs.addr());
        assert!(known().is_none());
    }
}
