//! Memory of graphs that the driver really captures: allocated and freed in each mode of capture, on
//! streams that joined, beside other threads; launched again and again while others allocate.
//!
//! A call that a capture forbids makes it invalid, so a capture that ends well shows that none was
//! made; and each launch is judged by the checker, together with all work around it.

#[macro_use]
mod machine;

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, TryRecvError};

use cuddy::process;
use machine::*;

const SCHEDULES: [&str; 4] = ["eager", "lazy", "random:1", "random:7"];

fn in_each_mode(test: &str, body: impl Fn(&Machine, i32)) {
    let cases = MODES.into_iter().flat_map(|m| SCHEDULES.map(|s| (m, s)));
    for ((mode, schedule), at) in cases.zip(0..) {
        let backing = if (at + mode) % 2 == 0 { "backing:pages" } else { "backing:segments" };
        let environment = [("SIMCUDA_MEMORY", "256MiB"), ("CUDDY_CONF", backing)];
        under(&[schedule], test, &environment, |machine| {
            body(machine, mode);
            machine.synchronize_all();
            machine.assert_clean();
        });
    }
}

/// What a stream and those that join it are given meanwhile: the graph's name, and what can be
/// launched.
fn captured(machine: &Machine, stream: usize, mode: i32, work: impl FnOnce()) -> (u64, usize) {
    machine.begin_capture_in(stream, mode);
    let graph = process::graph_begin(0, stream, 0).expect("the stream is free");
    work();
    let launchable = machine.instantiate_capture(stream);
    process::graph_end(graph).expect("it was begun");
    (graph, launchable)
}

/// How often Cuddy has made a driver call.
fn calls_of(name: &str) -> u64 {
    process::driver_calls()
        .into_iter()
        .find(|&(call, _)| call == name)
        .map_or(0, |(_, count)| count)
}

/// Destroys a graph at once, be its last launch on that stream over or not.
fn destroy(machine: &Machine, (graph, launchable): (u64, usize), stream: usize) {
    machine.destroy_launchable(launchable);
    process::graph_destroy(graph, stream).expect("it is there");
}

/// A round of a program: blocks of many sizes, written, passed on and freed.
fn a_round(machine: &Machine, stream: usize, random: &mut Random) {
    let sizes: Vec<u64> = (0..4).map(|_| 512 << random.below(12)).collect();
    let blocks: Vec<u64> = sizes.iter().map(|&b| malloc_on(b, stream).expect("fits")).collect();
    for (&block, &bytes) in blocks.iter().zip(&sizes) {
        machine.fill(stream, block, 9, bytes);
    }
    blocks.into_iter().for_each(|block| process::free(block).expect("live"));
}

#[test]
fn a_capture_across_streams_is_replayed_beside_others() {
    in_each_mode("a_capture_across_streams_is_replayed_beside_others", |machine, mode| {
        let [main, side, eager] = machine.held_streams();
        let mut random = Random(7);
        a_round(machine, main, &mut random);
        a_round(machine, side, &mut random);
        let input = malloc_on(MIB, main).expect("fits");
        machine.fill(main, input, 3, MIB);
        let mut kept = 0;
        let graph = captured(machine, main, mode, || {
            let first = malloc_on(2 * MIB, main).expect("fits");
            machine.fill(main, first, 1, 2 * MIB);
            // The side stream joins, uses the block and gets one of its own.
            machine.order(main, side);
            process::note_wait(0, side, main).expect("streams of the device");
            let beside = malloc_on(MIB, side).expect("fits");
            machine.copy(side, beside, first, MIB);
            machine.copy(side, beside, input, MIB / 2);
            process::record_stream(first, side).expect("live");
            process::record_stream(input, side).expect("live");
            process::free(first).expect("live");
            let second = malloc_on(2 * MIB, main).expect("fits");
            machine.fill(main, second, 2, 2 * MIB);
            machine.order(side, main);
            process::note_wait(0, main, side).expect("streams of the device");
            process::free(beside).expect("live");
            kept = malloc_on(MIB, main).expect("fits");
            machine.copy(main, kept, second, MIB);
            process::free(second).expect("live");
        });
        for round in 0..4 {
            machine.launch(graph.1, main);
            for stream in [eager, main, side] {
                a_round(machine, stream, &mut random);
            }
            if round == 2 {
                process::empty_cache(0).expect("it works");
            }
        }
        machine.synchronize(main);
        assert_eq!((machine.byte(kept), machine.byte(kept + MIB - 1)), (2, 2));
        machine.launch(graph.1, main);
        process::free(input).expect("live");
        destroy(machine, graph, main);
        a_round(machine, eager, &mut random);
        assert_eq!(process::block_info(kept).expect("it outlives the graph").bytes, MIB);
        machine.fill(main, kept, 5, MIB);
        process::free(kept).expect("live");
        a_round(machine, side, &mut random);
        machine.synchronize_all();
        process::empty_cache(0).expect("it works");
        assert_eq!((stats(0).reserved, stats(0).active), (0, 0));
    });
}

#[test]
fn other_threads_allocate_while_a_thread_captures() {
    in_each_mode("other_threads_allocate_while_a_thread_captures", |machine, mode| {
        machine.ends_within(60);
        let context = machine.context();
        let [main, other] = machine.held_streams();
        let mut random = Random(3);
        a_round(machine, other, &mut random);
        let graph = captured(machine, main, mode, || {
            for round in 0..3 {
                let block = malloc_on((1 + round) * MIB, main).expect("fits");
                machine.fill(main, block, 1, (1 + round) * MIB);
                // A thread that comes and goes: misses, growth, and what is given back.
                let eager = || {
                    machine.set_context(context);
                    let mut random = Random(round);
                    (0..3).for_each(|_| a_round(machine, other, &mut random));
                    let large = malloc_on(16 * MIB, other).expect("fits");
                    machine.fill(other, large, 2, 16 * MIB);
                    process::free(large).expect("live");
                };
                std::thread::scope(|threads| threads.spawn(eager).join().expect("no panic"));
                process::free(block).expect("live");
            }
        });
        for _ in 0..3 {
            machine.launch(graph.1, other);
            a_round(machine, other, &mut random);
            a_round(machine, main, &mut random);
        }
        destroy(machine, graph, other);
        a_round(machine, main, &mut random);
        machine.synchronize_all();
        process::empty_cache(0).expect("it works");
        assert_eq!((stats(0).reserved, stats(0).active), (0, 0));
    });
}

#[test]
fn a_capture_begins_between_another_threads_calls_over_the_context() {
    let name = "a_capture_begins_between_another_threads_calls_over_the_context";
    in_each_mode(name, |machine, mode| {
        const ROUNDS: usize = 20;
        machine.ends_within(60);
        let context = machine.context();
        let (main, owner, borrowed) =
            (machine.held_stream(), machine.held_stream(), machine.stream());
        let mut random = Random(11);
        let (passes, fences) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
        let wait_for = |count: &AtomicUsize, least: usize| {
            while count.load(Ordering::Relaxed) < least {
                std::thread::yield_now();
            }
        };
        // The other thread ends with this one's last capture, be it spoilt or not.
        let (captures, more_to_come) = mpsc::channel::<()>();
        let goes_on = move || more_to_come.try_recv() == Err(TryRecvError::Empty);
        std::thread::scope(|threads| {
            let _captures = captures;
            // Only the context's own event fences what a borrowed stream used.
            threads.spawn(move || {
                machine.set_context(context);
                while goes_on() {
                    let before = calls_of("cuCtxRecordEvent");
                    // What is freed during a capture waits for its end: there may be no memory left.
                    if let Ok(block) = malloc_on(4096, owner) {
                        process::record_stream(block, borrowed).expect("live");
                        process::free(block).expect("live");
                    }
                    let more = (calls_of("cuCtxRecordEvent") - before) as usize;
                    fences.fetch_add(more, Ordering::Relaxed);
                    passes.fetch_add(1, Ordering::Relaxed);
                }
            });
            for round in 0..ROUNDS {
                wait_for(fences, round + 1);
                let graph = process::graph_begin(0, main, 0).expect("the stream is free");
                machine.begin_capture_in(main, mode);
                a_round(machine, main, &mut random);
                // The other thread goes on meanwhile.
                wait_for(passes, passes.load(Ordering::Relaxed) + 2);
                machine.end_capture(main);
                process::graph_end(graph).expect("it was begun");
                a_round(machine, main, &mut random);
                process::graph_destroy(graph, main).expect("it is there");
            }
        });
    });
}

/// A request asks whether its stream is captured; meanwhile others take the slot that it has found.
#[test]
fn a_slot_that_became_another_streams_is_looked_for_again() {
    let name = "a_slot_that_became_another_streams_is_looked_for_again";
    in_each_mode(name, |machine, mode| {
        let (context, main) = (machine.context(), machine.held_stream());
        for _ in 0..2 {
            let graph = process::graph_begin(0, main, 0).expect("the stream is free");
            machine.begin_capture_in(main, mode);
            let borrowed = machine.stream();
            // More streams than a look for a slot to vacate passes over.
            let others: Vec<usize> = (0..16).map(|_| machine.stream()).collect();
            let theirs = others.clone();
            let met = Arc::new(AtomicUsize::new(0));
            let seen = met.clone();
            let meet = move || {
                let thread = std::thread::spawn(move || {
                    let machine = Machine::new();
                    machine.set_context(context);
                    for stream in theirs {
                        let block = malloc_on(4096, stream).expect("fits");
                        process::free(block).expect("live");
                        seen.fetch_add(1, Ordering::Relaxed);
                    }
                });
                thread.join().expect("it ends");
            };
            machine.sim.meet("cuStreamGetCaptureInfo", 1, meet).expect("a function");
            let block = malloc_on(MIB / 4, borrowed).expect("fits");
            assert_eq!(met.load(Ordering::Relaxed), others.len(), "nobody asked");
            machine.fill(borrowed, block, 1, MIB / 4);
            process::free(block).expect("live");
            for stream in &others {
                let block = malloc_on(MIB / 4, *stream).expect("fits");
                machine.fill(*stream, block, 2, MIB / 4);
                process::free(block).expect("live");
            }
            machine.end_capture(main);
            process::graph_end(graph).expect("it was begun");
            process::graph_destroy(graph, main).expect("it is there");
            machine.synchronize_all();
        }
    });
}

#[test]
fn a_program_that_spoils_its_capture_loses_no_memory() {
    in_each_mode("a_program_that_spoils_its_capture_loses_no_memory", |machine, mode| {
        let [main, other] = machine.held_streams();
        machine.begin_capture_in(main, mode);
        let graph = process::graph_begin(0, main, 0).expect("the stream is free");
        let block = malloc_on(2 * MIB, main).expect("fits");
        machine.fill(main, block, 1, 2 * MIB);
        let event = machine.event(main);
        let code = cu!(machine, "cuEventQuery"(event => usize));
        assert_eq!(code, 907, "a captured event cannot be asked about: the capture is spoilt");
        process::free(block).expect("live");
        let beside = malloc_on(MIB, other).expect("fits");
        machine.fill(other, beside, 2, MIB);
        process::free(beside).expect("live");
        let mut drawn = 1usize;
        let to = &mut drawn;
        let code = cu!(machine, "cuStreamEndCapture"(main => usize, to => *mut usize));
        assert_eq!((code, drawn), (901, 0));
        process::graph_end(graph).expect("it was begun");
        process::graph_destroy(graph, main).expect("it is there");
        machine.destroy_event(event);
        let again = malloc_on(2 * MIB, main).expect("fits");
        machine.fill(main, again, 3, 2 * MIB);
        process::free(again).expect("live");
        machine.synchronize_all();
        process::empty_cache(0).expect("it works");
        assert_eq!((stats(0).reserved, stats(0).active), (0, 0));
    });
}
