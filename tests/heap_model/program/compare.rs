//! What must hold after a step: all of the heap is as the shadow has it.

use super::Run;
use crate::shadow::{Cell, Kind};
use cuddy::heap::{Block, BlockState};
use cuddy::types::StreamSlot;

impl Run {
    /// All of the heap is as the shadow has it.
    pub(super) fn compare(&mut self) {
        if self.geometry.compare_each == 1 {
            self.heap.check();
        }
        let figures = self.heap.figures();
        let sum = |test: fn(Cell) -> bool| self.shadow.sum(test);
        let live = |cell: Cell| matches!(cell.kind, Kind::Live(_));
        let active = |cell: Cell| matches!(cell.kind, Kind::Live(_) | Kind::Limbo(_));
        let bytes = |blocks: &[Block]| blocks.iter().map(|block| block.bytes).sum::<u64>();
        assert_eq!(figures.allocated, sum(live), "allocated");
        assert_eq!(figures.allocated, bytes(&self.live));
        assert_eq!(figures.requested, self.live.iter().map(|b| b.requested).sum::<u64>());
        assert_eq!(figures.active, sum(active), "active");
        assert_eq!(figures.active, bytes(&self.live) + bytes(&self.limbo));
        assert_eq!(figures.reserved, sum(|cell| cell.kind != Kind::Gap), "reserved");
        assert_eq!(figures.free, sum(|cell| cell.kind == Kind::Free && !cell.claimed), "free");
        assert_eq!(figures.gap, sum(|cell| cell.kind == Kind::Gap && !cell.claimed), "gap");
        assert_eq!(figures.claimed_mapped, sum(|c| c.claimed && c.kind != Kind::Gap));
        assert_eq!(figures.claimed_unmapped, sum(|c| c.claimed && c.kind == Kind::Gap));
        assert_eq!(figures.live_blocks, self.live.len() as u64);
        assert_eq!(figures.limbo_blocks, self.limbo.len() as u64);
        assert_eq!(figures.segments, self.shadow.areas.len() as u64);
        self.compare_runs();
        self.compare_blocks();
    }

    /// Largest runs, how many there are, and what of them could go.
    pub(super) fn compare_runs(&self) {
        let figures = self.heap.figures();
        let largest = |runs: &[(u64, u64)]| runs.iter().map(|run| run.1 - run.0).max().unwrap_or(0);
        let (mut releasable, mut count, mut most) = (0, 0, 0);
        for stream in 0..self.geometry.streams {
            let runs = self.shadow.runs(self.usable_by(StreamSlot(stream)));
            assert_eq!(self.heap.largest_free(StreamSlot(stream)), largest(&runs), "largest free");
            most = most.max(largest(&runs));
            count += runs.len() as u64;
            releasable += self.whole_pages(self.usable_by(StreamSlot(stream)));
            for run in runs {
                let area = self.shadow.area_of(run.0).expect("an area");
                let whole = !area.paged && run == (area.start, area.start + area.bytes);
                releasable += if whole { area.bytes } else { 0 };
            }
        }
        let mut free = 0;
        for stream in 0..self.geometry.streams {
            let mine = self.shadow.sum(self.usable_by(StreamSlot(stream)));
            assert_eq!(self.heap.holding(StreamSlot(stream)).free, mine, "a stream's free bytes");
            free += mine;
        }
        assert_eq!(free, figures.free);
        let gaps = self.shadow.runs(|cell| cell.kind == Kind::Gap && !cell.claimed);
        assert_eq!(self.heap.largest_gap(), largest(&gaps), "largest gap");
        assert_eq!(self.heap.largest_free_of_any(), most);
        assert_eq!((figures.gaps, figures.free_blocks), (gaps.len() as u64, count));
        assert_eq!(figures.releasable, releasable, "releasable");
    }

    /// The blocks tile the areas, and each byte is what its block says.
    pub(super) fn compare_blocks(&self) {
        let mut views = self.heap.blocks();
        for area in &self.shadow.areas {
            let (mut at, end) = (area.start, area.start + area.bytes);
            while at < end {
                let view = views.next().expect("blocks do not fill their segment");
                assert_eq!((view.address.0, view.segment.0), (at, area.start), "not tiled");
                at += view.bytes;
                for (_, _, cell) in self.shadow.over(view.address.0, at) {
                    let state = match (cell.kind, cell.claimed) {
                        (kind, true) => BlockState::Claimed { mapped: kind != Kind::Gap },
                        (Kind::Gap, _) => BlockState::Gap,
                        (Kind::Free, _) => BlockState::Free,
                        (Kind::Live(start), _) => {
                            assert_eq!(start, view.address.0, "two live blocks in one");
                            BlockState::Live
                        }
                        (Kind::Limbo(start), _) => {
                            assert_eq!(start, view.address.0, "two blocks in limbo in one");
                            BlockState::Limbo
                        }
                    };
                    assert_eq!(view.state, state, "{view:?} holds {cell:?}");
                    if cell.kind != Kind::Gap {
                        assert_eq!(view.stamp.stream.0, cell.stream);
                        assert!(view.stamp.epoch >= cell.epoch, "a use is forgotten: {view:?}");
                    }
                }
            }
            assert_eq!(at, end, "blocks do not fill their segment");
        }
        assert!(views.next().is_none());
    }
}
