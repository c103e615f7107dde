#![forbid(unsafe_code)]
//! Observers as the program names them.

use crate::error::Error;
use crate::observers;
use crate::sync::refuse_after_fork;

use crate::observers::Call;
pub(crate) use crate::observers::Event;
/// Nothing that could serve a request was found.
pub const EVENT_OUT_OF_MEMORY: u32 = observers::OUT_OF_MEMORY;
/// More memory is held from the driver.
pub const EVENT_GROWTH: u32 = observers::GROWTH;
/// Less memory is held from the driver.
pub const EVENT_RELEASE: u32 = observers::RELEASE;
/// In place of a device's number: page-locked host memory.
pub const HOST_MEMORY: i32 = observers::HOST;

/// From now on `call(event, function, user)` is made for events of these kinds. The answer names the
/// observer.
pub(crate) fn observe(kinds: u32, call: Call, function: usize, user: usize) -> Result<u64, Error> {
    refuse_after_fork()?;
    observers::add(kinds, call, function, user)
}

/// No more calls are made of this observer. Waits for those that other threads are in, unless it is
/// called inside a call of an observer itself.
pub fn unobserve(observer: u64) -> Result<(), Error> {
    refuse_after_fork()?;
    observers::remove(observer)
}
