//! Managed memory, passed on to the driver. CUDA 12 names a device by its ordinal, -1 for the host;
//! CUDA 13 by a location.

use super::exports;
use crate::types::Location;

exports! {
    context fn cudaMallocManaged(address: *mut u64, bytes: usize, flags: u32) |d| {
        d.cuMemAllocManaged(address, bytes, flags)
    };
    context fn cudaMemAdvise(address: u64, bytes: usize, advice: i32, device: i32) |d| {
        d.cuMemAdvise_v1(address, bytes, advice, device)
    };
    context fn cudaMemAdvise_v2(address: u64, bytes: usize, advice: i32, location: Location) |d| {
        d.cuMemAdvise(address, bytes, advice, location)
    };
    context fn cudaMemPrefetchAsync, fn cudaMemPrefetchAsync_ptsz (
        address: u64, bytes: usize, device: i32, stream: u64,
    ) |d, lane| {
        d.cuMemPrefetchAsync_v1(address, bytes, device, lane.of(stream))
    };
    context fn cudaMemPrefetchAsync_v2, fn cudaMemPrefetchAsync_v2_ptsz (
        address: u64, bytes: usize, location: Location, flags: u32, stream: u64,
    ) |d, lane| {
        d.cuMemPrefetchAsync(address, bytes, location, flags, lane.of(stream))
    };
    context fn cudaStreamAttachMemAsync, fn cudaStreamAttachMemAsync_ptsz (
        stream: u64, address: u64, bytes: usize, flags: u32,
    ) |d, lane| {
        d.cuStreamAttachMemAsync(lane.of(stream), address, bytes, flags)
    };
}
