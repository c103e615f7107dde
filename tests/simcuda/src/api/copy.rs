//! Copies, linear and two-dimensional.

use super::{exports, get, require};
use crate::call::Call;
use crate::graphs::Task;
use crate::types::{Code, Memcpy2D, Outcome, code};
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
    let (to, from) = (flat(to), flat(from));
    copy(call, stream, asynchronous, Copying { to, from, width, rows: 1 })
}

fn plane(call: &mut Call, stream: u64, asynchronous: bool, what: *const Memcpy2D) -> Outcome {
    call.started()?;
    copy(call, stream, asynchronous, Copying::of(&get(what)?)?)
}

/// As the device's attribute says.
const MAX_PITCH: usize = i32::MAX as usize;

/// Rows of bytes to be copied.
#[derive(Clone, Copy)]
pub struct Copying {
    to: Plane,
    from: Plane,
    width: u64,
    rows: u64,
}

impl Copying {
    /// What a description asks for.
    pub fn of(what: &Memcpy2D) -> Result<Self, Code> {
        let place = |kind, host, device, x: usize, y: usize, pitch: usize| {
            let base: u64 = match kind {
                1 => host,
                2 | 4 => device,
                3 => return Err(code::NOT_SUPPORTED),
                _ => return Err(code::INVALID_VALUE),
            };
            let pitch = if pitch == 0 { what.width } else { pitch };
            let row = what.width.checked_add(x).ok_or(code::INVALID_VALUE)?;
            require(pitch <= MAX_PITCH || what.height <= 1, code::INVALID_VALUE)?;
            require(pitch >= row || what.height <= 1, code::INVALID_VALUE)?;
            let past = (y as u64).checked_mul(pitch as u64).and_then(|p| p.checked_add(x as u64));
            let at = past.and_then(|p| base.checked_add(p)).ok_or(code::INVALID_VALUE)?;
            Ok(Plane { at, pitch: pitch as u64 })
        };
        let (sx, sy, sp) = (what.src_x, what.src_y, what.src_pitch);
        let (dx, dy, dp) = (what.dst_x, what.dst_y, what.dst_pitch);
        let from = place(what.src_kind, what.src_host, what.src_device, sx, sy, sp)?;
        let to = place(what.dst_kind, what.dst_host, what.dst_device, dx, dy, dp)?;
        Ok(Self { to, from, width: what.width as u64, rows: what.height as u64 })
    }

    /// How many bytes; fails where no memory can hold them.
    fn bytes(&self) -> Result<u64, Code> {
        let bytes = self.width.checked_mul(self.rows).ok_or(code::INVALID_VALUE)?;
        let ends = |p: Plane| {
            let before = p.pitch.checked_mul(self.rows.saturating_sub(1))?;
            p.at.checked_add(before)?.checked_add(self.width)
        };
        let there = self.to.at != 0 && self.from.at != 0;
        let right = there && ends(self.to).is_some() && ends(self.from).is_some();
        require(bytes == 0 || right, code::INVALID_VALUE)?;
        Ok(bytes)
    }

    fn within_devices(&self, call: &Call) -> bool {
        [self.to, self.from].iter().all(|p| call.memory.is_device_address(p.at))
    }

    fn duration_ns(&self, call: &Call, bytes: u64) -> u64 {
        2_000 + if self.within_devices(call) { bytes / 1_000 } else { bytes / 20 }
    }

    fn label(&self, name: &str) -> String {
        let (to, from, width) = (self.to, self.from, self.width);
        match self.rows {
            1 => format!("{name}({:#x}, {:#x}, {width})", to.at, from.at),
            rows => format!(
                "{name}({:#x} + {}, {:#x} + {}, {width} x {rows})",
                to.at, to.pitch, from.at, from.pitch
            ),
        }
    }

    /// As the work of a graph's node, in a context.
    pub fn task(self, call: &Call, context: u64) -> Result<Task, Code> {
        let duration_ns = self.duration_ns(call, self.bytes()?);
        let Self { to, from, width, rows } = self;
        let body = Body::Copy { to, from, width, rows, staged: None };
        Ok(Task { context, body, duration_ns, label: self.label("copy"), kernel: None })
    }
}

/// Whether an address is the program's own pageable memory.
fn is_pageable(call: &Call, address: u64) -> bool {
    !call.memory.is_device_address(address) && call.memory.table.find(address).is_none()
}

/// Pageable memory is read before the call returns, and written before it returns. Between devices
/// and page-locked memory only the synchronous forms wait, and not even they between device
/// addresses.
fn copy(call: &mut Call, stream: u64, asynchronous: bool, what: Copying) -> Outcome {
    let stream = call.stream(stream)?;
    let bytes = what.bytes()?;
    if bytes == 0 {
        return Ok(());
    }
    let Copying { to, from, width, rows } = what;
    // A graph's copy reads and writes what is there when the graph runs.
    let now = !call.is_capturing(&stream);
    let waits = !asynchronous && !what.within_devices(call);
    let must_wait = now && (is_pageable(call, to.at) || waits);
    let staged = (now && is_pageable(call, from.at)).then(|| stage(from, width, rows));
    let from = if staged.is_some() { Plane { at: 0, pitch: width } } else { from };
    let (name, ns) = (call.function, what.duration_ns(call, bytes));
    let body = Body::Copy { to, from, width, rows, staged };
    let label = || what.label(name);
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
