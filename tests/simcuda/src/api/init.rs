//! Initialisation and versions.

use super::{exports, put, require};
use crate::call::{Call, watch_exit, watch_forks};
use crate::types::{Outcome, code};

exports! {
    fn cuInit(flags: u32) |call| {
        let was_started = call.started;
        let answer = init(call, flags);
        if let (false, false, Err(code)) = (was_started, call.started, answer) {
            crate::journal::refused(code, &call.complaint);
        }
        answer
    };
    fn cuDriverGetVersion(
        version: *mut i32,
    ) |call| put(version, super::entry::driver_version(call));
    fn cuProfilerStart() |call| call.started();
    fn cuProfilerStop() |call| call.started();
}

fn init(call: &mut Call, flags: u32) -> Outcome {
    require(flags == 0, code::INVALID_VALUE)?;
    if !call.started {
        call.start().inspect_err(|_| {
            if !call.complaint.is_empty() {
                eprintln!("simcuda: {}", call.complaint);
            }
        })?;
        watch_forks();
        watch_exit();
        watch_touches(call);
        crate::report::begin(call);
    }
    require(!call.devices.is_empty(), code::NO_DEVICE)
}

/// With the checker on, host touches of device memory are told.
pub fn watch_touches(call: &Call) {
    if call.started && call.engine.checker_ref().is_on() {
        let (start, bytes) = call.memory.device_addresses();
        crate::host_touch::watch(start, bytes);
    }
}
