//! The reference: what CUDA orders, as a graph, and all pairs of it that are reachable.
//!
//! Every call is a node or a few; an edge says "comes before" and follows the words of the CUDA manual,
//! one rule at a time. No clocks, no intervals: bytes one by one. Shares nothing with the checker.

use crate::drive::Finding;
use crate::program::{Act, BYTES, Of, Program, Use};
use simcuda::checker::{AccessKind, ReportKind};
use simcuda::engine::StreamKind;
use std::collections::BTreeSet;

/// One stream that exists or existed.
struct Stream {
    kind: StreamKind,
    context: usize,
    /// What its first operation comes after.
    born: Vec<usize>,
    last: Option<usize>,
    alive: bool,
}

/// The graph of a program.
pub struct Graph {
    /// For each node a set of nodes (bits) that come before it.
    before: Vec<u128>,
    /// For each step, the node of its work, its host access, or its wait or query answered Done.
    nodes: Vec<Option<usize>>,
    streams: Vec<Stream>,
    /// The stream in each variable.
    variables: Vec<usize>,
    /// The last node of each host thread.
    threads: [Option<usize>; 2],
    events: [Option<usize>; 2],
    tags: [Vec<usize>; 2],
    /// What all later streams of each context wait for.
    awaited: [Vec<usize>; 2],
}

impl Graph {
    /// The graph of a program whose queries were answered as `answers` says.
    pub fn of(program: &Program, answers: &[bool]) -> Self {
        let mut g = Self {
            before: Vec::new(),
            nodes: Vec::new(),
            streams: Vec::new(),
            variables: Vec::new(),
            threads: [None; 2],
            events: [None; 2],
            tags: [Vec::new(), Vec::new()],
            awaited: [Vec::new(), Vec::new()],
        };
        for (&kind, &context) in program.kinds.iter().zip(&program.contexts) {
            g.variables.push(g.streams.len());
            g.streams.push(Stream { kind, context, born: vec![], last: None, alive: true });
        }
        for (index, step) in program.steps.iter().enumerate() {
            let t = if program.ordered { 0 } else { step.thread };
            let node = g.call(t, &step.act, answers[index]);
            g.nodes.push(node);
        }
        g
    }

    /// Does the work of step `a` come before that of step `b`?
    pub fn comes_before(&self, a: usize, b: usize) -> bool {
        match (self.nodes[a], self.nodes[b]) {
            (Some(a), Some(b)) => self.before[b] >> a & 1 == 1,
            _ => false,
        }
    }

    fn node(&mut self, after: impl IntoIterator<Item = usize>) -> usize {
        let set = after.into_iter().fold(0, |set, n| set | self.before[n] | 1 << n);
        self.before.push(set);
        self.before.len() - 1
    }

    fn call(&mut self, t: usize, act: &Act, done: bool) -> Option<usize> {
        match *act {
            Act::Work { stream, .. } => return Some(self.on_stream(t, stream, None)),
            Act::Host { .. } | Act::Remap { .. } => return Some(self.by_host(t, vec![])),
            Act::Record { event, stream } => {
                self.events[event] = Some(self.on_stream(t, stream, None));
            }
            Act::RecordContext { event, context } => {
                let all = self.all_of(context).into_iter().chain(self.threads[t]);
                let node = self.node(all.collect::<Vec<_>>());
                self.events[event] = Some(node);
            }
            Act::Wait { stream, event } => {
                if let Some(record) = self.events[event] {
                    self.on_stream(t, stream, Some(record));
                }
            }
            Act::WaitContext { context, event } => {
                let record = self.events[event]?;
                self.awaited[context].push(record);
                for s in 0..self.streams.len() {
                    if self.streams[s].alive && self.streams[s].context == context {
                        self.push(s, [Some(record), self.threads[t]].into_iter().flatten());
                    }
                }
            }
            Act::Sync { of } => return Some(self.join(t, of)),
            Act::Query { of: Of::Context(_) | Of::Everything } if done => {
                return Some(self.join(t, Of::Stream(0)));
            }
            Act::Query { of } if done => return Some(self.join(t, of)),
            Act::Query { .. } => {}
            Act::Recycle { stream } => {
                let old = self.variables[stream];
                self.streams[old].alive = false;
                let Stream { kind, context, .. } = self.streams[old];
                let born = self.threads[t].into_iter().collect();
                self.variables[stream] = self.streams.len();
                self.streams.push(Stream { kind, context, born, last: None, alive: true });
                if !self.awaited[context].is_empty() {
                    self.push(self.variables[stream], self.awaited[context].clone());
                }
            }
            Act::Signal { tag } => self.tags[tag as usize].extend(self.threads[t]),
            Act::Await { tag } => {
                self.by_host(t, self.tags[tag as usize].clone());
            }
        }
        None
    }

    /// A node of the thread, after its last one and others.
    fn by_host(&mut self, t: usize, after: Vec<usize>) -> usize {
        let node = self.node(after.into_iter().chain(self.threads[t]).collect::<Vec<_>>());
        self.threads[t] = Some(node);
        node
    }

    /// The thread waits for something.
    fn join(&mut self, t: usize, of: Of) -> usize {
        let after = match of {
            Of::Stream(s) => self.streams[self.variables[s]].last.into_iter().collect(),
            Of::Event(e) => self.events[e].into_iter().collect(),
            Of::Context(c) => self.all_of(c),
            Of::Everything => [self.all_of(0), self.all_of(1)].concat(),
        };
        self.by_host(t, after)
    }

    /// The last nodes of all streams of a context, dead ones included.
    fn all_of(&self, context: usize) -> Vec<usize> {
        let of = self.streams.iter().filter(|s| s.context == context);
        of.filter_map(|s| s.last).collect()
    }

    /// A node at the end of a stream, after others.
    fn push(&mut self, s: usize, after: impl IntoIterator<Item = usize>) -> usize {
        let first = match self.streams[s].last {
            Some(last) => vec![last],
            None => self.streams[s].born.clone(),
        };
        let node = self.node(first.into_iter().chain(after).collect::<Vec<_>>());
        self.streams[s].last = Some(node);
        node
    }

    /// An operation submitted by a thread: stream order, the legacy rules, and perhaps an event.
    fn on_stream(&mut self, t: usize, variable: usize, event: Option<usize>) -> usize {
        let s = self.variables[variable];
        let (kind, context) = (self.streams[s].kind, self.streams[s].context);
        let mut after: Vec<usize> = event.into_iter().chain(self.threads[t]).collect();
        let blocking = |k| matches!(k, StreamKind::Blocking | StreamKind::PerThread);
        for other in self.streams.iter().filter(|other| other.context == context) {
            let waits = (kind == StreamKind::Legacy && blocking(other.kind))
                || (blocking(kind) && other.kind == StreamKind::Legacy);
            after.extend(other.last.filter(|_| waits));
        }
        self.push(s, after)
    }
}

/// All that a correct checker reports, by the rule that `simcuda::checker` states.
pub fn verdict(program: &Program, graph: &Graph) -> BTreeSet<Finding> {
    /// The past of one byte: last write, reads since.
    #[derive(Clone, Default)]
    struct Past {
        write: Option<(usize, AccessKind)>,
        reads: Vec<usize>,
    }
    let mut past = vec![vec![Past::default(); BYTES as usize]; 2];
    let mut found = BTreeSet::new();
    for_each_use(program, |x, u, fresh| {
        if let Some(object) = fresh {
            past[object] = vec![Past::default(); BYTES as usize];
            return;
        }
        for byte in &mut past[u.object][u.from as usize..u.to as usize] {
            let writes = u.kind != AccessKind::Read;
            let reads = byte.reads.iter().filter(|_| writes).map(|&r| (r, AccessKind::Read));
            for (p, kind) in reads.chain(byte.write) {
                let taken = kind == AccessKind::Destroy || u.kind == AccessKind::Destroy;
                let what = if taken { ReportKind::DestroyUnderWork } else { ReportKind::Race };
                if p != x && !graph.comes_before(p, x) {
                    found.insert((p, x, what));
                }
            }
            if writes {
                *byte = Past { write: Some((x, u.kind)), reads: Vec::new() };
            } else if byte.write.is_none_or(|(w, _)| w != x) {
                byte.reads.retain(|&r| r != x && !graph.comes_before(r, x));
                byte.reads.push(x);
            }
        }
    });
    found
}

/// Are there two conflicting uses, anywhere, that nothing orders? The definition of a race itself.
pub fn has_race(program: &Program, graph: &Graph) -> bool {
    let mut all: Vec<(usize, Use, usize)> = Vec::new();
    let mut lives = [0; 2];
    let mut race = false;
    for_each_use(program, |x, u, fresh| {
        if let Some(object) = fresh {
            lives[object] += 1;
            return;
        }
        race |= all.iter().any(|&(p, v, life)| {
            let same = v.object == u.object && life == lives[u.object] && v.from < u.to;
            let conflict = v.kind != AccessKind::Read || u.kind != AccessKind::Read;
            same && u.from < v.to && conflict && p != x && !graph.comes_before(p, x)
        });
        all.push((x, *u, lives[u.object]));
    });
    race
}

/// Tells of every use in order, with its step; and after a remap, of the object that is new.
fn for_each_use(program: &Program, mut tell: impl FnMut(usize, &Use, Option<usize>)) {
    for (x, step) in program.steps.iter().enumerate() {
        match &step.act {
            Act::Work { uses, .. } | Act::Host { uses } => {
                uses.iter().for_each(|u| tell(x, u, None));
            }
            Act::Remap { object } => {
                let u = Use { object: *object, from: 0, to: BYTES, kind: AccessKind::Destroy };
                tell(x, &u, None);
                tell(x, &u, Some(*object));
            }
            _ => {}
        }
    }
}
