#![forbid(unsafe_code)]
//! One pool: a heap of its own, its terms and its counters, and who still holds or uses it.

use crate::graphs::Member;
use crate::heap::Heap;
use crate::mutants::mutant;
use crate::stats::cuddy_stats;
use crate::types::Stamp;

/// How a private pool is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolTerms {
    /// The most that may be reserved in it, in bytes; `u64::MAX` is no limit.
    pub limit: u64,
    /// The default pool may use its free memory before it fails.
    pub use_on_oom: bool,
}

/// One pool.
pub(super) struct Pool {
    pub heap: Heap,
    pub terms: PoolTerms,
    /// Its own counters. The default pool's are not kept: they are the device's without the others'.
    pub stats: cuddy_stats,
    /// Nobody holds it any more: it goes when its memory can.
    pub destroyed: bool,
    /// Misses and the like that are under way in it.
    pub users: u32,
    /// Graphs that use its memory: until they are gone it serves nobody else, and stays mapped.
    pub graphs: u32,
    /// The streams that were captured into them.
    pub captured: Vec<Member>,
    /// What has to be over after the last graph is gone: the last launches of each.
    pub launched: Vec<Stamp>,
}

impl Pool {
    pub(super) fn new(heap: Heap, terms: PoolTerms) -> Self {
        let stats = cuddy_stats { limit: terms.limit, ..cuddy_stats::NONE };
        Self {
            heap,
            terms,
            stats,
            destroyed: false,
            users: 0,
            graphs: 0,
            captured: Vec::new(),
            launched: Vec::new(),
        }
    }

    /// What may still be mapped in it within its own limit, in bytes.
    pub(super) fn room(&self) -> u64 {
        let figures = self.heap.figures();
        match mutant("pool-limit-ignored") {
            true => u64::MAX,
            false => self.terms.limit.saturating_sub(figures.reserved),
        }
    }

    /// Whether others may take its free memory away; `oom` says that the default pool is about to
    /// fail for want of it.
    pub(super) fn gives(&self, oom: bool) -> bool {
        let free = !self.is_graphs() || mutant("pool-gives-a-graphs-memory");
        free && (self.destroyed
            || mutant("pool-gives-to-anybody")
            || (oom && self.terms.use_on_oom))
    }

    /// Whether graphs own its memory.
    pub(super) fn is_graphs(&self) -> bool {
        self.graphs > 0 || !self.captured.is_empty()
    }

    /// Whether its last byte has gone.
    pub(super) fn is_over(&self) -> bool {
        let figures = self.heap.figures();
        let held = figures.reserved + figures.claimed_mapped + figures.claimed_unmapped;
        self.destroyed && self.users == 0 && !self.is_graphs() && held == 0
    }

    /// Whether it is destroyed, and no block in it is held or used.
    pub(super) fn is_idle(&self) -> bool {
        self.destroyed && !self.is_graphs() && self.heap.figures().active == 0
    }
}
