//! Driver calls that fail: each in turn, before its effect or after it. Whatever fails, there is an
//! error or a recovery, the caller's context is what it was, no object of the driver is lost, no
//! live block changes, and the counters stay exact.

mod machine;

use cuddy::error::{Error, cuddy_status};
use cuddy::process;
use machine::*;

const PAGE: u64 = 2 * MIB;

/// A live block of the replay: where, how large, what it is filled with, and on which stream.
#[derive(Clone, Copy)]
struct Live {
    at: u64,
    bytes: u64,
    value: u8,
    stream: usize,
}

impl Live {
    /// Where it is written and looked at: its edges, and once in each page.
    fn probes(self) -> impl Iterator<Item = u64> {
        (0..self.bytes).step_by(PAGE as usize).chain([self.bytes - 1])
    }
}

/// The program that is run again and again: it allocates, uses and frees on four streams, crosses
/// them, and drives the device into its limit.
struct Replay<'m> {
    machine: &'m Machine,
    context: usize,
    streams: [usize; 4],
    live: Vec<Live>,
    errors: u32,
}

impl<'m> Replay<'m> {
    fn new(machine: &'m Machine) -> Self {
        let context = machine.use_device(0);
        let (held, borrowed) = (machine.stream(), machine.stream());
        let streams = [0, 2, held, borrowed];
        Self { machine, context, streams, live: Vec::new(), errors: 0 }
    }

    /// Counts an error and checks what holds after every call.
    fn note<T>(&mut self, outcome: Result<T, Error>) -> Option<T> {
        assert_eq!(self.machine.context(), self.context, "the caller's context has changed");
        match outcome {
            Ok(value) => Some(value),
            Err(Error::Driver(error)) => {
                assert!([UNKNOWN, OUT_OF_MEMORY].contains(&error.code), "{error}");
                self.errors += 1;
                None
            }
            Err(Error::OutOfMemory(_)) => {
                self.errors += 1;
                None
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    fn malloc(&mut self, bytes: u64, stream: usize) {
        let outcome = malloc_on(bytes, self.streams[stream]);
        if let Some(at) = self.note(outcome) {
            let value = (self.live.len() * 37 + stream + 1) as u8;
            let live = Live { at, bytes, value, stream: self.streams[stream] };
            for offset in live.probes() {
                self.machine.fill(live.stream, at + offset, value, 1);
            }
            self.live.push(live);
        }
    }

    fn free(&mut self, index: usize) {
        if index < self.live.len() {
            let block = self.live.swap_remove(index);
            self.machine.synchronize(block.stream);
            for offset in block.probes() {
                assert_eq!(self.machine.byte(block.at + offset), block.value, "corrupt block");
            }
            assert_eq!(process::free(block.at), Ok(()), "a free may not fail");
            assert_eq!(self.machine.context(), self.context);
        }
    }

    fn record(&mut self, index: usize, stream: usize) {
        if let Some(block) = self.live.get(index) {
            let outcome = process::record_stream(block.at, self.streams[stream]);
            self.note(outcome);
        }
    }

    fn run(&mut self) {
        let outcome = process::stream_open(0, self.streams[2]);
        self.note(outcome);
        for (step, bytes) in [3000, PAGE, 5 * PAGE + 512, 700, 9 * PAGE].into_iter().enumerate() {
            self.malloc(bytes, step % 4);
        }
        self.record(0, 2);
        self.record(1, 0);
        self.record(2, 3);
        self.record(3, 1);
        for index in [4, 2, 1] {
            self.free(index);
        }
        for step in 0..10 {
            self.malloc(3 * PAGE + step * 4096, step as usize % 4);
            self.record(2, 2 - (step as usize) % 3);
            self.free(2);
        }
        // 48 MiB are the limit: what was freed on one stream is needed on another.
        for (step, bytes) in [20 * PAGE, 14 * PAGE, 6 * PAGE].into_iter().enumerate() {
            self.malloc(bytes, (step + 1) % 4);
            let last = self.live.len().saturating_sub(1);
            self.record(last, 3);
            self.free(last);
        }
        let outcome = process::trim(0, 8 * PAGE);
        self.note(outcome);
        self.malloc(12 * PAGE, 3);
        let outcome = process::mem_get_info(0);
        self.note(outcome);
        while !self.live.is_empty() {
            self.free(0);
        }
        self.malloc(23 * PAGE, 0);
        self.free(0);
        let outcome = process::empty_cache(0);
        self.note(outcome);
    }

    /// After the faults are gone: everything is there, or counted as quarantined.
    fn check(&mut self, exactly: bool) {
        self.machine.sim.clear_faults();
        let given = process::empty_cache(0);
        assert!(given.is_ok(), "{given:?}");
        let stats = stats(0);
        assert_eq!((stats.allocated, stats.active, stats.requested), (0, 0, 0));
        assert_eq!((stats.live_block_count, stats.limbo_block_count), (0, 0));
        assert_eq!((stats.reserved, stats.unmapped), (stats.quarantined, 0), "{stats:?}");
        let lost = stats.quarantined / PAGE;
        let (handles, mappings, allocations) = self.machine.holdings();
        assert!(handles <= lost && mappings <= lost && allocations <= lost);
        assert!(self.machine.sim.used(0) <= stats.quarantined);
        assert!(self.machine.sim.objects("events") <= 40, "events are lost");
        assert_eq!(self.machine.sim.objects("reservations"), self.machine.reservations());
        if exactly {
            assert_eq!(stats.quarantined, 0, "nothing has to be lost here");
        }
    }
}

impl Machine {
    /// What the device holds when all goes well: one range of addresses, none without pages.
    fn reservations(&self) -> u64 {
        let pages = process::device_facts(0).expect("a device").backing == "pages";
        u64::from(pages)
    }
}

/// Fails each call of a function in turn, as often as the replay makes it.
fn sweep(test: &str, segments: bool, function: &str, code: i32, after: bool) {
    // Memory crosses from stream to stream, or only by way of its pages.
    for share in ["share:wait", "share:never"] {
        sweep_sharing(test, segments, function, code, after, share);
    }
}

fn sweep_sharing(test: &str, segments: bool, function: &str, code: i32, after: bool, share: &str) {
    // Segments cannot be joined: they need more room for the same program.
    let limit = if segments { "160MiB" } else { "48MiB" };
    let configuration = format!("memory_limit:{limit},{share}");
    let environment = [
        ("SIMCUDA_MEMORY", "64GiB"),
        ("SIMCUDA_VMM", if segments { "0" } else { "1" }),
        ("SIMCUDA_SCHEDULE", if test.starts_with("lazy") { "lazy" } else { "eager" }),
        ("CUDDY_CONF", &configuration),
        // Where events can be recorded over a context, nobody waits for all of it.
        ("SIMCUDA_DRIVER", if function == "cuCtxSynchronize" { "12040" } else { "13000" }),
    ];
    isolated(test, &environment, |machine| {
        let limit = process::memory_limit(0).expect("a device");
        let mut replay = Replay::new(machine);
        replay.run();
        assert_eq!(replay.errors, 0);
        replay.check(true);
        // What could not be given back is tried again, but for segments: their addresses may be
        // somebody else's by now.
        let exactly = function != "cuMemFree";
        let mut k = 1;
        loop {
            process::set_memory_limit(0, limit + stats(0).quarantined).expect("a device");
            machine.sim.fault(function, k, 0, code, after).expect("a function");
            let fired = machine.sim.faults_fired();
            replay.errors = 0;
            replay.run();
            let failed = machine.sim.faults_fired() - fired;
            replay.check(exactly);
            if failed == 0 {
                assert_eq!(replay.errors, 0);
                break;
            }
            k += 1;
        }
        assert!(k > 1, "{function} is never called in the replay");
    });
}

macro_rules! sweeps {
    ($($test:ident: $segments:literal $function:literal $code:expr, $after:literal;)*) => {
        $(#[test] fn $test() { sweep(stringify!($test), $segments, $function, $code, $after); })*
    };
}

sweeps! {
    current: false "cuCtxGetCurrent" UNKNOWN, false;
    pages_context_id: false "cuCtxGetId" UNKNOWN, false;
    pages_capture_mode: false "cuThreadExchangeStreamCaptureMode" UNKNOWN, false;
    pages_stream_id: false "cuStreamGetId" UNKNOWN, false;
    pages_stream_context: false "cuStreamGetCtx" UNKNOWN, false;
    pages_event_record: false "cuEventRecord" UNKNOWN, false;
    pages_event_record_after: false "cuEventRecord" UNKNOWN, true;
    pages_event_query: false "cuEventQuery" UNKNOWN, false;
    pages_event_synchronize: false "cuEventSynchronize" UNKNOWN, false;
    pages_context_record: false "cuCtxRecordEvent" UNKNOWN, false;
    pages_context_synchronize: false "cuCtxSynchronize" UNKNOWN, false;
    pages_info: false "cuMemGetInfo" UNKNOWN, false;
    pages_create: false "cuMemCreate" UNKNOWN, false;
    pages_create_without_memory: false "cuMemCreate" OUT_OF_MEMORY, false;
    pages_map: false "cuMemMap" UNKNOWN, false;
    pages_map_without_memory: false "cuMemMap" OUT_OF_MEMORY, false;
    pages_access: false "cuMemSetAccess" UNKNOWN, false;
    pages_access_after: false "cuMemSetAccess" UNKNOWN, true;
    pages_access_without_memory: false "cuMemSetAccess" OUT_OF_MEMORY, false;
    pages_unmap: false "cuMemUnmap" UNKNOWN, false;
    pages_unmap_after: false "cuMemUnmap" UNKNOWN, true;
    pages_release: false "cuMemRelease" UNKNOWN, false;
    pages_release_after: false "cuMemRelease" UNKNOWN, true;
    lazy_event_query: false "cuEventQuery" UNKNOWN, false;
    lazy_event_record: false "cuEventRecord" UNKNOWN, false;
    lazy_event_synchronize: false "cuEventSynchronize" UNKNOWN, false;
    lazy_event_synchronize_after: false "cuEventSynchronize" UNKNOWN, true;
    lazy_context_record: false "cuCtxRecordEvent" UNKNOWN, false;
    lazy_context_synchronize: false "cuCtxSynchronize" UNKNOWN, false;
    lazy_unmap: false "cuMemUnmap" UNKNOWN, false;
    segments_alloc: true "cuMemAlloc" UNKNOWN, false;
    segments_alloc_without_memory: true "cuMemAlloc" OUT_OF_MEMORY, false;
    segments_free: true "cuMemFree" UNKNOWN, false;
    segments_free_after: true "cuMemFree" UNKNOWN, true;
    segments_event_synchronize: true "cuEventSynchronize" UNKNOWN, false;
    segments_capture_mode: true "cuThreadExchangeStreamCaptureMode" UNKNOWN, false;
}

#[test]
fn many_faults_at_random() {
    const FUNCTIONS: [&str; 15] = [
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemUnmap",
        "cuMemRelease",
        "cuCtxGetId",
        "cuThreadExchangeStreamCaptureMode",
        "cuStreamGetId",
        "cuEventCreate",
        "cuEventRecord",
        "cuEventQuery",
        "cuEventSynchronize",
        "cuCtxRecordEvent",
        "cuCtxSynchronize",
        "cuMemGetInfo",
    ];
    for schedule in ["eager", "lazy", "random:3"] {
        let environment = [("SIMCUDA_SCHEDULE", schedule), ("SIMCUDA_MEMORY", "64GiB")];
        isolated("many_faults_at_random", &environment, |machine| {
            let mut replay = Replay::new(machine);
            let mut errors = 0;
            for seed in 0..40 {
                let limit = 48 * MIB + stats(0).quarantined;
                process::set_memory_limit(0, limit).expect("a device");
                for (index, function) in FUNCTIONS.into_iter().enumerate() {
                    let code = if seed % 2 == 0 { UNKNOWN } else { OUT_OF_MEMORY };
                    let seed = seed * 100 + index as u64;
                    machine.sim.fault_random(function, 30_000, seed, code).expect("a function");
                }
                replay.errors = 0;
                replay.run();
                errors += replay.errors;
                replay.check(true);
            }
            assert!(errors > 40, "only {errors} calls failed");
        });
    }
}

/// Events are made once and used again, so each of these needs a process of its own.
#[test]
fn events_that_cannot_be_made() {
    for k in 1..=3 {
        let environment = [("CUDDY_CONF", "memory_limit:48MiB")];
        isolated("events_that_cannot_be_made", &environment, |machine| {
            let mut replay = Replay::new(machine);
            machine.sim.fault("cuEventCreate", k, 0, UNKNOWN, false).expect("a function");
            replay.run();
            assert_eq!(machine.sim.faults_fired(), 1);
            replay.check(true);
            replay.run();
        });
    }
}

#[test]
fn pushing_and_popping_may_fail_too() {
    let test = "pushing_and_popping_may_fail_too";
    isolated(test, &[("SIMCUDA_MEMORY", "4GiB")], |machine| {
        machine.use_device(0);
        let other = machine.create_context(0);
        for function in ["cuCtxPushCurrent", "cuCtxPopCurrent"] {
            for after in [false, true] {
                for k in 1..=4 {
                    machine.sim.fault(function, k, 0, UNKNOWN, after).expect("a function");
                    for _ in 0..3 {
                        let outcome = malloc(30 * MIB, 0);
                        assert_eq!(machine.context(), other, "{function} {k} {after}");
                        if let Ok(block) = outcome {
                            process::free(block).expect("live");
                        }
                        let _ = process::empty_cache(0);
                        assert_eq!(machine.context(), other, "{function} {k} {after}");
                    }
                    machine.sim.clear_faults();
                    process::empty_cache(0).expect("the driver works");
                    assert_eq!((stats(0).reserved, machine.sim.used(0)), (0, 0));
                }
            }
        }
    });
}

#[test]
fn the_replay_is_worth_sweeping() {
    for share in ["wait", "never"] {
        let configuration = format!("memory_limit:48MiB,share:{share}");
        let environment = [("SIMCUDA_MEMORY", "64GiB"), ("CUDDY_CONF", &configuration)];
        isolated("the_replay_is_worth_sweeping", &environment, |machine| {
            let mut replay = Replay::new(machine);
            replay.run();
            let ours = process::driver_calls();
            let total: u64 = ours.iter().map(|(_, calls)| calls).sum();
            assert!(ours.len() >= 15 && total >= 300, "{total} calls of {ours:?}");
            for (function, calls) in ours {
                assert!(machine.sim.calls(function) >= calls, "{function}");
            }
            let stats = stats(0);
            match share == "never" {
                true => assert!(stats.harvest_count > 0 && stats.wait_count > 0, "{stats:?}"),
                false => assert!(stats.crossing_count > 0, "{stats:?}"),
            }
        });
    }
}

#[test]
fn a_device_that_fails_to_open_leaves_nothing_and_opens_later() {
    let test = "a_device_that_fails_to_open_leaves_nothing_and_opens_later";
    let environment = [("SIMCUDA_DEVICES", "16"), ("SIMCUDA_MEMORY", "1GiB")];
    isolated(test, &environment, |machine| {
        for function in ["cuInit", "cuDriverGetVersion", "cuDeviceGetCount"] {
            machine.sim.fault(function, 1, 0, UNKNOWN, false).expect("a function");
            let error = malloc(1, 0).expect_err("the driver does not start");
            assert!(error.to_string().contains(function), "{error}");
            machine.sim.clear_faults();
        }
        let mut device = 0;
        for function in [
            "cuDeviceGet",
            "cuDeviceGetAttribute",
            "cuDeviceTotalMem",
            "cuDevicePrimaryCtxRetain",
            "cuMemGetAllocationGranularity",
            "cuCtxGetId",
            "cuCtxGetCurrent",
            "cuThreadExchangeStreamCaptureMode",
        ] {
            machine.sim.fault(function, 1, 0, UNKNOWN, false).expect("a function");
            let fired = machine.sim.faults_fired();
            let error = malloc(1, device).expect_err(function);
            assert_eq!(machine.sim.faults_fired(), fired + 1);
            assert_eq!(cuddy_status::from(&error), cuddy_status::CUDDY_ERROR_DRIVER);
            assert!(error.to_string().contains(function), "{error}");
            assert_eq!(machine.sim.objects("reservations"), device as u64, "{function}");
            machine.sim.clear_faults();
            let block = malloc(1, device).expect("it opens now");
            process::free(block).expect("live");
            device += 1;
        }
        assert_eq!(machine.sim.objects("reservations"), device as u64);
    });
}

#[test]
fn refused_addresses_are_asked_for_again_in_smaller_pieces_then_done_without() {
    let test = "refused_addresses_are_asked_for_again_in_smaller_pieces_then_done_without";
    let environment = [("SIMCUDA_DEVICES", "2"), ("SIMCUDA_MEMORY", "16GiB")];
    isolated(test, &environment, |machine| {
        // Three refusals: the range is an eighth of 64 GiB.
        for k in 1..=3 {
            machine.sim.fault("cuMemAddressReserve", k, 0, OUT_OF_MEMORY, false).expect("there");
        }
        let block = malloc(3 * GIB, 0).expect("a smaller range");
        assert_eq!(process::device_facts(0).expect("a device").backing, "pages");
        // More than the range: another one is chained.
        let rest = malloc(6 * GIB, 0).expect("a second range");
        assert_eq!(machine.sim.objects("reservations"), 2);
        process::free(block).expect("live");
        process::free(rest).expect("live");
        machine.sim.clear_faults();
        machine.sim.fault("cuMemAddressReserve", 1, 1, OUT_OF_MEMORY, false).expect("there");
        let block = malloc(3 * GIB, 1).expect("segments need no addresses");
        assert_eq!(process::device_facts(1).expect("a device").backing, "segments");
        process::free(block).expect("live");
        process::empty_cache(process::ALL_DEVICES).expect("the driver works");
        assert_eq!((0..2).map(|device| machine.sim.used(device)).sum::<u64>(), 0);
    });
}

#[test]
fn addresses_that_run_out_are_chained_or_explained() {
    let environment = [("SIMCUDA_MEMORY", "1GiB"), ("CUDDY_CONF", "address_range:64MiB")];
    isolated("addresses_that_run_out_are_chained_or_explained", &environment, |machine| {
        let most = malloc(60 * MIB, 0).expect("most of the range");
        machine.sim.fault("cuMemAddressReserve", 1, 1, OUT_OF_MEMORY, false).expect("there");
        let before = stats(0);
        let error = malloc(10 * MIB, 0).expect_err("no addresses");
        assert_eq!(cuddy_status::from(&error), cuddy_status::CUDDY_ERROR_OUT_OF_MEMORY);
        assert!(error.to_string().contains("no addresses"), "{error}");
        assert_eq!(memory_only(stats(0)), memory_only(before));
        let small = malloc(4 * MIB, 0).expect("what is left of the range");
        machine.sim.clear_faults();
        let chained = malloc(200 * MIB, 0).expect("a range of its own size");
        assert_eq!(machine.sim.objects("reservations"), 2);
        for block in [most, small, chained] {
            process::free(block).expect("live");
        }
        process::empty_cache(0).expect("the driver works");
        assert_eq!(machine.holdings(), (0, 0, 0));
    });
}

#[test]
fn growth_that_fails_half_way_leaves_everything_as_it_was() {
    let test = "growth_that_fails_half_way_leaves_everything_as_it_was";
    isolated(test, &[("SIMCUDA_MEMORY", "1GiB")], |machine| {
        let _kept = malloc(PAGE, 0).expect("fits");
        let (before, holdings) = (stats(0), machine.holdings());
        for function in ["cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
            for k in 1..=5 {
                machine.sim.fault(function, k, 0, OUT_OF_MEMORY, false).expect("a function");
                match malloc(10 * MIB, 0) {
                    Ok(block) => {
                        process::free(block).expect("live");
                        process::trim(0, PAGE).expect("the driver works");
                    }
                    Err(error) => {
                        let status = cuddy_status::from(&error);
                        assert_eq!(status, cuddy_status::CUDDY_ERROR_OUT_OF_MEMORY);
                        assert!(error.to_string().contains(function), "{error}");
                    }
                }
                assert_eq!(machine.holdings(), holdings, "{function} {k}");
                assert_eq!(memory_only(stats(0)), memory_only(before), "{function} {k}");
                machine.sim.clear_faults();
            }
        }
        malloc(10 * MIB, 0).expect("without faults it works");
    });
}

#[test]
fn a_page_that_cannot_be_put_back_is_quarantined() {
    isolated("a_page_that_cannot_be_put_back_is_quarantined", &[], |machine| {
        let live = malloc(512, 0).expect("fits");
        machine.sim.fault("cuMemSetAccess", 1, 0, UNKNOWN, false).expect("a function");
        machine.sim.fault("cuMemUnmap", 1, 0, UNKNOWN, false).expect("a function");
        let error = malloc(5 * PAGE, 0).expect_err("it cannot be mapped");
        assert!(error.to_string().contains("cuMemSetAccess returned 999"), "{error}");
        // One page is stuck; what was free beside it is free again.
        assert_eq!((stats(0).quarantined, stats(0).largest_free), (PAGE, PAGE - 512));
        machine.sim.clear_faults();
        for round in 1..20 {
            let block = malloc(round * PAGE, 0).expect("elsewhere");
            process::free(block).expect("live");
        }
        process::free(live).expect("live");
        process::empty_cache(0).expect("the driver works");
        let now = stats(0);
        assert_eq!((now.quarantined, now.allocated, now.reserved), (0, 0, 0));
        assert_eq!(machine.holdings(), (0, 0, 0));
    });
}

/// One rule: whatever fails to go back is an error, the rest goes back all the same, and the next call
/// tries it again.
#[test]
fn what_the_driver_does_not_take_back_is_said_and_tried_again() {
    let test = "what_the_driver_does_not_take_back_is_said_and_tried_again";
    isolated(test, &[("SIMCUDA_MEMORY", "1GiB")], |machine| {
        for function in ["cuMemUnmap", "cuMemRelease"] {
            for (k, after) in [(1, false), (2, true), (3, false)] {
                let block = malloc(4 * PAGE, 0).expect("fits");
                process::free(block).expect("live");
                machine.sim.fault(function, k, 0, UNKNOWN, after).expect("a function");
                let error = process::empty_cache(0).expect_err("a page is stuck").to_string();
                assert!(error.contains(function), "{error}");
                let now = stats(0);
                assert_eq!((now.reserved, now.quarantined, now.unmapped), (PAGE, PAGE, 0));
                machine.sim.clear_faults();
                assert_eq!(process::empty_cache(0), Ok(PAGE), "{function} {k} {after}");
                assert_eq!((stats(0).reserved, stats(0).quarantined), (0, 0));
                assert_eq!(machine.holdings(), (0, 0, 0));
            }
        }
        // It stays stuck: it is said each time, and lost never.
        let block = malloc(4 * PAGE, 0).expect("fits");
        process::free(block).expect("live");
        for _ in 0..3 {
            machine.sim.fault("cuMemUnmap", 1, 0, UNKNOWN, false).expect("a function");
            process::trim(0, 0).expect_err("a page is stuck");
            assert_eq!(stats(0).quarantined, PAGE);
        }
        assert_eq!(process::empty_cache(0), Ok(PAGE));
        assert_eq!(machine.holdings(), (0, 0, 0));
    });
}

#[test]
fn a_miss_that_would_fail_without_it_tries_what_is_stuck_again() {
    let test = "a_miss_that_would_fail_without_it_tries_what_is_stuck_again";
    let environment = [("CUDDY_CONF", "memory_limit:16MiB")];
    isolated(test, &environment, |machine| {
        let block = malloc(8 * PAGE, 0).expect("all of it");
        process::free(block).expect("live");
        machine.sim.fault("cuMemUnmap", 1, 0, UNKNOWN, false).expect("a function");
        process::empty_cache(0).expect_err("a page is stuck");
        machine.sim.clear_faults();
        let again = malloc(8 * PAGE, 0).expect("all of it once more");
        assert_eq!((stats(0).quarantined, stats(0).reserved), (0, 8 * PAGE));
        process::free(again).expect("live");
    });
}

#[test]
fn addresses_of_a_pool_that_the_driver_does_not_take_back_are_tried_again() {
    let test = "addresses_of_a_pool_that_the_driver_does_not_take_back_are_tried_again";
    isolated(test, &[("SIMCUDA_MEMORY", "1GiB")], |machine| {
        let options = process::PoolOptions { device: 0, limit: 0, use_on_oom: false };
        let pool = process::pool_create(options).expect("room for a pool");
        let block = process::malloc_in(pool, PAGE, 0, 0, 0, None).expect("fits");
        assert_eq!(machine.sim.objects("reservations"), 2);
        process::free(block).expect("live");
        machine.sim.fault("cuMemAddressFree", 1, 0, UNKNOWN, false).expect("a function");
        process::pool_destroy(pool).expect("it is idle");
        assert_eq!(machine.sim.objects("reservations"), 2, "they are stuck");
        process::empty_cache(0).expect("the driver works");
        assert_eq!(machine.sim.objects("reservations"), 1);
    });
}

#[test]
fn resets_pile_up_no_addresses() {
    isolated("resets_pile_up_no_addresses", &[("SIMCUDA_MEMORY", "1GiB")], |machine| {
        machine.use_device(0);
        let mut lost = Vec::new();
        for _ in 0..20 {
            lost.push(malloc(3 * PAGE, 0).expect("a new context"));
            machine.reset_device(0);
        }
        let last = malloc(PAGE, 0).expect("a new context");
        assert_eq!(machine.sim.objects("reservations"), 17, "the present one and those before it");
        assert_eq!(machine.holdings().0, 1);
        for block in lost.into_iter().rev().take(16) {
            assert_eq!(process::free(block), Err(Error::DeviceReset(0)));
        }
        process::free(last).expect("live");
    });
}

#[test]
fn waiting_that_fails_gives_the_claimed_memory_back() {
    let configuration = "memory_limit:64MiB,share:never";
    let environment = [("SIMCUDA_SCHEDULE", "lazy"), ("CUDDY_CONF", configuration)];
    isolated("waiting_that_fails_gives_the_claimed_memory_back", &environment, |machine| {
        machine.use_device(0);
        let (a, b) = (machine.held_stream(), machine.stream());
        let block = malloc_on(60 * MIB, a).expect("fits");
        machine.fill(a, block, 1, 60 * MIB);
        process::free(block).expect("live");
        machine.sim.fault("cuEventSynchronize", 1, 0, UNKNOWN, false).expect("a function");
        assert!(malloc_on(60 * MIB, b).is_err());
        assert_eq!(stats(0).largest_free, 64 * MIB - 4 * MIB);
        let again = malloc_on(60 * MIB, a).expect("it is still the stream's own");
        assert_eq!(again, block);
        process::free(again).expect("live");
        malloc_on(60 * MIB, b).expect("once waiting works");
    });
}
