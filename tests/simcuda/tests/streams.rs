//! Streams and events.

mod common;
use common::{SCHEDULES, Session, code::*, session};

#[test]
fn a_destroyed_streams_value_comes_back_for_another_stream() {
    let s = session(&[("schedule", "lazy")]);
    let block = s.alloc(64);
    let first = s.stream();
    let id = s.stream_id(first);
    ok!(s.cuMemsetD8Async(block, 7, 64, first));
    ok!(s.cuStreamDestroy_v2(first));
    assert_eq!(s.cuStreamQuery(first), INVALID_HANDLE);
    let second = s.stream();
    assert_eq!(second, first, "the value");
    assert_ne!(s.stream_id(second), id, "but not the stream");
    ok!(s.cuStreamSynchronize(second));
    assert_eq!(s.peek(block, 1), [0], "the new stream has nothing to do with the old one");
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.peek(block, 1), [7], "the destroyed one drains");
    assert_eq!(s.cuStreamDestroy_v2(0), INVALID_HANDLE);
    assert_eq!(s.cuStreamDestroy_v2(12345), INVALID_HANDLE);
}

#[test]
fn what_is_known_of_a_stream() {
    let s = session(&[]);
    let (mut context, mut of_stream, mut flags, mut priority) = (0, 0, 9, 9);
    let (mut least, mut greatest) = (9, 9);
    ok!(s.cuCtxGetCurrent(&mut context));
    ok!(s.cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
    assert_eq!((least, greatest), (0, -5));
    let mut stream = 0;
    ok!(s.cuStreamCreateWithPriority(&mut stream, 1, -99));
    ok!(s.cuStreamGetCtx(stream, &mut of_stream));
    ok!(s.cuStreamGetFlags(stream, &mut flags));
    ok!(s.cuStreamGetPriority(stream, &mut priority));
    assert_eq!((of_stream, flags, priority), (context, 1, greatest));
    assert_eq!(s.cuStreamCreate(&mut stream, 2), INVALID_VALUE);
    let ids = [0, 1, 2].map(|default| s.stream_id(default));
    assert_eq!(ids[0], ids[1], "0 is the legacy stream");
    assert_ne!(ids[1], ids[2]);
    let mut id = 0;
    ok!(s.cuStreamGetId_ptsz(0, &mut id));
    assert_eq!(id, ids[2], "and for _ptsz the thread's own");
}

#[test]
fn each_thread_has_a_default_stream_of_its_own() {
    let s = session(&[("checker", "log"), ("schedule", "lazy")]);
    let mut context = 0;
    ok!(s.cuCtxGetCurrent(&mut context));
    let block = s.alloc(64);
    let mine = s.stream_id(2);
    ok!(s.cuMemsetD8Async_ptsz(block, 1, 64, 0));
    std::thread::scope(|threads| {
        let other = threads.spawn(|| {
            ok!(s.cuCtxSetCurrent(context));
            let id = s.stream_id(2);
            ok!(s.cuMemsetD8Async_ptsz(block, 2, 64, 0));
            ok!(s.cuStreamSynchronize_ptsz(0));
            id
        });
        assert_ne!(other.join().expect("no panic"), mine);
    });
    let reports = s.sim.reports();
    assert_eq!(reports.len(), 1, "two threads' own streams are not ordered: {reports:?}");
    assert_eq!(s.peek(block, 1), [2], "the other one's stream alone was waited for");
    ok!(s.cuCtxSynchronize());
}

/// Writes on one stream, then on another, and says whether the checker found them ordered.
fn ordered(s: &Session, first: u64, second: u64) -> bool {
    let block = s.alloc(64);
    s.sim.clear_reports();
    ok!(s.cuMemsetD8Async(block, 1, 64, first));
    ok!(s.cuMemsetD8Async(block, 2, 64, second));
    let ordered = s.sim.report_count() == 0;
    ok!(s.cuCtxSynchronize());
    if ordered {
        assert_eq!(s.peek(block, 1), [2]);
    }
    ordered
}

#[test]
fn the_legacy_stream_orders_blocking_streams() {
    for schedule in SCHEDULES {
        let s = session(&[("checker", "log"), ("schedule", schedule)]);
        let (blocking, other, free) = (s.blocking_stream(), s.blocking_stream(), s.stream());
        assert!(ordered(&s, 0, blocking) && ordered(&s, blocking, 0), "{schedule}");
        assert!(ordered(&s, 1, 2) && ordered(&s, 2, 1), "{schedule}: per-thread ones too");
        assert!(!ordered(&s, blocking, other), "{schedule}");
        assert!(!ordered(&s, 0, free) && !ordered(&s, free, 0), "{schedule}");
        assert!(!ordered(&s, blocking, free) && ordered(&s, free, free), "{schedule}");
    }
}

#[test]
fn events_order_streams_and_the_host() {
    for schedule in SCHEDULES {
        let s = session(&[("checker", "log"), ("schedule", schedule)]);
        let (a, b, event) = (s.stream(), s.stream(), s.event());
        let block = s.alloc(64);
        ok!(s.cuStreamWaitEvent(b, event, 0));
        ok!(s.cuEventQuery(event));
        ok!(s.cuMemsetD8Async(block, 1, 64, a));
        ok!(s.cuEventRecord(event, a));
        ok!(s.cuStreamWaitEvent(b, event, 0));
        ok!(s.cuMemsetD8Async(block, 2, 64, b));
        ok!(s.cuEventRecord(event, b));
        ok!(s.cuEventSynchronize(event));
        assert_eq!(s.peek(block, 1), [2], "{schedule}");
        ok!(s.cuEventQuery(event));
        ok!(s.cuMemsetD8Async(block, 3, 64, a));
        assert_eq!(s.sim.reports(), Vec::<String>::new(), "{schedule}");
        ok!(s.cuEventDestroy_v2(event));
        assert_eq!(s.cuEventQuery(event), INVALID_HANDLE);
        assert_eq!(s.cuEventRecord(event, a), INVALID_HANDLE);
        assert_eq!(s.cuStreamWaitEvent(b, event, 0), INVALID_HANDLE);
    }
}

#[test]
fn an_event_waits_for_its_gate() {
    for schedule in SCHEDULES {
        let s = session(&[("schedule", schedule)]);
        let (stream, event, block) = (s.stream(), s.event(), s.alloc(8));
        s.gate(5, stream);
        ok!(s.cuMemsetD8Async(block, 9, 8, stream));
        ok!(s.cuEventRecord(event, stream));
        for _ in 0..20 {
            assert_eq!(s.cuEventQuery(event), NOT_READY, "{schedule}");
            assert_eq!(s.cuStreamQuery(stream), NOT_READY, "{schedule}");
        }
        assert_eq!(s.peek(block, 1), [0]);
        s.sim.gate_open(5);
        ok!(s.cuEventSynchronize(event));
        assert_eq!(s.peek(block, 1), [9], "{schedule}");
        ok!(s.cuStreamQuery(stream));
    }
}

#[test]
fn a_waiting_thread_lets_others_in_and_goes_on_when_the_gate_opens() {
    let s = session(&[]);
    let (stream, block) = (s.stream(), s.alloc(8));
    let mut context = 0;
    ok!(s.cuCtxGetCurrent(&mut context));
    s.gate(1, stream);
    ok!(s.cuMemsetD8Async(block, 3, 8, stream));
    std::thread::scope(|threads| {
        let waiter = threads.spawn(|| {
            ok!(s.cuCtxSetCurrent(context));
            s.cuStreamSynchronize(stream)
        });
        for _ in 0..100 {
            let other = s.alloc(512);
            ok!(s.cuMemsetD8Async(other, 1, 512, 2));
            ok!(s.cuStreamSynchronize(2));
        }
        assert!(!waiter.is_finished());
        assert_eq!(s.cuStreamQuery(stream), NOT_READY);
        s.sim.gate_open(1);
        assert_eq!(waiter.join().expect("no panic"), 0);
    });
    assert_eq!(s.peek(block, 1), [3]);
}

#[test]
fn a_kernel_may_take_real_time() {
    let s = session(&[]);
    let (stream, block) = (s.stream(), s.alloc(8));
    let began = std::time::Instant::now();
    s.launch("simcuda_spin_real", &[30_000_000], stream);
    ok!(s.cuMemsetD8Async(block, 1, 8, stream));
    ok!(s.cuStreamSynchronize(stream));
    assert!(began.elapsed().as_millis() >= 30);
    assert_eq!(s.peek(block, 1), [1]);
    assert!(s.sim.time_ns() >= 30_000_000, "and as much virtual time");
}

#[test]
fn a_context_event_covers_all_its_streams() {
    let s = session(&[("checker", "log"), ("schedule", "lazy")]);
    let (a, b, c, event) = (s.stream(), s.stream(), s.stream(), s.event());
    let (x, y) = (s.alloc(64), s.alloc(64));
    let mut context = 0;
    ok!(s.cuCtxGetCurrent(&mut context));
    ok!(s.cuMemsetD8Async(x, 1, 64, a));
    ok!(s.cuMemsetD8Async(y, 1, 64, b));
    ok!(s.cuCtxRecordEvent(context, event));
    ok!(s.cuStreamWaitEvent(c, event, 0));
    ok!(s.cuMemsetD8Async(x, 2, 64, c));
    ok!(s.cuMemsetD8Async(y, 2, 64, c));
    assert_eq!(s.sim.report_count(), 0);
    ok!(s.cuEventRecord(event, c));
    ok!(s.cuCtxWaitEvent(context, event));
    ok!(s.cuMemsetD8Async(x, 3, 64, b));
    assert_eq!(s.sim.report_count(), 0, "{:?}", s.sim.reports());
    ok!(s.cuMemsetD8Async(x, 4, 64, a));
    assert_eq!(s.sim.report_count(), 1, "a and b are not ordered by it");
    ok!(s.cuCtxSynchronize());
}

#[test]
fn events_measure_virtual_time() {
    let s = session(&[]);
    let (start, end, stream) = (s.event(), s.event(), s.stream());
    let mut ms = -1.0;
    assert_eq!(s.cuEventElapsedTime(&mut ms, start, end), INVALID_HANDLE, "never recorded");
    ok!(s.cuEventRecord(start, stream));
    s.launch("simcuda_spin", &[3_000_000], stream);
    ok!(s.cuEventRecord(end, stream));
    ok!(s.cuEventSynchronize(end));
    ok!(s.cuEventElapsedTime(&mut ms, start, end));
    assert!((3.0..3.1).contains(&ms), "{ms}");
    let before = s.sim.time_ns();
    s.sim.advance(1000);
    assert_eq!(s.sim.time_ns(), before + 1000);
    let mut untimed = 0;
    ok!(s.cuEventCreate(&mut untimed, 2));
    ok!(s.cuEventRecord(untimed, stream));
    assert_eq!(s.cuEventElapsedTime(&mut ms, start, untimed), INVALID_HANDLE);
    assert_eq!(s.cuEventCreate(&mut untimed, 4), INVALID_VALUE, "interprocess needs no timing");
    assert_eq!(s.cuEventCreate(&mut untimed, 8), INVALID_VALUE);
}

#[test]
fn an_event_belongs_to_a_context() {
    let s = session(&[("devices", "2")]);
    let event = s.event();
    s.use_device(1);
    assert_eq!(s.cuEventRecord(event, 0), INVALID_HANDLE, "recorded in another context");
    ok!(s.cuStreamWaitEvent(0, event, 0));
}
