//! **Calls**: a random sequence of valid and invalid ones, call by call as without the library.

use std::collections::BTreeMap;

use crate::common;
use crate::place::Place;

/// A line of the program: what kind of call, its code; or what a call showed.
fn kind(line: &str) -> Option<(&str, i32)> {
    let (what, code) = line.rsplit_once(' ')?;
    let shown = ["rows of", "at ", "is", "are", "total", "findings", "driver"];
    if shown.iter().any(|start| what.starts_with(start)) {
        return None;
    }
    Some((what, code.parse().ok()?))
}

/// 10^5 calls. No line may differ but the last. What may differ at all is not in this sequence, or is
/// avoided in it, and each has a test of its own or is said in the README:
///  1. a call that a capture forbids, and that the cache serves with no driver call (memory.rs, captures);
///  2. the capture, which then is not spoilt (the same);
///  3. memory that was freed can still be used (README);
///  4. free memory is less by what live large blocks are rounded up, at most 2 MiB each or an eighth;
///  5. so a request may find no memory where one rounded less would (the last try is not rounded);
///  6. the pool keeps its memory: a request may find some that would have failed (memory.rs, pools).
#[test]
fn a_hundred_thousand_calls_answer_the_same() {
    let place = Place::new();
    let program = place.compile("calls.c", &[]);
    let words = ["1", "150000"];
    let settle = |mut command: std::process::Command| {
        command.env("SIMCUDA_DEVICES", "2").env("SIMCUDA_MEMORY", "256MiB").args(words);
        command
    };
    let lines = |command| {
        let ended = common::run(&mut settle(command));
        // The simulator says on stderr which calls it does not simulate.
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        ended.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let alone = lines(place.plain(&program));
    let mut codes: BTreeMap<i32, u64> = BTreeMap::new();
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for (what, code) in alone.iter().filter_map(|line| kind(line)) {
        *codes.entry(code).or_default() += 1;
        *kinds.entry(what).or_default() += 1;
    }
    let calls: u64 = codes.values().sum();
    let good = codes[&0];
    assert!(calls >= 100_000, "{calls}");
    assert!(good * 100 >= calls * 40, "{good} of {calls} succeed: {codes:?}");
    for code in [0, 1, 2, 3, 101, 201, 400, 401, 500, 801, 900] {
        assert!(codes.contains_key(&code), "no call answered {code}: {codes:?}");
    }
    for what in [
        "alloc",
        "alloc too large",
        "pitch",
        "free",
        "free again",
        "free inside",
        "info",
        "free of nothing",
        "free of async",
        "free of managed",
        "async",
        "async free",
        "fill",
        "range start",
        "range freed",
        "range inside",
        "attributes freed",
        "set attribute start",
        "export start",
        "context destroy",
        "alloc without context",
        "free while capturing",
    ] {
        assert!(kinds.get(what).is_some_and(|count| *count >= 50), "{what}: {kinds:?}");
    }
    assert!(kinds["reset"] >= 20 && alone.contains(&"findings 0".to_owned()));
    for mode in ["strict", "fenced"] {
        let settings = format!("mode:{mode},async:off,cap:0.3");
        let with = lines(place.preloaded(&program, &settings));
        let different = alone.iter().zip(&with).position(|(a, b)| a != b);
        assert_eq!(
            different,
            Some(alone.len() - 1),
            "{mode}: {:?}",
            different.map(|at| {
                (&alone[at.saturating_sub(3)..=at], &with[at.saturating_sub(3)..=at])
            })
        );
        assert_eq!(with.len(), alone.len());
    }
}
