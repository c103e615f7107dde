//! Graphs made node by node: what each node does, how it is shown, and how it is changed.

mod common;
use common::code::*;
use common::*;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

/// The node that a function makes, after others.
fn added(after: &[u64], make: impl FnOnce(&mut u64, *const u64, usize) -> i32) -> u64 {
    let mut node = 0;
    ok!(make(&mut node, after.as_ptr(), after.len()));
    node
}

/// Gives the description of a kernel with three parameters, which goes with the call.
fn kernel<T>(function: u64, values: [u64; 3], use_it: impl FnOnce(KernelNode) -> T) -> T {
    let pointers = values.each_ref().map(std::ptr::from_ref);
    let (grid, block, parameters) = ([1; 3], [1; 3], pointers.as_ptr());
    use_it(KernelNode { function, grid, block, parameters, ..KernelNode::default() })
}

extern "C" fn count(counter: *mut c_void) {
    // SAFETY: the tests pass a counter that outlives the graph.
    unsafe { &*counter.cast::<AtomicU64>() }.fetch_add(1, Ordering::SeqCst);
}

fn counting(counter: &AtomicU64) -> [u64; 2] {
    [count as *const () as u64, std::ptr::from_ref(counter) as u64]
}

#[test]
fn a_graph_made_by_hand_runs_in_the_order_of_its_edges() {
    for schedule in SCHEDULES {
        let s = session(&[("checker", "log"), ("schedule", schedule)]);
        let (stream, x, y) = (s.stream(), s.alloc(64), s.alloc(64));
        let (host, ran) = (s.pinned(64), AtomicU64::new(0));
        let g = s.graph();
        let root = added(&[], |node, list, n| s.cuGraphAddEmptyNode(node, g, list, n));
        let left = s.add_fill(g, &[root], bytes_node(x, 3, 64));
        let right = s.add_fill(g, &[root], bytes_node(y, 9, 32));
        let copies = s.function("simcuda_copy");
        let joined = added(&[left, right], |node, list, n| {
            let add = |what| s.cuGraphAddKernelNode(node, g, list, n, &what);
            kernel(copies, [y + 32, x, 32], add)
        });
        let out = s.add_copy(g, &[joined], copy_node((HOST, host), (DEVICE, y), 64));
        let what = counting(&ran);
        added(&[out], |node, list, n| s.cuGraphAddHostNode(node, g, list, n, &what));
        let e = s.exec(g);
        ok!(s.cuGraphDestroy(g));
        for launch in 1..=2 {
            s.play(e, stream);
            let expected = [[9; 32], [3; 32]].concat();
            assert_eq!(s.peek(host, 64), expected, "{schedule}");
            assert_eq!(ran.load(Ordering::SeqCst), launch);
        }
        assert_eq!(s.sim.reports(), Vec::<String>::new(), "{schedule}");
    }
}

#[test]
fn what_no_edge_orders_is_a_finding() {
    let s = session(&[("checker", "log")]);
    let (stream, x, g) = (s.stream(), s.alloc(64), s.graph());
    let first = s.add_fill(g, &[], bytes_node(x, 1, 64));
    let second = s.add_fill(g, &[], bytes_node(x + 32, 2, 32));
    ok!(s.cuGraphLaunch(s.exec(g), stream));
    let reports = s.sim.reports();
    assert!(reports.len() == 1 && reports[0].contains("race"), "{reports:?}");
    s.sim.clear_reports();
    ok!(s.cuGraphAddDependencies(g, &first, &second, 1));
    ok!(s.cuStreamSynchronize(stream));
    ok!(s.cuGraphLaunch(s.exec(g), stream));
    assert_eq!(s.sim.reports(), Vec::<String>::new());
}

#[test]
fn a_kernel_node_shows_its_launch_and_takes_another() {
    let s = session(&[("checker", "log")]);
    let (stream, x, g) = (s.stream(), s.alloc(64), s.graph());
    let (function, other) = (s.function("simcuda_fill"), s.function("simcuda_copy"));
    let node = added(&[], |node, list, n| {
        kernel(function, [x, 16, 5], |what| {
            let what = KernelNode { grid: [2, 1, 1], ..what };
            s.cuGraphAddKernelNode_v2(node, g, list, n, &what)
        })
    });
    // SAFETY: the driver shows as many parameters as the kernel has, in memory of its own.
    let given = |shown: &KernelNode| unsafe {
        [0, 1, 2].map(|i| **shown.parameters.add(i) & if i == 2 { 0xff } else { u64::MAX })
    };
    let mut shown = KernelNode::default();
    ok!(s.cuGraphKernelNodeGetParams(node, &mut shown));
    assert_eq!((shown.function, shown.grid, shown.block), (function, [2, 1, 1], [1; 3]));
    assert_eq!(given(&shown), [x, 16, 5], "taken when the node was made");
    let e = s.exec(g);
    kernel(function, [x + 16, 16, 7], |what| ok!(s.cuGraphKernelNodeSetParams(node, &what)));
    ok!(s.cuGraphKernelNodeGetParams_v2(node, &mut shown));
    assert_eq!((given(&shown), shown.grid), ([x + 16, 16, 7], [1; 3]));
    s.play(e, stream);
    assert_eq!(s.peek(x, 32), [[5; 16], [0; 16]].concat(), "an executable has its own");
    let set = |what| s.cuGraphExecKernelNodeSetParams_v2(e, node, &what);
    ok!(kernel(function, [x + 16, 16, 7], set));
    s.play(e, stream);
    assert_eq!(s.peek(x, 32), [[5; 16], [7; 16]].concat());
    let set = |what| s.cuGraphExecKernelNodeSetParams(e, node, &what);
    ok!(kernel(other, [x + 32, x, 16], set));
    let set = |what| s.cuGraphKernelNodeSetParams_v2(node, &what);
    ok!(kernel(other, [x + 32, x, 16], set));
    s.play(e, stream);
    assert_eq!(s.peek(x + 32, 16), [5; 16], "another function");
    let wrong = |what| set(KernelNode { block: [1025, 1, 1], ..what });
    assert_eq!(kernel(function, [x, 16, 5], wrong), INVALID_VALUE);
    assert_eq!(kernel(1, [x, 16, 5], set), INVALID_VALUE);
    assert_eq!(s.cuGraphKernelNodeGetParams(node, null_mut()), INVALID_VALUE);
    assert_eq!(s.sim.reports(), Vec::<String>::new());
}

#[test]
fn copies_and_fills_show_what_they_do_and_do_something_else() {
    let s = session(&[]);
    let (stream, x, g) = (s.stream(), s.alloc(4096), s.graph());
    let (host, elsewhere) = (s.pinned(64), s.alloc(64));
    let wide = FillNode { at: x, pitch: 32, value: 0x0201, size: 2, width: 4, rows: 2 };
    let first = s.add_fill(g, &[], wide);
    let copying = copy_node((DEVICE, x + 64), (DEVICE, x), 64);
    let second = s.add_copy(g, &[first], copying);
    let mut shown = FillNode::default();
    ok!(s.cuGraphMemsetNodeGetParams(first, &mut shown));
    assert_eq!(shown, wide);
    let mut words = [7; 25];
    ok!(s.cuGraphMemcpyNodeGetParams(second, &mut words));
    assert_eq!((words[4] as u32, words[6], words[15] as u32, words[17]), (2, x, 2, x + 64));
    assert_eq!((words[5], words[16], &words[22..]), (0, 0, &[64, 1, 1][..]));
    let e = s.exec(g);
    s.play(e, stream);
    let row = [1, 2].repeat(4);
    assert_eq!(s.peek(x + 64, 8), row);
    assert_eq!(s.peek(x + 64 + 32, 8), row);
    assert_eq!(s.peek(x + 64 + 8, 24), [0; 24], "between the rows");
    // In the graph anything may change but the kind; in the executable less.
    ok!(s.cuGraphMemsetNodeSetParams(first, &bytes_node(x, 6, 64)));
    ok!(s.cuGraphMemcpyNodeSetParams(second, &copy_node((HOST, host), (DEVICE, x), 64)));
    assert_eq!(
        s.cuGraphMemsetNodeSetParams(second, &bytes_node(x, 6, 64)),
        INVALID_VALUE,
        "a copy"
    );
    let refused = s.cuGraphExecMemsetNodeSetParams(e, first, &bytes_node(x, 6, 64), 0);
    assert_eq!(refused, INVALID_VALUE, "it has two rows");
    let to_host = copy_node((HOST, host), (DEVICE, x), 64);
    let refused = s.cuGraphExecMemcpyNodeSetParams(e, second, &to_host, 0);
    assert_eq!(refused, INVALID_VALUE, "the other side was a device's");
    let e = s.exec(g);
    s.play(e, stream);
    assert_eq!(s.peek(host, 64), [6; 64]);
    ok!(s.cuGraphExecMemsetNodeSetParams(e, first, &bytes_node(elsewhere, 8, 64), 0));
    let from_there = copy_node((HOST, host), (4, elsewhere), 64);
    ok!(s.cuGraphExecMemcpyNodeSetParams(e, second, &from_there, 0));
    s.play(e, stream);
    assert_eq!(s.peek(host, 64), [8; 64]);
    for (what, why) in [
        (FillNode { size: 3, ..wide }, "elements of three bytes"),
        (FillNode { width: 0, ..wide }, "nothing"),
        (FillNode { pitch: 4, ..wide }, "rows that overlap"),
        (FillNode { at: x + 1, ..wide }, "not aligned"),
    ] {
        let mut node = 0;
        let made = s.cuGraphAddMemsetNode(&mut node, g, null(), 0, &what, 0);
        assert_eq!(made, INVALID_VALUE, "{why}");
    }
    let mut layers = copying;
    (layers[23], layers[24]) = (2, 2);
    let (mut node, unknown) = (0, 77);
    assert_eq!(s.cuGraphAddMemcpyNode(&mut node, g, null(), 0, &layers, 0), NOT_SUPPORTED);
    (layers[10], layers[21], layers[22]) = (2, 2, 8);
    ok!(s.cuGraphAddMemcpyNode(&mut node, g, null(), 0, &layers, 0));
    let made = s.cuGraphAddMemcpyNode(&mut node, g, null(), 0, &copying, unknown);
    assert_eq!(made, INVALID_CONTEXT);
}

#[test]
fn host_nodes_are_shown_and_changed() {
    let s = session(&[]);
    let (stream, g) = (s.stream(), s.graph());
    let [one, two, three] = [const { AtomicU64::new(0) }; 3];
    let (what, mut shown) = (counting(&one), [0; 2]);
    let node = added(&[], |node, list, n| s.cuGraphAddHostNode(node, g, list, n, &what));
    ok!(s.cuGraphHostNodeGetParams(node, &mut shown));
    assert_eq!(shown, what);
    ok!(s.cuGraphHostNodeSetParams(node, &counting(&two)));
    let e = s.exec(g);
    s.play(e, stream);
    ok!(s.cuGraphExecHostNodeSetParams(e, node, &counting(&three)));
    s.play(e, stream);
    let ran = [&one, &two, &three].map(|counter| counter.load(Ordering::SeqCst));
    assert_eq!(ran, [0, 1, 1]);
    assert_eq!(s.cuGraphHostNodeSetParams(node, &[0, 0]), INVALID_VALUE);
    let empty = added(&[], |node, list, n| s.cuGraphAddEmptyNode(node, g, list, n));
    assert_eq!(s.cuGraphHostNodeGetParams(empty, &mut shown), INVALID_VALUE);
    assert_eq!(s.cuGraphHostNodeSetParams(empty, &what), INVALID_VALUE);
}

#[test]
fn event_nodes_order_what_is_outside() {
    for schedule in SCHEDULES {
        let s = session(&[("checker", "log"), ("schedule", schedule)]);
        let (stream, other, x) = (s.stream(), s.stream(), s.alloc(64));
        let (before, after, unused, g) = (s.event(), s.event(), s.event(), s.graph());
        let waits = added(&[], |n, list, c| s.cuGraphAddEventWaitNode(n, g, list, c, unused));
        let fills = s.add_fill(g, &[waits], bytes_node(x, 2, 64));
        let records =
            added(&[fills], |n, list, c| s.cuGraphAddEventRecordNode(n, g, list, c, unused));
        let late = added(&[records], |n, list, c| s.cuGraphAddEmptyNode(n, g, list, c));
        let e = s.exec(g);
        let mut shown = 0;
        ok!(s.cuGraphEventWaitNodeSetEvent(waits, before));
        ok!(s.cuGraphEventRecordNodeSetEvent(records, after));
        ok!(s.cuGraphEventWaitNodeGetEvent(waits, &mut shown));
        assert_eq!(shown, before);
        ok!(s.cuGraphEventRecordNodeGetEvent(records, &mut shown));
        assert_eq!(shown, after);
        assert_eq!(s.cuGraphEventRecordNodeGetEvent(waits, &mut shown), INVALID_VALUE);
        assert_eq!(s.cuGraphEventWaitNodeSetEvent(late, before), INVALID_VALUE);
        assert_eq!(s.cuGraphEventWaitNodeSetEvent(waits, 1), INVALID_VALUE);
        ok!(s.cuGraphExecEventWaitNodeSetEvent(e, waits, before));
        ok!(s.cuGraphExecEventRecordNodeSetEvent(e, records, after));
        ok!(s.cuMemsetD8Async(x, 1, 64, other));
        ok!(s.cuEventRecord(before, other));
        ok!(s.cuGraphLaunch(e, stream));
        ok!(s.cuStreamWaitEvent(other, after, 0));
        ok!(s.cuMemcpyDtoDAsync_v2(x + 32, x, 32, other));
        ok!(s.cuStreamSynchronize(other));
        assert_eq!(s.peek(x, 64), [2; 64], "{schedule}");
        assert_eq!(s.sim.reports(), Vec::<String>::new(), "{schedule}");
        // Without the wait nothing is between the two fills.
        ok!(s.cuGraphExecEventWaitNodeSetEvent(e, waits, unused));
        ok!(s.cuMemsetD8Async(x, 1, 64, other));
        ok!(s.cuGraphLaunch(e, stream));
        assert_eq!(s.sim.report_count(), 1, "{schedule}");
        ok!(s.cuEventDestroy_v2(after));
        assert_eq!(s.cuGraphLaunch(e, stream), INVALID_VALUE, "its event is gone");
    }
}

#[test]
fn a_child_graph_is_a_copy_that_can_be_looked_into() {
    let s = session(&[("checker", "log")]);
    let (stream, x) = (s.stream(), s.alloc(64));
    let (inner, outer) = (s.graph(), s.graph());
    let one = s.add_fill(inner, &[], bytes_node(x, 1, 64));
    s.add_fill(inner, &[one], bytes_node(x, 2, 32));
    let first = s.add_fill(outer, &[], bytes_node(x, 9, 64));
    let node = added(&[first], |n, list, c| s.cuGraphAddChildGraphNode(n, outer, list, c, inner));
    s.add_copy(outer, &[node], copy_node((DEVICE, x + 48), (DEVICE, x), 16));
    let (mut copy, mut kind) = (0, 0);
    ok!(s.cuGraphChildGraphNodeGetGraph(node, &mut copy));
    assert!(copy != inner && copy != 0);
    ok!(s.cuGraphNodeGetType(node, &mut kind));
    assert_eq!(kind, 4);
    assert_eq!(s.cuGraphDestroy(copy), INVALID_VALUE, "it belongs to the node");
    assert_eq!(s.cuGraphChildGraphNodeGetGraph(first, &mut copy), INVALID_VALUE);
    let e = s.exec(outer);
    ok!(s.cuGraphMemsetNodeSetParams(one, &bytes_node(x, 5, 64)));
    s.play(e, stream);
    assert_eq!(s.peek(x, 64), [[2; 32].as_slice(), &[1; 16], &[2; 16]].concat());
    // The changed one, put into the executable; then one of another shape.
    ok!(s.cuGraphExecChildGraphNodeSetParams(e, node, inner));
    s.play(e, stream);
    assert_eq!(s.peek(x, 64), [[2; 32].as_slice(), &[5; 16], &[2; 16]].concat());
    s.add_fill(inner, &[], bytes_node(x, 2, 1));
    assert_eq!(s.cuGraphExecChildGraphNodeSetParams(e, node, inner), INVALID_VALUE);
    assert_eq!(s.cuGraphExecChildGraphNodeSetParams(e, first, inner), INVALID_VALUE);
    assert_eq!(s.sim.reports(), Vec::<String>::new());
}

#[test]
fn a_description_of_any_kind_makes_its_node() {
    let s = session(&[("checker", "log")]);
    let (stream, x, event, ran) = (s.stream(), s.alloc(64), s.event(), AtomicU64::new(0));
    let (g, inner) = (s.graph(), s.graph());
    s.add_fill(inner, &[], bytes_node(x + 48, 4, 16));
    let values = [x, 16, 3];
    let pointers = values.each_ref().map(std::ptr::from_ref);
    let (function, ones) = (s.function("simcuda_fill"), 1 | 1 << 32);
    let launch = [function, ones, ones, ones, 0, pointers.as_ptr() as u64];
    let copying = [[0, 0].as_slice(), &copy_node((DEVICE, x + 16), (DEVICE, x), 16)].concat();
    let filling = [x + 32, 0, 6 | 1 << 32, 16, 1, 0];
    let mut last = Vec::new();
    for (kind, body) in [
        (0, launch.to_vec()),
        (1, copying),
        (2, filling.to_vec()),
        (3, counting(&ran).to_vec()),
        (4, vec![inner]),
        (5, vec![]),
        (6, vec![event]),
        (7, vec![event]),
    ] {
        let (mut what, mut is) = (AnyNode::new(kind, &body), 99);
        let node = added(&last, |n, list, c| match kind % 2 {
            0 => s.cuGraphAddNode(n, g, list, c, &mut what),
            _ => s.cuGraphAddNode_v2(n, g, list, [0; 1].as_ptr(), c, &mut what),
        });
        ok!(s.cuGraphNodeGetType(node, &mut is));
        assert_eq!(is as u64, kind);
        last = vec![node];
    }
    let e = s.exec(g);
    s.play(e, stream);
    let expected = [[3; 16], [3; 16], [6; 16], [4; 16]].concat();
    assert_eq!((s.peek(x, 64), ran.load(Ordering::SeqCst)), (expected, 1));
    let mut nodes = [0; 8];
    ok!(s.cuGraphGetNodes(g, nodes.as_mut_ptr(), &mut 8));
    let changed = AnyNode::new(2, &[x + 32, 0, 8 | 1 << 32, 16, 1, 0]);
    ok!(s.cuGraphNodeSetParams(nodes[2], &changed));
    ok!(s.cuGraphExecNodeSetParams(e, nodes[2], &changed));
    ok!(s.cuGraphExecNodeSetParams(e, nodes[4], &AnyNode::new(4, &[inner])));
    assert_eq!(s.cuGraphNodeSetParams(nodes[3], &changed), INVALID_VALUE, "another kind");
    assert_eq!(s.cuGraphExecNodeSetParams(e, nodes[3], &changed), INVALID_VALUE);
    s.play(e, stream);
    assert_eq!(s.peek(x + 32, 16), [8; 16]);
    let mut node = 0;
    for (kind, answer) in [(8, NOT_SUPPORTED), (12, NOT_SUPPORTED), (13, NOT_SUPPORTED), (14, 1)] {
        let mut what = AnyNode::new(kind, &[]);
        assert_eq!(s.cuGraphAddNode(&mut node, g, null(), 0, &mut what), answer, "{kind}");
    }
    let mut what = changed;
    what.0[1] = 1;
    assert_eq!(s.cuGraphAddNode(&mut node, g, null(), 0, &mut what), INVALID_VALUE, "reserved");
    assert_eq!(s.cuGraphAddNode(&mut node, g, null(), 0, null_mut()), INVALID_VALUE);
    assert_eq!(s.sim.reports(), Vec::<String>::new());
}

#[test]
fn a_node_belongs_to_one_graph_and_comes_after_nodes_of_it() {
    let s = session(&[]);
    let (g, other, mut node) = (s.graph(), s.graph(), 0);
    let stranger = added(&[], |n, list, c| s.cuGraphAddEmptyNode(n, other, list, c));
    let add = |node, graph, after: &[u64]| {
        s.cuGraphAddEmptyNode(node, graph, after.as_ptr(), after.len())
    };
    assert_eq!(add(&mut node, g, &[stranger]), INVALID_VALUE, "of another graph");
    assert_eq!(add(&mut node, other, &[stranger, stranger]), INVALID_VALUE, "twice");
    assert_eq!(add(&mut node, 0, &[]), INVALID_VALUE, "no graph");
    assert_eq!(add(null_mut(), g, &[]), INVALID_VALUE);
    let made = s.cuGraphAddChildGraphNode(&mut node, g, &stranger, 1, other);
    assert_eq!((made, s.sim.objects("graphs")), (INVALID_VALUE, 2), "no copy is left over");
    assert_eq!(s.cuGraphAddHostNode(&mut node, g, null(), 0, null()), INVALID_VALUE);
    assert_eq!(s.cuGraphAddEventWaitNode(&mut node, g, null(), 0, 0), INVALID_VALUE);
    let (mut count, empty) = (9, g);
    ok!(s.cuGraphGetNodes(empty, null_mut(), &mut count));
    assert_eq!(count, 0, "what was refused left nothing");
}

/// A captured kernel is a node like any other.
#[test]
fn captured_work_is_shown_as_nodes_made_by_hand_are() {
    let s = session(&[]);
    let (stream, x, mut g) = (s.stream(), s.alloc(64), 0);
    let spin = s.function("simcuda_fill");
    ok!(s.cuStreamBeginCapture_v2(stream, 2));
    ok!(s.cuMemsetD32Async(x, 7, 4, stream));
    ok!(s.cuMemcpyDtoDAsync_v2(x + 32, x, 16, stream));
    ok!(s.try_launch(spin, &[x, 8, 2], stream));
    ok!(s.cuStreamEndCapture(stream, &mut g));
    let mut nodes = [0; 3];
    ok!(s.cuGraphGetNodes(g, nodes.as_mut_ptr(), &mut 3));
    let (mut filled, mut copied, mut launched) =
        (FillNode::default(), [0; 25], KernelNode::default());
    ok!(s.cuGraphMemsetNodeGetParams(nodes[0], &mut filled));
    ok!(s.cuGraphMemcpyNodeGetParams(nodes[1], &mut copied));
    ok!(s.cuGraphKernelNodeGetParams(nodes[2], &mut launched));
    assert_eq!((filled.at, filled.value, filled.size, filled.width), (x, 7, 4, 4));
    assert_eq!((copied[6], copied[17], copied[22]), (x, x + 32, 16));
    assert_eq!((launched.function, launched.grid), (spin, [1; 3]));
}
