#![forbid(unsafe_code)]
//! The process: which devices there are, which of them serves an address, and what a fork or the
//! process's end means for every call.

use crate::error::Error;
use crate::stats::cuddy_stats;

/// What is known about a live block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// Where it starts.
    pub address: u64,
    /// What may be used: the request rounded up, in bytes.
    pub bytes: u64,
    /// What was asked for, in bytes.
    pub requested: u64,
    /// The device that it lies on.
    pub device: u32,
    /// The stream's handle, as it was passed to malloc.
    pub stream: usize,
    /// The stream's unique id; 0 when it was never asked for (built-in streams).
    pub stream_id: u64,
}

/// What a device can do, for `cuddy doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Its number.
    pub device: u32,
    /// Its name.
    pub name: String,
    /// Its memory, in bytes.
    pub total_bytes: u64,
    /// Whether it has virtual memory management.
    pub virtual_memory: bool,
    /// The granularity of its virtual memory, in bytes; 0 without.
    pub granularity: u64,
    /// The backing in force, or the one that would be chosen.
    pub backing: &'static str,
    /// The bytes of a page; 0 with segments.
    pub page_bytes: u64,
    /// Whether Cuddy has used it.
    pub in_use: bool,
    /// Whether the driver can tell streams apart by id (CUDA 12.0 and newer).
    pub stream_ids: bool,
    /// Whether the driver can record an event over a whole context (CUDA 12.5 and newer).
    pub context_events: bool,
}

const LATER: &str = "not built yet";
/// 1
pub fn malloc(bytes: u64, alignment: u64, device: i32, stream: usize) -> Result<u64, Error> {
    let _ = (bytes, alignment, device, stream);
    Err(Error::Internal(LATER))
}
/// 2
pub fn free(_pointer: u64) -> Result<(), Error> {
    Err(Error::Internal(LATER))
}
/// 3
pub fn record_stream(_pointer: u64, _stream: usize) -> Result<(), Error> {
    Err(Error::Internal(LATER))
}
/// 4
pub fn block_info(_pointer: u64) -> Result<BlockInfo, Error> {
    Err(Error::Internal(LATER))
}
/// 5
pub fn stream_open(_device: i32, _stream: usize) -> Result<(), Error> {
    Err(Error::Internal(LATER))
}
/// 6
pub fn stream_retire(_device: i32, _stream: usize) -> Result<(), Error> {
    Err(Error::Internal(LATER))
}
/// 7
pub fn empty_cache(_device: i32) -> Result<u64, Error> {
    Err(Error::Internal(LATER))
}
/// 8
pub fn trim(_device: i32, _keep: u64) -> Result<u64, Error> {
    Err(Error::Internal(LATER))
}
/// 9
pub fn set_memory_limit(_device: i32, _bytes: u64) -> Result<(), Error> {
    Err(Error::Internal(LATER))
}
/// 10
pub fn set_memory_fraction(_device: i32, _fraction: f64) -> Result<(), Error> {
    Err(Error::Internal(LATER))
}
/// 11
pub fn memory_limit(_device: i32) -> Result<u64, Error> {
    Err(Error::Internal(LATER))
}
/// 12
pub fn mem_get_info(_device: i32) -> Result<(u64, u64), Error> {
    Err(Error::Internal(LATER))
}
/// 13
pub fn stats(_device: i32) -> Result<cuddy_stats, Error> {
    Err(Error::Internal(LATER))
}
/// 14
pub fn reset_peak_stats(_device: i32) -> Result<(), Error> {
    Err(Error::Internal(LATER))
}
/// 15
pub fn reset_accumulated_stats(_device: i32) -> Result<(), Error> {
    Err(Error::Internal(LATER))
}
/// 16
pub fn summary(_device: i32) -> Result<String, Error> {
    Err(Error::Internal(LATER))
}
/// 17
pub fn set_option(_name: &str, _value: &str) -> Result<(), Error> {
    Err(Error::Internal(LATER))
}
/// 18
pub fn option(_name: &str) -> Result<String, Error> {
    Err(Error::Internal(LATER))
}
/// 19
pub fn device_count() -> Result<u32, Error> {
    Err(Error::Internal(LATER))
}
/// 20
pub fn driver_version() -> Result<i32, Error> {
    Err(Error::Internal(LATER))
}
/// 21
pub fn driver_calls() -> Vec<(&'static str, u64)> {
    Vec::new()
}
/// 22
pub fn device_facts(_device: i32) -> Result<DeviceFacts, Error> {
    Err(Error::Internal(LATER))
}
