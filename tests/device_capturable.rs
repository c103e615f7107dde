//! Streams opened as capturable: nobody tells of their captures. Memory of a capture is its graph's
//! until the driver has nothing left of the graph, and no call disturbs the capture, in any mode.

mod machine;

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cuddy::abi::observers::{CUDDY_EVENT_RELEASE, cuddy_event, cuddy_observe};
use cuddy::abi::streams::{CUDDY_STREAM_CAPTURABLE, cuddy_stream_open_ex};
use cuddy::error::{Error, cuddy_status};
use cuddy::process;
use machine::*;

const SCHEDULES: [&str; 4] = ["eager", "lazy", "random:1", "random:7"];

fn in_each_mode(test: &str, body: impl Fn(&Machine, i32)) {
    for mode in MODES {
        for backing in ["backing:pages", "backing:segments"] {
            let environment = [("SIMCUDA_MEMORY", "256MiB"), ("CUDDY_CONF", backing)];
            under(&SCHEDULES, test, &environment, |machine| {
                body(machine, mode);
                machine.synchronize_all();
                machine.assert_clean();
            });
        }
    }
}

fn open(stream: usize, flags: u32) -> cuddy_status {
    cuddy_stream_open_ex(0, stream as *mut _, flags)
}

fn capturable(machine: &Machine) -> usize {
    let stream = machine.stream();
    assert_eq!(open(stream, CUDDY_STREAM_CAPTURABLE), cuddy_status::CUDDY_OK);
    stream
}

fn work(machine: &Machine, stream: usize, bytes: u64) -> u64 {
    let block = malloc_on(bytes, stream).expect("fits");
    machine.fill(stream, block, 7, bytes);
    process::free(block).expect("live");
    block
}

/// Empties the cache until nothing is left: the driver says on a thread of its own that a graph is
/// gone.
fn until_all_is_given_back() {
    let begun = Instant::now();
    while stats(0).reserved > 0 {
        process::empty_cache(0).expect("it works");
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", stats(0));
    }
    assert_eq!(stats(0).active, 0);
}

#[test]
fn what_is_allocated_in_a_capture_is_the_graphs() {
    in_each_mode("what_is_allocated_in_a_capture_is_the_graphs", |machine, mode| {
        let (main, other) = (capturable(machine), machine.held_stream());
        // Cached by the stream before: not the graph's.
        let eager = work(machine, main, 2 * MIB);
        machine.begin_capture_in(main, mode);
        let first = work(machine, main, 2 * MIB);
        assert_ne!(first, eager);
        assert_eq!(work(machine, main, 2 * MIB), first, "in the capture it is used again");
        let kept = malloc_on(MIB, main).expect("fits");
        machine.copy(main, kept, first, MIB);
        // Others miss, grow and give back meanwhile.
        work(machine, other, 16 * MIB);
        process::empty_cache(0).expect("it works");
        let launchable = machine.instantiate_capture(main);
        for stream in [main, other, main] {
            machine.launch(launchable, stream);
            let beside = work(machine, main, 2 * MIB);
            assert!(!overlap((beside, 2 * MIB), (first, 2 * MIB)), "it is the graph's");
            work(machine, other, 2 * MIB);
            machine.synchronize(stream);
        }
        process::empty_cache(0).expect("it works");
        assert!(stats(0).reserved >= 2 * MIB, "the graph's memory stays mapped");
        machine.launch(launchable, main);
        // The launch goes on, and with it the graph's memory.
        machine.destroy_launchable(launchable);
        work(machine, other, 2 * MIB);
        machine.synchronize_all();
        assert_eq!(machine.byte(kept), 7, "the result outlives the graph");
        machine.fill(main, kept, 1, MIB);
        process::free(kept).expect("live");
        until_all_is_given_back();
        work(machine, main, 2 * MIB);
        process::stream_retire(0, main).expect("open");
        machine.synchronize_all();
        machine.destroy_stream(main);
        until_all_is_given_back();
    });
}

#[test]
fn what_is_freed_in_a_capture_waits_for_the_graph() {
    in_each_mode("what_is_freed_in_a_capture_waits_for_the_graph", |machine, mode| {
        let (main, side) = (capturable(machine), capturable(machine));
        let other = machine.held_stream();
        let [own, recorded] = [main, other].map(|stream| malloc_on(4 * MIB, stream).expect("fits"));
        machine.fill(main, own, 1, 4 * MIB);
        machine.fill(other, recorded, 1, 4 * MIB);
        machine.synchronize_all();
        machine.begin_capture_in(main, mode);
        machine.copy(main, own, recorded, MIB);
        process::record_stream(recorded, main).expect("live");
        process::free(recorded).expect("live");
        process::free(own).expect("live");
        // Another stream joins, and allocates.
        machine.order(main, side);
        let joined = malloc_on(4 * MIB, side).expect("fits");
        machine.copy(side, joined, own, MIB);
        process::free(joined).expect("live");
        machine.order(side, main);
        let launchable = machine.instantiate_capture(main);
        for _ in 0..3 {
            machine.launch(launchable, main);
            for stream in [main, side, other] {
                let block = work(machine, stream, 4 * MIB);
                for theirs in [own, recorded, joined] {
                    assert!(!overlap((block, 4 * MIB), (theirs, 4 * MIB)), "it is the graph's");
                }
            }
        }
        machine.destroy_launchable(launchable);
        machine.synchronize_all();
        until_all_is_given_back();
    });
}

#[test]
fn captures_come_and_go() {
    in_each_mode("captures_come_and_go", |machine, mode| {
        let main = capturable(machine);
        for round in 0..8 {
            machine.begin_capture_in(main, mode);
            work(machine, main, 3 * MIB);
            if round % 2 == 0 {
                // Nobody calls between this capture's end and the next one's begin.
                let launchable = machine.instantiate_capture(main);
                machine.launch(launchable, main);
                machine.destroy_launchable(launchable);
            } else {
                machine.end_capture(main);
                work(machine, main, 3 * MIB);
            }
        }
        machine.synchronize_all();
        until_all_is_given_back();
    });
}

/// Captures a block of 2 MiB that stays live; the block, and its launchable graph.
fn captured(machine: &Machine, stream: usize) -> (u64, usize) {
    machine.begin_capture(stream);
    let block = malloc_on(2 * MIB, stream).expect("fits");
    machine.fill(stream, block, 1, 2 * MIB);
    (block, machine.instantiate_capture(stream))
}

static RELEASES: AtomicUsize = AtomicUsize::new(0);

/// Frees and allocates, which a lock that is held would not let it.
unsafe extern "C-unwind" fn allocates(_event: *const cuddy_event, _user: *mut c_void) {
    let block = malloc(512, 0).expect("fits");
    process::free(block).expect("live");
    RELEASES.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn observers_may_allocate_when_a_graphs_memory_goes() {
    checked("observers_may_allocate_when_a_graphs_memory_goes", &[], |machine| {
        let mut name = 0;
        // SAFETY: the name is a local's, and the callback reads nothing.
        let status = unsafe {
            cuddy_observe(&mut name, CUDDY_EVENT_RELEASE, Some(allocates), std::ptr::null_mut())
        };
        assert_eq!(status, cuddy_status::CUDDY_OK);
        let stream = capturable(machine);
        let (block, launchable) = captured(machine, stream);
        process::free(block).expect("live");
        machine.destroy_launchable(launchable);
        until_all_is_given_back();
        assert!(RELEASES.load(Ordering::Relaxed) > 0, "the graph's memory went untold");
    });
}

#[test]
fn a_reset_takes_a_graphs_blocks_and_they_say_so() {
    checked("a_reset_takes_a_graphs_blocks_and_they_say_so", &[], |machine| {
        let stream = capturable(machine);
        let (block, launchable) = captured(machine, stream);
        // Cuddy hears of the end.
        work(machine, stream, MIB);
        machine.destroy_launchable(launchable);
        machine.synchronize_all();
        machine.reset_device(0);
        machine.use_device(0);
        process::empty_cache(0).expect("it starts anew");
        for _ in 0..2 {
            let lost = process::free(block);
            assert!(matches!(lost, Err(Error::DeviceReset(0))), "{lost:?}");
            let fresh = capturable(machine);
            work(machine, fresh, MIB);
        }
    });
}

#[test]
fn no_thread_asks_about_a_stream_that_is_gone() {
    checked("no_thread_asks_about_a_stream_that_is_gone", &[], |machine| {
        let (context, over) = (machine.context(), AtomicBool::new(false));
        let eager = machine.held_stream();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                machine.set_context(context);
                // What is not served from the thread's shelf asks each time.
                while !over.load(Ordering::Relaxed) {
                    work(machine, eager, MIB);
                    process::empty_cache(0).expect("it works");
                }
            });
            for _ in 0..200 {
                let stream = capturable(machine);
                work(machine, stream, MIB);
                process::stream_retire(0, stream).expect("open");
                machine.destroy_stream(stream);
            }
            over.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn what_cannot_be_opened_is_refused() {
    checked("what_cannot_be_opened_is_refused", &[], |machine| {
        let stream = machine.stream();
        assert_eq!(open(stream, 2), cuddy_status::CUDDY_ERROR_INVALID_ARGUMENT);
        for default in [0, 1, 2] {
            assert_eq!(open(default, 0), cuddy_status::CUDDY_OK);
            let refused = open(default, CUDDY_STREAM_CAPTURABLE);
            assert_eq!(refused, cuddy_status::CUDDY_ERROR_INVALID_STREAM);
        }
        // A capture that is watched already is not told, too.
        assert_eq!(open(stream, CUDDY_STREAM_CAPTURABLE), cuddy_status::CUDDY_OK);
        assert_eq!(open(stream, 0), cuddy_status::CUDDY_OK, "it stays capturable");
        machine.begin_capture(stream);
        let block = malloc_on(MIB, stream).expect("fits");
        assert!(matches!(process::graph_begin(0, stream, 0), Err(Error::InvalidGraph(_))));
        process::free(block).expect("live");
        machine.end_capture(stream);
        process::stream_retire(0, stream).expect("open");
    });
}

/// A driver call that fails while a capture is found: the request fails, and nothing has changed.
#[test]
fn a_capture_that_cannot_be_watched_serves_nothing() {
    for function in ["cuUserObjectCreate", "cuGraphRetainUserObject", "cuStreamGetCaptureInfo"] {
        checked("a_capture_that_cannot_be_watched_serves_nothing", &[], |machine| {
            let stream = capturable(machine);
            machine.begin_capture(stream);
            let before = memory_only(stats(0));
            machine.sim.fault(function, 1, 1, UNKNOWN, false).expect("a function");
            assert!(matches!(malloc_on(MIB, stream), Err(Error::Driver(_))), "{function}");
            machine.sim.clear_faults();
            assert_eq!(memory_only(stats(0)), before);
            work(machine, stream, MIB);
            machine.end_capture(stream);
            process::stream_retire(0, stream).expect("open");
            machine.synchronize_all();
            until_all_is_given_back();
        });
    }
}
