//! Graphs and executable graphs: made, looked at, copied, changed, launched, destroyed.

mod common;
use common::{SCHEDULES, Session, code::*, session};
use std::ffi::{CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

const RELAXED: i32 = 2;
const UPDATE_FAILURE: i32 = 910;

/// The graph of what is done with a stream meanwhile.
fn captured(s: &Session, stream: u64, work: impl FnOnce()) -> u64 {
    let mut graph = 0;
    ok!(s.cuStreamBeginCapture_v2(stream, RELAXED));
    work();
    ok!(s.cuStreamEndCapture(stream, &mut graph));
    graph
}

/// A chain of fills of `block` with 1, 2, ... `count`.
fn chain(s: &Session, stream: u64, block: u64, count: u8) -> u64 {
    captured(s, stream, || {
        (1..=count).for_each(|v| ok!(s.cuMemsetD8Async(block, v, 64, stream)));
    })
}

fn instantiated(s: &Session, graph: u64) -> u64 {
    let mut exec = 0;
    ok!(s.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    exec
}

/// What a function that fills an array says: first its length, then what is in it.
fn listed(mut fill: impl FnMut(*mut u64, &mut usize) -> i32) -> Vec<u64> {
    let mut count = 0;
    ok!(fill(null_mut(), &mut count));
    // Room for one more, which must come back empty.
    let (mut all, mut room) = (vec![7; count + 1], count + 1);
    ok!(fill(all.as_mut_ptr(), &mut room));
    assert_eq!((room, all.pop()), (count, Some(0)));
    all
}

fn nodes(s: &Session, graph: u64) -> Vec<u64> {
    listed(|to, count| s.cuGraphGetNodes(graph, to, count))
}

fn edges(s: &Session, graph: u64) -> Vec<(u64, u64)> {
    let mut count = 0;
    ok!(s.cuGraphGetEdges(graph, null_mut(), null_mut(), &mut count));
    let (mut from, mut to) = (vec![0; count], vec![0; count]);
    ok!(s.cuGraphGetEdges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &mut count));
    from.into_iter().zip(to).collect()
}

#[test]
fn edges_are_shown_and_changed() {
    let s = session(&[]);
    let (stream, block) = (s.stream(), s.alloc(64));
    let graph = chain(&s, stream, block, 3);
    let [a, b, c] = nodes(&s, graph)[..] else { panic!("three nodes") };
    assert_eq!(edges(&s, graph), [(a, b), (b, c)]);
    assert_eq!(listed(|to, n| s.cuGraphGetRootNodes(graph, to, n)), [a]);
    assert_eq!(listed(|to, n| s.cuGraphNodeGetDependencies(c, to, n)), [b]);
    assert_eq!(listed(|to, n| s.cuGraphNodeGetDependentNodes(a, to, n)), [b]);
    assert_eq!(s.cuGraphAddDependencies(graph, &a, &b, 1), INVALID_VALUE, "there already");
    assert_eq!(s.cuGraphAddDependencies(graph, &a, &a, 1), INVALID_VALUE, "itself");
    assert_eq!(s.cuGraphAddDependencies(graph, &a, &graph, 1), INVALID_VALUE, "no node");
    assert_eq!(s.cuGraphRemoveDependencies(graph, &a, &c, 1), INVALID_VALUE, "not there");
    ok!(s.cuGraphRemoveDependencies(graph, &a, &b, 1));
    ok!(s.cuGraphAddDependencies_v2(graph, &a, &c, null(), 1));
    let mut before = listed(|to, n| s.cuGraphNodeGetDependencies(c, to, n));
    before.sort_unstable();
    assert_eq!(before, [a, b]);
    let (mut data, mut room, mut two) = ([9; 2], 2, [0; 2]);
    ok!(s.cuGraphNodeGetDependencies_v2(c, two.as_mut_ptr(), data.as_mut_ptr(), &mut room));
    assert_eq!((room, data), (2, [0; 2]), "edges have no data of their own");
    assert_eq!(listed(|to, n| s.cuGraphGetRootNodes(graph, to, n)), [a, b]);
    ok!(s.cuGraphDestroyNode(b));
    assert_eq!((nodes(&s, graph), edges(&s, graph)), (vec![a, c], vec![(a, c)]));
    assert_eq!(s.cuGraphDestroyNode(b), INVALID_VALUE);
    ok!(s.cuGraphDestroy(graph));
    assert_eq!(s.cuGraphDestroy(graph), INVALID_VALUE);
    assert_eq!(s.cuGraphDestroyNode(a), INVALID_VALUE, "it went with its graph");
}

#[test]
fn an_empty_graph_and_the_flags_of_executables() {
    let s = session(&[]);
    let (stream, mut graph, mut exec, mut flags) = (s.stream(), 0, 0, 9);
    assert_eq!(s.cuGraphCreate(&mut graph, 1), INVALID_VALUE);
    ok!(s.cuGraphCreate(&mut graph, 0));
    assert_eq!(nodes(&s, graph), []);
    ok!(s.cuGraphInstantiate_v2(&mut exec, graph, null_mut(), null_mut(), 0));
    ok!(s.cuGraphUpload(exec, stream));
    ok!(s.cuGraphLaunch(exec, stream));
    ok!(s.cuGraphExecGetFlags(exec, &mut flags));
    assert_eq!(flags, 0);
    assert_eq!(s.cuGraphInstantiateWithFlags(&mut exec, graph, 2), INVALID_VALUE, "upload: where?");
    ok!(s.cuGraphInstantiateWithFlags(&mut exec, graph, 8));
    ok!(s.cuGraphExecGetFlags(exec, &mut flags));
    assert_eq!(flags, 8);
    let mut parameters = [3, stream, 7, 7];
    ok!(s.cuGraphInstantiateWithParams(&mut exec, graph, &mut parameters));
    ok!(s.cuGraphExecGetFlags(exec, &mut flags));
    assert_eq!((flags, parameters[2], parameters[3] as i32), (3, 0, 0));
    parameters = [5, 0, 7, 7];
    let refused = s.cuGraphInstantiateWithParams(&mut exec, graph, &mut parameters);
    assert_eq!((refused, parameters[3] as i32), (INVALID_VALUE, 1), "from the device, and freeing");
    ok!(s.cuGraphExecDestroy(exec));
    assert_eq!(s.cuGraphExecDestroy(exec), INVALID_VALUE);
    assert_eq!(s.cuGraphLaunch(exec, stream), INVALID_VALUE);
    assert_eq!(s.cuGraphExecGetFlags(exec, &mut flags), INVALID_VALUE);
}

#[test]
fn a_cycle_cannot_be_instantiated_and_is_named() {
    let s = session(&[]);
    let (stream, block, mut exec, mut fault) = (s.stream(), s.alloc(64), 0, 0);
    let graph = chain(&s, stream, block, 3);
    let [a, b, c] = nodes(&s, graph)[..] else { panic!("three nodes") };
    ok!(s.cuGraphAddDependencies(graph, &c, &b, 1));
    let mut log = [1u8; 64];
    let refused = s.cuGraphInstantiate_v2(&mut exec, graph, &mut fault, log.as_mut_ptr(), 64);
    assert_eq!(refused, INVALID_VALUE);
    assert!([b, c].contains(&fault) && log.starts_with(b"the graph has a cycle"));
    let mut parameters = [0, 0, 7, 7];
    let refused = s.cuGraphInstantiateWithParams(&mut exec, graph, &mut parameters);
    assert_eq!((refused, parameters[3] as i32), (INVALID_VALUE, 2), "invalid structure");
    assert!([b, c].contains(&parameters[2]));
    ok!(s.cuGraphRemoveDependencies(graph, &c, &b, 1));
    ok!(s.cuGraphInstantiate_v2(&mut exec, graph, &mut fault, log.as_mut_ptr(), 64));
    assert_eq!((fault, log[0]), (0, 0));
    ok!(s.cuGraphDestroyNode(a));
    // An executable has nodes of its own.
    ok!(s.cuGraphLaunch(exec, stream));
}

#[test]
fn a_clone_is_a_graph_of_its_own() {
    let s = session(&[("checker", "log")]);
    let (stream, block) = (s.stream(), s.alloc(64));
    let inner = instantiated(&s, chain(&s, stream, block, 2));
    let graph = captured(&s, stream, || {
        ok!(s.cuMemsetD8Async(block, 7, 64, stream));
        ok!(s.cuGraphLaunch(inner, stream));
    });
    let mut clone = 0;
    ok!(s.cuGraphClone(&mut clone, graph));
    let [first, child] = nodes(&s, graph)[..] else { panic!("two nodes") };
    let copies = nodes(&s, clone);
    assert_eq!(edges(&s, clone), [(copies[0], copies[1])]);
    let find = |original, clone| {
        let mut found = 0;
        let code = s.cuGraphNodeFindInClone(&mut found, original, clone);
        if code == 0 { Ok(found) } else { Err(code) }
    };
    assert_eq!((find(first, clone), find(child, clone)), (Ok(copies[0]), Ok(copies[1])));
    assert_eq!(find(copies[0], clone), Err(INVALID_VALUE), "not of the original");
    assert_eq!(find(first, graph), Err(INVALID_VALUE), "no clone");
    ok!(s.cuGraphDestroyNode(copies[0]));
    assert_eq!(find(first, clone), Err(INVALID_VALUE), "destroyed in the clone");
    assert_eq!(nodes(&s, graph), [first, child]);
    ok!(s.cuGraphDestroy(graph));
    let exec = instantiated(&s, clone);
    ok!(s.cuGraphLaunch(exec, stream));
    ok!(s.cuStreamSynchronize(stream));
    assert_eq!(s.peek(block, 1), [2], "the child graph was copied too");
    assert_eq!(s.cuGraphClone(&mut clone, graph), INVALID_VALUE);
    assert_eq!(s.sim.reports(), Vec::<String>::new());
}

#[test]
fn a_dot_file_names_nodes_and_edges() {
    let s = session(&[]);
    let (stream, block) = (s.stream(), s.alloc(64));
    let graph = captured(&s, stream, || {
        ok!(s.cuMemsetD8Async(block, 1, 64, stream));
        s.launch("simcuda_spin", &[5], stream);
    });
    let path = std::env::temp_dir().join(format!("simcuda-{}.dot", std::process::id()));
    let name = CString::new(path.to_str().expect("plain text")).expect("no zero inside");
    let print = |flags| {
        ok!(s.cuGraphDebugDotPrint(graph, name.as_ptr(), flags));
        std::fs::read_to_string(&path).expect("written")
    };
    let (plain, full) = (print(0), print(1));
    std::fs::remove_file(&path).expect("there");
    let [a, b] = nodes(&s, graph)[..] else { panic!("two nodes") };
    assert!(plain.starts_with("digraph") && plain.contains("MEMSET") && plain.contains("KERNEL"));
    assert!(plain.contains(&format!("\"{a:#x}\" -> \"{b:#x}\"")), "{plain}");
    assert!(full.contains("simcuda_spin(0x5)") && !plain.contains("0x5)"), "{full}");
    assert_eq!(s.cuGraphDebugDotPrint(graph, null(), 0), INVALID_VALUE);
    assert_eq!(s.cuGraphDebugDotPrint(graph, c"/nowhere/at/all".as_ptr(), 0), 304);
    assert_eq!(s.cuGraphDebugDotPrint(0, name.as_ptr(), 0), INVALID_VALUE);
}

extern "C" fn add_one(data: *mut c_void) {
    // SAFETY: the tests pass a counter that outlives the object.
    unsafe { &*data.cast::<AtomicU64>() }.fetch_add(1, Ordering::SeqCst);
}

/// Whether a counter reaches a value; destructors run on a thread of the driver's own.
fn reaches(counter: &AtomicU64, value: u64) -> bool {
    let came = (0..2_000).any(|_| {
        let there = counter.load(Ordering::SeqCst) >= value;
        if !there {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        there
    });
    came && counter.load(Ordering::SeqCst) == value
}

fn user_object(s: &Session, gone: &AtomicU64, references: u32) -> u64 {
    let (mut object, destroy) = (0, add_one as *const () as u64);
    ok!(s.cuUserObjectCreate(&mut object, std::ptr::from_ref(gone) as u64, destroy, references, 1));
    object
}

#[test]
fn a_user_object_lives_as_long_as_anybody_holds_it() {
    let s = session(&[]);
    let gone = AtomicU64::new(0);
    let mut object = 0;
    for (destroy, references, flags) in [(0, 1, 1), (1, 0, 1), (1, 1, 0)] {
        let refused = s.cuUserObjectCreate(&mut object, 0, destroy, references, flags);
        assert_eq!(refused, INVALID_VALUE);
    }
    let object = user_object(&s, &gone, 2);
    ok!(s.cuUserObjectRetain(object, 1));
    assert_eq!(s.cuUserObjectRelease(object, 4), INVALID_VALUE, "more than there are");
    assert_eq!(s.cuUserObjectRelease(object, 0), INVALID_VALUE);
    ok!(s.cuUserObjectRelease(object, 2));
    let mut graph = 0;
    ok!(s.cuGraphCreate(&mut graph, 0));
    ok!(s.cuGraphRetainUserObject(graph, object, 2, 0));
    ok!(s.cuGraphRetainUserObject(graph, object, 1, 1));
    assert_eq!(s.cuGraphReleaseUserObject(graph, object, 4), INVALID_VALUE, "it has three");
    ok!(s.cuGraphReleaseUserObject(graph, object, 1));
    let mut clone = 0;
    ok!(s.cuGraphClone(&mut clone, graph));
    ok!(s.cuGraphDestroy(graph));
    assert_eq!((s.sim.objects("user_objects"), gone.load(Ordering::SeqCst)), (1, 0));
    ok!(s.cuGraphDestroy(clone));
    assert!(reaches(&gone, 1));
    assert_eq!(s.sim.objects("user_objects"), 0);
    assert_eq!(s.cuUserObjectRetain(object, 1), INVALID_VALUE);
}

#[test]
fn an_executable_may_be_destroyed_while_it_runs() {
    for schedule in SCHEDULES {
        let s = session(&[("checker", "log"), ("schedule", schedule)]);
        let (stream, block, gone) = (s.stream(), s.alloc(64), AtomicU64::new(0));
        let graph = chain(&s, stream, block, 3);
        let object = user_object(&s, &gone, 1);
        ok!(s.cuGraphRetainUserObject(graph, object, 1, 1));
        let exec = instantiated(&s, graph);
        ok!(s.cuGraphDestroy(graph));
        s.gate(5, stream);
        ok!(s.cuGraphLaunch(exec, stream));
        ok!(s.cuGraphExecDestroy(exec));
        assert_eq!(s.sim.objects("graph_execs"), 0);
        assert_eq!(s.sim.objects("user_objects"), 1, "{schedule}: the launch holds it");
        s.sim.gate_open(5);
        ok!(s.cuStreamSynchronize(stream));
        assert_eq!(s.peek(block, 1), [3], "{schedule}");
        let mut event = 0;
        // Any call will do.
        ok!(s.cuEventCreate(&mut event, 0));
        assert!(reaches(&gone, 1), "{schedule}");
        assert_eq!(s.sim.reports(), Vec::<String>::new(), "{schedule}");
    }
}

#[test]
fn an_update_changes_the_work_and_not_the_shape() {
    let s = session(&[("checker", "log")]);
    let (stream, block, mut info) = (s.stream(), s.alloc(128), [9u64; 3]);
    let graph = chain(&s, stream, block, 2);
    let exec = instantiated(&s, graph);
    let other = chain(&s, stream, block + 64, 2);
    ok!(s.cuMemsetD8Async(block, 0, 128, stream));
    ok!(s.cuGraphExecUpdate_v2(exec, other, &mut info));
    assert_eq!((info[0] as i32, info[1], info[2]), (0, 0, 0));
    ok!(s.cuGraphLaunch(exec, stream));
    ok!(s.cuStreamSynchronize(stream));
    assert_eq!((s.peek(block, 1), s.peek(block + 64, 1)), (vec![0], vec![2]));
    let longer = chain(&s, stream, block, 3);
    assert_eq!(s.cuGraphExecUpdate_v2(exec, longer, &mut info), UPDATE_FAILURE);
    assert_eq!((info[0] as i32, info[1]), (2, 0), "another number of nodes");
    let kind = captured(&s, stream, || {
        ok!(s.cuMemsetD8Async(block, 1, 64, stream));
        s.launch("simcuda_spin", &[5], stream);
    });
    assert_eq!(s.cuGraphExecUpdate_v2(exec, kind, &mut info), UPDATE_FAILURE);
    assert_eq!((info[0] as i32, info[1]), (3, nodes(&s, kind)[1]), "another kind of node");
    ok!(s.cuGraphRemoveDependencies(other, &nodes(&s, other)[0], &nodes(&s, other)[1], 1));
    let (mut fault, mut result) = (0, 0);
    assert_eq!(s.cuGraphExecUpdate(exec, other, &mut fault, &mut result), UPDATE_FAILURE);
    assert_eq!((result, fault), (2, nodes(&s, other)[1]), "another edge");
    assert_eq!(s.cuGraphExecUpdate_v2(exec, 0, &mut info), INVALID_VALUE);
    assert_eq!(info[0] as i32, 1);
    ok!(s.cuGraphLaunch(exec, stream));
    ok!(s.cuStreamSynchronize(stream));
    assert_eq!(s.peek(block, 1), [0], "what failed changed nothing");
    assert_eq!(s.sim.reports(), Vec::<String>::new());
}

#[test]
fn a_disabled_node_does_nothing_and_keeps_the_order() {
    let s = session(&[("checker", "log")]);
    let (stream, block, mut on) = (s.stream(), s.alloc(64), 9);
    let graph = chain(&s, stream, block, 3);
    let all = nodes(&s, graph);
    let (exec, same) = (instantiated(&s, graph), instantiated(&s, graph));
    let result = |exec| {
        ok!(s.cuGraphLaunch(exec, stream));
        ok!(s.cuStreamSynchronize(stream));
        s.peek(block, 1)[0]
    };
    assert_eq!(result(exec), 3);
    ok!(s.cuGraphNodeSetEnabled(exec, all[2], 0));
    ok!(s.cuGraphNodeGetEnabled(exec, all[2], &mut on));
    assert_eq!((on, result(exec), result(same)), (0, 2, 3), "in this executable alone");
    ok!(s.cuGraphNodeSetEnabled(exec, all[1], 0));
    assert_eq!(result(exec), 1);
    ok!(s.cuGraphNodeSetEnabled(exec, all[2], 5));
    ok!(s.cuGraphNodeGetEnabled(exec, all[2], &mut on));
    assert_eq!((on, result(exec)), (1, 3));
    ok!(s.cuGraphDestroyNode(all[1]));
    assert_eq!(s.cuGraphNodeSetEnabled(exec, all[1], 1), INVALID_VALUE, "no node any more");
    let event = s.event();
    let waits = captured(&s, stream, || ok!(s.cuStreamWaitEvent(stream, event, 1)));
    let exec = instantiated(&s, waits);
    assert_eq!(s.cuGraphNodeSetEnabled(exec, nodes(&s, waits)[0], 0), INVALID_VALUE);
    assert_eq!(s.cuGraphNodeGetEnabled(exec, all[0], &mut on), INVALID_VALUE, "another graph's");
    assert_eq!(s.sim.reports(), Vec::<String>::new());
}

#[test]
fn a_launch_that_is_captured_becomes_a_child_graph() {
    for schedule in SCHEDULES {
        let s = session(&[("checker", "log"), ("schedule", schedule)]);
        let (stream, block, copy) = (s.stream(), s.alloc(64), s.alloc(64));
        let inner = chain(&s, stream, block, 2);
        let exec = instantiated(&s, inner);
        ok!(s.cuGraphNodeSetEnabled(exec, nodes(&s, inner)[1], 0));
        ok!(s.cuMemsetD8Async(block, 0, 64, stream));
        let outer = captured(&s, stream, || {
            ok!(s.cuGraphLaunch(exec, stream));
            ok!(s.cuMemcpyDtoDAsync_v2(copy, block, 64, stream));
        });
        ok!(s.cuStreamSynchronize(stream));
        assert_eq!(s.peek(block, 1), [0], "{schedule}: nothing ran");
        let mut kind = 9;
        ok!(s.cuGraphNodeGetType(nodes(&s, outer)[0], &mut kind));
        assert_eq!(kind, 4);
        ok!(s.cuGraphExecDestroy(exec));
        ok!(s.cuGraphDestroy(inner));
        let outer = instantiated(&s, outer);
        ok!(s.cuGraphLaunch(outer, stream));
        ok!(s.cuGraphLaunch(outer, stream));
        ok!(s.cuStreamSynchronize(stream));
        assert_eq!(s.peek(copy, 1), [1], "{schedule}: a disabled node stays so");
        assert_eq!(s.sim.reports(), Vec::<String>::new(), "{schedule}");
    }
}
