//! Memory that goes from one stream to another, and the way down when it is short: what other
//! allocators get wrong, each under every schedule, with the happens-before checker as the judge.

mod machine;

use cuddy::error::Error;
use cuddy::process;
use machine::*;

const SCHEDULES: [&str; 6] = ["eager", "lazy", "lag:3", "lag:1000", "random:1", "random:7"];

/// Runs a scenario under every schedule, with the checker on, on a device of so many MiB.
fn sharing(test: &str, mib: u64, configuration: &str, body: impl Fn(&Machine)) {
    let memory = format!("{mib}MiB");
    let environment = [("SIMCUDA_MEMORY", memory.as_str()), ("CUDDY_CONF", configuration)];
    under(&SCHEDULES, test, &environment, body);
}

/// A bound so small that nobody waits.
fn without_waiting(bytes: u64, stream: usize) -> Result<u64, Error> {
    process::malloc_in(process::CURRENT_POOL, bytes, 0, 0, stream, Some(0))
}

fn fill_and_free(machine: &Machine, stream: usize, block: u64, bytes: u64) {
    machine.fill(stream, block, 0x11, bytes);
    process::free(block).expect("live");
}

// The scenarios of the peers' reports.

/// Two streams' blocks side by side make one for a third, and what is left of them goes to a fourth:
/// each is ordered behind whoever used its bytes.
#[test]
fn s1_ordering_survives_a_merge() {
    sharing("s1_ordering_survives_a_merge", 64, "memory_limit:8MiB", |machine| {
        let [a, b, c, d] = machine.held_streams();
        let p1 = malloc_on(4 * MIB, b).expect("fits");
        let p2 = malloc_on(4 * MIB, d).expect("fits");
        machine.gate(b, 1);
        machine.fill(b, p1, 0xBB, 4 * MIB);
        machine.gate(d, 2);
        machine.fill(d, p2, 0xDD, 4 * MIB);
        process::free(p1).expect("live");
        process::free(p2).expect("live");
        // Both gates are shut: neither call may wait on the host.
        let x = malloc_on(6 * MIB, a).expect("the two blocks");
        let y = malloc_on(2 * MIB, c).expect("what is left of them");
        assert!(stats(0).reserved <= 8 * MIB);
        assert_eq!((stats(0).wait_count, stats(0).crossing_count), (0, 2));
        machine.fill(a, x, 0xAA, 6 * MIB);
        machine.fill(c, y, 0xCC, 2 * MIB);
        machine.sim.gate_open(1);
        machine.sim.gate_open(2);
        machine.synchronize_all();
        assert_eq!((machine.byte(y), machine.byte(y + 2 * MIB - 1)), (0xCC, 0xCC));
        machine.assert_clean();
    });
}

/// Memory goes on from thief to thief: the last one is ordered behind the first.
#[test]
fn s1_a_chain_of_streams_stays_ordered() {
    sharing("s1_a_chain_of_streams_stays_ordered", 64, "memory_limit:8MiB", |machine| {
        let streams = machine.held_streams::<6>();
        machine.gate(streams[0], 1);
        let mut last = 0;
        for (at, &stream) in streams.iter().enumerate() {
            last = malloc_on(8 * MIB - at as u64 * 512, stream).expect("the block before");
            machine.fill(stream, last, at as u8 + 1, 8 * MIB - at as u64 * 512);
            process::free(last).expect("live");
        }
        assert_eq!((stats(0).wait_count, stats(0).stream_wait_count), (0, 5));
        machine.sim.gate_open(1);
        machine.synchronize_all();
        assert_eq!(machine.byte(last), 6);
        machine.assert_clean();
    });
}

/// A request that fails leaves the order of the memory that it looked at.
#[test]
fn s1_a_failed_request_forgets_nothing() {
    sharing("s1_a_failed_request_forgets_nothing", 64, "memory_limit:8MiB", |machine| {
        let [a, b, c] = machine.held_streams();
        let x = malloc_on(8 * MIB, a).expect("fits");
        machine.gate(a, 1);
        machine.fill(a, x, 0xAA, 8 * MIB);
        process::free(x).expect("live");
        assert!(is_out_of_memory(&malloc_on(9 * MIB, b)));
        let y = malloc_on(8 * MIB, c).expect("behind a stream wait");
        machine.fill(c, y, 0xCC, 8 * MIB);
        machine.sim.gate_open(1);
        machine.synchronize_all();
        assert_eq!(machine.byte(y), 0xCC);
        machine.assert_clean();
    });
}

/// The same handle in two threads is two streams; a recycled handle is another one.
#[test]
fn s2_per_thread_streams_are_not_taken_for_one() {
    sharing("s2_per_thread_streams_are_not_taken_for_one", 256, "", |machine| {
        let context = machine.context();
        let p = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                machine.set_context(context);
                let p = malloc_on(64 << 10, 2).expect("fits");
                machine.gate(2, 1);
                machine.fill(2, p, 1, 64 << 10);
                process::free(p).expect("live");
                p
            });
            thread.join().expect("the thread ends")
        });
        // That thread is gone, and its work is not over.
        let q = malloc_on(64 << 10, 2).expect("fits");
        assert!(q.abs_diff(p) >= 64 << 10, "a dead thread's block, with work pending");
        machine.fill(2, q, 2, 64 << 10);
        machine.sim.gate_open(1);
        machine.synchronize_all();
        machine.assert_clean();
    });
}

#[test]
fn s3_the_limit_is_reachable() {
    sharing("s3_the_limit_is_reachable", 256, "memory_limit:64MiB", |machine| {
        let stream = machine.held_stream();
        let blocks: Vec<u64> =
            (0..8).map(|_| malloc_on(8 * MIB, stream).expect("the limit holds eight")).collect();
        blocks.into_iter().for_each(|block| fill_and_free(machine, stream, block, 8 * MIB));
        let whole = malloc_on(64 * MIB, stream).expect("all of the limit");
        assert_eq!((stats(0).reserved, stats(0).reserved_peak), (64 * MIB, 64 * MIB));
        fill_and_free(machine, stream, whole, 64 * MIB);
        let error = malloc_on(64 * MIB + 1, stream).expect_err("one byte more");
        let text = error.to_string();
        for part in ["limit", "67108864", "67108865", "largest free range"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        machine.assert_clean();
    });
}

#[test]
fn s4_a_hole_in_a_big_chunk_is_harvested() {
    sharing("s4_a_hole_in_a_big_chunk_is_harvested", 128, "", |machine| {
        let stream = machine.held_stream();
        let keep = |value: u8| {
            let block = malloc_on(16 * MIB, stream).expect("fits");
            machine.fill(stream, block, value, 16 * MIB);
            (block, value)
        };
        let first = keep(1);
        let gone = malloc_on(64 * MIB, stream).expect("fits");
        fill_and_free(machine, stream, gone, 64 * MIB);
        let kept = [first, keep(2), keep(3)];
        let big = malloc_on(64 * MIB, stream).expect("the hole's pages");
        machine.fill(stream, big, 9, 64 * MIB);
        machine.synchronize_all();
        for (block, value) in kept {
            assert_eq!((machine.byte(block), machine.byte(block + 16 * MIB - 1)), (value, value));
        }
        assert!(stats(0).reserved <= 128 * MIB);
        machine.assert_clean();
    });
}

/// A host wait where no stream wait is allowed: for the one stream that has the memory.
#[test]
fn s5_a_wait_is_for_the_right_stream_alone() {
    let test = "s5_a_wait_is_for_the_right_stream_alone";
    sharing(test, 4096, "memory_limit:256MiB,share:passed", |machine| {
        let context = machine.context();
        let [s1, s2, s3, s4] = machine.held_streams();
        let hot = malloc_on(MIB, s4).expect("fits");
        process::free(hot).expect("live");
        let live = malloc_on(124 * MIB, s2).expect("fits");
        let a = malloc_on(128 * MIB, s1).expect("fits");
        machine.gate(s1, 1);
        machine.fill(s1, a, 1, 128 * MIB);
        process::free(a).expect("live");
        let small = malloc_on(MIB, s3).expect("fits");
        machine.gate(s3, 3);
        machine.fill(s3, small, 1, MIB);
        process::free(small).expect("live");
        // More than there could ever be fails at once.
        assert!(is_out_of_memory(&malloc_on(384 * MIB, s2)));
        assert!(is_out_of_memory(&without_waiting(128 * MIB, s2)), "it may not wait");
        assert_eq!(stats(0).wait_count, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                machine.set_context(context);
                while stats(0).wait_count == 0 {
                    std::thread::yield_now();
                }
                for _ in 0..100_000 {
                    let block = malloc_on(MIB, s4).expect("cached");
                    process::free(block).expect("live");
                }
                machine.sim.gate_open(1);
            });
            let c = malloc_on(128 * MIB, s2).expect("the memory of s1, once its work is over");
            machine.fill(s2, c, 2, 128 * MIB);
        });
        assert_eq!(machine.sim.calls("cuCtxSynchronize"), 0);
        assert_eq!(stats(0).rung_host_wait_count, 1);
        machine.sim.gate_open(3);
        process::free(live).expect("live");
        machine.assert_clean();
    });
}

/// The same, by a stream wait: nobody waits on the host at all.
#[test]
fn s5_a_stream_wait_holds_nobody_up() {
    let test = "s5_a_stream_wait_holds_nobody_up";
    sharing(test, 4096, "memory_limit:256MiB", |machine| {
        let [s1, s2, s3] = machine.held_streams();
        malloc_on(120 * MIB, s2).expect("fits");
        let a = malloc_on(128 * MIB, s1).expect("fits");
        machine.gate(s1, 1);
        fill_and_free(machine, s1, a, 128 * MIB);
        let small = malloc_on(MIB, s3).expect("fits");
        machine.gate(s3, 3);
        fill_and_free(machine, s3, small, MIB);
        let c = malloc_on(128 * MIB, s2).expect("at once");
        machine.fill(s2, c, 2, 128 * MIB);
        assert_eq!((stats(0).wait_count, stats(0).rung_stream_wait_count), (0, 1));
        machine.sim.gate_open(1);
        machine.synchronize(s2);
        machine.sim.gate_open(3);
        machine.assert_clean();
    });
}

#[test]
fn s6_a_creeping_size_strands_nothing() {
    let environment = [("SIMCUDA_MEMORY", "1GiB"), ("SIMCUDA_CHECKER", "log")];
    isolated("s6_a_creeping_size_strands_nothing", &environment, |machine| {
        machine.use_device(0);
        for step in 0..4096 {
            let block = malloc(16 * MIB + step * 4096, 0).expect("fits");
            machine.fill(0, block, 1, 1);
            process::free(block).expect("live");
        }
        assert!(stats(0).reserved <= 34 * MIB, "{}", stats(0).reserved);
        assert!(machine.sim.calls("cuMemCreate") <= 32);
        process::empty_cache(0).expect("the driver works");
        assert_eq!(stats(0).reserved, 0);
        machine.assert_clean();
    });
}

// The scenarios of PyTorch's reports.

/// The memory that is wanted is in limbo, beside live memory: one wait, and it is there.
#[test]
fn pytorch_s1_no_spurious_out_of_memory() {
    sharing("pytorch_s1_no_spurious_out_of_memory", 4096, "memory_limit:20MiB", |machine| {
        let [s0, s1] = machine.held_streams();
        let a = malloc_on(4 * MIB, s0).expect("fits");
        let x = malloc_on(16 * MIB, s0).expect("fits");
        machine.fill(s0, a, 7, 4 * MIB);
        machine.order(s0, s1);
        machine.fill(s1, x, 1, 16 * MIB);
        process::record_stream(x, s1).expect("live");
        process::free(x).expect("live");
        let y = malloc_on(16 * MIB, s0).expect("once s1 is done");
        machine.fill(s0, y, 2, 16 * MIB);
        assert_eq!(y, x);
        assert!(stats(0).wait_count <= 1);
        assert_eq!((stats(0).out_of_memory_count, stats(0).reserved), (0, 20 * MIB));
        assert_eq!(machine.sim.calls("cuMemUnmap"), 0);
        machine.synchronize_all();
        assert_eq!(machine.byte(a), 7);
        machine.assert_clean();
    });
}

/// Who will not wait is told so, and gets the memory later.
#[test]
fn pytorch_s1_no_wait_fails_and_succeeds_later() {
    let test = "pytorch_s1_no_wait_fails_and_succeeds_later";
    sharing(test, 4096, "memory_limit:20MiB", |machine| {
        let [s0, s1] = machine.held_streams();
        malloc_on(4 * MIB, s0).expect("fits");
        let x = malloc_on(16 * MIB, s0).expect("fits");
        machine.gate(s1, 1);
        machine.fill(s1, x, 1, 16 * MIB);
        process::record_stream(x, s1).expect("live");
        process::free(x).expect("live");
        assert!(is_out_of_memory(&without_waiting(16 * MIB, s0)));
        let within = process::malloc_in(process::CURRENT_POOL, 16 * MIB, 0, 0, s0, Some(5));
        assert!(is_out_of_memory(&within), "five milliseconds are not enough");
        machine.sim.gate_open(1);
        machine.synchronize(s1);
        assert_eq!(without_waiting(16 * MIB, s0), Ok(x));
        machine.assert_clean();
    });
}

/// Thirty-two streams, one after another: the memory of those that have finished moves on.
#[test]
fn pytorch_s4_streams_strand_no_memory() {
    for opened in [true, false] {
        let test = "pytorch_s4_streams_strand_no_memory";
        let environment = [("SIMCUDA_MEMORY", "80GiB"), ("SIMCUDA_CHECKER", "log")];
        isolated(test, &environment, |machine| {
            machine.use_device(0);
            for _ in 0..32 {
                let stream = machine.stream();
                if opened {
                    process::stream_open(0, stream).expect("a stream");
                }
                let blocks = [0, 1].map(|_| malloc_on(1024 * MIB, stream).expect("fits"));
                blocks.iter().for_each(|&block| machine.fill(stream, block, 1, 1));
                machine.synchronize(stream);
                blocks.iter().for_each(|&block| process::free(block).expect("live"));
            }
            assert!(stats(0).reserved <= 2048 * MIB, "{:?}", stats(0));
            machine.assert_clean();
        });
    }
}

// The other doors.

#[test]
fn a_noted_wait_makes_crossing_free() {
    sharing("a_noted_wait_makes_crossing_free", 64, "memory_limit:16MiB", |machine| {
        let [a, b, c] = machine.held_streams();
        let p = malloc_on(8 * MIB, a).expect("fits");
        machine.gate(a, 1);
        fill_and_free(machine, a, p, 8 * MIB);
        machine.order(a, b);
        process::note_wait(0, b, a).expect("two streams");
        machine.order(b, c);
        process::note_wait(0, c, b).expect("two streams");
        // Freed after the wait: not seen.
        let late = malloc_on(8 * MIB, a).expect("a has it");
        machine.fill(a, late, 2, 8 * MIB);
        let records = machine.sim.calls("cuEventRecord");
        let other = malloc_on(8 * MIB, b).expect("there is room");
        process::free(late).expect("live");
        process::free(other).expect("live");
        let q = malloc_on(8 * MIB, c).expect("there is memory");
        machine.fill(c, q, 3, 8 * MIB);
        assert!(machine.sim.calls("cuEventRecord") >= records);
        machine.sim.gate_open(1);
        machine.synchronize_all();
        machine.assert_clean();
    });
}

/// What b waits for, c sees through b; no driver call is made for it.
#[test]
fn what_was_seen_crosses_without_a_driver_call() {
    let test = "what_was_seen_crosses_without_a_driver_call";
    sharing(test, 64, "memory_limit:16MiB", |machine| {
        let [a, b, c] = machine.held_streams();
        for bytes in [8 * MIB, 4096] {
            let p = malloc_on(bytes, a).expect("fits");
            machine.gate(a, bytes);
            fill_and_free(machine, a, p, bytes);
            for (thief, donor) in [(b, a), (c, b)] {
                machine.order(donor, thief);
                process::note_wait(0, thief, donor).expect("two streams");
            }
            let calls = stats(0).driver_call_count;
            let q = malloc_on(bytes, c).expect("the block of a");
            assert_eq!((q, stats(0).driver_call_count), (p, calls));
            machine.fill(c, q, 2, bytes);
            process::free(q).expect("live");
            // And a has not seen c: it gets it back behind a wait only.
            let r = malloc_on(bytes, a).expect("there is memory");
            machine.fill(a, r, 3, bytes);
            machine.sim.gate_open(bytes);
            process::free(r).expect("live");
            machine.synchronize_all();
        }
        machine.assert_clean();
    });
}

#[test]
fn a_block_is_freed_on_the_stream_that_used_it_last() {
    let test = "a_block_is_freed_on_the_stream_that_used_it_last";
    sharing(test, 64, "memory_limit:16MiB", |machine| {
        let [a, b] = machine.held_streams();
        for bytes in [8 * MIB, 4096] {
            let p = malloc_on(bytes, a).expect("fits");
            machine.fill(a, p, 1, bytes);
            machine.order(a, b);
            machine.fill(b, p, 2, bytes);
            process::free_on(p, b).expect("live");
            assert!(matches!(process::free_on(p, b), Err(Error::DoubleFree(_))));
            let q = malloc_on(bytes, b).expect("b has it");
            assert!(q.abs_diff(p) < bytes || bytes == 4096, "the block that was given to b");
            machine.fill(b, q, 3, bytes);
            let r = malloc_on(bytes, a).expect("a has none");
            assert_ne!(r, p);
            machine.fill(a, r, 4, bytes);
            process::free(q).expect("live");
            process::free_on(r, a).expect("its own stream");
        }
        machine.assert_clean();
    });
}

#[test]
fn a_block_is_freed_after_an_event() {
    sharing("a_block_is_freed_after_an_event", 64, "memory_limit:16MiB", |machine| {
        let [a, b] = machine.held_streams();
        for (round, bytes) in [8 * MIB, 4096, 8 * MIB].into_iter().enumerate() {
            let p = malloc_on(bytes, a).expect("fits");
            machine.order(a, b);
            machine.gate(b, round as u64 + 1);
            machine.fill(b, p, 1, bytes);
            let event = machine.event(b);
            process::free_after(p, event).expect("live");
            // The event is the caller's again, and may be gone.
            machine.destroy_event(event);
            assert!(matches!(process::free_after(p, 0), Err(Error::DoubleFree(_))));
            let q = malloc_on(bytes, a).expect("there is room");
            assert_ne!(q, p);
            machine.fill(a, q, 2, bytes);
            process::free(q).expect("live");
            machine.sim.gate_open(round as u64 + 1);
            machine.synchronize_all();
            let whole = malloc_on(16 * MIB, a).expect("all is free again");
            machine.fill(a, whole, 3, 16 * MIB);
            process::free(whole).expect("live");
        }
        let p = malloc_on(MIB, a).expect("fits");
        assert!(process::free_after(p, 0xdead_0000).is_err(), "that is no event");
        process::free(p).expect("it is still live");
        machine.assert_clean();
    });
}

/// A block that names no stream is everybody's at once; and so is its free.
#[test]
fn any_stream_gets_memory_that_is_over() {
    sharing("any_stream_gets_memory_that_is_over", 64, "memory_limit:16MiB", |machine| {
        let [a, b] = machine.held_streams();
        let p = malloc_on(8 * MIB, a).expect("fits");
        machine.gate(a, 1);
        fill_and_free(machine, a, p, 8 * MIB);
        let any = malloc_on(8 * MIB, process::ANY_STREAM).expect("fresh memory");
        assert!(any.abs_diff(p) >= 8 * MIB);
        assert!(is_out_of_memory(&without_waiting(4096, process::ANY_STREAM)));
        // Nothing orders these two but the block's being free for all.
        machine.fill(b, any, 1, 4 * MIB);
        machine.fill(a, any + 4 * MIB, 1, 4 * MIB);
        process::free(any).expect("live");
        let again = without_waiting(8 * MIB, process::ANY_STREAM);
        assert!(is_out_of_memory(&again), "a is held up: {again:?}");
        machine.sim.gate_open(1);
        let last = malloc_on(16 * MIB, process::ANY_STREAM).expect("all, once it is over");
        machine.fill(b, last, 2, 16 * MIB);
        machine.synchronize_all();
        process::free(last).expect("live");
        let small = malloc_on(4096, b).expect("there is memory");
        machine.fill(b, small, 3, 4096);
        machine.assert_clean();
    });
}

/// A free block of an idle stream that shares its pages with live ones is no reason to fail.
#[test]
fn no_out_of_memory_while_a_fitting_block_is_free() {
    for sharing_option in ["wait", "passed"] {
        let test = "no_out_of_memory_while_a_fitting_block_is_free";
        let configuration = format!("memory_limit:2MiB,share:{sharing_option}");
        sharing(test, 64, &configuration, |machine| {
            for opened in [true, false] {
                let (a, b) = (machine.stream(), machine.stream());
                if opened {
                    process::stream_open(0, a).expect("a stream");
                    process::stream_open(0, b).expect("a stream");
                }
                let live = malloc_on(256 << 10, a).expect("fits");
                let free = malloc_on(MIB, a).expect("fits");
                let behind = malloc_on(768 << 10, a).expect("fits");
                fill_and_free(machine, a, free, MIB);
                let got = malloc_on(MIB, b).expect("it is free");
                assert_eq!(got, free);
                machine.fill(b, got, 2, MIB);
                for block in [live, behind, got] {
                    process::free(block).expect("live");
                }
                process::empty_cache(0).expect("the driver works");
            }
            machine.assert_clean();
        });
    }
}

/// Recorded blocks are used again with one event and no miss a round.
#[test]
fn a_loop_with_recorded_blocks_hits() {
    let environment = [("SIMCUDA_MEMORY", "1GiB"), ("SIMCUDA_CHECKER", "log")];
    isolated("a_loop_with_recorded_blocks_hits", &environment, |machine| {
        machine.use_device(0);
        let [main, side] = machine.held_streams();
        let round = || {
            let block = malloc_on(4 * MIB, main).expect("fits");
            machine.fill(main, block, 1, 4 * MIB);
            machine.order(main, side);
            machine.fill(side, block, 2, 4 * MIB);
            process::record_stream(block, side).expect("live");
            process::free(block).expect("live");
            machine.synchronize(side);
        };
        round();
        round();
        let before = (stats(0), machine.sim.calls("cuEventQuery"));
        let records = machine.sim.calls("cuEventRecord");
        (0..100).for_each(|_| round());
        let now = stats(0);
        assert_eq!(now.miss_count, before.0.miss_count);
        assert_eq!(now.hit_count, before.0.hit_count + 100);
        assert!(machine.sim.calls("cuEventQuery") <= before.1 + 100);
        // One of ours and one of the program's a round.
        assert!(machine.sim.calls("cuEventRecord") <= records + 200);
        machine.assert_clean();
    });
}

/// With isolation asked for, streams share by way of the driver's pages alone.
#[test]
fn isolation_is_kept_where_it_is_asked_for() {
    sharing("isolation_is_kept_where_it_is_asked_for", 256, "share:never", |machine| {
        let [a, b] = machine.held_streams();
        let p = malloc_on(8 * MIB, a).expect("fits");
        fill_and_free(machine, a, p, 8 * MIB);
        machine.synchronize_all();
        let q = malloc_on(8 * MIB, b).expect("fits");
        assert_ne!(p, q);
        assert_eq!((stats(0).crossing_count, stats(0).reserved), (0, 16 * MIB));
        machine.assert_clean();
    });
}

/// A thousand streams, one after another: they leave no trace, neither in memory nor in slots.
#[test]
fn dead_streams_leave_nothing_behind() {
    let environment = [("SIMCUDA_MEMORY", "1GiB"), ("SIMCUDA_CHECKER", "log")];
    isolated("dead_streams_leave_nothing_behind", &environment, |machine| {
        machine.use_device(0);
        for round in 0..1000 {
            let stream = machine.held_stream();
            let block = malloc_on(4096, stream).expect("fits");
            machine.fill(stream, block, round as u8, 4096);
            process::free(block).expect("live");
            process::stream_retire(0, stream).expect("open");
            machine.synchronize(stream);
            machine.destroy_stream(stream);
        }
        assert!(stats(0).reserved <= 4 * MIB, "{}", stats(0).reserved);
        machine.assert_clean();
    });
}
