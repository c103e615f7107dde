//! Executable graphs: made, changed, launched, destroyed.
//!
//! A launch queues every node again, with the order of the graph made of streams and events
//! ([`Plan`]); so the checker judges each launch as it does the same program without a graph.

use super::event::record_on;
use super::graph::destroy_objects;
use super::graph_memory::{
    are_here, back, free_left, give_out, instantiable, ready, sweep, take_back,
};
use super::stream::wait_on;
use super::{exports, get, put, require, wanted};
use crate::call::Call;
use crate::engine::capture::{Move, Plan};
use crate::engine::{EventKey, Status, StreamKey, StreamKind};
use crate::graphs::{Exec, Leaving, Node, Owner, Step};
use crate::submit::StreamRef;
use crate::types::{Code, InstantiateParameters, Outcome, UpdateResult, code};
use std::collections::HashMap;

exports! {
    fn cuGraphInstantiate(
        exec: *mut u64, graph: u64, error: *mut u64, log: *mut u8, room: usize,
    ) |call| instantiate_logged(call, exec, graph, error, log, room);
    fn cuGraphInstantiate_v2(
        exec: *mut u64, graph: u64, error: *mut u64, log: *mut u8, room: usize,
    ) |call| instantiate_logged(call, exec, graph, error, log, room);
    fn cuGraphInstantiateWithFlags(exec: *mut u64, graph: u64, flags: u64) |call| {
        call.started()?;
        wanted(exec)?;
        require(flags & !0b1101 == 0, code::INVALID_VALUE)?;
        put(exec, instantiate(call, graph, flags).map_err(|e| e.0)?)
    };
    fn cuGraphInstantiateWithParams, fn cuGraphInstantiateWithParams_ptsz (
        exec: *mut u64, graph: u64, parameters: *mut InstantiateParameters,
    ) |call| {
        call.started()?;
        wanted(exec)?;
        let mut p = get(parameters)?;
        (p.error_node, p.result) = (0, 1);
        put(parameters, p)?;
        require(p.flags & !0b1111 == 0, code::INVALID_VALUE)?;
        if p.flags & 2 != 0 {
            call.stream(p.upload_stream)?;
        }
        let made = instantiate(call, graph, p.flags);
        (p.error_node, p.result) = match made {
            Ok(_) => (0, 0),
            Err((_, node)) => (node, if node == 0 { 1 } else { 2 }),
        };
        put(parameters, p)?;
        put(exec, made.map_err(|e| e.0)?)
    };
    fn cuGraphExecGetFlags(exec: u64, flags: *mut u64) |call| {
        put(flags, found(call, exec)?.flags)
    };
    fn cuGraphUpload, fn cuGraphUpload_ptsz (exec: u64, stream: u64) |call| {
        call.stream(stream)?;
        let steps = found(call, exec)?.steps.clone();
        back(call, &steps)
    };
    fn cuGraphLaunch, fn cuGraphLaunch_ptsz (exec: u64, stream: u64) |call| {
        let stream = call.stream(stream)?;
        found(call, exec)?;
        launch(call, exec, &stream)
    };
    fn cuGraphExecDestroy(exec: u64) |call| {
        call.started()?;
        let gone = call.graphs.execs.remove(exec).ok_or(code::INVALID_VALUE)?;
        let Some(event) = gone.last else {
            let over = call.graphs.let_go(&gone.users);
            destroy_objects(call, over);
            sweep(call);
            return Ok(());
        };
        call.graphs.leaving.push(Leaving { event, users: gone.users });
        settle(call);
        sweep(call);
        Ok(())
    };
    fn cuGraphExecUpdate(exec: u64, graph: u64, error: *mut u64, result: *mut i32) |call| {
        call.started()?;
        let (outcome, info) = update(call, exec, graph);
        super::put_if(error, info.error_node)?;
        super::put_if(result, info.result)?;
        outcome
    };
    fn cuGraphExecUpdate_v2(exec: u64, graph: u64, to: *mut UpdateResult) |call| {
        call.started()?;
        let (outcome, info) = update(call, exec, graph);
        put(to, info)?;
        outcome
    };
    fn cuGraphNodeSetEnabled(exec: u64, node: u64, on: u32) |call| {
        let step = step(call, exec, node)?;
        require(step.work.kind() <= 2, code::INVALID_VALUE)?;
        step.enabled = on != 0;
        Ok(())
    };
    fn cuGraphNodeGetEnabled(exec: u64, node: u64, on: *mut u32) |call| {
        let step = step(call, exec, node)?;
        require(step.work.kind() <= 2, code::INVALID_VALUE)?;
        put(on, u32::from(step.enabled))
    };
}

fn found(call: &Call, exec: u64) -> Result<&Exec, Code> {
    call.started()?;
    call.graphs.execs.get(exec).ok_or(code::INVALID_VALUE)
}

/// The step that was made of a node.
pub fn step(call: &mut Call, exec: u64, node: u64) -> Result<&mut Step, Code> {
    call.started()?;
    // It must still be in the graph that the executable was made of.
    call.graphs.of(node)?;
    let exec = call.graphs.execs.get_mut(exec).ok_or(code::INVALID_VALUE)?;
    exec.steps.iter_mut().find(|s| s.node == node).ok_or(code::INVALID_VALUE)
}

fn instantiate_logged(
    call: &mut Call,
    exec: *mut u64,
    graph: u64,
    error: *mut u64,
    log: *mut u8,
    room: usize,
) -> Outcome {
    call.started()?;
    wanted(exec)?;
    let made = instantiate(call, graph, 0);
    if !log.is_null() && room > 0 {
        let text = if made.is_err() { "the graph has a cycle, or is no graph" } else { "" };
        super::put_text(log, i32::try_from(room).unwrap_or(i32::MAX), text)?;
    }
    super::put_if(error, made.err().map_or(0, |e| e.1))?;
    put(exec, made.map_err(|e| e.0)?)
}

/// Makes an executable graph; fails with a code and the node at fault.
fn instantiate(call: &mut Call, graph: u64, flags: u64) -> Result<u64, (Code, u64)> {
    let entry = call.graphs.get(graph).map_err(|c| (c, 0))?;
    if entry.owner == Owner::Capture || entry.captured_into {
        return Err((code::INVALID_VALUE, 0));
    }
    let (nodes, users) = (entry.graph.len(), entry.users.clone());
    instantiable(call, graph).map_err(|c| (c, 0))?;
    let steps = call.graphs.flatten(graph).map_err(|node| (code::INVALID_VALUE, node))?;
    // Launch from the device needs both: some work, and no automatic freeing.
    if flags & 4 != 0 && (flags & 1 != 0 || steps.is_empty()) {
        return Err((code::INVALID_VALUE, 0));
    }
    call.graphs.hold(&users);
    let exec = Exec { graph, nodes, steps, flags, last: None, launches: 0, users };
    Ok(call.graphs.execs.insert(exec))
}

/// Lets go of what destroyed executables held, once their last launches are over.
pub fn settle(call: &mut Call) {
    let key = call.key();
    let mut left = Vec::new();
    for leaving in std::mem::take(&mut call.graphs.leaving) {
        if call.engine.query_event(key, leaving.event) == Status::NotReady {
            left.push(leaving);
            continue;
        }
        call.engine.destroy_event(leaving.event);
        let over = call.graphs.let_go(&leaving.users);
        destroy_objects(call, over);
    }
    call.graphs.leaving = left;
}

/// What a launch needs while it is queued.
struct Launch {
    /// The stream of each lane.
    lanes: Vec<StreamRef>,
    /// The launch's beginning on its stream.
    begin: Option<EventKey>,
    /// The events of nodes that other lanes wait for.
    events: HashMap<usize, EventKey>,
}

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
const AUTO_FREE_ON_LAUNCH: u64 = 1;

fn launch(call: &mut Call, handle: u64, stream: &StreamRef) -> Outcome {
    let steps = found(call, handle)?.steps.clone();
    if call.is_capturing(stream) {
        let memory = are_here(steps.iter().map(|step| &step.work));
        require(!memory, code::NOT_SUPPORTED)?;
        let child = call.graphs.unflatten(&steps, Owner::Node)?;
        return call.capture_node(stream, Node::Child(child)).map(|_| ());
    }
    for context in steps.iter().filter_map(|s| context_of(&s.work)) {
        call.healthy(context)?;
    }
    for step in &steps {
        if let Node::EventRecord(event) | Node::EventWait(event) = step.work {
            call.events.get(event).ok_or(code::INVALID_VALUE)?;
        }
    }
    let thread = call.key();
    let frees = found(call, handle)?.flags & AUTO_FREE_ON_LAUNCH != 0;
    ready(call, &steps, frees)?;
    let exec = call.graphs.execs.get_mut(handle).ok_or(code::INVALID_VALUE)?;
    exec.launches += 1;
    let (last, number) = (exec.last.take(), exec.launches);
    if let Some(last) = last {
        call.engine.wait_event(thread, stream.key, last);
        call.engine.destroy_event(last);
    }
    free_left(call, stream, &steps)?;
    let before: Vec<_> = steps.iter().map(|s| s.before.clone()).collect();
    let home: Vec<_> =
        steps.iter().map(|s| context_of(&s.work).unwrap_or(stream.context)).collect();
    let plan = Plan::new(&before, &home, stream.context);
    let mut at = prepare(call, &plan, stream);
    for step in &plan.moves {
        queue(call, &mut at, *step, &steps, number);
    }
    let end = record(call, stream.context, stream.key);
    for lane in &at.lanes[1..] {
        call.engine.destroy_stream(lane.key);
    }
    for event in at.events.into_values().chain(at.begin) {
        call.engine.destroy_event(event);
    }
    if let Some(exec) = call.graphs.execs.get_mut(handle) {
        exec.last = Some(end);
    }
    Ok(())
}

/// The context that work needs; any will do if it needs none.
pub fn context_of(work: &Node) -> Option<u64> {
    match work {
        Node::Work(task) => Some(task.context),
        _ => None,
    }
}

/// A new event, recorded on a stream.
fn record(call: &mut Call, context: u64, stream: StreamKey) -> EventKey {
    let owner = call.contexts[&context].key;
    let (event, thread) = (call.engine.create_event(owner), call.key());
    call.engine.record(thread, event, stream);
    event
}

/// Makes the streams of all lanes but the first, which is the stream of the launch.
fn prepare(call: &mut Call, plan: &Plan, stream: &StreamRef) -> Launch {
    let begin = (plan.lanes() > 1).then(|| record(call, stream.context, stream.key));
    let mut lanes = vec![*stream];
    for &context in &plan.homes[1..] {
        let (owner, device) = (call.contexts[&context].key, call.contexts[&context].device);
        let thread = call.key();
        let key = call.engine.create_stream(thread, owner, StreamKind::NonBlocking, 0);
        call.engine.number_stream(key, stream.id);
        lanes.push(StreamRef { key, id: stream.id, context, device });
    }
    Launch { lanes, begin, events: HashMap::new() }
}

fn queue(call: &mut Call, at: &mut Launch, step: Move, steps: &[Step], launch: u64) {
    let thread = call.key();
    match step {
        Move::Begin { lane } => {
            if let Some(begin) = at.begin {
                call.engine.wait_event(thread, at.lanes[lane].key, begin);
            }
        }
        Move::Wait { node, lane } => {
            if let Some(&event) = at.events.get(&node) {
                call.engine.wait_event(thread, at.lanes[lane].key, event);
            }
        }
        Move::Record { node, lane } => {
            let event = record(call, at.lanes[lane].context, at.lanes[lane].key);
            at.events.insert(node, event);
        }
        Move::Join { lane } => {
            let event = record(call, at.lanes[lane].context, at.lanes[lane].key);
            call.engine.wait_event(thread, at.lanes[0].key, event);
            call.engine.destroy_event(event);
        }
        Move::Run { node, lane } => run(call, &at.lanes[lane], &steps[node], node, launch),
    }
}

fn run(call: &mut Call, lane: &StreamRef, step: &Step, number: usize, launch: u64) {
    let label = |what: &str| format!("{what} (node {number} of a graph's launch {launch})");
    match &step.work {
        _ if !step.enabled => {}
        Node::Work(task) => {
            call.submit(lane, task.body.clone(), task.duration_ns, || label(&task.label));
        }
        // That events and memory are there was looked at before the first step.
        Node::EventRecord(event) => drop(record_on(call, lane, *event)),
        Node::EventWait(event) => drop(wait_on(call, lane, *event)),
        Node::Allocate(address) => drop(give_out(call, lane, *address, &label("an allocation"))),
        Node::Free(address) => drop(take_back(call, lane, *address, &label("a free"))),
        Node::Empty | Node::Child(_) => {}
    }
}

fn memory_of(work: &Node) -> Option<u64> {
    match *work {
        Node::Allocate(address) | Node::Free(address) => Some(address),
        _ => None,
    }
}

/// Where a graph is not of the shape of another: `CUgraphExecUpdateResult`, and the node.
pub fn differs(old: &[Step], new: &[Step]) -> Option<(i32, u64)> {
    if old.len() != new.len() {
        return Some((2, 0));
    }
    old.iter().zip(new).find_map(|(was, is)| match () {
        () if was.work.kind() != is.work.kind() => Some((3, is.node)),
        () if was.before != is.before => Some((2, is.node)),
        () if context_of(&was.work) != context_of(&is.work) => Some((5, is.node)),
        () if memory_of(&was.work) != memory_of(&is.work) => Some((5, is.node)),
        () => None,
    })
}

/// Puts the parameters of a graph's nodes into an executable of the same shape.
fn update(call: &mut Call, exec: u64, graph: u64) -> (Outcome, UpdateResult) {
    let failed = |result, error_node| {
        let info = UpdateResult { result, error_node, error_from_node: 0 };
        let code = if result == 1 { code::INVALID_VALUE } else { code::GRAPH_UPDATE_FAILURE };
        (Err(code), info)
    };
    let (Ok(new), Some(old)) = (call.graphs.flatten(graph), call.graphs.execs.get(exec)) else {
        return failed(1, 0);
    };
    let Ok(entry) = call.graphs.get(graph) else { return failed(1, 0) };
    if entry.graph.len() != old.nodes {
        return failed(2, 0);
    }
    if let Some((result, node)) = differs(&old.steps, &new) {
        return failed(result, node);
    }
    if let Some(exec) = call.graphs.execs.get_mut(exec) {
        // The nodes by which the program names the steps stay those of the first graph.
        for (was, is) in exec.steps.iter_mut().zip(new) {
            was.work = is.work;
        }
    }
    (Ok(()), UpdateResult { result: 0, error_node: 0, error_from_node: 0 })
}
