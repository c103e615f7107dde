//! What a nearly empty driver call costs: `cost = (work(2 n calls) - work(n calls)) / n`.
//!
//! ```sh
//! cargo run --release -p simcuda --example calls                  # nanoseconds
//! cargo run --release -p simcuda --example calls -- instructions  # counted by valgrind's callgrind
//! ```
//! Nanoseconds are of this machine and this moment; instruction counts are the same in each run.

use simcuda_control::{Sim, load};
use std::ffi::c_void;
use std::process::{Command, exit};
use std::time::Instant;

/// The calls measured.
const CALLS: [&str; 6] = [
    "cuCtxGetCurrent",
    "cuStreamIsCapturing",
    "cuMemGetInfo_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuStreamQuery",
];

/// An exported function, by its signature in the driver API.
macro_rules! function {
    ($sim:ident, $name:literal, fn($($type:ty),*)) => {{
        let at = $sim.symbol($name).expect($name);
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> i32>(at)
    }};
}

fn check(code: i32) {
    assert_eq!(code, 0, "a driver call failed");
}

/// A device's context is current, with a stream and an event that is done.
fn start(sim: &Sim) -> (u64, u64) {
    let (mut context, mut stream, mut event) = (0u64, 0u64, 0u64);
    // SAFETY: the signatures are the driver API's, and the pointers are to locals.
    unsafe {
        check(function!(sim, "cuInit", fn(u32))(0));
        check(function!(sim, "cuDevicePrimaryCtxRetain", fn(*mut u64, i32))(&mut context, 0));
        check(function!(sim, "cuCtxSetCurrent", fn(u64))(context));
        check(function!(sim, "cuStreamCreate", fn(*mut u64, u32))(&mut stream, 1));
        check(function!(sim, "cuEventCreate", fn(*mut u64, u32))(&mut event, 2));
        check(function!(sim, "cuEventRecord", fn(u64, u64))(event, stream));
    }
    (stream, event)
}

fn repeat(sim: &Sim, name: &str, (stream, event): (u64, u64), n: u64) {
    let mut out = [0u64; 2];
    let [first, second] = &mut out;
    // SAFETY: the signatures are the driver API's, and the pointers are to locals.
    unsafe {
        match name {
            "cuCtxGetCurrent" => {
                let call = function!(sim, "cuCtxGetCurrent", fn(*mut u64));
                (0..n).for_each(|_| check(call(first)));
            }
            "cuStreamIsCapturing" => {
                let call = function!(sim, "cuStreamIsCapturing", fn(u64, *mut u64));
                (0..n).for_each(|_| check(call(stream, first)));
            }
            "cuMemGetInfo_v2" => {
                let call = function!(sim, "cuMemGetInfo_v2", fn(*mut u64, *mut u64));
                (0..n).for_each(|_| check(call(first, second)));
            }
            "cuEventRecord" => {
                let call = function!(sim, "cuEventRecord", fn(u64, u64));
                (0..n).for_each(|_| check(call(event, stream)));
            }
            "cuStreamQuery" => {
                let call = function!(sim, "cuStreamQuery", fn(u64));
                (0..n).for_each(|_| check(call(stream)));
            }
            _ => {
                let call = function!(sim, "cuEventQuery", fn(u64));
                (0..n).for_each(|_| check(call(event)));
            }
        }
    }
}

fn nanoseconds() {
    let sim = load().expect("libsimcuda.so is built with this example");
    let objects = start(sim);
    for name in CALLS {
        let n = 2_000_000;
        let time = |n| {
            let began = Instant::now();
            repeat(sim, name, objects, n);
            began.elapsed().as_nanos() as f64
        };
        time(n / 10);
        let best = (0..5).map(|_| time(n)).fold(f64::INFINITY, f64::min) / n as f64;
        println!("{name:24} {best:6.1} ns");
    }
}

/// Instructions of a whole process that makes `n` calls.
fn counted(name: &str, n: u64) -> u64 {
    let own = std::env::current_exe().expect("this program has a path");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--error-exitcode=9"])
        .arg(own)
        .args(["repeat", name, &n.to_string()])
        .output();
    let output = output.unwrap_or_else(|error| {
        eprintln!("valgrind cannot be run ({error}): install it to count instructions");
        exit(2);
    });
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.split("Collected :").nth(1));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or_else(|| {
        eprintln!("callgrind gave no count:\n{text}");
        exit(2);
    })
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => nanoseconds(),
        ["instructions"] => {
            for name in CALLS {
                let (once, twice) = (counted(name, 1_000), counted(name, 2_000));
                println!("{name:24} {:6.1} instructions", (twice - once) as f64 / 1_000.0);
            }
        }
        ["repeat", name, n] => {
            let sim = load().expect("libsimcuda.so is built with this example");
            repeat(sim, name, start(sim), n.parse().expect("a number of calls"));
        }
        _ => {
            eprintln!("usage: calls [instructions]");
            exit(2);
        }
    }
}
