//! Replays of real traces: they complete, nothing is wrong, and the figures are what they must be.

mod common;

use common::{file, number, replay, run};
use serde_json::Value;

/// Small traces that have what the others have: training, several streams with `s`, `r` and `y`.
const SMALL: [&str; 5] = [
    "resnet50_train_b64_adam",
    "resnet50_prefetch_2streams_multires",
    "dlrm_train_b2048_multihot",
    "synth_dataframe_query",
    "synth_checkerboard",
];

fn assert_clean(report: &Value) {
    assert_eq!(report["completed"], true, "{report:#}");
    for field in ["checker_reports", "corrupt_blocks", "misplaced_blocks", "unknown_launches"] {
        assert_eq!(report[field], 0, "{field} in {report:#}");
    }
    assert_eq!(report["wrong_counters"], Value::Array(Vec::new()), "{report:#}");
    // A run that looked at nothing is not clean.
    let operations = number(report, "operations");
    assert!(operations > 100 && number(report, "accesses_checked") >= operations, "{report:#}");
    assert!(number(report, "bytes_written") >= 8 && number(report, "bytes_read_back") >= 8);
    let [requested, allocated, reserved] =
        ["peak_requested", "peak_allocated", "peak_reserved"].map(|field| number(report, field));
    assert!(0 < requested && requested <= allocated && allocated <= reserved, "{report:#}");
}

#[test]
fn small_traces_are_clean_under_every_schedule() {
    for schedule in ["eager", "lazy", "lag:100", "random:1", "random:2", "random:3"] {
        let reports = replay(&[&["--schedule", schedule][..], &SMALL].concat());
        assert_eq!(reports.len(), SMALL.len());
        for (report, name) in reports.iter().zip(SMALL) {
            assert_eq!(report["trace"], name);
            assert_eq!(report["schedule"], schedule);
            assert_clean(report);
        }
    }
}

#[test]
fn both_backings_and_bare_driver_calls_serve() {
    for who in [&["--backing", "segments"][..], &["--backing", "pages"], &["--allocator", "driver"]]
    {
        for report in
            replay(&[who, &["resnet50_prefetch_2streams_multires", "synth_checkerboard"]].concat())
        {
            assert_clean(&report);
            let called = |name: &str| report["driver_calls"].get(name).is_some();
            assert_eq!(called("cuMemCreate"), who[1] == "pages", "{report:#}");
            assert_eq!(called("cuMemAlloc"), who[1] != "pages", "{report:#}");
        }
    }
}

#[test]
fn the_drivers_pool_serves_under_every_schedule() {
    let traces = ["resnet50_prefetch_2streams_multires", "synth_dataframe_query"];
    for schedule in ["eager", "lazy", "lag:100", "random:1"] {
        let who = ["--allocator", "driver-async", "--schedule", schedule];
        for report in replay(&[&who[..], &traces].concat()) {
            assert_clean(&report);
            let calls = |name: &str| report["driver_calls"][name].as_u64().unwrap_or(0);
            assert!(calls("cuMemAllocAsync") > 1000, "{report:#}");
            assert!(calls("cuMemFreeAsync") <= calls("cuMemAllocAsync"), "{report:#}");
            assert_eq!(calls("cuMemAlloc"), 0, "{report:#}");
            // Each use on a further stream is waited for, by an event, before the free.
            assert_eq!(calls("cuEventRecord"), calls("cuStreamWaitEvent"), "{report:#}");
            let elsewhere = report["trace"] == "resnet50_prefetch_2streams_multires";
            assert_eq!(calls("cuStreamWaitEvent") > 0, elsewhere, "{report:#}");
        }
    }
}

#[test]
fn a_device_that_lags_holds_more() {
    let held = |schedule: &str| {
        let report = &replay(&["--schedule", schedule, "synth_many_streams_pingpong"])[0];
        assert_clean(report);
        number(report, "peak_reserved")
    };
    // Blocks recorded elsewhere come back later.
    let (eager, lagging, lazy) = (held("eager"), held("lag:1000"), held("lazy"));
    assert!(eager < lagging && eager < lazy, "{eager} {lagging} {lazy}");
}

#[test]
fn a_fixed_training_loop_stops_calling_the_driver() {
    let reports = replay(&["resnet50_train_b64_adam", "vit_l16_train_amp_b64"]);
    for report in &reports {
        assert_clean(report);
        assert_eq!(report["steady_state_driver_calls"], 0, "{report:#}");
        assert!(report["driver_calls"].as_object().is_some_and(|calls| !calls.is_empty()));
    }
    let bare = replay(&["--allocator", "driver", "resnet50_train_b64_adam"]);
    let calls = &bare[0]["driver_calls"];
    // Counted from outside: every block is one call, every free another.
    assert_eq!(calls["cuMemAlloc"], 4105, "{:#}", bare[0]);
    assert_eq!(calls["cuMemFree"], 3354, "{:#}", bare[0]);
    assert!(number(&bare[0], "steady_state_driver_calls") > 1000);
}

#[test]
fn the_json_has_every_field_and_one_line_a_trace() {
    let report = &replay(&["synth_checkerboard"])[0];
    for field in ["trace", "allocator", "device", "schedule"] {
        assert!(report[field].is_string(), "{field}");
    }
    for field in [
        "events",
        "peak_requested",
        "peak_allocated",
        "peak_reserved",
        "checker_reports",
        "corrupt_blocks",
        "misplaced_blocks",
        "operations",
        "bytes_written",
        "bytes_read_back",
        "accesses_checked",
        "unknown_launches",
        "device_memory",
    ] {
        assert!(report[field].is_u64(), "{field}");
    }
    for field in [
        "reserved_over_allocated",
        "driver_time_us",
        "ns_per_op",
        "replay_driver_time_us",
        "seconds",
    ] {
        assert!(report[field].is_f64(), "{field}");
    }
    for field in ["driver_calls", "replay_driver_calls"] {
        let calls = report[field].as_object().expect("an object");
        assert!(calls.iter().all(|(name, n)| name.starts_with("cu") && n.is_u64()), "{calls:?}");
    }
    for field in ["wrong_counters", "notes", "findings"] {
        assert!(report[field].is_array(), "{field}");
    }
    assert_eq!(report["completed"], true);
    assert_eq!(report["simulated"], true);
    assert!(report["steady_state_driver_calls"].is_null(), "this trace has no steps");
    assert!(report["error"].is_null() && report.get("fit_ratio").is_none());
    assert_eq!(number(report, "events"), 2305);
    // The replayer's own work is not the allocator's.
    assert!(report["replay_driver_calls"]["cuLaunchKernel"].as_u64().is_some_and(|n| n > 2000));
    assert!(report["driver_calls"].get("cuLaunchKernel").is_none());
}

#[test]
fn the_fit_is_the_smallest_device() {
    let report = &replay(&["--fit", "synth_class_edges"])[0];
    assert_clean(report);
    let (fit, allocated) = (number(report, "fit_bytes"), number(report, "peak_allocated"));
    assert!(fit >= allocated);
    let ratio = report["fit_ratio"].as_f64().expect("a number");
    assert!((ratio - fit as f64 / allocated as f64).abs() < 1e-9);
    let on = |bytes: u64| {
        replay(&["--device-memory", &bytes.to_string(), "synth_class_edges"])[0]["completed"]
            == true
    };
    assert!(on(fit), "it completes on {fit}");
    let step = (allocated / 1000).max(2 << 20).next_multiple_of(2 << 20);
    for below in (1..=4).map(|steps| fit - steps * step).filter(|&below| below >= allocated) {
        assert!(!on(below), "it does not on {below}");
    }
}

#[test]
fn too_small_a_device_is_explained_and_nothing_is_wrong() {
    let arguments = ["replay", "--on", "sim", "--device-memory", "1GiB", "resnet50_train_b64_adam"];
    let ended = run(&arguments);
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    assert!(ended.out.contains("stopped at line"), "{}", ended.out);
    let report = &replay(&arguments[3..])[0];
    assert_eq!(report["completed"], false);
    assert!(report["error"].as_str().is_some_and(|error| error.contains("allocating")));
    for field in ["checker_reports", "corrupt_blocks", "misplaced_blocks"] {
        assert_eq!(report[field], 0, "{report:#}");
    }
    assert_eq!(report["wrong_counters"], Value::Array(Vec::new()), "{report:#}");
    assert!(number(report, "peak_reserved") <= 1 << 30);
}

#[test]
fn unknown_streams_and_frees_in_another_order_are_ordered() {
    let text = "# gputrace 1\na 0 3000000 0\nr 0 -1\na 1 5000000 2\nf 0 0\na 2 3000000 0\nf 1 0\n\
                a 1 5000000 2\nr 1 1\nf 1 2\ne\na 3 1 0\na 4 9 2\nf 3 0\nf 4 2\nf 2 0\n";
    let (_folder, path) = file("odd", text.as_bytes());
    for schedule in ["eager", "lazy", "random:7"] {
        let report = &replay(&["--schedule", schedule, &path])[0];
        assert_eq!(report["completed"], true, "{report:#}");
        assert_eq!(report["checker_reports"], 0, "{report:#}");
        assert_eq!(report["corrupt_blocks"], 0, "{report:#}");
        // One for each of: `r 0 -1`, `f 1 0`, `r 1 1`, since the trace says no waits of its own.
        assert_eq!(report["replay_driver_calls"]["cuStreamWaitEvent"], 3, "{report:#}");
    }
}

#[test]
fn every_use_is_made_and_every_line_does_what_it_says() {
    // Only `y` orders the use on stream 2 after the writing on stream 1; `s` lines say other things.
    let text = "# gputrace 1\ns 0 1\na 0 4096 1\ny\nr 0 2\nf 0 1\na 1 67108864 0\nf 1 0\ne\n";
    let (_folder, path) = file("lines", text.as_bytes());
    for schedule in ["eager", "lazy"] {
        let report = &replay(&["--schedule", schedule, &path])[0];
        assert_eq!(report["checker_reports"], 0, "{report:#}");
        // A use is a kernel that says it and one that makes it, for the edges; a block of pages has
        // one more for them. Three uses of the small block, two of the large one.
        assert_eq!(report["replay_driver_calls"]["cuLaunchKernel"], 3 * 2 + 2 * 3, "{report:#}");
        assert_eq!(report["replay_driver_calls"]["cuStreamWaitEvent"], 1, "{report:#}");
        // `e` gave the pages back.
        assert!(number(&report["driver_calls"], "cuMemUnmap") >= 1, "{report:#}");
        let words = 3 * 2 + 2 * (2 + 31);
        let moved = number(report, "bytes_written") + number(report, "bytes_read_back");
        // The large block begins at a page or within one.
        assert!((words * 8..=(words + 2) * 8).contains(&moved), "{report:#}");
    }
}

/// The trace's own mistake: stream 1 uses a block that stream 0 has just written, without a wait.
#[test]
fn a_trace_with_a_race_of_its_own_is_told() {
    let text = "# gputrace 1\na 0 4096 0\ns 1 0\na 1 4096 0\nr 1 1\nf 1 0\nf 0 0\n";
    let (_folder, path) = file("race", text.as_bytes());
    let report = &replay(&[&path])[0];
    assert_eq!(report["completed"], true);
    assert!(number(report, "checker_reports") > 0, "{report:#}");
    let finding = report["findings"][0].as_str().unwrap_or_default();
    assert!(finding.starts_with("race") && finding.contains("cuddy_pattern_write"), "{report:#}");
    assert_eq!(run(&["replay", "--on", "sim", &path]).code, Some(1));
}

#[test]
fn the_other_formats_replay_too() {
    let log = "Thread,Time,Action,Pointer,Size,Stream\n1,1,allocate,0x100,5000,0x0\n\
               1,2,allocate,0x200,70000,0x55aa\n1,3,free,0x100,5000,0x0\n";
    let (_folder, path) = file("rmm_log.csv", log.as_bytes());
    let report = &replay(&[&path])[0];
    assert_eq!((&report["completed"], &report["checker_reports"]), (&true.into(), &0.into()));
    assert_eq!(number(report, "peak_allocated"), 5120 + 70144);
}

/// A snapshot of a program that ran short: `events` are kind, stream, address and bytes.
fn ran_short(
    folder: &std::path::Path,
    share: &str,
    total: u64,
    limit: u64,
    events: &[(&str, u64, u64, u64)],
) -> String {
    let live: u64 = events.iter().fold(0, |live, event| match event.0 {
        "alloc" => live + event.3,
        "free" => live - event.3,
        _ => live,
    });
    let requested = events.last().expect("the last one fails").3;
    let rows: Vec<Value> = events
        .iter()
        .map(|&(kind, stream, address, bytes)| {
            serde_json::json!([1, kind, 0, stream, address, bytes, bytes, 0, 1])
        })
        .collect();
    let snapshot = serde_json::json!({
        "format": "cuddy-snapshot", "version": 1, "library": "0.1.0", "time_us": 2, "scopes": [],
        "devices": [{ "device": 0, "stats": {}, "segments": [] }], "options": { "share": share },
        "out_of_memory": {
            "time_us": 1, "device": 0, "requested": requested, "cause": "limit", "allocated": live, "active": live,
            "reserved": limit, "cached": limit - live, "limit": limit, "largest_free": 0, "largest_free_own": 0,
            "free_bytes": 0, "free_count": 0, "device_free": total - limit, "device_total": total,
            "used_elsewhere": 0, "waiting": [], "scopes": [], "message": "",
        },
        "history": { "noted": rows.len(), "lost": 0, "events": rows, "columns": [
            "time_us", "kind", "device", "stream", "address", "bytes", "requested", "scope", "thread"] },
    });
    let path = folder.join(format!("{share}-{requested}.json"));
    std::fs::write(&path, snapshot.to_string()).expect("the folder is ours");
    path.to_str().expect("it is text").to_owned()
}

#[test]
fn of_a_program_that_ran_short_it_is_said_what_would_have_fitted() {
    let folder = tempfile::tempdir().expect("a folder");
    let says = |file: &str| {
        let report = &replay(&["--fit", file])[0];
        assert_eq!(report["completed"], true, "{report:#}");
        report["would_fit"].as_str().expect("it says so").to_owned()
    };
    const MIB: u64 = 1 << 20;
    let more = [("alloc", 1, 4096, 6 * MIB), ("out_of_memory", 1, 0, 12 * MIB)];
    let file = ran_short(folder.path(), "wait", 64 * MIB, 16 * MIB, &more);
    assert_eq!(says(&file), "with 2.00 MiB more: in 18.00 MiB; there were 16.00 MiB");
    let never = [("alloc", 1, 4096, 6 * MIB), ("out_of_memory", 1, 0, 60 * MIB)];
    let file = ran_short(folder.path(), "wait", 64 * MIB, 16 * MIB, &never);
    assert!(
        says(&file)
            .starts_with("never on this device: what was live and the request need 66.00 MiB")
    );
    // Holes between live blocks of one stream, and a request of another one: no page is free.
    let mut holes: Vec<_> = (0..8).map(|place| ("alloc", 1, (1 + place) * MIB, MIB / 2)).collect();
    holes.extend((0..4).map(|place| ("free", 1, (1 + 2 * place) * MIB, MIB / 2)));
    holes.push(("out_of_memory", 77, 0, MIB / 2));
    let file = ran_short(folder.path(), "never", 64 * MIB, 4 * MIB, &holes);
    let said = says(&file);
    assert!(said.starts_with("with sharing on") && said.ends_with("share:never"), "{said}");
}
