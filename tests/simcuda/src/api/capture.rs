//! Stream capture: its beginning, its end, and what is known of it meanwhile.

use super::{exports, get, put, put_if, require, wanted};
use crate::call::Call;
use crate::capture::mode;
use crate::engine::StreamKind;
use crate::engine::capture::Status;
use crate::graphs::Owner;
use crate::state::Shown;
use crate::submit::StreamRef;
use crate::types::{Code, Outcome, code};
use std::ptr::{null, null_mut};

exports! {
    fn cuStreamBeginCapture, fn cuStreamBeginCapture_ptsz (stream: u64) |call| {
        begin(call, stream, 0, None)
    };
    fn cuStreamBeginCapture_v2, fn cuStreamBeginCapture_v2_ptsz (stream: u64, mode: i32) |call| {
        begin(call, stream, mode, None)
    };
    fn cuStreamBeginCaptureToGraph, fn cuStreamBeginCaptureToGraph_ptsz (
        stream: u64, graph: u64, nodes: *const u64, data: *const u64, count: usize, mode: i32,
    ) |call| {
        let after = list(nodes, count)?;
        plain_edges(data, count)?;
        begin(call, stream, mode, Some((graph, after)))
    };
    fn cuStreamEndCapture, fn cuStreamEndCapture_ptsz (stream: u64, graph: *mut u64) |call| {
        end(call, stream, graph)
    };
    fn cuStreamIsCapturing, fn cuStreamIsCapturing_ptsz (stream: u64, status: *mut i32) |call| {
        wanted(status)?;
        let stream = askable(call, stream)?;
        put(status, number(call.captures.status(stream.key)))
    };
    fn cuStreamGetCaptureInfo, fn cuStreamGetCaptureInfo_ptsz (
        stream: u64, status: *mut i32, id: *mut u64,
    ) |call| {
        info(call, stream, status, id, null_mut(), null_mut(), None, null_mut())
    };
    fn cuStreamGetCaptureInfo_v2, fn cuStreamGetCaptureInfo_v2_ptsz (
        stream: u64, status: *mut i32, id: *mut u64, graph: *mut u64, nodes: *mut *const u64,
        count: *mut usize,
    ) |call| {
        info(call, stream, status, id, graph, nodes, None, count)
    };
    fn cuStreamGetCaptureInfo_v3, fn cuStreamGetCaptureInfo_v3_ptsz (
        stream: u64, status: *mut i32, id: *mut u64, graph: *mut u64, nodes: *mut *const u64,
        data: *mut *const u64, count: *mut usize,
    ) |call| {
        require(data.is_null() || !nodes.is_null(), code::INVALID_VALUE)?;
        info(call, stream, status, id, graph, nodes, Some(data), count)
    };
    fn cuStreamUpdateCaptureDependencies, fn cuStreamUpdateCaptureDependencies_ptsz (
        stream: u64, nodes: *const u64, count: usize, flags: u32,
    ) |call| {
        update(call, stream, nodes, null(), count, flags)
    };
    fn cuStreamUpdateCaptureDependencies_v2, fn cuStreamUpdateCaptureDependencies_v2_ptsz (
        stream: u64, nodes: *const u64, data: *const u64, count: usize, flags: u32,
    ) |call| {
        update(call, stream, nodes, data, count, flags)
    };
}

/// The values of a C array.
pub fn list(at: *const u64, count: usize) -> Result<Vec<u64>, Code> {
    (0..count).map(|i| get(at.wrapping_add(i))).collect()
}

/// Edges with data of their own (programmatic launches) are not simulated.
pub fn plain_edges(data: *const u64, count: usize) -> Outcome {
    if data.is_null() {
        return Ok(());
    }
    require(list(data, count)?.iter().all(|d| *d == 0), code::NOT_SUPPORTED)
}

fn number(status: Status) -> i32 {
    match status {
        Status::None => 0,
        Status::Active => 1,
        Status::Invalidated => 2,
    }
}

fn begin(call: &mut Call, stream: u64, how: i32, into: Option<(u64, Vec<u64>)>) -> Outcome {
    let stream = call.stream(stream)?;
    let how = mode(how)?;
    let legacy = call.engine.stream_kind(stream.key) == Some(StreamKind::Legacy);
    require(!legacy, code::CAPTURE_UNSUPPORTED)?;
    require(call.captures.status(stream.key) == Status::None, code::ILLEGAL_STATE)?;
    let (graph, after) = match into {
        None => (call.graphs.create(Owner::Capture), Vec::new()),
        Some((graph, after)) => {
            let entry = call.graphs.get_mut(graph)?;
            let free = entry.owner == Owner::Program && !entry.captured_into;
            require(free && entry.graph.check_list(&after).is_ok(), code::INVALID_VALUE)?;
            entry.captured_into = true;
            (graph, after)
        }
    };
    let (member, thread) = (call.member(&stream), call.thread);
    call.captures.begin(member, thread, how, graph, &after);
    Ok(())
}

fn end(call: &mut Call, stream: u64, to: *mut u64) -> Outcome {
    let stream = call.stream(stream)?;
    wanted(to)?;
    let sequence = call.captures.of(stream.key).ok_or(code::ILLEGAL_STATE)?;
    let (id, thread) = (sequence.id, sequence.thread);
    if sequence.origin != stream.key {
        return Err(call.spoil_captures(&[id], code::CAPTURE_UNMATCHED));
    }
    let anywhere = sequence.mode == crate::engine::capture::Mode::Relaxed;
    require(anywhere || thread == call.thread, code::CAPTURE_WRONG_THREAD)?;
    let ended = call.captures.end(id).ok_or(code::ILLEGAL_STATE)?;
    let captures = std::mem::take(&mut call.captures);
    call.shown.retain(|stream, _| captures.of(*stream).is_some());
    call.captures = captures;
    let entry = call.graphs.get_mut(ended.graph)?;
    let ancestors = entry.graph.ancestors(&ended.joined);
    // Nodes that the program took away itself are missed by nobody.
    let joined = |n: &u64| ancestors.contains(n) || entry.graph.get(*n).is_none();
    let unjoined = !ended.others.iter().all(joined);
    entry.captured_into = false;
    if ended.valid && !unjoined {
        entry.owner = Owner::Program;
        return put(to, ended.graph);
    }
    discard(call, ended.graph);
    put(to, 0)?;
    Err(if ended.valid { code::CAPTURE_UNJOINED } else { code::CAPTURE_INVALIDATED })
}

/// The graph of a capture that came to nothing; one that the program made stays.
pub fn discard(call: &mut Call, graph: u64) {
    match call.graphs.get_mut(graph) {
        Ok(entry) if entry.owner == Owner::Capture => {
            let over = call.graphs.remove(graph);
            super::graph::destroy_objects(call, over);
        }
        Ok(entry) => entry.captured_into = false,
        Err(_) => {}
    }
}

/// A stream whose capture can be asked about: not the legacy one while it is unusable. Asking does
/// no harm to the capture.
fn askable(call: &mut Call, stream: u64) -> Result<StreamRef, Code> {
    let stream = call.stream(stream)?;
    let idle = call.captures.is_idle();
    if !idle && call.engine.stream_kind(stream.key) == Some(StreamKind::Legacy) {
        let captures = call.captures.in_context(stream.context, true);
        require(captures.is_empty(), code::CAPTURE_IMPLICIT)?;
    }
    Ok(stream)
}

fn info(
    call: &mut Call,
    stream: u64,
    status: *mut i32,
    id: *mut u64,
    graph: *mut u64,
    nodes: *mut *const u64,
    data: Option<*mut *const u64>,
    count: *mut usize,
) -> Outcome {
    wanted(status)?;
    let stream = askable(call, stream)?;
    let now = call.captures.status(stream.key);
    put(status, number(now))?;
    if now != Status::Active {
        return Ok(());
    }
    let Some(sequence) = call.captures.of(stream.key) else { return Ok(()) };
    put_if(id, sequence.id)?;
    put_if(graph, sequence.graph)?;
    let frontier: Box<[u64]> = call.captures.frontier(stream.key).into();
    put_if(count, frontier.len())?;
    let shown = Shown { edges: vec![0; frontier.len()].into(), nodes: frontier };
    put_if(nodes, shown.nodes.as_ptr())?;
    if let Some(data) = data {
        put_if(data, shown.edges.as_ptr())?;
    }
    // Moving the boxes does not move what they hold.
    if !nodes.is_null() {
        call.shown.insert(stream.key, shown);
    }
    Ok(())
}

fn update(
    call: &mut Call,
    stream: u64,
    nodes: *const u64,
    data: *const u64,
    count: usize,
    flags: u32,
) -> Outcome {
    let stream = call.stream(stream)?;
    require(flags <= 1, code::INVALID_VALUE)?;
    let graph = match call.captures.of(stream.key) {
        None => return Err(code::ILLEGAL_STATE),
        Some(sequence) if !sequence.valid => return Err(code::CAPTURE_INVALIDATED),
        Some(sequence) => sequence.graph,
    };
    let nodes = list(nodes, count)?;
    plain_edges(data, count)?;
    let known = |n: &u64| call.graphs.of(*n) == Ok(graph);
    require(nodes.iter().all(known), code::INVALID_VALUE)?;
    let mut frontier = match flags {
        0 => call.captures.frontier(stream.key).to_vec(),
        _ => Vec::new(),
    };
    for node in nodes {
        if !frontier.contains(&node) {
            frontier.push(node);
        }
    }
    call.captures.set_frontier(stream.key, frontier);
    Ok(())
}
