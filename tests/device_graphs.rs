//! Graphs: what a capture uses stays its own until the graph is destroyed, and no capture is disturbed.
//!
//! A launch is played by work given to a stream on the addresses that the graph was captured with: to
//! the allocator and to the checker it is the same.

mod machine;

use std::collections::BTreeMap;

use cuddy::error::Error;
use cuddy::process::{self, DEFAULT_POOL, PoolOptions};
use machine::*;

const SCHEDULES: [&str; 5] = ["eager", "lazy", "lag:100", "random:1", "random:7"];

fn under_every_schedule(test: &str, more: &[(&str, &str)], body: impl Fn(&Machine)) {
    let device = [("SIMCUDA_MEMORY", "1GiB"), ("SIMCUDA_DEVICES", "2")];
    under(&SCHEDULES, test, &[&device, more].concat(), |machine| {
        body(machine);
        machine.assert_clean();
    });
}

fn begin(stream: usize) -> u64 {
    process::graph_begin(0, stream, 0).expect("the stream is free")
}

fn calls() -> BTreeMap<&'static str, u64> {
    process::driver_calls().into_iter().collect()
}

/// The calls that a capture forbids, or that reach for all of a context.
fn assert_no_forbidden(before: &BTreeMap<&'static str, u64>) {
    let after = calls();
    for name in [
        "cuMemFree",
        "cuMemUnmap",
        "cuEventQuery",
        "cuEventSynchronize",
        "cuCtxSynchronize",
        "cuCtxRecordEvent",
        "cuEventRecord",
        "cuStreamWaitEvent",
    ] {
        let count = |calls: &BTreeMap<&'static str, u64>| calls.get(name).copied().unwrap_or(0);
        assert_eq!(count(before), count(&after), "{name} during a capture");
    }
}

#[test]
fn what_a_graph_frees_stays_its_own_until_it_is_destroyed() {
    let name = "what_a_graph_frees_stays_its_own_until_it_is_destroyed";
    under_every_schedule(name, &[], |machine| {
        let (stream, launches) = (machine.stream(), machine.stream());
        let graph = begin(stream);
        let block = malloc_on(4 * MIB, stream).expect("fits");
        process::free(block).expect("live");
        process::graph_end(graph).expect("it was begun");
        process::empty_cache(0).expect("works");
        assert_eq!(stats(0).reserved, 4 * MIB, "a graph's memory stays mapped");
        for _ in 0..3 {
            machine.fill(launches, block, 7, 4 * MIB);
            for other in [stream, launches, 0] {
                let eager = malloc_on(4 * MIB, other).expect("fits");
                assert!(!overlap((eager, 4 * MIB), (block, 4 * MIB)));
                machine.fill(other, eager, 1, 4 * MIB);
                process::free(eager).expect("live");
            }
        }
        process::graph_destroy(graph, launches).expect("it is there");
        process::empty_cache(0).expect("works");
        machine.synchronize_all();
        process::empty_cache(0).expect("works");
        assert_eq!((stats(0).reserved, machine.holdings()), (0, (0, 0, 0)));
    });
}

#[test]
fn memory_of_a_graph_waits_for_its_last_launch() {
    let environment = [("SIMCUDA_MEMORY", "64MiB"), ("SIMCUDA_CHECKER", "log")];
    isolated("memory_of_a_graph_waits_for_its_last_launch", &environment, |machine| {
        machine.use_device(0);
        let (stream, launches) = (machine.stream(), machine.stream());
        let graph = begin(stream);
        let block = malloc_on(40 * MIB, stream).expect("fits");
        process::free(block).expect("live");
        process::graph_end(graph).expect("it was begun");
        machine.gate(launches, 1);
        machine.fill(launches, block, 7, 40 * MIB);
        process::graph_destroy(graph, launches).expect("it is there");
        assert_eq!(stats(0).reserved, 40 * MIB, "the launch is not over");
        let beside = malloc_on(20 * MIB, stream).expect("there is room beside it");
        assert!(!overlap((beside, 20 * MIB), (block, 40 * MIB)));
        machine.fill(stream, beside, 1, 20 * MIB);
        process::free(beside).expect("live");
        machine.sim.gate_open(1);
        let large = malloc_on(60 * MIB, stream).expect("the graph's memory is nobody's");
        machine.fill(stream, large, 1, 60 * MIB);
        process::free(large).expect("live");
        machine.assert_clean();
    });
}

#[test]
fn inside_a_capture_a_stream_uses_its_memory_again() {
    let name = "inside_a_capture_a_stream_uses_its_memory_again";
    under_every_schedule(name, &[], |machine| {
        let stream = machine.held_stream();
        let graph = begin(stream);
        let first = malloc_on(3 * MIB, stream).expect("fits");
        let before = calls();
        process::free(first).expect("live");
        assert_eq!(malloc_on(3 * MIB, stream), Ok(first));
        assert_no_forbidden(&before);
        process::free(first).expect("live");
        process::graph_end(graph).expect("it was begun");
        machine.fill(stream, first, 1, 3 * MIB);
        let eager = malloc_on(3 * MIB, stream).expect("fits");
        assert_ne!(eager, first, "outside it is the graph's");
        machine.fill(stream, eager, 2, 3 * MIB);
        process::graph_destroy(graph, stream).expect("it is there");
    });
}

#[test]
fn a_block_freed_while_its_stream_is_captured_is_the_graphs() {
    let name = "a_block_freed_while_its_stream_is_captured_is_the_graphs";
    under_every_schedule(name, &[], |machine| {
        for stream in [machine.held_stream(), machine.stream(), 2] {
            let launches = machine.stream();
            let block = malloc_on(4 * MIB, stream).expect("fits");
            machine.fill(stream, block, 1, 4 * MIB);
            let graph = begin(stream);
            process::free(block).expect("live");
            process::graph_end(graph).expect("it was begun");
            assert_eq!(stats(0).limbo_block_count, 1);
            // The launch comes after the stream's own work, as the program orders it.
            machine.order(stream, launches);
            machine.fill(launches, block, 2, 4 * MIB);
            let eager = malloc_on(4 * MIB, stream).expect("fits");
            assert!(!overlap((eager, 4 * MIB), (block, 4 * MIB)));
            machine.fill(stream, eager, 3, 4 * MIB);
            process::free(eager).expect("live");
            process::graph_destroy(graph, launches).expect("it is there");
            process::empty_cache(0).expect("waits for what is left");
            assert_eq!((stats(0).active, stats(0).reserved), (0, 0));
        }
    });
}

#[test]
fn a_recorded_use_in_a_capture_lasts_as_long_as_the_graph() {
    let name = "a_recorded_use_in_a_capture_lasts_as_long_as_the_graph";
    under_every_schedule(name, &[], |machine| {
        let [owner, captured] = machine.held_streams();
        let block = malloc_on(4 * MIB, owner).expect("fits");
        let spare = malloc_on(MIB, owner).expect("fits");
        machine.fill(owner, block, 1, 4 * MIB);
        process::free(spare).expect("live");
        let graph = begin(captured);
        let before = calls();
        process::record_stream(block, captured).expect("live");
        process::free(block).expect("live");
        let hit = malloc_on(MIB, owner).expect("cached");
        assert_no_forbidden(&before);
        process::free(hit).expect("live");
        process::graph_end(graph).expect("it was begun");
        let eager = malloc_on(4 * MIB, owner).expect("fits");
        assert!(!overlap((eager, 4 * MIB), (block, 4 * MIB)));
        machine.order(owner, captured);
        machine.fill(captured, block, 2, 4 * MIB);
        process::free(eager).expect("live");
        process::graph_destroy(graph, captured).expect("it is there");
        process::empty_cache(0).expect("waits for what is left");
        assert_eq!((stats(0).active, stats(0).reserved), (0, 0));
    });
}

#[test]
fn frees_during_a_capture_are_fenced_after_it() {
    let name = "frees_during_a_capture_are_fenced_after_it";
    under_every_schedule(name, &[], |machine| {
        let [owner, captured] = machine.held_streams();
        let users = [0, machine.stream(), 2];
        let graph = begin(captured);
        for user in users {
            let block = malloc_on(4 * MIB, owner).expect("fits");
            machine.fill(owner, block, 1, 4 * MIB);
            machine.order(owner, user);
            machine.fill(user, block, 2, 4 * MIB);
            process::record_stream(block, user).expect("live");
            let before = calls();
            process::free(block).expect("live");
            if user != 2 {
                assert_no_forbidden(&before);
            }
        }
        assert_eq!(stats(0).limbo_block_count, 3);
        let recorded = |calls: BTreeMap<&str, u64>| {
            calls.get("cuEventRecord").copied().unwrap_or(0)
                + calls.get("cuCtxRecordEvent").copied().unwrap_or(0)
        };
        let before = recorded(calls());
        process::graph_end(graph).expect("it was begun");
        assert!(recorded(calls()) > before, "what was deferred is fenced now");
        machine.synchronize_all();
        process::empty_cache(0).expect("works");
        assert_eq!((stats(0).limbo_block_count, stats(0).reserved), (0, 0));
        process::graph_destroy(graph, captured).expect("it is there");
    });
}

#[test]
fn a_capture_that_finds_no_memory_fails_and_disturbs_nothing() {
    for backing in ["auto", "segments"] {
        let conf = format!("backing:{backing},memory_limit:64MiB");
        let more = [("CUDDY_CONF", conf.as_str())];
        let name = "a_capture_that_finds_no_memory_fails_and_disturbs_nothing";
        under_every_schedule(name, &more, |machine| {
            let [stream, other] = machine.held_streams();
            let cached = malloc_on(40 * MIB, other).expect("fits");
            machine.fill(other, cached, 1, 40 * MIB);
            process::free(cached).expect("live");
            let graph = begin(stream);
            let before = calls();
            assert!(matches!(malloc_on(60 * MIB, stream), Err(Error::OutOfMemory(_))));
            assert_no_forbidden(&before);
            let small = malloc_on(20 * MIB, stream).expect("within the limit");
            process::free(small).expect("live");
            process::graph_end(graph).expect("it was begun");
            process::graph_destroy(graph, stream).expect("it is there");
            let large = malloc_on(60 * MIB, stream).expect("by taking back what is cached");
            machine.fill(stream, large, 1, 60 * MIB);
            process::free(large).expect("live");
        });
    }
}

#[test]
fn several_graphs_share_a_pool() {
    under_every_schedule("several_graphs_share_a_pool", &[], |machine| {
        let (stream, launches) = (machine.held_stream(), machine.stream());
        let options = PoolOptions { device: 0, limit: 0, use_on_oom: true };
        let pool = process::pool_create(options).expect("room");
        let mut graphs = Vec::new();
        let mut kept = 0;
        for _ in 0..3 {
            let graph = process::graph_begin(0, stream, pool).expect("the stream is free");
            let block = malloc_on(4 * MIB, stream).expect("fits");
            assert!(kept == 0 || kept == block, "a later graph uses what an earlier one freed");
            kept = block;
            process::free(block).expect("live");
            process::graph_end(graph).expect("it was begun");
            graphs.push(graph);
        }
        let reserved = || process::pool_stats(pool).expect("a pool").reserved;
        assert_eq!((reserved(), process::pool_empty_cache(pool)), (4 * MIB, Ok(0)));
        machine.fill(launches, kept, 1, 4 * MIB);
        process::graph_destroy(graphs[1], launches).expect("it is there");
        machine.fill(launches, kept, 2, 4 * MIB);
        process::graph_destroy(graphs[0], launches).expect("it is there");
        machine.synchronize_all();
        process::empty_cache(0).expect("works");
        assert_eq!(reserved(), 4 * MIB, "one graph is left");
        machine.fill(launches, kept, 3, 4 * MIB);
        process::graph_destroy(graphs[2], launches).expect("it is there");
        process::pool_empty_cache(pool).expect("works");
        process::empty_cache(0).expect("waits for the launches");
        assert_eq!(reserved(), 0);
        let block = process::malloc_in(pool, MIB, 0, 0, stream, None).expect("a pool as any other");
        process::free(block).expect("live");
        process::pool_destroy(pool).expect("it is there");
    });
}

#[test]
fn a_graphs_output_outlives_it() {
    let environment = [("SIMCUDA_MEMORY", "64MiB"), ("SIMCUDA_CHECKER", "log")];
    isolated("a_graphs_output_outlives_it", &environment, |machine| {
        machine.use_device(0);
        let (stream, launches) = (machine.held_stream(), machine.stream());
        for (gate, freed_first) in [(1, true), (2, false)] {
            let graph = begin(stream);
            let output = malloc_on(40 * MIB, stream).expect("fits");
            process::graph_end(graph).expect("it was begun");
            machine.fill(launches, output, 1, 40 * MIB);
            machine.order(launches, stream);
            machine.gate(stream, gate);
            // Work of the stream itself, outside the graph.
            machine.fill(stream, output, 2, 40 * MIB);
            if freed_first {
                process::free(output).expect("live");
            }
            process::graph_destroy(graph, launches).expect("it is there");
            machine.synchronize(launches);
            if !freed_first {
                assert_eq!(process::block_info(output).expect("live").bytes, 40 * MIB);
                process::free(output).expect("live");
            }
            let beside = malloc_on(20 * MIB, launches).expect("there is room beside it");
            assert!(!overlap((beside, 20 * MIB), (output, 40 * MIB)));
            machine.fill(launches, beside, 3, 20 * MIB);
            process::free(beside).expect("live");
            machine.sim.gate_open(gate);
            let large = malloc_on(60 * MIB, launches).expect("all of it is free in the end");
            machine.fill(launches, large, 1, 60 * MIB);
            process::free(large).expect("live");
            process::empty_cache(0).expect("works");
        }
        machine.assert_clean();
    });
}

#[test]
fn a_capture_that_failed_leaves_nothing_behind() {
    under_every_schedule("a_capture_that_failed_leaves_nothing_behind", &[], |machine| {
        let [stream, other] = machine.held_streams();
        // Two at once, one of them given up in the middle.
        let (failed, good) = (begin(stream), begin(other));
        let lost = malloc_on(MIB, stream).expect("fits");
        let kept = malloc_on(MIB, other).expect("fits");
        assert!(!overlap((lost, MIB), (kept, MIB)));
        process::free(lost).expect("live");
        process::graph_destroy(failed, stream).expect("ended by this");
        assert!(matches!(process::graph_end(failed), Err(Error::InvalidGraph(_))));
        process::free(kept).expect("live");
        process::graph_end(good).expect("it was begun");
        process::graph_destroy(good, other).expect("it is there");
        process::empty_cache(0).expect("works");
        assert_eq!((stats(0).active, stats(0).reserved), (0, 0));
        // The stream is as any other again, its hits without a driver call.
        let block = malloc_on(MIB, stream).expect("fits");
        process::free(block).expect("live");
        let before = calls();
        assert_eq!(malloc_on(MIB, stream), Ok(block));
        assert_eq!(before, calls());
        machine.fill(stream, block, 1, MIB);
        process::free(block).expect("live");
    });
}

#[test]
fn misuse_of_graphs_is_told() {
    let environment = [("SIMCUDA_MEMORY", "64MiB"), ("SIMCUDA_DEVICES", "2")];
    isolated("misuse_of_graphs_is_told", &environment, |machine| {
        assert!(matches!(process::graph_end(77), Err(Error::InvalidGraph(_))));
        machine.use_device(0);
        let stream = machine.held_stream();
        for legacy in [0, 1] {
            assert!(matches!(process::graph_begin(0, legacy, 0), Err(Error::InvalidStream(_))));
        }
        let in_default = process::graph_begin(0, stream, DEFAULT_POOL);
        assert!(matches!(in_default, Err(Error::InvalidPool(_))));
        assert!(matches!(process::graph_begin(0, stream, 99), Err(Error::InvalidPool(_))));
        let graph = begin(stream);
        let Err(Error::InvalidGraph(why)) = process::graph_begin(0, stream, 0) else {
            panic!("captured twice")
        };
        assert!(why.contains("end that one first"), "{why}");
        process::graph_end(graph).expect("it was begun");
        assert!(matches!(process::graph_end(graph), Err(Error::InvalidGraph(_))));
        let again = begin(stream);
        assert_ne!(graph, again);
        process::graph_destroy(graph, stream).expect("it is there");
        assert!(matches!(process::graph_destroy(graph, stream), Err(Error::InvalidGraph(_))));
        process::graph_end(again).expect("it was begun");
        assert!(matches!(process::graph_end(again + (1 << 32)), Err(Error::InvalidGraph(_))));
        assert!(matches!(process::graph_end(again + 1), Err(Error::InvalidGraph(_))));
        // A pool's name is gone with its graph's, its own pool with it.
        process::graph_destroy(again, stream).expect("it is there");
    });
}
