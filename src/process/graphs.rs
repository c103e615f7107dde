#![forbid(unsafe_code)]
//! Graphs as the program names them: `generation << 32 | (device + 1) << 16 | place`, never used twice
//! for different graphs.

use super::pools::{DEFAULT_POOL, pool_on};
use super::start::{started, started_already};
use crate::device::{Device, GraphName, PoolName};
use crate::error::{Error, sentence};
use crate::sync::refuse_after_fork;
use crate::types::DeviceId;

/// Says that a stream's work is captured from now on, or is about to be, into a graph that uses
/// memory of `pool`; 0 is a pool of its own. The answer is the graph's name.
pub fn graph_begin(device: i32, stream: usize, pool: u64) -> Result<u64, Error> {
    let process = started()?;
    let (device, named) = process.place(device, stream)?;
    let pool = match pool {
        0 => None,
        DEFAULT_POOL => return Err(in_default()),
        _ => Some(pool_on(device, pool)?).filter(|name| *name != PoolName::DEFAULT),
    };
    let name = device.begin_graph(named, pool)?;
    Ok(number(device.id(), name))
}

/// Says that the capture is over, well or not.
pub fn graph_end(graph: u64) -> Result<(), Error> {
    let (device, name) = parts(graph)?;
    device.end_graph(name)
}

/// Says that the graph is not launched any more; its last launches were on `stream`, or are ordered
/// before its work.
pub fn graph_destroy(graph: u64, stream: usize) -> Result<(), Error> {
    let (device, name) = parts(graph)?;
    let (_, named) = started()?.place(device.id().0 as i32, stream)?;
    device.destroy_graph(name, named)
}

fn number(device: DeviceId, name: GraphName) -> u64 {
    u64::from(name.generation) << 32 | u64::from(device.0 + 1) << 16 | u64::from(name.place)
}

fn parts(graph: u64) -> Result<(&'static Device, GraphName), Error> {
    refuse_after_fork()?;
    let device = (graph >> 16 & 0xffff) as u32;
    let name = GraphName { place: (graph & 0xffff) as u32, generation: (graph >> 32) as u32 };
    let found = device.checked_sub(1).filter(|_| name.generation > 0);
    found
        .and_then(|id| started_already()?.device_in_use(DeviceId(id)))
        .map(|device| (device, name))
        .ok_or_else(|| {
            Error::InvalidGraph(sentence!(
                "{graph:#x} is no graph: cuddy_graph_begin() gives them out"
            ))
        })
}

fn in_default() -> Error {
    Error::InvalidPool(sentence!(
        "a graph cannot own the default pool: name a pool of cuddy_pool_create(), or 0 for a pool of \
         its own"
    ))
}
