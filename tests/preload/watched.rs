//! **Watched** runs: the scenarios and the door matrix under valgrind and under the address sanitizer.

use std::path::Path;
use std::process::Command;

use crate::common::{self, is_installed, skipped};
use crate::place::{Place, said};

/// All of `memory.c` but the long ones, and what is to differ.
const SCENARIOS: [&str; 8] = [
    "attributes",
    "capture-miss",
    "contexts",
    "exported",
    "foreign",
    "peers",
    "pools-theirs",
    "set-attributes",
];
const WAYS: [&str; 4] = ["dlsym", "address1", "address2", "whole"];

/// Runs both programs in these ways and modes: `watch` makes the command of one, preloaded.
fn rows(
    place: &Place,
    flags: &[&str],
    skip: &[&str],
    modes: &[&str],
    watch: impl Fn(&Path, &str) -> Command,
) {
    let programs = ["memory.c", "doors.c"].map(|name| {
        (place.build(name, &format!("{name}.watched"), flags), place.build(name, name, &[]))
    });
    let [memory, doors] = &programs;
    let all = SCENARIOS.map(|what| (memory, what));
    for ((program, alone), what) in all.into_iter().chain(WAYS.map(|way| (doors, way))) {
        if skip.contains(&what) {
            continue;
        }
        let plain = said(common::run(place.plain(alone).env("SIMCUDA_DEVICES", "2").arg(what)));
        for &mode in modes {
            let mut command = watch(program, mode);
            let with = said(common::run(command.env("SIMCUDA_DEVICES", "2").arg(what)));
            assert_eq!(with.text, plain.text, "{what}, {mode}");
            let is_served =
                !["capture-miss", "pools-theirs", "exported", "set-attributes"].contains(&what);
            assert!(!is_served || with.driver.0 < plain.driver.0, "{what}, {mode}: it was served");
        }
    }
}

const MODES: [&str; 2] = ["mode:fenced", "mode:strict"];

/// Valgrind sees reads of what was never written, and accesses out of bounds.
fn valgrind(skip: &[&str], modes: &[&str]) {
    if !is_installed("valgrind") {
        return skipped("the preload library under valgrind", "valgrind is not installed");
    }
    let place = Place::new();
    rows(&place, &[], skip, modes, |program, mode| {
        let mut command = place.plain("valgrind".as_ref());
        command.args(["-q", "--error-exitcode=9"]).arg(program);
        command.env("LD_PRELOAD", place.file("libcuddy_preload.so")).env("CUDDY_PRELOAD", mode);
        command
    });
}

#[test]
fn under_valgrind() {
    let long = ["capture-miss", "exported", "peers", "pools-theirs", "set-attributes"];
    valgrind(&[&long[..], &WAYS].concat(), &MODES[..1]);
}

#[test]
#[ignore = "takes minutes"]
fn every_row_under_valgrind() {
    valgrind(&[], &MODES);
}

/// The sanitizer has hooks of its own, and wants to be the first; both orders work.
#[test]
fn under_the_address_sanitizer() {
    let place = Place::new();
    let asks = Command::new("cc").arg("-print-file-name=libasan.so").output();
    let runtime = asks.map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned());
    let runtime = runtime.unwrap_or_default();
    if !Path::new(&runtime).is_absolute() {
        return skipped(
            "the preload library under ASan",
            "the C compiler has no shared runtime of it",
        );
    }
    let ours = place.file("libcuddy_preload.so");
    let first = format!("{}:{runtime}", ours.display());
    let second = format!("{runtime}:{}", ours.display());
    for preload in [first, second] {
        rows(&place, &["-fsanitize=address"], &[], &MODES, |program, mode| {
            let mut command = place.preloaded(program, mode);
            command.env("LD_PRELOAD", &preload);
            // The driver keeps what it has until the end, as every driver does.
            command.env("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0");
            command
        });
    }
}
