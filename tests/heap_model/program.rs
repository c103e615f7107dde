//! Programs: any list of [`Op`]s is one, so that lists can be drawn at random and shrunk.
//!
//! A [`Run`] does each on the heap and on the shadow, and compares what they say.

use crate::shadow::{Area, Cell, Kind, Shadow};
use cuddy::error::Error;
use cuddy::heap::{Block, BlockState, FreeError, Growth, Heap, PageRun, Request, Standing};
use cuddy::types::{Address, Stamp, StreamSlot};

/// One step: what to do, and two numbers that decide the details.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub kind: u8,
    pub a: u32,
    pub b: u32,
}

/// Where and how a program runs.
#[derive(Clone, Debug)]
pub struct Geometry {
    pub page: u64,
    /// (start, pages) of each range.
    pub ranges: Vec<(u64, u64)>,
    /// Size of segments that are added on misses; 0 for none.
    pub segment: u64,
    pub streams: u32,
    /// Largest request, and largest alignment, as powers of two.
    pub size_log: u32,
    pub align_log: u32,
    /// Above this many live blocks, allocations become frees.
    pub live: usize,
    /// Everything is compared each so many steps; what a step changed always is.
    pub compare_each: usize,
}

/// Where segments are put.
const SEGMENTS: u64 = 1 << 50;

/// A heap and its shadow.
pub struct Run {
    geometry: Geometry,
    heap: Heap,
    shadow: Shadow,
    live: Vec<Block>,
    limbo: Vec<Block>,
    growths: Vec<(Growth, u64)>,
    unmaps: Vec<PageRun>,
    removals: Vec<PageRun>,
    /// For each stream its epoch, and the one up to which its work is over.
    clock: Vec<(u64, u64)>,
    steps: usize,
    /// How often each thing happened: a program in which something never did shows nothing of it.
    pub seen: Seen,
}

/// Counts of what happened.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub hits: u64,
    pub misses: u64,
    pub growths: u64,
    pub aborts: u64,
    pub frees: u64,
    pub limbo: u64,
    pub given_away: u64,
    pub settled: u64,
    pub harvested: u64,
    pub kept: u64,
    pub partial: u64,
    pub segments: u64,
    pub removed: u64,
    pub misuse: u64,
    pub host_failures: u64,
    pub full: u64,
}

impl Seen {
    /// Adds another program's counts.
    pub fn add(&mut self, other: &Self) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.growths += other.growths;
        self.aborts += other.aborts;
        self.frees += other.frees;
        self.limbo += other.limbo;
        self.given_away += other.given_away;
        self.settled += other.settled;
        self.harvested += other.harvested;
        self.kept += other.kept;
        self.partial += other.partial;
        self.segments += other.segments;
        self.removed += other.removed;
        self.misuse += other.misuse;
        self.host_failures += other.host_failures;
        self.full += other.full;
    }
}

impl Run {
    pub fn new(geometry: &Geometry) -> Self {
        let mut heap = Heap::new(geometry.page).expect("a page size");
        let mut shadow = Shadow::default();
        for &(start, pages) in &geometry.ranges {
            let bytes = pages * geometry.page;
            heap.add_range(Address(start), bytes).expect("a range");
            shadow.add_area(Area { start, bytes, paged: true }, Kind::Gap, 0, 0);
        }
        Self {
            geometry: geometry.clone(),
            heap,
            shadow,
            live: Vec::new(),
            limbo: Vec::new(),
            growths: Vec::new(),
            unmaps: Vec::new(),
            removals: Vec::new(),
            clock: vec![(1, 0); geometry.streams as usize],
            steps: 0,
            seen: Seen::default(),
        }
    }

    /// One step, and what must hold after it.
    pub fn step(&mut self, op: Op) {
        let crowded = self.live.len() >= self.geometry.live;
        match op.kind % 32 {
            0..=8 if !crowded => self.allocate(op, false),
            9 if !crowded => self.allocate(op, true),
            0..=15 => self.free(op),
            16 | 17 => self.free_to_limbo(op),
            18 | 19 => self.settle(op),
            20 | 21 => self.end_growth(op),
            22 | 23 => self.harvest(op),
            24 | 25 => self.end_unmap(op),
            26 => self.remove_segments(op),
            27 => self.end_removal(op),
            28 => self.misuse(op),
            29 => self.fail_host(op),
            30 => self.pass(op),
            _ => self.ranges(op),
        }
        self.steps += 1;
        if self.steps.is_multiple_of(self.geometry.compare_each) {
            self.compare();
        }
    }

    /// Ends all that is open, frees all, takes all pages out: nothing may be left.
    pub fn finish(&mut self) {
        while !self.growths.is_empty() {
            self.end_growth(Op { kind: 0, a: self.growths.len() as u32, b: 0 });
        }
        while !self.unmaps.is_empty() {
            self.end_unmap(Op { kind: 0, a: 0, b: 0 });
        }
        while !self.removals.is_empty() {
            self.end_removal(Op { kind: 0, a: 0, b: 0 });
        }
        while !self.limbo.is_empty() {
            self.settle(Op { kind: 0, a: 0, b: 0 });
        }
        while !self.live.is_empty() {
            self.free(Op { kind: 0, a: 0, b: 0 });
        }
        self.compare();
        for run in self.heap.claim_pages(u64::MAX, &|_| true).expect("memory") {
            self.shadow_claim(run.address.0, run.bytes);
            self.heap.commit_unmap(run).expect("it is claimed");
            self.shadow_unmap(run);
        }
        for run in self.heap.claim_segments(u64::MAX, &|_| true).expect("memory") {
            self.heap.commit_remove(run).expect("it is claimed");
            self.shadow.remove_area(run.address.0);
        }
        self.compare();
        assert_eq!(self.heap.figures().reserved, 0, "memory that nobody uses cannot be given back");
        for area in self.shadow.areas.clone() {
            self.heap.remove_range(Address(area.start)).expect("it is all gap");
        }
        self.heap.check();
        assert_eq!(self.heap.blocks().count(), 0);
    }

    fn request(&self, op: Op) -> Request {
        let Geometry { size_log, align_log, streams, .. } = self.geometry;
        let log = op.a % (size_log - 8) + 9;
        let requested = (1 << (log - 1)) + u64::from(op.b) % (1 << (log - 1)) + 1;
        // One in four asks for an alignment of its own.
        let alignment = if op.a >> 30 == 0 { 512 << ((op.b >> 20) % (align_log - 8)) } else { 512 };
        let slot = (op.a >> 16) % streams;
        Request {
            bytes: requested.next_multiple_of(512),
            requested,
            alignment,
            stamp: Stamp { stream: StreamSlot(slot), epoch: self.clock[slot as usize].1 },
        }
    }

    /// A hit, or else growth: committed at once, or left open.
    fn allocate(&mut self, op: Op, leave_open: bool) {
        let request = self.request(op);
        if let Some(block) = self.heap.take(&request).expect("memory") {
            self.seen.hits += 1;
            self.is_as_asked(&block, &request);
            self.check_best_fit(&block, &request);
            self.becomes_live(block);
            return;
        }
        self.seen.misses += 1;
        self.check_nothing_fits(&request);
        if self.geometry.segment > 0 && op.b.is_multiple_of(3) {
            return self.add_segment(&request, op);
        }
        let max_new = if op.b.is_multiple_of(5) { request.bytes / 2 } else { u64::MAX };
        let needed = self.heap.growth_needed(&request);
        self.check_needed(needed, &request);
        let growth = self.heap.claim_growth(&request, max_new).expect("memory");
        let Some(growth) = growth else {
            self.seen.full += 1;
            assert!(needed.is_none_or(|needed| needed > max_new), "a growth that fits is refused");
            return;
        };
        let needed = needed.expect("growth without room");
        assert!((needed..=max_new).contains(&growth.new_bytes()), "{needed} {growth:?}");
        self.claims_growth(&growth, &request);
        self.growths.push((growth, request.stamp.epoch));
        if !leave_open {
            self.end_growth(Op { kind: 0, a: self.growths.len() as u32 - 1, b: 0 });
        }
    }

    fn is_as_asked(&self, block: &Block, request: &Request) {
        let Block { address, bytes, requested, stream } = *block;
        assert_eq!((bytes, requested), (request.bytes, request.requested));
        assert_eq!(stream, request.stamp.stream);
        assert!(address.0.is_multiple_of(request.alignment), "{address} is not aligned");
        let area = self.shadow.area_of(address.0).expect("a block in no range");
        assert!(address.0 + bytes <= area.start + area.bytes, "a block over the end of its range");
    }

    fn usable_by(&self, stream: StreamSlot) -> impl Fn(Cell) -> bool + use<> {
        move |cell| cell.kind == Kind::Free && !cell.claimed && cell.stream == stream.0
    }

    /// A hit's bytes become live; only free ones of its stream may.
    fn becomes_live(&mut self, block: Block) {
        let (from, to) = (block.address.0, block.address.0 + block.bytes);
        let mine = self.usable_by(block.stream);
        assert!(self.shadow.whole(from, to, mine), "{block:?} is handed out, but is not free");
        self.shadow.paint(from, to, |cell| Cell { kind: Kind::Live(from), ..cell });
        assert_eq!(self.heap.find(block.address), Some(block));
        self.live.push(block);
    }

    fn compares_now(&self) -> bool {
        (self.steps + 1).is_multiple_of(self.geometry.compare_each)
    }

    /// Without alignment: the smallest run that fits, the lowest of equals, at its low end.
    fn check_best_fit(&self, block: &Block, request: &Request) {
        if request.alignment > 512 || !self.compares_now() {
            return;
        }
        let runs = self.shadow.runs(self.usable_by(request.stamp.stream));
        let fits = runs.into_iter().filter(|(from, to)| to - from >= request.bytes);
        let best = fits.min_by_key(|&(from, to)| (to - from, from)).expect("it is somewhere");
        assert_eq!(block.address.0, best.0, "not the best fit: {best:x?}");
    }

    fn check_nothing_fits(&self, request: &Request) {
        if !self.compares_now() {
            return;
        }
        for (from, to) in self.shadow.runs(self.usable_by(request.stamp.stream)) {
            let start = from.next_multiple_of(request.alignment);
            assert!(start + request.bytes > to, "{request:?} fits at {start:#x}, but is refused");
        }
    }

    /// The fewest new pages, by trying every position: over one gap and free memory beside it.
    fn check_needed(&self, needed: Option<u64>, request: &Request) {
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

    /// Growth's block covers free memory of its stream and gaps; exactly the gaps' pages are to map.
    fn claims_growth(&mut self, growth: &Growth, request: &Request) {
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

    fn shadow_claim(&mut self, from: u64, bytes: u64) {
        self.shadow.paint(from, from + bytes, |cell| Cell { claimed: true, ..cell });
    }

    /// Commits or aborts an open growth.
    fn end_growth(&mut self, op: Op) {
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

    fn add_segment(&mut self, request: &Request, op: Op) {
        let bytes = request.bytes.next_multiple_of(self.geometry.segment);
        // Side by side at times, so that segments touch.
        let mut start = SEGMENTS + u64::from(op.b % 16) * bytes;
        while self.heap.add_segment(Address(start), bytes, request.stamp).is_err() {
            start += bytes;
        }
        self.seen.segments += 1;
        let Stamp { stream, epoch } = request.stamp;
        self.shadow.add_area(Area { start, bytes, paged: false }, Kind::Free, stream.0, epoch);
    }

    /// The stream's work goes on; its epoch then.
    fn tick(&mut self, stream: StreamSlot, op: Op) -> u64 {
        let clock = &mut self.clock[stream.0 as usize].0;
        *clock += u64::from(op.b % 2);
        *clock
    }

    fn free(&mut self, op: Op) {
        if self.live.is_empty() {
            return;
        }
        let block = self.live.swap_remove(op.a as usize % self.live.len());
        if op.b >> 30 == 3 {
            return self.free_to_another(block, op);
        }
        let epoch = self.tick(block.stream, op);
        self.heap.fail_reservation(1);
        assert_eq!(self.heap.release(block.address, |_| epoch), Ok(block));
        self.heap.fail_reservation(0);
        self.seen.frees += 1;
        self.shadow_free(block, epoch);
    }

    fn shadow_free(&mut self, block: Block, epoch: u64) {
        let (from, to) = (block.address.0, block.address.0 + block.bytes);
        self.shadow.paint(from, to, |cell| Cell {
            kind: Kind::Free,
            epoch: cell.epoch.max(epoch),
            ..cell
        });
        assert_eq!(self.heap.find(block.address), None);
    }

    /// Its bytes become another stream's, so that streams come to share pages.
    fn free_to_another(&mut self, block: Block, op: Op) {
        let stream = StreamSlot((op.b >> 8) % self.geometry.streams);
        let epoch = self.tick(stream, op);
        assert_eq!(self.heap.release_to(block.address, Stamp { stream, epoch }), Ok(block));
        self.seen.given_away += 1;
        let (from, to) = (block.address.0, block.address.0 + block.bytes);
        let free = Cell { kind: Kind::Free, claimed: false, stream: stream.0, epoch };
        self.shadow.paint(from, to, |_| free);
        assert_eq!(self.heap.find(block.address), None);
    }

    fn free_to_limbo(&mut self, op: Op) {
        if self.live.is_empty() {
            return;
        }
        let block = self.live.swap_remove(op.a as usize % self.live.len());
        let epoch = self.tick(block.stream, op);
        self.heap.fail_reservation(1);
        assert_eq!(self.heap.release_to_limbo(block.address, |_| epoch), Ok(block));
        self.heap.fail_reservation(0);
        self.seen.limbo += 1;
        let (from, to) = (block.address.0, block.address.0 + block.bytes);
        let kind = Kind::Limbo(from);
        self.shadow.paint(from, to, |cell| Cell { kind, epoch: cell.epoch.max(epoch), ..cell });
        self.limbo.push(block);
    }

    fn settle(&mut self, op: Op) {
        if self.limbo.is_empty() {
            return;
        }
        let block = self.limbo.swap_remove(op.a as usize % self.limbo.len());
        self.heap.fail_reservation(1);
        assert_eq!(self.heap.settle(block.address), Ok(block));
        self.heap.fail_reservation(0);
        self.seen.settled += 1;
        self.shadow_free(block, 0);
    }

    /// Claims pages: of any stamp, or of passed ones only.
    fn harvest(&mut self, op: Op) {
        let any = op.b.is_multiple_of(3);
        let clock = self.clock.clone();
        let passed = |stream: u32, epoch: u64| any || epoch <= clock[stream as usize].1;
        let bytes = if op.a.is_multiple_of(8) { u64::MAX } else { u64::from(op.a >> 12) };
        let usable = |stamp: Stamp| passed(stamp.stream.0, stamp.epoch);
        let free = |cell: Cell| cell.kind == Kind::Free && !cell.claimed;
        let runs = self.heap.claim_pages(bytes, &usable).expect("memory");
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
    fn whole_pages(&self, test: impl Fn(Cell) -> bool) -> u64 {
        let page = self.geometry.page;
        let paged = |from: u64| self.shadow.area_of(from).is_some_and(|area| area.paged);
        let inside =
            |(from, to): (u64, u64)| (to / page * page).saturating_sub(from.next_multiple_of(page));
        self.shadow.runs(test).into_iter().filter(|run| paged(run.0)).map(inside).sum()
    }

    /// Every byte's last use is covered by a stamp of the run.
    fn check_stamps(&self, run: PageRun) {
        let mut stamps = Vec::new();
        self.heap.stamps(run, &mut |stamp| stamps.push(stamp));
        for (_, _, cell) in self.shadow.over(run.address.0, run.address.0 + run.bytes) {
            let covers = |s: &Stamp| s.stream.0 == cell.stream && s.epoch >= cell.epoch;
            assert!(stamps.iter().any(covers), "a use of {run:?} is forgotten");
        }
    }

    fn shadow_unmap(&mut self, run: PageRun) {
        let gap = Cell { kind: Kind::Gap, claimed: false, stream: 0, epoch: 0 };
        self.shadow.paint(run.address.0, run.address.0 + run.bytes, |_| gap);
    }

    /// Commits or aborts a claimed run, or a part of one.
    fn end_unmap(&mut self, op: Op) {
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

    fn remove_segments(&mut self, op: Op) {
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

    fn end_removal(&mut self, op: Op) {
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

    /// Any address is classified as the shadow sees it; what is no live block is not freed.
    fn misuse(&mut self, op: Op) {
        let at = match op.b % 4 {
            0 => u64::from(op.a) << 9,
            1 if !self.live.is_empty() => {
                let block = self.live[op.a as usize % self.live.len()];
                block.address.0 + u64::from(op.a) % block.bytes
            }
            2 if !self.limbo.is_empty() => self.limbo[op.a as usize % self.limbo.len()].address.0,
            _ => match self.shadow.areas.get(op.a as usize % self.shadow.areas.len().max(1)) {
                Some(area) => area.start + u64::from(op.a) * 521 % area.bytes,
                None => u64::MAX,
            },
        };
        let standing = self.heap.classify(Address(at));
        let cell = self.shadow.cell(at);
        let expected = match cell {
            None => Err(FreeError::Foreign),
            Some(Cell { kind: Kind::Live(start), .. }) if start == at => Ok(()),
            Some(Cell { kind: Kind::Live(start), .. }) => {
                Err(FreeError::Interior { start: Address(start) })
            }
            Some(_) => Err(FreeError::AlreadyFree),
        };
        let agrees = match (standing, cell) {
            (Standing::Foreign, None) => true,
            (Standing::Claimed, Some(cell)) => cell.claimed,
            (_, Some(Cell { claimed: true, .. })) => false,
            (Standing::Live(block), Some(cell)) => {
                cell.kind == Kind::Live(at) && block.address.0 == at
            }
            (Standing::LiveInterior(block), Some(cell)) => {
                cell.kind == Kind::Live(block.address.0) && block.address.0 < at
            }
            (Standing::Limbo(block), Some(cell)) => cell.kind == Kind::Limbo(block.address.0),
            (Standing::Free, Some(cell)) => cell.kind == Kind::Free,
            (Standing::Gap, Some(cell)) => cell.kind == Kind::Gap,
            _ => false,
        };
        assert!(agrees, "{at:#x} is {cell:?}, not {standing:?}");
        if let Err(error) = expected {
            self.seen.misuse += 1;
            assert_eq!(self.heap.release(Address(at), |_| 1), Err(error));
            assert_eq!(self.heap.release_to_limbo(Address(at), |_| 1), Err(error));
            let stamp = Stamp { stream: StreamSlot(0), epoch: 1 };
            assert_eq!(self.heap.release_to(Address(at), stamp), Err(error.at(Address(at))));
        }
        if !matches!(cell, Some(Cell { kind: Kind::Limbo(start), .. }) if start == at) {
            assert!(self.heap.settle(Address(at)).is_err());
        }
    }

    /// The k-th reservation of host memory fails: everything is as it was. Where nothing needed k, what
    /// was got is given back, and everything is as it was too.
    fn fail_host(&mut self, op: Op) {
        let before: Vec<_> = self.heap.blocks().collect();
        let figures = self.heap.figures();
        let request = self.request(op);
        self.heap.fail_reservation(u64::from(1 + op.b % 4));
        let done = match op.a % 4 {
            0 => self.heap.take(&request).map(|block| {
                if let Some(block) = block {
                    self.heap.release(block.address, |_| 0).expect("it is live");
                }
            }),
            1 => self.heap.claim_growth(&request, u64::MAX).map(|growth| {
                if let Some(growth) = growth {
                    self.heap.abort_growth(growth).expect("it is claimed");
                }
            }),
            2 => self.heap.claim_pages(u64::MAX, &|_| true).map(|runs| {
                for run in runs {
                    self.heap.abort_unmap(run).expect("it is claimed");
                }
            }),
            _ => self.heap.claim_segments(u64::MAX, &|_| true).map(|runs| {
                for run in runs {
                    self.heap.abort_remove(run).expect("it is claimed");
                }
            }),
        };
        self.heap.fail_reservation(0);
        if let Err(error) = done {
            assert_eq!(error, Error::HostOutOfMemory);
            self.seen.host_failures += 1;
        }
        self.heap.check();
        let after: Vec<_> = self.heap.blocks().collect();
        assert_eq!(before, after, "a failure left its traces");
        assert_eq!(figures, self.heap.figures());
    }

    /// Work gets done.
    fn pass(&mut self, op: Op) {
        let stream = op.a as usize % self.clock.len();
        let (clock, passed) = &mut self.clock[stream];
        *clock += 1;
        *passed += (*clock - *passed) * u64::from(op.b % 4) / 3;
        if *passed == *clock {
            *clock += 1;
        }
    }

    /// A range that is all gap is removed and comes back; others cannot be removed.
    fn ranges(&mut self, op: Op) {
        let areas = self.shadow.areas.clone();
        let Some(&area) = areas.get(op.a as usize % areas.len().max(1)) else { return };
        let end = area.start + area.bytes;
        let gap = |cell: Cell| cell.kind == Kind::Gap && !cell.claimed;
        let removed = self.heap.remove_range(Address(area.start));
        assert_eq!(removed.is_ok(), self.shadow.whole(area.start, end, gap), "{removed:?}");
        if removed.is_ok() {
            assert_eq!(self.heap.classify(Address(area.start)), Standing::Foreign);
            self.heap.add_range(Address(area.start), area.bytes).expect("it was there before");
        }
        let again = self.heap.add_range(Address(area.start), self.geometry.page);
        assert!(matches!(again, Err(Error::InvalidArgument { .. })), "an overlap is accepted");
    }

    /// All of the heap is as the shadow has it.
    fn compare(&mut self) {
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
    fn compare_runs(&self) {
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
        let gaps = self.shadow.runs(|cell| cell.kind == Kind::Gap && !cell.claimed);
        assert_eq!(self.heap.largest_gap(), largest(&gaps), "largest gap");
        assert_eq!(self.heap.largest_free_of_any(), most);
        assert_eq!((figures.gaps, figures.free_blocks), (gaps.len() as u64, count));
        assert_eq!(figures.releasable, releasable, "releasable");
    }

    /// The blocks tile the areas, and each byte is what its block says.
    fn compare_blocks(&self) {
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
