//! Initialisation and versions.

use super::{exports, put, require};
use crate::call::watch_forks;
use crate::types::code;

exports! {
    fn cuInit(flags: u32) |call| {
        require(flags == 0, code::INVALID_VALUE)?;
        if !call.started {
            call.start()?;
            watch_forks();
            crate::report::at_exit();
        }
        require(!call.devices.is_empty(), code::NO_DEVICE)
    };
    fn cuDriverGetVersion(version: *mut i32) |call| {
        let configured = crate::config::Config::load(&call.overrides).map(|c| c.driver);
        let known = if call.started { call.config.driver } else { configured.unwrap_or(13000) };
        put(version, known)
    };
    fn cuProfilerStart() |call| call.started();
    fn cuProfilerStop() |call| call.started();
}
