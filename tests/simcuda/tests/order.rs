//! What freeing waits for, what wrong uses are told, and what a schedule may change.

mod common;
use common::{SCHEDULES, Session, code::*, session};

#[test]
fn free_waits_for_the_device() {
    for schedule in SCHEDULES {
        let s = session(&[("checker", "log"), ("schedule", schedule)]);
        let (stream, block, other) = (s.stream(), s.alloc(64), s.alloc(64));
        s.launch("simcuda_spin", &[1_000_000], stream);
        ok!(s.cuMemsetD8Async(other, 3, 64, stream));
        let before = s.sim.driver_time_ns();
        ok!(s.cuMemFree_v2(block));
        assert!(s.sim.driver_time_ns() - before >= 1_000_000, "{schedule}: the wait is charged");
        assert_eq!(s.peek(other, 1), [3], "{schedule}");
        ok!(s.cuStreamQuery(stream));
        assert_eq!(s.sim.report_count(), 0, "{schedule}");
    }
}

#[test]
fn use_after_free_names_both_sides() {
    let s = session(&[("checker", "log")]);
    let block = s.alloc(4096);
    ok!(s.cuMemFree_v2(block));
    s.launch("simcuda_fill", &[block + 64, 64, 1], s.stream());
    let reports = s.sim.reports();
    assert_eq!(reports.len(), 1);
    for part in ["use after free", "cuMemFree", "simcuda_fill", "stream"] {
        assert!(reports[0].contains(part), "{part}: {}", reports[0]);
    }
    assert_eq!(s.cuCtxSynchronize(), ILLEGAL_ADDRESS);
    let (mut stream, mut address) = (0, 0);
    assert_eq!(s.cuStreamCreate(&mut stream, 0), ILLEGAL_ADDRESS);
    assert_eq!(s.cuMemAlloc_v2(&mut address, 512), ILLEGAL_ADDRESS);
    assert_eq!(s.cuMemFree_v2(block), ILLEGAL_ADDRESS);
}

#[test]
fn use_beyond_the_end_is_said_so() {
    let s = session(&[("checker", "log")]);
    let block = s.alloc(4096);
    ok!(s.cuMemsetD8Async(block + 4000, 1, 97, 0));
    let reports = s.sim.reports();
    assert!(reports.len() == 1 && reports[0].contains("beyond the end"), "{reports:?}");
    assert_eq!(s.cuCtxSynchronize(), ILLEGAL_ADDRESS);
    assert_eq!(s.peek(block + 4000, 1), [0], "work that was wrong from the start does nothing");
}

#[test]
fn a_counter_that_is_not_there_is_reported() {
    let s = session(&[("checker", "log")]);
    let (block, counter) = (s.alloc(512), s.alloc(512));
    let streams = [s.stream(), s.stream()];
    for stream in streams {
        s.launch("cuddy_pattern_check", &[block, 512, 64, 1, counter], stream);
    }
    assert_eq!(s.sim.reports(), Vec::<String>::new(), "two additions are no race");
    ok!(s.cuMemFree_v2(counter));
    s.launch("cuddy_pattern_check", &[block, 512, 64, 1, counter], streams[0]);
    let reports = s.sim.reports();
    assert!(reports.len() == 1 && reports[0].contains("use after free"), "{reports:?}");
    assert_eq!(s.cuCtxSynchronize(), ILLEGAL_ADDRESS);
}

#[test]
fn kernels_do_not_see_pageable_memory() {
    let s = session(&[("checker", "log")]);
    let bytes = [0u8; 64];
    s.launch("simcuda_fill", &[bytes.as_ptr() as u64, 64, 1], 0);
    assert!(s.sim.reports()[0].contains("no memory of a device"), "{:?}", s.sim.reports());
    assert_eq!(s.cuCtxSynchronize(), ILLEGAL_ADDRESS);
    assert_eq!(bytes, [0; 64]);
}

/// A program whose every use is ordered: three streams, events, the legacy stream, pinned memory.
fn ordered_program(s: &Session, seed: u64) -> Vec<u8> {
    let streams = [s.stream(), s.stream(), s.blocking_stream()];
    let event = s.event();
    let (a, b) = (s.alloc(256), s.alloc(256));
    let mut state = seed;
    for step in 0..60u64 {
        let random = split_mix(&mut state);
        let stream = streams[(random % 3) as usize];
        ok!(s.cuStreamWaitEvent(stream, event, 0));
        let (at, to) = if random & 8 == 0 { (a, b) } else { (b, a) };
        match random >> 4 & 3 {
            0 => ok!(s.cuMemsetD8Async(at + (random >> 8 & 127), step as u8, 100, stream)),
            1 => ok!(s.cuMemcpyDtoDAsync_v2(to, at + (random >> 8 & 63), 128, stream)),
            2 => s.launch("simcuda_add", &[to, at, at, 64], stream),
            _ => s.launch("cuddy_pattern_write", &[at, 256, 40, step], stream),
        }
        ok!(s.cuEventRecord(event, stream));
    }
    ok!(s.cuEventSynchronize(event));
    let mut bytes = s.peek(a, 256);
    bytes.extend(s.peek(b, 256));
    bytes
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 27)
}

#[test]
fn an_ordered_program_has_one_result_whatever_the_schedule() {
    for seed in 0..20 {
        let results: Vec<_> = SCHEDULES
            .iter()
            .map(|schedule| {
                let s = session(&[("checker", "log"), ("schedule", schedule)]);
                let result = ordered_program(&s, seed);
                assert_eq!(s.sim.reports(), Vec::<String>::new(), "{schedule}");
                assert!(s.sim.accesses_checked() > 60);
                result
            })
            .collect();
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}");
        assert!(results[0].iter().any(|byte| *byte != 0));
    }
}

#[test]
fn many_threads_share_the_driver() {
    for schedule in ["eager", "lazy", "random:3"] {
        let s = session(&[("checker", "log"), ("schedule", schedule)]);
        let mut context = 0;
        ok!(s.cuCtxGetCurrent(&mut context));
        let counter = s.alloc(8);
        std::thread::scope(|threads| {
            for number in 0..4u64 {
                let s = &s;
                threads.spawn(move || {
                    ok!(s.cuCtxSetCurrent(context));
                    let (stream, write) = (s.stream(), s.function("cuddy_pattern_write"));
                    let check = s.function("cuddy_pattern_check");
                    for round in 0..50u64 {
                        let bytes = 512 + (round * 977) % 5000;
                        let block = s.alloc(bytes as usize);
                        let seed = number << 32 | round;
                        ok!(s.try_launch(write, &[block, bytes, 64, seed], stream));
                        ok!(s.try_launch(check, &[block, bytes, 64, seed, counter], stream));
                        if round % 3 == 0 {
                            ok!(s.cuStreamSynchronize(stream));
                        }
                        ok!(s.cuMemFree_v2(block));
                    }
                    ok!(s.cuStreamDestroy_v2(stream));
                });
            }
        });
        ok!(s.cuCtxSynchronize());
        assert_eq!(s.peek(counter, 8), [0; 8], "{schedule}: a block was another's too");
        assert_eq!(s.sim.reports(), Vec::<String>::new(), "{schedule}");
        assert_eq!((s.sim.objects("allocations"), s.sim.objects("streams")), (1, 0));
        assert_eq!(s.sim.calls("cuMemAlloc"), 1 + 4 * 50);
    }
}

#[test]
fn an_unordered_program_shows_in_the_data_of_some_schedule() {
    let results: std::collections::BTreeSet<_> = (0..20)
        .map(|seed| {
            let s = session(&[("schedule", &format!("random:{seed}"))]);
            let (block, a, b) = (s.alloc(8), s.stream(), s.stream());
            for _ in 0..4 {
                ok!(s.cuMemsetD8Async(block, 1, 8, a));
                ok!(s.cuMemsetD8Async(block, 2, 8, b));
            }
            ok!(s.cuCtxSynchronize());
            s.peek(block, 1)
        })
        .collect();
    assert_eq!(results.len(), 2, "both orders were seen");
}

#[test]
fn a_seed_reproduces_its_run() {
    let run = |seed: u64| {
        let s = session(&[("schedule", &format!("random:{seed}"))]);
        let (block, streams) = (s.alloc(64), [s.stream(), s.stream(), s.stream()]);
        (0..64u8)
            .map(|i| {
                ok!(s.cuMemsetD8Async(block, i, 64, streams[usize::from(i) % 3]));
                s.peek(block, 1)[0]
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(run(5), run(5));
    assert!((0..10).any(|seed| run(seed) != run(5)));
}

#[test]
fn a_report_names_streams_as_the_program_knows_them() {
    let s = session(&[("checker", "log")]);
    let (stream, x) = (s.stream(), s.alloc(64));
    let sides = || {
        let reports = s.sim.reports();
        s.sim.clear_reports();
        ok!(s.cuCtxSynchronize());
        reports.join("\n")
    };
    let named = |text: &str, stream: &str| text.contains(&format!(", {stream}, submitted by"));
    ok!(s.cuMemsetD8Async(x, 1, 64, stream));
    ok!(s.cuMemsetD8Async(x, 2, 64, 0));
    let text = sides();
    assert!(named(&text, &format!("stream {}", s.stream_id(stream))), "{text}");
    assert!(named(&text, &format!("legacy stream {}", s.stream_id(0))), "{text}");
    ok!(s.cuMemsetD8Async(x, 1, 64, stream));
    ok!(s.cuMemsetD8Async(x, 2, 64, 2));
    let text = sides();
    assert!(named(&text, &format!("per-thread stream {}", s.stream_id(2))), "{text}");
    // A use that is wrong by itself says it in the same words.
    let legacy = s.stream_id(0);
    ok!(s.cuMemsetD8Async(x + 64, 1, 1, 0));
    let text = s.sim.reports().join("\n");
    assert!(text.contains(&format!(", legacy stream {legacy} of device 0")), "{text}");
}
