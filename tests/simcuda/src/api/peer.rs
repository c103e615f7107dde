//! Peer access between devices.

use super::{exports, put, require};
use crate::call::Call;
use crate::types::{Code, code};

exports! {
    fn cuDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) |call| {
        let (device, peer) = (call.device(device)?, call.device(peer)?);
        put(can, i32::from(device != peer))
    };
    fn cuDeviceGetP2PAttribute(value: *mut i32, attribute: i32, from: i32, to: i32) |call| {
        let (from, to) = (call.device(from)?, call.device(to)?);
        require(from != to, code::INVALID_DEVICE)?;
        match attribute {
            1 => put(value, 0),
            2 | 3 => put(value, 1),
            4 => put(value, 0),
            _ => Err(code::INVALID_VALUE),
        }
    };
    fn cuCtxEnablePeerAccess(peer: u64, flags: u32) |call| {
        let (current, peer) = pair(call, peer)?;
        require(flags == 0, code::INVALID_VALUE)?;
        require(call.memory.table.enable_peer(current, peer), code::PEER_ACCESS_ALREADY_ENABLED)
    };
    fn cuCtxDisablePeerAccess(peer: u64) |call| {
        let (current, peer) = pair(call, peer)?;
        require(call.memory.table.disable_peer(current, peer), code::PEER_ACCESS_NOT_ENABLED)
    };
}

fn pair(call: &mut Call, peer: u64) -> Result<(u64, u64), Code> {
    let current = call.context()?;
    require(call.contexts.contains_key(&peer), code::INVALID_CONTEXT)?;
    let same_device = call.contexts[&peer].device == call.contexts[&current].device;
    require(!same_device, code::PEER_ACCESS_UNSUPPORTED)?;
    Ok((current, peer))
}
