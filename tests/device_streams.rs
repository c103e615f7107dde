//! The order of work: whatever the schedule, no use of memory is unordered with its next owner's.
//! The simulated driver's happens-before checker is the judge.

mod machine;

use std::sync::atomic::{AtomicBool, Ordering};

use cuddy::process;
use machine::*;

const SCHEDULES: [&str; 6] = ["eager", "lazy", "lag:3", "lag:1000", "random:1", "random:7"];

/// Runs a scenario under every schedule, with the checker on.
fn under_every_schedule(test: &str, more: &[(&str, &str)], body: impl Fn(&Machine)) {
    let device = [("SIMCUDA_MEMORY", "4GiB"), ("SIMCUDA_DEVICES", "2")];
    under(&SCHEDULES, test, &[&device, more].concat(), body);
}

#[test]
fn on_one_stream_a_freed_block_is_used_again_at_once() {
    under_every_schedule("on_one_stream_a_freed_block_is_used_again_at_once", &[], |machine| {
        let created = machine.stream();
        for stream in [0, 1, 2, created] {
            let first = malloc_on(3 * MIB, stream).expect("fits");
            machine.fill(stream, first, 1, 3 * MIB);
            process::free(first).expect("live");
            let second = malloc_on(3 * MIB, stream).expect("cached");
            assert_eq!(first, second);
            machine.fill(stream, second, 2, 3 * MIB);
            process::free(second).expect("live");
        }
        assert_eq!(stats(0).wait_count, 0);
        machine.assert_clean();
    });
}

#[test]
fn another_stream_does_not_get_memory_with_pending_work() {
    under_every_schedule("another_stream_does_not_get_memory_with_pending_work", &[], |machine| {
        let (a, b) = (machine.stream(), machine.stream());
        let streams = [0, 2, a, b];
        for round in 0..40u64 {
            let stream = streams[round as usize % 4];
            let block = malloc_on(MIB + round * 4096, stream).expect("fits");
            machine.fill(stream, block, round as u8, MIB + round * 4096);
            process::free(block).expect("live");
        }
        machine.assert_clean();
    });
}

#[test]
fn a_recorded_block_waits_for_each_kind_of_stream() {
    under_every_schedule("a_recorded_block_waits_for_each_kind_of_stream", &[], |machine| {
        let (held, borrowed, owner) = (machine.held_stream(), machine.stream(), machine.stream());
        for user in [0, 2, held, borrowed] {
            let block = malloc_on(8 * MIB, owner).expect("fits");
            machine.fill(owner, block, 1, 8 * MIB);
            machine.synchronize(owner);
            machine.fill(user, block, 2, 8 * MIB);
            process::record_stream(block, user).expect("live");
            process::record_stream(block, owner).expect("a no-op");
            process::free(block).expect("live");
            assert_eq!((stats(0).allocated, stats(0).limbo_block_count), (0, 1));
            assert_eq!(stats(0).active, 8 * MIB);
            // Whether the work is over by now is for the schedule to say; the checker judges.
            let next = malloc_on(8 * MIB, owner).expect("fits");
            machine.fill(owner, next, 3, 8 * MIB);
            process::free(next).expect("live");
            machine.synchronize_all();
            process::empty_cache(0).expect("the driver works");
            assert_eq!((stats(0).active, stats(0).limbo_block_count), (0, 0));
        }
        machine.assert_clean();
    });
}

#[test]
fn recorded_memory_is_not_reused_while_its_stream_is_held_up() {
    let test = "recorded_memory_is_not_reused_while_its_stream_is_held_up";
    under_every_schedule(test, &[], |machine| {
        let (held, borrowed, owner) = (machine.held_stream(), machine.stream(), machine.stream());
        for (gate, user) in [(1, 2), (2, held), (3, borrowed)] {
            let block = malloc_on(8 * MIB, owner).expect("fits");
            machine.gate(user, gate);
            machine.fill(user, block, 1, 8 * MIB);
            process::record_stream(block, user).expect("live");
            process::free(block).expect("live");
            let other = malloc_on(8 * MIB, owner).expect("there is memory");
            assert!(!overlap((block, 8 * MIB), (other, 8 * MIB)));
            machine.fill(owner, other, 2, 8 * MIB);
            process::free(other).expect("live");
            machine.sim.gate_open(gate);
            machine.synchronize_all();
            // Both blocks can be had again, with no more memory than before.
            let reserved = stats(0).reserved;
            let both = malloc_on(16 * MIB, owner).expect("the blocks lie side by side");
            machine.fill(owner, both, 3, 16 * MIB);
            assert_eq!(stats(0).reserved, reserved);
            process::free(both).expect("live");
            machine.synchronize_all();
            process::empty_cache(0).expect("the driver works");
        }
        machine.assert_clean();
    });
}

#[test]
fn a_slow_stream_holds_up_its_own_blocks_only() {
    let environment =
        [("SIMCUDA_MEMORY", "4GiB"), ("SIMCUDA_CHECKER", "log"), ("SIMCUDA_SCHEDULE", "eager")];
    isolated("a_slow_stream_holds_up_its_own_blocks_only", &environment, |machine| {
        machine.use_device(0);
        let (slow, fast, main) = (machine.stream(), machine.stream(), machine.stream());
        for stream in [slow, fast] {
            process::stream_open(0, stream).expect("a stream");
        }
        let x = malloc_on(64 * MIB, main).expect("fits");
        let y = malloc_on(64 * MIB, main).expect("fits");
        process::record_stream(x, slow).expect("live");
        process::record_stream(y, fast).expect("live");
        machine.gate(slow, 1);
        machine.fill(slow, x, 1, 64 * MIB);
        machine.fill(fast, y, 1, 64 * MIB);
        machine.synchronize(fast);
        process::free(x).expect("live");
        process::free(y).expect("live");
        let (reserved, created) = (stats(0).reserved, machine.sim.calls("cuMemCreate"));
        let z = malloc_on(64 * MIB, main).expect("y is free");
        machine.fill(main, z, 2, 64 * MIB);
        assert_eq!(z, y);
        assert_eq!((stats(0).reserved, machine.sim.calls("cuMemCreate")), (reserved, created));
        assert_eq!((stats(0).active, stats(0).allocated), (128 * MIB, 64 * MIB));
        process::free(z).expect("live");
        for round in 0..50 {
            let stream = if round % 2 == 0 { slow } else { fast };
            let block = malloc_on(MIB, main).expect("fits");
            machine.order(main, stream);
            machine.fill(stream, block, 3, MIB);
            process::record_stream(block, stream).expect("live");
            process::free(block).expect("live");
        }
        assert!(stats(0).reserved <= reserved, "every fast block is used again");
        machine.sim.gate_open(1);
        machine.assert_clean();
    });
}

#[test]
fn a_short_device_waits_for_the_right_stream_and_for_no_other() {
    let environment = [
        ("SIMCUDA_MEMORY", "4GiB"),
        ("SIMCUDA_CHECKER", "log"),
        ("SIMCUDA_SCHEDULE", "lazy"),
        ("CUDDY_CONF", "share:never"),
    ];
    isolated(
        "a_short_device_waits_for_the_right_stream_and_for_no_other",
        &environment,
        |machine| {
            let context = machine.use_device(0);
            process::set_memory_limit(0, 256 * MIB).expect("a device");
            let streams: Vec<usize> = (0..4).map(|_| machine.stream()).collect();
            let [s1, s2, s3, s4] = streams[..] else { panic!("four streams") };
            for stream in streams {
                process::stream_open(0, stream).expect("a stream");
            }
            let a = malloc_on(128 * MIB, s1).expect("fits");
            machine.gate(s1, 1);
            machine.fill(s1, a, 1, 128 * MIB);
            let b = malloc_on(64 * MIB, s2).expect("fits");
            let small = malloc_on(MIB, s3).expect("fits");
            let hot = malloc_on(MIB, s4).expect("fits");
            process::free(hot).expect("live");
            process::free(a).expect("live");
            // This stream goes on only after the request below has been served.
            machine.gate(s3, 3);
            machine.fill(s3, small, 1, MIB);
            process::free(small).expect("live");
            // A request that can never be served waits for nobody.
            let waits = stats(0).wait_count;
            assert!(malloc_on(384 * MIB, s2).is_err());
            assert_eq!(stats(0).wait_count, waits);
            let served = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    machine.set_context(context);
                    while stats(0).wait_count == waits && !served.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                    // The other thread waits; the cache of a third stream works on.
                    for _ in 0..100 {
                        let block = malloc_on(MIB, s4).expect("cached");
                        process::free(block).expect("live");
                    }
                    assert!(
                        !served.load(Ordering::SeqCst),
                        "it cannot be served before the gate opens"
                    );
                    machine.sim.gate_open(1);
                });
                let c = malloc_on(128 * MIB, s2).expect("the memory of s1, once it has passed");
                served.store(true, Ordering::SeqCst);
                machine.fill(s2, c, 2, 128 * MIB);
                process::free(c).expect("live");
            });
            assert_eq!((stats(0).retry_count, stats(0).harvest_count), (1, 1));
            assert_eq!(machine.sim.calls("cuCtxSynchronize"), 0);
            machine.sim.gate_open(3);
            process::free(b).expect("live");
            process::empty_cache(0).expect("the driver works");
            assert_eq!(machine.sim.used(0), 0);
            machine.assert_clean();
        },
    );
}

#[test]
fn memory_that_another_miss_claims_and_leaves_is_waited_for() {
    let environment = [
        ("SIMCUDA_MEMORY", "4GiB"),
        ("SIMCUDA_CHECKER", "log"),
        ("SIMCUDA_SCHEDULE", "lazy"),
        ("CUDDY_CONF", "share:never"),
    ];
    let test = "memory_that_another_miss_claims_and_leaves_is_waited_for";
    isolated(test, &environment, |machine| {
        let context = machine.use_device(0);
        process::set_memory_limit(0, 256 * MIB).expect("a device");
        let [s1, s2] = machine.held_streams();
        let block = malloc_on(250 * MIB, s1).expect("fits");
        machine.gate(s1, 1);
        machine.fill(s1, block, 1, 1);
        process::free(block).expect("live");
        // The first miss claims all of it, waits for its stream, and then fails.
        machine.sim.fault("cuEventSynchronize", 1, 0, UNKNOWN, true).expect("a function");
        let misses = || machine.sim.calls("cuCtxGetId");
        let before = misses();
        let until = |reached: &dyn Fn() -> bool| {
            while !reached() {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            let failing = scope.spawn(|| {
                machine.set_context(context);
                malloc_on(250 * MIB, s2)
            });
            until(&|| stats(0).wait_count == 1 || failing.is_finished());
            let served = scope.spawn(|| {
                machine.set_context(context);
                malloc_on(250 * MIB, s1)
            });
            until(&|| misses() > before + 1 || served.is_finished());
            (0..1000).for_each(|_| std::thread::yield_now());
            machine.sim.gate_open(1);
            assert!(failing.join().expect("it lives").is_err());
            assert_eq!(served.join().expect("it lives"), Ok(block), "its own memory, left alone");
        });
        machine.fill(s1, block, 2, 250 * MIB);
        process::free(block).expect("live");
        process::empty_cache(0).expect("the driver works");
        assert_eq!(machine.sim.used(0), 0);
        machine.assert_clean();
    });
}

#[test]
fn giving_back_waits_for_pending_work() {
    under_every_schedule("giving_back_waits_for_pending_work", &[], |machine| {
        let (held, borrowed) = (machine.held_stream(), machine.stream());
        for stream in [0, 2, held, borrowed] {
            let block = malloc_on(20 * MIB, stream).expect("fits");
            machine.fill(stream, block, 1, 20 * MIB);
            process::free(block).expect("live");
            assert_eq!(process::empty_cache(0), Ok(20 * MIB));
            assert_eq!(machine.sim.used(0), 0);
        }
        machine.assert_clean();
    });
}

#[test]
fn harvesting_waits_for_pending_work() {
    let alone = [("CUDDY_CONF", "share:never")];
    under_every_schedule("harvesting_waits_for_pending_work", &alone, |machine| {
        process::set_memory_limit(0, 64 * MIB).expect("a device");
        let (held, borrowed) = (machine.held_stream(), machine.stream());
        let streams = [0, held, 2, borrowed];
        for round in 0..32 {
            let stream = streams[round % 4];
            let block = malloc_on(60 * MIB, stream).expect("the others' memory is taken");
            machine.fill(stream, block, 1, 60 * MIB);
            process::free(block).expect("live");
        }
        assert!(stats(0).harvest_count >= 28, "{:?}", stats(0));
        assert!(machine.sim.used_peak(0) <= 64 * MIB);
        machine.assert_clean();
    });
}

#[test]
fn a_recycled_handle_is_another_stream() {
    under_every_schedule("a_recycled_handle_is_another_stream", &[], |machine| {
        let mut recycled = 0;
        for round in 0..8u64 {
            let old = machine.stream();
            let block = malloc_on(4 * MIB, old).expect("fits");
            machine.gate(old, 100 + round);
            machine.fill(old, block, 1, 4 * MIB);
            process::free(block).expect("live");
            machine.destroy_stream(old);
            let new = machine.stream();
            recycled += u32::from(old == new);
            let next = malloc_on(4 * MIB, new).expect("fits");
            assert!(!overlap((block, 4 * MIB), (next, 4 * MIB)));
            machine.fill(new, next, 2, 4 * MIB);
            machine.sim.gate_open(100 + round);
            machine.synchronize(new);
            process::free(next).expect("live");
            machine.destroy_stream(new);
        }
        assert!(recycled > 0, "the simulated driver has recycled no handle");
        process::empty_cache(0).expect("the driver works");
        assert_eq!(machine.sim.used(0), 0);
        machine.assert_clean();
    });
}

#[test]
fn a_retired_stream_leaves_its_memory_behind_its_last_fence() {
    under_every_schedule(
        "a_retired_stream_leaves_its_memory_behind_its_last_fence",
        &[],
        |machine| {
            process::set_memory_limit(0, 32 * MIB).expect("a device");
            for _ in 0..4 {
                let old = machine.held_stream();
                process::stream_open(0, old).expect("twice is once");
                let early = malloc_on(8 * MIB, old).expect("fits");
                let late = malloc_on(8 * MIB, old).expect("fits");
                machine.fill(old, early, 1, 8 * MIB);
                machine.fill(old, late, 1, 8 * MIB);
                process::free(early).expect("live");
                process::stream_retire(0, old).expect("it is open");
                assert!(process::stream_retire(0, old).is_err());
                machine.destroy_stream(old);
                process::free(late).expect("live");
                let new = machine.stream();
                let next = malloc_on(30 * MIB, new).expect("the old stream's memory");
                machine.fill(new, next, 2, 30 * MIB);
                process::free(next).expect("live");
                machine.destroy_stream(new);
            }
            assert_eq!(machine.sim.used(0), 32 * MIB);
            machine.assert_clean();
        },
    );
}

#[test]
fn per_thread_default_streams_are_not_mixed_up() {
    under_every_schedule("per_thread_default_streams_are_not_mixed_up", &[], |machine| {
        let context = machine.context();
        let p = std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                machine.set_context(context);
                let p = malloc_on(64 << 10, 2).expect("fits");
                machine.gate(2, 9);
                machine.fill(2, p, 1, 64 << 10);
                process::free(p).expect("live");
                p
            });
            first.join().expect("the thread lives")
        });
        // The other thread has exited; its work is pending.
        let q = malloc_on(64 << 10, 2).expect("fits");
        assert!(!overlap((p, 64 << 10), (q, 64 << 10)));
        machine.fill(2, q, 2, 64 << 10);
        machine.sim.gate_open(9);
        process::free(q).expect("live");
        process::empty_cache(0).expect("the driver works");
        assert_eq!(machine.sim.used(0), 0);
        machine.assert_clean();
    });
}

#[test]
fn trusted_streams_are_held_without_being_opened() {
    let more = [("CUDDY_CONF", "streams:trusted")];
    under_every_schedule("trusted_streams_are_held_without_being_opened", &more, |machine| {
        let stream = machine.stream();
        let block = malloc_on(MIB, stream).expect("fits");
        process::free(block).expect("live");
        let calls = machine.sim.calls_total();
        let block = malloc_on(MIB, stream).expect("cached");
        assert_eq!(machine.sim.calls_total(), calls);
        machine.fill(stream, block, 1, MIB);
        process::free(block).expect("live");
        process::empty_cache(0).expect("the driver works");
        assert_eq!(machine.sim.calls("cuCtxSynchronize"), 0);
        machine.assert_clean();
    });
}

#[test]
fn an_old_driver_takes_opened_streams_only() {
    let environment = [("SIMCUDA_DRIVER", "11040"), ("SIMCUDA_CHECKER", "log")];
    isolated("an_old_driver_takes_opened_streams_only", &environment, |machine| {
        machine.use_device(0);
        let stream = machine.stream();
        let error = malloc_on(MIB, stream).expect_err("it cannot be told apart");
        assert!(error.to_string().contains("CUDA 11.4"), "{error}");
        process::stream_open(0, stream).expect("a stream");
        let block = malloc_on(MIB, stream).expect("fits");
        machine.fill(stream, block, 1, MIB);
        process::record_stream(block, 2).expect("live");
        process::free(block).expect("live");
        process::empty_cache(0).expect("the driver works");
        assert_eq!(stats(0).active, 0);
        machine.assert_clean();
    });
}

#[test]
fn streams_of_another_context_are_kept_apart() {
    under_every_schedule("streams_of_another_context_are_kept_apart", &[], |machine| {
        let primary = machine.context();
        let block = malloc(4 * MIB, 0).expect("fits");
        machine.gate(0, 1);
        machine.fill(0, block, 1, 4 * MIB);
        process::free(block).expect("live");
        let other = machine.create_context(0);
        // The legacy stream of this context is not that of the primary one.
        let there = process::malloc(4 * MIB, 0, process::CURRENT_DEVICE, 0).expect("fits");
        assert!(!overlap((block, 4 * MIB), (there, 4 * MIB)));
        machine.fill(0, there, 2, 4 * MIB);
        let stream = machine.stream();
        let created = malloc_on(4 * MIB, stream).expect("fits");
        machine.fill(stream, created, 3, 4 * MIB);
        process::record_stream(created, 0).expect("live");
        machine.fill(0, created, 3, 0);
        process::free(there).expect("live");
        process::free(created).expect("live");
        machine.sim.gate_open(1);
        assert_eq!(process::empty_cache(0), Ok(12 * MIB));
        assert_eq!(machine.context(), other);
        machine.destroy_context(other);
        machine.set_context(primary);
        let again = malloc(4 * MIB, 0).expect("fits");
        process::free(again).expect("live");
        process::empty_cache(0).expect("a context that is gone has no work");
        machine.assert_clean();
    });
}

#[test]
fn streams_of_another_device_are_refused() {
    under_every_schedule("streams_of_another_device_are_refused", &[], |machine| {
        let first = machine.context();
        machine.use_device(1);
        let stream = machine.stream();
        machine.set_context(first);
        for error in [
            malloc_on(MIB, stream).expect_err("of device 1"),
            process::stream_open(0, stream).expect_err("of device 1"),
        ] {
            assert_eq!(error, cuddy::error::Error::WrongDevice { named: 0, actual: 1 });
        }
        for built_in in [0, 1, 2] {
            process::stream_open(0, built_in).expect("always known");
            process::stream_retire(0, built_in).expect("always known");
        }
    });
}

/// As a worker thread of PyTorch's is: its first call that needs a context is Cuddy's.
#[test]
fn a_thread_without_a_context_names_a_created_stream() {
    for conf in ["streams:trusted", "streams:checked"] {
        isolated(
            "a_thread_without_a_context_names_a_created_stream",
            &[("CUDDY_CONF", conf)],
            |machine| {
                machine.use_device(0);
                let stream = machine.stream();
                let block = std::thread::spawn(move || {
                    let block = process::malloc(MIB, 512, 0, stream).expect("memory");
                    process::free(block).expect("it is live");
                    block
                });
                let block = block.join().expect("the thread ends well");
                machine.fill(stream, block, 1, MIB);
                assert_eq!(process::malloc(MIB, 512, 0, stream), Ok(block));
            },
        );
    }
}
