#![forbid(unsafe_code)]
//! The heap's nouns: what is asked of it, and what it answers.
//!
//! A block is in exactly one [`BlockState`]; [`Figures`] are the sums of bytes over those states.

use crate::error::Error;
use crate::types::{Address, Stamp, StreamSlot};

/// What a caller wants: so many bytes, so aligned, for use on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Size in bytes: a multiple of 512, not zero, at most `size::LARGEST_REQUEST`.
    pub bytes: u64,
    /// What the user asked for before rounding, at most `bytes`.
    pub requested: u64,
    /// A power of two of at least 512, at most `size::LARGEST_REQUEST`.
    pub alignment: u64,
    /// The stream that will use it. The epoch is what fresh memory of a growth is stamped with (0:
    /// nothing has ever used it).
    pub stamp: Stamp,
}

/// A block that is live, in limbo, or claimed for somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its first byte, and what the user holds.
    pub address: Address,
    /// Its size, a multiple of 512.
    pub bytes: u64,
    /// What was asked for, at most `bytes`.
    pub requested: u64,
    /// The stream that it was made for.
    pub stream: StreamSlot,
}

/// Whole pages (or a whole segment) that lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRun {
    /// The first page's address.
    pub address: Address,
    /// A multiple of the page size (of a segment: its size).
    pub bytes: u64,
}

/// A block that will be live once `maps` have been mapped.
///
/// To be given back to the heap that made it, by `commit_growth` or `abort_growth`; dropped, its
/// bytes stay claimed for ever.
#[must_use = "commit or abort it: until then its bytes are claimed"]
#[derive(Debug, PartialEq, Eq)]
pub struct Growth {
    /// The block as it will be.
    pub block: Block,
    /// The page runs to map first, in address order; none overlaps or touches another.
    pub maps: Vec<PageRun>,
    /// All that is claimed: the block, and the rest of the pages that it does not fill.
    pub(super) claimed: PageRun,
    /// What fresh memory is stamped with.
    pub(super) stamp: Stamp,
}

impl Growth {
    /// Bytes that committing it adds to what is reserved: the sum over `maps`.
    pub fn new_bytes(&self) -> u64 {
        self.maps.iter().map(|run| run.bytes).sum()
    }
}

/// Why an address cannot be freed. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeError {
    /// Not in this heap's ranges and segments.
    Foreign,
    /// Inside a live block, not its start.
    Interior {
        /// The block's start: what should have been passed.
        start: Address,
    },
    /// In memory that is free, in limbo, or given back already.
    AlreadyFree,
}

impl FreeError {
    /// The same as an [`Error`], of the address that was to be freed.
    pub fn at(self, address: Address) -> Error {
        match self {
            Self::Foreign => Error::ForeignPointer(address),
            Self::Interior { start } => Error::InteriorPointer { pointer: address, start },
            Self::AlreadyFree => Error::DoubleFree(address),
        }
    }
}

/// What an address is to this heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The start of this live block.
    Live(Block),
    /// Inside this live block.
    LiveInterior(Block),
    /// In a block that is freed, but that some stream may still use.
    Limbo(Block),
    /// In a free block.
    Free,
    /// In a range of ours where no page is mapped.
    Gap,
    /// In pages that are being mapped or unmapped right now.
    Claimed,
    /// Not ours.
    Foreign,
}

/// The states of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Handed out.
    Live,
    /// Freed, and not to be reused before its fences have passed.
    Limbo,
    /// Mapped, and usable by its stream at once.
    Free,
    /// Addresses with no page behind them.
    Gap,
    /// Between a claim and its commit or abort; `mapped` says whether pages are behind it.
    Claimed {
        /// Whether its bytes count as reserved.
        mapped: bool,
    },
}

/// One block of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// Its first byte.
    pub address: Address,
    /// Its size.
    pub bytes: u64,
    /// What was asked for, of live blocks and those in limbo; else 0.
    pub requested: u64,
    /// Its state.
    pub state: BlockState,
    /// Who used it last, before it became live if it is; `u32::MAX` at epoch 0 where no page is
    /// mapped.
    pub stamp: Stamp,
    /// The start of the range or segment that it lies in.
    pub segment: Address,
}

/// Sums over the heap, all in bytes unless they say blocks. Exact after each step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Live blocks, as asked for.
    pub requested: u64,
    /// Live blocks, rounded.
    pub allocated: u64,
    /// `allocated`, plus blocks in limbo.
    pub active: u64,
    /// What has pages behind it: active + free + claimed from free.
    pub reserved: u64,
    /// Free blocks.
    pub free: u64,
    /// Addresses that have no page behind them, nor are claimed to get one.
    pub gap: u64,
    /// Claimed, with pages behind it (about to be unmapped, or joined to new pages).
    pub claimed_mapped: u64,
    /// Claimed, without pages yet.
    pub claimed_unmapped: u64,
    /// Whole pages inside one free block, and segments that are one free block: what `claim_pages`
    /// and `claim_segments` would find. Pages and segments that free blocks of several streams
    /// share come on top.
    pub releasable: u64,
    /// How many blocks are live.
    pub live_blocks: u64,
    /// How many blocks are in limbo.
    pub limbo_blocks: u64,
    /// How many blocks are free.
    pub free_blocks: u64,
    /// How many pairs of neighbours are free, and of different streams.
    pub borders: u64,
    /// How many gaps there are.
    pub gaps: u64,
    /// How many ranges and segments there are.
    pub segments: u64,
}
