//! Initialisation and versions.

use super::{exports, put, require};
use crate::call::{watch_exit, watch_forks};
use crate::types::code;

exports! {
    fn cuInit(flags: u32) |call| {
        require(flags == 0, code::INVALID_VALUE)?;
        if !call.started {
            call.start()?;
            watch_forks();
            watch_exit();
            crate::report::begin(call);
        }
        require(!call.devices.is_empty(), code::NO_DEVICE)
    };
    fn cuDriverGetVersion(
        version: *mut i32,
    ) |call| put(version, super::entry::driver_version(call));
    fn cuProfilerStart() |call| call.started();
    fn cuProfilerStop() |call| call.started();
}
