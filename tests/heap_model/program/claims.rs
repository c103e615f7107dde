//! What is claimed, and then committed or aborted: growth, pages, segments.

use super::{Op, Run};
use crate::shadow::{Area, Cell, Kind};
use cuddy::heap::{Growth, Harvest, PageRun, Request};
use cuddy::types::{Address, Stamp};

impl Run {
    /// Growth's block covers free memory of its stream and gaps; exactly the gaps' pages are to
    /// map.
    pub(super) fn claims_growth(&mut self, growth: &Growth, request: &Request) {
        self.seen.growths += 1;
        let block = growth.block;
        self.is_as_asked(&block, request);
        let mine = self.usable_by(block.stream);
        let gap = |cell: Cell| cell.kind == Kind::Gap && !cell.claimed;
        let (from, to) = (block.address.0, block.address.0 + block.bytes);
        assert!(self.shadow.whole(from, to, |cell| mine(cell) || gap(cell)), "{growth:?}");
        let mut mapped = 0;
        for run in &growth.maps {
            let (start, end) = (run.address.0, run.address.0 + run.bytes);
            assert!((start | end).is_multiple_of(self.geometry.page) && run.bytes > 0);
            assert!(self.shadow.whole(start, end, gap), "{run:?} is mapped already");
            assert!(
                start + self.geometry.page > from && end < to + self.geometry.page,
                "{growth:?}"
            );
            mapped += end.min(to) - start.max(from);
        }
        let fresh: u64 = (self.shadow.over(from, to).iter())
            .filter(|&&(_, _, cell)| gap(cell))
            .map(|&(start, end, _)| end - start)
            .sum();
        assert_eq!(mapped, fresh, "some of the block would have no page: {growth:?}");
        self.shadow_claim(from, block.bytes);
        for run in &growth.maps {
            self.shadow_claim(run.address.0, run.bytes);
        }
    }

    pub(super) fn shadow_claim(&mut self, from: u64, bytes: u64) {
        self.shadow.paint(from, from + bytes, |cell| Cell { claimed: true, ..cell });
    }

    /// Commits or aborts an open growth.
    pub(super) fn end_growth(&mut self, op: Op) {
        if self.growths.is_empty() {
            return;
        }
        let (growth, epoch) = self.growths.swap_remove(op.a as usize % self.growths.len());
        let (block, maps) = (growth.block, growth.maps.clone());
        let (from, to) = (block.address.0, block.address.0 + block.bytes);
        self.heap.fail_reservation(1);
        if op.b % 4 == 1 {
            self.seen.aborts += 1;
            self.heap.abort_growth(growth).expect("giving up needs no memory");
            self.shadow.paint(from, to, |cell| Cell { claimed: false, ..cell });
            for run in maps {
                let (start, end) = (run.address.0, run.address.0 + run.bytes);
                self.shadow.paint(start, end, |cell| Cell { claimed: false, ..cell });
            }
        } else {
            assert_eq!(self.heap.commit_growth(growth), Ok(block));
            let stream = block.stream.0;
            for run in maps {
                let (start, end) = (run.address.0, run.address.0 + run.bytes);
                let fresh = Cell { kind: Kind::Free, claimed: false, stream, epoch };
                self.shadow.paint(start, end, |_| fresh);
            }
            let live = Kind::Live(from);
            self.shadow.paint(from, to, |cell| Cell { kind: live, claimed: false, ..cell });
            assert_eq!(self.heap.find(block.address), Some(block));
            self.live.push(block);
        }
        self.heap.fail_reservation(0);
    }

    /// Claims pages: of any stamp, or of passed ones only.
    pub(super) fn harvest(&mut self, op: Op) {
        let any = op.b.is_multiple_of(3);
        let clock = self.clock.clone();
        let passed = |stream: u32, epoch: u64| any || epoch <= clock[stream as usize].1;
        let bytes = if op.a.is_multiple_of(8) { u64::MAX } else { u64::from(op.a >> 12) };
        let usable = |stamp: Stamp| passed(stamp.stream.0, stamp.epoch);
        let free = |cell: Cell| cell.kind == Kind::Free && !cell.claimed;
        let runs = match op.b & 4 {
            0 => self.heap.claim_pages(bytes, &usable).expect("memory"),
            _ => {
                let mut harvest = Harvest::new(bytes);
                let effort = 1 + (op.b >> 8) as usize % 5;
                while !self.heap.claim_some_pages(&mut harvest, &usable, effort).expect("memory") {}
                let sum: u64 = harvest.runs().iter().map(|run| run.bytes).sum();
                assert_eq!(harvest.bytes(), sum);
                harvest.into_runs()
            }
        };
        let mut sum: u64 = 0;
        for &run in &runs {
            let (from, to) = (run.address.0, run.address.0 + run.bytes);
            assert!((from | to).is_multiple_of(self.geometry.page) && run.bytes > 0);
            let may_go = |cell: Cell| free(cell) && passed(cell.stream, cell.epoch);
            assert!(self.shadow.whole(from, to, may_go), "{run:?} may not go");
            self.check_stamps(run);
            self.shadow_claim(from, run.bytes);
            self.unmaps.push(run);
            sum += run.bytes;
        }
        assert!(sum < bytes.saturating_add(self.geometry.page), "more than enough is claimed");
        if any && sum < bytes && self.compares_now() {
            let missed = self.whole_pages(free);
            assert_eq!(missed, 0, "free pages are not found");
        }
    }

    /// Bytes of whole pages for which `test` holds.
    pub(super) fn whole_pages(&self, test: impl Fn(Cell) -> bool) -> u64 {
        let page = self.geometry.page;
        let paged = |from: u64| self.shadow.area_of(from).is_some_and(|area| area.paged);
        let inside =
            |(from, to): (u64, u64)| (to / page * page).saturating_sub(from.next_multiple_of(page));
        self.shadow.runs(test).into_iter().filter(|run| paged(run.0)).map(inside).sum()
    }

    /// Every byte's last use is covered by a stamp of the run.
    pub(super) fn check_stamps(&self, run: PageRun) {
        let mut stamps = Vec::new();
        self.heap.stamps(run, &mut |stamp| stamps.push(stamp));
        for (_, _, cell) in self.shadow.over(run.address.0, run.address.0 + run.bytes) {
            let covers = |s: &Stamp| s.stream.0 == cell.stream && s.epoch >= cell.epoch;
            assert!(stamps.iter().any(covers), "a use of {run:?} is forgotten");
        }
    }

    pub(super) fn shadow_unmap(&mut self, run: PageRun) {
        let gap = Cell { kind: Kind::Gap, claimed: false, stream: 0, epoch: 0 };
        self.shadow.paint(run.address.0, run.address.0 + run.bytes, |_| gap);
    }

    /// Commits or aborts a claimed run, or a part of one.
    pub(super) fn end_unmap(&mut self, op: Op) {
        if self.unmaps.is_empty() {
            return;
        }
        let mut run = self.unmaps.swap_remove(op.a as usize % self.unmaps.len());
        let pages = run.bytes / self.geometry.page;
        if pages > 1 && op.b % 4 == 3 {
            // The middle now, the rest later.
            let first = u64::from(op.b >> 8) % pages;
            let count = 1 + u64::from(op.b >> 16) % (pages - first);
            let at = |page: u64| run.address.0 + page * self.geometry.page;
            for (from, to) in [(at(0), at(first)), (at(first + count), at(pages))] {
                if from < to {
                    self.unmaps.push(PageRun { address: Address(from), bytes: to - from });
                }
            }
            run = PageRun { address: Address(at(first)), bytes: at(first + count) - at(first) };
            self.seen.partial += 1;
        } else {
            self.heap.fail_reservation(1);
        }
        if op.b % 4 == 1 {
            self.seen.kept += 1;
            self.heap.abort_unmap(run).expect("it is claimed");
            let (from, to) = (run.address.0, run.address.0 + run.bytes);
            self.shadow.paint(from, to, |cell| Cell { claimed: false, ..cell });
        } else {
            self.seen.harvested += 1;
            self.heap.commit_unmap(run).expect("it is claimed");
            self.shadow_unmap(run);
        }
        self.heap.fail_reservation(0);
    }

    pub(super) fn remove_segments(&mut self, op: Op) {
        let wanted = if op.a.is_multiple_of(2) { u64::MAX } else { u64::from(op.a >> 4) };
        let clock = self.clock.clone();
        let any = op.b.is_multiple_of(2);
        let passed = |stream: u32, epoch: u64| any || epoch <= clock[stream as usize].1;
        let usable = |stamp: Stamp| passed(stamp.stream.0, stamp.epoch);
        let mut sum: u64 = 0;
        let runs = self.heap.claim_segments(wanted, &usable).expect("memory");
        for (index, &run) in runs.iter().enumerate() {
            let (start, bytes) = (run.address.0, run.bytes);
            assert!(self.shadow.areas.contains(&Area { start, bytes, paged: false }));
            let may_go = |cell: Cell| {
                cell.kind == Kind::Free && !cell.claimed && passed(cell.stream, cell.epoch)
            };
            assert!(self.shadow.whole(start, start + bytes, may_go), "{run:?} may not go");
            self.check_stamps(run);
            self.shadow_claim(start, bytes);
            self.removals.push(run);
            sum += bytes;
            assert!(sum < wanted || index + 1 == runs.len(), "more than enough is claimed");
        }
        if any && sum < wanted {
            for area in self.shadow.areas.iter().filter(|area| !area.paged) {
                let (from, to) = (area.start, area.start + area.bytes);
                let free = |cell: Cell| cell.kind == Kind::Free && !cell.claimed;
                assert!(!self.shadow.whole(from, to, free), "{area:?} is not found");
            }
        }
    }

    pub(super) fn end_removal(&mut self, op: Op) {
        if self.removals.is_empty() {
            return;
        }
        let run = self.removals.swap_remove(op.a as usize % self.removals.len());
        self.heap.fail_reservation(1);
        if op.b % 4 == 1 {
            self.heap.abort_remove(run).expect("it is claimed");
            let (from, to) = (run.address.0, run.address.0 + run.bytes);
            self.shadow.paint(from, to, |cell| Cell { claimed: false, ..cell });
        } else {
            self.seen.removed += 1;
            self.heap.commit_remove(run).expect("it is claimed");
            self.shadow.remove_area(run.address.0);
        }
        self.heap.fail_reservation(0);
    }
}
