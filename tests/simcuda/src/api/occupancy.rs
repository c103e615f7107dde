//! Occupancy: how many blocks fit on a multiprocessor of 2048 threads, 32 blocks and 227 KiB, as far
//! as sizes decide it: what registers a kernel needs is not known.

use super::function::resolve;
use super::{exports, put, put_if, require};
use crate::call::Call;
use crate::types::{Code, code};

const THREADS: i32 = 2048;
const BLOCKS: i32 = 32;
const SHARED: usize = 227 << 10;
/// What the driver keeps of each block's share.
const RESERVED: usize = 1 << 10;
const MULTIPROCESSORS: i32 = 132;
const BLOCK: i32 = 1024;

exports! {
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut i32, function: u64, block: i32, shared: usize,
    ) |call| {
        put(blocks, active(call, function, block, shared)?)
    };
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut i32, function: u64, block: i32, shared: usize, flags: u32,
    ) |call| {
        let active = active(call, function, block, shared)?;
        require(flags <= 1, code::INVALID_VALUE)?;
        put(blocks, active)
    };
    fn cuOccupancyMaxPotentialBlockSize(
        grid: *mut i32, block: *mut i32, function: u64, shared_of: u64, shared: usize, limit: i32,
    ) |call| {
        let _ = shared_of;
        let best = largest(call, function, shared, limit)?;
        put_if(grid, best.0)?;
        put_if(block, best.1)
    };
    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: *mut i32, block: *mut i32, function: u64, shared_of: u64, shared: usize, limit: i32,
        flags: u32,
    ) |call| {
        let _ = shared_of;
        let best = largest(call, function, shared, limit)?;
        require(flags <= 1, code::INVALID_VALUE)?;
        put_if(grid, best.0)?;
        put_if(block, best.1)
    };
    fn cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: *mut usize, function: u64, blocks: i32, block: i32,
    ) |call| {
        call.context()?;
        resolve(call, function)?;
        require((1..=BLOCK).contains(&block) && blocks > 0, code::INVALID_VALUE)?;
        require(blocks <= (THREADS / block).min(BLOCKS), code::INVALID_VALUE)?;
        put(bytes, SHARED / blocks as usize - RESERVED)
    };
}

fn active(call: &mut Call, function: u64, block: i32, shared: usize) -> Result<i32, Code> {
    call.context()?;
    resolve(call, function)?;
    require((1..=BLOCK).contains(&block), code::INVALID_VALUE)?;
    let by_memory = (SHARED + RESERVED) / (shared.saturating_add(RESERVED));
    Ok((THREADS / block).min(BLOCKS).min(by_memory as i32))
}

/// A grid that fills the device with the largest blocks below a limit (0: none).
fn largest(call: &mut Call, function: u64, shared: usize, limit: i32) -> Result<(i32, i32), Code> {
    require(limit >= 0, code::INVALID_VALUE)?;
    let block = if limit == 0 { BLOCK } else { limit.min(BLOCK) };
    Ok((active(call, function, block, shared)? * MULTIPROCESSORS, block))
}
