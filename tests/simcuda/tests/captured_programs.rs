//! A random program against its own capture: the graph has the order of the program, and its launch
//! does what the program does, to the bytes and in the eyes of the checker.
//!
//! The streams of a program fork from its first one and are joined by it, as a capture wants it; in
//! between they fill, copy, launch kernels, allocate, free, and wait for each other at random. So most
//! programs are wrong somewhere: the same mistakes must be found in both.

mod common;
use common::*;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::ptr::null_mut;

const STREAMS: usize = 3;
const EVENTS: usize = 3;
/// Bytes of a block; the first blocks are the program's own, the others it allocates in stream order.
const BLOCK: u64 = 256;
const OWN: usize = 2;
const ALLOCATED: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Act {
    Allocate(usize),
    Free(usize),
    Fill { block: usize, at: u64, bytes: u64 },
    Copy { to: usize, from: usize, bytes: u64 },
    Kernel { to: usize, from: usize, at: u64 },
    Declared { block: usize, bytes: u64 },
    Host,
    Record(usize),
    Wait(usize),
}

/// What is done, and on which stream.
type Program = Vec<(usize, Act)>;

fn act() -> impl Strategy<Value = Act> {
    let block = || 0..OWN + ALLOCATED;
    let bytes = || select(vec![64, 128]);
    prop_oneof![
        4 => (block(), 0..3u64, bytes()).prop_map(|(block, at, bytes)| Act::Fill { block, at: at * 64, bytes }),
        2 => (block(), block(), bytes()).prop_map(|(to, from, bytes)| Act::Copy { to, from, bytes }),
        2 => (block(), block(), 0..4u64).prop_map(|(to, from, at)| Act::Kernel { to, from, at: at * 64 }),
        2 => (block(), bytes()).prop_map(|(block, bytes)| Act::Declared { block, bytes }),
        1 => Just(Act::Host),
        4 => (0..EVENTS).prop_map(Act::Record),
        4 => (0..EVENTS).prop_map(Act::Wait),
        1 => (0..ALLOCATED).prop_map(Act::Free),
    ]
}

fn program() -> impl Strategy<Value = Program> {
    let allocations = prop::collection::vec(0..STREAMS, ALLOCATED);
    let acts = prop::collection::vec((0..STREAMS, act()), 0..24);
    (allocations, acts).prop_map(|(allocations, acts)| {
        let begin = allocations.into_iter().enumerate().map(|(i, s)| (s, Act::Allocate(i)));
        let mut freed = BTreeSet::new();
        let once = acts.into_iter().filter(|(_, act)| match act {
            Act::Free(i) => freed.insert(*i),
            _ => true,
        });
        begin.chain(once).collect()
    })
}

extern "C" fn nothing(_: *mut c_void) {}

/// One run of a program: on a driver of its own.
struct Run {
    s: Session,
    streams: [u64; STREAMS],
    events: [u64; EVENTS],
    /// Orders the streams at the beginning and the end.
    forks: [u64; STREAMS],
    blocks: [u64; OWN + ALLOCATED],
    copies: u64,
    probes: u64,
}

impl Run {
    fn new(schedule: &str) -> Self {
        let s = session(&[("checker", "log"), ("memory", "1GiB"), ("schedule", schedule)]);
        s.sim.kernel_accesses("probe", "write p0 bytes=w1").expect("right");
        let streams =
            std::array::from_fn(|i| if i == 1 { s.blocking_stream() } else { s.stream() });
        let (events, forks) = ([(); EVENTS].map(|()| s.event()), [(); STREAMS].map(|()| s.event()));
        let blocks = std::array::from_fn(|i| if i < OWN { s.alloc(BLOCK as usize) } else { 0 });
        let (copies, probes) = (s.function("simcuda_copy"), s.function("probe"));
        Self { s, streams, events, forks, blocks, copies, probes }
    }

    fn act(&mut self, number: usize, on: usize, act: Act) {
        let (s, stream) = (&self.s, self.streams[on]);
        match act {
            Act::Allocate(i) => {
                let mut at = 0;
                ok!(s.cuMemAllocAsync(&mut at, BLOCK as usize, stream));
                self.blocks[OWN + i] = at;
            }
            Act::Free(i) => ok!(s.cuMemFreeAsync(self.blocks[OWN + i], stream)),
            Act::Fill { block, at, bytes } => {
                let value = number as u8 + 1;
                ok!(s.cuMemsetD8Async(self.blocks[block] + at, value, bytes as usize, stream));
            }
            Act::Copy { to, from, bytes } => {
                let to = self.blocks[to] + BLOCK - bytes;
                ok!(s.cuMemcpyDtoDAsync_v2(to, self.blocks[from], bytes as usize, stream));
            }
            Act::Kernel { to, from, at } => {
                let parameters = [self.blocks[to] + at, self.blocks[from], 64];
                ok!(s.try_launch(self.copies, &parameters, stream));
            }
            Act::Declared { block, bytes } => {
                ok!(s.try_launch(self.probes, &[self.blocks[block], bytes], stream));
            }
            Act::Host => ok!(s.cuLaunchHostFunc(stream, nothing as *const () as u64, 0)),
            Act::Record(event) => ok!(s.cuEventRecord(self.events[event], stream)),
            Act::Wait(event) => ok!(s.cuStreamWaitEvent(stream, self.events[event], 0)),
        }
    }

    /// The program, between a fork and a join.
    fn play(&mut self, program: &Program) {
        let [first, others @ ..] = self.streams;
        ok!(self.s.cuEventRecord(self.forks[0], first));
        others.iter().for_each(|s| ok!(self.s.cuStreamWaitEvent(*s, self.forks[0], 0)));
        for (number, (on, act)) in program.iter().enumerate() {
            self.act(number, *on, *act);
        }
        for (stream, event) in others.iter().zip(&self.forks[1..]) {
            ok!(self.s.cuEventRecord(*event, *stream));
            ok!(self.s.cuStreamWaitEvent(first, *event, 0));
        }
    }

    /// The program as a graph.
    fn capture(&mut self, program: &Program) -> u64 {
        let mut graph = 0;
        ok!(self.s.cuStreamBeginCapture_v2(self.streams[0], 2));
        self.play(program);
        ok!(self.s.cuStreamEndCapture(self.streams[0], &mut graph));
        graph
    }

    /// Puts the same bytes into the program's own blocks.
    fn prepare(&self) {
        for (block, at) in self.blocks[..OWN].iter().enumerate() {
            ok!(self.s.cuMemsetD8Async(*at, 0xf0 + block as u8, BLOCK as usize, self.streams[0]));
        }
    }

    fn data(&self) -> Vec<Vec<u8>> {
        ok!(self.s.cuCtxSynchronize());
        self.blocks[..OWN].iter().map(|at| self.s.peek(*at, BLOCK as usize)).collect()
    }

    /// The findings, without what tells one run from another.
    fn findings(&self) -> Vec<String> {
        let mut all: Vec<_> = self.s.sim.reports().iter().map(|text| self.plain(text)).collect();
        self.s.sim.clear_reports();
        all.sort();
        all
    }

    /// Kind and sides of a finding; who took memory away is told elsewhere.
    fn plain(&self, text: &str) -> String {
        let lines: Vec<_> = text.lines().collect();
        let [title, first, second, ..] = lines[..] else { panic!("no finding: {text}") };
        let alone = title.starts_with("use after free");
        let sides = if alone { vec![second] } else { vec![first, second] };
        let sides: Vec<_> = sides.into_iter().map(|side| self.side(side)).collect();
        format!("{title}: {}", sides.join(" / "))
    }

    /// A side by what it does: `fill ...`, or the block that it gives out or takes away.
    fn side(&self, text: &str) -> String {
        let cut = |text: &str, at: &str| text.split(at).next().unwrap_or_default().to_owned();
        let text = cut(&cut(text, " (operation"), ", operation");
        let (text, rest) = text.split_once(" (node ").unwrap_or((&text, ""));
        let mut text = format!("{text}{}", rest.split_once(')').map_or("", |(_, after)| after));
        for (block, at) in self.blocks.iter().enumerate() {
            for offset in (0..=BLOCK).step_by(64) {
                text = text.replace(&format!("{:#x}", at + offset), &format!("B{block}+{offset}"));
            }
        }
        let block = text.split(|c: char| !c.is_alphanumeric()).find(|word| word.starts_with('B'));
        match ["giving out", "taking away"].iter().find(|it| text.contains(**it)) {
            Some(what) => format!("{what} {}", block.unwrap_or("?")),
            None => text,
        }
    }
}

/// The nodes that each node comes after, directly or not, by the rules of streams and events. Acts that
/// make no node are left out.
fn order_of(program: &Program) -> Vec<BTreeSet<usize>> {
    let mut streams: [BTreeSet<usize>; STREAMS] = Default::default();
    let mut events: [BTreeSet<usize>; EVENTS] = Default::default();
    let mut known = Vec::new();
    for (on, act) in program {
        match act {
            Act::Record(event) => events[*event] = streams[*on].clone(),
            Act::Wait(event) => streams[*on].extend(&events[*event]),
            _ => {
                known.push(streams[*on].clone());
                streams[*on].insert(known.len() - 1);
            }
        }
    }
    known
}

/// The same of a graph, whose nodes are numbered as they were added.
fn order_in(s: &Session, graph: u64) -> Vec<BTreeSet<usize>> {
    let (mut count, mut edges) = (0, 0);
    ok!(s.cuGraphGetNodes(graph, null_mut(), &mut count));
    ok!(s.cuGraphGetEdges(graph, null_mut(), null_mut(), &mut edges));
    let (mut nodes, mut from, mut to) = (vec![0; count], vec![0; edges], vec![0; edges]);
    ok!(s.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
    ok!(s.cuGraphGetEdges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &mut edges));
    let number = |node: u64| nodes.iter().position(|n| *n == node).expect("a node of the graph");
    let mut known: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); count];
    for node in 0..count {
        for (from, _) in from.iter().zip(&to).filter(|(_, to)| number(**to) == node) {
            let earlier = number(*from);
            let before = known[earlier].clone();
            known[node].extend(before);
            known[node].insert(earlier);
        }
    }
    known
}

/// Runs a program, then its graph; whether it was right.
fn compare(program: &Program, schedule: &str) -> Result<bool, TestCaseError> {
    let mut plain = Run::new(schedule);
    plain.prepare();
    plain.play(program);
    let (found, data) = (plain.findings(), plain.data());
    drop(plain);
    let mut again = Run::new(schedule);
    let graph = again.capture(program);
    prop_assert_eq!(again.s.sim.report_count(), 0, "capturing uses nothing");
    prop_assert_eq!(order_in(&again.s, graph), order_of(program));
    let exec = again.s.exec(graph);
    let frees = program.iter().filter(|(_, act)| matches!(act, Act::Free(_))).count();
    // What is not freed stands in the way of a second launch.
    for launch in 1..=if frees == ALLOCATED { 2 } else { 1 } {
        again.prepare();
        ok!(again.s.cuGraphLaunch(exec, again.streams[0]));
        prop_assert_eq!((launch, again.findings()), (launch, found.clone()));
        // Where nothing orders two writes, what is left is the schedule's choice.
        let now = again.data();
        prop_assert!(now == data || !found.is_empty(), "{launch}: {now:?}, not {data:?}");
    }
    Ok(found.is_empty())
}

#[test]
fn a_launch_does_what_the_program_does() {
    let config = Config { cases: 1000, failure_persistence: None, ..Config::default() };
    let counts = Cell::new([0; 2]);
    let tried =
        TestRunner::new(config).run(&(program(), select(&SCHEDULES[..])), |(program, by)| {
            let right = compare(&program, by)?;
            let [mut all, mut silent] = counts.get();
            (all, silent) = (all + 1, silent + usize::from(right));
            counts.set([all, silent]);
            Ok(())
        });
    if let Err(why) = tried {
        panic!("{why}");
    }
    let [all, silent] = counts.get();
    assert!(silent > all / 10 && silent < all / 2, "{silent} right programs of {all}");
}
