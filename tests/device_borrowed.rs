//! Borrowed streams: their handles may be used only in calls that pass them. A short device waits for
//! what it needs all the same, and not for unrelated work.

mod machine;

use std::sync::atomic::{AtomicBool, Ordering};

use cuddy::process;
use machine::*;

/// Work behind a gate that nothing but the scenario's end opens.
const GATE: u64 = 1;

/// A limit of 32 MiB; memory crosses only once its last use is over, so that somebody has to wait.
fn scenario(test: &str, body: impl Fn(&Machine)) {
    let environment =
        [("SIMCUDA_MEMORY", "1GiB"), ("CUDDY_CONF", "memory_limit:32MiB,share:passed")];
    under(&["eager", "lazy", "random:3"], test, &environment, |machine| {
        body(machine);
        machine.sim.gate_open(GATE);
        machine.synchronize_all();
        machine.assert_clean();
    });
}

/// A block that is used and freed on a stream.
fn use_and_free(machine: &Machine, stream: usize, bytes: u64) {
    let block = malloc_on(bytes, stream).expect("fits");
    machine.fill(stream, block, 1, bytes);
    process::free(block).expect("live");
}

/// A stream that nobody asked about, with work that does not end.
fn unrelated(machine: &Machine) -> u64 {
    let stream = machine.stream();
    let block = malloc_on(2 * MIB, stream).expect("fits");
    machine.gate(stream, GATE);
    machine.fill(stream, block, 1, 2 * MIB);
    block
}

#[test]
fn what_can_be_waited_for_by_itself_comes_first() {
    scenario("what_can_be_waited_for_by_itself_comes_first", |machine| {
        let (held, borrowed, asking) = (machine.held_stream(), machine.stream(), machine.stream());
        // The borrowed stream's block is the better fit, but it cannot be fenced by itself.
        let first = malloc_on(14 * MIB, held).expect("fits");
        let second = malloc_on(12 * MIB, borrowed).expect("fits");
        for (stream, block, bytes) in [(held, first, 14 * MIB), (borrowed, second, 12 * MIB)] {
            machine.fill(stream, block, 1, bytes);
            process::free(block).expect("live");
        }
        let _kept = unrelated(machine);
        let block = malloc_on(12 * MIB, asking).expect("the held stream's memory");
        assert!((first..first + 14 * MIB).contains(&block));
        machine.fill(asking, block, 2, 12 * MIB);
    });
}

#[test]
fn a_miss_leaves_a_fence_behind_what_its_stream_has_freed() {
    scenario("a_miss_leaves_a_fence_behind_what_its_stream_has_freed", |machine| {
        let (borrowed, asking) = (machine.stream(), machine.stream());
        use_and_free(machine, asking, 2 * MIB);
        use_and_free(machine, borrowed, 12 * MIB);
        // A miss on the borrowed stream: its handle may be used now.
        let other = malloc_on(14 * MIB, borrowed).expect("fits");
        let _kept = unrelated(machine);
        let block = malloc_on(12 * MIB, asking).expect("what the borrowed stream freed");
        machine.fill(asking, block, 2, 12 * MIB);
        process::free(other).expect("live");
    });
}

#[test]
fn a_waiting_miss_goes_on_with_the_first_call_that_passes_the_stream() {
    scenario("a_waiting_miss_goes_on_with_the_first_call_that_passes_the_stream", |machine| {
        let (borrowed, asking) = (machine.stream(), machine.stream());
        use_and_free(machine, asking, 512);
        let small = malloc_on(512, borrowed).expect("fits");
        // What lies between keeps the small block from becoming part of the large one.
        let _between = malloc_on(512, borrowed).expect("fits");
        use_and_free(machine, borrowed, 24 * MIB);
        let _kept = unrelated(machine);
        let done = AtomicBool::new(false);
        let context = machine.context();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                machine.set_context(context);
                let block = malloc_on(24 * MIB, asking).expect("what the borrowed stream freed");
                done.store(true, Ordering::Release);
                machine.fill(asking, block, 2, 24 * MIB);
            });
            // Each of these calls passes the borrowed stream; one of them comes while the other
            // thread waits.
            process::free(small).expect("live");
            std::thread::sleep(std::time::Duration::from_millis(20));
            while !done.load(Ordering::Acquire) {
                let small = malloc_on(512, borrowed).expect("fits");
                process::free(small).expect("live");
                std::thread::yield_now();
            }
        });
    });
}
