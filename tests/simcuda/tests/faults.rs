//! Faults, costs, counts: what a test can ask of the driver.

mod common;
use std::sync::{Arc, Mutex};

use common::{MIB, PAGE, Session, code::*, properties, session};

fn allocations(s: &Session, calls: usize) -> Vec<i32> {
    (0..calls)
        .map(|_| {
            let mut address = 0;
            s.cuMemAlloc_v2(&mut address, 512)
        })
        .collect()
}

#[test]
fn the_first_call_or_every_so_many_fails() {
    let s = session(&[]);
    s.alloc(512);
    s.sim.fault("cuMemAlloc", 2, 0, 2, false).expect("a rule");
    assert_eq!(allocations(&s, 4), [0, 2, 0, 0], "counted from when the rule was set");
    s.sim.clear_faults();
    s.sim.fault("cuMemAlloc_v2", 1, 3, 999, false).expect("variants are one function");
    assert_eq!(allocations(&s, 7), [999, 0, 0, 999, 0, 0, 999]);
    assert_eq!(s.sim.faults_fired(), 4);
    s.sim.clear_faults();
    assert_eq!(allocations(&s, 2), [0, 0]);
    assert_eq!(s.sim.objects("allocations"), 1 + 3 + 4 + 2);
}

#[test]
fn a_random_share_fails_and_its_seed_reproduces_it() {
    let run = |seed| {
        let s = session(&[]);
        s.sim.fault_random("cuMemAlloc", 300_000, seed, 2).expect("a rule");
        let results = allocations(&s, 1000);
        assert_eq!(s.sim.faults_fired(), results.iter().filter(|r| **r == 2).count() as u64);
        results
    };
    let first = run(1);
    assert_eq!(first, run(1));
    assert_ne!(first, run(2));
    let failed = first.iter().filter(|result| **result == 2).count();
    assert!((220..380).contains(&failed), "{failed}");
}

#[test]
fn a_fault_before_the_effect_leaves_everything_as_it_was() {
    let s = session(&[]);
    let block = s.alloc(4096);
    s.sim.fault("cuMemFree", 1, 0, 999, false).expect("a rule");
    s.sim.fault("cuMemsetD8Async", 1, 0, 1, false).expect("a rule");
    assert_eq!(s.cuMemsetD8Async(block, 1, 4096, 0), 1);
    assert_eq!(s.cuMemFree_v2(block), 999);
    assert_eq!(s.peek(block, 1), [0]);
    assert_eq!(s.sim.objects("allocations"), 1);
    ok!(s.cuMemFree_v2(block));
}

#[test]
fn a_fault_after_the_effect_is_for_calls_that_hand_out_nothing() {
    let s = session(&[]);
    let range = s.reserve(PAGE);
    let page = s.create(PAGE, 0);
    s.map(range, PAGE, page);
    for function in ["cuMemUnmap", "cuMemRelease", "cuMemFree", "cuMemsetD8Async"] {
        s.sim.fault(function, 1, 0, 999, true).expect(function);
    }
    let block = s.alloc(64);
    assert_eq!(s.cuMemsetD8Async(block, 3, 64, 0), 999);
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.peek(block, 1), [3]);
    assert_eq!(s.cuMemUnmap(range, PAGE), 999);
    assert_eq!(s.sim.objects("mappings"), 0);
    assert_eq!(s.cuMemRelease(page), 999);
    assert_eq!(s.sim.used(0), 512);
    assert_eq!(s.cuMemFree_v2(block), 999);
    assert_eq!(s.sim.used(0), 0);
    for function in [
        "cuMemAlloc",
        "cuMemAllocPitch",
        "cuMemCreate",
        "cuMemAddressReserve",
        "cuMemHostAlloc",
        "cuMemHostRegister",
        "cuStreamCreate",
        "cuEventCreate",
        "cuCtxCreate",
        "cuDevicePrimaryCtxRetain",
        "cuMemRetainAllocationHandle",
        "cuModuleLoadData",
        "*",
    ] {
        let why = s.sim.fault(function, 1, 0, 2, true).expect_err(function).to_string();
        assert!(why.contains("object"), "{why}");
    }
}

#[test]
fn a_call_that_fails_by_itself_keeps_its_own_code() {
    let s = session(&[]);
    s.sim.fault("cuMemUnmap", 1, 1, 999, true).expect("a rule");
    assert_eq!(s.cuMemUnmap(4096, PAGE), INVALID_VALUE);
}

/// A call lets another thread go first: before its effect, without a lock, once.
#[test]
fn a_call_meets_whoever_the_test_names() {
    let s = session(&[]);
    let context = s.use_device(0);
    let (sim, driver) = (s.sim, s.driver);
    let met = Arc::new(Mutex::new(Vec::new()));
    let seen = met.clone();
    let first = move || {
        let here = std::thread::current().id();
        let other = std::thread::spawn(move || {
            let mut address = 0;
            assert_eq!(driver.cuCtxSetCurrent(context), 0);
            assert_eq!(driver.cuMemAlloc_v2(&mut address, 512), 0);
            address
        });
        let theirs = other.join().expect("it allocates");
        seen.lock().expect("no panic").push((here, theirs, sim.objects("allocations")));
    };
    s.sim.meet("cuMemAlloc_v2", 2, first).expect("a function");
    assert_eq!(allocations(&s, 3), [0, 0, 0]);
    let met = met.lock().expect("no panic");
    let [(thread, _, live)] = met[..] else { panic!("met {} times", met.len()) };
    assert_eq!((thread, live), (std::thread::current().id(), 2), "before the second's effect");
    assert_eq!(s.sim.faults_fired(), 0);
    assert_eq!(s.sim.objects("allocations"), 4);
    assert!(s.sim.meet("cuMemAlloc", 0, || ()).is_err(), "calls are counted from 1");
}

#[test]
fn wrong_rules_say_why() {
    let s = session(&[]);
    assert!(s.sim.fault("cuMemFree", 0, 0, 2, false).is_err());
    assert!(s.sim.fault("cuMemFree", 1, 0, 0, false).is_err());
    let refused = s.sim.fault("cuMemFreee", 1, 0, 2, false).expect_err("no such function");
    assert!(refused.to_string().contains("'cuMemFreee' is no function of the driver"), "{refused}");
    assert!(s.sim.fault_random("", 1, 1, 2).is_err() && s.sim.fault("*", 1, 0, 2, false).is_ok());
    assert!(s.sim.schedule("soon").expect_err("no schedule").to_string().contains("lag:K"));
    assert!(s.sim.checker("loud").expect_err("no mode").to_string().contains("abort"));
}

#[test]
fn faults_may_be_configured() {
    let s = session(&[("faults", "cuMemAlloc:2:OUT_OF_MEMORY,cuMemCreate:1:304")]);
    assert_eq!(allocations(&s, 3), [0, 2, 0]);
    let mut handle = 0;
    assert_eq!(s.cuMemCreate(&mut handle, PAGE, &properties(0, 0), 0), 304);
}

fn spent(s: &Session, call: impl FnOnce()) -> u64 {
    let before = (s.sim.driver_time_ns(), s.sim.time_ns());
    call();
    let after = (s.sim.driver_time_ns(), s.sim.time_ns());
    assert_eq!(after.0 - before.0, after.1 - before.1, "all of it in the driver");
    after.0 - before.0
}

#[test]
fn calls_cost_what_the_table_says() {
    let s = session(&[]);
    let (range, mut handle) = (s.reserve(4 * PAGE), 0);
    let created = spent(&s, || handle = s.create(4 * PAGE, 0));
    assert_eq!(created, 190_000 + 8 * 1_500);
    assert_eq!(spent(&s, || ok!(s.cuMemMap(range, 4 * PAGE, 0, handle, 0))), 1_500);
    assert_eq!(spent(&s, || s.grant(range, 4 * PAGE, 0, 3)), 36_000);
    assert_eq!(spent(&s, || ok!(s.cuMemUnmap(range, 4 * PAGE))), 26_000);
    let pages: Vec<_> = (0..4).map(|_| s.create(PAGE, 0)).collect();
    for (i, page) in pages.iter().enumerate() {
        ok!(s.cuMemMap(range + (i * PAGE) as u64, PAGE, 0, *page, 0));
    }
    assert_eq!(spent(&s, || s.grant(range, 4 * PAGE, 0, 3)), 36_000 + 3 * 1_000);
    assert_eq!(spent(&s, || ok!(s.cuMemUnmap(range, 4 * PAGE))), 4 * 26_000);
    let mut block = 0;
    assert_eq!(spent(&s, || block = s.alloc(16 * MIB)), 160_000 + 16 * 1_000);
    assert_eq!(spent(&s, || ok!(s.cuMemFree_v2(block))), 150_000);
    s.sim.cost("cuMemAlloc", 7, 0).expect("a function");
    assert_eq!(spent(&s, || _ = s.alloc(16 * MIB)), 7);
    let failed = spent(&s, || assert_eq!(s.cuMemMap(1, 1, 0, handle, 0), INVALID_VALUE));
    assert_eq!(failed, 1_500, "a call that fails takes its fixed time");
    s.sim.reset();
    assert_eq!((s.sim.time_ns(), s.sim.driver_time_ns()), (0, 0));
}

#[test]
fn calls_are_counted_under_their_base_names() {
    let s = session(&[]);
    s.sim.clear_calls();
    let block = s.alloc(512);
    ok!(s.cuMemsetD8Async(block, 0, 1, 0));
    ok!(s.cuMemsetD8Async_ptsz(block, 0, 1, 0));
    ok!(s.cuMemFree_v2(block));
    assert_eq!(s.cuMemFree_v2(block), INVALID_VALUE);
    let expected = [("cuMemAlloc", 1), ("cuMemFree", 2), ("cuMemsetD8Async", 2)];
    assert_eq!(s.sim.calls_by_name(), expected.map(|(name, count)| (name.to_owned(), count)));
    assert_eq!(s.sim.calls_total(), 5);
    assert_eq!(s.sim.calls("cuMemFree_v2"), 2);
    assert_eq!(s.sim.calls("cuNoSuch"), 0);
    s.sim.clear_calls();
    assert_eq!((s.sim.calls_total(), s.sim.calls_by_name().len()), (0, 0));
}

#[test]
fn memory_can_be_looked_at_and_changed_from_outside() {
    let s = session(&[("checker", "log")]);
    let block = s.alloc(1024);
    s.sim.poke(block + 1000, &[1, 2, 3]).expect("mapped");
    assert_eq!(s.peek(block + 999, 5), [0, 1, 2, 3, 0]);
    assert!(s.sim.poke(block + 1020, &[0; 5]).is_err());
    assert!(s.sim.peek(0, &mut [0]).is_err());
    assert_eq!(s.sim.accesses_checked(), 0, "outside the checker");
}

#[test]
fn threads_may_be_ordered_by_signals_alone() {
    for (signal, findings) in [(true, 0), (false, 1)] {
        let s = session(&[("checker", "log"), ("schedule", "lazy")]);
        s.sim.threads_ordered(false).expect("an order");
        let (block, stream) = (s.alloc(64), s.stream());
        let mut context = 0;
        ok!(s.cuCtxGetCurrent(&mut context));
        ok!(s.cuMemsetD8Async(block, 1, 64, stream));
        ok!(s.cuStreamSynchronize(stream));
        if signal {
            s.sim.signal(9);
        }
        std::thread::scope(|threads| {
            threads.spawn(|| {
                s.sim.await_signal(9);
                ok!(s.cuCtxSetCurrent(context));
                ok!(s.cuMemsetD8Async(block, 2, 64, s.stream()));
            });
        });
        assert_eq!(s.sim.report_count(), findings, "{:?}", s.sim.reports());
        ok!(s.cuCtxSynchronize());
    }
}

#[test]
fn reading_what_was_never_written_can_be_a_finding() {
    let s = session(&[("checker", "log")]);
    s.sim.report_uninitialised(true);
    let (a, b) = (s.alloc(64), s.alloc(64));
    ok!(s.cuMemsetD8Async(a, 1, 32, 0));
    ok!(s.cuMemcpyDtoDAsync_v2(b, a, 32, 0));
    assert_eq!(s.sim.report_count(), 0);
    ok!(s.cuMemcpyDtoDAsync_v2(b, a, 33, 0));
    let reports = s.sim.reports();
    assert!(reports.len() == 1 && reports[0].contains("never written"), "{reports:?}");
    s.sim.clear_reports();
    assert_eq!(s.sim.report_count(), 0);
}

#[test]
fn the_checker_off_checks_nothing() {
    let s = session(&[("schedule", "lazy")]);
    let block = s.alloc(64);
    for stream in [s.stream(), s.stream()] {
        ok!(s.cuMemsetD8Async(block, 1, 64, stream));
    }
    assert_eq!((s.sim.report_count(), s.sim.accesses_checked()), (0, 0));
}

#[test]
fn the_control_functions_are_exported_as_declared() {
    let s = session(&[]);
    let header = include_str!("../include/simcuda.h");
    let declared = |name: &&&str| header.contains(&format!(" {name}("));
    let missing: Vec<_> = simcuda_control::FUNCTIONS.iter().filter(|n| !declared(n)).collect();
    assert!(missing.is_empty(), "not in simcuda.h: {missing:?}");
    let words = header.split(|c: char| !c.is_alphanumeric() && c != '_');
    for name in words.filter(|w| w.starts_with("simcuda_") && w.len() > 8) {
        let known = simcuda_control::FUNCTIONS.contains(&name) || KERNELS.contains(&name);
        assert!(known, "simcuda.h speaks of {name}");
    }
    for name in simcuda_control::FUNCTIONS {
        assert!(s.sim.symbol(name).is_some(), "{name}");
    }
}

const KERNELS: [&str; 7] = [
    "simcuda_fill",
    "simcuda_copy",
    "simcuda_add",
    "simcuda_spin",
    "simcuda_spin_real",
    "simcuda_touch",
    "simcuda_gate",
];
