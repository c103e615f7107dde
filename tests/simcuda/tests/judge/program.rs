//! A program: what a small client of the driver does, call by call. And random ones.

use simcuda::checker::AccessKind::{self, Destroy, Read, Write};
use simcuda::engine::StreamKind::{self, Blocking, Legacy, NonBlocking, PerThread};

/// Bytes of an object.
pub const BYTES: u64 = 6;
/// Steps of a random program at most.
pub const LONGEST: usize = 12;

/// A use of bytes `from..to` of the object in variable `object`.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    pub object: usize,
    pub from: u64,
    pub to: u64,
    pub kind: AccessKind,
}

/// What a host thread waits for or asks about.
#[derive(Clone, Copy, Debug)]
pub enum Of {
    Stream(usize),
    Event(usize),
    Context(usize),
    Everything,
}

/// What a host thread does. Streams, events, contexts and objects are variables.
#[derive(Clone, Debug)]
pub enum Act {
    /// Work on a stream.
    Work {
        stream: usize,
        uses: Vec<Use>,
    },
    /// The host itself uses memory.
    Host {
        uses: Vec<Use>,
    },
    /// The object is taken away by the host and a new one takes its place in the variable.
    Remap {
        object: usize,
    },
    Record {
        event: usize,
        stream: usize,
    },
    RecordContext {
        event: usize,
        context: usize,
    },
    Wait {
        stream: usize,
        event: usize,
    },
    WaitContext {
        context: usize,
        event: usize,
    },
    Sync {
        of: Of,
    },
    Query {
        of: Of,
    },
    /// The stream is destroyed and a new one of its kind takes its place in the variable.
    Recycle {
        stream: usize,
    },
    Signal {
        tag: u64,
    },
    Await {
        tag: u64,
    },
}

/// A call by a thread.
#[derive(Clone, Debug)]
pub struct Step {
    pub thread: usize,
    pub act: Act,
}

/// A whole program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Do all host threads share one order?
    pub ordered: bool,
    pub kinds: Vec<StreamKind>,
    /// The context of each stream, 0 or 1.
    pub contexts: Vec<usize>,
    pub steps: Vec<Step>,
}

/// A seeded sequence of numbers (xorshift*), not the engine's.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize) % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// A random program of 2 to [`LONGEST`] steps.
pub fn random(dice: &mut Dice) -> Program {
    let others = [Blocking, NonBlocking, PerThread];
    let first = if dice.below(3) > 0 { Legacy } else { dice.pick(&others) };
    let kinds = vec![first, dice.pick(&others), dice.pick(&others)];
    let last = usize::from(dice.below(5) == 0);
    let mut program =
        Program { ordered: dice.below(3) == 0, kinds, contexts: vec![0, 0, last], steps: vec![] };
    for _ in 0..2 + dice.below(LONGEST - 1) {
        let step = Step { thread: dice.below(2), act: act(dice, &program) };
        program.steps.push(step);
    }
    program
}

fn act(dice: &mut Dice, program: &Program) -> Act {
    let (stream, event) = (dice.below(3), dice.below(2));
    let context = program.contexts[dice.below(3)];
    match dice.below(24) {
        0..=7 => Act::Work { stream, uses: uses(dice, false) },
        8..=10 => Act::Host { uses: uses(dice, true) },
        11 => Act::Remap { object: dice.below(2) },
        12 | 13 => Act::Record { event, stream },
        14 => Act::RecordContext { event, context },
        15 | 16 => Act::Wait { stream, event },
        17 => Act::WaitContext { context, event },
        18 => Act::Sync { of: of(dice, context) },
        19 => Act::Query { of: of(dice, context) },
        20 => match program.kinds[stream] {
            Legacy => Act::Sync { of: Of::Event(event) },
            _ => Act::Recycle { stream },
        },
        21 => Act::Signal { tag: dice.below(2) as u64 },
        22 => Act::Await { tag: dice.below(2) as u64 },
        _ => Act::Sync { of: Of::Stream(stream) },
    }
}

fn of(dice: &mut Dice, context: usize) -> Of {
    match dice.below(8) {
        0..=2 => Of::Stream(dice.below(3)),
        3..=5 => Of::Event(dice.below(2)),
        6 => Of::Context(context),
        _ => Of::Everything,
    }
}

fn uses(dice: &mut Dice, by_host: bool) -> Vec<Use> {
    let mut one = |_| {
        let (a, b) = (dice.below(BYTES as usize) as u64, dice.below(BYTES as usize) as u64);
        let kind = match dice.below(5) {
            0 | 1 => Read,
            4 if by_host => Destroy,
            _ => Write,
        };
        Use { object: dice.below(2), from: a.min(b), to: a.max(b) + 1, kind }
    };
    let mut uses: Vec<Use> = (0..3).map(&mut one).collect();
    uses.truncate(1 + dice.below(3));
    uses
}
