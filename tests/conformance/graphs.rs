//! Graphs, captured by the simulated driver for real: what may not be called in a capture ends it with
//! an error, so a capture that ends well has shown that nothing was.

use cuddy::error::Error;
use cuddy::process::{self, PoolOptions};

use crate::machine::*;

fn on(configuration: &str, test: &str, body: impl FnOnce(&Machine)) {
    let environment = [("SIMCUDA_MEMORY", "1GiB"), ("CUDDY_CONF", configuration)];
    checked(&format!("graphs::{test}"), &environment, |machine| {
        body(machine);
        machine.assert_clean();
    });
}

/// Begins a capture, and says so; the graph's name.
fn begin(machine: &Machine, stream: usize, mode: i32, pool: u64) -> u64 {
    machine.begin_capture_in(stream, mode);
    process::graph_begin(0, stream, pool).expect("the stream is free")
}

/// Ends a capture, which nothing has spoilt; what can be launched.
fn end(machine: &Machine, stream: usize, graph: u64) -> usize {
    let launchable = machine.instantiate_capture(stream);
    process::graph_end(graph).expect("it was begun");
    launchable
}

/// Destroys a graph behind its last launch.
fn destroy(machine: &Machine, graph: u64, launchable: usize, stream: usize) {
    machine.synchronize(stream);
    machine.destroy_launchable(launchable);
    process::graph_destroy(graph, stream).expect("it is there");
}

/// A request that finds no memory in a capture fails, and the capture is none the worse; the same
/// request is served after it.
#[test]
fn no_memory_in_a_capture_leaves_the_capture_valid() {
    for (mode, backing) in MODES.into_iter().flat_map(|mode| [(mode, "pages"), (mode, "segments")])
    {
        let configuration = format!("backing:{backing},memory_limit:256MiB");
        on(&configuration, "no_memory_in_a_capture_leaves_the_capture_valid", |machine| {
            let [s0, other] = machine.held_streams();
            let cached = malloc_on(128 * MIB, s0).expect("fits");
            machine.fill(s0, cached, 1, 128 * MIB);
            process::free(cached).expect("live");
            machine.synchronize_all();
            let graph = begin(machine, s0, mode, 0);
            let a = malloc_on(64 * MIB, s0).expect("within the limit");
            machine.fill(s0, a, 2, 64 * MIB);
            assert!(matches!(malloc_on(150 * MIB, s0), Err(Error::OutOfMemory(_))));
            // Beside the capture others go on: a cached block that was recorded on the captured stream.
            let p = malloc_on(1024, other).expect("fits");
            process::record_stream(p, s0).expect("live");
            process::free(p).expect("live");
            let q = malloc_on(1024, other).expect("fits");
            assert_ne!(q, p, "it is the graph's until its end");
            process::free(q).expect("live");
            process::free(a).expect("live");
            let launchable = end(machine, s0, graph);
            machine.launch(launchable, s0);
            destroy(machine, graph, launchable, s0);
            let large = malloc_on(150 * MIB, s0).expect("by releasing what is cached");
            machine.fill(s0, large, 3, 150 * MIB);
            process::free(large).expect("live");
            process::empty_cache(0).expect("it works");
            assert_eq!((stats(0).reserved, stats(0).active), (0, 0));
        });
    }
}

/// A block that a capturing stream used is freed, and the default stream allocates: nothing is
/// recorded, asked or waited for on the captured stream.
#[test]
fn a_block_of_a_capturing_stream_is_not_asked_about() {
    for mode in MODES {
        on("", "a_block_of_a_capturing_stream_is_not_asked_about", |machine| {
            let captured = machine.held_stream();
            let p = malloc(1024, 0).expect("fits");
            let spare = malloc(1024, 0).expect("fits");
            machine.fill(0, p, 1, 1024);
            machine.synchronize_all();
            process::free(spare).expect("live");
            let graph = begin(machine, captured, mode, 0);
            machine.fill(captured, p, 2, 1024);
            process::record_stream(p, captured).expect("live");
            process::free(p).expect("live");
            let again = malloc(1024, 0).expect("cached");
            assert_ne!(again, p, "p waits for the graph's end");
            let launchable = end(machine, captured, graph);
            machine.launch(launchable, captured);
            let other = malloc(1024, 0).expect("fits");
            assert_ne!(other, p, "p is the graph's");
            destroy(machine, graph, launchable, captured);
            machine.synchronize_all();
            process::empty_cache(0).expect("it works");
            assert_eq!(stats(0).limbo_block_count, 0, "with the graph p is free");
        });
    }
}

/// Two graphs in one pool, launched in their order: the second uses what the first freed.
#[test]
fn two_graphs_in_a_row_share_a_pools_memory() {
    on("", "two_graphs_in_a_row_share_a_pools_memory", |machine| {
        let stream = machine.held_stream();
        let options = PoolOptions { device: 0, limit: 0, use_on_oom: false };
        let reserved = |shared: bool| {
            let pool = process::pool_create(options).expect("room");
            let before = stats(0).reserved;
            let graphs = [0, 1].map(|value| {
                let graph = begin(machine, stream, 2, if shared { pool } else { 0 });
                let block = malloc_on(2 * MIB, stream).expect("fits");
                machine.fill(stream, block, value, 2 * MIB);
                process::free(block).expect("live");
                (graph, end(machine, stream, graph))
            });
            let grown = stats(0).reserved - before;
            for _ in 0..3 {
                graphs.iter().for_each(|&(_, launchable)| machine.launch(launchable, stream));
            }
            for (graph, launchable) in graphs {
                destroy(machine, graph, launchable, stream);
            }
            process::pool_destroy(pool).expect("it is there");
            grown
        };
        let (shared, apart) = (reserved(true), reserved(false));
        assert_eq!((shared, apart), (2 * MIB, 4 * MIB), "sharing saves exactly one segment");
    });
}

/// Graphs that share no pool share no byte, and may be launched side by side.
#[test]
fn graphs_without_a_common_pool_never_alias() {
    on("", "graphs_without_a_common_pool_never_alias", |machine| {
        let streams = [machine.held_stream(), machine.held_stream()];
        let graphs = streams.map(|stream| {
            let graph = begin(machine, stream, 1, 0);
            let block = malloc_on(3 * MIB, stream).expect("fits");
            machine.fill(stream, block, 1, 3 * MIB);
            process::free(block).expect("live");
            (block, graph, end(machine, stream, graph))
        });
        assert!(!overlap((graphs[0].0, 3 * MIB), (graphs[1].0, 3 * MIB)));
        for _ in 0..3 {
            for (stream, (_, _, launchable)) in streams.into_iter().zip(graphs) {
                machine.launch(launchable, stream);
            }
        }
        for (stream, (_, graph, launchable)) in streams.into_iter().zip(graphs) {
            destroy(machine, graph, launchable, stream);
        }
    });
}

/// What a capture of one block adds, to the byte; and its contents outlive the graph.
#[test]
fn a_captured_block_is_counted_exactly_and_outlives_its_graph() {
    for bytes in [512, MIB, MIB + 512, 10 * MIB - 512, 10 * MIB + 512] {
        on("", "a_captured_block_is_counted_exactly_and_outlives_its_graph", |machine| {
            let stream = machine.held_stream();
            let before = stats(0);
            let graph = begin(machine, stream, 1, 0);
            let block = malloc_on(bytes, stream).expect("fits");
            machine.fill(stream, block, 7, bytes);
            let during = stats(0);
            assert_eq!(during.active - before.active, bytes);
            assert_eq!(during.allocated - before.allocated, bytes);
            let pages = bytes.div_ceil(2 * MIB) * 2 * MIB;
            assert_eq!(during.reserved - before.reserved, pages);
            let launchable = end(machine, stream, graph);
            machine.launch(launchable, stream);
            destroy(machine, graph, launchable, stream);
            process::empty_cache(0).expect("it works");
            assert_eq!((stats(0).active, stats(0).reserved), (bytes, pages));
            assert_eq!(machine.byte(block + bytes - 1), 7, "the result is still there");
            process::free(block).expect("live");
            process::empty_cache(0).expect("it works");
            assert_eq!((stats(0).active, stats(0).reserved), (0, 0));
        });
    }
}

/// A hundred captures, one after another, leave nothing behind.
#[test]
fn a_hundred_captures_do_not_grow() {
    on("", "a_hundred_captures_do_not_grow", |machine| {
        let stream = machine.held_stream();
        for round in 0..100 {
            let graph = begin(machine, stream, 1, 0);
            let blocks = [MIB, 5 * MIB].map(|bytes| malloc_on(bytes, stream).expect("fits"));
            machine.fill(stream, blocks[1], round, 5 * MIB);
            blocks.into_iter().for_each(|block| process::free(block).expect("live"));
            let launchable = end(machine, stream, graph);
            machine.launch(launchable, stream);
            destroy(machine, graph, launchable, stream);
        }
        assert!(stats(0).reserved_peak <= 16 * MIB, "{}", stats(0).reserved_peak);
        process::empty_cache(0).expect("it works");
        assert_eq!((stats(0).reserved, machine.holdings()), (0, (0, 0, 0)));
    });
}

/// Streams that joined the capture get memory that another of them freed only once it is known that
/// they come after it.
#[test]
fn in_a_capture_memory_crosses_only_behind_a_join() {
    for others in [1, 3] {
        on("", "in_a_capture_memory_crosses_only_behind_a_join", |machine| {
            let main = machine.held_stream();
            let side: Vec<usize> = (0..others).map(|_| machine.held_stream()).collect();
            let graph = begin(machine, main, 1, 0);
            let block = malloc_on(4 * MIB, main).expect("fits");
            machine.fill(main, block, 1, 4 * MIB);
            // The others join before it is freed: they are beside what comes after.
            side.iter().for_each(|&stream| machine.order(main, stream));
            machine.fill(main, block, 2, 4 * MIB);
            process::free(block).expect("live");
            let mut beside = Vec::new();
            for &stream in &side {
                let theirs = malloc_on(4 * MIB, stream).expect("fits");
                assert!(!overlap((theirs, 4 * MIB), (block, 4 * MIB)), "nothing orders them");
                machine.fill(stream, theirs, 3, 4 * MIB);
                beside.push(theirs);
            }
            for (&stream, theirs) in side.iter().zip(beside) {
                process::free(theirs).expect("live");
                machine.order(stream, main);
                process::note_wait(0, main, stream).expect("streams");
            }
            // All have joined: the main stream may have everything.
            let count = side.len() as u64 + 1;
            let before = stats(0).reserved;
            let all: Vec<u64> =
                (0..count).map(|_| malloc_on(4 * MIB, main).expect("fits")).collect();
            assert_eq!(stats(0).reserved, before, "nothing new was needed");
            for &again in &all {
                machine.fill(main, again, 4, 4 * MIB);
                process::free(again).expect("live");
            }
            let launchable = end(machine, main, graph);
            machine.launch(launchable, main);
            machine.launch(launchable, main);
            destroy(machine, graph, launchable, main);
            process::empty_cache(0).expect("it works");
            assert_eq!((stats(0).reserved, stats(0).active), (0, 0));
        });
    }
}
