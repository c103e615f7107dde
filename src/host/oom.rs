#![forbid(unsafe_code)]
//! No page-locked memory, explained: what was asked, where it is, what to do.

use super::{Host, Want};
use crate::error::{DriverError, Error, sentence};

impl Host {
    /// The error for a request that nothing could serve.
    pub(super) fn out_of_memory(&self, want: Want, refused: Option<DriverError>) -> Error {
        let stats = self.stats();
        let cause = match refused {
            Some(error) => sentence!("the driver gave no more: {error}"),
            None => sentence!("no machine has that much: is it a negative number, or an overflow?"),
        };
        Error::OutOfMemory(sentence!(
            "{} bytes of page-locked host memory were asked for, and could not be had: {cause}. \
             Cuddy has page-locked {} bytes: {} in {} live blocks, {} cached, {} in {} freed blocks \
             that streams still use, {} lost because the driver failed to take them back. Free blocks \
             that are not needed, ask for less, or see what else locks memory (other processes, \
             ulimit -l, the limits of the container).",
            want.bytes,
            stats.reserved,
            stats.allocated,
            stats.live_block_count,
            stats.cached,
            stats.active - stats.allocated,
            stats.limbo_block_count,
            stats.quarantined
        ))
    }
}
