//! **Memory**: order, captures, exports, contexts, attributes, shortage. A program sees what it sees
//! without the library, and the checker finds nothing.

use crate::common;
use crate::place::{Place, Report, Said, said};

/// Runs a scenario alone and in both modes, under a schedule; answers what was said alone, and the
/// rows of the modes.
fn scenario(name: &str, schedule: &str) -> (Said, Vec<(&'static str, Said, Report)>) {
    let place = Place::new();
    let program = place.compile("memory.c", &[]);
    let settle = |mut command: std::process::Command| {
        command.env("SIMCUDA_SCHEDULE", schedule).env("SIMCUDA_DEVICES", "2");
        command.env("SIMCUDA_MEMORY", "256MiB").arg(name);
        command
    };
    let alone = said(common::run(&mut settle(place.plain(&program))));
    let rows = ["strict", "fenced"].map(|mode| {
        let file = place.file(mode);
        let settings = format!("mode:{mode},cap:0.3,report:{}", file.display());
        let with = said(common::run(&mut settle(place.preloaded(&program, &settings))));
        (mode, with, Report::read(&file))
    });
    (alone, rows.into())
}

const SCHEDULES: [&str; 5] = ["eager", "lazy", "lag:7", "random:1", "random:2"];

/// The same text, whatever the mode.
fn same(name: &str, schedule: &str) -> (Said, Vec<(&'static str, Said, Report)>) {
    let (alone, rows) = scenario(name, schedule);
    assert!(alone.text.contains("findings 0"), "{name}, {schedule}: {alone:?}");
    for (mode, with, _) in &rows {
        assert_eq!(with.text, alone.text, "{name}, {schedule}, {mode}");
    }
    (alone, rows)
}

#[test]
fn memory_goes_from_stream_to_stream_in_order() {
    for schedule in SCHEDULES {
        for name in ["reuse", "reuse-threads"] {
            let (alone, rows) = same(name, schedule);
            assert_eq!(alone.driver, (30_000, 30_000));
            for (mode, with, report) in rows {
                let (hits, misses) = (report.number("hits"), report.number("misses"));
                assert_eq!(hits + misses, 30_000, "{name}, {schedule}, {mode}");
                assert_eq!(report.number("kept"), 30_000, "{name}, {schedule}, {mode}");
                // Some memory was really handed on, or nothing was shown.
                assert!(hits > 10_000, "{name}, {schedule}, {mode}: {hits}");
                let waits = report.number("wait_calls");
                assert_eq!(waits, if mode == "strict" { 30_000 } else { 0 }, "{name}, {schedule}");
                assert_eq!(with.driver.0, misses);
            }
        }
    }
}

/// Without the library, a capture in global mode would not survive this.
#[test]
fn captures_of_another_thread_do_not_notice() {
    for schedule in ["eager", "lazy", "random:1"] {
        let place = Place::new();
        let program = place.compile("memory.c", &[]);
        let mut command = place.plain(&program);
        let alone = common::run(command.env("SIMCUDA_SCHEDULE", schedule).arg("capture"));
        assert!(alone.code == Some(1) && alone.out.contains(": 900"), "{alone:?}");
        for mode in ["strict", "fenced"] {
            let mut command = place.preloaded(&program, &format!("mode:{mode}"));
            command.env("SIMCUDA_SCHEDULE", schedule).arg("capture");
            let with = common::run(&mut command).quietly();
            let modes: Vec<_> = with.lines().take(4).collect();
            let wanted =
                ["captured in mode 0", "captured in mode 1", "captured in mode 2", "findings 0"];
            assert_eq!(modes, wanted, "{schedule}, {mode}");
        }
        same("capture-miss", schedule);
    }
}

#[test]
fn exported_and_marked_memory_is_never_handed_out_again() {
    for (name, tainted, kept) in [("exported", 50, 50), ("set-attributes", 20, 0)] {
        for (mode, _, report) in same(name, "eager").1 {
            assert_eq!(
                (report.number("tainted"), report.number("kept")),
                (tainted, kept),
                "{mode}"
            );
        }
    }
}

/// The importer has what was exported until it is freed, whoever of the two is preloaded.
#[test]
fn another_process_keeps_what_it_was_given() {
    let place = Place::new();
    let program = place.compile("ipc.c", &[]);
    let alone = said(common::run(&mut place.plain(&program)));
    assert_eq!(alone.text, "freed and still known: 0\nimporter 0\nfindings 0");
    for mode in ["mode:strict", "mode:fenced"] {
        for importer in ["preloaded", "alone"] {
            let (with, report) = place.reported(&program, mode, &[importer]);
            assert_eq!(with.text, alone.text, "{mode}, {importer}");
            let counted = (report.number("tainted"), report.number("kept"));
            assert_eq!(counted, (20, 80), "{mode}, {importer}");
        }
    }
}

#[test]
fn what_is_kept_is_given_back_when_memory_is_short() {
    for schedule in SCHEDULES {
        for (mode, _, report) in same("out-of-memory", schedule).1 {
            assert!(report.number("rescues") >= 3, "{schedule}, {mode}: {report:?}");
            assert!(report.number("evicted") >= 48, "{schedule}, {mode}: {report:?}");
        }
    }
}

#[test]
fn addresses_have_the_attributes_of_what_was_asked_for() {
    for schedule in ["eager", "random:1"] {
        for (mode, _, report) in same("attributes", schedule).1 {
            assert!(report.number("hits") > 40, "{schedule}, {mode}: {report:?}");
        }
    }
}

#[test]
fn contexts_end_and_peers_use_each_others_memory() {
    for schedule in ["eager", "lazy", "random:1"] {
        for name in ["contexts", "peers"] {
            for (mode, _, report) in same(name, schedule).1 {
                // A fence passes only when the device comes to it.
                let many = if schedule == "eager" || mode == "strict" { 20 } else { 0 };
                assert!(report.number("hits") >= many, "{name}, {schedule}, {mode}: {report:?}");
            }
        }
    }
}

#[test]
fn the_drivers_pool_keeps_its_memory_unless_the_program_says_otherwise() {
    let (alone, rows) = scenario("pools", "eager");
    assert!(alone.text.contains("threshold 0\nthreshold 5\nkept 0"), "{alone:?}");
    for (mode, with, report) in rows {
        assert_eq!(with.text, alone.text.replace("kept 0", "kept 1"), "{mode}");
        assert_eq!(report.number("passed_allocs"), 20, "{mode}");
    }
    same("pools-theirs", "eager");
}

#[test]
fn memory_from_elsewhere_is_the_drivers_affair() {
    for schedule in ["eager", "lazy"] {
        for (mode, _, report) in same("foreign", schedule).1 {
            assert_eq!(report.number("foreign_frees"), 5, "{schedule}, {mode}: {report:?}");
        }
    }
}

/// Ten buffers a step, 1,000 steps.
#[test]
fn a_naive_program_calls_the_driver_ten_times() {
    let place = Place::new();
    let program = place.compile("naive.c", &[]);
    let alone = said(common::run(&mut place.plain(&program)));
    assert_eq!(alone.driver, (10_000, 10_000));
    for mode in ["mode:strict", "mode:fenced"] {
        let (with, report) = place.reported(&program, mode, &[]);
        assert_eq!((with.text.as_str(), with.driver), ("findings 0", (10, 0)), "{mode}");
        assert_eq!((report.number("hits"), report.number("alloc_calls")), (9_990, 10), "{mode}");
    }
}

/// Drivers before 12.5 have no fence over a context: then frees wait.
#[test]
fn older_drivers_are_served_too() {
    let place = Place::new();
    let program = place.compile("memory.c", &[]);
    for driver in ["11040", "12020"] {
        for name in ["reuse", "attributes", "foreign"] {
            let file = place.file("old");
            let _ = std::fs::remove_file(&file);
            let settings = format!("mode:fenced,report:{}", file.display());
            let mut command = place.preloaded(&program, &settings);
            command.env("SIMCUDA_DRIVER", driver).env("WAY", "dlsym").arg(name);
            let with = said(common::run(&mut command));
            assert!(with.text.contains("findings 0"), "{driver}, {name}");
            let report = Report::read(&file);
            let kept = report.number("kept");
            assert_eq!(report.number("wait_calls"), kept, "{driver}, {name}");
        }
    }
}
