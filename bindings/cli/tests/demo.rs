//! The demo prints its table.

mod common;

use common::{Ended, cuddy};

#[test]
fn the_demo_prints_one_table() {
    // It needs no folder of traces: it has its own.
    let ended = Ended::of(cuddy(&["demo", "--on", "sim"]).env("CUDDY_TRACES", "/nonexistent"));
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    let first = ended.out.lines().next().unwrap_or_default();
    assert!(first.contains("simulated"), "the first line says on what: {first}");
    let row = |name: &str| -> Vec<&str> {
        let found = ended.out.lines().find(|line| line.trim_start().starts_with(name));
        let line = found.unwrap_or_else(|| panic!("{name} in {}", ended.out));
        line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
    };
    for name in [
        "driver calls",
        "driver time (virtual)",
        "host time a call",
        "peak allocated",
        "peak reserved",
        "reserved / allocated",
    ] {
        assert_eq!(row(name).len(), 4, "{:?}", row(name));
    }
    let count = |cell: &str| cell.replace(' ', "").parse::<u64>().expect("a count");
    let calls = row("driver calls");
    assert!(count(calls[1]) > 100_000 && count(calls[1]) > 3 * count(calls[3]), "{calls:?}");
    let later = row("from the third step on");
    assert!(count(later[1]) > 5 * count(later[3]), "{later:?}");
    let ratio = row("reserved / allocated")[3].parse::<f64>().expect("a ratio");
    assert!((1.0..1.1).contains(&ratio), "{ratio}");
    assert_eq!(ended.err, "", "no progress bar where there is no terminal");
}
