//! Memory nodes: what a graph allocates and frees, and what the checker sees of it.

mod common;
use common::code::*;
use common::*;
use std::ptr::{null, null_mut};

const USED: i32 = 0;
const USED_HIGH: i32 = 1;
const RESERVED: i32 = 2;
const RESERVED_HIGH: i32 = 3;
const AUTO_FREE: u64 = 1;

fn level(s: &Session, attribute: i32) -> u64 {
    let mut value = 9;
    ok!(s.cuDeviceGetGraphMemAttribute(0, attribute, &mut value));
    value
}

/// Adds an allocation node; answers it and the address.
fn add_allocation(s: &Session, graph: u64, after: &[u64], bytes: u64) -> (u64, u64) {
    let (mut node, mut what) = (0, allocation_node(0, bytes));
    let (list, count) = (after.as_ptr(), after.len());
    ok!(s.cuGraphAddMemAllocNode(&mut node, graph, list, count, &mut what));
    (node, what[14])
}

fn add_free(s: &Session, graph: u64, after: &[u64], address: u64) -> u64 {
    let (mut node, list, count) = (0, after.as_ptr(), after.len());
    ok!(s.cuGraphAddMemFreeNode(&mut node, graph, list, count, address));
    node
}

/// A graph that allocates, fills, and leaves the memory to the program.
fn leaving(s: &Session, value: u32) -> (u64, u64) {
    let graph = s.graph();
    let (node, address) = add_allocation(s, graph, &[], 64);
    s.add_fill(graph, &[node], bytes_node(address, value, 64));
    (graph, address)
}

fn kinds(s: &Session, graph: u64) -> Vec<i32> {
    let (mut nodes, mut count) = ([0; 8], 8);
    ok!(s.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
    let kind = |node: &u64| {
        let mut kind = 99;
        ok!(s.cuGraphNodeGetType(*node, &mut kind));
        kind
    };
    nodes[..count].iter().map(kind).collect()
}

#[test]
fn a_graphs_own_memory_lives_within_each_launch() {
    for schedule in SCHEDULES {
        let s = session(&[("checker", "log"), ("schedule", schedule)]);
        let (streams, out, g) = ([s.stream(), s.stream()], s.alloc(64), s.graph());
        let (node, address) = add_allocation(&s, g, &[], 3 << 20);
        let filled = s.add_fill(g, &[node], bytes_node(address, 7, 64));
        let copied = s.add_copy(g, &[filled], copy_node((DEVICE, out), (DEVICE, address), 64));
        let freed = add_free(&s, g, &[copied], address);
        let (mut what, mut back) = ([0; 15], 0);
        ok!(s.cuGraphMemAllocNodeGetParams(node, &mut what));
        assert_eq!((what[13], what[14], what[12]), (3 << 20, address, 0));
        ok!(s.cuGraphMemFreeNodeGetParams(freed, &mut back));
        assert_eq!(back, address);
        assert_eq!(s.cuGraphMemFreeNodeGetParams(node, &mut back), INVALID_VALUE);
        assert_eq!(s.cuGraphMemAllocNodeGetParams(freed, &mut what), INVALID_VALUE);
        let e = s.exec(g);
        assert_eq!((level(&s, RESERVED), s.sim.used(0)), (0, 512), "nothing before a launch");
        ok!(s.cuGraphUpload(e, streams[0]));
        assert_eq!((level(&s, USED), level(&s, RESERVED)), (0, 4 << 20));
        for stream in streams {
            ok!(s.cuMemsetD8Async(out, 0, 64, stream));
            s.play(e, stream);
            assert_eq!(s.peek(out, 64), [7; 64], "{schedule}");
        }
        assert_eq!(level(&s, USED), 0);
        assert_eq!((level(&s, USED_HIGH), level(&s, RESERVED_HIGH)), (3 << 20, 4 << 20));
        ok!(s.cuDeviceGraphMemTrim(0));
        assert_eq!((level(&s, RESERVED), s.sim.used(0)), (0, 512));
        s.play(e, streams[0]);
        assert_eq!(s.peek(out, 64), [7; 64], "{schedule}: the same address again");
        assert_eq!(s.sim.reports(), Vec::<String>::new(), "{schedule}");
        ok!(s.cuGraphDestroy(g));
        assert_eq!(s.sim.objects("graph_allocations"), 1, "the executable has it");
        ok!(s.cuGraphExecDestroy(e));
        ok!(s.cuCtxSynchronize());
        assert_eq!((s.sim.objects("graph_allocations"), s.sim.used(0)), (0, 512));
    }
}

#[test]
fn memory_that_leaves_its_graph_is_freed_by_the_program() {
    for schedule in SCHEDULES {
        let s = session(&[("checker", "log"), ("schedule", schedule)]);
        let (stream, other, event) = (s.stream(), s.stream(), s.event());
        let (g, address) = leaving(&s, 5);
        let e = s.exec(g);
        ok!(s.cuGraphLaunch(e, stream));
        ok!(s.cuMemsetD8Async(address, 6, 32, stream));
        assert_eq!(level(&s, USED), 512);
        assert_eq!(s.cuGraphLaunch(e, stream), INVALID_VALUE, "it has not been freed");
        ok!(s.cuStreamSynchronize(stream));
        assert_eq!(s.peek(address, 64), [[6; 32], [5; 32]].concat());
        let (mut base, mut bytes) = (0, 0);
        ok!(s.cuMemGetAddressRange_v2(&mut base, &mut bytes, address + 9));
        assert_eq!((base, bytes), (address, 64));
        // On another stream than the next launch: that comes after it by itself.
        ok!(s.cuMemFreeAsync(address, other));
        assert_eq!(s.cuMemFreeAsync(address, other), INVALID_VALUE, "twice");
        ok!(s.cuGraphLaunch(e, stream));
        ok!(s.cuEventRecord(event, stream));
        ok!(s.cuEventSynchronize(event));
        ok!(s.cuMemFree_v2(address));
        assert_eq!((level(&s, USED), s.cuMemFree_v2(address)), (0, INVALID_VALUE));
        ok!(s.cuGraphLaunch(e, stream));
        ok!(s.cuGraphDestroy(g));
        ok!(s.cuGraphExecDestroy(e));
        ok!(s.cuStreamSynchronize(stream));
        assert_eq!(s.peek(address, 64), [5; 64], "it outlives the graph");
        assert_eq!(s.sim.objects("graph_allocations"), 1);
        ok!(s.cuMemFreeAsync(address, stream));
        ok!(s.cuStreamSynchronize(stream));
        assert_eq!((s.sim.objects("graph_allocations"), s.sim.used(0)), (0, 0), "{schedule}");
        assert_eq!(s.sim.reports(), Vec::<String>::new(), "{schedule}");
    }
}

#[test]
fn another_graph_may_free_it() {
    let s = session(&[("checker", "log")]);
    let stream = s.stream();
    let ((g, address), second) = (leaving(&s, 5), s.graph());
    add_free(&s, second, &[], address);
    let mut node = 0;
    let add = |node: &mut u64, graph, at| s.cuGraphAddMemFreeNode(node, graph, null(), 0, at);
    assert_eq!(add(&mut node, second, address), INVALID_VALUE, "twice in one graph");
    assert_eq!(add(&mut node, g, address), INVALID_VALUE, "another graph frees it");
    assert_eq!(add(&mut node, g, address + 64), INVALID_VALUE, "no allocation");
    assert_eq!(add(&mut node, g, s.alloc(64)), INVALID_VALUE, "not a graph's");
    let (allocates, frees) = (s.exec(g), s.exec(second));
    assert_eq!(s.cuGraphLaunch(frees, stream), INVALID_VALUE, "there is nothing yet");
    for _ in 0..2 {
        ok!(s.cuGraphLaunch(allocates, stream));
        assert_eq!(level(&s, USED), 512);
        ok!(s.cuGraphLaunch(frees, stream));
        assert_eq!(level(&s, USED), 0);
    }
    assert_eq!(s.sim.reports(), Vec::<String>::new());
    // What its own graph frees nobody else does.
    let own = s.graph();
    let (first, address) = add_allocation(&s, own, &[], 64);
    add_free(&s, own, &[first], address);
    assert_eq!(add(&mut node, second, address), INVALID_VALUE);
    let e = s.exec(own);
    ok!(s.cuGraphLaunch(e, stream));
    assert_eq!(s.cuMemFreeAsync(address, stream), INVALID_VALUE);
    assert_eq!(s.cuMemFree_v2(address), INVALID_VALUE);
}

#[test]
fn a_launch_may_free_what_the_last_one_left() {
    for schedule in SCHEDULES {
        let s = session(&[("checker", "log"), ("schedule", schedule)]);
        let (streams, mut e) = ([s.stream(), s.stream()], 0);
        let (g, address) = leaving(&s, 5);
        ok!(s.cuGraphInstantiateWithFlags(&mut e, g, AUTO_FREE));
        for stream in streams {
            ok!(s.cuGraphLaunch(e, stream));
            ok!(s.cuGraphLaunch(e, stream));
            assert_eq!(level(&s, USED), 512, "{schedule}");
        }
        ok!(s.cuCtxSynchronize());
        assert_eq!((s.peek(address, 64), level(&s, USED_HIGH)), (vec![5; 64], 512));
        assert_eq!(s.sim.reports(), Vec::<String>::new(), "{schedule}");
        // It is freed as if by the stream of the launch: after what that stream did, only.
        ok!(s.cuMemsetD8Async(address, 1, 64, streams[0]));
        ok!(s.cuGraphLaunch(e, streams[1]));
        let reports = s.sim.reports();
        assert!(reports.len() == 1 && reports[0].contains("taken away"), "{schedule}: {reports:?}");
    }
}

#[test]
fn a_use_outside_its_life_is_a_finding() {
    let s = session(&[("checker", "log")]);
    let (stream, other, out) = (s.stream(), s.stream(), s.alloc(64));
    let found = |what: &str| {
        let reports = s.sim.reports();
        assert!(reports.len() == 1 && reports[0].contains(what), "{what}: {reports:?}");
        s.sim.clear_reports();
        ok!(s.cuCtxSynchronize());
    };
    let copy = |g, after: &[u64], from| s.add_copy(g, after, copy_node((2, out), (2, from), 64));

    // Beside its allocation, in the graph.
    let g = s.graph();
    let (_, address) = add_allocation(&s, g, &[], 64);
    s.add_fill(g, &[], bytes_node(address, 1, 64));
    ok!(s.cuGraphLaunch(s.exec(g), stream));
    found("use of memory that nothing orders after its allocation");

    // On a stream that does not come after the launch.
    let (g, address) = leaving(&s, 1);
    ok!(s.cuGraphLaunch(s.exec(g), stream));
    ok!(s.cuMemsetD8Async(address, 2, 64, other));
    found("race");

    // Beside its free, in the graph: before it in the list, so the free is what comes too early.
    let g = s.graph();
    let (first, address) = add_allocation(&s, g, &[], 64);
    copy(g, &[first], address);
    add_free(&s, g, &[first], address);
    ok!(s.cuGraphLaunch(s.exec(g), stream));
    found("memory taken away while work may still use it");

    // After it.
    ok!(s.cuMemsetD8Async(address, 2, 64, stream));
    found("use after free");
}

#[test]
fn what_a_captured_stream_allocates_is_the_graphs() {
    for schedule in SCHEDULES {
        let s = session(&[("checker", "log"), ("schedule", schedule)]);
        let (stream, out, mut g) = (s.stream(), s.alloc(64), 0);
        let (mut pool, mut own, mut pooled, mut outside) = (0, 0, 0, 0);
        ok!(s.cuDeviceGetDefaultMemPool(&mut pool, 0));
        ok!(s.cuMemAllocAsync(&mut outside, 64, stream));
        ok!(s.cuStreamBeginCapture_v2(stream, 0));
        ok!(s.cuMemAllocAsync(&mut own, 64, stream));
        ok!(s.cuMemAllocFromPoolAsync(&mut pooled, 64, pool, stream));
        assert_eq!(s.cuMemAllocAsync(&mut 0, 0, stream), INVALID_VALUE);
        ok!(s.cuMemsetD8Async(own, 4, 64, stream));
        ok!(s.cuMemcpyDtoDAsync_v2(pooled, own, 64, stream));
        ok!(s.cuMemFreeAsync(own, stream));
        assert_eq!(s.cuMemFreeAsync(outside, stream), INVALID_VALUE, "not a graph's");
        ok!(s.cuStreamEndCapture(stream, &mut g));
        assert_eq!(kinds(&s, g), [10, 10, 2, 1, 11]);
        assert_eq!(level(&s, RESERVED), 0, "capturing takes nothing");
        let e = s.exec(g);
        for _ in 0..2 {
            ok!(s.cuGraphLaunch(e, stream));
            ok!(s.cuMemcpyDtoDAsync_v2(out, pooled, 64, stream));
            ok!(s.cuMemFreeAsync(pooled, stream));
        }
        ok!(s.cuStreamSynchronize(stream));
        assert_eq!(s.peek(out, 64), [4; 64], "{schedule}");
        ok!(s.cuMemFreeAsync(outside, stream));
        assert_eq!(s.sim.reports(), Vec::<String>::new(), "{schedule}");
        ok!(s.cuMemcpyDtoDAsync_v2(out, own, 64, stream));
        assert_eq!(s.sim.report_count(), 1, "the graph freed it");
    }
}

#[test]
fn a_capture_that_fails_leaves_no_memory() {
    let s = session(&[]);
    let (stream, mut address, mut g) = (s.stream(), 0, 0);
    ok!(s.cuStreamBeginCapture_v2(stream, 0));
    ok!(s.cuMemAllocAsync(&mut address, 64, stream));
    assert_eq!(s.cuStreamSynchronize(stream), 900);
    assert_eq!(s.cuStreamEndCapture(stream, &mut g), 901);
    ok!(s.cuStreamSynchronize(stream));
    assert_eq!(s.sim.objects("graph_allocations"), 0);
}

#[test]
fn a_graph_with_memory_is_one_of_a_kind() {
    let s = session(&[]);
    let (stream, outer, mut other) = (s.stream(), s.graph(), 0);
    let (g, address) = leaving(&s, 5);
    let mut nodes = [0; 2];
    ok!(s.cuGraphGetNodes(g, nodes.as_mut_ptr(), &mut 2));
    let e = s.exec(g);
    assert_eq!(s.cuGraphInstantiateWithFlags(&mut other, g, 0), NOT_SUPPORTED, "twice");
    assert_eq!(s.cuGraphClone(&mut other, g), NOT_SUPPORTED);
    assert_eq!(s.cuGraphDestroyNode(nodes[1]), NOT_SUPPORTED);
    let removed = s.cuGraphRemoveDependencies(g, &nodes[0], &nodes[1], 1);
    assert_eq!(removed, NOT_SUPPORTED);
    let embedded = s.cuGraphAddChildGraphNode(&mut other, outer, null(), 0, g);
    assert_eq!(embedded, NOT_SUPPORTED);
    ok!(s.cuStreamBeginCapture_v2(stream, 2));
    assert_eq!(s.cuGraphLaunch(e, stream), NOT_SUPPORTED, "it would be a child graph");
    ok!(s.cuStreamEndCapture(stream, &mut other));
    // The same graph, changed, goes into its executable; another one has other memory.
    ok!(s.cuGraphMemsetNodeSetParams(nodes[1], &bytes_node(address, 6, 64)));
    ok!(s.cuGraphExecUpdate(e, g, null_mut(), null_mut()));
    s.play(e, stream);
    assert_eq!(s.peek(address, 64), [6; 64]);
    let ((twin, _), mut result) = (leaving(&s, 5), 0);
    assert_eq!(s.cuGraphExecUpdate(e, twin, null_mut(), &mut result), 910);
    assert_eq!(result, 5, "parameters");
    ok!(s.cuGraphExecDestroy(e));
    ok!(s.cuGraphInstantiateWithFlags(&mut other, g, 0));
}

#[test]
fn a_launch_that_finds_no_memory_does_nothing() {
    let s = session(&[("memory", "16MiB"), ("checker", "log")]);
    let (stream, x, g, mut node) = (s.stream(), s.alloc(12 << 20), s.graph(), 0);
    let (first, address) = add_allocation(&s, g, &[], 8 << 20);
    s.add_fill(g, &[first], bytes_node(address, 1, 64));
    let mut what = allocation_node(0, 17 << 20);
    let made = s.cuGraphAddMemAllocNode(&mut node, g, null(), 0, &mut what);
    assert_eq!(made, OUT_OF_MEMORY, "more than the device ever has");
    let e = s.exec(g);
    assert_eq!(s.cuGraphLaunch(e, stream), OUT_OF_MEMORY);
    assert_eq!((level(&s, USED), level(&s, RESERVED)), (0, 0));
    ok!(s.cuMemFree_v2(x));
    ok!(s.cuGraphLaunch(e, stream));
    assert_eq!(s.cuMemAlloc_v2(&mut 0, 12 << 20), OUT_OF_MEMORY, "the graph has it now");
    ok!(s.cuDeviceGraphMemTrim(0));
    assert_eq!(level(&s, RESERVED), 8 << 20, "it is live");
    ok!(s.cuMemFreeAsync(address, stream));
    ok!(s.cuStreamSynchronize(stream));
    ok!(s.cuDeviceGraphMemTrim(0));
    s.alloc(12 << 20);
    assert_eq!(s.sim.reports(), Vec::<String>::new());
}

#[test]
fn another_device_needs_access_to_a_graphs_memory() {
    let s = session(&[("devices", "2"), ("checker", "log")]);
    let (here, g, mut node) = (s.stream(), s.graph(), 0);
    let (mut closed, mut open) = (allocation_node(0, 64), allocation_node(0, 64));
    let reader = [1, 1, 1];
    (open[11], open[12]) = (reader.as_ptr() as u64, 1);
    ok!(s.cuGraphAddMemAllocNode(&mut node, g, null(), 0, &mut closed));
    ok!(s.cuGraphAddMemAllocNode(&mut node, g, null(), 0, &mut open));
    let mut shown = [0; 15];
    ok!(s.cuGraphMemAllocNodeGetParams(node, &mut shown));
    // SAFETY: the driver shows one descriptor, in memory of its own.
    assert_eq!((shown[12], unsafe { *(shown[11] as *const [i32; 3]) }), (1, reader));
    s.play(s.exec(g), here);
    s.use_device(1);
    let there = s.stream();
    s.launch("simcuda_touch", &[open[14], 64, 0], there);
    assert_eq!(s.sim.reports(), Vec::<String>::new());
    s.launch("simcuda_touch", &[open[14], 64, 1], there);
    assert_eq!(s.sim.report_count(), 1, "read only");
}

#[test]
fn wrong_arguments_of_memory_nodes() {
    let s = session(&[]);
    let (g, mut node, mut value) = (s.graph(), 0, 0);
    let mut add = |what: [u64; 15]| {
        let mut what = what;
        s.cuGraphAddMemAllocNode(&mut node, g, null(), 0, &mut what)
    };
    let right = allocation_node(0, 64);
    let with = |at: usize, word: u64| {
        let mut what = right;
        what[at] = word;
        what
    };
    assert_eq!(add(with(13, 0)), INVALID_VALUE, "no bytes");
    assert_eq!(add(with(0, 1 | 1 << 32)), NOT_SUPPORTED, "to be shared");
    assert_eq!(add(with(0, 0)), INVALID_VALUE, "not pinned");
    assert_eq!(add(allocation_node(7, 64)), INVALID_DEVICE);
    assert_eq!(add(with(12, 2)), INVALID_VALUE, "more descriptors than devices");
    assert_eq!(add(with(12, 1)), INVALID_VALUE, "none where one is said to be");
    assert_eq!(s.cuGraphAddMemAllocNode(&mut node, g, null(), 0, null_mut()), INVALID_VALUE);
    assert_eq!(s.cuDeviceGraphMemTrim(1), INVALID_DEVICE);
    assert_eq!(s.cuDeviceGetGraphMemAttribute(1, 0, &mut value), INVALID_DEVICE);
    assert_eq!(s.cuDeviceGetGraphMemAttribute(0, 4, &mut value), INVALID_VALUE);
    assert_eq!(s.cuDeviceSetGraphMemAttribute(0, USED, &0), INVALID_VALUE, "read only");
    assert_eq!(s.cuDeviceSetGraphMemAttribute(0, USED_HIGH, &1), INVALID_VALUE, "only to zero");
    ok!(s.cuDeviceSetGraphMemAttribute(0, USED_HIGH, &0));
    ok!(s.cuDeviceSetGraphMemAttribute(0, RESERVED_HIGH, &0));
    let body = allocation_node(0, 64);
    let mut what = AnyNode::new(10, &body);
    ok!(s.cuGraphAddNode(&mut node, g, null(), 0, &mut what));
    let address = what.0[16];
    assert_ne!(address, 0, "written into the description");
    ok!(s.cuGraphAddNode(&mut node, g, &node.clone(), 1, &mut AnyNode::new(11, &[address])));
    assert_eq!(kinds(&s, g), [10, 11]);
}
