//! **Host touches**: a program that reads or writes device memory by itself dies of SIGSEGV, as it does
//! with a GPU. Before it does, this names the address, and what lies there.
//!
//! The handler takes no lock that it would have to wait for, and no memory. It puts the program's own
//! handler back and lets the instruction fail again, so whatever would have happened then happens.

use crate::call::Call;
use std::cell::UnsafeCell;
use std::fmt::{self, Write};
use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The device addresses of this process.
static START: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);

/// What was done on SIGSEGV before; written once, before the handler is in force.
static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::uninit()));
/// One touch is told.
static TOLD: AtomicBool = AtomicBool::new(false);
static TEXT: Kept = Kept { text: UnsafeCell::new([0; ROOM]), length: AtomicUsize::new(0) };
const ROOM: usize = 1024;

struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);
// SAFETY: written under a `Once` before anybody reads it.
unsafe impl Sync for Before {}

struct Kept {
    text: UnsafeCell<[u8; ROOM]>,
    length: AtomicUsize,
}
// SAFETY: the one thread that wins `TOLD` writes the text, then its length; readers see only what
// lies below a length that they have read.
unsafe impl Sync for Kept {}

/// No address is a device's any more.
pub fn watch_nothing() {
    END.store(0, Ordering::SeqCst);
}

/// Watches the host's touches of these addresses from now on.
pub fn watch(start: u64, bytes: u64) {
    static ONCE: Once = Once::new();
    START.store(start, Ordering::SeqCst);
    END.store(start + bytes, Ordering::SeqCst);
    ONCE.call_once(|| {
        // SAFETY: both structures are ours; the handler stays loaded, since the library is never
        // unloaded, and does only what a handler may.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(libc::SIGSEGV, std::ptr::null(), BEFORE.0.get().cast());
            libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
        }
    });
}

/// The touch that was told, if the program has survived it.
pub fn told() -> Option<&'static str> {
    let length = TEXT.length.load(Ordering::Acquire);
    // SAFETY: the first `length` bytes were written before the length, and never change again.
    let bytes = unsafe { std::slice::from_raw_parts(TEXT.text.get().cast::<u8>(), length) };
    std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty())
}

/// A device's memory that the host touched: what is known of it without waiting.
struct Touch {
    address: u64,
    thread: u64,
}

impl fmt::Display for Touch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self { address, thread } = self;
        f.write_str(crate::checker::ReportKind::HostTouchesDevice.title())?;
        match Call::at_once("SIGSEGV") {
            Some(call) => write!(f, "\n  first:  {}", Place { call: &call, address })?,
            None => write!(f, "\n  first:  {address:#x} is a device address")?,
        }
        write!(
            f,
            "\n  second: touched at {address:#x} by host thread {thread} itself, not by a copy: SIGSEGV"
        )
    }
}

/// What lies at an address, in words.
struct Place<'a> {
    call: &'a Call,
    address: u64,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self { call, address } = self;
        let Some(mapping) = call.memory.table.find(address) else {
            return match call.memory.history.last(address) {
                Some(gone) => write!(f, "{gone}"),
                None => write!(f, "{address:#x} is a device address; nothing is allocated there"),
            };
        };
        let label = call.engine.checker_ref().label_at(mapping.object, address - mapping.start);
        let label = label.unwrap_or("device memory");
        write!(f, "{:#x}..{:#x}: {label}", mapping.start, mapping.end())
    }
}

extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid structure; for a fault it has the address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as u64) };
    let inside = (START.load(Ordering::SeqCst)..END.load(Ordering::SeqCst)).contains(&address);
    if code > 0 && inside && !TOLD.swap(true, Ordering::SeqCst) {
        tell(&Touch { address, thread: crate::call::thread_number() });
    }
    // SAFETY: `BEFORE` was written before this handler was in force. The instruction fails again
    // when we return; a signal that somebody sent comes again.
    unsafe {
        libc::sigaction(signal, BEFORE.0.get().cast(), std::ptr::null_mut());
        if code <= 0 {
            libc::raise(signal);
        }
    }
}

fn tell(touch: &Touch) {
    // SAFETY: this thread alone has won `TOLD`, and the length is still 0: nobody reads the text.
    let mut text = unsafe { Fixed { bytes: &mut *TEXT.text.get(), length: 0 } };
    let _ = write!(text, "{touch}");
    let length = text.length;
    TEXT.length.store(length, Ordering::Release);
    let Some(text) = told() else { return };
    if crate::journal::finding_in_handler(text) {
        return;
    }
    let mut said = [0; ROOM + 16];
    let mut said = Fixed { bytes: &mut said, length: 0 };
    let _ = writeln!(said, "simcuda: {text}");
    // SAFETY: the buffer holds so many bytes.
    unsafe { libc::write(2, said.bytes.as_ptr().cast(), said.length) };
}

/// Text in a buffer that does not grow: what finds no room is left out.
pub struct Fixed<'a> {
    /// The buffer.
    pub bytes: &'a mut [u8],
    /// What of it is written.
    pub length: usize,
}

impl fmt::Write for Fixed<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            let mut encoded = [0; 4];
            let encoded = c.encode_utf8(&mut encoded).as_bytes();
            let to = self.bytes.get_mut(self.length..self.length + encoded.len());
            to.ok_or(fmt::Error)?.copy_from_slice(encoded);
            self.length += encoded.len();
        }
        Ok(())
    }
}
