#![forbid(unsafe_code)]
//! The heap: the books of one pool of one device. Numbers only: it knows no driver, clock or lock.
//!
//! A *range* holds addresses whose pages are mapped one by one; a *segment* came from the driver
//! whole. Each is tiled by *blocks*, of which a state is known: live, in limbo, free (mapped,
//! usable by its stream at once), gap (no page mapped), claimed (between a claim and its commit or
//! abort).
//!
//! The equations, which hold after every step and which [`Heap::check`] proves:
//! - the blocks of a segment tile it, each a multiple of 512 bytes, gaps whole pages;
//! - no two gaps are neighbours, nor two free blocks of one stream;
//! - the trees hold exactly the free blocks and the gaps, the table exactly the others;
//! - [`Figures`] are the sums over the blocks: allocated <= active <= reserved, and
//!   reserved = active + free + claimed with pages.
//!
//! Costs: `take`, `release`, `release_to_limbo`, `settle` and the commits are O(log n) for n free
//! blocks, `find` is O(1). Searches that may be longer say so. Host memory is asked for only before
//! anything changes: `Error::HostOutOfMemory` leaves everything as it was, and giving back
//! (release, settle, commit, abort) never asks. Not synchronised: the owner locks.
//!
//! ```
//! use cuddy::heap::{Heap, Request};
//! use cuddy::types::{Address, Stamp, StreamSlot};
//!
//! let mut heap = Heap::new(2 << 20)?;
//! heap.add_range(Address(1 << 40), 64 << 20)?;
//! let stamp = Stamp { stream: StreamSlot(0), epoch: 0 };
//! let request = Request { bytes: 4096, requested: 4000, alignment: 512, stamp };
//!
//! assert_eq!(heap.take(&request)?, None); // a miss: no page is mapped
//! let growth = heap.claim_growth(&request, u64::MAX)?.expect("64 MiB of addresses are free");
//! assert_eq!(growth.new_bytes(), 2 << 20); // ... the caller maps growth.maps here ...
//! let block = heap.commit_growth(growth)?;
//! assert_eq!((heap.figures().allocated, heap.figures().reserved), (4096, 2 << 20));
//!
//! heap.release(block.address, |_stream| 1).expect("it is live");
//! assert_eq!(heap.take(&request)?, Some(block)); // a hit
//! # Ok::<(), cuddy::error::Error>(())
//! ```

mod adopt;
mod check;
mod growth;
mod harvest;
mod look;
mod pins;
mod segments;
mod shares;
mod slab;
mod table;
mod tiling;
mod tree;
mod words;

pub use adopt::{Found, Quest, Spot};
pub use harvest::Harvest;
pub use shares::Holding;
pub use words::{
    Block, BlockState, BlockView, Figures, FreeError, Growth, PageRun, Request, Standing,
};

use crate::error::Error;
use crate::mutants::mutant;
use crate::size::{GRANULE, LARGEST_REQUEST, align_up};
use crate::types::{Address, Stamp, StreamSlot};
use segments::Segment;
use shares::Shares;
use slab::{NIL, Node, Ration, Slab, State};
use table::Table;

/// Stream slots are below this: 24 bits, as stamps have them.
const STREAM_SLOTS: u32 = 1 << 24;

/// How many blocks a search tries one by one before it settles for one that is sure to fit.
const PATIENCE: usize = 64;

/// One pool of one device. See the module for its equations.
#[derive(Debug)]
pub struct Heap {
    page: u64,
    slab: Slab,
    /// Live, limbo and claimed blocks, by address.
    table: Table,
    /// For each stream slot the tree of its free blocks, and its part of the figures.
    shares: Shares,
    /// The tree of gaps.
    gaps: u32,
    /// Ranges and segments, in address order.
    segments: Vec<Segment>,
    pins: Vec<pins::Pin>,
    figures: Figures,
    ration: Ration,
    /// Steps since the last whole check, in debug builds.
    unchecked: usize,
}

impl Heap {
    /// An empty heap over pages of `page_bytes`.
    ///
    /// # Errors
    /// `InvalidArgument` unless that is a power of two from 512 to 2^62.
    pub fn new(page_bytes: u64) -> Result<Self, Error> {
        if !page_bytes.is_power_of_two() || !(GRANULE..=LARGEST_REQUEST).contains(&page_bytes) {
            return Err(invalid("page_bytes", page_bytes, "a power of two from 512 to 2^62"));
        }
        Ok(Self::empty(page_bytes))
    }

    /// Forgets everything: as new. Never needs memory.
    pub fn clear(&mut self) {
        *self = Self::empty(self.page);
    }

    fn empty(page: u64) -> Self {
        Self {
            page,
            slab: Slab::new(),
            table: Table::new(),
            shares: Shares::default(),
            gaps: NIL,
            segments: Vec::new(),
            pins: Vec::new(),
            figures: Figures::default(),
            ration: Ration::default(),
            unchecked: 0,
        }
    }

    /// The page size, in bytes.
    pub fn page_bytes(&self) -> u64 {
        self.page
    }

    /// A hit: a block out of the free memory of the request's stream, or `None`.
    ///
    /// The smallest free block that fits, the lowest among equals, from its low end. With an
    /// alignment over 512 the smallest of the first 64 that are large enough, else one that fits in
    /// any position, else whatever fits: `None` means that nothing does.
    ///
    /// # Errors
    /// `InvalidArgument` for a request outside what [`Request`] says; `HostOutOfMemory`.
    pub fn take(&mut self, request: &Request) -> Result<Option<Block>, Error> {
        self.admit(request)?;
        self.slab.reserve(2, &mut self.ration)?;
        self.table.reserve(1, &self.slab, &mut self.ration)?;
        let n = self.fitting(request);
        if n == NIL {
            return Ok(None);
        }
        self.withdraw(n);
        let start = align_up(self.slab[n].address, request.alignment);
        let mut taken = n;
        if start > self.slab[n].address {
            taken = self.cut(n, start);
            self.attach_free(n);
        }
        if self.slab[taken].bytes > request.bytes {
            let rest = self.cut(taken, start + request.bytes);
            if mutant("heap-lost-split") && self.slab[rest].bytes == GRANULE {
                self.fuse(taken, rest);
            } else {
                self.attach_free(rest);
            }
        }
        self.slab[taken].set_requested(request.requested);
        self.settle_as(taken, State::Live);
        self.table.insert(&self.slab, taken);
        self.stepped();
        Ok(Some(self.block(taken)))
    }

    /// Live to free: the block may be reused by its own stream at once.
    ///
    /// `epoch` is given the block's stream and answers that stream's epoch now. Never needs memory.
    ///
    /// # Errors
    /// [`FreeError`], with nothing changed.
    pub fn release(
        &mut self,
        address: Address,
        epoch: impl FnOnce(StreamSlot) -> u64,
    ) -> Result<Block, FreeError> {
        let n = self.named(address, State::Live)?;
        let block = self.block(n);
        self.withdraw(n);
        self.table.remove(&self.slab, n);
        self.used_until(n, epoch(block.stream));
        self.attach_free(n);
        self.stepped();
        Ok(block)
    }

    /// Live to free, of the stamp's stream instead of its own: the caller knows that work of that
    /// stream from the stamp's epoch on is ordered behind every use of the block.
    ///
    /// # Errors
    /// As `release`, in the words of [`Error`]. Only for a stream that this heap has never seen:
    /// `InvalidArgument` if its slot is not below 2^24, `HostOutOfMemory`. Nothing was changed.
    pub fn release_to(&mut self, address: Address, stamp: Stamp) -> Result<Block, Error> {
        let n = self.named(address, State::Live).map_err(|error| error.at(address))?;
        self.know_stream(stamp.stream)?;
        let block = self.block(n);
        self.withdraw(n);
        self.table.remove(&self.slab, n);
        let node = &mut self.slab[n];
        (node.stream, node.epoch) = (stamp.stream.0, stamp.epoch);
        self.attach_free(n);
        self.stepped();
        Ok(block)
    }

    /// Says anew what was asked for, of a live block that found another user meanwhile.
    ///
    /// # Errors
    /// `Internal` if no live block starts there, or it is smaller than that.
    pub fn restate(&mut self, address: Address, requested: u64) -> Result<(), Error> {
        let n = self.table.find(&self.slab, address.0);
        if n == NIL || self.slab[n].state != State::Live || self.slab[n].bytes < requested {
            return Err(Error::Internal("a block to restate is not live"));
        }
        self.withdraw(n);
        self.slab[n].set_requested(requested);
        self.settle_as(n, State::Live);
        self.stepped();
        Ok(())
    }

    /// Live to limbo: it stays active until `settle`. `epoch` as for `release`. Never needs memory.
    ///
    /// # Errors
    /// [`FreeError`], with nothing changed.
    pub fn release_to_limbo(
        &mut self,
        address: Address,
        epoch: impl FnOnce(StreamSlot) -> u64,
    ) -> Result<Block, FreeError> {
        let n = self.named(address, State::Live)?;
        let block = self.block(n);
        self.withdraw(n);
        self.used_until(n, epoch(block.stream));
        self.settle_as(n, State::Limbo);
        self.stepped();
        Ok(block)
    }

    /// Limbo to free, of its own stream, stamped with the epoch of its release. Never needs memory.
    ///
    /// # Errors
    /// [`FreeError`] if no block in limbo starts there, with nothing changed.
    pub fn settle(&mut self, address: Address) -> Result<Block, FreeError> {
        let n = self.named(address, State::Limbo)?;
        let block = self.block(n);
        self.withdraw(n);
        self.table.remove(&self.slab, n);
        self.attach_free(n);
        self.stepped();
        Ok(block)
    }

    /// The live block that starts at `address`. Constant time.
    pub fn find(&self, address: Address) -> Option<Block> {
        let n = self.table.find(&self.slab, address.0);
        (n != NIL && self.slab[n].state == State::Live).then(|| self.block(n))
    }

    /// Lets the `kth` reservation of host memory from now fail, once; 0 for none. For tests.
    #[doc(hidden)]
    pub fn fail_reservation(&mut self, kth: u64) {
        self.ration.fail_at(kth);
    }

    /// The node in this state that starts at `address`, or why there is none.
    fn named(&self, address: Address, state: State) -> Result<u32, FreeError> {
        let n = self.table.find(&self.slab, address.0);
        if n != NIL && self.slab[n].state == state {
            return Ok(n);
        }
        Err(match self.classify(address) {
            Standing::LiveInterior(block) => FreeError::Interior { start: block.address },
            Standing::Foreign => FreeError::Foreign,
            _ => FreeError::AlreadyFree,
        })
    }

    /// Work of a block's stream up to `epoch` may use it. Never moves back.
    fn used_until(&mut self, n: u32, epoch: u64) {
        let node = &mut self.slab[n];
        node.epoch = node.epoch.max(epoch);
    }

    /// A node as the outside sees it.
    fn block(&self, n: u32) -> Block {
        let node = &self.slab[n];
        Block {
            address: Address(node.address),
            bytes: node.bytes,
            requested: node.requested(),
            stream: StreamSlot(node.stream),
        }
    }

    /// Best fit among the stream's free blocks, or NIL.
    fn fitting(&self, request: &Request) -> u32 {
        let root = self.shares.root(request.stamp.stream.0);
        let slack = request.alignment - GRANULE;
        let mut n = tree::at_least(&self.slab, root, request.bytes, 0);
        let mut tried = 0;
        while n != NIL && slack > 0 {
            let Node { address, bytes, .. } = self.slab[n];
            if align_up(address, request.alignment) - address <= bytes - request.bytes {
                return n;
            }
            tried += 1;
            if tried == PATIENCE {
                let sure = tree::at_least(&self.slab, root, request.bytes + slack, 0);
                if sure != NIL {
                    return sure;
                }
            }
            n = tree::at_least(&self.slab, root, bytes, address + GRANULE);
        }
        n
    }

    /// Makes room for a stream, so that giving blocks to it never needs memory.
    ///
    /// # Errors
    /// `InvalidArgument` unless its slot is below 2^24; `HostOutOfMemory`.
    pub fn prepare(&mut self, stream: StreamSlot) -> Result<(), Error> {
        self.know_stream(stream)
    }

    /// Refuses what is no request, and makes its stream known.
    fn admit(&mut self, request: &Request) -> Result<(), Error> {
        check_request(request)?;
        self.know_stream(request.stamp.stream)
    }

    /// Makes room for a stream's tree, so that giving back never needs memory.
    fn know_stream(&mut self, stream: StreamSlot) -> Result<(), Error> {
        if stream.0 >= STREAM_SLOTS {
            return Err(invalid("stream", u64::from(stream.0), "a slot below 2^24"));
        }
        self.shares.know(stream.0, &mut self.ration)
    }

    /// Whose use a node's bytes may still be in.
    fn stamp(&self, n: u32) -> Stamp {
        Stamp { stream: StreamSlot(self.slab[n].stream), epoch: self.slab[n].epoch }
    }
}

/// Refuses a request that is outside what [`Request`] says.
fn check_request(request: &Request) -> Result<(), Error> {
    let Request { bytes, requested, alignment, .. } = *request;
    if bytes == 0 || bytes % GRANULE != 0 || bytes > LARGEST_REQUEST {
        return Err(invalid("bytes", bytes, "a multiple of 512 from 512 to 2^62"));
    }
    if requested > bytes {
        return Err(invalid("requested", requested, "at most the rounded size"));
    }
    if !alignment.is_power_of_two() || !(GRANULE..=LARGEST_REQUEST).contains(&alignment) {
        return Err(invalid("alignment", alignment, "a power of two from 512 to 2^62"));
    }
    Ok(())
}

/// An argument that is not what it must be.
fn invalid(argument: &'static str, value: u64, must_be: &str) -> Error {
    Error::InvalidArgument { argument, why: format!("{value} is not {must_be}") }
}
