//! Stream capture: what becomes a graph, what breaks a capture, and what a launch does.

mod common;
use common::{SCHEDULES, Session, code::*, session};
use std::ptr::{null, null_mut};

const UNSUPPORTED: i32 = 900;
const INVALIDATED: i32 = 901;
const MERGE: i32 = 902;
const UNMATCHED: i32 = 903;
const UNJOINED: i32 = 904;
const ISOLATION: i32 = 905;
const IMPLICIT: i32 = 906;
const CAPTURED_EVENT: i32 = 907;
const WRONG_THREAD: i32 = 908;
const ILLEGAL_STATE: i32 = 401;

const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

fn status(s: &Session, stream: u64) -> i32 {
    let mut status = 9;
    ok!(s.cuStreamIsCapturing(stream, &mut status));
    status
}

fn end(s: &Session, stream: u64) -> Result<u64, i32> {
    let mut graph = 1;
    match s.cuStreamEndCapture(stream, &mut graph) {
        0 => Ok(graph),
        code => {
            assert_eq!(graph, 0, "a failed capture gives no graph");
            Err(code)
        }
    }
}

fn exec(s: &Session, graph: u64) -> u64 {
    let mut exec = 0;
    ok!(s.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    exec
}

fn counts(s: &Session, graph: u64) -> (usize, usize) {
    let (mut nodes, mut edges) = (0, 0);
    ok!(s.cuGraphGetNodes(graph, null_mut(), &mut nodes));
    ok!(s.cuGraphGetEdges(graph, null_mut(), null_mut(), &mut edges));
    (nodes, edges)
}

#[test]
fn captured_work_runs_at_each_launch_and_not_before() {
    for schedule in SCHEDULES {
        let s = session(&[("checker", "log"), ("schedule", schedule)]);
        let (stream, other, block) = (s.stream(), s.stream(), s.alloc(64));
        let add = s.function("simcuda_copy");
        ok!(s.cuMemsetD8Async(block, 0, 64, stream));
        ok!(s.cuStreamSynchronize(stream));
        ok!(s.cuStreamBeginCapture_v2(stream, GLOBAL));
        assert_eq!((status(&s, stream), status(&s, other)), (1, 0));
        ok!(s.cuMemsetD8Async(block, 5, 32, stream));
        ok!(s.try_launch(add, &[block + 32, block, 32], stream));
        let graph = end(&s, stream).expect("a right capture");
        assert_eq!(status(&s, stream), 0);
        ok!(s.cuCtxSynchronize());
        assert_eq!(s.peek(block, 64), [0; 64], "{schedule}: capturing runs nothing");
        assert_eq!(counts(&s, graph), (2, 1));
        let exec = exec(&s, graph);
        ok!(s.cuGraphDestroy(graph));
        for launch_on in [stream, other] {
            ok!(s.cuMemsetD8Async(block, 0, 64, launch_on));
            ok!(s.cuGraphLaunch(exec, launch_on));
            ok!(s.cuStreamSynchronize(launch_on));
            assert_eq!(s.peek(block, 64), [5; 64], "{schedule}");
        }
        ok!(s.cuGraphExecDestroy(exec));
        assert_eq!(s.sim.reports(), Vec::<String>::new(), "{schedule}");
        assert_eq!((s.sim.objects("graphs"), s.sim.objects("graph_execs")), (0, 0));
    }
}

#[test]
fn a_fork_becomes_edges_and_the_checker_sees_each_launch() {
    for schedule in SCHEDULES {
        let s = session(&[("checker", "log"), ("schedule", schedule)]);
        let (a, b, free) = (s.stream(), s.stream(), s.stream());
        let (fork, join) = (s.event(), s.event());
        let (x, y) = (s.alloc(64), s.alloc(64));
        ok!(s.cuStreamBeginCapture_v2(a, THREAD_LOCAL));
        ok!(s.cuMemsetD8Async(x, 1, 64, a));
        ok!(s.cuEventRecord(fork, a));
        ok!(s.cuStreamWaitEvent(b, fork, 0));
        assert_eq!(status(&s, b), 1, "it joined");
        ok!(s.cuMemcpyDtoDAsync_v2(y, x, 64, b));
        ok!(s.cuMemsetD8Async(x + 64 - 64, 1, 0, a));
        ok!(s.cuEventRecord(join, b));
        ok!(s.cuStreamWaitEvent(a, join, 0));
        ok!(s.cuMemsetD8Async(x, 2, 64, a));
        let graph = end(&s, a).expect("joined");
        assert_eq!(status(&s, b), 0);
        let exec = exec(&s, graph);
        ok!(s.cuGraphLaunch(exec, a));
        ok!(s.cuGraphLaunch(exec, b));
        ok!(s.cuStreamSynchronize(b));
        assert_eq!((s.peek(x, 1), s.peek(y, 1)), (vec![2], vec![1]), "{schedule}");
        assert_eq!(
            s.sim.reports(),
            Vec::<String>::new(),
            "{schedule}: launches of one exec are ordered"
        );
        ok!(s.cuGraphLaunch(exec, a));
        ok!(s.cuMemsetD8Async(y, 3, 64, free));
        let reports = s.sim.reports();
        assert!(reports.len() == 1 && reports[0].contains("graph"), "{schedule}: {reports:?}");
        ok!(s.cuCtxSynchronize());
    }
}

#[test]
fn a_race_inside_a_graph_is_found_at_its_launch() {
    let s = session(&[("checker", "log")]);
    let (a, b, fork, join, x) = (s.stream(), s.stream(), s.event(), s.event(), s.alloc(64));
    ok!(s.cuStreamBeginCapture_v2(a, RELAXED));
    ok!(s.cuEventRecord(fork, a));
    ok!(s.cuStreamWaitEvent(b, fork, 0));
    ok!(s.cuMemsetD8Async(x, 1, 64, a));
    ok!(s.cuMemsetD8Async(x, 2, 64, b));
    ok!(s.cuEventRecord(join, b));
    ok!(s.cuStreamWaitEvent(a, join, 0));
    let graph = end(&s, a).expect("joined");
    assert_eq!(s.sim.report_count(), 0, "capturing uses no memory");
    ok!(s.cuGraphLaunch(exec(&s, graph), a));
    assert_eq!(s.sim.report_count(), 1);
}

#[test]
fn unjoined_work_and_wrong_ends() {
    let s = session(&[]);
    let (a, b, fork, x) = (s.stream(), s.stream(), s.event(), s.alloc(64));
    assert_eq!(end_raw(&s, a), ILLEGAL_STATE, "nothing to end");
    ok!(s.cuStreamBeginCapture_v2(a, RELAXED));
    assert_eq!(s.cuStreamBeginCapture_v2(a, RELAXED), ILLEGAL_STATE);
    ok!(s.cuMemsetD8Async(x, 1, 64, a));
    ok!(s.cuEventRecord(fork, a));
    ok!(s.cuStreamWaitEvent(b, fork, 0));
    ok!(s.cuMemsetD8Async(x, 2, 64, b));
    assert_eq!(end(&s, a), Err(UNJOINED));
    assert_eq!((status(&s, a), status(&s, b), s.sim.objects("graphs")), (0, 0, 0));
    ok!(s.cuStreamBeginCapture_v2(a, RELAXED));
    ok!(s.cuEventRecord(fork, a));
    ok!(s.cuStreamWaitEvent(b, fork, 0));
    assert_eq!(end_raw(&s, b), UNMATCHED);
    assert_eq!(end(&s, a), Err(INVALIDATED));
    assert_eq!(s.cuStreamBeginCapture_v2(0, RELAXED), UNSUPPORTED, "the legacy stream");
    assert_eq!(s.cuStreamBeginCapture_v2(a, 3), INVALID_VALUE);
}

fn end_raw(s: &Session, stream: u64) -> i32 {
    let mut graph = 0;
    s.cuStreamEndCapture(stream, &mut graph)
}

#[test]
fn only_a_relaxed_capture_ends_on_another_thread() {
    for (mode, expected) in [(GLOBAL, WRONG_THREAD), (THREAD_LOCAL, WRONG_THREAD), (RELAXED, 0)] {
        let s = session(&[]);
        let (mut context, stream) = (0, s.stream());
        ok!(s.cuCtxGetCurrent(&mut context));
        ok!(s.cuStreamBeginCapture_v2(stream, mode));
        std::thread::scope(|threads| {
            let other = threads.spawn(|| {
                ok!(s.cuCtxSetCurrent(context));
                end_raw(&s, stream)
            });
            assert_eq!(other.join().expect("no panic"), expected, "{mode}");
        });
        if expected != 0 {
            end(&s, stream).expect("the right thread still may");
        }
    }
}

#[test]
fn unsafe_calls_are_forbidden_as_the_modes_say() {
    // Capture's mode, whether by the same thread, the caller's own mode, whether it may.
    for (capture, same, own, may) in [
        (GLOBAL, true, GLOBAL, false),
        (GLOBAL, true, THREAD_LOCAL, false),
        (GLOBAL, true, RELAXED, true),
        (GLOBAL, false, GLOBAL, false),
        (GLOBAL, false, THREAD_LOCAL, true),
        (THREAD_LOCAL, true, GLOBAL, false),
        (THREAD_LOCAL, false, GLOBAL, true),
        (RELAXED, true, GLOBAL, true),
        (RELAXED, false, GLOBAL, true),
    ] {
        let s = session(&[]);
        let (mut context, stream, event) = (0, s.stream(), s.event());
        ok!(s.cuCtxGetCurrent(&mut context));
        let kept = s.alloc(64);
        ok!(s.cuStreamBeginCapture_v2(stream, capture));
        let attempt = || {
            ok!(s.cuCtxSetCurrent(context));
            let (mut mode, mut address) = (own, 0);
            ok!(s.cuThreadExchangeStreamCaptureMode(&mut mode));
            let codes =
                [s.cuMemAlloc_v2(&mut address, 64), s.cuMemFree_v2(kept), s.cuEventQuery(event)];
            ok!(s.cuThreadExchangeStreamCaptureMode(&mut mode));
            assert_eq!(mode, own, "put back");
            codes
        };
        let codes = if same {
            attempt()
        } else {
            std::thread::scope(|t| t.spawn(attempt).join().expect("no panic"))
        };
        let case = format!("capture {capture} same {same} own {own}");
        assert_eq!(codes, if may { [0; 3] } else { [UNSUPPORTED; 3] }, "{case}");
        assert_eq!(status(&s, stream), if may { 1 } else { 2 }, "{case}");
        assert_eq!(end(&s, stream).is_ok(), may, "{case}");
    }
}

#[test]
fn what_a_capturing_stream_refuses_breaks_the_capture() {
    type Attempt = fn(&Session, u64) -> i32;
    let attempts: [(&str, i32, Attempt); 5] = [
        ("query", UNSUPPORTED, |s, stream| s.cuStreamQuery(stream)),
        ("synchronize", UNSUPPORTED, |s, stream| s.cuStreamSynchronize(stream)),
        ("context", UNSUPPORTED, |s, _| s.cuCtxSynchronize()),
        ("callback", UNSUPPORTED, |s, stream| s.cuStreamAddCallback(stream, 1, 0, 0)),
        ("context event", UNSUPPORTED, |s, _| s.cuCtxRecordEvent(0, s.event())),
    ];
    for (name, expected, attempt) in attempts {
        let s = session(&[]);
        let (stream, block) = (s.stream(), s.alloc(64));
        ok!(s.cuStreamBeginCapture_v2(stream, RELAXED));
        assert_eq!(attempt(&s, stream), expected, "{name}");
        assert_eq!(status(&s, stream), 2, "{name}");
        assert_eq!(s.cuMemsetD8Async(block, 1, 64, stream), INVALIDATED, "{name}");
        assert_eq!(end(&s, stream), Err(INVALIDATED), "{name}");
        ok!(s.cuMemsetD8Async(block, 1, 64, stream));
    }
}

#[test]
fn the_legacy_stream_is_unusable_while_a_blocking_stream_is_captured() {
    let s = session(&[]);
    let (free, blocking, block) = (s.stream(), s.blocking_stream(), s.alloc(64));
    let mut state = 9;
    ok!(s.cuStreamBeginCapture_v2(free, RELAXED));
    ok!(s.cuMemsetD8Async(block, 1, 64, 0));
    assert_eq!(status(&s, 0), 0);
    end(&s, free).expect("a non-blocking stream does not mind");
    ok!(s.cuStreamBeginCapture_v2(blocking, RELAXED));
    assert_eq!(s.cuStreamIsCapturing(0, &mut state), IMPLICIT);
    assert_eq!(status(&s, blocking), 1, "asking does no harm");
    assert_eq!(s.cuMemsetD8Async(block, 1, 64, 0), IMPLICIT);
    assert_eq!(end(&s, blocking), Err(INVALIDATED));
    assert_eq!(status(&s, 0), 0);
}

#[test]
fn captured_events_are_good_for_their_capture_alone() {
    let s = session(&[]);
    let (a, b, c) = (s.stream(), s.stream(), s.stream());
    let (inside, outside, mut ms) = (s.event(), s.event(), 0.0);
    ok!(s.cuEventRecord(outside, c));
    ok!(s.cuStreamBeginCapture_v2(a, RELAXED));
    ok!(s.cuEventRecord(inside, a));
    assert_eq!(s.cuEventQuery(inside), CAPTURED_EVENT);
    assert_eq!(end(&s, a), Err(INVALIDATED));
    for wrong in [
        s.cuEventQuery(inside),
        s.cuEventSynchronize(inside),
        s.cuEventElapsedTime(&mut ms, inside, outside),
    ] {
        assert_eq!(wrong, CAPTURED_EVENT, "also when the capture is over");
    }
    assert_eq!(s.cuStreamWaitEvent(c, inside, 0), CAPTURED_EVENT);
    ok!(s.cuEventRecord(inside, c));
    ok!(s.cuEventQuery(inside));
    ok!(s.cuStreamBeginCapture_v2(a, RELAXED));
    ok!(s.cuStreamBeginCapture_v2(b, RELAXED));
    ok!(s.cuEventRecord(inside, a));
    assert_eq!(s.cuStreamWaitEvent(b, inside, 0), MERGE);
    assert_eq!((end(&s, a), end(&s, b)), (Err(INVALIDATED), Err(INVALIDATED)));
    ok!(s.cuStreamBeginCapture_v2(a, RELAXED));
    assert_eq!(s.cuStreamWaitEvent(a, outside, 0), ISOLATION);
    assert_eq!(end(&s, a), Err(INVALIDATED));
    assert_eq!(
        s.cuEventRecordWithFlags(outside, c, 1),
        INVALID_VALUE,
        "external: in captures only"
    );
    ok!(s.cuStreamBeginCapture_v2(a, RELAXED));
    ok!(s.cuStreamWaitEvent(a, outside, 1));
    ok!(s.cuEventRecordWithFlags(outside, a, 1));
    let graph = end(&s, a).expect("external events are nodes");
    assert_eq!(counts(&s, graph), (2, 1));
}

#[test]
fn dependencies_are_shown_and_changed() {
    let s = session(&[]);
    let (stream, block) = (s.stream(), s.alloc(64));
    let (mut state, mut id, mut graph, mut nodes, mut count) = (9, 0, 0, null(), 9);
    assert_eq!(s.cuStreamUpdateCaptureDependencies(stream, null(), 0, 1), ILLEGAL_STATE);
    ok!(s.cuStreamBeginCapture_v2(stream, RELAXED));
    ok!(s.cuMemsetD8Async(block, 1, 64, stream));
    ok!(s.cuStreamGetCaptureInfo_v2(
        stream, &mut state, &mut id, &mut graph, &mut nodes, &mut count
    ));
    assert_eq!((state, count), (1, 1));
    // SAFETY: the driver's own array, valid until the next call on the stream.
    let first = unsafe { *nodes };
    let mut kind = 9;
    ok!(s.cuGraphNodeGetType(first, &mut kind));
    assert_eq!(kind, 2, "a memset");
    assert_eq!(s.cuGraphDestroy(graph), INVALID_VALUE, "it is the capture's");
    ok!(s.cuStreamUpdateCaptureDependencies(stream, null(), 0, 1));
    ok!(s.cuMemsetD8Async(block, 2, 64, stream));
    assert_eq!(s.cuStreamUpdateCaptureDependencies(stream, &12345, 1, 0), INVALID_VALUE);
    ok!(s.cuStreamUpdateCaptureDependencies(stream, &first, 1, 0));
    ok!(s.cuMemsetD8Async(block, 3, 64, stream));
    assert_eq!(end(&s, stream), Ok(graph));
    assert_eq!(counts(&s, graph), (3, 2), "two roots, and one after both");
    let mut before = id;
    ok!(s.cuStreamBeginCaptureToGraph(stream, graph, &first, null(), 1, RELAXED));
    ok!(s.cuStreamGetCaptureInfo_v2(
        stream,
        &mut state,
        &mut id,
        null_mut(),
        null_mut(),
        null_mut()
    ));
    std::mem::swap(&mut before, &mut id);
    assert_ne!(before, id, "an id is never used twice");
    let mut exec = 0;
    assert_eq!(
        s.cuGraphInstantiateWithFlags(&mut exec, graph, 0),
        INVALID_VALUE,
        "not before its end"
    );
    ok!(s.cuMemsetD8Async(block, 4, 64, stream));
    assert_eq!(end(&s, stream), Ok(graph));
    assert_eq!(counts(&s, graph), (4, 3));
}
