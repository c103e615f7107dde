//! The benchmark suite as a program: `tests/bench/run --quick` gives a row for each bench, and
//! `tests/bench/bars` a verdict for each bar. Timing decides nothing here.

mod common;

use std::path::PathBuf;
use std::process::Command;

/// Whether the runtime's headers are installed, as `tests/clients/install` has it.
fn has_headers() -> bool {
    let named = std::env::var_os("CUDDY_CLIENTS").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let folder = named.or_else(|| Some(cache.or_else(home)?.join("cuddy/clients")));
    folder.is_some_and(|folder| folder.join("installed-headers").exists())
}

#[test]
fn every_quick_bench_gives_a_row_and_every_bar_a_verdict() {
    if !has_headers() {
        return common::skipped("the benchmark suite", "tests/clients/install headers was not run");
    }
    let root = env!("CARGO_MANIFEST_DIR");
    let json = std::env::temp_dir().join(format!("cuddy-bench-{}.json", std::process::id()));
    let mut run = Command::new("tests/bench/run");
    run.args(["--quick", "--debug", "--repeats", "1", "--allocators", "cuddy", "--json"]);
    let done = run.arg(&json).current_dir(root).output().expect("python3 is there");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(done.status.success(), "{said}");
    let rows = std::fs::read_to_string(&json).expect("the rows are written");
    assert_eq!(rows.matches("\"allocator\": \"cuddy\"").count(), 19, "{said}{rows}");
    let bars = Command::new("tests/bench/bars").arg(&json).current_dir(root).output();
    let bars = bars.expect("python3 is there");
    let verdicts = String::from_utf8_lossy(&bars.stdout);
    assert_eq!(verdicts.lines().count(), 15, "{verdicts}");
    // Counts, unlike times, are the same on every machine.
    let calls = verdicts.lines().find(|line| line.contains("driver calls in a cached pair"));
    assert!(calls.is_some_and(|line| line.starts_with("met")), "{verdicts}");
    std::fs::remove_file(&json).ok();
}
