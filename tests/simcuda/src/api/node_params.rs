//! What nodes do: shown, and changed, in a graph or in an executable one.
//!
//! A node never changes its kind. In an executable graph it keeps its context too; a copy or fill
//! there has one row, and each side of a copy stays with the host or with devices.

use super::graph_exec::{context_of, differs, step};
use super::node::{any, body, copy, fill, host, kernel, kind, older, record, wait};
use super::node_types::{AnyNode, FillNode, HostNode, KernelNode, KernelNodeV2, Memcpy3D, Side3D};
use super::{exports, get, put, require};
use crate::call::Call;
use crate::graphs::{Node, Task};
use crate::types::{Code, Outcome, code};
use crate::work::{Body, HostFunction, Plane};

exports! {
    fn cuGraphKernelNodeGetParams(node: u64, what: *mut KernelNode) |call| {
        put(what, kernel_of(call, node)?.plain)
    };
    fn cuGraphKernelNodeGetParams_v2(node: u64, what: *mut KernelNodeV2) |call| {
        put(what, kernel_of(call, node)?)
    };
    fn cuGraphKernelNodeSetParams(node: u64, what: *const KernelNode) |call| {
        change(call, node, |call| kernel(call, older(what)?))
    };
    fn cuGraphKernelNodeSetParams_v2(node: u64, what: *const KernelNodeV2) |call| {
        change(call, node, |call| kernel(call, get(what)?))
    };
    fn cuGraphExecKernelNodeSetParams(exec: u64, node: u64, what: *const KernelNode) |call| {
        change_step(call, exec, node, |call| kernel(call, older(what)?))
    };
    fn cuGraphExecKernelNodeSetParams_v2(exec: u64, node: u64, what: *const KernelNodeV2) |call| {
        change_step(call, exec, node, |call| kernel(call, get(what)?))
    };

    fn cuGraphMemcpyNodeGetParams(node: u64, what: *mut Memcpy3D) |call| {
        put(what, copy_of(call, node)?)
    };
    fn cuGraphMemcpyNodeSetParams(node: u64, what: *const Memcpy3D) |call| {
        let context = task(call, node)?.context;
        change(call, node, |call| copy(call, get(what)?, context))
    };
    fn cuGraphExecMemcpyNodeSetParams(
        exec: u64, node: u64, what: *const Memcpy3D, context: u64,
    ) |call| {
        change_step(call, exec, node, |call| copy(call, get(what)?, context))
    };

    fn cuGraphMemsetNodeGetParams(node: u64, what: *mut FillNode) |call| {
        put(what, fill_of(call, node)?)
    };
    fn cuGraphMemsetNodeSetParams(node: u64, what: *const FillNode) |call| {
        let context = task(call, node)?.context;
        change(call, node, |call| fill(call, get(what)?, context))
    };
    fn cuGraphExecMemsetNodeSetParams(
        exec: u64, node: u64, what: *const FillNode, context: u64,
    ) |call| {
        change_step(call, exec, node, |call| fill(call, get(what)?, context))
    };

    fn cuGraphHostNodeGetParams(node: u64, what: *mut HostNode) |call| {
        match task(call, node)?.body {
            Body::Host(HostFunction::Function { f, data }) => put(what, HostNode { f, data }),
            _ => Err(code::INVALID_VALUE),
        }
    };
    fn cuGraphHostNodeSetParams(node: u64, what: *const HostNode) |call| {
        change(call, node, |call| host(call, get(what)?))
    };
    fn cuGraphExecHostNodeSetParams(exec: u64, node: u64, what: *const HostNode) |call| {
        change_step(call, exec, node, |call| host(call, get(what)?))
    };

    fn cuGraphEventRecordNodeGetEvent(node: u64, event: *mut u64) |call| {
        match *found(call, node)? {
            Node::EventRecord(of) => put(event, of),
            _ => Err(code::INVALID_VALUE),
        }
    };
    fn cuGraphEventRecordNodeSetEvent(node: u64, event: u64) |call| {
        change(call, node, |call| record(call, event))
    };
    fn cuGraphExecEventRecordNodeSetEvent(exec: u64, node: u64, event: u64) |call| {
        change_step(call, exec, node, |call| record(call, event))
    };
    fn cuGraphEventWaitNodeGetEvent(node: u64, event: *mut u64) |call| {
        match *found(call, node)? {
            Node::EventWait(of) => put(event, of),
            _ => Err(code::INVALID_VALUE),
        }
    };
    fn cuGraphEventWaitNodeSetEvent(node: u64, event: u64) |call| {
        change(call, node, |call| wait(call, event))
    };
    fn cuGraphExecEventWaitNodeSetEvent(exec: u64, node: u64, event: u64) |call| {
        change_step(call, exec, node, |call| wait(call, event))
    };

    fn cuGraphChildGraphNodeGetGraph(node: u64, graph: *mut u64) |call| {
        match *found(call, node)? {
            Node::Child(inner) => put(graph, inner),
            _ => Err(code::INVALID_VALUE),
        }
    };
    fn cuGraphExecChildGraphNodeSetParams(exec: u64, node: u64, graph: u64) |call| {
        change_child(call, exec, node, graph)
    };

    fn cuGraphNodeSetParams(node: u64, what: *const AnyNode) |call| {
        call.started()?;
        require(kind(what)? != CHILD, code::INVALID_VALUE)?;
        change(call, node, |call| any(call, what))
    };
    fn cuGraphExecNodeSetParams(exec: u64, node: u64, what: *const AnyNode) |call| {
        call.started()?;
        match kind(what)? {
            CHILD => change_child(call, exec, node, get(body(what))?),
            _ => change_step(call, exec, node, |call| any(call, what)),
        }
    };
}

/// `CU_GRAPH_NODE_TYPE_GRAPH`.
const CHILD: i32 = 4;

fn found(call: &Call, node: u64) -> Result<&Node, Code> {
    call.started()?;
    call.graphs.node(node)
}

fn task(call: &Call, node: u64) -> Result<&Task, Code> {
    match found(call, node)? {
        Node::Work(task) => Ok(task),
        _ => Err(code::INVALID_VALUE),
    }
}

/// A kernel's launch. Its parameters lie in the driver's own memory, as long as they are not changed;
/// none are given of a kernel whose parameters are not known.
fn kernel_of(call: &mut Call, node: u64) -> Result<KernelNodeV2, Code> {
    call.started()?;
    let Node::Work(Task { context, kernel: Some(kernel), .. }) = call.graphs.node_mut(node)? else {
        return Err(code::INVALID_VALUE);
    };
    kernel.pointers = kernel.values.iter().map(|value| std::ptr::from_ref(value) as u64).collect();
    let none = kernel.pointers.is_empty();
    let plain = KernelNode {
        function: kernel.function,
        grid: kernel.grid,
        block: kernel.block,
        shared: kernel.shared,
        parameters: if none { 0 } else { kernel.pointers.as_ptr() as u64 },
        extra: 0,
    };
    Ok(KernelNodeV2 { plain, kernel: 0, context: *context })
}

fn copy_of(call: &Call, node: u64) -> Result<Memcpy3D, Code> {
    let Body::Copy { to, from, width, rows, .. } = task(call, node)?.body else {
        return Err(code::INVALID_VALUE);
    };
    let side = |p: Plane| {
        let plain = Side3D { pitch: p.pitch as usize, height: rows as usize, ..Side3D::default() };
        match call.memory.is_device_address(p.at) {
            true => Side3D { kind: 2, device: p.at, ..plain },
            false => Side3D { kind: 1, host: p.at, ..plain },
        }
    };
    let (width, height) = (width as usize, rows as usize);
    Ok(Memcpy3D { src: side(from), dst: side(to), width, height, depth: 1 })
}

fn fill_of(call: &Call, node: u64) -> Result<FillNode, Code> {
    let Body::Fill { at, pitch, width, rows, size, value } = task(call, node)?.body else {
        return Err(code::INVALID_VALUE);
    };
    let (pitch, width, rows) = (pitch as usize, width as usize, rows as usize);
    Ok(FillNode { at, pitch, value, size: size as u32, width, rows })
}

/// Changes what a node does.
fn change(
    call: &mut Call,
    node: u64,
    make: impl FnOnce(&mut Call) -> Result<Node, Code>,
) -> Outcome {
    let was = found(call, node)?.kind();
    let work = make(call)?;
    require(work.kind() == was, code::INVALID_VALUE)?;
    *call.graphs.node_mut(node)? = work;
    Ok(())
}

/// Changes what a node of an executable graph does in later launches.
fn change_step(
    call: &mut Call,
    exec: u64,
    node: u64,
    make: impl FnOnce(&mut Call) -> Result<Node, Code>,
) -> Outcome {
    let old = step(call, exec, node)?.work.clone();
    let work = make(call)?;
    let same = work.kind() == old.kind() && context_of(&work) == context_of(&old);
    require(same && shape(call, &work)? == shape(call, &old)?, code::INVALID_VALUE)?;
    step(call, exec, node)?.work = work;
    Ok(())
}

/// Which sides of a copy or fill belong to devices; it may have one row only.
fn shape(call: &Call, work: &Node) -> Result<Option<(bool, bool)>, Code> {
    let device = |at| call.memory.is_device_address(at);
    let Node::Work(task) = work else { return Ok(None) };
    let (rows, sides) = match task.body {
        Body::Copy { to, from, rows, .. } => (rows, (device(to.at), device(from.at))),
        Body::Fill { at, rows, .. } => (rows, (device(at), true)),
        _ => return Ok(None),
    };
    require(rows == 1, code::INVALID_VALUE)?;
    Ok(Some(sides))
}

/// Puts what a graph of the same shape does into the executable's copy of a child graph.
fn change_child(call: &mut Call, exec: u64, node: u64, graph: u64) -> Outcome {
    let Node::Child(inner) = *found(call, node)? else { return Err(code::INVALID_VALUE) };
    let steps = |graph| call.graphs.flatten(graph).map_err(|_| code::INVALID_VALUE);
    call.graphs.get(graph)?;
    let (old, new) = (steps(inner)?, steps(graph)?);
    require(differs(&old, &new).is_none(), code::INVALID_VALUE)?;
    for was in &old {
        step(call, exec, was.node)?;
    }
    for (was, is) in old.iter().zip(new) {
        step(call, exec, was.node)?.work = is.work;
    }
    Ok(())
}
