//! Programs: any list of [`Op`]s is one, so that lists can be drawn at random and shrunk.
//!
//! A [`Run`] does each on the heap and on the shadow, and compares what they say.

mod adopt;
mod claims;
mod compare;
mod misuse;
mod search;

use crate::shadow::{Area, Cell, Kind, Shadow};
use cuddy::error::Error;
use cuddy::heap::{Block, Growth, Heap, PageRun, Request, Standing};
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
    pub adopted: u64,
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
        self.adopted += other.adopted;
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
            0..=6 if !crowded => self.allocate(op, false),
            7 | 8 if !crowded => self.adopt(op),
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
            30 if op.b >> 30 == 0 => self.give(op),
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
}
