//! Streams.
//!
//! A stream that Cuddy was not told about is used only inside the calls that pass it: the program
//! may destroy it at any time, and its handle may come back for another stream. A program that opens
//! its streams here, and retires them before it destroys them, saves driver calls and waits.

use std::ffi::c_int;

use super::convert::{cuddy_stream, invalid};
use super::guard::guarded;
use crate::error::cuddy_status;
use crate::process;

/// Promises that a stream lives until cuddy_stream_retire(): Cuddy may use its handle meanwhile.
///
/// device: the stream's device, or CUDDY_CURRENT_DEVICE.
/// stream: a stream of that device. Opening one twice, or a built-in one, changes nothing.
///
/// Errors: CUDDY_ERROR_INVALID_STREAM, CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_WRONG_DEVICE,
/// CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN,
/// CUDDY_ERROR_HOST_OUT_OF_MEMORY.
/// Thread-safe. Calls the driver once.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_stream_open(device: c_int, stream: cuddy_stream) -> cuddy_status {
    guarded(|| process::stream_open(device, stream as usize))
}

/// The stream may be captured, and cuddy_graph_begin() is not called: each call of Cuddy asks the
/// driver. For cuddy_stream_open_ex().
pub const CUDDY_STREAM_CAPTURABLE: u32 = 1;

/// cuddy_stream_open() with flags.
///
/// With CUDDY_STREAM_CAPTURABLE the memory that is allocated on the stream during a capture
/// belongs to the captured graph, without a word from the program: until the graph, and all that
/// was instantiated from it, is destroyed and its launches are over. What holds between
/// cuddy_graph_begin() and cuddy_graph_end() holds during the capture. Open every stream so that
/// allocates in a capture, those that join one too. Meant for programs that cannot tell when a
/// library of theirs captures; with such a stream no allocation is served without driver calls:
/// where the program can, let it call cuddy_graph_begin().
///
/// device: the stream's device, or CUDDY_CURRENT_DEVICE.
/// stream: a stream of that device; with CUDDY_STREAM_CAPTURABLE, not a default one. Opening one
///         again adds flags, and takes none away.
/// flags:  0, or CUDDY_STREAM_CAPTURABLE.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (flags), CUDDY_ERROR_INVALID_STREAM,
/// CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_WRONG_DEVICE, CUDDY_ERROR_NOT_SUPPORTED (drivers before
/// CUDA 11.3 cannot tell when a graph is gone), CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER,
/// CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN, CUDDY_ERROR_HOST_OUT_OF_MEMORY.
/// Thread-safe. Calls the driver once.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_stream_open_ex(
    device: c_int,
    stream: cuddy_stream,
    flags: u32,
) -> cuddy_status {
    guarded(|| match flags {
        0 => process::stream_open(device, stream as usize),
        CUDDY_STREAM_CAPTURABLE => process::stream_open_capturable(device, stream as usize),
        _ => {
            let why = format_args!(
                "they are {flags:#x}; CUDDY_STREAM_CAPTURABLE ({CUDDY_STREAM_CAPTURABLE:#x}) is all \
                 that is known"
            );
            Err(invalid("flags", why))
        }
    })
}

/// Ends that promise: call it right before the stream is destroyed. Work that the stream was given
/// before counts; it must be given no more.
///
/// Blocks of the stream stay valid, and its free memory stays usable by others.
///
/// device: the stream's device, or CUDDY_CURRENT_DEVICE.
/// stream: a stream that was opened.
///
/// Errors: CUDDY_ERROR_INVALID_STREAM (never opened, or retired before), CUDDY_ERROR_INVALID_DEVICE,
/// CUDDY_ERROR_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
/// Thread-safe. Calls the driver to mark the end of the stream's work; does not wait for it.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_stream_retire(device: c_int, stream: cuddy_stream) -> cuddy_status {
    guarded(|| process::stream_retire(device, stream as usize))
}

/// Tells that the program has made one stream wait for another. What has been freed on donor may
/// then go to thief at once, with no wait of Cuddy's.
///
/// Call it where the wait is put in (cuStreamWaitEvent(), cudaStreamWaitEvent()). The event stands
/// for all that donor was given before it was recorded: a block of donor whose use comes later must
/// not have been freed by then.
///
/// device: the streams' device, or CUDDY_CURRENT_DEVICE.
/// thief:  the stream that waits.
/// donor:  the stream that it waits for.
///
/// Errors: CUDDY_ERROR_INVALID_STREAM, CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_WRONG_DEVICE,
/// CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN,
/// CUDDY_ERROR_HOST_OUT_OF_MEMORY.
/// Thread-safe. Calls the driver at most to tell which streams the handles are.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_note_wait(
    device: c_int,
    thief: cuddy_stream,
    donor: cuddy_stream,
) -> cuddy_status {
    guarded(|| process::note_wait(device, thief as usize, donor as usize))
}
