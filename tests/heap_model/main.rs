//! The heap against a shadow that knows only what an allocator is.
//!
//! A million random steps in all, over several geometries; short programs that shrink; and the
//! misuse that must be an error. A failure prints its seed; `CUDDY_SEED` runs that one alone.

mod program;
mod shadow;

use cuddy::error::Error;
use cuddy::heap::{FreeError, Heap, Request};
use cuddy::types::{Address, Stamp, StreamSlot};
use program::{Geometry, Op, Run, Seen};
use proptest::prelude::*;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn op(&mut self) -> Op {
        let (a, b) = (self.next(), self.next());
        Op { kind: (a >> 56) as u8, a: a as u32, b: b as u32 }
    }
}

/// Says which seed it was, when a step panics.
struct Blame(&'static str, u64);

impl Drop for Blame {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("geometry {}: CUDDY_SEED={} fails", self.0, self.1);
        }
    }
}

/// Runs `programs` random programs of `steps` each.
fn random(name: &'static str, geometry: &Geometry, programs: u64, steps: u64) -> Seen {
    let only = std::env::var("CUDDY_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut seen = Seen::default();
    for seed in only.map_or(0..programs, |seed| seed..seed + 1) {
        let blame = Blame(name, seed);
        let mut random = Random(seed);
        let mut run = Run::new(geometry);
        for _ in 0..steps {
            run.step(random.op());
        }
        run.finish();
        seen.add(&run.seen);
        drop(blame);
    }
    println!("{name}: {seen:?}");
    seen
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

fn one_page() -> Geometry {
    Geometry {
        page: 512,
        ranges: vec![(512, 1)],
        segment: 0,
        streams: 2,
        size_log: 10,
        align_log: 10,
        live: 4,
        compare_each: 1,
    }
}

fn small_pages() -> Geometry {
    Geometry {
        page: 512,
        ranges: vec![(512, 63), (32 * KIB, 16)],
        segment: 0,
        streams: 3,
        size_log: 13,
        align_log: 14,
        live: 16,
        compare_each: 1,
    }
}

/// Ranges that touch, pages of eight granules, so that pages are shared; and segments.
fn shared_pages() -> Geometry {
    Geometry {
        page: 4 * KIB,
        ranges: vec![(64 * KIB, 16), (128 * KIB, 16)],
        segment: 8 * KIB,
        streams: 3,
        size_log: 14,
        align_log: 15,
        live: 24,
        compare_each: 1,
    }
}

fn segments_only() -> Geometry {
    Geometry {
        page: 2 * MIB,
        ranges: vec![],
        segment: 2 * MIB,
        streams: 2,
        size_log: 22,
        align_log: 21,
        live: 40,
        compare_each: 4,
    }
}

/// As on a device: 1 TiB of addresses, blocks to 64 MiB, alignments to 1 GiB.
fn device() -> Geometry {
    Geometry {
        page: 2 * MIB,
        ranges: vec![(TIB + 2 * MIB, (TIB - 2 * MIB) / (2 * MIB)), (4 * TIB, 512)],
        segment: 0,
        streams: 4,
        size_log: 26,
        align_log: 30,
        live: 400,
        compare_each: 97,
    }
}

/// Little room, so that most growths are refused, and harvest decides.
fn crowded() -> Geometry {
    Geometry {
        page: 2 * MIB,
        ranges: vec![(2 * MIB, 32)],
        segment: 0,
        streams: 3,
        size_log: 24,
        align_log: 23,
        live: 100,
        compare_each: 7,
    }
}

#[test]
fn a_range_of_one_page() {
    let seen = random("one page", &one_page(), 100, 1000);
    assert!(seen.hits > 100 && seen.growths > 100 && seen.full > 100, "{seen:?}");
}

#[test]
fn pages_of_one_granule() {
    random("small pages", &small_pages(), 200, 1000).happened_often();
}

#[test]
fn pages_that_streams_share() {
    let seen = random("shared pages", &shared_pages(), 200, 1000);
    seen.happened_often();
    assert!(seen.segments > 100 && seen.removed > 100, "{seen:?}");
}

#[test]
fn segments_without_pages() {
    let seen = random("segments", &segments_only(), 10, 10_000);
    assert!(seen.segments > 100 && seen.removed > 100, "{seen:?}");
}

#[test]
fn a_device() {
    random("device", &device(), 4, 50_000).happened_often();
}

#[test]
fn a_crowded_device() {
    random("crowded", &crowded(), 10, 20_000).happened_often();
}

impl Seen {
    fn happened_often(&self) {
        let Self { hits, misses, growths, aborts, frees, limbo, given_away, .. } = *self;
        let Self { settled, harvested, kept, partial, misuse, host_failures, adopted, .. } = *self;
        let all = [
            hits,
            misses,
            growths,
            aborts,
            frees,
            limbo,
            settled,
            harvested,
            kept,
            partial,
            misuse,
            host_failures,
            given_away,
            adopted,
        ];
        assert!(all.iter().all(|&count| count > 20), "this shows little: {self:?}");
    }
}

fn any_op() -> impl Strategy<Value = Op> {
    (any::<u8>(), any::<u32>(), any::<u32>()).prop_map(|(kind, a, b)| Op { kind, a, b })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// The same in short, for the sake of shrinking: a failure here is the smallest program that
    /// fails.
    #[test]
    fn short_programs(ops in prop::collection::vec(any_op(), 1..200), which in 0..4) {
        let geometries = [one_page(), small_pages(), shared_pages(), segments_only()];
        let mut run = Run::new(&geometries[which as usize]);
        for op in ops {
            run.step(op);
        }
        run.finish();
    }
}

fn request(bytes: u64, alignment: u64) -> Request {
    let stamp = Stamp { stream: StreamSlot(0), epoch: 0 };
    Request { bytes, requested: bytes, alignment, stamp }
}

/// The argument that an error blames.
fn blamed<T: std::fmt::Debug>(result: Result<T, Error>) -> &'static str {
    match result {
        Err(Error::InvalidArgument { argument, .. }) => argument,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sizes_beyond_the_address_space_are_errors() {
    let mut heap = Heap::new(2 * MIB).expect("a page size");
    heap.add_range(Address(TIB), TIB).expect("a range");
    for bytes in [0, 1, 511, 513, (1 << 62) + 512, 1 << 63, u64::MAX - 511, u64::MAX] {
        assert_eq!(blamed(heap.take(&request(bytes, 512))), "bytes");
        assert_eq!(blamed(heap.claim_growth(&request(bytes, 512), u64::MAX)), "bytes");
        assert_eq!(heap.growth_needed(&request(bytes, 512)), None);
    }
    for alignment in [0, 1, 256, 513, 3 << 20, (1 << 62) + 1, 1 << 63, u64::MAX] {
        assert_eq!(blamed(heap.take(&request(512, alignment))), "alignment");
        assert_eq!(blamed(heap.claim_growth(&request(512, alignment), u64::MAX)), "alignment");
    }
    let wrong = Request { requested: 513, ..request(512, 512) };
    assert_eq!(blamed(heap.take(&wrong)), "requested");
    let stamp = Stamp { stream: StreamSlot(u32::MAX), epoch: 0 };
    assert_eq!(blamed(heap.take(&Request { stamp, ..request(512, 512) })), "stream");
    // As large as a request may be: no room, no panic.
    for (bytes, alignment) in [(1 << 62, 512), (512, 1 << 62), (1 << 62, 1 << 62)] {
        assert_eq!(heap.take(&request(bytes, alignment)), Ok(None));
        assert_eq!(heap.claim_growth(&request(bytes, alignment), u64::MAX), Ok(None));
        assert_eq!(heap.growth_needed(&request(bytes, alignment)), None);
    }
    assert_eq!(heap.figures().reserved, 0);
    heap.check();
}

#[test]
fn ranges_that_are_none_are_errors() {
    for page in [0, 1, 256, 513, 1 << 63, u64::MAX] {
        assert_eq!(blamed(Heap::new(page)), "page_bytes");
    }
    let mut heap = Heap::new(4 * KIB).expect("a page size");
    let stamp = Stamp { stream: StreamSlot(0), epoch: 0 };
    for (start, bytes, blames) in [
        (0, 4 * KIB, "start"),
        (512, 4 * KIB, "start"),
        (4 * KIB, 0, "bytes"),
        (4 * KIB, 512, "bytes"),
        (4 * KIB, 1 << 62, "bytes"),
        (1 << 62, 4 * KIB, "bytes"),
        (u64::MAX - 4095, 4 * KIB, "start"),
        (4 * KIB, u64::MAX - 4095, "bytes"),
    ] {
        assert_eq!(blamed(heap.add_range(Address(start), bytes)), blames, "{start:#x} {bytes:#x}");
    }
    assert_eq!(blamed(heap.add_segment(Address(1), 512, stamp)), "start");
    assert_eq!(blamed(heap.add_segment(Address(512), 0, stamp)), "bytes");
    assert_eq!(blamed(heap.add_segment(Address(512), u64::MAX - 511, stamp)), "bytes");
    heap.add_range(Address(8 * KIB), 8 * KIB).expect("a range");
    for (start, bytes) in [(8, 4), (8, 8), (12, 4), (4, 8), (4, 16), (12, 16)] {
        let overlap = heap.add_range(Address(start * KIB), bytes * KIB);
        assert_eq!(blamed(overlap), "start", "{start} {bytes}");
        assert_eq!(blamed(heap.add_segment(Address(start * KIB), bytes * KIB, stamp)), "start");
    }
    heap.add_range(Address(16 * KIB), 4 * KIB).expect("above");
    heap.add_range(Address(4 * KIB), 4 * KIB).expect("below");
    for start in [0, 4 * KIB + 1, 12 * KIB, 1 << 40, u64::MAX] {
        assert_eq!(blamed(heap.remove_range(Address(start))), "start");
    }
    heap.check();
}

/// Hundreds of free blocks and gaps that are large enough lie wrong for the alignment, and one does
/// not.
#[test]
fn one_aligned_place_among_many_is_found() {
    let page = 4 * KIB;
    let mut heap = Heap::new(page).expect("a page size");
    // 300 ranges of two pages, each one page off an alignment of two; the last is not off, or
    // larger.
    let ranges = |last_off: u64, last_pages: u64| {
        (0..300).map(move |k| match k {
            299 => ((2 + 4 * k + last_off) * page, last_pages * page),
            _ => ((2 + 4 * k + 1) * page, 2 * page),
        })
    };
    for (off, pages) in [(0, 2), (1, 3)] {
        let aligned = request(2 * page, 2 * page);
        let wanted = Address((2 + 4 * 299 + 2 * off) * page);
        for (start, bytes) in ranges(off, pages) {
            heap.add_range(Address(start), bytes).expect("a range");
        }
        assert_eq!(heap.growth_needed(&aligned), Some(2 * page));
        let growth = heap.claim_growth(&aligned, 2 * page).expect("memory").expect("a place");
        assert_eq!(growth.block.address, wanted);
        heap.abort_growth(growth).expect("it is claimed");
        for (start, _) in ranges(off, pages) {
            heap.remove_range(Address(start)).expect("all gap");
        }
        let stamp = request(512, 512).stamp;
        for (start, bytes) in ranges(off, pages) {
            heap.add_segment(Address(start), bytes, stamp).expect("a segment");
        }
        let block = heap.take(&aligned).expect("memory").expect("a place");
        assert_eq!(block.address, wanted);
        assert_eq!(heap.take(&aligned), Ok(None));
        heap.release(block.address, |_| 0).expect("it is live");
        for run in heap.claim_segments(u64::MAX, &|_| true).expect("memory") {
            heap.commit_remove(run).expect("it is claimed");
        }
    }
    assert_eq!(heap.figures(), cuddy::heap::Figures::default());
}

#[test]
fn what_was_never_handed_out_is_not_taken_back() {
    let mut heap = Heap::new(2 * MIB).expect("a page size");
    assert_eq!(heap.release(Address(0), |_| 0), Err(FreeError::Foreign));
    assert_eq!(heap.release(Address(u64::MAX), |_| 0), Err(FreeError::Foreign));
    heap.add_range(Address(TIB), 64 * MIB).expect("a range");
    assert_eq!(heap.release(Address(TIB), |_| 0), Err(FreeError::AlreadyFree));
    let growth = heap.claim_growth(&request(MIB, 512), u64::MAX).expect("memory").expect("room");
    let block = growth.block;
    assert_eq!(heap.release(block.address, |_| 0), Err(FreeError::AlreadyFree));
    let mut other = Heap::new(2 * MIB).expect("a page size");
    assert!(matches!(heap.commit_unmap(growth.maps[0]), Err(Error::Internal(_))));
    heap.commit_growth(growth).expect("it is claimed");
    let inside = FreeError::Interior { start: block.address };
    assert_eq!(heap.release(Address(block.address.0 + 1), |_| 0), Err(inside));
    assert_eq!(heap.release(Address(block.address.0 + MIB - 1), |_| 0), Err(inside));
    assert_eq!(heap.settle(block.address).map(|_| ()), Err(FreeError::AlreadyFree));
    heap.release(block.address, |_| 0).expect("it is live");
    assert_eq!(heap.release(block.address, |_| 0), Err(FreeError::AlreadyFree));
    let run = heap.claim_pages(u64::MAX, &|_| true).expect("memory")[0];
    assert!(matches!(other.commit_unmap(run), Err(Error::Internal(_))));
    assert!(matches!(other.abort_remove(run), Err(Error::Internal(_))));
    let shifted = cuddy::heap::PageRun { address: Address(run.address.0 + 512), ..run };
    assert!(matches!(heap.commit_unmap(shifted), Err(Error::Internal(_))));
    let longer = cuddy::heap::PageRun { bytes: run.bytes + 2 * MIB, ..run };
    assert!(matches!(heap.commit_unmap(longer), Err(Error::Internal(_))));
    let endless = cuddy::heap::PageRun { bytes: u64::MAX, ..run };
    assert!(matches!(heap.abort_unmap(endless), Err(Error::Internal(_))));
    heap.commit_unmap(run).expect("it is claimed");
    assert_eq!(heap.figures().reserved, 0);
    heap.check();
    other.check();
}
