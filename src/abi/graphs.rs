//! Graphs.
//!
//! Memory that a captured CUDA graph uses is the graph's until it is destroyed, even if it is freed:
//! each launch uses it again. So Cuddy has to know of the capture: tell it with these three calls,
//! around what captures, launches and destroys the graph. While a capture is under way Cuddy makes no
//! driver call that would disturb it, in any capture mode; freed memory that other streams still use
//! waits for its end.
//!
//! Between cuddy_graph_begin() and cuddy_graph_end() allocations on the captured stream, and on
//! streams that joined its capture, come from the graph's pool. Memory freed there is used again
//! in the same capture by the same stream, and by another one after cuddy_note_wait(). Several graphs
//! may share a pool: a later one uses what an earlier one freed, so they must be launched in the order
//! of their captures, one after the other.

use std::ffi::c_int;

use super::convert::{cuddy_stream, given};
use super::guard::guarded;
use super::pools::cuddy_pool;
use crate::error::cuddy_status;
use crate::process;

/// A graph's name, as Cuddy knows it.
#[allow(non_camel_case_types)]
pub type cuddy_graph = u64;

/// Says that a stream's work is captured into a graph from now on. Call it right before
/// the capture is begun; right after will do where no other thread calls Cuddy in between. Waits
/// for other threads' driver calls about the whole context: they would break the capture.
///
/// graph:  where to write the graph's name.
/// device: the stream's device, or CUDDY_CURRENT_DEVICE.
/// stream: the stream that is captured; it must live until cuddy_graph_end(). Not the legacy one.
/// pool:   a pool of cuddy_pool_create(), which other graphs may share; 0 for one of its own.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (graph is NULL), CUDDY_ERROR_INVALID_GRAPH (the stream is
/// captured into another graph already), CUDDY_ERROR_INVALID_STREAM, CUDDY_ERROR_INVALID_POOL,
/// CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_WRONG_DEVICE, CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER,
/// CUDDY_ERROR_FORKED, CUDDY_ERROR_HOST_OUT_OF_MEMORY.
/// Thread-safe. Graphs of several streams may be captured at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_graph_begin(
    graph: *mut cuddy_graph,
    device: c_int,
    stream: cuddy_stream,
    pool: cuddy_pool,
) -> cuddy_status {
    guarded(|| {
        given(graph, "graph")?;
        let name = process::graph_begin(device, stream as usize, pool)?;
        // SAFETY: not NULL, and the caller promises that it may be written.
        unsafe { graph.write(name) };
        Ok(())
    })
}

/// Says that the capture is over. Call it right after the capture was ended, whether that succeeded
/// or not.
///
/// graph: a graph that was begun.
///
/// Errors: CUDDY_ERROR_INVALID_GRAPH (no graph, or ended before), CUDDY_ERROR_FORKED.
/// Thread-safe. Records what could not be recorded during the capture; waits for nobody.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_graph_end(graph: cuddy_graph) -> cuddy_status {
    guarded(|| process::graph_end(graph))
}

/// Says that the graph, and all that was instantiated from it, is not launched any more. Its memory
/// goes back to the pool once its last launches are over; a pool of its own ends with it. Blocks
/// that were not freed stay valid.
///
/// graph:  a graph. One whose capture was not ended, because it failed, is ended first.
/// stream: the stream of its last launches; launches on others must be ordered before it.
///
/// Errors: CUDDY_ERROR_INVALID_GRAPH (no graph, or destroyed before), CUDDY_ERROR_INVALID_STREAM,
/// CUDDY_ERROR_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_HOST_OUT_OF_MEMORY.
/// Thread-safe. Waits for nobody.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_graph_destroy(graph: cuddy_graph, stream: cuddy_stream) -> cuddy_status {
    guarded(|| process::graph_destroy(graph, stream as usize))
}
