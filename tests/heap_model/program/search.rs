//! Whether the heap chose as it says, by trying everything.

use super::Run;
use crate::shadow::{Cell, Kind};
use cuddy::heap::{Block, Request};

impl Run {
    pub(super) fn compares_now(&self) -> bool {
        (self.steps + 1).is_multiple_of(self.geometry.compare_each)
    }

    /// Without alignment: the smallest run that fits, the lowest of equals, at its low end.
    pub(super) fn check_best_fit(&self, block: &Block, request: &Request) {
        if request.alignment > 512 || !self.compares_now() {
            return;
        }
        let runs = self.shadow.runs(self.usable_by(request.stamp.stream));
        let fits = runs.into_iter().filter(|(from, to)| to - from >= request.bytes);
        let best = fits.min_by_key(|&(from, to)| (to - from, from)).expect("it is somewhere");
        assert_eq!(block.address.0, best.0, "not the best fit: {best:x?}");
    }

    pub(super) fn check_nothing_fits(&self, request: &Request) {
        if !self.compares_now() {
            return;
        }
        for (from, to) in self.shadow.runs(self.usable_by(request.stamp.stream)) {
            let start = from.next_multiple_of(request.alignment);
            assert!(start + request.bytes > to, "{request:?} fits at {start:#x}, but is refused");
        }
    }

    /// The fewest new pages, by trying every position: over one gap and free memory beside it.
    pub(super) fn check_needed(&self, needed: Option<u64>, request: &Request) {
        let addresses: u64 = self.geometry.ranges.iter().map(|range| range.1).sum();
        if !self.compares_now() || addresses * self.geometry.page / 512 > 1024 {
            return;
        }
        let mine = self.usable_by(request.stamp.stream);
        let gap = |cell: Cell| cell.kind == Kind::Gap && !cell.claimed;
        let mut least = None;
        for (from, to) in self.shadow.runs(|cell| mine(cell) || gap(cell)) {
            let step = request.alignment;
            for at in (from.next_multiple_of(step)..to).step_by(step as usize) {
                let end = at + request.bytes;
                if end > to {
                    break;
                }
                let cells = self.shadow.over(at, end);
                let first = cells.iter().position(|&(_, _, cell)| gap(cell));
                let last = cells.iter().rposition(|&(_, _, cell)| gap(cell));
                let (Some(first), Some(last)) = (first, last) else { continue };
                if first == last {
                    let page = self.geometry.page;
                    let pages = cells[last].1.div_ceil(page) - cells[first].0 / page;
                    least = Some(least.unwrap_or(u64::MAX).min(pages * page));
                }
            }
        }
        assert_eq!(needed, least, "{request:?} needs other pages");
    }
}
