//! Memory pools and stream-ordered memory, passed on to the driver: its structures and attributes
//! are the runtime's too.

use super::{exports, put, wanted};
use crate::types::Location;
use std::ffi::c_void;

exports! {
    context fn cudaMallocAsync, fn cudaMallocAsync_ptsz (
        address: *mut u64, bytes: usize, stream: u64,
    ) |d, lane| {
        wanted(address)?;
        match bytes {
            0 => put(address, 0),
            _ => d.cuMemAllocAsync(address, bytes, lane.of(stream)),
        }
    };
    context fn cudaMallocFromPoolAsync, fn cudaMallocFromPoolAsync_ptsz (
        address: *mut u64, bytes: usize, pool: u64, stream: u64,
    ) |d, lane| {
        wanted(address)?;
        match bytes {
            0 => put(address, 0),
            _ => d.cuMemAllocFromPoolAsync(address, bytes, pool, lane.of(stream)),
        }
    };
    context fn cudaFreeAsync, fn cudaFreeAsync_ptsz (address: u64, stream: u64) |d, lane| {
        match address {
            0 => Ok(()),
            _ => d.cuMemFreeAsync(address, lane.of(stream)),
        }
    };
    context fn cudaMemPoolCreate(pool: *mut u64, wished: *const c_void) |d| {
        d.cuMemPoolCreate(pool, wished)
    };
    context fn cudaMemPoolDestroy(pool: u64) |d| d.cuMemPoolDestroy(pool);
    context fn cudaMemPoolGetAttribute(pool: u64, attribute: i32, value: *mut c_void) |d| {
        d.cuMemPoolGetAttribute(pool, attribute, value)
    };
    context fn cudaMemPoolSetAttribute(pool: u64, attribute: i32, value: *mut c_void) |d| {
        d.cuMemPoolSetAttribute(pool, attribute, value)
    };
    context fn cudaMemPoolSetAccess(pool: u64, wished: *const c_void, count: usize) |d| {
        d.cuMemPoolSetAccess(pool, wished, count)
    };
    context fn cudaMemPoolGetAccess(flags: *mut i32, pool: u64, location: *mut Location) |d| {
        d.cuMemPoolGetAccess(flags, pool, location)
    };
    context fn cudaMemPoolTrimTo(pool: u64, bytes: usize) |d| d.cuMemPoolTrimTo(pool, bytes);
    context fn cudaMemPoolExportToShareableHandle(
        to: *mut c_void, pool: u64, kind: i32, flags: u32,
    ) |d| {
        d.cuMemPoolExportToShareableHandle(to, pool, kind, u64::from(flags))
    };
    context fn cudaMemPoolImportFromShareableHandle(
        pool: *mut u64, from: *mut c_void, kind: i32, flags: u32,
    ) |d| {
        d.cuMemPoolImportFromShareableHandle(pool, from, kind, u64::from(flags))
    };
    context fn cudaMemPoolExportPointer(to: *mut c_void, address: u64) |d| {
        d.cuMemPoolExportPointer(to, address)
    };
    context fn cudaMemPoolImportPointer(address: *mut u64, pool: u64, from: *mut c_void) |d| {
        d.cuMemPoolImportPointer(address, pool, from)
    };
}
