//! Peers, where contexts decide: one context may use all allocations of another, or none.

use std::ffi::c_int;

use super::table::Entry;
use super::{Context, Driver, Inside, pointer};
use crate::error::DriverError;
use crate::types::DeviceId;

/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
const ALREADY_ENABLED: c_int = 704;
/// `CUDA_ERROR_PEER_ACCESS_NOT_ENABLED`.
const NOT_ENABLED: c_int = 705;

impl Driver {
    /// A reference on the primary context of a device, if somebody uses that; for
    /// [`Driver::primary_release`].
    pub(crate) fn primary_in_use(&self, id: DeviceId) -> Result<Option<Context>, DriverError> {
        let (device, mut flags, mut active) = (self.device(id)?, 0, 0);
        // SAFETY: writes two numbers through pointers that outlive the call.
        self.call(Entry::primary_state, self.table.primary_state, |f| unsafe {
            f(device, &mut flags, &mut active)
        })?;
        if active == 0 { Ok(None) } else { self.primary_retain(id).map(Some) }
    }
}

impl Inside<'_> {
    /// Lets this context use the allocations of another, what there is and what comes; or no more.
    pub(crate) fn use_memory_of(&self, other: Context, enabled: bool) -> Result<(), DriverError> {
        let (table, other) = (&self.driver.table, pointer(other.0));
        let (set, as_it_was) = match enabled {
            // SAFETY: the driver checks both contexts; the flags have to be 0.
            true => (
                self.call(Entry::peer_enable, table.peer_enable, |f| unsafe { f(other, 0) }),
                ALREADY_ENABLED,
            ),
            // SAFETY: the driver checks both contexts.
            false => (
                self.call(Entry::peer_disable, table.peer_disable, |f| unsafe { f(other) }),
                NOT_ENABLED,
            ),
        };
        set.or_else(|error| if error.code == as_it_was { Ok(()) } else { Err(error) })
    }
}
