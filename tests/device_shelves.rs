//! A thread's own free blocks: the counters stay true, no order is lost, and nothing is trapped.

mod machine;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use cuddy::error::Error;
use cuddy::process;
use cuddy::types::Address;
use machine::*;

const CHECKED: [(&str, &str); 2] = [("SIMCUDA_CHECKER", "log"), ("SIMCUDA_SCHEDULE", "lazy")];

/// Enough memory that a shelf holds blocks of every size used here.
fn warm_up() {
    process::free(malloc(64 * MIB, 0).expect("fits")).expect("live");
}

#[test]
fn a_block_that_was_freed_is_handed_out_again_with_no_call() {
    isolated("a_block_that_was_freed_is_handed_out_again_with_no_call", &CHECKED, |machine| {
        machine.use_device(0);
        warm_up();
        let held = machine.held_stream();
        for stream in [0, 1, 2, held] {
            for bytes in [1, 512, 3000, 60_000] {
                let first = malloc_on(bytes, stream).expect("fits");
                machine.fill(stream, first, 1, bytes);
                process::free(first).expect("live");
                let calls = machine.sim.calls_total();
                for round in 0..100 {
                    let again = malloc_on(bytes, stream).expect("cached");
                    assert_eq!(again, first, "round {round}, {bytes} bytes, stream {stream:#x}");
                    process::free(again).expect("live");
                }
                assert_eq!(machine.sim.calls_total(), calls, "{bytes} bytes, stream {stream:#x}");
            }
        }
        machine.assert_clean();
    });
}

#[test]
fn what_was_asked_for_is_known_of_a_block_off_a_shelf() {
    isolated("what_was_asked_for_is_known_of_a_block_off_a_shelf", &[], |_| {
        warm_up();
        let first = malloc(1000, 0).expect("fits");
        process::free(first).expect("live");
        let again = malloc(600, 0).expect("fits");
        assert_eq!(again, first);
        let info = process::block_info(again + 700).expect("live");
        assert_eq!((info.address, info.bytes, info.requested), (again, 1024, 600));
        assert_eq!((stats(0).requested, stats(0).allocated), (600, 1024));
        process::free(again).expect("live");
        assert_eq!(process::block_info(again), Err(Error::DoubleFree(Address(again))));
        assert_eq!(process::free(again), Err(Error::DoubleFree(Address(again))));
        assert_eq!(process::free(again + 512), Err(Error::DoubleFree(Address(again + 512))));
        assert_eq!(process::record_stream(again, 2), Err(Error::DoubleFree(Address(again))));
        assert_eq!((stats(0).requested, stats(0).allocated, stats(0).live_block_count), (0, 0, 0));
    });
}

#[test]
fn the_counters_are_true_while_threads_allocate_and_free() {
    const THREADS: u64 = 3;
    const ROUNDS: u64 = 20_000;
    isolated("the_counters_are_true_while_threads_allocate_and_free", &[], |machine| {
        machine.use_device(0);
        warm_up();
        let before = stats(0);
        let stop = AtomicBool::new(false);
        let context = machine.context();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    scope.spawn(move || {
                        machine.set_context(context);
                        let mut random = Random(thread);
                        let mut live: Vec<u64> = Vec::new();
                        let mut served = 0;
                        for _ in 0..ROUNDS {
                            if live.len() < 40 && random.below(2) == 0 {
                                let bytes = 1 + random.below(40_000);
                                live.push(
                                    malloc_on(bytes, [0, 2][random.below(2) as usize])
                                        .expect("fits"),
                                );
                                served += 1;
                            } else if !live.is_empty() {
                                let at = random.below(live.len() as u64) as usize;
                                process::free(live.swap_remove(at)).expect("live");
                            }
                        }
                        live.into_iter().for_each(|block| process::free(block).expect("live"));
                        served
                    })
                })
                .collect();
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let now = stats(0);
                    assert!(now.requested <= now.allocated && now.allocated <= now.active);
                    assert!(now.active <= now.reserved && now.reserved <= now.reserved_peak);
                    assert!(now.allocated <= now.allocated_peak);
                    assert_eq!(now.malloc_count - now.free_count, now.live_block_count);
                }
            });
            let served: u64 = threads.into_iter().map(|t| t.join().expect("no panic")).sum();
            stop.store(true, Ordering::Relaxed);
            let now = stats(0);
            assert_eq!(now.malloc_count - before.malloc_count, served);
            assert_eq!(now.hit_count + now.miss_count, now.malloc_count);
        });
        let after = stats(0);
        assert_eq!((after.allocated, after.requested, after.live_block_count), (0, 0, 0));
        process::empty_cache(0).expect("the driver works");
        assert_eq!((stats(0).reserved, machine.sim.used(0)), (0, 0));
    });
}

#[test]
fn peaks_are_exact_with_one_thread_and_never_too_low_with_two() {
    isolated("peaks_are_exact_with_one_thread_and_never_too_low_with_two", &[], |machine| {
        machine.ends_within(60);
        warm_up();
        let climb = |count: u64| {
            let blocks: Vec<u64> = (0..count).map(|_| malloc(4096, 0).expect("fits")).collect();
            blocks.into_iter().for_each(|block| process::free(block).expect("live"));
        };
        climb(6);
        process::reset_peak_stats(0).expect("a device");
        for count in [1, 3, 6, 2] {
            climb(count);
        }
        assert_eq!((stats(0).allocated_peak, stats(0).live_block_peak_count), (6 * 4096, 6));
        let held = malloc(60_000, 0).expect("fits");
        climb(5);
        process::free(held).expect("live");
        let peak = 5 * 4096 + 60_416;
        assert_eq!((stats(0).allocated_peak, stats(0).live_block_peak_count), (peak, 6));
        // Two threads, both at their highest at once, all of it off their shelves. What the books saw
        // before was less: each thread in its turn, and then told them what it had counted.
        let (ready, reset, turn, at_top) =
            (Barrier::new(3), Barrier::new(3), Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (ready, reset, turn, at_top) = (&ready, &reset, &turn, &at_top);
                scope.spawn(move || {
                    climb(6);
                    ready.wait();
                    reset.wait();
                    for whose in 0..2 {
                        if whose == thread {
                            climb(6);
                            let aligned = process::malloc(512, 1024, 0, 0).expect("fits");
                            process::free(aligned).expect("live");
                        }
                        turn.wait();
                    }
                    let blocks: Vec<u64> = (0..6).map(|_| malloc(4096, 0).expect("fits")).collect();
                    at_top.wait();
                    blocks.into_iter().for_each(|block| process::free(block).expect("live"));
                });
            }
            ready.wait();
            process::reset_peak_stats(0).expect("a device");
            reset.wait();
        });
        let truth = 12 * 4096;
        let peak = stats(0).allocated_peak;
        assert!(peak >= truth && peak <= truth + 3 * (64 << 10), "{peak} for {truth}");
    });
}

#[test]
fn what_others_held_counts_when_the_books_fall() {
    isolated("what_others_held_counts_when_the_books_fall", &[], |machine| {
        machine.ends_within(60);
        warm_up();
        process::reset_peak_stats(0).expect("a device");
        let turn = Barrier::new(2);
        let climb = || {
            let blocks: Vec<u64> = (0..6).map(|_| malloc(4096, 0).expect("fits")).collect();
            blocks.into_iter().for_each(|block| process::free(block).expect("live"));
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                climb();
                // By the books, which hear what this thread has counted.
                process::free(process::malloc(512, 1024, 0, 0).expect("fits")).expect("live");
                turn.wait();
                turn.wait();
                // Off the shelf: nobody hears of it.
                climb();
                turn.wait();
            });
            turn.wait();
            let large = [MIB, MIB].map(|bytes| malloc(bytes, 0).expect("fits"));
            turn.wait();
            turn.wait();
            large.into_iter().for_each(|block| process::free(block).expect("live"));
        });
        let (truth, peak) = (2 * MIB + 6 * 4096, stats(0).allocated_peak);
        assert!(peak >= truth && peak <= truth + 3 * (64 << 10), "{peak} for {truth}");
    });
}

#[test]
fn a_shelf_hides_nothing_from_others() {
    isolated("a_shelf_hides_nothing_from_others", &[], |machine| {
        machine.ends_within(60);
        process::set_memory_limit(0, 4 * MIB).expect("a device");
        let fill = || -> Vec<u64> { (0..64).map(|_| malloc(64 << 10, 0).expect("fits")).collect() };
        let blocks = fill();
        assert!(malloc(512, 0).is_err(), "the limit is reached");
        let (freed, taken) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // These lie on this thread's shelf, as far as they go there.
                blocks.iter().for_each(|&block| process::free(block).expect("live"));
                let mine = malloc(512, 0);
                let given = mine.as_ref().map(|&block| process::free(block));
                freed.wait();
                taken.wait();
                given.expect("fits").expect("live");
            });
            freed.wait();
            let all = malloc(4 * MIB, 0);
            // The other thread goes on whatever came of it.
            taken.wait();
            process::free(all.expect("everything is free")).expect("live");
        });
        let again = fill();
        again.into_iter().for_each(|block| process::free(block).expect("live"));
        process::empty_cache(0).expect("the driver works");
        assert_eq!((stats(0).reserved, machine.sim.used(0)), (0, 0));
    });
}

#[test]
fn a_thread_that_only_frees_has_a_shelf_that_no_request_finds() {
    isolated("a_thread_that_only_frees_has_a_shelf_that_no_request_finds", &CHECKED, |machine| {
        machine.ends_within(60);
        let context = machine.use_device(0);
        warm_up();
        let other = machine.stream();
        process::stream_open(0, other).expect("a stream");
        let blocks: Vec<u64> = (0..200).map(|_| malloc_on(4096, other).expect("fits")).collect();
        blocks.iter().for_each(|&block| machine.fill(other, block, 1, 4096));
        let calls = machine.sim.calls_total();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                blocks.iter().for_each(|&block| process::free(block).expect("live"));
                assert_eq!(machine.sim.calls_total(), calls, "no call for a free");
                let last = *blocks.last().expect("one");
                assert_eq!(process::free(last), Err(Error::DoubleFree(Address(last))));
                // These may be used at once, by anybody: nothing that `other` still writes will do.
                machine.set_context(context);
                for _ in 0..5 {
                    let block = malloc_on(4096, process::ANY_STREAM).expect("fits");
                    assert!(!blocks.contains(&block), "the other stream still writes there");
                }
                // It has a name for the stream from now on.
                let own = malloc_on(4096, other).expect("fits");
                assert!(blocks.contains(&own), "what was freed is there for its stream");
                machine.fill(other, own, 2, 4096);
                process::free(own).expect("live");
                assert_eq!(malloc_on(4096, other), Ok(own));
            });
        });
        assert_eq!((stats(0).allocated, stats(0).live_block_count), (6 * 4096, 6));
        machine.assert_clean();
    });
}

#[test]
fn a_block_that_others_use_does_not_go_to_a_shelf() {
    isolated("a_block_that_others_use_does_not_go_to_a_shelf", &CHECKED, |machine| {
        machine.use_device(0);
        warm_up();
        let [a, b] = machine.held_streams();
        process::free(malloc_on(4096, a).expect("fits")).expect("live");
        for _ in 0..20 {
            let block = malloc_on(4096, a).expect("fits");
            machine.fill(a, block, 1, 4096);
            machine.order(a, b);
            machine.fill(b, block, 2, 4096);
            process::record_stream(block, b).expect("live");
            process::free(block).expect("live");
            let next = malloc_on(4096, a).expect("fits");
            machine.fill(a, next, 3, 4096);
            process::free(next).expect("live");
        }
        machine.assert_clean();
    });
}

#[test]
fn a_recycled_handle_finds_no_shelf_of_the_old_stream() {
    for schedule in ["lazy", "lag:1000", "random:3"] {
        let environment = [("SIMCUDA_CHECKER", "log"), ("SIMCUDA_SCHEDULE", schedule)];
        isolated("a_recycled_handle_finds_no_shelf_of_the_old_stream", &environment, |machine| {
            machine.use_device(0);
            warm_up();
            for round in 0..20 {
                let old = machine.held_stream();
                let block = malloc_on(4096, old).expect("fits");
                machine.fill(old, block, 1, 4096);
                process::free(block).expect("live");
                process::stream_retire(0, old).expect("open");
                machine.destroy_stream(old);
                let new = machine.stream();
                assert_eq!(new, old, "the simulator gives the handle's value again");
                if round % 2 == 0 {
                    process::stream_open(0, new).expect("a stream");
                }
                let block = malloc_on(4096, new).expect("fits");
                machine.fill(new, block, 2, 4096);
                process::free(block).expect("live");
                if round % 2 == 0 {
                    process::stream_retire(0, new).expect("open");
                }
                machine.destroy_stream(new);
            }
            machine.assert_clean();
        });
    }
}

#[test]
fn a_new_thread_does_not_inherit_the_stream_of_an_ended_one() {
    isolated("a_new_thread_does_not_inherit_the_stream_of_an_ended_one", &CHECKED, |machine| {
        let context = machine.use_device(0);
        warm_up();
        for _ in 0..20 {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    machine.set_context(context);
                    // A hit in the books: the thread takes the shelves over as they are.
                    process::free(malloc_on(4096, 0).expect("fits")).expect("live");
                    let block = malloc_on(4096, 2).expect("fits");
                    machine.fill(2, block, 1, 4096);
                    process::free(block).expect("live");
                });
            });
        }
        machine.assert_clean();
        process::empty_cache(0).expect("the driver works");
        assert_eq!(stats(0).reserved, 0, "what ended threads had comes back");
    });
}

#[test]
fn a_reset_leaves_no_dead_block_on_a_shelf() {
    isolated("a_reset_leaves_no_dead_block_on_a_shelf", &CHECKED, |machine| {
        machine.use_device(0);
        warm_up();
        let kept = malloc(4096, 0).expect("fits");
        let freed = malloc(2048, 0).expect("fits");
        process::free(freed).expect("live");
        machine.reset_device(0);
        machine.use_device(0);
        // A miss sees it.
        let big = malloc(256 * MIB, 0).expect("fits");
        let fresh = malloc(2048, 0).expect("fits");
        assert_ne!(fresh, freed);
        machine.fill(0, fresh, 1, 2048);
        assert_eq!(process::free(kept), Err(Error::DeviceReset(0)));
        for block in [big, fresh] {
            process::free(block).expect("live");
        }
        assert_eq!(stats(0).allocated, 0);
        machine.assert_clean();
    });
}

#[test]
fn two_threads_that_free_the_same_block_free_it_once() {
    isolated("two_threads_that_free_the_same_block_free_it_once", &[], |machine| {
        machine.ends_within(60);
        warm_up();
        let barrier = Barrier::new(2);
        let shared = std::sync::atomic::AtomicU64::new(0);
        let one = |allocates: bool| {
            // Both threads have a shelf of the stream.
            process::free(malloc(4096, 0).expect("fits")).expect("live");
            let mut freed = 0u32;
            for _ in 0..3000 {
                if allocates {
                    shared.store(malloc(4096, 0).expect("fits"), Ordering::Relaxed);
                }
                barrier.wait();
                freed += u32::from(process::free(shared.load(Ordering::Relaxed)).is_ok());
                barrier.wait();
            }
            freed
        };
        let freed: u32 = std::thread::scope(|scope| {
            let threads = [scope.spawn(|| one(true)), scope.spawn(|| one(false))];
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(freed, 3000);
        assert_eq!((stats(0).allocated, stats(0).live_block_count), (0, 0));
    });
}
