#![forbid(unsafe_code)]
//! The counters of one device, and the verbs that move them.
//!
//! At every moment `allocated <= active <= reserved <= reserved peak`, and
//! `requested <= allocated`.

/// Counters of one device. All are 64 bits; bytes unless the name ends in `_count`.
///
/// Set `struct_size` to `sizeof(cuddy_stats)` before the call: no more than that is written, so a
/// program built against an older cuddy.h keeps working. New fields are added at the end only.
///
/// At every moment allocated <= active <= reserved <= reserved_peak, and requested <= allocated.
/// "peak" is the largest value since the last cuddy_reset_peak_memory_stats(), "total" the sum of all
/// that was added since the last cuddy_reset_accumulated_memory_stats().
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct cuddy_stats {
    /// In: sizeof(cuddy_stats) in the caller's header. Out: the bytes that were filled.
    pub struct_size: u64,
    /// Bytes that callers asked for, in live blocks.
    pub requested: u64,
    /// Its peak.
    pub requested_peak: u64,
    /// Its total.
    pub requested_total: u64,
    /// Bytes of live blocks, after rounding to 512.
    pub allocated: u64,
    /// Its peak.
    pub allocated_peak: u64,
    /// Its total.
    pub allocated_total: u64,
    /// Allocated, plus bytes of freed blocks that some stream may still be using.
    pub active: u64,
    /// Its peak.
    pub active_peak: u64,
    /// Physical bytes held from the driver.
    pub reserved: u64,
    /// Its peak.
    pub reserved_peak: u64,
    /// Bytes got from the driver over time.
    pub reserved_total: u64,
    /// Physical bytes kept by the cache: reserved - active.
    pub cached: u64,
    /// Physical bytes kept without an address, ready to be mapped again; part of cached.
    pub unmapped: u64,
    /// The most that may be reserved; UINT64_MAX when there is no limit.
    pub limit: u64,
    /// The largest block that this device could serve from its cache, on one stream.
    pub largest_free: u64,
    /// Bytes that the driver took neither back nor gave: lost to a failed release. Part of
    /// reserved, never used again.
    pub quarantined: u64,
    /// Live blocks.
    pub live_block_count: u64,
    /// Its peak.
    pub live_block_peak_count: u64,
    /// Allocations served.
    pub malloc_count: u64,
    /// Blocks freed.
    pub free_count: u64,
    /// Allocations served from the cache, with no driver call.
    pub hit_count: u64,
    /// Allocations that needed the driver.
    pub miss_count: u64,
    /// Misses served by taking pages from free blocks and mapping them elsewhere.
    pub harvest_count: u64,
    /// Times that the host waited for a stream, to make memory reusable.
    pub wait_count: u64,
    /// Allocations that failed at first and succeeded after memory was taken back.
    pub retry_count: u64,
    /// Allocations that failed for want of memory.
    pub out_of_memory_count: u64,
    /// Freed blocks that wait for a stream.
    pub limbo_block_count: u64,
    /// Driver calls made on behalf of this device.
    pub driver_call_count: u64,
}
