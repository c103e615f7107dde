//! **Speed**: what a hooked pair of an allocation and a free costs, beside the driver calls in it.

use std::fs;

use crate::common::{self, is_installed, skipped};
use crate::place::Place;

/// Nothing but this is asked of the driver; a wait asks which context is current.
#[test]
fn a_cached_pair_makes_few_driver_calls() {
    let place = Place::new();
    let program = place.compile("pair.c", &[]);
    let rows = [
        ("mode:fenced", "cuCtxGetCurrent 2.00\ncuCtxRecordEvent 1.00\ncuEventQuery 1.00\n"),
        ("mode:strict", "cuCtxGetCurrent 3.00\ncuCtxRecordEvent 0.00\ncuEventQuery 0.00\n"),
    ];
    for (mode, calls) in rows {
        let said = common::run(place.preloaded(&program, mode).arg("1000")).quietly();
        assert!(said.starts_with(calls), "{mode}: {said}");
    }
}

/// Instructions that are ours: those of the library, and of what it calls but the driver. Counted,
/// so the machine's other work changes nothing. Only an optimised build is held to the bar, and its
/// time is only printed.
#[test]
#[ignore = "figures of an optimised build: --release -- --ignored --nocapture"]
fn the_cost_of_a_cached_pair() {
    let place = Place::new();
    let program = place.compile("pair.c", &["-O2"]);
    for mode in ["mode:fenced", "mode:strict"] {
        let said = common::run(place.preloaded(&program, mode).arg("1000000")).quietly();
        let times = said.lines().last().unwrap_or_default();
        if !is_installed("valgrind") {
            skipped("the instructions of a pair", "valgrind is not installed");
            continue;
        }
        let count = |many: &str| {
            let file = place.file("callgrind.out");
            let mut command = place.plain("valgrind".as_ref());
            command.args(["-q", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no"]);
            command.arg(format!("--callgrind-out-file={}", file.display()));
            command.arg(&program).arg(many).env("CUDDY_PRELOAD", mode);
            command.env("LD_PRELOAD", place.file("libcuddy_preload.so"));
            common::run(&mut command).quietly();
            own(&fs::read_to_string(&file).expect("a profile"))
        };
        let own = (count("3000") - count("1000")) / 2000;
        println!("{mode}: {times} ns; of our own {own} instructions");
        assert!(own > 0, "the profile names the library");
        if !cfg!(debug_assertions) {
            assert!(own <= 1500, "{mode}: {own}");
        }
    }
}

/// The library's own cost in callgrind's file: its functions' own, and all of what they call that is
/// neither its nor the driver's.
fn own(profile: &str) -> u64 {
    let is_ours = |object: &str| object.contains("cuddy_preload");
    let is_drivers = |object: &str| object.contains("libsimcuda") || object.contains("libcuda");
    let (mut object, mut callee, mut is_call, mut sum) = ("", None, false, 0);
    for line in profile.lines() {
        if let Some(of) = line.strip_prefix("ob=") {
            object = of;
        } else if let Some(of) = line.strip_prefix("cob=") {
            callee = Some(of);
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let called = if is_call { callee.take() } else { None };
            let cost = line.split(' ').nth(1).and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
            let counts = match called {
                // A call within the library: the callee's own lines say it.
                None => !is_call,
                Some(called) => !is_ours(called) && !is_drivers(called),
            };
            if is_ours(object) && counts {
                sum += cost;
            }
            is_call = false;
        }
    }
    sum
}
