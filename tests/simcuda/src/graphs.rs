//! The **graphs**: what stands behind `CUgraph`, `CUgraphNode`, `CUgraphExec` and `CUuserObject`.
//!
//! A graph belongs to the program, to the capture that writes it, or to a child graph node. An
//! executable graph is a copy, flat: a child graph node is two empty nodes there, and what it embeds
//! between them. `references(object) = the program's + those of graphs, executables and launches`.

use crate::engine::EventKey;
use crate::engine::capture::{EdgeError, Graph};
use crate::slots::Slots;
use crate::types::{Code, code};
use crate::work::Body;
use std::collections::{BTreeMap, HashMap};

/// How a kernel was asked for, to be given back.
#[derive(Clone, Debug)]
pub struct KernelCall {
    /// The function.
    pub function: u64,
    /// Blocks and threads.
    pub grid: [u32; 3],
    /// See `grid`.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The values of the parameters, as far as they are known.
    pub values: Vec<u64>,
    /// Pointers to `values`, made when the program asks for them.
    pub pointers: Vec<u64>,
}

/// Work of a node.
#[derive(Clone, Debug)]
pub struct Task {
    /// The context in which it is done.
    pub context: u64,
    /// What.
    pub body: Body,
    /// Its virtual duration.
    pub duration_ns: u64,
    /// What a report calls it.
    pub label: String,
    /// How the kernel was asked for, if it is one.
    pub kernel: Option<KernelCall>,
}

/// What a node does.
#[derive(Clone, Debug)]
pub enum Node {
    /// Work on memory, or a host function.
    Work(Task),
    /// Nothing.
    Empty,
    /// All that a graph does, which the node owns.
    Child(u64),
    /// Waits for an event, by its handle.
    EventWait(u64),
    /// Records an event, by its handle.
    EventRecord(u64),
    /// Gives memory out, by its address.
    Allocate(u64),
    /// Takes it back.
    Free(u64),
}

impl Node {
    /// `CUgraphNodeType`.
    pub fn kind(&self) -> i32 {
        match self {
            Self::Work(task) => match task.body {
                Body::Kernel(_) | Body::Declared(_) | Body::SpinReal { .. } => 0,
                Body::Copy { .. } => 1,
                Body::Fill { .. } => 2,
                Body::Host(_) => 3,
                Body::Nothing => 5,
                Body::Await(..) => 6,
                Body::Publish(..) => 7,
            },
            Self::Child(_) => 4,
            Self::Empty => 5,
            Self::EventWait(_) => 6,
            Self::EventRecord(_) => 7,
            Self::Allocate(_) => 10,
            Self::Free(_) => 11,
        }
    }
}

/// Who a graph belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The program.
    Program,
    /// A capture, until it ends.
    Capture,
    /// A child graph node.
    Node,
}

/// A graph.
#[derive(Debug)]
pub struct Entry {
    /// Its nodes.
    pub graph: Graph<Node>,
    /// Who destroys it.
    pub owner: Owner,
    /// Whether the program's own graph is being captured into.
    pub captured_into: bool,
    /// Of a clone: the original node of each of its nodes at that time, and the other way round.
    pub clone_of: HashMap<u64, u64>,
    /// The references to user objects that it holds.
    pub users: BTreeMap<u64, u64>,
}

/// A node of an executable graph.
#[derive(Clone, Debug)]
pub struct Step {
    /// The node that it was made of.
    pub node: u64,
    /// What it does.
    pub work: Node,
    /// Which earlier steps it comes after.
    pub before: Vec<usize>,
    /// Whether it does anything.
    pub enabled: bool,
}

/// An executable graph.
#[derive(Debug)]
pub struct Exec {
    /// The graph that it was made of.
    pub graph: u64,
    /// How many nodes that had, those of its child graphs not counted.
    pub nodes: usize,
    /// Its steps, each after those that it comes after.
    pub steps: Vec<Step>,
    /// `CUgraphInstantiate_flags`.
    pub flags: u64,
    /// Recorded when the most recent launch was over.
    pub last: Option<EventKey>,
    /// How often it was launched.
    pub launches: u64,
    /// The references to user objects that it holds.
    pub users: BTreeMap<u64, u64>,
}

/// An executable graph that was destroyed while it ran.
#[derive(Debug)]
pub struct Leaving {
    /// Recorded at the end of its last launch.
    pub event: EventKey,
    /// What it still holds.
    pub users: BTreeMap<u64, u64>,
}

/// A user object.
#[derive(Debug)]
pub struct UserObject {
    /// What the destructor gets.
    pub pointer: u64,
    /// The destructor.
    pub destroy: u64,
    /// References to it.
    pub references: u64,
}

/// All of them.
#[derive(Debug)]
pub struct Graphs {
    /// Graphs by handle.
    pub graphs: Slots<Entry>,
    /// Executable graphs by handle.
    pub execs: Slots<Exec>,
    /// User objects by handle.
    pub objects: Slots<UserObject>,
    /// Executable graphs that still run.
    pub leaving: Vec<Leaving>,
    /// Which graph a node belongs to.
    of_node: HashMap<u64, u64>,
    nodes_made: u64,
}

const NODES: u64 = 0x5c23_0000_0000;

/// A code for a refused edge.
pub fn refusal(_: EdgeError) -> Code {
    code::INVALID_VALUE
}

impl Default for Graphs {
    fn default() -> Self {
        Self {
            graphs: Slots::new(0x20),
            execs: Slots::new(0x21),
            objects: Slots::new(0x22),
            leaving: Vec::new(),
            of_node: HashMap::new(),
            nodes_made: 0,
        }
    }
}

impl Graphs {
    /// An empty graph.
    pub fn create(&mut self, owner: Owner) -> u64 {
        let graph = Graph::default();
        let (clone_of, users) = Default::default();
        self.graphs.insert(Entry { graph, owner, captured_into: false, clone_of, users })
    }

    /// A graph by handle.
    pub fn get(&self, graph: u64) -> Result<&Entry, Code> {
        self.graphs.get(graph).ok_or(code::INVALID_VALUE)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, graph: u64) -> Result<&mut Entry, Code> {
        self.graphs.get_mut(graph).ok_or(code::INVALID_VALUE)
    }

    /// The graph of a node.
    pub fn of(&self, node: u64) -> Result<u64, Code> {
        self.of_node.get(&node).copied().ok_or(code::INVALID_VALUE)
    }

    /// What a node does.
    pub fn node(&self, node: u64) -> Result<&Node, Code> {
        let graph = self.of(node)?;
        self.get(graph)?.graph.get(node).ok_or(code::INVALID_VALUE)
    }

    /// The same, to change it.
    pub fn node_mut(&mut self, node: u64) -> Result<&mut Node, Code> {
        let graph = self.of(node)?;
        self.get_mut(graph)?.graph.get_mut(node).ok_or(code::INVALID_VALUE)
    }

    /// Adds a node; answers its handle, which no other node gets.
    pub fn add(&mut self, graph: u64, after: &[u64], work: Node) -> Result<u64, Code> {
        let node = NODES + (self.nodes_made + 1) * 0x40;
        self.get_mut(graph)?.graph.add(node, after, work).map_err(refusal)?;
        self.nodes_made += 1;
        self.of_node.insert(node, graph);
        Ok(node)
    }

    /// Destroys a node, and the graph that it owns.
    pub fn remove_node(&mut self, node: u64) -> Result<Vec<u64>, Code> {
        let graph = self.of(node)?;
        let work = self.get_mut(graph)?.graph.remove(node);
        self.of_node.remove(&node);
        Ok(match work {
            Some(Node::Child(child)) => self.remove(child),
            _ => Vec::new(),
        })
    }

    /// Destroys a graph and all that it owns; answers the user objects that nobody refers to any
    /// more.
    pub fn remove(&mut self, graph: u64) -> Vec<u64> {
        let Some(entry) = self.graphs.remove(graph) else { return Vec::new() };
        let mut over = self.let_go(&entry.users);
        for (node, work) in entry.graph.nodes() {
            self.of_node.remove(&node);
            if let Node::Child(child) = work {
                over.extend(self.remove(*child));
            }
        }
        over
    }

    /// Copies a graph with all that it embeds.
    pub fn duplicate(&mut self, graph: u64, owner: Owner) -> Result<u64, Code> {
        let entry = self.get(graph)?;
        let users = entry.users.clone();
        let nodes: Vec<(u64, Vec<u64>, Node)> = entry
            .graph
            .nodes()
            .map(|(n, work)| (n, entry.graph.before(n).unwrap_or(&[]).to_vec(), work.clone()))
            .collect();
        let copy = self.create(owner);
        let mut copies: HashMap<u64, u64> = HashMap::new();
        for (node, _, work) in &nodes {
            let work = match work {
                Node::Child(child) => Node::Child(self.duplicate(*child, Owner::Node)?),
                other => other.clone(),
            };
            copies.insert(*node, self.add(copy, &[], work)?);
        }
        // Edges come last: they may lead from a node to one that was added before it.
        for (node, before, _) in &nodes {
            let edges: Vec<_> = before.iter().map(|b| (copies[b], copies[node])).collect();
            self.get_mut(copy)?.graph.connect(&edges).map_err(refusal)?;
        }
        self.hold(&users);
        let entry = self.get_mut(copy)?;
        entry.users = users;
        entry.clone_of = copies;
        Ok(copy)
    }

    /// The steps of a graph, each after those that it comes after; or a node on a cycle.
    pub fn flatten(&self, graph: u64) -> Result<Vec<Step>, u64> {
        let mut steps = Vec::new();
        self.flatten_into(graph, &[], &mut steps)?;
        Ok(steps)
    }

    /// Appends a graph that comes after `first`; answers the steps that nothing in it comes after.
    fn flatten_into(
        &self,
        graph: u64,
        first: &[usize],
        steps: &mut Vec<Step>,
    ) -> Result<Vec<usize>, u64> {
        let Ok(entry) = self.get(graph) else { return Ok(Vec::new()) };
        let mut place: HashMap<u64, usize> = HashMap::new();
        let mut last = Vec::new();
        for node in entry.graph.order()? {
            let Some(work) = entry.graph.get(node) else { continue };
            let earlier = entry.graph.before(node).unwrap_or(&[]);
            let mut before: Vec<usize> = earlier.iter().map(|b| place[b]).collect();
            if before.is_empty() {
                before = first.to_vec();
            }
            let step = |work, before| Step { node, work, before, enabled: true };
            if let Node::Child(child) = work {
                steps.push(step(Node::Empty, before));
                let begin = steps.len() - 1;
                let mut ends = self.flatten_into(*child, &[begin], steps)?;
                if ends.is_empty() {
                    ends.push(begin);
                }
                steps.push(step(Node::Empty, ends));
            } else {
                steps.push(step(work.clone(), before));
            }
            place.insert(node, steps.len() - 1);
            if entry.graph.after(node).is_none_or(<[u64]>::is_empty) {
                last.push(steps.len() - 1);
            }
        }
        Ok(last)
    }

    /// A new graph of the steps of an executable one.
    pub fn unflatten(&mut self, steps: &[Step], owner: Owner) -> Result<u64, Code> {
        let graph = self.create(owner);
        let mut nodes: Vec<u64> = Vec::new();
        for step in steps {
            let before: Vec<u64> = step.before.iter().map(|&b| nodes[b]).collect();
            let work = if step.enabled { step.work.clone() } else { Node::Empty };
            nodes.push(self.add(graph, &before, work)?);
        }
        Ok(graph)
    }

    /// Adds references to user objects.
    pub fn hold(&mut self, users: &BTreeMap<u64, u64>) {
        for (object, count) in users {
            if let Some(object) = self.objects.get_mut(*object) {
                object.references += count;
            }
        }
    }

    /// Takes references away; answers the objects that nobody refers to any more.
    pub fn let_go(&mut self, users: &BTreeMap<u64, u64>) -> Vec<u64> {
        let mut over = Vec::new();
        for (&handle, &count) in users {
            let Some(object) = self.objects.get_mut(handle) else { continue };
            object.references = object.references.saturating_sub(count);
            if object.references == 0 {
                over.push(handle);
            }
        }
        over
    }
}
