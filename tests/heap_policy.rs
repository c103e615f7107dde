//! How much memory the heap's placement wastes, over recorded traces: a measurement, not a judge.
//!
//! `CUDDY_TRACES=DIR cargo test --release --test heap_policy -- --ignored --nocapture`
//!
//! `CUDDY_TRACE_NAMES=a,b` picks traces by parts of their names. All streams are taken as one,
//! every page as unused once its bytes are free; `r` and `e` lines are left out. Columns:
//! - peak allocated, in MiB;
//! - peak reserved / peak allocated when pages are only added;
//! - the same with harvest under a limit of peak x 1.01 and 8 MiB, or the request that was refused
//!   (`CUDDY_SLACK=10`: the thousandths over the peak);
//! - pages mapped and unmapped under that limit;
//! - nanoseconds for an event without it.

use cuddy::heap::{Block, Heap, Request};
use cuddy::size;
use cuddy::types::{Address, Stamp, StreamSlot};
use std::collections::HashMap;
use std::process::Command;
use std::time::Instant;

const PAGE: u64 = 2 << 20;

/// One event of a trace.
enum Event {
    Allocate(u64, u64),
    Free(u64),
}

fn read(path: &std::path::Path) -> Vec<Event> {
    let out = Command::new("gzip").arg("-dc").arg(path).output().expect("gzip runs");
    assert!(out.status.success(), "gzip could not read {path:?}");
    let text = String::from_utf8(out.stdout).expect("a trace is ASCII");
    let number = |word: Option<&str>| word.and_then(|word| word.parse().ok()).expect("a number");
    text.lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            match words.next() {
                Some("a") => Some(Event::Allocate(number(words.next()), number(words.next()))),
                Some("f") => Some(Event::Free(number(words.next()))),
                _ => None,
            }
        })
        .collect()
}

/// What a replay came to.
#[derive(Default)]
struct Outcome {
    peak_allocated: u64,
    peak_reserved: u64,
    mapped: u64,
    unmapped: u64,
    refused: Option<u64>,
    nanoseconds: u128,
}

fn request(requested: u64) -> Request {
    let stamp = Stamp { stream: StreamSlot(0), epoch: 0 };
    let bytes = size::round_up(requested).expect("a size");
    Request { bytes, requested, alignment: 512, stamp }
}

/// As the device does it: a hit, or growth; over the limit, pages from elsewhere; else all of them
/// first.
fn allocate(heap: &mut Heap, request: &Request, limit: u64, out: &mut Outcome) -> Option<Block> {
    if let Some(block) = heap.take(request).expect("memory") {
        return Some(block);
    }
    let growth = heap.claim_growth(request, u64::MAX).expect("memory").expect("addresses");
    let over = |heap: &Heap, new: u64| (heap.figures().reserved + new).saturating_sub(limit);
    let missing = over(heap, growth.new_bytes());
    let runs = heap.claim_pages(missing, &|_| true).expect("memory");
    let found: u64 = runs.iter().map(|run| run.bytes).sum();
    for run in runs {
        heap.commit_unmap(run).expect("it is claimed");
        out.unmapped += run.bytes / PAGE;
    }
    if found >= missing {
        out.mapped += growth.new_bytes() / PAGE;
        return Some(heap.commit_growth(growth).expect("it is claimed"));
    }
    heap.abort_growth(growth).expect("it is claimed");
    for run in heap.claim_pages(u64::MAX, &|_| true).expect("memory") {
        heap.commit_unmap(run).expect("it is claimed");
        out.unmapped += run.bytes / PAGE;
    }
    let room = limit - heap.figures().reserved;
    let growth = heap.claim_growth(request, room).expect("memory")?;
    out.mapped += growth.new_bytes() / PAGE;
    Some(heap.commit_growth(growth).expect("it is claimed"))
}

fn replay(events: &[Event], limit: u64) -> Outcome {
    let mut heap = Heap::new(PAGE).expect("a page size");
    heap.add_range(Address(1 << 40), 320 << 30).expect("a range");
    let mut live = HashMap::new();
    let mut out = Outcome::default();
    let begin = Instant::now();
    for event in events {
        match *event {
            Event::Allocate(id, bytes) => {
                let Some(block) = allocate(&mut heap, &request(bytes), limit, &mut out) else {
                    out.refused = Some(bytes);
                    break;
                };
                live.insert(id, block.address);
            }
            Event::Free(id) => {
                let address = live.remove(&id).expect("it is live");
                heap.release(address, |_| 0).expect("it is live");
            }
        }
        out.peak_allocated = out.peak_allocated.max(heap.figures().allocated);
        out.peak_reserved = out.peak_reserved.max(heap.figures().reserved);
    }
    out.nanoseconds = begin.elapsed().as_nanos() / events.len().max(1) as u128;
    heap.check();
    out
}

#[test]
#[ignore = "a measurement over traces that CUDDY_TRACES names"]
fn waste_over_traces() {
    let folder = std::env::var("CUDDY_TRACES").expect("CUDDY_TRACES names a folder");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "gz"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "there is no trace");
    let wanted: Vec<String> = std::env::var("CUDDY_TRACE_NAMES")
        .map(|names| names.split(',').map(String::from).collect())
        .unwrap_or_default();
    let slack =
        std::env::var("CUDDY_SLACK").map_or(10, |permille| permille.parse().expect("a number"));
    println!("trace, peak MiB, growth only, limited, mapped, unmapped, ns");
    for path in paths {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if !wanted.is_empty() && !wanted.iter().any(|wanted| name.contains(wanted)) {
            continue;
        }
        let events = read(&path);
        let free = replay(&events, u64::MAX);
        let peak = free.peak_allocated;
        let limited = replay(&events, peak + peak / 1000 * slack + (8 << 20));
        let ratio = |reserved: u64| reserved as f64 / peak as f64;
        let ended = match limited.refused {
            None => format!("{:.4}", ratio(limited.peak_reserved)),
            Some(bytes) => format!("refused {bytes}"),
        };
        let (mapped, unmapped) = (limited.mapped, limited.unmapped);
        let (grown, ns) = (ratio(free.peak_reserved), free.nanoseconds);
        let mib = peak >> 20;
        println!("{name:36} {mib:6} {grown:7.4} {ended:>17} {mapped:7} {unmapped:7} {ns:5}");
        assert!(free.peak_reserved >= peak && free.refused.is_none());
    }
}
