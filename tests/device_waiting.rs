//! While one thread waits in the ladder, others go on: hits take no lock that a wait holds.

mod machine;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use cuddy::process;
use machine::*;

const GATE: u64 = 1;
const PAIRS: usize = 100_000;

/// One thread waits for memory behind a gate; `other` runs meanwhile, and then the gate opens.
fn while_one_waits(test: &str, streams: &str, other: impl Fn(&Machine, &dyn Fn() -> bool) + Sync) {
    let configuration = format!("memory_limit:64MiB,share:passed,streams:{streams}");
    let environment =
        [("SIMCUDA_MEMORY", "1GiB"), ("SIMCUDA_CHECKER", "log"), ("CUDDY_CONF", &configuration)];
    isolated(test, &environment, |machine| {
        machine.use_device(0);
        machine.ends_within(120);
        let context = machine.context();
        let (busy, asking) = (machine.stream(), machine.stream());
        let block = malloc_on(48 * MIB, busy).expect("fits");
        machine.gate(busy, GATE);
        machine.fill(busy, block, 1, 48 * MIB);
        process::free(block).expect("live");
        let served = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                machine.set_context(context);
                let block = malloc_on(40 * MIB, asking).expect("once the gate is open");
                served.store(true, Ordering::Release);
                machine.fill(asking, block, 2, 40 * MIB);
                process::free(block).expect("live");
            });
            while stats(0).wait_count == 0 {
                std::thread::yield_now();
            }
            other(machine, &|| served.load(Ordering::Acquire));
            assert!(!served.load(Ordering::Acquire), "it was served before the gate opened");
            machine.sim.gate_open(GATE);
        });
        machine.synchronize_all();
        machine.assert_clean();
    });
}

/// Cached pairs of small blocks, and of large ones that no shelf holds.
fn pairs(bytes: u64, each: &mut dyn FnMut(Instant)) {
    for _ in 0..PAIRS {
        let begun = Instant::now();
        let block = malloc(bytes, 0).expect("a hit");
        each(begun);
        process::free(block).expect("live");
    }
}

#[test]
fn hits_go_on_while_another_thread_waits() {
    for streams in ["trusted", "checked"] {
        while_one_waits("hits_go_on_while_another_thread_waits", streams, |_, served| {
            for bytes in [4096, MIB] {
                let warm = malloc(bytes, 0).expect("fits");
                process::free(warm).expect("live");
                let before = stats(0);
                let mut done = 0;
                pairs(bytes, &mut |_| done += 1);
                assert!(!served(), "the gate is shut");
                let after = stats(0);
                assert_eq!((done, after.miss_count), (PAIRS, before.miss_count));
                assert_eq!(after.hit_count - before.hit_count, PAIRS as u64);
            }
        });
    }
}

#[test]
fn misses_that_need_no_wait_go_on_too() {
    while_one_waits("misses_that_need_no_wait_go_on_too", "trusted", |_, served| {
        for bytes in [MIB, 2 * MIB, 3 * MIB, 4 * MIB] {
            let block = malloc(bytes, 0).expect("within the limit");
            process::free(block).expect("live");
        }
        assert!(!served(), "the gate is shut");
    });
}

#[test]
#[ignore = "prints how long hits take while another thread waits"]
fn the_distribution_of_hits_while_another_thread_waits() {
    let test = "the_distribution_of_hits_while_another_thread_waits";
    for streams in ["trusted", "checked"] {
        while_one_waits(test, streams, |_, _| {
            for bytes in [4096, MIB] {
                let warm = malloc(bytes, 0).expect("fits");
                process::free(warm).expect("live");
                let mut taken = Vec::with_capacity(PAIRS);
                pairs(bytes, &mut |begun| taken.push(begun.elapsed().as_nanos()));
                taken.sort_unstable();
                let streams = process::option(b"streams").expect("an option").value;
                let at = |part: f64| taken[((PAIRS - 1) as f64 * part) as usize];
                eprintln!(
                    "shows: {streams} streams, hits of {bytes} bytes: p50 {} ns, p99 {} ns, p99.9 {} ns, \
                     p99.99 {} ns, largest {} ns",
                    at(0.5),
                    at(0.99),
                    at(0.999),
                    at(0.9999),
                    at(1.0)
                );
            }
        });
    }
}
