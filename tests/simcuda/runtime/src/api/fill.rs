//! Fills.

use super::exports;
use crate::types::{Extent, PitchedPointer, code};

exports! {
    context fn cudaMemset, fn cudaMemset_ptds (to: u64, value: i32, bytes: usize) |d, lane| {
        match (bytes, lane.per_thread()) {
            (0, _) => Ok(()),
            (_, false) => d.cuMemsetD8(to, value as u8, bytes),
            (_, true) => d.cuMemsetD8_ptds(to, value as u8, bytes),
        }
    };
    context fn cudaMemsetAsync, fn cudaMemsetAsync_ptsz (
        to: u64, value: i32, bytes: usize, stream: u64,
    ) |d, lane| {
        if bytes == 0 {
            return Ok(());
        }
        d.cuMemsetD8Async(to, value as u8, bytes, lane.of(stream))
    };
    context fn cudaMemset2D, fn cudaMemset2D_ptds (
        to: u64, pitch: usize, value: i32, width: usize, height: usize,
    ) |d, lane| {
        match (width.saturating_mul(height), lane.per_thread()) {
            (0, _) => Ok(()),
            (_, false) => d.cuMemsetD2D8(to, pitch, value as u8, width, height),
            (_, true) => d.cuMemsetD2D8_ptds(to, pitch, value as u8, width, height),
        }
    };
    context fn cudaMemset2DAsync, fn cudaMemset2DAsync_ptsz (
        to: u64, pitch: usize, value: i32, width: usize, height: usize, stream: u64,
    ) |d, lane| {
        if width == 0 || height == 0 {
            return Ok(());
        }
        d.cuMemsetD2D8Async(to, pitch, value as u8, width, height, lane.of(stream))
    };
    // A box is filled slice by slice.
    context fn cudaMemset3DAsync, fn cudaMemset3DAsync_ptsz (
        to: PitchedPointer, value: i32, extent: Extent, stream: u64,
    ) |d, lane| {
        if extent.width == 0 || extent.height == 0 {
            return Ok(());
        }
        let step = to.pitch.checked_mul(to.y_size).ok_or(code::INVALID_VALUE)?;
        for slice in 0..extent.depth {
            let at = to.address + (slice * step) as u64;
            let (width, height) = (extent.width, extent.height);
            d.cuMemsetD2D8Async(at, to.pitch, value as u8, width, height, lane.of(stream))?;
        }
        Ok(())
    };
}
