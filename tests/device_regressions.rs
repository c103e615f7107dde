//! Defects that random programs found, each as the shortest program that shows it.

mod machine;

use cuddy::error::Error;
use cuddy::process;
use machine::*;

const MEMORY: (&str, &str) = ("SIMCUDA_MEMORY", "1GiB");
const CHECKER: (&str, &str) = ("SIMCUDA_CHECKER", "log");

/// A fence over the context that a bounded wait records covers what was freed before it, alone.
#[test]
fn a_bounded_wait_covers_nothing_that_is_freed_after_it() {
    let name = "a_bounded_wait_covers_nothing_that_is_freed_after_it";
    let configuration = ("CUDDY_CONF", "memory_limit:8MiB,share:never");
    isolated(name, &[MEMORY, CHECKER, ("SIMCUDA_SCHEDULE", "lazy"), configuration], |machine| {
        machine.use_device(0);
        let [stream, other] = machine.held_streams();
        let any = |bytes, wait_ms| {
            process::malloc_in(process::DEFAULT_POOL, bytes, 0, 0, process::ANY_STREAM, wait_ms)
        };
        let (first, second) =
            (any(4 * MIB, None).expect("fits"), any(4 * MIB, None).expect("fits"));
        machine.gate(stream, 1);
        machine.fill(stream, first, 1, 4 * MIB);
        process::free(first).expect("live");
        let short = process::malloc_in(process::DEFAULT_POOL, 4 * MIB, 0, 0, other, Some(5));
        assert!(matches!(short, Err(Error::OutOfMemory(_))), "the gate is shut: {short:?}");
        machine.sim.gate_open(1);
        machine.synchronize_all();
        let third = process::malloc_in(process::DEFAULT_POOL, 4 * MIB, 0, 0, other, Some(5))
            .expect("its last use is over");
        // Now the second one: work on it is given after that fence.
        machine.gate(stream, 2);
        machine.fill(stream, second, 2, 4 * MIB);
        process::free(second).expect("live");
        let early = process::malloc_in(process::DEFAULT_POOL, 4 * MIB, 0, 0, other, Some(0));
        assert!(matches!(early, Err(Error::OutOfMemory(_))), "its use is not over: {early:?}");
        machine.sim.gate_open(2);
        process::free(third).expect("live");
        machine.assert_clean();
    });
}

/// Limbo that only graphs hold is nothing to wait for, over and over.
#[test]
fn a_request_beside_memory_that_a_graph_keeps_fails_and_comes_back() {
    let name = "a_request_beside_memory_that_a_graph_keeps_fails_and_comes_back";
    let configuration = ("CUDDY_CONF", "memory_limit:16MiB");
    isolated(name, &[MEMORY, CHECKER, configuration], |machine| {
        machine.ends_within(60);
        machine.use_device(0);
        let [captured, other] = machine.held_streams();
        let input = malloc_on(8 * MIB, other).expect("fits");
        machine.fill(other, input, 1, 8 * MIB);
        let graph = process::graph_begin(0, captured, 0).expect("the stream is free");
        process::record_stream(input, captured).expect("live");
        process::free(input).expect("live");
        process::graph_end(graph).expect("it was begun");
        assert!(matches!(malloc_on(12 * MIB, other), Err(Error::OutOfMemory(_))));
        process::graph_destroy(graph, captured).expect("it is there");
        let block = malloc_on(12 * MIB, other).expect("the graph is gone");
        machine.fill(other, block, 2, 12 * MIB);
        process::free(block).expect("live");
        machine.assert_clean();
    });
}

/// Passing everything back to the driver at once does not go for what launches use.
#[test]
fn with_caching_off_a_graph_keeps_what_it_freed() {
    let name = "with_caching_off_a_graph_keeps_what_it_freed";
    isolated(name, &[MEMORY, CHECKER, ("CUDDY_CONF", "caching:off")], |machine| {
        machine.use_device(0);
        let (stream, launches) = (machine.held_stream(), machine.stream());
        let graph = process::graph_begin(0, stream, 0).expect("the stream is free");
        let blocks = [0, 1].map(|_| malloc_on(4 * MIB, stream).expect("fits"));
        process::free(blocks[0]).expect("live");
        process::graph_end(graph).expect("it was begun");
        process::free(blocks[1]).expect("live");
        let other = malloc_on(4 * MIB, launches).expect("fits");
        for block in blocks {
            assert!(!overlap((block, 4 * MIB), (other, 4 * MIB)));
            machine.fill(launches, block, 1, 4 * MIB);
        }
        process::free(other).expect("live");
        process::graph_destroy(graph, launches).expect("it is there");
        machine.synchronize_all();
        process::empty_cache(0).expect("works");
        assert_eq!((stats(0).reserved, machine.holdings()), (0, (0, 0, 0)));
        machine.assert_clean();
    });
}

/// A graph's output that is freed while its stream is captured anew may be the new graph's input.
#[test]
fn an_earlier_graphs_block_freed_in_a_later_capture_is_the_later_ones() {
    let name = "an_earlier_graphs_block_freed_in_a_later_capture_is_the_later_ones";
    isolated(name, &[MEMORY, CHECKER], |machine| {
        machine.use_device(0);
        let [stream, other] = machine.held_streams();
        let begin = || process::graph_begin(0, stream, 0).expect("the stream is free");
        let earlier = begin();
        let output = malloc_on(4 * MIB, stream).expect("fits");
        process::graph_end(earlier).expect("it was begun");
        machine.fill(stream, output, 1, 4 * MIB);
        let later = begin();
        process::free(output).expect("live");
        process::graph_end(later).expect("it was begun");
        process::graph_destroy(earlier, stream).expect("it is there");
        machine.synchronize_all();
        process::empty_cache(0).expect("works");
        assert_eq!(stats(0).active, 4 * MIB, "the later graph still uses it");
        machine.fill(other, output, 2, 4 * MIB);
        process::graph_destroy(later, other).expect("it is there");
        machine.synchronize_all();
        process::empty_cache(0).expect("works");
        assert_eq!(stats(0).reserved, 0);
        machine.assert_clean();
    });
}

/// The graph is gone once its destruction is told, whatever the driver answers to questions after it.
#[test]
fn a_graph_is_destroyed_although_the_driver_fails_behind_it() {
    let name = "a_graph_is_destroyed_although_the_driver_fails_behind_it";
    isolated(name, &[MEMORY, CHECKER, ("SIMCUDA_SCHEDULE", "lazy")], |machine| {
        machine.use_device(0);
        let stream = machine.held_stream();
        let graph = process::graph_begin(0, stream, 0).expect("the stream is free");
        let block = malloc_on(4 * MIB, stream).expect("fits");
        process::free(block).expect("live");
        process::graph_end(graph).expect("it was begun");
        machine.fill(stream, block, 1, 4 * MIB);
        machine.sim.fault("cuEventQuery", 1, 1, UNKNOWN, false).expect("a function");
        assert_eq!(process::graph_destroy(graph, stream), Ok(()));
        assert!(machine.sim.faults_fired() > 0);
        machine.sim.clear_faults();
        assert!(matches!(process::graph_destroy(graph, stream), Err(Error::InvalidGraph(_))));
        process::empty_cache(0).expect("waits for the launch");
        assert_eq!(stats(0).reserved, 0);
        machine.assert_clean();
    });
}
