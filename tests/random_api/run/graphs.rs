//! Graphs. A launch is played by work on a stream of the launch's, on the addresses that the capture
//! used: to the allocator and to the checker that is the same.

use std::time::{Duration, Instant};

use super::Run;
use crate::api;
use crate::program::Op;
use crate::world::{Sid, Stream};

use super::blocks::Block;

/// What a launch does, in its order.
#[derive(Clone, Copy, Debug)]
struct Play {
    at: u64,
    bytes: u64,
    seed: u64,
    write: bool,
}

/// A graph, from the beginning of its capture on.
#[derive(Clone, Debug)]
pub struct Graph {
    /// None: its capture is found by Cuddy.
    name: Option<u64>,
    stream: Sid,
    pub begun: bool,
    pub gone: bool,
    script: Vec<Play>,
    /// What is its own until it is gone, though it was freed: start and end.
    owned: Vec<(u64, u64)>,
    /// What has to be over before its next launch.
    before: Vec<Sid>,
    /// The stream of its last launch.
    last: Option<Sid>,
    /// Something that it reads was freed: it must not be launched any more.
    spent: bool,
    /// The thread that captures it; none, if its launches are played.
    thread: Option<usize>,
    launchable: usize,
}

/// Steps of a capture.
const LONGEST: usize = 40;

impl Graph {
    /// Whether freed memory in this range is the graph's.
    pub fn owns(&self, start: u64, end: u64) -> bool {
        !self.gone && self.owned.iter().any(|&(at, to)| at < end && start < to)
    }
}

impl Run {
    /// The graph whose capture is under way.
    pub(super) fn capturing(&self) -> Option<usize> {
        self.graphs.iter().position(|graph| graph.begun)
    }

    pub(super) fn graph(&mut self, op: &Op) {
        if let Some(graph) = self.capturing() {
            if op.a % 4 == 0 || self.graphs[graph].script.len() > LONGEST {
                self.end_graph(graph);
            }
            return;
        }
        let there: Vec<usize> = (0..self.graphs.len()).filter(|&g| !self.graphs[g].gone).collect();
        if there.is_empty() || there.len() < 2 && op.a % 3 == 0 {
            return self.begin_graph(op);
        }
        let graph = there[op.b as usize % there.len()];
        match op.a % 5 {
            0 => self.destroy_graph(graph, self.stream_by(op.c)),
            _ => self.launch(graph, self.stream_by(op.c)),
        }
    }

    fn begin_graph(&mut self, op: &Op) {
        let stream = self.stream_by(op.b);
        let handle = self.world.handle(stream);
        let Stream { built_in, blocking, .. } = self.world.streams[stream];
        if handle < 2 || self.setting.captures && (built_in || blocking) {
            return;
        }
        let thread = self.world.thread_of(stream);
        let found = self.setting.captures && self.world.streams[stream].capturable;
        let name = match found {
            true => None,
            false => {
                let begun = self.must(thread, "graph_begin", move || api::graph_begin(handle, 0));
                if begun.is_none() {
                    return;
                }
                begun
            }
        };
        if self.setting.captures {
            // Global, of one thread, relaxed.
            self.world.begin_capture(stream, (op.c / 8 % 3) as i32);
        }
        self.say(|| format!("graph {} begins on {stream}", self.graphs.len()));
        self.world.streams[stream].captured = true;
        self.graphs.push(Graph {
            name,
            stream,
            begun: true,
            gone: false,
            script: Vec::new(),
            owned: Vec::new(),
            before: Vec::new(),
            last: None,
            spent: false,
            thread: self.setting.captures.then_some(self.world.turn),
            launchable: 0,
        });
    }

    fn end_graph(&mut self, graph: usize) {
        let (turn, name) = (self.world.turn, self.graphs[graph].name);
        self.end_capture(graph);
        let ended = name.map(|name| self.must(turn, "graph_end", move || api::graph_end(name)));
        if ended != Some(None) {
            self.say(|| format!("graph {graph} ends"));
            self.graphs[graph].begun = false;
            let stream = self.graphs[graph].stream;
            self.world.streams[stream].captured = false;
        }
    }

    /// Ends the driver's capture, if there is one.
    fn end_capture(&mut self, graph: usize) {
        let Graph { stream, thread, launchable, .. } = self.graphs[graph];
        if let (Some(thread), 0) = (thread, launchable) {
            self.graphs[graph].launchable = self.world.end_capture(stream, thread);
        }
    }

    /// Whether the driver captures at the moment: much may not be called then.
    pub(super) fn is_captured_by_driver(&self) -> bool {
        self.graphs.iter().any(|graph| graph.thread.is_some() && graph.launchable == 0)
    }

    /// Whether a living graph was captured with what the block holds.
    pub(super) fn is_fixed_input(&self, block: &Block) -> bool {
        let fixed =
            |graph: &usize| !self.graphs[*graph].gone && self.graphs[*graph].thread.is_some();
        block.input_of.iter().any(fixed)
    }

    pub(super) fn destroy_graph(&mut self, graph: usize, stream: Sid) {
        self.end_capture(graph);
        if let Some(last) = self.graphs[graph].last {
            self.world.order(last, stream);
        }
        if self.graphs[graph].launchable != 0 {
            self.world.destroy_launchable(self.graphs[graph].launchable);
        }
        let (thread, handle) = (self.world.thread_of(stream), self.world.handle(stream));
        let name = self.graphs[graph].name;
        match name {
            None => self.tally.add("graph found", 1),
            Some(name) => {
                let destroy = move || api::graph_destroy(name, handle);
                let _ = (0..2).any(|_| self.must(thread, "graph_destroy", destroy).is_some());
            }
        }
        self.say(|| format!("graph {graph} is destroyed on {stream}"));
        let gone = &mut self.graphs[graph];
        if gone.begun {
            self.world.streams[gone.stream].captured = false;
        }
        (gone.begun, gone.gone) = (false, true);
    }

    /// Whether graphs may hold memory: when a found one is gone, Cuddy learns later.
    pub(super) fn graphs_hold_memory(&self) -> bool {
        self.graphs.iter().any(|graph| !graph.gone || graph.name.is_none())
    }

    /// The driver says on a thread of its own that a graph is gone.
    pub(super) fn wait_for_found_graphs(&mut self) {
        let begun = Instant::now();
        let found = self.graphs.iter().any(|graph| graph.name.is_none());
        while found && api::stats().reserved > api::stats().quarantined {
            self.must(0, "empty_cache", api::empty_cache);
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "a graph's memory is not given back"
            );
        }
    }

    /// Ends what is under way, and destroys what there is.
    pub(super) fn end_all_graphs(&mut self) {
        while let Some(graph) = self.capturing() {
            self.end_graph(graph);
        }
        for graph in 0..self.graphs.len() {
            if !self.graphs[graph].gone {
                self.destroy_graph(graph, 0);
            }
        }
    }

    pub(super) fn malloc_captured(&mut self, graph: usize, op: &Op) {
        let stream = self.graphs[graph].stream;
        let thread = self.world.thread_of(stream);
        let handle = self.world.handle(stream);
        let bytes = 1 + op.a % (4 << 20);
        let outcome = self.call(thread, move || api::malloc(bytes, handle));
        let at = match outcome {
            Ok(at) => at,
            Err(failed) => {
                let pool = self.effective(thread, 0);
                return self.refused(&failed, bytes, pool, false);
            }
        };
        self.born(at, bytes, Some(stream), 0, Some(graph));
        let seed = self.live[&at].seed;
        self.play_in(graph, Play { at, bytes, seed, write: true });
    }

    /// Adds work to a capture that is under way.
    fn play_in(&mut self, graph: usize, play: Play) {
        let Graph { stream, thread, .. } = self.graphs[graph];
        self.graphs[graph].script.push(play);
        if thread.is_some() {
            self.play(stream, graph, play);
        }
    }

    fn play(&mut self, stream: Sid, graph: usize, Play { at, bytes, seed, write }: Play) {
        if write {
            self.world.write(stream, at, bytes, seed);
        } else {
            let what = format!("block {at:#x} in a launch of graph {graph}");
            self.world.compare(stream, at, bytes, seed, what);
        }
    }

    /// Uses a block in the capture that is under way; `false` if that is not what it is for.
    pub(super) fn use_in_capture(&mut self, graph: usize, at: u64, op: &Op) -> bool {
        let block = &self.live[&at];
        if self.graphs[graph].script.len() > LONGEST {
            return false;
        }
        if block.graph == Some(graph) {
            let rewrite = op.c % 2 == 0;
            let seed = if rewrite { self.pattern() } else { self.live[&at].seed };
            let block = self.live.get_mut(&at).expect("live");
            block.seed = seed;
            let play = Play { at, bytes: block.bytes, seed, write: rewrite };
            self.play_in(graph, play);
            return true;
        }
        // An input: it is there already, and the capture reads it.
        if block.graph.is_some() || block.writer.is_none() || op.c % 3 != 0 {
            return false;
        }
        let stream = self.graphs[graph].stream;
        if block.home != Some(stream) {
            let thread = self.world.thread_of(stream);
            let handle = self.world.handle(stream);
            let named = self.must(thread, "record_stream", move || api::record_stream(at, handle));
            if named.is_none() {
                return true;
            }
        }
        self.say(|| format!("{at:#x} is an input of graph {graph}"));
        let block = self.live.get_mut(&at).expect("live");
        block.input_of.push(graph);
        // Played launches look at what it holds then.
        let seed = if self.setting.captures { block.seed } else { 0 };
        let play = Play { at, bytes: block.bytes, seed, write: false };
        self.play_in(graph, play);
        true
    }

    /// A block was freed: what graphs go on doing with it is theirs.
    pub(super) fn leave_to_graphs(&mut self, at: u64, block: &Block) {
        let range = (at, at + block.rounded());
        self.say(|| {
            format!(
                "{at:#x} of home {:?}, graph {:?}, input of {:?}",
                block.home, block.graph, block.input_of
            )
        });
        let home_captured = block.home.is_some_and(|home| self.world.streams[home].captured);
        let owners = block.input_of.iter().chain(&block.graph).copied();
        for number in owners {
            let graph = &mut self.graphs[number];
            if graph.gone {
                continue;
            }
            let own_input = block.graph != Some(number) && block.home == Some(graph.stream);
            if own_input && !graph.begun {
                // Nothing kept it for the graph.
                graph.spent = true;
                continue;
            }
            graph.owned.push(range);
            graph.before.extend(block.before_write());
            if block.graph != Some(number) {
                // Its contents stay as they are.
                for play in graph.script.iter_mut().filter(|play| play.at == at && play.seed == 0) {
                    play.seed = block.seed;
                }
            }
        }
        // A block of a captured stream is the graph's from its free on.
        if home_captured && let Some(graph) = self.capturing() {
            self.graphs[graph].owned.push(range);
        }
    }

    fn launch(&mut self, graph: usize, stream: Sid) {
        if self.graphs[graph].spent {
            return;
        }
        let captured = |users: &[Sid]| users.iter().any(|&user| self.world.streams[user].captured);
        let script = self.graphs[graph].script.clone();
        let mut before = self.graphs[graph].before.clone();
        before.extend(self.graphs[graph].last);
        for block in script.iter().filter_map(|play| self.live.get(&play.at)) {
            before.extend(block.before_write());
        }
        if captured(&before) {
            return;
        }
        before.sort_unstable();
        before.dedup();
        before.into_iter().for_each(|user| self.world.order(user, stream));
        self.say(|| format!("graph {graph} is launched on {stream}"));
        for play in &script {
            let input = self.live.get(&play.at).filter(|block| block.input_of.contains(&graph));
            let seed = match play.seed {
                0 => input.map_or(0, |block| block.seed),
                seed => seed,
            };
            if self.graphs[graph].thread.is_none() {
                self.play(stream, graph, Play { seed, ..*play });
            }
            let own = self.graphs[graph].stream;
            if let Some(block) = self.live.get_mut(&play.at) {
                if block.graph == Some(graph) {
                    block.readers.clear();
                    block.launch_readers.clear();
                    (block.writer, block.launched) = (Some(stream), true);
                    block.seed = seed;
                } else if block.input_of.contains(&graph) && block.home != Some(own) {
                    block.launch_readers.push(stream);
                } else if block.input_of.contains(&graph) {
                    block.readers.push(stream);
                }
            }
        }
        if self.graphs[graph].thread.is_some() {
            self.world.launch_graph(self.graphs[graph].launchable, stream);
            self.tally.add("graph launched by the driver", 1);
        }
        self.graphs[graph].before.clear();
        self.graphs[graph].last = Some(stream);
        self.tally.add("graph launched", 1);
    }
}
