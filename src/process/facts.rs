#![forbid(unsafe_code)]
//! What there is: the driver, its devices, and what they can do. Creates no context.

use super::configuration::in_force;
use super::start::{started, started_already};
use crate::device::{Device, Store};
use crate::error::Error;
use crate::types::DeviceId;

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

/// How many devices the driver sees.
pub fn device_count() -> Result<u32, Error> {
    Ok(started()?.count())
}

/// The driver's version as cuda.h writes it: 12040 is CUDA 12.4.
pub fn driver_version() -> Result<i32, Error> {
    Ok(started()?.driver.version())
}

/// Each driver function that Cuddy has called, with the number of calls; empty before the first.
pub fn driver_calls() -> Vec<(&'static str, u64)> {
    started_already().map_or_else(Vec::new, |process| process.driver.calls())
}

/// What a device can do.
pub fn device_facts(device: i32) -> Result<DeviceFacts, Error> {
    let process = started()?;
    let id = process.id(device)?;
    let driver = &process.driver;
    let virtual_memory = driver.has_virtual_memory(id)?;
    let in_use = process.device_in_use(id);
    let store = match in_use {
        Some(device) => device.store(),
        None => Device::store_for(driver, id, &in_force())?,
    };
    let (backing, page_bytes) = match store {
        Store::Pages(bytes) => ("pages", bytes),
        Store::Segments => ("segments", 0),
    };
    Ok(DeviceFacts {
        device: id.0,
        name: driver.device_name(id)?,
        total_bytes: process.total(DeviceId(id.0))?,
        virtual_memory,
        granularity: if virtual_memory { driver.granularity(id)? } else { 0 },
        backing,
        page_bytes,
        in_use: in_use.is_some(),
        stream_ids: driver.has_stream_ids(),
        context_events: driver.has_context_events(),
    })
}
