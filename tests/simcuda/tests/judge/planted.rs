//! Programs with one mistake each, and the same programs mended.

use crate::program::Act::{
    self, Await, Query, Record, RecordContext, Recycle, Remap, Signal, Sync,
};
use crate::program::Act::{Host, Wait, WaitContext, Work};
use crate::program::{Of, Program, Step, Use};
use simcuda::checker::AccessKind::{self, Destroy, Read, Write};
use simcuda::checker::ReportKind::{self, DestroyUnderWork, Race};
use simcuda::engine::StreamKind::{Blocking, Legacy, NonBlocking, PerThread};
use simcuda::engine::{Schedule, StreamKind};

/// A mistake: the steps of the two sides, the kind, and the first range found.
pub struct Case {
    pub name: &'static str,
    pub wrong: Program,
    pub sides: (usize, usize),
    pub kind: ReportKind,
    pub range: (u64, u64),
    pub mended: Program,
    pub schedule: Schedule,
}

const FREE: [StreamKind; 3] = [NonBlocking; 3];
const BOTH: [StreamKind; 3] = [Legacy, Blocking, NonBlocking];

fn program(kinds: [StreamKind; 3], steps: Vec<(usize, Act)>) -> Program {
    let steps = steps.into_iter().map(|(thread, act)| Step { thread, act }).collect();
    Program { ordered: true, kinds: kinds.to_vec(), contexts: vec![0; 3], steps }
}

impl Program {
    /// The host threads have clocks of their own.
    fn separate(mut self) -> Self {
        self.ordered = false;
        self
    }

    fn contexts(mut self, contexts: [usize; 3]) -> Self {
        self.contexts = contexts.to_vec();
        self
    }
}

fn at(object: usize, kind: AccessKind, from: u64, to: u64) -> Use {
    Use { object, from, to, kind }
}

/// Work of thread 0 on bytes of object 0.
fn work(stream: usize, kind: AccessKind, from: u64, to: u64) -> (usize, Act) {
    (0, Work { stream, uses: vec![at(0, kind, from, to)] })
}

fn write(stream: usize) -> (usize, Act) {
    work(stream, Write, 0, 6)
}

fn read(stream: usize) -> (usize, Act) {
    work(stream, Read, 0, 6)
}

fn host(thread: usize, kind: AccessKind) -> (usize, Act) {
    (thread, Host { uses: vec![at(0, kind, 0, 6)] })
}

fn record(event: usize, stream: usize) -> (usize, Act) {
    (0, Record { event, stream })
}

fn wait(stream: usize, event: usize) -> (usize, Act) {
    (0, Wait { stream, event })
}

fn sync(of: Of) -> (usize, Act) {
    (0, Sync { of })
}

fn free() -> (usize, Act) {
    (0, Remap { object: 0 })
}

fn by(thread: usize, (_, act): (usize, Act)) -> (usize, Act) {
    (thread, act)
}

/// All cases, one a kind of mistake.
pub fn cases() -> Vec<Case> {
    [between_streams(), with_events(), legacy_rules(), by_the_host(), threads(), bytes()]
        .into_iter()
        .flatten()
        .collect()
}

fn case(name: &'static str, wrong: Program, sides: (usize, usize), mended: Program) -> Case {
    let schedule = Schedule::Eager;
    Case { name, wrong, sides, kind: Race, range: (0, 6), mended, schedule }
}

fn destroys(name: &'static str, wrong: Program, sides: (usize, usize), mended: Program) -> Case {
    Case { kind: DestroyUnderWork, ..case(name, wrong, sides, mended) }
}

fn between_streams() -> Vec<Case> {
    let p = |steps| program(FREE, steps);
    vec![
        case(
            "two streams write",
            p(vec![write(1), write(2)]),
            (0, 1),
            p(vec![write(1), record(0, 1), wait(2, 0), write(2)]),
        ),
        case(
            "read before the write is done",
            p(vec![write(1), read(2)]),
            (0, 1),
            p(vec![write(1), record(0, 1), wait(2, 0), read(2)]),
        ),
        case(
            "overwritten while read",
            p(vec![read(1), write(2)]),
            (0, 1),
            p(vec![read(1), record(0, 1), wait(2, 0), write(2)]),
        ),
        case(
            "the writer waits for one of two readers",
            p(vec![read(0), read(1), record(0, 0), wait(2, 0), write(2)]),
            (1, 4),
            p(vec![read(0), read(1), record(0, 0), record(1, 1), wait(2, 0), wait(2, 1), write(2)]),
        ),
        case(
            "a recycled stream is another stream",
            p(vec![write(1), (0, Recycle { stream: 1 }), write(1)]),
            (0, 2),
            p(vec![write(1), sync(Of::Stream(1)), (0, Recycle { stream: 1 }), write(1)]),
        ),
        case(
            "a recycled stream is another stream: the event of the old one",
            p(vec![write(1), (0, Recycle { stream: 1 }), record(0, 1), wait(2, 0), write(2)]),
            (0, 4),
            p(vec![write(1), record(0, 1), (0, Recycle { stream: 1 }), wait(2, 0), write(2)]),
        ),
        case(
            "only the second of two objects clashes",
            p(vec![
                (0, Work { stream: 1, uses: vec![at(0, Read, 0, 6), at(1, Write, 0, 6)] }),
                (0, Work { stream: 2, uses: vec![at(0, Read, 0, 6), at(1, Read, 0, 6)] }),
            ]),
            (0, 1),
            p(vec![
                (0, Work { stream: 1, uses: vec![at(0, Read, 0, 6), at(1, Write, 0, 6)] }),
                (0, Work { stream: 2, uses: vec![at(0, Read, 0, 6)] }),
            ]),
        ),
    ]
}

fn with_events() -> Vec<Case> {
    let p = |steps| program(FREE, steps);
    let context = (0, RecordContext { event: 0, context: 0 });
    let context_waits = (0, WaitContext { context: 0, event: 0 });
    vec![
        case(
            "event recorded before the write",
            p(vec![record(0, 1), write(1), wait(2, 0), write(2)]),
            (1, 3),
            p(vec![write(1), record(0, 1), wait(2, 0), write(2)]),
        ),
        case(
            "event recorded again elsewhere",
            p(vec![write(1), record(0, 1), record(0, 0), wait(2, 0), write(2)]),
            (0, 4),
            p(vec![write(1), record(0, 0), record(0, 1), wait(2, 0), write(2)]),
        ),
        case(
            "event recorded again after the wait",
            p(vec![record(0, 1), wait(2, 0), write(1), record(0, 1), write(2)]),
            (2, 4),
            p(vec![record(0, 1), write(1), record(0, 1), wait(2, 0), write(2)]),
        ),
        case(
            "event never recorded when waited for",
            p(vec![write(1), wait(2, 0), record(0, 1), write(2)]),
            (0, 3),
            p(vec![write(1), record(0, 1), wait(2, 0), write(2)]),
        ),
        case(
            "another event",
            p(vec![write(1), record(0, 1), wait(2, 1), write(2)]),
            (0, 3),
            p(vec![write(1), record(1, 1), wait(2, 1), write(2)]),
        ),
        case(
            "the wrong stream waits",
            p(vec![write(1), record(0, 1), wait(0, 0), write(2)]),
            (0, 3),
            p(vec![write(1), record(0, 1), wait(2, 0), write(2)]),
        ),
        case(
            "recorded on the wrong stream",
            p(vec![write(1), record(0, 0), wait(2, 0), write(2)]),
            (0, 3),
            p(vec![write(1), record(0, 1), wait(2, 0), write(2)]),
        ),
        case(
            "waited for after the work",
            p(vec![write(1), record(0, 1), write(2), wait(2, 0)]),
            (0, 2),
            p(vec![write(1), record(0, 1), wait(2, 0), write(2)]),
        ),
        case(
            "work after the record",
            p(vec![read(1), record(0, 1), write(1), wait(2, 0), read(2)]),
            (2, 4),
            p(vec![read(1), write(1), record(0, 1), wait(2, 0), read(2)]),
        ),
        case(
            "a chain of events with a link recorded too early",
            p(vec![write(0), record(0, 0), record(1, 1), wait(1, 0), wait(2, 1), write(2)]),
            (0, 5),
            p(vec![write(0), record(0, 0), wait(1, 0), record(1, 1), wait(2, 1), write(2)]),
        ),
        case(
            "context recorded too early",
            p(vec![write(0), context.clone(), read(0), wait(2, 0), write(2)]),
            (2, 4),
            p(vec![write(0), read(0), context.clone(), wait(2, 0), write(2)]),
        ),
        case(
            "another context recorded",
            p(vec![write(1), context.clone(), wait(2, 0), write(2)]).contexts([0, 1, 0]),
            (0, 3),
            p(vec![write(1), (0, RecordContext { event: 0, context: 1 }), wait(2, 0), write(2)])
                .contexts([0, 1, 0]),
        ),
        case(
            "context waits too late",
            p(vec![write(1), record(0, 1), write(2), context_waits.clone()]),
            (0, 2),
            p(vec![write(1), record(0, 1), context_waits.clone(), write(2)]),
        ),
        case(
            "another context waits",
            p(vec![write(1), record(0, 1), context_waits.clone(), write(2)]).contexts([0, 0, 1]),
            (0, 3),
            p(vec![write(1), record(0, 1), context_waits.clone(), write(2)]),
        ),
        case(
            "the context waits, but for an earlier record",
            p(vec![record(0, 1), write(1), context_waits.clone(), write(2)]),
            (1, 3),
            p(vec![write(1), record(0, 1), context_waits, (0, Recycle { stream: 2 }), write(2)]),
        ),
    ]
}

fn legacy_rules() -> Vec<Case> {
    vec![
        case(
            "legacy stream, then a non-blocking one",
            program(BOTH, vec![write(0), write(2)]),
            (0, 1),
            program(BOTH, vec![write(0), write(1)]),
        ),
        case(
            "a non-blocking stream, then the legacy one",
            program(BOTH, vec![write(2), read(0)]),
            (0, 1),
            program(BOTH, vec![write(1), read(0)]),
        ),
        case(
            "legacy work between does not order non-blocking streams",
            program([Legacy, NonBlocking, Blocking], vec![write(1), work(0, Read, 0, 0), write(2)]),
            (0, 2),
            program([Legacy, Blocking, Blocking], vec![write(1), work(0, Read, 0, 0), write(2)]),
        ),
        case(
            "two per-thread default streams",
            program([Legacy, PerThread, PerThread], vec![write(1), by(1, write(2))]),
            (0, 1),
            program(
                [Legacy, PerThread, PerThread],
                vec![write(1), by(1, record(0, 0)), by(1, write(2))],
            ),
        ),
        case(
            "a per-thread default stream and a blocking one",
            program([Legacy, PerThread, Blocking], vec![write(1), write(2)]),
            (0, 1),
            program([Legacy, PerThread, Blocking], vec![write(1), write(0), write(2)]),
        ),
        case(
            "the legacy stream of another context",
            program(BOTH, vec![write(0), write(1)]).contexts([0, 1, 0]),
            (0, 1),
            program(BOTH, vec![write(0), write(1)]).contexts([1, 1, 0]),
        ),
        case(
            "a destroyed non-blocking stream, then the legacy one",
            program(BOTH, vec![write(2), (0, Recycle { stream: 2 }), write(0)]),
            (0, 2),
            program(BOTH, vec![write(1), (0, Recycle { stream: 1 }), write(0)]),
        ),
    ]
}

fn by_the_host() -> Vec<Case> {
    let p = |steps| program(FREE, steps);
    vec![
        case(
            "host reads without waiting",
            p(vec![write(1), host(0, Read)]),
            (0, 1),
            p(vec![write(1), sync(Of::Stream(1)), host(0, Read)]),
        ),
        case(
            "host writes what the device still reads",
            p(vec![read(1), host(0, Write)]),
            (0, 1),
            p(vec![read(1), record(0, 1), sync(Of::Event(0)), host(0, Write)]),
        ),
        case(
            "host waits for another stream",
            p(vec![write(1), sync(Of::Stream(2)), host(0, Read)]),
            (0, 2),
            p(vec![write(1), sync(Of::Everything), host(0, Read)]),
        ),
        case(
            "host waits for an event before the work",
            p(vec![record(0, 1), write(1), sync(Of::Event(0)), host(0, Read)]),
            (1, 3),
            p(vec![write(1), record(0, 1), sync(Of::Event(0)), host(0, Read)]),
        ),
        case(
            "host waits for another context",
            p(vec![write(1), sync(Of::Context(1)), host(0, Read)]),
            (0, 2),
            p(vec![write(1), sync(Of::Context(0)), host(0, Read)]),
        ),
        Case {
            schedule: Schedule::Lazy,
            ..case(
                "a query answered not ready is no wait",
                p(vec![write(1), (0, Query { of: Of::Stream(1) }), host(0, Read)]),
                (0, 2),
                p(vec![
                    write(1),
                    sync(Of::Stream(1)),
                    (0, Query { of: Of::Stream(1) }),
                    host(0, Read),
                ]),
            )
        },
        destroys(
            "freed under work",
            p(vec![write(1), free()]),
            (0, 1),
            p(vec![write(1), sync(Of::Context(0)), free()]),
        ),
        destroys(
            "freed while read",
            p(vec![write(1), sync(Of::Stream(1)), read(2), free()]),
            (2, 3),
            p(vec![write(1), sync(Of::Stream(1)), read(2), sync(Of::Stream(2)), free()]),
        ),
        destroys(
            "freed under work of a destroyed stream",
            p(vec![write(1), (0, Recycle { stream: 1 }), sync(Of::Stream(1)), free()]),
            (0, 3),
            p(vec![write(1), (0, Recycle { stream: 1 }), sync(Of::Context(0)), free()]),
        ),
    ]
}

fn threads() -> Vec<Case> {
    let p = |steps| program(FREE, steps).separate();
    let signal = |thread, tag| (thread, Signal { tag });
    let awaits = |thread, tag| (thread, Await { tag });
    vec![
        case(
            "two host threads write",
            p(vec![host(0, Write), host(1, Write)]),
            (0, 1),
            p(vec![host(0, Write), signal(0, 0), awaits(1, 0), host(1, Write)]),
        ),
        case(
            "signalled before the write",
            p(vec![signal(0, 0), host(0, Write), awaits(1, 0), host(1, Read)]),
            (1, 3),
            p(vec![host(0, Write), signal(0, 0), awaits(1, 0), host(1, Read)]),
        ),
        case(
            "another signal",
            p(vec![host(0, Write), signal(0, 0), awaits(1, 1), host(1, Read)]),
            (0, 3),
            p(vec![host(0, Write), signal(0, 1), awaits(1, 1), host(1, Read)]),
        ),
        case(
            "another thread waited",
            p(vec![write(1), sync(Of::Stream(1)), host(1, Read)]),
            (0, 2),
            p(vec![write(1), sync(Of::Stream(1)), signal(0, 0), awaits(1, 0), host(1, Read)]),
        ),
        case(
            "submitted by a thread that knows nothing of the host's write",
            p(vec![host(0, Write), by(1, read(1))]),
            (0, 1),
            p(vec![host(0, Write), read(1)]),
        ),
        destroys(
            "used after another thread freed it",
            p(vec![(0, Host { uses: vec![at(0, Destroy, 0, 6)] }), by(1, write(1))]),
            (0, 1),
            p(vec![
                (0, Host { uses: vec![at(0, Destroy, 0, 6)] }),
                signal(0, 0),
                awaits(1, 0),
                by(1, write(1)),
            ]),
        ),
        destroys(
            "freed by a thread that did not wait",
            p(vec![write(1), sync(Of::Stream(1)), by(1, free())]),
            (0, 2),
            p(vec![write(1), sync(Of::Stream(1)), signal(0, 0), awaits(1, 0), by(1, free())]),
        ),
    ]
}

fn bytes() -> Vec<Case> {
    let p = |steps| program(FREE, steps);
    let words = |stream, kind| {
        let uses = vec![at(0, kind, 0, 1), at(0, kind, 2, 3), at(0, kind, 4, 5)];
        (0, Work { stream, uses })
    };
    vec![
        Case {
            range: (2, 1),
            ..case(
                "one byte overlaps",
                p(vec![work(1, Write, 0, 3), work(2, Write, 2, 6)]),
                (0, 1),
                p(vec![work(1, Write, 0, 3), work(2, Write, 3, 6)]),
            )
        },
        Case {
            range: (1, 1),
            ..case(
                "only the overwritten front clashes",
                p(vec![write(1), sync(Of::Stream(1)), work(0, Write, 0, 2), work(2, Read, 1, 6)]),
                (2, 3),
                p(vec![write(1), sync(Of::Stream(1)), work(0, Write, 0, 2), work(2, Read, 2, 6)]),
            )
        },
        Case {
            range: (4, 1),
            ..case(
                "the end of a range whose front was overwritten",
                p(vec![
                    write(1),
                    record(0, 1),
                    wait(0, 0),
                    work(0, Write, 0, 3),
                    work(2, Read, 4, 5),
                ]),
                (0, 4),
                p(vec![
                    write(1),
                    record(0, 1),
                    wait(0, 0),
                    work(0, Write, 0, 3),
                    wait(2, 0),
                    work(2, Read, 4, 5),
                ]),
            )
        },
        Case {
            range: (0, 1),
            ..case(
                "several words of the same two operations",
                p(vec![words(1, Write), words(2, Write)]),
                (0, 1),
                p(vec![words(1, Write), record(0, 1), wait(2, 0), words(2, Write)]),
            )
        },
        Case {
            range: (3, 1),
            ..case(
                "a byte read in the middle of a range",
                p(vec![write(1), sync(Of::Stream(1)), work(1, Read, 3, 4), write(2)]),
                (2, 3),
                p(vec![write(1), work(1, Read, 3, 4), sync(Of::Stream(1)), write(2)]),
            )
        },
    ]
}
