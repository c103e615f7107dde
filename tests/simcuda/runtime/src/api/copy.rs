//! Copies. The kind says which driver function does them; where it says nothing (default, or from
//! host to host) the driver finds out what the addresses are.

use super::{exports, require};
use crate::call;
use crate::driver::Driver;
use crate::registry;
use crate::types::{Memcpy2D, Outcome, code};

/// `cudaMemcpyKind`.
const HOST_TO_HOST: i32 = 0;
const HOST_TO_DEVICE: i32 = 1;
const DEVICE_TO_HOST: i32 = 2;
const DEVICE_TO_DEVICE: i32 = 3;
const DEFAULT: i32 = 4;

exports! {
    context fn cudaMemcpy, fn cudaMemcpy_ptds (
        to: u64, from: u64, bytes: usize, kind: i32,
    ) |d, lane| {
        copy(d, lane.per_thread(), to, from, bytes, kind)
    };
    context fn cudaMemcpyAsync, fn cudaMemcpyAsync_ptsz (
        to: u64, from: u64, bytes: usize, kind: i32, stream: u64,
    ) |d, lane| {
        copy_async(d, to, from, bytes, kind, lane.of(stream))
    };
    context fn cudaMemcpyPeer(
        to: u64, to_device: i32, from: u64, from_device: i32, bytes: usize,
    ) |d| {
        let (to_context, from_context) = (call::primary(d, to_device)?, call::primary(d, from_device)?);
        d.cuMemcpyPeer(to, to_context, from, from_context, bytes)
    };
    context fn cudaMemcpyPeerAsync(
        to: u64, to_device: i32, from: u64, from_device: i32, bytes: usize, stream: u64,
    ) |d| {
        let (to_context, from_context) = (call::primary(d, to_device)?, call::primary(d, from_device)?);
        d.cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, stream)
    };
    context fn cudaMemcpy2D, fn cudaMemcpy2D_ptds (
        to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize,
        kind: i32,
    ) |d, lane| {
        let what = plane(to, to_pitch, from, from_pitch, width, height, kind)?;
        match lane.per_thread() {
            true => d.cuMemcpy2DUnaligned_ptds(&what),
            false => d.cuMemcpy2DUnaligned(&what),
        }
    };
    context fn cudaMemcpy2DAsync, fn cudaMemcpy2DAsync_ptsz (
        to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize,
        kind: i32, stream: u64,
    ) |d, lane| {
        let what = plane(to, to_pitch, from, from_pitch, width, height, kind)?;
        d.cuMemcpy2DAsync(&what, lane.of(stream))
    };
    context fn cudaMemcpyToSymbol, fn cudaMemcpyToSymbol_ptds (
        symbol: usize, from: u64, bytes: usize, offset: usize, kind: i32,
    ) |d, lane| {
        let to = within(d, symbol, bytes, offset)?;
        copy(d, lane.per_thread(), to, from, bytes, kind)
    };
    context fn cudaMemcpyFromSymbol, fn cudaMemcpyFromSymbol_ptds (
        to: u64, symbol: usize, bytes: usize, offset: usize, kind: i32,
    ) |d, lane| {
        let from = within(d, symbol, bytes, offset)?;
        copy(d, lane.per_thread(), to, from, bytes, kind)
    };
    context fn cudaMemcpyToSymbolAsync, fn cudaMemcpyToSymbolAsync_ptsz (
        symbol: usize, from: u64, bytes: usize, offset: usize, kind: i32, stream: u64,
    ) |d, lane| {
        let to = within(d, symbol, bytes, offset)?;
        copy_async(d, to, from, bytes, kind, lane.of(stream))
    };
    context fn cudaMemcpyFromSymbolAsync, fn cudaMemcpyFromSymbolAsync_ptsz (
        to: u64, symbol: usize, bytes: usize, offset: usize, kind: i32, stream: u64,
    ) |d, lane| {
        let from = within(d, symbol, bytes, offset)?;
        copy_async(d, to, from, bytes, kind, lane.of(stream))
    };
    context fn cudaGetSymbolAddress(address: *mut u64, symbol: usize) |d| {
        super::put(address, registry::variable(d, call::device(d)?, symbol)?.0)
    };
    context fn cudaGetSymbolSize(bytes: *mut usize, symbol: usize) |d| {
        super::put(bytes, registry::variable(d, call::device(d)?, symbol)?.1)
    };
}

fn copy(d: &Driver, per_thread: bool, to: u64, from: u64, bytes: usize, kind: i32) -> Outcome {
    require((HOST_TO_HOST..=DEFAULT).contains(&kind), code::INVALID_MEMCPY_DIRECTION)?;
    if bytes == 0 {
        return Ok(());
    }
    match (kind, per_thread) {
        (HOST_TO_DEVICE, false) => d.cuMemcpyHtoD(to, from, bytes),
        (HOST_TO_DEVICE, true) => d.cuMemcpyHtoD_ptds(to, from, bytes),
        (DEVICE_TO_HOST, false) => d.cuMemcpyDtoH(to, from, bytes),
        (DEVICE_TO_HOST, true) => d.cuMemcpyDtoH_ptds(to, from, bytes),
        (DEVICE_TO_DEVICE, false) => d.cuMemcpyDtoD(to, from, bytes),
        (DEVICE_TO_DEVICE, true) => d.cuMemcpyDtoD_ptds(to, from, bytes),
        (_, false) => d.cuMemcpy(to, from, bytes),
        (_, true) => d.cuMemcpy_ptds(to, from, bytes),
    }
}

fn copy_async(d: &Driver, to: u64, from: u64, bytes: usize, kind: i32, stream: u64) -> Outcome {
    require((HOST_TO_HOST..=DEFAULT).contains(&kind), code::INVALID_MEMCPY_DIRECTION)?;
    if bytes == 0 {
        return Ok(());
    }
    match kind {
        HOST_TO_DEVICE => d.cuMemcpyHtoDAsync(to, from, bytes, stream),
        DEVICE_TO_HOST => d.cuMemcpyDtoHAsync(to, from, bytes, stream),
        DEVICE_TO_DEVICE => d.cuMemcpyDtoDAsync(to, from, bytes, stream),
        _ => d.cuMemcpyAsync(to, from, bytes, stream),
    }
}

/// A place within a registered variable.
fn within(d: &Driver, symbol: usize, bytes: usize, offset: usize) -> Result<u64, i32> {
    let (address, size) = registry::variable(d, call::device(d)?, symbol)?;
    let end = offset.checked_add(bytes).ok_or(code::INVALID_VALUE)?;
    require(end <= size, code::INVALID_VALUE)?;
    Ok(address + offset as u64)
}

fn plane(
    to: u64,
    to_pitch: usize,
    from: u64,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: i32,
) -> Result<Memcpy2D, i32> {
    // `CUmemorytype`.
    const HOST: i32 = 1;
    const DEVICE: i32 = 2;
    const UNIFIED: i32 = 4;
    let (from_kind, to_kind) = match kind {
        HOST_TO_HOST => (HOST, HOST),
        HOST_TO_DEVICE => (HOST, DEVICE),
        DEVICE_TO_HOST => (DEVICE, HOST),
        DEVICE_TO_DEVICE => (DEVICE, DEVICE),
        DEFAULT => (UNIFIED, UNIFIED),
        _ => return Err(code::INVALID_MEMCPY_DIRECTION),
    };
    // A pitch below the width is cudaErrorInvalidPitchValue.
    require(height <= 1 || to_pitch >= width && from_pitch >= width, 12)?;
    Ok(Memcpy2D {
        src_kind: from_kind,
        src_host: from,
        src_device: from,
        src_pitch: from_pitch,
        dst_kind: to_kind,
        dst_host: to,
        dst_device: to,
        dst_pitch: to_pitch,
        width,
        height,
        ..Memcpy2D::default()
    })
}
