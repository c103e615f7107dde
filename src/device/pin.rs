#![forbid(unsafe_code)]
//! Pinning: memory that somebody beside us knows by its address stays where it is.

use super::Device;
use crate::error::{Error, sentence};
use crate::types::{Address, PoolId};

impl Device {
    /// Keeps the pages of a range that begins in a live block from going; 0 bytes is the rest of it.
    pub(crate) fn pin(&self, pool: PoolId, start: Address, bytes: u64) -> Result<(), Error> {
        let mut books = self.books.lock();
        let pool = books.serving(self.id, start, pool)?;
        let block = books.live(self.id, pool, start)?;
        self.requested(&block, start)?;
        let rest = block.address.0 + block.bytes - start.0;
        books.pools[pool].heap.pin(start, if bytes == 0 { rest } else { bytes })
    }

    /// Ends one pin of the range.
    pub(crate) fn unpin(&self, pool: PoolId, start: Address, bytes: u64) -> Result<(), Error> {
        let mut books = self.books.lock();
        let pool = books.serving(self.id, start, pool)?;
        let heap = &mut books.pools[pool].heap;
        let known = heap.pinned_from(start);
        let Some(known) = known else {
            let why = sentence!("nothing that begins at {start} is pinned");
            return Err(Error::InvalidArgument { argument: "pointer", why });
        };
        heap.unpin(start, if bytes == 0 { known } else { bytes })
    }
}
