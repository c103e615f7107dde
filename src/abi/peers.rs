//! Peers.
//!
//! Other devices may use memory that Cuddy allocates on a device once that is enabled. Nothing is made
//! on them: no context, no memory.

use std::ffi::c_int;

use super::guard::guarded;
use crate::error::cuddy_status;
use crate::process;

/// Lets another device use the memory that Cuddy allocates on a device: all that there is, and all
/// that comes. Streams of that device may then be named where a stream of the block's device may.
///
/// device: the device whose memory it is; it is used by this call.
/// peer:   the device that is to use it.
///
/// Enabling twice is once. A failure leaves everything as it was. Memory in segments can be used by
/// the peer's primary context alone, which has to be there, and only until the peer is reset.
///
/// Errors: CUDDY_ERROR_NOT_SUPPORTED (no way between the devices; or memory in segments, and the
/// peer has no primary context), CUDDY_ERROR_INVALID_ARGUMENT (one device twice),
/// CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER,
/// CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_enable_peer_access(device: c_int, peer: c_int) -> cuddy_status {
    guarded(|| process::enable_peer_access(device, peer))
}

/// Ends cuddy_enable_peer_access(). The peer's work with the memory has to be over.
///
/// device: the device whose memory it is.
/// peer:   the device that used it.
///
/// Errors: as cuddy_enable_peer_access().
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_disable_peer_access(device: c_int, peer: c_int) -> cuddy_status {
    guarded(|| process::disable_peer_access(device, peer))
}
