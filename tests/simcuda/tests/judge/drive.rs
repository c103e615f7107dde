//! Runs a program on the engine and says what the checker and the scheduler made of it.

use crate::program::{Act, BYTES, Of, Program, Use};
use simcuda::checker::{Access, AccessKind, Flaw, Mode, Report, ReportKind};
use simcuda::engine::{
    ContextKey, Engine, EventKey, Job, OpKey, Schedule, Status, Step, StreamKey, Target, ThreadKey,
};
use std::collections::HashMap;

/// A finding: step of the first side, step of the second, kind. Steps that are none are `usize::MAX`.
pub type Finding = (usize, usize, ReportKind);

/// What happened.
#[derive(Debug)]
pub struct Outcome {
    /// The reports in order, by steps of the program.
    pub findings: Vec<Finding>,
    pub reports: Vec<Report>,
    /// For each step that is a query: was it answered Done?
    pub answers: Vec<bool>,
    /// Steps whose work ran, in the order in which it ran.
    pub ran: Vec<usize>,
    /// For each step: how many works had run when it was over.
    pub ran_by: Vec<usize>,
    /// For each step: how many operations were pending when it was over.
    pub pending_by: Vec<usize>,
    /// The stream key on which each step worked, 0 if none.
    pub streams: Vec<u64>,
}

struct Driver<F: Flaw> {
    engine: Engine<usize, F>,
    threads: Vec<ThreadKey>,
    contexts: Vec<ContextKey>,
    streams: Vec<StreamKey>,
    events: Vec<EventKey>,
    objects: Vec<u64>,
    ran: Vec<usize>,
    steps_of_ops: HashMap<u64, usize>,
}

/// Runs `program` under a schedule. The work of step i carries i.
pub fn run<F: Flaw>(program: &Program, schedule: Schedule, flaw: F) -> Outcome {
    let mut d = Driver::start(program, schedule, flaw);
    let (mut answers, mut streams) = (Vec::new(), Vec::new());
    let (mut ran_by, mut pending_by) = (Vec::new(), Vec::new());
    for index in 0..program.steps.len() {
        answers.push(d.step(program, index));
        while let Some((op, work)) = d.engine.poll() {
            d.perform(op, work);
        }
        ran_by.push(d.ran.len());
        pending_by.push(d.engine.pending_ops());
        streams.push(match program.steps[index].act {
            Act::Work { stream, .. } => d.streams[stream].0,
            _ => 0,
        });
    }
    d.wait(0, Target::Everything);
    assert_eq!(d.engine.pending_ops(), 0, "left over after everything was waited for");
    let reports = d.engine.checker().take_reports();
    let step = |op: u64| d.steps_of_ops.get(&op).copied().unwrap_or(usize::MAX);
    let findings = reports.iter().map(|r| (step(r.first_op), step(r.second_op), r.kind)).collect();
    Outcome { findings, reports, answers, ran: d.ran, ran_by, pending_by, streams }
}

impl<F: Flaw> Driver<F> {
    fn start(program: &Program, schedule: Schedule, flaw: F) -> Self {
        let mut engine = Engine::with_flaw(flaw);
        engine.set_schedule(schedule);
        engine.checker().set_mode(Mode::Log);
        engine.checker().be_thrifty();
        engine.set_threads_ordered(program.ordered);
        let threads = vec![engine.thread(70), engine.thread(71)];
        let contexts = vec![engine.create_context(0), engine.create_context(0)];
        let mut d = Self {
            engine,
            threads,
            contexts,
            streams: Vec::new(),
            events: Vec::new(),
            objects: vec![0, 1],
            ran: Vec::new(),
            steps_of_ops: HashMap::new(),
        };
        for (&kind, &context) in program.kinds.iter().zip(&program.contexts) {
            let stream = d.engine.create_stream(d.threads[0], d.contexts[context], kind, 0);
            d.streams.push(stream);
        }
        d.events = vec![d.engine.create_event(d.contexts[0]), d.engine.create_event(d.contexts[0])];
        d
    }

    /// Makes one call; true if it is a query answered Done.
    fn step(&mut self, program: &Program, index: usize) -> bool {
        let step = &program.steps[index];
        let t = self.threads[step.thread];
        match &step.act {
            Act::Work { stream, uses } => {
                let accesses = self.accesses(uses);
                let (label, duration_ns) = (format!("work{index}"), 10);
                let job =
                    Job { work: index, accesses, duration_ns, label, unknown_accesses: false };
                let op = self.engine.submit(t, self.streams[*stream], job);
                self.steps_of_ops.insert(op.number(), index);
            }
            Act::Host { uses } => self.host(index, t, uses),
            Act::Remap { object } => {
                let kind = AccessKind::Destroy;
                self.host(index, t, &[Use { object: *object, from: 0, to: BYTES, kind }]);
                self.objects[*object] = self.objects.iter().max().map_or(0, |top| top + 1);
            }
            Act::Record { event, stream } => {
                self.engine.record(t, self.events[*event], self.streams[*stream]);
            }
            Act::RecordContext { event, context } => {
                self.engine.record_context(t, self.events[*event], self.contexts[*context]);
            }
            Act::Wait { stream, event } => {
                self.engine.wait_event(t, self.streams[*stream], self.events[*event]);
            }
            Act::WaitContext { context, event } => {
                self.engine.wait_event_context(t, self.contexts[*context], self.events[*event]);
            }
            Act::Sync { of } => {
                let target = self.target(*of);
                self.wait(step.thread, target);
            }
            Act::Query { of } => return self.query(t, *of) == Status::Done,
            Act::Recycle { stream } => {
                self.engine.destroy_stream(self.streams[*stream]);
                let context = self.contexts[program.contexts[*stream]];
                let kind = program.kinds[*stream];
                self.streams[*stream] = self.engine.create_stream(t, context, kind, 0);
            }
            Act::Signal { tag } => self.engine.signal(t, *tag),
            Act::Await { tag } => self.engine.await_signal(t, *tag),
        }
        false
    }

    fn host(&mut self, index: usize, t: ThreadKey, uses: &[Use]) {
        let accesses = self.accesses(uses);
        let number = self.engine.host_access(t, &accesses, &format!("work{index}"));
        self.steps_of_ops.insert(number, index);
    }

    fn accesses(&self, uses: &[Use]) -> Vec<Access> {
        let access = |u: &Use| Access {
            object: self.objects[u.object],
            offset: u.from,
            bytes: u.to - u.from,
            kind: u.kind,
        };
        uses.iter().map(access).collect()
    }

    fn target(&self, of: Of) -> Target {
        match of {
            Of::Stream(s) => Target::Stream(self.streams[s]),
            Of::Event(e) => Target::Event(self.events[e]),
            Of::Context(c) => Target::Context(self.contexts[c]),
            Of::Everything => Target::Everything,
        }
    }

    /// Contexts cannot be asked: their queries ask the first stream.
    fn query(&mut self, t: ThreadKey, of: Of) -> Status {
        match of {
            Of::Event(e) => self.engine.query_event(t, self.events[e]),
            Of::Stream(s) => self.engine.query_stream(t, self.streams[s]),
            Of::Context(_) | Of::Everything => self.engine.query_stream(t, self.streams[0]),
        }
    }

    fn wait(&mut self, thread: usize, target: Target) {
        let t = self.threads[thread];
        loop {
            match self.engine.step(t, target) {
                Step::Finished => return,
                Step::Run(op, work) => self.perform(op, work),
                Step::Blocked => panic!("blocked, though there is no gate"),
            }
        }
    }

    fn perform(&mut self, op: OpKey, work: usize) {
        self.ran.push(work);
        self.engine.finished(op);
    }
}
