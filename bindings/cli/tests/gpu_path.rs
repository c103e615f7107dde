//! The way that a real GPU takes through the command, walked with the simulated driver in the
//! place of the machine's: none of the simulator's controls is used here.

mod common;

use common::{Ended, cuddy, driver_folder, number};
use serde_json::Value;

fn replay(arguments: &[&str]) -> (Ended, Value) {
    let folder = driver_folder();
    let all = [&["replay", "--json", "--on", "gpu"], arguments].concat();
    let ended = Ended::of(cuddy(&all).env("LD_LIBRARY_PATH", folder.path()));
    let report = serde_json::from_str(&ended.out).unwrap_or(Value::Null);
    (ended, report)
}

#[test]
fn cuddy_and_bare_driver_calls_are_measured() {
    let name = "resnet50_prefetch_2streams_multires";
    let (_, cuddy) = replay(&[name]);
    let (_, bare) = replay(&["--allocator", "driver", name]);
    for report in [&cuddy, &bare] {
        assert_eq!(report["completed"], true, "{report:#}");
        assert_eq!(report["corrupt_blocks"], 0);
        assert_eq!(report["wrong_counters"], Value::Array(Vec::new()), "{report:#}");
        for field in ["checker_reports", "accesses_checked", "schedule", "replay_driver_time_us"] {
            assert!(report[field].is_null(), "{field} is the simulator's: {report:#}");
        }
        assert!(report["driver_time_us"].as_f64().is_some_and(|time| time > 0.0));
        assert!(number(report, "peak_reserved") >= number(report, "peak_allocated"));
        assert!(number(report, "bytes_read_back") > 1000);
    }
    let calls = |report: &Value, name: &str| report["driver_calls"][name].as_u64().unwrap_or(0);
    assert_eq!(calls(&bare, "cuMemAlloc"), 6974);
    assert!(calls(&cuddy, "cuMemCreate") > 0 && calls(&cuddy, "cuMemAlloc") == 0, "{cuddy:#}");
    assert!(
        number(&cuddy, "steady_state_driver_calls") < number(&bare, "steady_state_driver_calls")
    );
}

#[test]
fn a_device_of_another_size_is_a_memory_limit() {
    let (ended, report) = replay(&["--device-memory", "6GiB", "resnet50_train_b64_adam"]);
    assert_eq!(report["completed"], true, "{}{report:#}", ended.err);
    assert_eq!(number(&report, "device_memory"), 6 << 30);
    let (ended, report) = replay(&["--device-memory", "4GiB", "resnet50_train_b64_adam"]);
    assert_eq!((ended.code, &report["completed"]), (Some(1), &Value::Bool(false)), "{report:#}");
    assert!(number(&report, "peak_reserved") <= 4 << 30);
}

#[test]
fn what_needs_the_simulator_says_so() {
    for arguments in [
        &["--schedule", "lazy", "synth_checkerboard"][..],
        &["--allocator", "driver", "--device-memory", "4GiB", "synth_checkerboard"],
    ] {
        let (ended, _) = replay(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}");
        assert!(ended.err.contains("needs the simulated device: pass --on sim"), "{}", ended.err);
    }
    // Without a driver there is no such way.
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("libcuda.so.1"), b"none").expect("the folder takes files");
    let mut command = cuddy(&["replay", "--on", "gpu", "synth_checkerboard"]);
    let ended = Ended::of(command.env("LD_LIBRARY_PATH", folder.path()));
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains("there is no GPU to use"), "{}", ended.err);
}

#[test]
fn the_demo_runs_there_too() {
    let folder = driver_folder();
    let mut command = cuddy(&["demo", "--on", "gpu"]);
    let command = command.env("LD_LIBRARY_PATH", folder.path()).env("SIMCUDA_MEMORY", "8GiB");
    let ended = Ended::of(command);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    let first = ended.out.lines().next().unwrap_or_default();
    assert!(first.starts_with("On Simulated GPU 0") && first.contains("8.00 GiB free"), "{first}");
    // The largest trace that fits in 80 % of 8 GiB.
    assert!(ended.out.contains("ResNet-50"), "{}", ended.out);
    let mut command = cuddy(&["demo", "--on", "gpu"]);
    let command = command.env("LD_LIBRARY_PATH", folder.path()).env("SIMCUDA_MEMORY", "2GiB");
    let ended = Ended::of(command);
    assert_eq!(ended.code, Some(2), "{}", ended.out);
    assert!(ended.err.contains("cuddy demo --on sim"), "{}", ended.err);
}
