//! The nodes of a graph, made one by one.
//!
//! What a node does is read from its description when it is made ([`Node`]): later changes of the
//! program's structures, and of the parameters of a kernel, do not touch it.

use super::capture::{list, plain_edges};
use super::context::given_or_current;
use super::copy::Copying;
use super::fill::Rect;
use super::graph_memory::{self, free, none_in};
use super::node_types::{
    AllocationNode, AnyNode, CopyNode, FillNode, FillNodeV2, HostNode, KernelNode, KernelNodeV2,
    Memcpy3D,
};
use super::stream::HOST_NS;
use super::{exports, function, get, launch, put, require, wanted};
use crate::call::Call;
use crate::graphs::{Node, Owner, Task, refusal};
use crate::types::{Code, Outcome, code};
use crate::work::{Body, HostFunction};
use std::ptr::null;

exports! {
    fn cuGraphAddEmptyNode(node: *mut u64, graph: u64, after: *const u64, count: usize) |call| {
        add(call, node, graph, after, count, |_| Ok(Node::Empty))
    };
    fn cuGraphAddKernelNode(
        node: *mut u64, graph: u64, after: *const u64, count: usize, what: *const KernelNode,
    ) |call| {
        add(call, node, graph, after, count, |call| kernel(call, older(what)?))
    };
    fn cuGraphAddKernelNode_v2(
        node: *mut u64, graph: u64, after: *const u64, count: usize, what: *const KernelNodeV2,
    ) |call| {
        add(call, node, graph, after, count, |call| kernel(call, get(what)?))
    };
    fn cuGraphAddMemcpyNode(
        node: *mut u64, graph: u64, after: *const u64, count: usize, what: *const Memcpy3D,
        context: u64,
    ) |call| {
        add(call, node, graph, after, count, |call| copy(call, get(what)?, context))
    };
    fn cuGraphAddMemsetNode(
        node: *mut u64, graph: u64, after: *const u64, count: usize, what: *const FillNode,
        context: u64,
    ) |call| {
        add(call, node, graph, after, count, |call| fill(call, get(what)?, context))
    };
    fn cuGraphAddHostNode(
        node: *mut u64, graph: u64, after: *const u64, count: usize, what: *const HostNode,
    ) |call| {
        add(call, node, graph, after, count, |call| host(call, get(what)?))
    };
    fn cuGraphAddChildGraphNode(
        node: *mut u64, graph: u64, after: *const u64, count: usize, inner: u64,
    ) |call| {
        add(call, node, graph, after, count, |call| child(call, inner))
    };
    fn cuGraphAddEventRecordNode(
        node: *mut u64, graph: u64, after: *const u64, count: usize, event: u64,
    ) |call| {
        add(call, node, graph, after, count, |call| record(call, event))
    };
    fn cuGraphAddEventWaitNode(
        node: *mut u64, graph: u64, after: *const u64, count: usize, event: u64,
    ) |call| {
        add(call, node, graph, after, count, |call| wait(call, event))
    };
    fn cuGraphAddNode(
        node: *mut u64, graph: u64, after: *const u64, count: usize, what: *mut AnyNode,
    ) |call| {
        add_any(call, node, graph, (after, null(), count), what)
    };
    fn cuGraphAddNode_v2(
        node: *mut u64, graph: u64, after: *const u64, data: *const u64, count: usize,
        what: *mut AnyNode,
    ) |call| {
        add_any(call, node, graph, (after, data, count), what)
    };
}

/// Adds a node to a graph; it is made when all else is known to be right.
pub fn add(
    call: &mut Call,
    to: *mut u64,
    graph: u64,
    after: *const u64,
    count: usize,
    make: impl FnOnce(&mut Call) -> Result<Node, Code>,
) -> Outcome {
    call.started()?;
    wanted(to)?;
    let after = list(after, count)?;
    call.graphs.get(graph)?.graph.check_list(&after).map_err(refusal)?;
    let work = make(call)?;
    let node = call.graphs.add(graph, &after, work)?;
    graph_memory::added(call, node);
    put(to, node)
}

fn add_any(
    call: &mut Call,
    to: *mut u64,
    graph: u64,
    (after, data, count): (*const u64, *const u64, usize),
    what: *mut AnyNode,
) -> Outcome {
    call.started()?;
    plain_edges(data, count)?;
    add(call, to, graph, after, count, |call| match kind(what)? {
        10 => graph_memory::allocation(call, body::<AllocationNode>(what).cast_mut()),
        11 => free(call, graph, get(body(what))?),
        _ => any(call, what),
    })
}

/// What a description asks for, of any kind that can be changed later.
pub fn any(call: &mut Call, what: *const AnyNode) -> Result<Node, Code> {
    match kind(what)? {
        0 => kernel(call, get(body(what))?),
        1 => {
            let CopyNode { flags, reserved, context, copy: what } = get(body(what))?;
            require(flags == 0 && reserved == 0, code::INVALID_VALUE)?;
            copy(call, what, context)
        }
        2 => {
            let FillNodeV2 { plain, context } = get(body(what))?;
            fill(call, plain, context)
        }
        3 => host(call, get(body(what))?),
        4 => {
            // The second number would move the graph into the node.
            let [inner, moves]: [u64; 2] = get(body(what))?;
            require(moves as u32 == 0, code::NOT_SUPPORTED)?;
            child(call, inner)
        }
        5 => Ok(Node::Empty),
        6 => wait(call, get(body(what))?),
        7 => record(call, get(body(what))?),
        8..=13 => Err(code::NOT_SUPPORTED),
        _ => Err(code::INVALID_VALUE),
    }
}

/// The kind that is asked for.
pub fn kind(what: *const AnyNode) -> Result<i32, Code> {
    let head = get(what)?;
    require(head.reserved == [0; 3] && head.last == 0, code::INVALID_VALUE)?;
    Ok(head.kind)
}

/// What follows the kind.
pub fn body<T>(what: *const AnyNode) -> *const T {
    what.wrapping_byte_add(std::mem::offset_of!(AnyNode, body)).cast()
}

/// The older form of a kernel's description, as the newer one.
pub fn older(what: *const KernelNode) -> Result<KernelNodeV2, Code> {
    Ok(KernelNodeV2 { plain: get(what)?, ..KernelNodeV2::default() })
}

/// The launch of a kernel.
pub fn kernel(call: &mut Call, what: KernelNodeV2) -> Result<Node, Code> {
    let KernelNodeV2 { plain, kernel, context } = what;
    let named = if plain.function == 0 { kernel } else { plain.function };
    if plain.function == 0 {
        let current = call.context()?;
        require(context == 0 || context == current, code::NOT_SUPPORTED)?;
    }
    let function = function::resolve(call, named).map_err(|_| code::INVALID_VALUE)?;
    let context = call.functions[function].context;
    let sizes = (plain.grid, plain.block, plain.shared);
    let (parameters, extra) = (plain.parameters as *const *const u8, plain.extra as *const u64);
    Ok(Node::Work(launch::ask(call, function, sizes, parameters, extra)?.task(context)))
}

/// A copy, done in a context.
pub fn copy(call: &mut Call, what: Memcpy3D, context: u64) -> Result<Node, Code> {
    let context = given_or_current(call, context)?;
    require(what.width > 0 && what.height > 0 && what.depth > 0, code::INVALID_VALUE)?;
    let what = what.flat().ok_or(code::NOT_SUPPORTED)?;
    Ok(Node::Work(Copying::of(&what)?.task(call, context)?))
}

/// A fill, done in a context.
pub fn fill(call: &mut Call, what: FillNode, context: u64) -> Result<Node, Code> {
    let context = given_or_current(call, context)?;
    let FillNode { at, pitch, value, size, width, rows } = what;
    require(at != 0 && width > 0 && rows > 0, code::INVALID_VALUE)?;
    require(matches!(size, 1 | 2 | 4), code::INVALID_VALUE)?;
    let pitch = if rows == 1 { width.saturating_mul(size as usize) } else { pitch };
    let rect = Rect::plane(at, pitch, width, rows, size.into());
    Ok(Node::Work(rect.task(value, context)?))
}

/// A function of the program.
pub fn host(call: &mut Call, what: HostNode) -> Result<Node, Code> {
    let HostNode { f, data } = what;
    require(f != 0, code::INVALID_VALUE)?;
    Ok(Node::Work(Task {
        context: call.context()?,
        body: Body::Host(HostFunction::Function { f, data }),
        duration_ns: HOST_NS,
        label: format!("host function {f:#x}({data:#x})"),
        kernel: None,
    }))
}

/// All that a graph does; the node has a copy of it.
fn child(call: &mut Call, graph: u64) -> Result<Node, Code> {
    none_in(call, graph)?;
    let entry = call.graphs.get(graph)?;
    require(entry.owner != Owner::Capture && !entry.captured_into, code::INVALID_VALUE)?;
    call.graphs.duplicate(graph, Owner::Node).map(Node::Child)
}

/// A record of an event.
pub fn record(call: &mut Call, event: u64) -> Result<Node, Code> {
    call.events.get(event).map(|_| Node::EventRecord(event)).ok_or(code::INVALID_VALUE)
}

/// A wait for an event.
pub fn wait(call: &mut Call, event: u64) -> Result<Node, Code> {
    call.events.get(event).map(|_| Node::EventWait(event)).ok_or(code::INVALID_VALUE)
}
