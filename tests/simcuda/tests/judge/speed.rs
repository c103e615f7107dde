//! How fast the engine is; prints, and decides nothing. Run with `--release -- --ignored --nocapture`.

use simcuda::checker::{Access, AccessKind, Mode};
use simcuda::engine::{Engine, Job, Schedule, Step, StreamKind, Target};
use std::hint::black_box;
use std::time::Instant;

const OPS: u64 = 1_000_000;

fn ns_per_op(schedule: Schedule, mode: Mode, accesses: u64, stride: u64) -> f64 {
    let mut engine: Engine<u64> = Engine::new();
    engine.set_schedule(schedule);
    engine.checker().set_mode(mode);
    let (t, context) = (engine.thread(1), engine.create_context(0));
    let streams = [StreamKind::Legacy, StreamKind::Blocking, StreamKind::NonBlocking]
        .map(|kind| engine.create_stream(t, context, kind, 0));
    let began = Instant::now();
    for i in 0..OPS {
        let stream = streams[i as usize % 2];
        let block = (i * 7919) % 5000;
        let access = |k| Access {
            object: block % 50,
            offset: block / 50 * 65536 + k * stride,
            bytes: 8,
            kind: if i % 3 == 0 { AccessKind::Write } else { AccessKind::Read },
        };
        let accesses = (0..accesses).map(access).collect();
        let job = Job {
            work: i,
            accesses,
            duration_ns: 5,
            label: String::new(),
            unknown_accesses: false,
        };
        engine.submit(t, stream, job);
        while let Some((op, work)) = engine.poll() {
            black_box(work);
            engine.finished(op);
        }
    }
    while let Step::Run(op, _) = engine.step(t, Target::Everything) {
        engine.finished(op);
    }
    black_box(engine.checker().reports().len());
    began.elapsed().as_nanos() as f64 / OPS as f64
}

#[test]
#[ignore = "a measurement, not a test"]
fn speed() {
    for schedule in [Schedule::Eager, Schedule::Lag(1000), Schedule::Random(1), Schedule::Lazy] {
        println!("{schedule:?}: off {:.0} ns", ns_per_op(schedule, Mode::Off, 0, 0));
    }
    for accesses in [1, 10, 100] {
        let ns = ns_per_op(Schedule::Eager, Mode::Log, accesses, 512);
        println!("eager, checker on, {accesses} accesses: {ns:.0} ns");
    }
}
