//! The **report**: what was counted, and the line of JSON that a process writes at exit if asked.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::cache::Tally;
use crate::doors::Home;
use crate::{books, process};

/// The ways to a hook, and what else is only counted.
#[derive(Clone, Copy, Debug)]
pub enum Door {
    /// A call of an exported driver symbol, before anything was looked up.
    Symbol,
    /// A hook handed out by `dlsym` or `dlvsym`.
    Dlsym,
    /// One handed out by `cuGetProcAddress` of CUDA 11.
    Lookup1,
    /// One handed out by `cuGetProcAddress_v2`.
    Lookup2,
    /// A call of the runtime's `cudaMalloc` family.
    Runtime,
    /// A free of memory that we did not hand out.
    ForeignFree,
    /// A free of a capture's time: it waits until the capture ends.
    CapturedFree,
    /// A free of memory handed out for which the driver refused to wait.
    FailedFree,
    /// A request that the driver refused at first, and served once the cache was given back.
    Rescue,
    /// An allocation that is the driver's alone: stream-ordered, managed, virtual, an array.
    PassedAlloc,
    /// Driver calls that allocated for a hook.
    AllocCalls,
    /// The time of those, in nanoseconds.
    AllocTime,
    /// Driver calls that freed for a hook.
    FreeCalls,
    /// The time of those, in nanoseconds.
    FreeTime,
    /// Frees that waited for the device, as the driver's own would have.
    WaitCalls,
    /// The time of those, in nanoseconds.
    WaitTime,
}

const NAMES: [&str; 16] = [
    "symbols",
    "dlsym",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "runtime_calls",
    "foreign_frees",
    "captured_frees",
    "failed_frees",
    "rescues",
    "passed_allocs",
    "alloc_calls",
    "alloc_ns",
    "free_calls",
    "free_ns",
    "wait_calls",
    "wait_ns",
];

static COUNTS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];
static ASKED: AtomicBool = AtomicBool::new(false);

/// Counts one.
pub fn note(what: Door) {
    COUNTS[what as usize].fetch_add(1, Ordering::Relaxed);
}

/// Runs a driver call and, where somebody wants to know, takes its time: virtual time on a simulated
/// driver.
pub fn timed<R>(home: &Home, calls: Door, time: Door, call: impl FnOnce() -> R) -> R {
    note(calls);
    if !ASKED.load(Ordering::Relaxed) {
        return call();
    }
    let start = now(home);
    let answer = call();
    let spent = now(home).saturating_sub(start);
    COUNTS[time as usize].fetch_add(spent, Ordering::Relaxed);
    answer
}

fn now(home: &Home) -> u64 {
    if let Some(clock) = home.clock {
        return clock();
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The process uses memory: it has a line to write, now and at exit, if a file is asked for.
pub fn begin() {
    if process::settings().report.is_none()
        || process::is_off()
        || ASKED.swap(true, Ordering::Relaxed)
    {
        return;
    }
    write(&format!("{{\"event\":\"begin\",{}}}\n", identity()));
    // SAFETY: the handler is a function of this library, which is never unloaded.
    unsafe { libc::atexit(end) };
}

extern "C" fn end() {
    let _ = std::panic::catch_unwind(|| {
        if process::is_forked() {
            return;
        }
        let simulated = crate::doors::home().is_some_and(|home| home.clock.is_some());
        let mut line = format!("{{\"event\":\"end\",{},\"simulated\":{simulated}", identity());
        let counts = NAMES.iter().zip(&COUNTS);
        for (name, count) in counts {
            let _ = write!(line, ",\"{name}\":{}", count.load(Ordering::Relaxed));
        }
        let Tally {
            hits,
            misses,
            kept,
            tainted,
            too_large,
            evicted,
            live: _,
            live_peak,
            held: _,
            held_peak,
            cached_peak,
        } = books::books().cache.tally();
        let _ = writeln!(
            line,
            ",\"hits\":{hits},\"misses\":{misses},\"kept\":{kept},\"tainted\":{tainted},\
             \"too_large\":{too_large},\"evicted\":{evicted},\"live_peak\":{live_peak},\
             \"held_peak\":{held_peak},\"cached_peak\":{cached_peak},\"mode\":\"{}\"}}",
            process::mode_name()
        );
        write(&line);
    });
}

fn identity() -> String {
    let mut name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    name.retain(|letter| !letter.is_control() && letter != '"' && letter != '\\');
    format!("\"program\":\"{name}\",\"process\":{}", std::process::id())
}

/// Appends a line in one piece. Nobody is told of a file that cannot be written.
fn write(line: &str) {
    let Some(file) = &process::settings().report else { return };
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(file));
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path) {
        let _ = file.write_all(line.as_bytes());
    }
}
