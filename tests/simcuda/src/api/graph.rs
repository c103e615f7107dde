//! Graphs: made, destroyed, copied, looked at; and user objects.

use super::capture::{list, plain_edges};
use super::graph_memory::{none_in, sweep};
use super::{exports, get, put, require, wanted};
use crate::call::Call;
use crate::graphs::{Node, Owner, UserObject, refusal};
use crate::hand_off::apart;
use crate::types::{Code, Outcome, code};
use crate::work::HostFunction;
use std::fmt::Write as _;
use std::ptr::null_mut;

exports! {
    fn cuGraphCreate(graph: *mut u64, flags: u32) |call| {
        call.started()?;
        wanted(graph)?;
        require(flags == 0, code::INVALID_VALUE)?;
        let handle = call.graphs.create(Owner::Program);
        put(graph, handle)
    };
    fn cuGraphDestroy(graph: u64) |call| {
        call.started()?;
        let entry = call.graphs.get(graph)?;
        let free = entry.owner == Owner::Program && !entry.captured_into;
        require(free, code::INVALID_VALUE)?;
        let over = call.graphs.remove(graph);
        destroy_objects(call, over);
        sweep(call);
        Ok(())
    };
    fn cuGraphClone(clone: *mut u64, original: u64) |call| {
        call.started()?;
        wanted(clone)?;
        none_in(call, original)?;
        let handle = call.graphs.duplicate(original, Owner::Program)?;
        put(clone, handle)
    };
    fn cuGraphNodeFindInClone(found: *mut u64, original: u64, clone: u64) |call| {
        call.started()?;
        let entry = call.graphs.get(clone)?;
        let copy = entry.clone_of.get(&original).copied();
        let there = copy.filter(|c| entry.graph.get(*c).is_some());
        put(found, there.ok_or(code::INVALID_VALUE)?)
    };
    fn cuGraphGetNodes(graph: u64, nodes: *mut u64, count: *mut usize) |call| {
        call.started()?;
        let all: Vec<u64> = call.graphs.get(graph)?.graph.nodes().map(|(n, _)| n).collect();
        show(&all, nodes, count)
    };
    fn cuGraphGetRootNodes(graph: u64, nodes: *mut u64, count: *mut usize) |call| {
        call.started()?;
        let roots = call.graphs.get(graph)?.graph.roots();
        show(&roots, nodes, count)
    };
    fn cuGraphGetEdges(graph: u64, from: *mut u64, to: *mut u64, count: *mut usize) |call| {
        edges(call, graph, from, to, null_mut(), count)
    };
    fn cuGraphGetEdges_v2(
        graph: u64, from: *mut u64, to: *mut u64, data: *mut u64, count: *mut usize,
    ) |call| {
        edges(call, graph, from, to, data, count)
    };
    fn cuGraphNodeGetDependencies(node: u64, nodes: *mut u64, count: *mut usize) |call| {
        neighbours(call, node, false, nodes, null_mut(), count)
    };
    fn cuGraphNodeGetDependencies_v2(
        node: u64, nodes: *mut u64, data: *mut u64, count: *mut usize,
    ) |call| {
        neighbours(call, node, false, nodes, data, count)
    };
    fn cuGraphNodeGetDependentNodes(node: u64, nodes: *mut u64, count: *mut usize) |call| {
        neighbours(call, node, true, nodes, null_mut(), count)
    };
    fn cuGraphNodeGetDependentNodes_v2(
        node: u64, nodes: *mut u64, data: *mut u64, count: *mut usize,
    ) |call| {
        neighbours(call, node, true, nodes, data, count)
    };
    fn cuGraphNodeGetType(node: u64, kind: *mut i32) |call| {
        call.started()?;
        put(kind, call.graphs.node(node)?.kind())
    };
    fn cuGraphAddDependencies(
        graph: u64, from: *const u64, to: *const u64, count: usize,
    ) |call| connect(call, graph, from, to, count, true);
    fn cuGraphAddDependencies_v2(
        graph: u64, from: *const u64, to: *const u64, data: *const u64, count: usize,
    ) |call| {
        plain_edges(data, count)?;
        connect(call, graph, from, to, count, true)
    };
    fn cuGraphRemoveDependencies(
        graph: u64, from: *const u64, to: *const u64, count: usize,
    ) |call| connect(call, graph, from, to, count, false);
    fn cuGraphRemoveDependencies_v2(
        graph: u64, from: *const u64, to: *const u64, data: *const u64, count: usize,
    ) |call| {
        plain_edges(data, count)?;
        connect(call, graph, from, to, count, false)
    };
    fn cuGraphDestroyNode(node: u64) |call| {
        call.started()?;
        let graph = call.graphs.of(node)?;
        let entry = call.graphs.get(graph)?;
        let captured = entry.owner == Owner::Capture || entry.captured_into;
        require(!captured, code::INVALID_VALUE)?;
        none_in(call, graph)?;
        let over = call.graphs.remove_node(node)?;
        destroy_objects(call, over);
        Ok(())
    };
    fn cuGraphDebugDotPrint(graph: u64, path: *const u8, flags: u32) |call| {
        call.started()?;
        let path = super::module::text(path)?;
        let text = dot(call, graph, flags)?;
        std::fs::write(path, text).map_err(|_| code::OPERATING_SYSTEM)
    };
    fn cuUserObjectCreate(
        object: *mut u64, pointer: u64, destroy: u64, references: u32, flags: u32,
    ) |call| {
        call.started()?;
        wanted(object)?;
        let counted = references > 0 && references <= i32::MAX as u32;
        require(destroy != 0 && counted && flags == 1, code::INVALID_VALUE)?;
        let references = u64::from(references);
        let handle = call.graphs.objects.insert(UserObject { pointer, destroy, references });
        put(object, handle)
    };
    fn cuUserObjectRetain(object: u64, count: u32) |call| {
        let object = counted(call, object, count)?;
        let found = call.graphs.objects.get_mut(object).ok_or(code::INVALID_VALUE)?;
        found.references += u64::from(count);
        Ok(())
    };
    fn cuUserObjectRelease(object: u64, count: u32) |call| {
        let object = counted(call, object, count)?;
        release(call, object, count)
    };
    fn cuGraphRetainUserObject(graph: u64, object: u64, count: u32, flags: u32) |call| {
        let object = counted(call, object, count)?;
        require(flags <= 1, code::INVALID_VALUE)?;
        *call.graphs.get_mut(graph)?.users.entry(object).or_default() += u64::from(count);
        // Moved references are the graph's now; else it has new ones.
        if flags == 0 && let Some(found) = call.graphs.objects.get_mut(object) {
            found.references += u64::from(count);
        }
        Ok(())
    };
    fn cuGraphReleaseUserObject(graph: u64, object: u64, count: u32) |call| {
        let object = counted(call, object, count)?;
        let users = &mut call.graphs.get_mut(graph)?.users;
        let held = users.get_mut(&object).ok_or(code::INVALID_VALUE)?;
        *held = held.checked_sub(u64::from(count)).ok_or(code::INVALID_VALUE)?;
        if *held == 0 {
            users.remove(&object);
        }
        release(call, object, count)
    };
}

fn counted(call: &Call, object: u64, count: u32) -> Result<u64, Code> {
    call.started()?;
    let known = call.graphs.objects.get(object).is_some();
    require(known && count > 0 && count <= i32::MAX as u32, code::INVALID_VALUE)?;
    Ok(object)
}

fn release(call: &mut Call, object: u64, count: u32) -> Outcome {
    let found = call.graphs.objects.get(object).ok_or(code::INVALID_VALUE)?;
    require(found.references >= u64::from(count), code::INVALID_VALUE)?;
    let over = call.graphs.let_go(&[(object, u64::from(count))].into());
    destroy_objects(call, over);
    Ok(())
}

/// Runs the destructors of objects that nobody refers to any more, on the driver's own thread.
pub fn destroy_objects(call: &mut Call, over: Vec<u64>) {
    for handle in over {
        if let Some(object) = call.graphs.objects.remove(handle) {
            apart(HostFunction::Function { f: object.destroy, data: object.pointer });
        }
    }
}

/// Fills a caller's array as the documentation says: with no array, the count alone; else as many as
/// it has room for, and the rest of it null.
fn show(values: &[u64], to: *mut u64, count: *mut usize) -> Outcome {
    if to.is_null() {
        return put(count, values.len());
    }
    let room = get(count)?;
    for i in 0..room {
        put(to.wrapping_add(i), values.get(i).copied().unwrap_or(0))?;
    }
    put(count, room.min(values.len()))
}

fn edges(
    call: &Call,
    graph: u64,
    from: *mut u64,
    to: *mut u64,
    data: *mut u64,
    count: *mut usize,
) -> Outcome {
    call.started()?;
    wanted(count)?;
    require(from.is_null() == to.is_null(), code::INVALID_VALUE)?;
    require(data.is_null() || !from.is_null(), code::INVALID_VALUE)?;
    let (froms, tos): (Vec<u64>, Vec<u64>) =
        call.graphs.get(graph)?.graph.edges().into_iter().unzip();
    let room = get(count)?;
    show(&froms, from, count)?;
    if !to.is_null() {
        put(count, room)?;
        show(&tos, to, count)?;
    }
    (0..if data.is_null() { 0 } else { room }).try_for_each(|i| put(data.wrapping_add(i), 0))
}

fn neighbours(
    call: &Call,
    node: u64,
    later: bool,
    nodes: *mut u64,
    data: *mut u64,
    count: *mut usize,
) -> Outcome {
    call.started()?;
    wanted(count)?;
    require(data.is_null() || !nodes.is_null(), code::INVALID_VALUE)?;
    let graph = &call.graphs.get(call.graphs.of(node)?)?.graph;
    let list = if later { graph.after(node) } else { graph.before(node) };
    let room = get(count)?;
    show(list.unwrap_or(&[]), nodes, count)?;
    (0..if data.is_null() { 0 } else { room }).try_for_each(|i| put(data.wrapping_add(i), 0))
}

fn connect(
    call: &mut Call,
    graph: u64,
    from: *const u64,
    to: *const u64,
    count: usize,
    add: bool,
) -> Outcome {
    call.started()?;
    let edges: Vec<_> = list(from, count)?.into_iter().zip(list(to, count)?).collect();
    if !add {
        none_in(call, graph)?;
    }
    let graph = &mut call.graphs.get_mut(graph)?.graph;
    if add { graph.connect(&edges) } else { graph.disconnect(&edges) }.map_err(refusal)
}

/// A graph in the language of Graphviz; `flags` 1: with what its nodes do.
fn dot(call: &Call, graph: u64, flags: u32) -> Result<String, Code> {
    const KINDS: [&str; 12] = [
        "KERNEL",
        "MEMCPY",
        "MEMSET",
        "HOST",
        "GRAPH",
        "EMPTY",
        "WAIT_EVENT",
        "EVENT_RECORD",
        "?",
        "?",
        "MEM_ALLOC",
        "MEM_FREE",
    ];
    let entry = call.graphs.get(graph)?;
    let mut text = String::from("digraph dot {\n");
    for (node, work) in entry.graph.nodes() {
        let kind = KINDS.get(work.kind() as usize).copied().unwrap_or("?");
        let detail = match work {
            Node::Work(task) if flags & 1 != 0 => format!("\\n{}", task.label.replace('"', "'")),
            Node::Allocate(at) | Node::Free(at) if flags & 1 != 0 => format!("\\n{at:#x}"),
            _ => String::new(),
        };
        let _ = writeln!(text, "  \"{node:#x}\" [label=\"{kind}{detail}\"];");
    }
    for (from, to) in entry.graph.edges() {
        let _ = writeln!(text, "  \"{from:#x}\" -> \"{to:#x}\";");
    }
    Ok(text + "}\n")
}
