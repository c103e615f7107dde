//! Memory nodes: allocations and frees that are part of a graph.
//!
//! A launch gives the bytes out, and takes them away, as operations of its streams; the checker
//! judges them as it does those of a memory pool. A graph with such nodes is one of a kind: it
//! cannot be cloned, embedded, taken apart, or be in two executables.

use super::memory::{announce, forget, note_freed};
use super::node::add;
use super::node_types::AllocationNode;
use super::pool::{check, job};
use super::{exports, get, put, require};
use crate::call::Call;
use crate::checker::{Access, AccessKind};
use crate::graphs::{Node, Step};
use crate::memory::graph::{Asked, FreedBy};
use crate::memory::pool::Mark;
use crate::submit::StreamRef;
use crate::types::{AccessDescriptor, Code, LOCATION_DEVICE, Outcome, code};
use std::mem::offset_of;

exports! {
    fn cuGraphAddMemAllocNode(
        node: *mut u64, graph: u64, after: *const u64, count: usize, what: *mut AllocationNode,
    ) |call| {
        add(call, node, graph, after, count, |call| allocation(call, what))
    };
    fn cuGraphAddMemFreeNode(
        node: *mut u64, graph: u64, after: *const u64, count: usize, address: u64,
    ) |call| {
        add(call, node, graph, after, count, |call| free(call, graph, address))
    };
    fn cuGraphMemAllocNodeGetParams(node: u64, what: *mut AllocationNode) |call| {
        call.started()?;
        let Node::Allocate(address) = *call.graphs.node(node)? else {
            return Err(code::INVALID_VALUE);
        };
        let Asked { pool, access, bytes } = &call.memory.graphs.get(address)?.asked;
        let (access, access_count) = (access.as_ptr() as u64, access.len());
        put(what, AllocationNode { pool: *pool, access, access_count, bytes: *bytes as usize, address })
    };
    fn cuGraphMemFreeNodeGetParams(node: u64, address: *mut u64) |call| {
        call.started()?;
        match *call.graphs.node(node)? {
            Node::Free(of) => put(address, of),
            _ => Err(code::INVALID_VALUE),
        }
    };
    fn cuDeviceGraphMemTrim(device: i32) |call| {
        let device = call.device(device)?;
        let idle = idle(call, |a| a.asked.device() == device);
        idle.into_iter().for_each(|address| take_bytes(call, address));
        Ok(())
    };
    fn cuDeviceGetGraphMemAttribute(device: i32, attribute: i32, value: *mut u64) |call| {
        let device = call.device(device)?;
        let levels = *call.memory.graphs.levels(device);
        put(value, match attribute {
            0 => levels.used.now,
            1 => levels.used.high,
            2 => levels.reserved.now,
            3 => levels.reserved.high,
            _ => return Err(code::INVALID_VALUE),
        })
    };
    fn cuDeviceSetGraphMemAttribute(device: i32, attribute: i32, value: *const u64) |call| {
        let device = call.device(device)?;
        require(get(value)? == 0, code::INVALID_VALUE)?;
        let levels = call.memory.graphs.levels(device);
        match attribute {
            1 => levels.used.reset(),
            3 => levels.reserved.reset(),
            _ => return Err(code::INVALID_VALUE),
        }
        Ok(())
    };
}

/// An allocation node; its address is written into its description.
pub fn allocation(call: &mut Call, what: *mut AllocationNode) -> Result<Node, Code> {
    let AllocationNode { pool, access, access_count, bytes, .. } = get(what)?;
    require(pool.handle_types == 0, code::NOT_SUPPORTED)?;
    check(call, &pool)?;
    require(access_count <= call.devices.len(), code::INVALID_VALUE)?;
    let read = |i| get((access as *const AccessDescriptor).wrapping_add(i));
    let access = (0..access_count).map(read).collect::<Result<Vec<_>, _>>()?;
    for one in &access {
        let right = one.location.kind == LOCATION_DEVICE && matches!(one.flags, 0 | 1 | 3);
        require(right, code::INVALID_VALUE)?;
        call.device(one.location.id)?;
    }
    let node = allocate(call, Asked { pool, access, bytes: bytes as u64 })?;
    if let Node::Allocate(address) = node {
        let place = what.wrapping_byte_add(offset_of!(AllocationNode, address));
        put(place.cast(), address)?;
    }
    Ok(node)
}

fn allocate(call: &mut Call, asked: Asked) -> Result<Node, Code> {
    require(asked.bytes > 0, code::INVALID_VALUE)?;
    // An address may stand for more than the device has now, not for more than it ever has.
    let most = call.memory.budgets[asked.device() as usize].total;
    require(asked.bytes <= most, code::OUT_OF_MEMORY)?;
    call.memory.graph_address(asked).map(Node::Allocate)
}

/// A free node of a graph.
pub fn free(call: &mut Call, graph: u64, address: u64) -> Result<Node, Code> {
    let found = call.memory.graphs.get(address)?;
    let own = call.graphs.of(found.node) == Ok(graph);
    let wrong = if own { FreedBy::Other } else { FreedBy::Owner };
    require(found.freed_by != wrong, code::INVALID_VALUE)?;
    let twice = |(_, node): (u64, &Node)| matches!(*node, Node::Free(of) if of == address);
    require(!call.graphs.get(graph)?.graph.nodes().any(twice), code::INVALID_VALUE)?;
    let by = if own { FreedBy::Owner } else { FreedBy::Other };
    call.memory.graphs.get_mut(address)?.freed_by = by;
    Ok(Node::Free(address))
}

/// An allocation node is in its graph.
pub fn added(call: &mut Call, node: u64) {
    if let Ok(&Node::Allocate(address)) = call.graphs.node(node)
        && let Ok(allocation) = call.memory.graphs.get_mut(address)
    {
        allocation.node = node;
    }
}

/// `cuMemAllocAsync` from a pool on a stream that is captured.
pub fn capture_allocation(
    call: &mut Call,
    stream: &StreamRef,
    pool: u64,
    bytes: u64,
) -> Result<u64, Code> {
    let found = call.memory.pool(pool).ok_or(code::INVALID_VALUE)?;
    let (mut properties, readers, writers) = (found.properties, found.readers, found.writers);
    properties.handle_types = 0;
    let rights = |device: u32| (readers >> device & 1 | (writers >> device & 1) << 1) as i32;
    let access = (0..call.devices.len() as u32).filter(|d| rights(*d) != 0);
    let describe = |device| AccessDescriptor {
        location: crate::types::Location { kind: LOCATION_DEVICE, id: device as i32 },
        flags: rights(device),
    };
    let access = access.map(describe).collect();
    let node = allocate(call, Asked { pool: properties, access, bytes })?;
    let Node::Allocate(address) = node else { return Err(code::INVALID_VALUE) };
    let node = call.capture_node(stream, node)?;
    added(call, node);
    Ok(address)
}

/// `cuMemFreeAsync` on a stream that is captured.
pub fn capture_free(call: &mut Call, stream: &StreamRef, address: u64) -> Outcome {
    let graph = call.captures.of(stream.key).map(|s| s.graph).ok_or(code::ILLEGAL_STATE)?;
    let node = free(call, graph, address)?;
    call.capture_node(stream, node).map(|_| ())
}

/// Whether there are memory nodes among these.
pub fn are_here<'a>(mut nodes: impl Iterator<Item = &'a Node>) -> bool {
    nodes.any(|node| matches!(node, Node::Allocate(_) | Node::Free(_)))
}

/// Fails for a graph with memory nodes.
pub fn none_in(call: &Call, graph: u64) -> Outcome {
    let nodes = call.graphs.get(graph)?.graph.nodes();
    require(!are_here(nodes.map(|(_, node)| node)), code::NOT_SUPPORTED)
}

/// Fails if a graph with memory nodes is in an executable already.
pub fn instantiable(call: &Call, graph: u64) -> Outcome {
    let here = |step: &Step| call.graphs.of(step.node) == Ok(graph);
    let in_use = call.graphs.execs.iter().any(|(_, exec)| exec.steps.iter().any(here));
    if in_use { none_in(call, graph) } else { Ok(()) }
}

/// The addresses that steps allocate.
fn allocated(steps: &[Step]) -> impl Iterator<Item = u64> {
    steps.iter().filter_map(|step| match step.work {
        Node::Allocate(address) => Some(address),
        _ => None,
    })
}

/// Puts bytes behind all that steps allocate.
pub fn back(call: &mut Call, steps: &[Step]) -> Outcome {
    for address in allocated(steps) {
        if let Some((object, bytes)) = call.memory.back_graph_memory(address)? {
            announce(call, object, bytes, || format!("{bytes} bytes of graphs at {address:#x}"));
        }
    }
    Ok(())
}

/// Whether memory is ready for a launch: each allocation is free and each free has something to free,
/// in the order of the steps, and there are bytes. `frees`: what an earlier launch left is freed first.
pub fn ready(call: &mut Call, steps: &[Step], frees: bool) -> Outcome {
    let live = |address| call.memory.graphs.get(address).map(|found| found.live);
    let mut now = std::collections::HashMap::new();
    for address in allocated(steps) {
        let left = live(address)?;
        require(frees || !left, code::INVALID_VALUE)?;
        now.insert(address, false);
    }
    for step in steps {
        let (address, begins) = match step.work {
            Node::Allocate(address) => (address, true),
            Node::Free(address) => (address, false),
            _ => continue,
        };
        let was = now.get(&address).copied().map_or_else(|| live(address), Ok)?;
        require(was != begins, code::INVALID_VALUE)?;
        now.insert(address, begins);
    }
    back(call, steps)
}

/// Frees what an earlier launch left.
pub fn free_left(call: &mut Call, stream: &StreamRef, steps: &[Step]) -> Outcome {
    for address in allocated(steps) {
        if call.memory.graphs.get(address)?.live {
            take_back(call, stream, address, "the free before a launch")?;
        }
    }
    Ok(())
}

/// The accesses of all its bytes.
fn accesses(call: &Call, address: u64, kind: AccessKind) -> Result<Vec<Access>, Code> {
    let found = call.memory.graphs.get(address)?;
    let bytes = found.asked.rounded();
    let access = |object| Access { object, offset: 0, bytes, kind };
    let on = call.engine.checker_ref().is_on();
    Ok(found.object.filter(|_| on).map(access).into_iter().collect())
}

/// An allocation node runs: the bytes are given out.
pub fn give_out(call: &mut Call, stream: &StreamRef, address: u64, label: &str) -> Outcome {
    let accesses = accesses(call, address, AccessKind::Allocate)?;
    let thread = call.key();
    if let Some(mark) = call.memory.revive_graph_memory(address) {
        if mark.stream != stream.key {
            call.engine.wait_event(thread, stream.key, mark.event);
        }
        call.engine.destroy_event(mark.event);
    }
    let job = job(call, stream, accesses, || format!("{label} = {address:#x}"));
    call.engine.submit(thread, stream.key, job);
    Ok(())
}

/// A free in stream order, of a node or of the program.
pub fn take_back(call: &mut Call, stream: &StreamRef, address: u64, label: &str) -> Outcome {
    let accesses = accesses(call, address, AccessKind::Destroy)?;
    let thread = call.key();
    let was = accesses.first().map(|it| (it.object, it.offset));
    let context = call.contexts.get(&stream.context).ok_or(code::INVALID_CONTEXT)?.key;
    let bytes = call.memory.graphs.get(address)?.asked.bytes;
    let job = job(call, stream, accesses, || format!("{label} of {address:#x}"));
    let event = call.engine.create_event(context);
    call.engine.submit_and_record(thread, stream.key, job, event);
    note_freed(call, (address, bytes), was);
    call.memory.end_graph_memory(address, Some(Mark { event, stream: stream.key }));
    Ok(())
}

/// `cuMemFreeAsync`: not of what the graph itself frees.
pub fn free_on(call: &mut Call, stream: &StreamRef, address: u64) -> Outcome {
    outlives(call, address)?;
    take_back(call, stream, address, "cuMemFreeAsync")
}

/// `cuMemFree`: nothing is waited for.
pub fn free_now(call: &mut Call, address: u64) -> Outcome {
    outlives(call, address)?;
    let accesses = accesses(call, address, AccessKind::Destroy)?;
    let thread = call.key();
    let was = accesses.first().map(|it| (it.object, it.offset));
    let label = format!("{} of {address:#x}", call.function);
    call.engine.host_access(thread, &accesses, &label);
    let bytes = call.memory.graphs.get(address)?.asked.bytes;
    note_freed(call, (address, bytes), was);
    call.memory.end_graph_memory(address, None);
    Ok(())
}

fn outlives(call: &Call, address: u64) -> Outcome {
    let by = call.memory.graphs.get(address)?.freed_by;
    require(by != FreedBy::Owner, code::INVALID_VALUE)
}

/// The allocations with these properties that are not live and whose last free is done.
fn idle(call: &Call, wanted: impl Fn(&crate::memory::graph::Allocation) -> bool) -> Vec<u64> {
    let done = |mark: &Mark| call.engine.is_done(mark.event);
    let all = call.memory.graphs.all.iter();
    let idle = all.filter(|(_, a)| !a.live && a.mark.as_ref().is_none_or(done) && wanted(a));
    idle.map(|(address, _)| *address).collect()
}

fn take_bytes(call: &mut Call, address: u64) {
    if let Ok(found) = call.memory.graphs.get_mut(address)
        && let Some(mark) = found.mark.take()
    {
        call.engine.destroy_event(mark.event);
    }
    let gone = call.memory.unback_graph_memory(address);
    forget(call, gone);
}

/// Ends allocations that no graph, no executable and not the program has any more.
pub fn sweep(call: &mut Call) {
    if call.memory.graphs.all.is_empty() {
        return;
    }
    let execs = call.graphs.execs.iter().flat_map(|(_, exec)| allocated(&exec.steps));
    let launched: std::collections::HashSet<u64> = execs.collect();
    for address in idle(call, |a| call.graphs.of(a.node).is_err()) {
        if !launched.contains(&address) {
            take_bytes(call, address);
            call.memory.forget_graph_memory(address);
        }
    }
}
