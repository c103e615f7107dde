#![forbid(unsafe_code)]
//! Adoption: free memory of other streams becomes a block of the stream that asks.
//!
//! A *spot* is a range of free memory, of one stream or of several side by side, that fits a
//! request and may be used for it: every stamp on it was found `usable`. Adopting it makes just
//! those bytes one live block; what is left of the free blocks stays whose it was, with its stamps.
//!
//! A *quest* for a spot goes in steps of a bounded number of blocks, so that nobody has to keep the
//! heap to himself for long; between two steps everything may change, and whatever was found is
//! looked at again when it is adopted. First single blocks: of each stream, the smallest that fits,
//! and of all those the smallest. Then runs of neighbours, each walked once, from its lowest block.

use super::slab::{NIL, State};
use super::{Block, Heap, Request, check_request, tree};
use crate::error::Error;
use crate::mutants::mutant;
use crate::size::{GRANULE, align_up};
use crate::types::{Address, Stamp, StreamSlot};

/// Whether memory with this stamp may be used.
type Usable<'a> = &'a mut dyn FnMut(Stamp) -> bool;

/// Free memory that a request could be served from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The first free block that it lies in: its stream, size and address, which find it again.
    stream: u32,
    key: (u64, u64),
    /// Where the block would start.
    start: u64,
}

impl Spot {
    /// Where the block would start.
    pub fn address(&self) -> Address {
        Address(self.start)
    }
}

/// A search for a spot, on its way.
#[derive(Clone, Debug)]
pub struct Quest {
    request: Request,
    /// How many blocks of one stream are looked at before the next one's turn.
    patience: usize,
    /// Whether runs of several blocks are looked at, too.
    runs: bool,
    /// The smallest single block found.
    best: Option<Spot>,
    /// Where the next step begins: a stream, and the size and address to go on from.
    stream: u32,
    key: (u64, u64),
    tried: usize,
    walking_runs: bool,
}

impl Quest {
    /// A search that looks at up to `patience` blocks of each stream; `usize::MAX` misses nothing.
    /// With `runs`, neighbours that fit together are found, too.
    pub fn new(request: &Request, patience: usize, runs: bool) -> Self {
        Self {
            request: *request,
            patience,
            runs,
            best: None,
            stream: 0,
            key: (request.bytes, 0),
            tried: 0,
            walking_runs: false,
        }
    }
}

/// How far a quest has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// This fits, and may be used.
    Spot(Spot),
    /// There is more to look at.
    NotYet,
    /// Nothing fits that may be used.
    Nothing,
}

impl Heap {
    /// One step of a search, over about `effort` blocks (a run of neighbours is always walked to
    /// its end, or to where it is long enough).
    pub fn search(&self, quest: &mut Quest, usable: Usable<'_>, effort: usize) -> Found {
        let mut left = effort;
        if !quest.walking_runs {
            if !self.search_blocks(quest, usable, &mut left) {
                return Found::NotYet;
            }
            if let Some(spot) = quest.best {
                return Found::Spot(spot);
            }
            if !quest.runs || self.figures.borders == 0 || mutant("heap-search-skips-runs") {
                return Found::Nothing;
            }
            (quest.walking_runs, quest.stream, quest.key, quest.tried) = (true, 0, (0, 0), 0);
        }
        self.search_runs(quest, usable, &mut left)
    }

    /// Makes a spot one live block of the stamp's stream, as the request has it, with its epoch.
    /// `None` if that memory is not free any more, or may not be used.
    ///
    /// # Errors
    /// `InvalidArgument`, `HostOutOfMemory`; nothing was changed.
    pub fn adopt(
        &mut self,
        spot: Spot,
        request: &Request,
        usable: Usable<'_>,
    ) -> Result<Option<Block>, Error> {
        check_request(request)?;
        self.know_stream(request.stamp.stream)?;
        self.slab.reserve(2, &mut self.ration)?;
        self.table.reserve(1, &self.slab, &mut self.ration)?;
        let (start, end) = (spot.start, spot.start.saturating_add(request.bytes));
        let first = self.spot_at(spot);
        if first == NIL || !self.is_free_to(first, end, usable) {
            return Ok(None);
        }
        let mut block = NIL;
        let Stamp { stream, mut epoch } = request.stamp;
        let mut n = first;
        while n != NIL && self.slab[n].address < end {
            let after = self.slab[n].next;
            if self.slab[n].stream == stream.0 {
                epoch = epoch.max(self.slab[n].epoch);
            }
            self.withdraw(n);
            if self.slab[n].address < start {
                let upper = self.cut(n, start);
                self.attach_free(n);
                n = upper;
            }
            if self.slab[n].end() > end && !mutant("heap-adopt-too-much") {
                let rest = self.cut(n, end);
                self.attach_free(rest);
            }
            if block == NIL {
                block = n;
            } else {
                self.fuse(block, n);
            }
            n = after;
        }
        let node = &mut self.slab[block];
        (node.stream, node.epoch) = (stream.0, epoch);
        node.set_requested(request.requested);
        self.settle_as(block, State::Live);
        self.table.insert(&self.slab, block);
        self.stepped();
        Ok(Some(self.block(block)))
    }

    /// Tells the stamps on the bytes of a spot: what has to be over before it is used.
    pub fn stamps_of(&self, spot: Spot, bytes: u64, each: &mut dyn FnMut(Stamp)) {
        let mut n = self.spot_at(spot);
        while n != NIL && self.slab[n].address < spot.start.saturating_add(bytes) {
            each(self.stamp(n));
            n = self.slab[n].next;
        }
    }

    /// Gives every live block of a stream to another, which [`Heap::prepare`] has made known. Linear in
    /// blocks, if the stream has any.
    pub fn rename(&mut self, from: StreamSlot, to: StreamSlot) {
        if self.holding(from).held_blocks == 0 {
            return;
        }
        for place in 0..self.segments.len() {
            let mut n = self.segments[place].first;
            while n != NIL {
                if self.slab[n].state == State::Live && self.slab[n].stream == from.0 {
                    self.withdraw(n);
                    (self.slab[n].stream, self.slab[n].epoch) = (to.0, 0);
                    self.settle_as(n, State::Live);
                }
                n = self.slab[n].next;
            }
        }
        self.stepped();
    }

    /// Gives a live block to another stream, as if that had asked for it: the caller knows that the
    /// stream's work from now on is ordered behind every use of the block.
    ///
    /// # Errors
    /// As [`Heap::release_to`].
    pub fn give_to(&mut self, address: Address, stream: StreamSlot) -> Result<Block, Error> {
        let n = self.named(address, State::Live).map_err(|error| error.at(address))?;
        self.know_stream(stream)?;
        self.withdraw(n);
        (self.slab[n].stream, self.slab[n].epoch) = (stream.0, 0);
        self.settle_as(n, State::Live);
        self.stepped();
        Ok(self.block(n))
    }

    /// The free block that a spot begins in, if it is still as it was found; else NIL.
    fn spot_at(&self, spot: Spot) -> u32 {
        let (bytes, address) = spot.key;
        let n = tree::at_least(&self.slab, self.shares.root(spot.stream), bytes, address);
        let same = n != NIL && (self.slab[n].bytes, self.slab[n].address) == spot.key;
        if same { n } else { NIL }
    }

    /// Whether all is free and usable from a block on up to `end`.
    fn is_free_to(&self, mut n: u32, end: u64, usable: Usable<'_>) -> bool {
        while n != NIL && self.may_use(n, usable) {
            if self.slab[n].end() >= end {
                return true;
            }
            n = self.slab[n].next;
        }
        false
    }

    fn may_use(&self, n: u32, usable: Usable<'_>) -> bool {
        self.slab[n].state == State::Free
            && (usable(self.stamp(n)) || mutant("heap-adopt-unusable"))
    }

    /// Looks for the smallest single block. Whether it has come to the end.
    fn search_blocks(&self, quest: &mut Quest, usable: Usable<'_>, left: &mut usize) -> bool {
        let Request { bytes, alignment, .. } = quest.request;
        while (quest.stream as usize) < self.shares.len() {
            if *left == 0 {
                return false;
            }
            let root = self.shares.root(quest.stream);
            let mut n = tree::at_least(&self.slab, root, quest.key.0, quest.key.1);
            while n != NIL && quest.tried < quest.patience {
                let node = &self.slab[n];
                let key = (node.bytes, node.address);
                if quest.best.is_some_and(|best| best.key <= key) {
                    break;
                }
                if *left == 0 {
                    quest.key = key;
                    return false;
                }
                (*left, quest.tried) = (*left - 1, quest.tried + 1);
                let start = align_up(node.address, alignment);
                if start - node.address <= node.bytes - bytes && usable(self.stamp(n)) {
                    quest.best = Some(Spot { stream: quest.stream, key, start });
                    break;
                }
                n = tree::at_least(&self.slab, root, key.0, key.1 + GRANULE);
            }
            *left = left.saturating_sub(1);
            (quest.stream, quest.key, quest.tried) = (quest.stream + 1, (bytes, 0), 0);
        }
        true
    }

    /// Looks for a run of neighbours.
    fn search_runs(&self, quest: &mut Quest, usable: Usable<'_>, left: &mut usize) -> Found {
        while (quest.stream as usize) < self.shares.len() {
            if *left == 0 {
                return Found::NotYet;
            }
            let root = self.shares.root(quest.stream);
            let mut n = tree::at_least(&self.slab, root, quest.key.0, quest.key.1);
            while n != NIL {
                let key = (self.slab[n].bytes, self.slab[n].address);
                if *left == 0 {
                    quest.key = key;
                    return Found::NotYet;
                }
                *left -= 1;
                if let Some(start) = self.run_from(n, &quest.request, usable, left) {
                    return Found::Spot(self.spot_in_run(n, start));
                }
                n = tree::at_least(&self.slab, root, key.0, key.1 + GRANULE);
            }
            *left = left.saturating_sub(1);
            (quest.stream, quest.key) = (quest.stream + 1, (0, 0));
        }
        Found::Nothing
    }

    /// Where the request fits in the run of usable blocks that begins at `first`, if it begins there.
    fn run_from(
        &self,
        first: u32,
        request: &Request,
        usable: Usable<'_>,
        left: &mut usize,
    ) -> Option<u64> {
        let prev = self.slab[first].prev;
        if !self.may_use(first, usable) || (prev != NIL && self.may_use(prev, usable)) {
            return None;
        }
        let start = align_up(self.slab[first].address, request.alignment);
        let mut n = first;
        while n != NIL && self.may_use(n, usable) {
            if self.slab[n].end() >= start.saturating_add(request.bytes) {
                return Some(start);
            }
            *left = left.saturating_sub(1);
            n = self.slab[n].next;
        }
        None
    }

    /// The spot at `start` in the run that begins at `first`.
    fn spot_in_run(&self, mut first: u32, start: u64) -> Spot {
        while self.slab[first].end() <= start && self.slab[first].next != NIL {
            first = self.slab[first].next;
        }
        let node = &self.slab[first];
        Spot { stream: node.stream, key: (node.bytes, node.address), start }
    }
}
