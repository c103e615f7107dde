#![forbid(unsafe_code)]
//! The records of blocks, by number.
//!
//! Every block is one [`Node`] in one vector; lists and trees are made of their numbers, so that no
//! step allocates but [`Slab::reserve`], which every caller asks *before* it changes anything:
//! records in use + records spare = length of the vector.

use crate::error::Error;

/// No node.
pub(super) const NIL: u32 = u32::MAX;

/// What a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A record in the spare list.
    Spare,
    /// A block in the middle of a step: in no tree, in no figure.
    Loose,
    Live,
    Limbo,
    Free,
    Gap,
    /// Claimed, with pages behind it.
    ClaimedFree,
    /// Claimed, and no pages behind it yet.
    ClaimedGap,
}

/// This free block lies beside a gap.
pub(super) const EDGE: u8 = 1;
/// This free block has a whole page inside.
pub(super) const PAGE: u8 = 2;

/// One block, or a spare record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// With `stream`: who used these bytes last. Of a gap: the largest gap in its subtree.
    pub(super) epoch: u64,
    pub(super) stream: u32,
    /// Neighbours by address within the segment.
    pub(super) prev: u32,
    pub(super) next: u32,
    /// Children, while in a tree; of blocks that were asked for, together the size asked for.
    pub(super) left: u32,
    pub(super) right: u32,
    pub(super) state: State,
    /// Whether it lies in a range of pages (else in a segment).
    pub(super) paged: bool,
    /// What a free block offers (`EDGE`, `PAGE`), and what any of its subtree does.
    pub(super) own: u8,
    pub(super) any: u8,
}

impl Node {
    /// A block outside every list and tree.
    pub(super) fn new(address: u64, bytes: u64, paged: bool) -> Self {
        Self {
            address,
            bytes,
            epoch: 0,
            stream: NIL,
            prev: NIL,
            next: NIL,
            left: NIL,
            right: NIL,
            state: State::Loose,
            paged,
            own: 0,
            any: 0,
        }
    }

    /// What was asked for, of a block that is live or in limbo: it is in no tree, so it lies where
    /// the children do, which keeps a record at 48 bytes.
    pub(super) fn requested(&self) -> u64 {
        u64::from(self.left) | u64::from(self.right) << 32
    }

    /// Sets what was asked for, of a block that is in no tree.
    pub(super) fn set_requested(&mut self, bytes: u64) {
        (self.left, self.right) = (bytes as u32, (bytes >> 32) as u32);
    }

    /// The first address after it.
    pub(super) fn end(&self) -> u64 {
        self.address + self.bytes
    }
}

/// When a reservation is to fail, for tests.
#[derive(Debug, Default)]
pub(super) struct Ration {
    /// Reservations until the one that fails; 0: none does.
    left: u64,
}

impl Ration {
    /// Lets the `kth` reservation from now fail, once; 0 for none.
    pub(super) fn fail_at(&mut self, kth: u64) {
        self.left = kth;
    }

    /// Every reservation of host memory asks here first.
    #[inline]
    pub(super) fn ask(&mut self) -> Result<(), Error> {
        if self.left == 0 {
            return Ok(());
        }
        self.left -= 1;
        if self.left == 0 { Err(Error::HostOutOfMemory) } else { Ok(()) }
    }
}

/// Makes room for `more` elements, or fails with nothing changed.
pub(super) fn reserve<T>(vec: &mut Vec<T>, more: usize, ration: &mut Ration) -> Result<(), Error> {
    ration.ask()?;
    vec.try_reserve(more).map_err(|_| Error::HostOutOfMemory)
}

const _: () = assert!(size_of::<Node>() == 48);

/// All nodes.
#[derive(Debug)]
pub(super) struct Slab {
    nodes: Vec<Node>,
    /// Head of the list of spare records, linked by `next`.
    spare: u32,
    spares: usize,
}

impl Slab {
    pub(super) fn new() -> Self {
        Self { nodes: Vec::new(), spare: NIL, spares: 0 }
    }

    /// How many records are in use.
    pub(super) fn used(&self) -> usize {
        self.nodes.len() - self.spares
    }

    /// Makes sure that the next `more` calls of `make` need no memory.
    #[inline]
    pub(super) fn reserve(&mut self, more: usize, ration: &mut Ration) -> Result<(), Error> {
        ration.ask()?;
        let room = self.spares + (self.nodes.capacity() - self.nodes.len());
        if room >= more { Ok(()) } else { self.grow(more) }
    }

    /// Grows by an eighth, not to twice: records are most of what a block costs in host memory.
    #[cold]
    fn grow(&mut self, more: usize) -> Result<(), Error> {
        let step = more.max(self.nodes.len() / 8).max(64);
        if self.nodes.len() + step >= NIL as usize {
            return Err(Error::HostOutOfMemory);
        }
        self.nodes.try_reserve_exact(step).map_err(|_| Error::HostOutOfMemory)
    }

    /// Takes a record, which `reserve` has made sure of.
    pub(super) fn make(&mut self, node: Node) -> u32 {
        if self.spare == NIL {
            debug_assert!(self.nodes.len() < self.nodes.capacity(), "a record was not reserved");
            self.nodes.push(node);
            return (self.nodes.len() - 1) as u32;
        }
        let n = self.spare;
        self.spare = self[n].next;
        self.spares -= 1;
        self[n] = node;
        n
    }

    /// Gives a record back.
    pub(super) fn drop(&mut self, n: u32) {
        let spare = self.spare;
        let node = &mut self[n];
        node.state = State::Spare;
        node.next = spare;
        self.spare = n;
        self.spares += 1;
    }
}

impl std::ops::Index<u32> for Slab {
    type Output = Node;
    #[inline]
    fn index(&self, n: u32) -> &Node {
        &self.nodes[n as usize]
    }
}

impl std::ops::IndexMut<u32> for Slab {
    #[inline]
    fn index_mut(&mut self, n: u32) -> &mut Node {
        &mut self.nodes[n as usize]
    }
}
