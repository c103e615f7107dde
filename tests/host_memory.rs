//! Page-locked host memory: cached, never used again too early, never rounded up by much, and exact
//! in its counters.

#[macro_use]
mod machine;

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use cuddy::abi::observers::{
    CUDDY_EVENT_GROWTH, CUDDY_EVENT_OUT_OF_MEMORY, CUDDY_EVENT_RELEASE, CUDDY_HOST_MEMORY,
    cuddy_event, cuddy_observe,
};
use cuddy::error::Error;
use cuddy::process::{
    self, HOST_MAPPED, HOST_PORTABLE, HOST_STREAMS_RECORDED, HOST_WRITE_COMBINED, host_empty_cache,
    host_free, host_malloc, host_record_stream, host_stats,
};
use cuddy::stats::cuddy_host_stats;
use machine::*;

const SCHEDULES: [&str; 6] = ["eager", "lazy", "lag:3", "lag:1000", "random:1", "random:7"];

/// Runs a scenario under every schedule, on two devices, with the checker on.
fn hosted(test: &str, more: &[(&str, &str)], body: impl Fn(&Machine)) {
    let devices = [("SIMCUDA_MEMORY", "1GiB"), ("SIMCUDA_DEVICES", "2")];
    under(&SCHEDULES, test, &[&devices, more].concat(), body);
}

fn stats() -> cuddy_host_stats {
    host_stats().expect("statistics")
}

/// What is page-locked, by the driver's own books.
fn pinned(machine: &Machine) -> u64 {
    machine.sim.objects("host_allocation_bytes")
}

/// The host writes a block, before the checker's eyes.
fn write(machine: &Machine, at: u64, value: u8, bytes: u64) {
    machine.sim.host_write(at, bytes, "the host writes").expect("page-locked");
    // SAFETY: the block is live, page-locked memory of this process, and so large.
    unsafe {
        std::ptr::with_exposed_provenance_mut::<u8>(at as usize).write_bytes(value, bytes as usize)
    };
}

/// Copies from the host on a stream.
fn send(machine: &Machine, stream: usize, to: u64, from: u64, bytes: u64) {
    let (from, bytes) = (from as usize, bytes as usize);
    let code = cu!(machine, "cuMemcpyHtoDAsync_v2"(
        to => u64, from => usize, bytes => usize, stream => usize
    ));
    assert_eq!(code, 0);
}

/// Which node of the machine fresh memory lies on is decided by the memory policy of the thread that
/// the driver is called on (and by the flags, which it is given as they are): that is the caller's.
#[test]
fn fresh_memory_is_asked_for_by_the_thread_that_needs_it() {
    hosted("fresh_memory_is_asked_for_by_the_thread_that_needs_it", &[], |machine| {
        let (context, sim) = (machine.context(), machine.sim);
        let grow = move |mebibytes: u64| {
            let asked = Arc::new(Mutex::new(None));
            let noted = asked.clone();
            let note = move || *noted.lock().expect("no panic") = Some(std::thread::current().id());
            sim.meet("cuMemHostAlloc", 1, note).expect("a function");
            host_malloc(mebibytes * MIB, 0).expect("memory");
            sim.clear_faults();
            let asked = *asked.lock().expect("no panic");
            assert_eq!(asked, Some(std::thread::current().id()), "{mebibytes} MiB");
        };
        grow(3);
        for mebibytes in [5, 7] {
            let thread = std::thread::spawn(move || {
                Machine::new().set_context(context);
                grow(mebibytes);
            });
            thread.join().expect("it was the thread itself");
        }
        grow(9);
    });
}

/// A block that a copy still reads is not handed out, whatever kind of stream the copy is on.
#[test]
fn a_block_is_not_reused_while_a_copy_runs() {
    hosted("a_block_is_not_reused_while_a_copy_runs", &[], |machine| {
        let bytes = 3 * MIB;
        let device = malloc(bytes, 0).expect("room");
        machine.synchronize_all();
        let streams =
            [(machine.held_stream(), true), (machine.stream(), true), (0, true), (2, true)];
        let whole = [(machine.stream(), false), (machine.held_stream(), false)];
        for (gate, (stream, recorded)) in streams.into_iter().chain(whole).enumerate() {
            host_empty_cache().expect("it works");
            let first = host_malloc(bytes, 0).expect("memory");
            write(machine, first, gate as u8 + 1, bytes);
            machine.gate(stream, gate as u64);
            send(machine, stream, device, first, bytes);
            if recorded {
                host_record_stream(first, stream).expect("a stream");
            }
            host_free(first).expect("live");
            let second = host_malloc(bytes, HOST_STREAMS_RECORDED).expect("memory");
            assert_ne!(first, second, "the copy has not begun");
            write(machine, second, 0xee, bytes);
            machine.sim.gate_open(gate as u64);
            machine.synchronize_all();
            assert_eq!(machine.byte(device + bytes - 1), gate as u8 + 1);
            let third = host_malloc(bytes, 0).expect("memory");
            assert_eq!(third, first, "the copy is over");
            write(machine, third, 0xdd, bytes);
            host_free(second).expect("live");
            host_free(third).expect("live");
            machine.synchronize_all();
        }
        machine.assert_clean();
    });
}

/// Streams that were not recorded are not waited for.
#[test]
fn only_recorded_streams_are_waited_for() {
    hosted("only_recorded_streams_are_waited_for", &[], |machine| {
        let [used, busy] = machine.held_streams();
        machine.gate(busy, 1);
        let device = malloc_on(3 * MIB, used).expect("room");
        for flags in [0, HOST_STREAMS_RECORDED] {
            let first = host_malloc(3 * MIB, flags).expect("memory");
            write(machine, first, 1, 3 * MIB);
            send(machine, used, device, first, 3 * MIB);
            host_record_stream(first, used).expect("a stream");
            host_free(first).expect("live");
            machine.synchronize(used);
            assert_eq!(host_malloc(3 * MIB, flags), Ok(first));
            host_record_stream(first, used).expect("a stream");
            host_free(first).expect("live");
        }
        // Of a block that no stream uses nobody is waited for, if the program says so.
        let first = host_malloc(3 * MIB, HOST_STREAMS_RECORDED).expect("memory");
        host_free(first).expect("live");
        assert_eq!(host_malloc(3 * MIB, HOST_STREAMS_RECORDED), Ok(first));
        host_free(first).expect("live");
        // Else everybody: the other stream is still busy.
        let second = host_malloc(3 * MIB, 0).expect("memory");
        host_free(second).expect("live");
        assert_ne!(host_malloc(3 * MIB, 0), Ok(second));
        machine.sim.gate_open(1);
        machine.synchronize_all();
        machine.assert_clean();
    });
}

/// Streams of another device count as well, and so does a retired stream.
#[test]
fn streams_of_other_devices_and_retired_ones_count() {
    hosted("streams_of_other_devices_and_retired_ones_count", &[], |machine| {
        let first_context = machine.context();
        let block = host_malloc(3 * MIB, HOST_PORTABLE).expect("memory");
        write(machine, block, 7, 3 * MIB);
        machine.use_device(1);
        let stream = machine.stream();
        process::stream_open(1, stream).expect("a stream");
        let device = process::malloc(3 * MIB, 0, 1, stream).expect("room");
        machine.gate(stream, 1);
        send(machine, stream, device, block, 3 * MIB);
        host_record_stream(block, stream).expect("a stream");
        process::stream_retire(1, stream).expect("open");
        machine.destroy_stream(stream);
        machine.set_context(first_context);
        host_free(block).expect("live");
        let other = host_malloc(3 * MIB, HOST_PORTABLE).expect("memory");
        assert_ne!(other, block);
        machine.sim.gate_open(1);
        assert_eq!(host_empty_cache().map(|bytes| bytes > 0), Ok(true));
        assert_eq!(machine.byte(device), 7);
        assert_eq!(stats().limbo_block_count, 0);
        machine.assert_clean();
    });
}

/// At most 2 MiB or an eighth more than was asked for is page-locked; what was freed serves again.
#[test]
fn requests_are_not_rounded_by_much() {
    hosted("requests_are_not_rounded_by_much", &[], |machine| {
        let sizes = [
            1,
            4096,
            10 << 10,
            MIB - 1,
            MIB,
            MIB + 1,
            3 * MIB + 77,
            33 * MIB,
            80 * MIB + 4096,
            129 * MIB,
            160 * MIB,
            234 * MIB,
            GIB + 1,
        ];
        for bytes in sizes {
            assert_eq!(pinned(machine), 0);
            let block = host_malloc(bytes, HOST_STREAMS_RECORDED).expect("memory");
            assert!(pinned(machine) <= bytes + (2 * MIB).max(bytes / 8), "{bytes}");
            let counted = stats();
            assert_eq!((counted.requested, counted.reserved), (bytes, pinned(machine)));
            assert_eq!(counted.allocated, bytes.div_ceil(512) * 512);
            host_free(block).expect("live");
            let calls = machine.sim.calls("cuMemHostAlloc");
            let block = host_malloc(bytes, HOST_STREAMS_RECORDED).expect("memory");
            assert_eq!(machine.sim.calls("cuMemHostAlloc"), calls, "it was there");
            host_free(block).expect("live");
            assert_eq!(host_empty_cache(), Ok(counted.reserved));
            let now = stats();
            assert_eq!((now.requested, now.allocated, now.active), (0, 0, 0));
            assert_eq!((now.reserved, now.cached, now.segment_count), (0, 0, 0));
        }
    });
}

/// A small block does not keep a large one from being used: it is not cut from it.
#[test]
fn a_small_block_does_not_take_a_large_one() {
    hosted("a_small_block_does_not_take_a_large_one", &[], |machine| {
        let large = host_malloc(64 * MIB, HOST_STREAMS_RECORDED).expect("memory");
        host_free(large).expect("live");
        let small = host_malloc(10 << 10, HOST_STREAMS_RECORDED).expect("memory");
        assert_eq!(host_malloc(64 * MIB, HOST_STREAMS_RECORDED), Ok(large));
        assert!(pinned(machine) <= 66 * MIB);
        host_free(large).expect("live");
        // What is not much smaller is cut from it, and never gets less than it asked for.
        let part = host_malloc(40 * MIB, HOST_STREAMS_RECORDED).expect("memory");
        assert_eq!(part, large);
        let rest = host_malloc(24 * MIB, HOST_STREAMS_RECORDED).expect("memory");
        assert_eq!(rest, large + 40 * MIB);
        let next = host_malloc(64 * MIB, HOST_STREAMS_RECORDED).expect("memory");
        write(machine, next, 1, 64 * MIB);
        for block in [small, part, rest, next] {
            host_free(block).expect("live");
        }
        host_empty_cache().expect("it works");
        assert_eq!(pinned(machine), 0);
    });
}

/// Whatever sizes come, no more is page-locked than was in use at once, and an eighth more.
#[test]
fn growth_is_bounded() {
    hosted("growth_is_bounded", &[], |machine| {
        let mut random = Random(5);
        let (mut live, mut most, mut now) = (Vec::new(), 0, 0u64);
        for _ in 0..600 {
            let bytes = (32 * MIB + random.below(32 * MIB)) / 8 / 512 * 512;
            live.push((host_malloc(bytes, HOST_STREAMS_RECORDED).expect("memory"), bytes));
            now += bytes;
            most = most.max(now);
            // Where no driver allocation is wholly free, what is left of each adds to that.
            assert!(pinned(machine) <= most + (most / 4).max(2 * MIB), "{most} {:?}", stats());
            assert_eq!(pinned(machine), stats().reserved);
            if live.len() > 8 {
                let (block, bytes) = live.remove(0);
                host_free(block).expect("live");
                now -= bytes;
            }
        }
        assert!(machine.sim.calls("cuMemHostAlloc") < 100, "few of them are for the driver");
    });
}

/// Memory of other flags is other memory, and the driver is told.
#[test]
fn flags_are_passed_on_and_kept_apart() {
    hosted("flags_are_passed_on_and_kept_apart", &[], |machine| {
        let mut blocks = Vec::new();
        for flags in 0..8u32 {
            let block = host_malloc(3 * MIB, flags).expect("memory");
            let mut told = 0u32;
            let to = &mut told;
            assert_eq!(cu!(machine, "cuMemHostGetFlags"(to => *mut u32, block => u64)), 0);
            assert_eq!(told & !HOST_MAPPED, flags & !HOST_MAPPED);
            blocks.push(block);
        }
        blocks.iter().for_each(|&block| host_free(block).expect("live"));
        machine.synchronize_all();
        for flags in 0..8u32 {
            assert_eq!(
                host_malloc(3 * MIB, flags | HOST_STREAMS_RECORDED),
                Ok(blocks[flags as usize])
            );
        }
        assert_eq!(HOST_PORTABLE | HOST_MAPPED | HOST_WRITE_COMBINED, 7);
        let Err(Error::InvalidArgument { argument: "flags", .. }) = host_malloc(1, 8) else {
            panic!("8 is no flag")
        };
    });
}

#[test]
fn misuse_has_its_own_errors() {
    hosted("misuse_has_its_own_errors", &[], |machine| {
        assert!(matches!(host_free(0x1000), Err(Error::ForeignPointer(_))));
        assert_eq!(
            (host_malloc(0, 0), host_free(0), host_record_stream(0, 0)),
            (Ok(0), Ok(()), Ok(()))
        );
        let block = host_malloc(8192, 0).expect("memory");
        let device = malloc(4096, 0).expect("room");
        assert!(matches!(host_free(block + 512), Err(Error::InteriorPointer { .. })));
        assert!(matches!(host_free(device), Err(Error::ForeignPointer(_))));
        assert!(matches!(process::free(block), Err(Error::ForeignPointer(_))));
        assert!(matches!(host_record_stream(block + 1, 0), Err(Error::InteriorPointer { .. })));
        assert!(matches!(host_record_stream(block, 0x1234560), Err(Error::InvalidStream(_))));
        host_free(block).expect("live");
        assert!(matches!(host_free(block), Err(Error::DoubleFree(_))));
        assert!(matches!(host_record_stream(block, 0), Err(Error::DoubleFree(_))));
        for bytes in [u64::MAX, u64::MAX - 511, u64::MAX - (2 << 20), 1 << 63] {
            assert!(is_out_of_memory(&host_malloc(bytes, 0)), "{bytes}");
        }
        assert_eq!((stats().requested, stats().out_of_memory_count), (0, 4));
        let calls = stats();
        let _ = machine;
        assert_eq!(calls.malloc_count - calls.free_count, calls.live_block_count);
    });
}

/// When the driver has no more, all that is cached goes back, then freed blocks are waited for.
#[test]
fn a_refusal_gives_the_cache_back_and_waits() {
    hosted("a_refusal_gives_the_cache_back_and_waits", &[], |machine| {
        let stream = machine.held_stream();
        let cached = host_malloc(4 * MIB, HOST_STREAMS_RECORDED).expect("memory");
        let live = host_malloc(80 * MIB, 0).expect("memory");
        host_free(cached).expect("live");
        machine.sim.fault("cuMemHostAlloc", 1, 0, OUT_OF_MEMORY, false).expect("a fault");
        let block = host_malloc(6 * MIB, 0).expect("the second time");
        assert_eq!((stats().retry_count, stats().release_count), (1, 1));
        assert_eq!((stats().reserved, pinned(machine)), (86 * MIB, 86 * MIB));
        // Nothing is cached: the block that a copy still reads is waited for.
        let device = malloc_on(6 * MIB, stream).expect("room");
        write(machine, block, 9, 6 * MIB);
        send(machine, stream, device, block, 6 * MIB);
        host_record_stream(block, stream).expect("a stream");
        host_free(block).expect("live");
        machine.sim.fault("cuMemHostAlloc", 1, 1, OUT_OF_MEMORY, false).expect("a fault");
        assert_eq!(host_malloc(5 * MIB, 0), Ok(block));
        write(machine, block, 1, 5 * MIB);
        let Err(Error::OutOfMemory(text)) = host_malloc(7 * MIB, 0) else { panic!("refused") };
        for part in
            ["7340032 bytes", "cuMemHostAlloc returned 2", "90177536 bytes", "2 live blocks"]
        {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert_eq!(stats().out_of_memory_count, 1);
        machine.sim.clear_faults();
        host_malloc(7 * MIB, 0).expect("memory again");
        host_free(live).expect("live");
        machine.synchronize_all();
        assert_eq!(machine.byte(device), 9);
        machine.assert_clean();
    });
}

/// Any call that fails, at any time, loses nothing and gives nothing out twice.
#[test]
fn failing_calls_lose_nothing() {
    const FUNCTIONS: [&str; 10] = [
        "cuMemHostAlloc",
        "cuMemFreeHost",
        "cuEventCreate",
        "cuEventRecord",
        "cuEventQuery",
        "cuCtxRecordEvent",
        "cuCtxPushCurrent",
        "cuCtxGetCurrent",
        "cuStreamGetId",
        "cuEventSynchronize",
    ];
    hosted("failing_calls_lose_nothing", &[], |machine| {
        let (one, borrowed) = (machine.held_stream(), machine.stream());
        let device = malloc(MIB, 0).expect("room");
        machine.synchronize_all();
        let mut fired = 0;
        for function in FUNCTIONS {
            for (at, after) in [(1, false), (2, false), (4, false), (1, true), (3, true)] {
                // Not every function can fail after its effect.
                if machine.sim.fault(function, at, 3, UNKNOWN, after).is_err() {
                    assert!(after);
                    continue;
                }
                let mut live = Vec::new();
                for round in 0..6u64 {
                    if let Ok(block) = host_malloc((1 + round) * 300_000, 0) {
                        live.push(block);
                    }
                    let Some(block) = live.pop() else { continue };
                    write(machine, block, round as u8, 4096);
                    // Each stream has its own place to copy to: nothing orders them.
                    let which = round % 3;
                    let stream = [one, borrowed, 0][which as usize];
                    // A stream that could not be recorded is not given the block.
                    if host_record_stream(block, stream).is_ok() {
                        send(machine, stream, device + 4096 * which, block, 4096);
                    }
                    host_free(block).expect("live");
                }
                let _ = host_empty_cache();
                machine.sim.clear_faults();
                fired = machine.sim.faults_fired().max(fired);
                live.drain(..).for_each(|block| host_free(block).expect("live"));
                host_empty_cache().expect("it works again");
                let now = stats();
                assert_eq!((now.active, now.limbo_block_count), (0, 0), "{function} {at}");
                assert_eq!(now.reserved, now.quarantined, "{function} {at}");
                assert!(pinned(machine) <= now.reserved, "{function} {at} {after}");
                machine.synchronize_all();
            }
        }
        assert!(fired > 10, "{fired} calls failed");
        machine.assert_clean();
    });
}

/// At the process's end the driver takes everything back by itself.
#[test]
fn a_driver_that_has_shut_down_is_no_failure() {
    hosted("a_driver_that_has_shut_down_is_no_failure", &[], |machine| {
        let block = host_malloc(MIB, 0).expect("memory");
        host_free(block).expect("live");
        machine.synchronize_all();
        let live = host_malloc(8 * MIB, 0).expect("memory");
        machine.sim.fault("cuMemFreeHost", 1, 1, 4, false).expect("a fault");
        machine.sim.fault("cuCtxRecordEvent", 1, 1, 4, false).expect("a fault");
        assert_eq!(host_empty_cache(), Ok(0));
        host_free(live).expect("live");
        assert!(stats().reserved > 0);
    });
}

/// A reset takes the memory of its device with it, and no other.
#[test]
fn a_reset_takes_its_own_memory_only() {
    hosted("a_reset_takes_its_own_memory_only", &[], |machine| {
        let lost = host_malloc(3 * MIB, 0).expect("memory");
        let cached = host_malloc(5 * MIB, HOST_STREAMS_RECORDED).expect("memory");
        let limbo = host_malloc(4 * MIB, 0).expect("memory");
        host_record_stream(lost, 0).expect("a stream");
        machine.use_device(1);
        let kept = host_malloc(6 * MIB, 0).expect("memory");
        write(machine, kept, 5, 6 * MIB);
        machine.use_device(0);
        let stuck = host_malloc(7 * MIB, HOST_STREAMS_RECORDED).expect("memory");
        host_free(stuck).expect("live");
        machine.sim.fault("cuMemFreeHost", 1, 0, UNKNOWN, false).expect("a fault");
        assert!(host_empty_cache().is_err());
        assert_eq!((stats().quarantined, stats().reserved), (7 * MIB, pinned(machine)));
        host_free(cached).expect("live");
        host_free(limbo).expect("live");
        machine.reset_device(0);
        machine.use_device(0);
        let fresh = host_malloc(20 * MIB, 0).expect("memory");
        write(machine, fresh, 6, 20 * MIB);
        assert_eq!((stats().reserved, stats().live_block_count), (pinned(machine), 2));
        assert_eq!(stats().reserved, 26 * MIB);
        assert_eq!(host_free(lost), Err(Error::DeviceReset(0)));
        host_free(kept).expect("live");
        host_free(fresh).expect("live");
        host_empty_cache().expect("it works");
        assert_eq!((stats().reserved, pinned(machine)), (0, 0));
    });
}

/// A captured stream's use lasts until its graph is gone; meanwhile nothing is given back.
#[test]
fn a_captured_use_lasts_as_long_as_its_graph() {
    hosted("a_captured_use_lasts_as_long_as_its_graph", &[], |machine| {
        let stream = machine.held_stream();
        let spare = host_malloc(4 * MIB, HOST_STREAMS_RECORDED).expect("memory");
        let used = host_malloc(3 * MIB, HOST_STREAMS_RECORDED).expect("memory");
        let graph = process::graph_begin(0, stream, 0).expect("the stream is free");
        host_record_stream(used, stream).expect("a stream");
        host_free(spare).expect("live");
        host_free(used).expect("live");
        assert_eq!(host_empty_cache(), Ok(0), "a capture is under way");
        process::graph_end(graph).expect("begun");
        machine.synchronize_all();
        assert_eq!(host_empty_cache(), Ok(4 * MIB));
        assert_ne!(host_malloc(3 * MIB, HOST_STREAMS_RECORDED), Ok(used));
        machine.gate(stream, 1);
        process::graph_destroy(graph, stream).expect("there");
        assert_ne!(host_malloc(3 * MIB, HOST_STREAMS_RECORDED), Ok(used), "its last launch runs");
        machine.sim.gate_open(1);
        machine.synchronize_all();
        assert_eq!(host_malloc(3 * MIB, HOST_STREAMS_RECORDED), Ok(used));
    });
}

/// Without events over a context, what is not recorded on an open stream is waited for, as
/// cuMemFreeHost() would.
#[test]
fn older_drivers_wait_rather_than_grow() {
    let older = [("SIMCUDA_DRIVER", "12040")];
    hosted("older_drivers_wait_rather_than_grow", &older, |machine| {
        let borrowed = machine.stream();
        let device = malloc_on(MIB, borrowed).expect("room");
        machine.synchronize_all();
        for round in 0..20u8 {
            let block = host_malloc(MIB, 0).expect("memory");
            write(machine, block, round, MIB);
            send(machine, borrowed, device, block, MIB);
            if round % 2 == 0 {
                host_record_stream(block, borrowed).expect("a stream");
            }
            host_free(block).expect("live");
        }
        assert!(stats().reserved <= 4 * MIB, "{}", stats().reserved);
        assert!(stats().wait_count > 0);
        machine.synchronize_all();
        assert_eq!(machine.byte(device), 19);
        machine.assert_clean();
    });
}

/// A loop that records its stream costs one event record and one query a free at most, and nothing
/// of memory; one that needs no stream costs nothing at all.
#[test]
fn steady_loops_cost_little() {
    hosted("steady_loops_cost_little", &[], |machine| {
        let stream = machine.held_stream();
        let device = malloc_on(4 * MIB, stream).expect("room");
        let round = |bytes: u64| {
            let block = host_malloc(bytes, 0).expect("memory");
            write(machine, block, 1, 4096);
            send(machine, stream, device, block, bytes);
            host_record_stream(block, stream).expect("a stream");
            host_free(block).expect("live");
            machine.synchronize(stream);
        };
        for bytes in [4096, 4 * MIB] {
            (0..3).for_each(|_| round(bytes));
            machine.sim.clear_calls();
            (0..100).for_each(|_| round(bytes));
            assert_eq!(machine.sim.calls("cuMemHostAlloc"), 0);
            assert_eq!(machine.sim.calls("cuMemFreeHost"), 0);
            assert!(machine.sim.calls("cuEventRecord") <= 100);
            assert!(machine.sim.calls("cuEventQuery") <= 100);
        }
        let hit =
            || host_free(host_malloc(4096, HOST_STREAMS_RECORDED).expect("memory")).expect("live");
        hit();
        machine.sim.clear_calls();
        (0..100).for_each(|_| hit());
        assert_eq!(machine.sim.calls_total(), 0);
        machine.assert_clean();
    });
}

/// A child of a fork gets an error, and no hang.
#[test]
fn a_forked_child_is_told() {
    hosted("a_forked_child_is_told", &[], |_| {
        let block = host_malloc(4096, 0).expect("memory");
        // SAFETY: the child calls a few functions that take no lock in it, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let told = host_malloc(4096, 0) == Err(Error::Forked)
                && host_free(block) == Err(Error::Forked)
                && host_empty_cache() == Err(Error::Forked)
                && host_stats() == Err(Error::Forked);
            // SAFETY: ends the child without running anything else in it.
            unsafe { libc::_exit(i32::from(!told)) };
        }
        let mut status = 0;
        // SAFETY: the child is ours; writes one int.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        host_free(block).expect("live");
    });
}

static STASH: Mutex<Vec<u64>> = Mutex::new(Vec::new());
static TOLD: Mutex<[u64; 3]> = Mutex::new([0; 3]);

extern "C-unwind" fn notes_and_frees(event: *const cuddy_event, _: *mut c_void) {
    // SAFETY: it lives until the callback returns.
    let event = unsafe { *event };
    if event.device != CUDDY_HOST_MEMORY {
        return;
    }
    assert!(event.allocated <= event.reserved && event.stream.is_null());
    let mut told = TOLD.lock().expect("no panic");
    match event.kind {
        CUDDY_EVENT_OUT_OF_MEMORY => {
            told[0] += 1;
            let block = STASH.lock().expect("no panic").pop();
            block.into_iter().for_each(|block| host_free(block).expect("live"));
        }
        CUDDY_EVENT_GROWTH => told[1] += event.bytes,
        CUDDY_EVENT_RELEASE => told[2] += event.bytes,
        other => panic!("{other} is no kind"),
    }
}

/// Observers are told of host memory as of a device's; what they free serves the request.
#[test]
fn observers_are_told_of_host_memory() {
    hosted("observers_are_told_of_host_memory", &[], |machine| {
        let mut name = 0;
        let kinds = CUDDY_EVENT_OUT_OF_MEMORY | CUDDY_EVENT_GROWTH | CUDDY_EVENT_RELEASE;
        // SAFETY: the callback takes what it is given.
        unsafe { cuddy_observe(&mut name, kinds, Some(notes_and_frees), std::ptr::null_mut()) };
        for _ in 0..3 {
            let block = host_malloc(4 * MIB, 0).expect("memory");
            STASH.lock().expect("no panic").push(block);
        }
        machine.sim.fault("cuMemHostAlloc", 1, 1, OUT_OF_MEMORY, false).expect("a fault");
        let block = host_malloc(3 * MIB, 0).expect("what a callback freed");
        assert_eq!((stats().callback_count, stats().out_of_memory_count), (1, 0));
        // No block is large enough: all are freed, one after the other, and nothing helps.
        assert!(is_out_of_memory(&host_malloc(5 * MIB, 0)));
        assert_eq!(STASH.lock().expect("no panic").len(), 0);
        machine.sim.clear_faults();
        host_free(block).expect("live");
        host_empty_cache().expect("it works");
        let told = *TOLD.lock().expect("no panic");
        assert_eq!((told[0] >= 3, told[1], told[2]), (true, 12 * MIB, 12 * MIB));
    });
}

/// Threads that allocate, copy, free and give back at once.
#[test]
fn threads_share_it() {
    hosted("threads_share_it", &[], |machine| {
        let context = machine.context();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    machine.set_context(context);
                    let stream = machine.held_stream();
                    let device = malloc_on(MIB, stream).expect("room");
                    let (mut random, mut live) = (Random(thread), Vec::new());
                    for _ in 0..200 {
                        match random.below(20) {
                            0 => drop(host_empty_cache().expect("it works")),
                            1..8 if !live.is_empty() => {
                                let at = random.below(live.len() as u64) as usize;
                                host_free(live.swap_remove(at)).expect("live");
                            }
                            _ => {
                                let bytes = 4096 + random.below(MIB);
                                let block = host_malloc(bytes, HOST_PORTABLE).expect("memory");
                                write(machine, block, thread as u8, 4096);
                                send(machine, stream, device, block, 4096);
                                host_record_stream(block, stream).expect("a stream");
                                live.push(block);
                            }
                        }
                    }
                    live.drain(..).for_each(|block| host_free(block).expect("live"));
                });
            }
        });
        machine.synchronize_all();
        host_empty_cache().expect("it works");
        let now = stats();
        assert_eq!((now.reserved, now.active, now.live_block_count), (0, 0, 0));
        assert_eq!(now.malloc_count, now.free_count);
        assert_eq!(pinned(machine), 0);
        machine.assert_clean();
    });
}

/// Memory is of the device that is current, and nothing is made on another; the caller's context stays.
#[test]
fn nothing_is_made_on_other_devices() {
    hosted("nothing_is_made_on_other_devices", &[], |machine| {
        // The scenario has begun with device 0.
        assert_eq!((machine.sim.contexts_created(0), machine.sim.contexts_created(1)), (1, 0));
        let before = machine.context();
        let block = host_malloc(3 * MIB, 0).expect("memory");
        host_free(block).expect("live");
        host_empty_cache().expect("it works");
        assert_eq!(machine.context(), before);
        assert_eq!((machine.sim.contexts_created(0), machine.sim.contexts_created(1)), (1, 0));
        machine.set_context(0);
        let block = host_malloc(3 * MIB, 0).expect("memory");
        host_free(block).expect("live");
        host_empty_cache().expect("it works");
        assert_eq!((machine.context(), machine.sim.contexts_created(1)), (0, 0));
    });
}

/// Without caching every call is the driver's, at its size.
#[test]
fn without_caching_every_call_reaches_the_driver() {
    let off = [("CUDDY_CONF", "caching:off")];
    hosted("without_caching_every_call_reaches_the_driver", &off, |machine| {
        let stream = machine.held_stream();
        let device = malloc_on(MIB, stream).expect("room");
        for round in 1..=5u8 {
            let block = host_malloc(10_000, 0).expect("memory");
            let other = host_malloc(MIB, 0).expect("memory");
            assert_eq!(pinned(machine), 12 << 10 | MIB);
            write(machine, other, round, MIB);
            send(machine, stream, device, other, MIB);
            host_record_stream(other, stream).expect("a stream");
            host_free(block).expect("live");
            host_free(other).expect("live");
            assert_eq!((pinned(machine), stats().reserved, stats().active), (0, 0, 0));
            assert_eq!(machine.byte(device), round, "the driver has waited");
        }
        assert_eq!((stats().hit_count, stats().miss_count), (0, 10));
        machine.assert_clean();
    });
}

/// A block that a capture copies from is the graph's for all its launches, though it was freed inside;
/// no call breaks the capture, in whatever mode it is.
#[test]
fn a_captured_copy_finds_its_block_at_each_launch() {
    hosted("a_captured_copy_finds_its_block_at_each_launch", &[], |machine| {
        let (bytes, stream) = (3 * MIB, machine.held_stream());
        let device = malloc_on(bytes, stream).expect("room");
        machine.fill(stream, device, 0, bytes);
        let dirty = host_malloc(bytes, 0).expect("memory");
        machine.synchronize_all();
        for mode in 0..3 {
            let used = host_malloc(bytes, 0).expect("memory");
            write(machine, used, 7, bytes);
            let graph = process::graph_begin(0, stream, 0).expect("the stream is free");
            machine.begin_capture_in(stream, mode);
            send(machine, stream, device, used, bytes);
            host_record_stream(used, stream).expect("a stream");
            host_free(used).expect("live");
            let inside = host_malloc(bytes, HOST_STREAMS_RECORDED).expect("memory");
            assert_ne!(inside, used);
            write(machine, inside, 1, bytes);
            host_free(inside).expect("live");
            assert_eq!(host_empty_cache(), Ok(0));
            let executable = machine.instantiate_capture(stream);
            process::graph_end(graph).expect("begun");
            for launch in 0..3u8 {
                let mut others = Vec::new();
                while others.len() < 3 {
                    let other = host_malloc(bytes, HOST_STREAMS_RECORDED).expect("memory");
                    assert_ne!(other, used);
                    write(machine, other, launch, bytes);
                    others.push(other);
                }
                machine.fill(stream, device, 0xee, bytes);
                let code = cu!(machine, "cuGraphLaunch"(executable => usize, stream => usize));
                assert_eq!(code, 0);
                others.into_iter().for_each(|other| host_free(other).expect("live"));
                machine.synchronize(stream);
                assert_eq!((machine.byte(device), machine.byte(device + bytes - 1)), (7, 7));
            }
            machine.gate(stream, mode as u64);
            assert_eq!(cu!(machine, "cuGraphLaunch"(executable => usize, stream => usize)), 0);
            assert_eq!(cu!(machine, "cuGraphExecDestroy"(executable => usize)), 0);
            process::graph_destroy(graph, stream).expect("there");
            let other = host_malloc(bytes, HOST_STREAMS_RECORDED).expect("memory");
            assert_ne!(other, used, "its last launch runs");
            machine.sim.gate_open(mode as u64);
            machine.synchronize_all();
            let mut taken = Vec::new();
            while taken.last() != Some(&used) {
                assert!(taken.len() < 8, "it never comes back");
                taken.push(host_malloc(bytes, HOST_STREAMS_RECORDED).expect("memory"));
            }
            write(machine, used, 2, bytes);
            taken.into_iter().chain([other]).for_each(|block| host_free(block).expect("live"));
            host_empty_cache().expect("it works");
        }
        host_free(dirty).expect("live");
        machine.assert_clean();
    });
}

/// A capture that Cuddy was not told of cannot be given a block: it is said, and the capture goes on.
#[test]
fn a_capture_that_was_not_announced_is_refused() {
    hosted("a_capture_that_was_not_announced_is_refused", &[], |machine| {
        let stream = machine.stream();
        let block = host_malloc(MIB, 0).expect("memory");
        let device = malloc(MIB, 0).expect("room");
        machine.synchronize_all();
        machine.begin_capture_in(stream, 0);
        assert!(matches!(host_record_stream(block, stream), Err(Error::InvalidGraph(_))));
        machine.fill(stream, device, 1, MIB);
        let executable = machine.instantiate_capture(stream);
        assert_eq!(cu!(machine, "cuGraphExecDestroy"(executable => usize)), 0);
        host_record_stream(block, stream).expect("no capture any more");
        host_free(block).expect("live");
    });
}

/// A thread that has no context may say which streams use a block, and free it.
#[test]
fn a_thread_without_a_context_records_a_stream() {
    hosted("a_thread_without_a_context_records_a_stream", &[], |machine| {
        let (stream, open) = (machine.stream(), machine.held_stream());
        let device = malloc(3 * MIB, 0).expect("room");
        machine.synchronize_all();
        for (gate, stream) in [stream, open].into_iter().enumerate() {
            let block = host_malloc(3 * MIB, 0).expect("memory");
            write(machine, block, 3, 3 * MIB);
            machine.gate(stream, gate as u64);
            send(machine, stream, device, block, 3 * MIB);
            let record = || {
                assert_eq!(machine.context(), 0);
                host_record_stream(block, stream).expect("a stream");
                host_free(block).expect("live");
                assert_ne!(host_malloc(3 * MIB, HOST_STREAMS_RECORDED), Ok(block));
                assert_eq!(machine.context(), 0);
            };
            std::thread::scope(|scope| scope.spawn(record).join().expect("no panic"));
            machine.sim.gate_open(gate as u64);
            machine.synchronize_all();
            assert_eq!(machine.byte(device), 3);
        }
        machine.assert_clean();
    });
}
