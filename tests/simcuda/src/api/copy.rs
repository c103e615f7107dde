//! Copies, linear and two-dimensional.

use super::{exports, get, require};
use crate::call::Call;
use crate::types::{Memcpy2D, Outcome, code};
use crate::work::{Body, Plane};

exports! {
    fn cuMemcpy, fn cuMemcpy_ptds (
        to: u64, from: u64, bytes: usize,
    ) |call| line(call, 0, false, to, from, bytes);
    fn cuMemcpyAsync, fn cuMemcpyAsync_ptsz (to: u64, from: u64, bytes: usize, stream: u64) |call| {
        line(call, stream, true, to, from, bytes)
    };
    fn cuMemcpyHtoD_v2, fn cuMemcpyHtoD_v2_ptds (to: u64, from: u64, bytes: usize) |call| {
        line(call, 0, false, to, from, bytes)
    };
    fn cuMemcpyDtoH_v2, fn cuMemcpyDtoH_v2_ptds (to: u64, from: u64, bytes: usize) |call| {
        line(call, 0, false, to, from, bytes)
    };
    fn cuMemcpyDtoD_v2, fn cuMemcpyDtoD_v2_ptds (to: u64, from: u64, bytes: usize) |call| {
        line(call, 0, false, to, from, bytes)
    };
    fn cuMemcpyHtoDAsync_v2, fn cuMemcpyHtoDAsync_v2_ptsz (
        to: u64, from: u64, bytes: usize, stream: u64,
    ) |call| {
        line(call, stream, true, to, from, bytes)
    };
    fn cuMemcpyDtoHAsync_v2, fn cuMemcpyDtoHAsync_v2_ptsz (
        to: u64, from: u64, bytes: usize, stream: u64,
    ) |call| {
        line(call, stream, true, to, from, bytes)
    };
    fn cuMemcpyDtoDAsync_v2, fn cuMemcpyDtoDAsync_v2_ptsz (
        to: u64, from: u64, bytes: usize, stream: u64,
    ) |call| {
        line(call, stream, true, to, from, bytes)
    };
    fn cuMemcpyPeer, fn cuMemcpyPeer_ptds (
        to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize,
    ) |call| {
        both_contexts(call, to_context, from_context)?;
        line(call, 0, false, to, from, bytes)
    };
    fn cuMemcpyPeerAsync, fn cuMemcpyPeerAsync_ptsz (
        to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: u64,
    ) |call| {
        both_contexts(call, to_context, from_context)?;
        line(call, stream, true, to, from, bytes)
    };
    fn cuMemcpy2D_v2, fn cuMemcpy2D_v2_ptds (
        what: *const Memcpy2D,
    ) |call| plane(call, 0, false, what);
    fn cuMemcpy2DUnaligned_v2, fn cuMemcpy2DUnaligned_v2_ptds (what: *const Memcpy2D) |call| {
        plane(call, 0, false, what)
    };
    fn cuMemcpy2DAsync_v2, fn cuMemcpy2DAsync_v2_ptsz (what: *const Memcpy2D, stream: u64) |call| {
        plane(call, stream, true, what)
    };
}

fn both_contexts(call: &Call, to: u64, from: u64) -> Outcome {
    call.started()?;
    let known = |c: u64| call.contexts.contains_key(&c);
    require(known(to) && known(from), code::INVALID_CONTEXT)
}

fn line(
    call: &mut Call,
    stream: u64,
    asynchronous: bool,
    to: u64,
    from: u64,
    bytes: usize,
) -> Outcome {
    let width = bytes as u64;
    let flat = |at| Plane { at, pitch: width };
    copy(call, stream, asynchronous, flat(to), flat(from), width, 1)
}

fn plane(call: &mut Call, stream: u64, asynchronous: bool, what: *const Memcpy2D) -> Outcome {
    call.started()?;
    let what = get(what)?;
    let place = |kind, host, device, x: usize, y: usize, pitch: usize| {
        let base: u64 = match kind {
            1 => host,
            2 | 4 => device,
            3 => return Err(code::NOT_SUPPORTED),
            _ => return Err(code::INVALID_VALUE),
        };
        let pitch = if pitch == 0 { what.width } else { pitch };
        require(pitch >= what.width + x || what.height <= 1, code::INVALID_VALUE)?;
        let past = (y as u64).checked_mul(pitch as u64).and_then(|p| p.checked_add(x as u64));
        let at = past.and_then(|p| base.checked_add(p)).ok_or(code::INVALID_VALUE)?;
        Ok(Plane { at, pitch: pitch as u64 })
    };
    let (sx, sy, sp) = (what.src_x, what.src_y, what.src_pitch);
    let (dx, dy, dp) = (what.dst_x, what.dst_y, what.dst_pitch);
    let from = place(what.src_kind, what.src_host, what.src_device, sx, sy, sp)?;
    let to = place(what.dst_kind, what.dst_host, what.dst_device, dx, dy, dp)?;
    copy(call, stream, asynchronous, to, from, what.width as u64, what.height as u64)
}

/// Whether an address is the program's own pageable memory.
fn is_pageable(call: &Call, address: u64) -> bool {
    !call.memory.is_device_address(address) && call.memory.table.find(address).is_none()
}

/// Pageable memory is read before the call returns, and written before it returns. Between devices
/// and page-locked memory only the synchronous forms wait, and not even they between device
/// addresses.
fn copy(
    call: &mut Call,
    stream: u64,
    asynchronous: bool,
    to: Plane,
    from: Plane,
    width: u64,
    rows: u64,
) -> Outcome {
    let stream = call.stream(stream)?;
    let bytes = width.checked_mul(rows).ok_or(code::INVALID_VALUE)?;
    if bytes == 0 {
        return Ok(());
    }
    require(to.at != 0 && from.at != 0, code::INVALID_VALUE)?;
    let ends = |p: Plane| {
        p.pitch.checked_mul(rows - 1).and_then(|s| p.at.checked_add(s)?.checked_add(width))
    };
    require(ends(to).is_some() && ends(from).is_some(), code::INVALID_VALUE)?;
    let device = |p: Plane| call.memory.is_device_address(p.at);
    let within_devices = device(to) && device(from);
    // A graph's copy reads and writes what is there when the graph runs.
    let now = !call.is_capturing(&stream);
    let must_wait = now && (is_pageable(call, to.at) || !asynchronous && !within_devices);
    let staged = (now && is_pageable(call, from.at)).then(|| stage(from, width, rows));
    let name = call.function;
    let (source, pitch) = (from.at, from.pitch);
    let from = if staged.is_some() { Plane { at: 0, pitch: width } } else { from };
    let ns = 2_000 + if within_devices { bytes / 1_000 } else { bytes / 20 };
    let body = Body::Copy { to, from, width, rows, staged };
    let label = || match rows {
        1 => format!("{name}({:#x}, {source:#x}, {width})", to.at),
        _ => {
            format!("{name}({:#x} + {}, {source:#x} + {pitch}, {width} x {rows})", to.at, to.pitch)
        }
    };
    if must_wait {
        call.submit_and_wait(&stream, body, ns, label)
    } else {
        call.submit(&stream, body, ns, label);
        Ok(())
    }
}

fn stage(from: Plane, width: u64, rows: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((width * rows) as usize);
    for row in 0..rows {
        let at = (from.at + row * from.pitch) as *const u8;
        // SAFETY: the program named this memory as the source of the copy; it is neither a device's
        // nor page-locked here, so it is its own, and it may not change it before the call returns.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(at, width as usize) });
    }
    bytes
}
