//! The engine's promises one by one: gates, lag, virtual time, what is remembered and what forgotten.

use simcuda::checker::AccessKind::{Destroy, Read, Write};
use simcuda::checker::{Access, AccessKind, Mode, Report, ReportKind};
use simcuda::engine::{
    ContextKey, Engine, Job, OpKey, Schedule, Status, Step, StreamKey, StreamKind, Target,
    ThreadKey,
};

/// One context, one host thread.
struct World {
    engine: Engine<u32>,
    t: ThreadKey,
    context: ContextKey,
    ran: Vec<u32>,
}

impl World {
    fn new(schedule: Schedule, mode: Mode) -> Self {
        let mut engine = Engine::new();
        engine.set_schedule(schedule);
        engine.checker().set_mode(mode);
        let (t, context) = (engine.thread(1), engine.create_context(0));
        Self { engine, t, context, ran: Vec::new() }
    }

    fn stream(&mut self) -> StreamKey {
        self.engine.create_stream(self.t, self.context, StreamKind::NonBlocking, 0)
    }

    fn submit(&mut self, stream: StreamKey, work: u32, accesses: &[Access]) -> OpKey {
        self.engine.submit(self.t, stream, job(work, accesses))
    }

    fn poll(&mut self) {
        while let Some((op, work)) = self.engine.poll() {
            self.ran.push(work);
            self.engine.finished(op);
        }
    }

    /// Waits; false if it blocks.
    fn wait(&mut self, target: Target) -> bool {
        loop {
            match self.engine.step(self.t, target) {
                Step::Finished => return true,
                Step::Blocked => return false,
                Step::Run(op, work) => {
                    self.ran.push(work);
                    self.engine.finished(op);
                }
            }
        }
    }

    fn reports(&mut self) -> Vec<Report> {
        self.engine.checker().take_reports()
    }
}

fn job(work: u32, accesses: &[Access]) -> Job<u32> {
    let (accesses, label) = (accesses.to_vec(), format!("work{work}"));
    Job { work, accesses, duration_ns: 100, label, unknown_accesses: false }
}

fn access(kind: AccessKind, offset: u64, bytes: u64) -> Access {
    Access { object: 7, offset, bytes, kind }
}

#[test]
fn a_shut_gate_blocks_its_stream_and_no_other() {
    for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::Lag(1), Schedule::Random(4)] {
        let mut w = World::new(schedule, Mode::Off);
        let (a, b) = (w.stream(), w.stream());
        w.engine.submit_gated(w.t, a, job(1, &[]), 5);
        w.submit(a, 2, &[]);
        w.submit(b, 3, &[]);
        w.poll();
        assert!(w.wait(Target::Stream(b)));
        assert!(!w.wait(Target::Stream(a)), "{schedule:?}");
        assert_eq!(w.ran, [3]);
        w.engine.gate_open(5);
        assert!(w.wait(Target::Everything));
        assert_eq!(w.ran, [3, 1, 2]);
        w.engine.submit_gated(w.t, a, job(4, &[]), 5);
        assert!(w.wait(Target::Stream(a)), "the gate stays open");
    }
}

#[test]
fn work_in_flight_on_another_thread_blocks_who_needs_it() {
    let mut w = World::new(Schedule::Eager, Mode::Off);
    let (a, b) = (w.stream(), w.stream());
    w.submit(a, 1, &[]);
    let (op, _) = w.engine.poll().expect("eager work is handed out");
    assert!(!w.wait(Target::Stream(a)));
    assert_eq!(w.engine.query_stream(w.t, a), Status::NotReady);
    w.submit(b, 2, &[]);
    assert!(w.wait(Target::Stream(b)));
    w.engine.finished(op);
    assert!(w.wait(Target::Stream(a)));
    assert_eq!(w.engine.query_stream(w.t, a), Status::Done);
}

#[test]
fn lag_runs_an_operation_when_exactly_k_more_are_queued() {
    let mut w = World::new(Schedule::Lag(3), Mode::Off);
    let streams = [w.stream(), w.stream()];
    let elsewhere = w.engine.create_context(1);
    let far = w.engine.create_stream(w.t, elsewhere, StreamKind::NonBlocking, 0);
    for i in 0..20 {
        w.submit(streams[i as usize % 2], i, &[]);
        w.poll();
        assert_eq!(w.ran.len(), (i as usize + 1).saturating_sub(3));
        w.submit(far, 100 + i, &[]);
        w.poll();
        w.ran.retain(|&work| work < 100);
    }
}

#[test]
fn a_host_that_spins_on_a_query_gets_its_answer() {
    for schedule in [Schedule::Lazy, Schedule::Lag(50)] {
        let mut w = World::new(schedule, Mode::Off);
        let (a, b) = (w.stream(), w.stream());
        let event = w.engine.create_event(w.context);
        w.submit(a, 1, &[]);
        w.submit(b, 2, &[]);
        w.engine.record(w.t, event, a);
        let mut asked = 0;
        while w.engine.query_event(w.t, event) == Status::NotReady {
            asked += 1;
            w.poll();
            assert!(asked <= 32, "hangs under {schedule:?}");
        }
        assert!(asked >= 31, "too eager under {schedule:?}");
        assert_eq!(w.ran, [1]);
    }
}

#[test]
fn a_wait_begun_is_not_prolonged_by_later_work() {
    let mut w = World::new(Schedule::Lazy, Mode::Off);
    let a = w.stream();
    w.submit(a, 1, &[]);
    let wait = w.engine.begin_wait(Target::Stream(a));
    w.submit(a, 2, &[]);
    let Step::Run(op, 1) = w.engine.step_wait(w.t, &wait) else { panic!("work 1 is needed") };
    w.engine.finished(op);
    assert!(matches!(w.engine.step_wait(w.t, &wait), Step::Finished));
    assert_eq!(w.engine.pending_ops(), 1);
}

#[test]
fn a_synchronous_call_teaches_its_thread() {
    for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::Lag(9), Schedule::Random(2)] {
        let mut w = World::new(schedule, Mode::Log);
        let (a, b) = (w.stream(), w.stream());
        w.submit(b, 1, &[access(Write, 8, 8)]);
        let op = w.submit(a, 2, &[access(Write, 0, 8)]);
        w.poll();
        assert!(w.wait(Target::Op(op)));
        assert!(!w.engine.is_pending(op));
        w.engine.host_access(w.t, &[access(Read, 0, 8)], "host");
        assert!(w.reports().is_empty(), "{schedule:?}");
        w.engine.host_access(w.t, &[access(Read, 8, 8)], "host");
        assert_eq!(w.reports().len(), 1, "the other stream was not waited for: {schedule:?}");
    }
}

#[test]
fn threads_may_be_separated_and_ordered_again() {
    let mut w = World::new(Schedule::Eager, Mode::Log);
    let other = w.engine.thread(2);
    assert_eq!(w.engine.thread(2), other);
    w.engine.host_access(other, &[access(Write, 0, 8)], "together");
    w.engine.set_threads_ordered(false);
    w.engine.host_access(w.t, &[access(Write, 0, 8)], "apart, but after");
    assert!(w.reports().is_empty());
    w.engine.host_access(other, &[access(Read, 0, 8)], "apart");
    assert_eq!(w.reports().len(), 1);
    w.engine.set_threads_ordered(true);
    w.engine.host_access(w.t, &[access(Write, 0, 8)], "together again");
    w.engine.host_access(other, &[access(Write, 0, 8)], "together again");
    assert!(w.reports().is_empty());
}

#[test]
fn virtual_time_follows_the_dependencies() {
    for schedule in [Schedule::Eager, Schedule::Lazy, Schedule::Lag(2), Schedule::Random(9)] {
        let mut w = World::new(schedule, Mode::Off);
        let (a, b) = (w.stream(), w.stream());
        let [start, mid, end] = [(); 3].map(|()| w.engine.create_event(w.context));
        w.engine.advance(1000);
        w.engine.record(w.t, start, a);
        w.submit(a, 1, &[]);
        w.submit(a, 2, &[]);
        w.engine.record(w.t, mid, a);
        w.poll();
        w.engine.advance(50);
        w.engine.wait_event(w.t, b, mid);
        w.submit(b, 3, &[]);
        w.engine.record(w.t, end, b);
        w.poll();
        assert_eq!(w.engine.now_ns(), 1050, "work does not move the host's time: {schedule:?}");
        assert!(w.wait(Target::Event(end)));
        let times = [start, mid, end].map(|e| w.engine.event_time_ns(e));
        assert_eq!(times, [Some(1000), Some(1200), Some(1300)], "{schedule:?}");
        assert_eq!(w.engine.now_ns(), 1300);
        w.engine.record(w.t, start, b);
        w.engine.advance(7);
        assert!(w.wait(Target::Everything));
        assert_eq!((w.engine.event_time_ns(start), w.engine.now_ns()), (Some(1300), 1307));
    }
}

#[test]
fn a_gated_operation_starts_when_the_gate_opens() {
    let mut w = World::new(Schedule::Eager, Mode::Off);
    let a = w.stream();
    w.engine.submit_gated(w.t, a, job(1, &[]), 1);
    w.engine.advance(500);
    w.engine.gate_open(1);
    assert!(w.wait(Target::Stream(a)));
    assert_eq!(w.engine.now_ns(), 600);
}

#[test]
fn a_destroyed_stream_drains_and_context_waits_cover_it() {
    let mut w = World::new(Schedule::Lazy, Mode::Off);
    let a = w.stream();
    w.submit(a, 1, &[]);
    w.engine.destroy_stream(a);
    assert_eq!(w.engine.pending_streams(), [a]);
    assert!(w.wait(Target::Context(w.context)));
    assert_eq!((&w.ran[..], w.engine.now_ns()), (&[1][..], 100));
    assert!(w.engine.pending_streams().is_empty());
    let b = w.stream();
    w.submit(b, 2, &[]);
    w.engine.destroy_context(w.context);
    assert!(w.wait(Target::Everything));
    assert_eq!(w.ran, [1, 2]);
}

#[test]
fn the_schedule_may_change_with_work_pending() {
    let all = [Schedule::Eager, Schedule::Lazy, Schedule::Lag(2), Schedule::Random(3)];
    for (first, second) in all.iter().flat_map(|&a| all.map(|b| (a, b))) {
        let mut w = World::new(first, Mode::Off);
        let (a, b) = (w.stream(), w.stream());
        w.engine.submit_gated(w.t, a, job(0, &[]), 1);
        for i in 1..10 {
            w.submit([a, b][i as usize % 2], i, &[]);
        }
        w.poll();
        w.engine.set_schedule(second);
        w.poll();
        w.engine.gate_open(1);
        w.poll();
        match second {
            Schedule::Eager => assert_eq!(w.engine.pending_ops(), 0, "{first:?}"),
            Schedule::Lag(k) => assert!(w.engine.pending_ops() as u64 <= k, "{first:?}"),
            Schedule::Lazy | Schedule::Random(_) => {}
        }
        assert!(w.wait(Target::Everything));
        w.ran.sort_unstable();
        assert_eq!(w.ran, (0..10).collect::<Vec<_>>(), "{first:?} {second:?}");
    }
}

#[test]
fn ready_work_of_higher_priority_goes_first() {
    let mut w = World::new(Schedule::Lazy, Mode::Off);
    let low = w.stream();
    let high = w.engine.create_stream(w.t, w.context, StreamKind::NonBlocking, -1);
    w.submit(low, 1, &[]);
    w.submit(low, 2, &[]);
    w.submit(high, 3, &[]);
    assert!(w.wait(Target::Everything));
    assert_eq!(w.ran, [3, 1, 2]);
}

#[test]
fn streams_made_and_destroyed_do_not_pile_up_clocks() {
    let mut w = World::new(Schedule::Eager, Mode::Log);
    for i in 0..1000 {
        let a = w.stream();
        w.submit(a, i, &[access(Write, 0, 8)]);
        w.poll();
        assert!(w.wait(Target::Stream(a)));
        w.engine.destroy_stream(a);
    }
    assert!(w.reports().is_empty());
    assert!(w.engine.checker().clock_slots() <= 3, "{}", w.engine.checker().clock_slots());
}

#[test]
fn finished_work_and_overwritten_uses_are_forgotten() {
    for schedule in [Schedule::Eager, Schedule::Lag(100), Schedule::Random(1)] {
        let mut w = World::new(schedule, Mode::Log);
        let streams = [w.stream(), w.stream()];
        for i in 0..100_000 {
            let stream = streams[i as usize % 2];
            let uses = [access(Write, u64::from(i % 2) * 512 + u64::from(i % 13) * 8, 8)];
            w.submit(stream, i, &uses);
            w.poll();
        }
        let pending = w.engine.pending_ops();
        assert!(pending <= 1000, "{pending} pending under {schedule:?}");
        let (records, spans) = w.engine.checker().remembered();
        assert!(records <= 26 && spans <= 26, "{records} records, {spans} spans");
        assert!(w.reports().is_empty());
        assert_eq!(w.engine.checker().accesses_checked(), 100_000);
    }
}

#[test]
fn streams_without_work_take_no_clock() {
    let mut w = World::new(Schedule::Eager, Mode::Log);
    let event = w.engine.create_event(w.context);
    let a = w.stream();
    w.submit(a, 1, &[]);
    w.engine.record(w.t, event, a);
    for i in 0..1000 {
        let b = w.stream();
        // Asking what its work would come after is no work.
        assert_eq!(w.engine.comes_after(w.t, b, event), i >= 500);
        w.engine.destroy_stream(b);
        if i == 499 {
            w.poll();
            assert!(w.wait(Target::Event(event)));
        }
    }
    assert!(w.engine.checker().clock_slots() <= 3, "{}", w.engine.checker().clock_slots());
}

/// Streams with work, destroyed without a wait.
fn abandon(w: &mut World, streams: u32) {
    for i in 0..streams {
        let a = w.stream();
        w.submit(a, i, &[access(Write, u64::from(i) * 8, 8)]);
        w.poll();
        w.engine.destroy_stream(a);
    }
}

#[test]
fn the_clocks_of_abandoned_streams_come_back_when_the_context_was_waited_for() {
    let mut w = World::new(Schedule::Eager, Mode::Log);
    let old = w.stream();
    w.submit(old, 0, &[access(Write, 1 << 20, 8)]);
    let event = w.engine.create_event(w.context);
    w.engine.record(w.t, event, old);
    for _ in 0..3 {
        abandon(&mut w, 500);
        // A stream that lives on in a high slot.
        let high = w.stream();
        w.submit(high, 0, &[access(Write, 1 << 21, 8)]);
        w.poll();
        assert!(w.engine.checker().clock_slots() > 500);
        assert!(w.wait(Target::Context(w.context)));
        assert!(w.engine.checker().clock_slots() < 10, "{}", w.engine.checker().clock_slots());
        // What the abandoned ones did is known to everybody, and what is done now is not.
        let next = w.stream();
        w.submit(next, 0, &[access(Write, 0, 500 * 8), access(Write, 1 << 20, 8)]);
        w.poll();
        assert!(w.reports().is_empty());
        let third = w.stream();
        w.submit(third, 0, &[access(Read, 0, 8)]);
        assert_eq!(w.reports().len(), 1);
        w.submit(high, 0, &[access(Read, 1 << 21, 8), access(Read, 1 << 20, 8)]);
        assert_eq!(w.reports().len(), 1, "the high stream does not come after the write of `next`");
        assert!(w.wait(Target::Everything));
        w.engine.destroy_stream(high);
        w.engine.destroy_stream(next);
        w.engine.destroy_stream(third);
    }
}

#[test]
fn clocks_of_the_dead_stay_until_all_threads_know_their_end() {
    let mut w = World::new(Schedule::Eager, Mode::Log);
    w.engine.set_threads_ordered(false);
    let other = w.engine.thread(2);
    w.engine.signal(other, 1);
    abandon(&mut w, 500);
    assert!(w.wait(Target::Context(w.context)));
    assert!(w.engine.checker().clock_slots() > 500);
    let a = w.stream();
    w.engine.submit(other, a, job(0, &[access(Read, 0, 500 * 8)]));
    assert!(w.reports().is_empty(), "made by the thread that knows");
    w.engine.host_access(other, &[access(Read, 0, 500 * 8)], "by a thread that does not know");
    assert_eq!(w.reports().len(), 500);
}

#[test]
fn taking_an_object_away_forgets_its_parts() {
    let mut w = World::new(Schedule::Eager, Mode::Log);
    let a = w.stream();
    for i in 0..10_000 {
        w.submit(a, i, &[access(Write, u64::from(i) * 64, 8), access(Read, 32, 8)]);
        w.poll();
    }
    assert_eq!(w.engine.checker().remembered(), (10_000, 10_001));
    assert!(w.wait(Target::Stream(a)));
    w.engine.host_access(w.t, &[access(Destroy, 0, 1 << 20)], "free");
    assert_eq!(w.engine.checker().remembered(), (1, 1));
    w.engine.checker().object_gone(7);
    assert_eq!(w.engine.checker().remembered(), (0, 0));
    assert!(w.reports().is_empty());
}

#[test]
fn off_keeps_nothing_and_on_starts_anew() {
    let mut w = World::new(Schedule::Eager, Mode::Off);
    let (a, b) = (w.stream(), w.stream());
    let event = w.engine.create_event(w.context);
    w.submit(a, 1, &[access(Write, 0, 8)]);
    w.engine.record(w.t, event, a);
    assert_eq!(w.engine.checker().clock_slots(), 0);
    assert_eq!(w.engine.checker().remembered(), (0, 0));
    w.engine.checker().set_mode(Mode::Log);
    w.engine.wait_event(w.t, b, event);
    w.submit(b, 2, &[access(Write, 0, 8)]);
    assert!(w.reports().is_empty(), "what happened while off is not known");
    w.submit(a, 3, &[access(Write, 0, 8)]);
    assert_eq!(w.reports().len(), 1);
    w.engine.checker().set_mode(Mode::Off);
    w.submit(b, 4, &[access(Write, 0, 8)]);
    w.engine.checker().set_mode(Mode::Log);
    w.submit(a, 5, &[access(Write, 0, 8)]);
    assert!(w.reports().is_empty());
    assert_eq!(w.engine.checker().accesses_checked(), 3);
}

#[test]
fn reads_of_unwritten_bytes_are_reported_when_asked_for() {
    let mut w = World::new(Schedule::Eager, Mode::Log);
    let a = w.stream();
    w.engine.checker().object_created(6, 64, "unasked");
    w.engine.checker().set_report_uninitialised(true);
    w.engine.checker().object_created(7, 64, "cuMemAlloc(64)");
    w.submit(a, 1, &[Access { object: 6, ..access(Read, 0, 8) }]);
    w.submit(a, 2, &[access(Write, 0, 16), access(Read, 8, 8)]);
    assert!(w.reports().is_empty());
    w.submit(a, 3, &[access(Read, 8, 16), access(Read, 40, 8)]);
    let reports = w.reports();
    let [report] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!(report.kind, ReportKind::Uninitialised);
    assert_eq!((report.offset, report.bytes, report.more), (16, 8, 1));
    let text = report.to_string();
    assert!(text.contains("cuMemAlloc(64)") && text.contains("work3"), "{text}");
}

#[test]
fn a_use_beyond_the_end_of_an_object_is_reported() {
    let mut w = World::new(Schedule::Eager, Mode::Log);
    let a = w.stream();
    w.engine.checker().object_created(7, 64, "page");
    w.submit(a, 1, &[access(Write, 56, 8)]);
    w.submit(a, 2, &[access(Write, 60, 8)]);
    let kinds: Vec<_> = w.reports().iter().map(|r| (r.kind, r.offset, r.bytes)).collect();
    assert_eq!(kinds, [(ReportKind::OutOfBounds, 60, 8)]);
}

#[test]
fn the_callers_reports_join_the_list_and_a_full_list_counts() {
    let mut w = World::new(Schedule::Eager, Mode::Log);
    let (a, b) = (w.stream(), w.stream());
    let own = Report { kind: ReportKind::Unmapped, second: "cuMemcpy".into(), ..Report::default() };
    w.engine.checker().report(own.clone());
    assert_eq!(w.reports(), [own]);
    for i in 0..10_100 {
        let uses = [access(Write, 0, 4), access(Write, 8, 4)];
        w.submit([a, b][i as usize % 2], i, &uses);
        w.poll();
    }
    assert_eq!(w.reports().len(), 10_000);
    assert_eq!(w.engine.checker().overflowed(), 99, "10,099 pairs");
    assert_eq!(w.engine.checker().suppressed(), 10_099 + 99, "two ranges each, and the overflow");
    let job = Job { unknown_accesses: true, ..job(1, &[]) };
    w.engine.submit(w.t, a, job);
    assert_eq!(w.engine.checker().unknown_launches(), 1);
}

#[test]
fn abort_prints_the_finding_and_aborts() {
    const CHILD: &str = "SIMCUDA_TEST_ABORT";
    if std::env::var_os(CHILD).is_some() {
        let mut w = World::new(Schedule::Eager, Mode::Abort);
        let (a, b) = (w.stream(), w.stream());
        w.submit(a, 1, &[access(Write, 0, 8)]);
        w.submit(b, 2, &[access(Write, 0, 8)]);
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().expect("the test itself"))
        .args(["--exact", "engine::abort_prints_the_finding_and_aborts", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("the test starts itself");
    let text = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success() && child.status.code().is_none(), "{:?}", child.status);
    assert!(text.contains("work1") && text.contains("work2"), "{text}");
}
