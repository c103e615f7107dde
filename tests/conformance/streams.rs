//! Streams, as PyTorch's tests and its users' reports have them.

use cuddy::error::Error;
use cuddy::process;

use crate::machine::*;

fn on(schedule: &str, configuration: &str, test: &str, body: impl FnOnce(&Machine)) {
    let environment =
        [("SIMCUDA_MEMORY", "1GiB"), ("SIMCUDA_SCHEDULE", schedule), ("CUDDY_CONF", configuration)];
    checked(&format!("streams::{test}"), &environment, |machine| {
        body(machine);
        machine.assert_clean();
    });
}

/// Uses a block on another stream than its own, and says so.
fn use_elsewhere(machine: &Machine, own: usize, other: usize, block: u64) {
    machine.order(own, other);
    machine.fill(other, block, 9, 4096);
    process::record_stream(block, other).expect("live");
}

#[test]
fn a_recorded_block_comes_back_at_its_address_once_its_stream_is_done() {
    let test = "a_recorded_block_comes_back_at_its_address_once_its_stream_is_done";
    on("eager", "", test, |machine| {
        let [own, other] = machine.held_streams();
        let block = malloc_on(4 * MIB, own).expect("fits");
        machine.gate(other, 1);
        use_elsewhere(machine, own, other, block);
        process::free(block).expect("live");
        let early = malloc_on(4 * MIB, own).expect("fits");
        assert_ne!(early, block, "the other stream is not done");
        process::free(early).expect("live");
        machine.sim.gate_open(1);
        machine.synchronize_all();
        let both = [0, 1].map(|_| malloc_on(4 * MIB, own).expect("fits"));
        assert!(both.contains(&block), "it is free again");
    });
}

/// A view's address names no block; the block's start does, and protects all of it.
#[test]
fn a_use_that_is_recorded_by_an_inner_address_is_told_to_be_none() {
    let test = "a_use_that_is_recorded_by_an_inner_address_is_told_to_be_none";
    on("eager", "", test, |machine| {
        let [own, other] = machine.held_streams();
        let block = malloc_on(4 * MIB, own).expect("fits");
        let view = block + 3 * MIB;
        let refused = process::record_stream(view, other);
        assert!(matches!(refused, Err(Error::InteriorPointer { start, .. }) if start.0 == block));
        assert_eq!(process::record_stream(0, other), Ok(()), "NULL is no block");
        assert!(matches!(process::record_stream(64, other), Err(Error::ForeignPointer(_))));
        // What the refusal, and `block_info`, say is what to record.
        let start = process::block_info(view).expect("live").address;
        machine.gate(other, 1);
        machine.order(own, other);
        machine.fill(other, view, 9, 4096);
        process::record_stream(start, other).expect("live");
        process::free(block).expect("live");
        assert_ne!(malloc_on(4 * MIB, own).expect("fits"), block);
        machine.sim.gate_open(1);
    });
}

/// The slow stream's block was freed first; the quick one's is used again all the same.
#[test]
fn a_quick_streams_block_does_not_queue_behind_a_slow_ones() {
    let test = "a_quick_streams_block_does_not_queue_behind_a_slow_ones";
    on("eager", "", test, |machine| {
        let [s0, slow, quick] = machine.held_streams();
        let [x, y] = [0, 1].map(|_| malloc_on(8 * MIB, s0).expect("fits"));
        let reserved = stats(0).reserved;
        machine.gate(slow, 1);
        use_elsewhere(machine, s0, slow, x);
        use_elsewhere(machine, s0, quick, y);
        process::free(x).expect("live");
        process::free(y).expect("live");
        machine.synchronize(quick);
        let z = malloc_on(8 * MIB, s0).expect("fits");
        assert_eq!((z, stats(0).reserved), (y, reserved));
        assert_eq!((stats(0).allocated, stats(0).active), (8 * MIB, 16 * MIB), "x is in limbo");
        assert_eq!(stats(0).limbo_block_count, 1);
        process::free(z).expect("live");
        // Fifty more: every one of the quick stream's comes back.
        for _ in 0..50 {
            let block = malloc_on(8 * MIB, s0).expect("fits");
            use_elsewhere(machine, s0, quick, block);
            process::free(block).expect("live");
            machine.synchronize(quick);
            assert_eq!(stats(0).reserved, reserved);
        }
        machine.sim.gate_open(1);
    });
}

/// On one stream, a use that was over when the program said so does not wait for what came later.
#[test]
fn an_event_of_the_use_itself_spares_waiting_for_later_work() {
    let test = "an_event_of_the_use_itself_spares_waiting_for_later_work";
    on("eager", "memory_limit:16MiB", test, |machine| {
        let [s0, other] = machine.held_streams();
        let [a, b] = [0, 1].map(|_| malloc_on(8 * MIB, s0).expect("fits"));
        machine.order(s0, other);
        machine.fill(other, a, 1, 4096);
        let used = machine.event(other);
        machine.gate(other, 1);
        use_elsewhere(machine, s0, other, b);
        process::free(b).expect("live");
        process::free_after(a, used).expect("live");
        machine.destroy_event(used);
        let wait_ms = Some(0);
        let c = process::malloc_in(process::DEFAULT_POOL, 8 * MIB, 0, 0, s0, wait_ms);
        assert_eq!(c, Ok(a), "while b's stream is held up");
        machine.sim.gate_open(1);
    });
}

/// Memory of one stream's unfinished work goes to another one only behind it.
#[test]
fn a_streams_unfinished_memory_is_not_anothers() {
    for schedule in ["eager", "lazy", "random:3"] {
        let test = "a_streams_unfinished_memory_is_not_anothers";
        on(schedule, "memory_limit:32MiB", test, |machine| {
            let [s0, s1] = machine.held_streams();
            let blocks = [0, 1].map(|_| malloc_on(16 * MIB, s0).expect("fits"));
            machine.gate(s0, 1);
            for block in blocks {
                machine.fill(s0, block, 1, 16 * MIB);
                process::free(block).expect("live");
            }
            let taken = malloc_on(16 * MIB, s1).expect("behind a stream wait");
            machine.fill(s1, taken, 2, 16 * MIB);
            assert_eq!(stats(0).stream_wait_count, 1);
            machine.sim.gate_open(1);
            machine.synchronize_all();
            assert_eq!(machine.byte(taken + 16 * MIB - 1), 2, "in the order of the streams");
        });
    }
}
