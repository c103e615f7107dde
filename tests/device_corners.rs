//! Moments that few programs meet: two misses that want the same, a limit that falls while memory is
//! got, no addresses left, a context that never comes back.

mod machine;

use std::sync::atomic::{AtomicBool, Ordering};

use cuddy::error::Error;
use cuddy::process;
use machine::*;

/// Lets other threads run until it is so.
fn until(reached: impl Fn() -> bool) {
    while !reached() {
        std::thread::yield_now();
    }
}

#[test]
fn two_misses_that_wait_for_one_block_share_it() {
    let environment = [("SIMCUDA_MEMORY", "4GiB"), ("SIMCUDA_SCHEDULE", "eager")];
    isolated("two_misses_that_wait_for_one_block_share_it", &environment, |machine| {
        let context = machine.use_device(0);
        process::set_memory_limit(0, 8 * MIB).expect("a device");
        let [owner, user] = machine.held_streams();
        let block = malloc_on(8 * MIB, owner).expect("fits");
        machine.gate(user, 1);
        process::record_stream(block, user).expect("live");
        process::free(block).expect("live");
        std::thread::scope(|scope| {
            let miss = || {
                machine.set_context(context);
                malloc_on(4 * MIB, owner)
            };
            let both = [scope.spawn(miss), scope.spawn(miss)];
            until(|| stats(0).wait_count == 2 || both.iter().any(|miss| miss.is_finished()));
            machine.sim.gate_open(1);
            for miss in both {
                let half = miss.join().expect("it lives").expect("half of it is free");
                assert!(half == block || half == block + 4 * MIB);
            }
        });
    });
}

#[test]
fn without_addresses_left_free_memory_of_other_streams_makes_room() {
    let environment = [("CUDDY_CONF", "address_range:64MiB")];
    let test = "without_addresses_left_free_memory_of_other_streams_makes_room";
    isolated(test, &environment, |machine| {
        machine.use_device(0);
        machine.sim.fault("cuMemAddressReserve", 2, 1, OUT_OF_MEMORY, false).expect("a function");
        let (a, b) = (machine.stream(), machine.stream());
        let blocks: Vec<u64> =
            (0..8).map(|_| malloc_on(8 * MIB, a).expect("64 MiB of addresses")).collect();
        malloc_on(MIB, b).expect_err("all addresses are in use");
        for &block in &blocks[1..] {
            process::free(block).expect("live");
        }
        let block = malloc_on(40 * MIB, b).expect("pages are unmapped, and leave a gap");
        assert!(block > blocks[0] && stats(0).quarantined == 0);
        process::free(block).expect("live");
        process::free(blocks[0]).expect("live");
        process::empty_cache(0).expect("the driver works");
        assert_eq!(machine.sim.used(0), 0);
    });
}

#[test]
fn a_limit_that_has_been_set_holds_for_a_miss_under_way() {
    let environment = [("SIMCUDA_MEMORY", "8GiB")];
    isolated("a_limit_that_has_been_set_holds_for_a_miss_under_way", &environment, |_| {
        for _ in 0..50 {
            process::set_memory_limit(0, 0).expect("a device");
            std::thread::scope(|scope| {
                let miss = scope.spawn(|| malloc(6 * GIB, 0));
                until(|| stats(0).reserved >= 64 * MIB || miss.is_finished());
                process::set_memory_limit(0, GIB).expect("a device");
                let from_now_on = stats(0).reserved.max(GIB);
                let block = miss.join().expect("it lives");
                assert!(stats(0).reserved <= from_now_on, "{} reserved", stats(0).reserved);
                block.map_or(Ok(()), process::free).expect("live");
            });
            process::empty_cache(0).expect("the driver works");
        }
    });
}

#[test]
fn a_limit_for_all_devices_is_set_on_each_whatever_the_driver_says() {
    let environment = [("SIMCUDA_DEVICES", "2")];
    let test = "a_limit_for_all_devices_is_set_on_each_whatever_the_driver_says";
    isolated(test, &environment, |machine| {
        for device in [0, 1] {
            process::free(malloc(8 * MIB, device).expect("fits")).expect("live");
        }
        machine.sim.fault("cuMemUnmap", 1, 1, UNKNOWN, false).expect("a function");
        process::set_memory_limit(process::ALL_DEVICES, 2 * MIB).expect_err("it cannot give back");
        for device in [0, 1] {
            assert_eq!(process::memory_limit(device), Ok(2 * MIB));
        }
        process::set_option(b"memory_limit", b"1MiB").expect_err("it cannot give back");
        for device in [0, 1] {
            assert_eq!(process::memory_limit(device), Ok(MIB));
        }
    });
}

#[test]
fn fences_of_a_per_thread_stream_do_not_pile_up() {
    let environment = [("SIMCUDA_SCHEDULE", "eager")];
    isolated("fences_of_a_per_thread_stream_do_not_pile_up", &environment, |machine| {
        machine.use_device(0);
        let block = malloc(MIB, 0).expect("fits");
        for _ in 0..2000 {
            machine.fill(2, block, 1, 4);
            process::record_stream(block, 2).expect("live");
        }
        let events = machine.sim.objects("events");
        assert!(events < 200, "{events} events");
        process::free(block).expect("live");
    });
}

#[test]
fn a_recorded_free_costs_one_query_however_many_streams_there_are() {
    let environment = [("SIMCUDA_SCHEDULE", "eager")];
    let test = "a_recorded_free_costs_one_query_however_many_streams_there_are";
    isolated(test, &environment, |machine| {
        machine.use_device(0);
        let streams: Vec<usize> = (0..50).map(|_| machine.stream()).collect();
        for &stream in &streams {
            process::free(malloc_on(MIB, stream).expect("fits")).expect("live");
        }
        let block = malloc_on(8 * MIB, streams[0]).expect("fits");
        machine.fill(streams[1], block, 1, 4);
        process::record_stream(block, streams[1]).expect("live");
        machine.sim.clear_calls();
        process::free(block).expect("live");
        assert_eq!(malloc_on(8 * MIB, streams[0]), Ok(block), "its use is over");
        let queries = machine.sim.calls("cuEventQuery");
        assert!((1..=2).contains(&queries), "{queries} queries");
    });
}

#[test]
fn work_given_to_a_per_thread_stream_before_the_free_is_waited_for() {
    let test = "work_given_to_a_per_thread_stream_before_the_free_is_waited_for";
    for (schedule, driver) in [("eager", "13000"), ("lazy", "12040"), ("random:3", "12040")] {
        let environment = [
            ("SIMCUDA_CHECKER", "log"),
            ("SIMCUDA_SCHEDULE", schedule),
            ("SIMCUDA_DRIVER", driver),
        ];
        isolated(test, &environment, |machine| {
            let context = machine.use_device(0);
            let owner = machine.stream();
            for gate in [1, 2] {
                let block = malloc_on(8 * MIB, owner).expect("fits");
                // Recorded first, used then, as with every other stream.
                let work = || {
                    machine.set_context(context);
                    process::record_stream(block, 2).expect("live");
                    machine.gate(2, gate);
                    machine.fill(2, block, 1, 8 * MIB);
                };
                match gate {
                    1 => work(),
                    _ => std::thread::scope(|scope| scope.spawn(work).join().expect("it lives")),
                }
                process::free(block).expect("live");
                let next = malloc_on(8 * MIB, owner).expect("fits");
                machine.fill(owner, next, 2, 8 * MIB);
                machine.sim.gate_open(gate);
                machine.synchronize_all();
                process::free(next).expect("live");
                machine.synchronize_all();
            }
            process::empty_cache(0).expect("the driver works");
            assert_eq!((stats(0).active, machine.sim.used(0)), (0, 0));
            machine.assert_clean();
        });
    }
}

#[test]
fn a_context_that_never_comes_back_is_an_error() {
    isolated("a_context_that_never_comes_back_is_an_error", &[], |machine| {
        let block = malloc(MIB, 0).expect("fits");
        machine.sim.fault("cuCtxPushCurrent", 1, 1, 201, false).expect("a function");
        std::thread::scope(|scope| {
            let miss = scope.spawn(|| malloc(64 * MIB, 0));
            until(|| miss.is_finished() || machine.sim.faults_fired() > 1000);
            let ended = miss.is_finished();
            machine.sim.clear_faults();
            let answer = miss.join().expect("it lives");
            assert!(ended, "it tries for ever");
            assert_eq!(answer, Err(Error::DeviceReset(0)));
        });
        assert_eq!(process::free(block), Err(Error::DeviceReset(0)));
        process::free(malloc(MIB, 0).expect("fits")).expect("live");
    });
}

#[test]
fn a_new_segment_is_for_the_miss_that_got_it() {
    let environment = [("CUDDY_CONF", "backing:segments")];
    isolated("a_new_segment_is_for_the_miss_that_got_it", &environment, |_| {
        let over = AtomicBool::new(false);
        let failed = std::thread::scope(|scope| {
            let work = || {
                let mut outcome = Ok(());
                for _ in 0..1_000_000 {
                    outcome = outcome.and_then(|()| malloc(12 * MIB, 0)).and_then(process::free);
                }
                outcome
            };
            let workers = [scope.spawn(work), scope.spawn(work), scope.spawn(work)];
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    process::empty_cache(0).expect("the driver works");
                }
            });
            let outcomes = workers.map(|worker| worker.join().expect("it lives"));
            over.store(true, Ordering::Relaxed);
            outcomes.into_iter().find_map(Result::err)
        });
        assert_eq!(failed, None);
        assert_eq!(stats(0).active, 0);
    });
}
