//! Giving back at the right moment: what was not needed for a time goes back without a thread, nobody
//! waits for it, and what is pinned stays where it is.

mod machine;

use std::time::Duration;

use cuddy::error::{Error, cuddy_status};
use cuddy::process;
use machine::*;

const PAGE: u64 = 2 * MIB;

const SCHEDULES: [&str; 3] = ["eager", "lazy", "random:5"];

fn scenario(test: &str, configuration: &str, body: impl Fn(&Machine)) {
    on_a_gibibyte(&SCHEDULES, test, configuration, body);
}

/// Where a fence has passed when it is recorded, one call is enough.
fn eager(test: &str, configuration: &str, body: impl Fn(&Machine)) {
    on_a_gibibyte(&SCHEDULES[..1], test, configuration, body);
}

fn on_a_gibibyte(schedules: &[&str], test: &str, configuration: &str, body: impl Fn(&Machine)) {
    let environment = [("SIMCUDA_MEMORY", "1GiB"), ("CUDDY_CONF", configuration)];
    under(schedules, test, &environment, |machine| {
        body(machine);
        machine.synchronize_all();
        machine.assert_clean();
    });
}

/// Longer than the windows of these scenarios, whatever else the machine does.
fn a_window() {
    std::thread::sleep(Duration::from_millis(3));
}

fn tick() -> u64 {
    process::tick(0).expect("the driver works")
}

/// A block that is used and freed.
fn use_and_free(machine: &Machine, stream: usize, bytes: u64) -> u64 {
    let block = malloc_on(bytes, stream).expect("fits");
    machine.fill(stream, block, 1, bytes);
    process::free(block).expect("live");
    block
}

#[test]
fn what_was_not_needed_for_a_window_goes_back() {
    eager("what_was_not_needed_for_a_window_goes_back", "decay_ms:1", |machine| {
        use_and_free(machine, 0, 32 * PAGE);
        machine.synchronize_all();
        assert_eq!(stats(0).reserved, 32 * PAGE);
        // The window in which it was needed ends, then one in which four pages were.
        a_window();
        tick();
        assert_eq!(stats(0).reserved, 32 * PAGE);
        for _ in 0..3 {
            use_and_free(machine, 0, 4 * PAGE);
        }
        machine.synchronize_all();
        a_window();
        assert_eq!(tick(), 28 * PAGE);
        assert_eq!((stats(0).reserved, machine.sim.used(0)), (4 * PAGE, 4 * PAGE));
        assert_eq!(stats(0).active_peak, 32 * PAGE, "callers see the peak of all windows");
        // A window in which nothing was needed.
        a_window();
        tick();
        a_window();
        tick();
        assert_eq!((stats(0).reserved, machine.holdings()), (0, (0, 0, 0)));
        process::reset_peak_stats(0).expect("a device");
        assert_eq!(stats(0).active_peak, 0);
    });
}

#[test]
fn what_is_needed_stays_and_the_rest_goes() {
    scenario("what_is_needed_stays_and_the_rest_goes", "decay_ms:1", |machine| {
        let kept = malloc(4 * PAGE, 0).expect("fits");
        machine.fill(0, kept, 3, 4 * PAGE);
        use_and_free(machine, 0, 28 * PAGE);
        for _ in 0..4 {
            machine.synchronize_all();
            a_window();
            tick();
        }
        assert_eq!((stats(0).reserved, machine.sim.used(0)), (4 * PAGE, 4 * PAGE));
        assert_eq!(machine.byte(kept + 4 * PAGE - 1), 3);
        process::free(kept).expect("live");
    });
}

#[test]
fn a_miss_lets_memory_decay_and_a_hit_does_not_look() {
    eager("a_miss_lets_memory_decay_and_a_hit_does_not_look", "decay_ms:1", |machine| {
        use_and_free(machine, 0, 16 * PAGE);
        let small = malloc(512, 0).expect("fits");
        machine.fill(0, small, 1, 512);
        machine.synchronize_all();
        // A window begins in which little is needed; it is over, but nobody has looked.
        a_window();
        tick();
        a_window();
        let calls = stats(0).driver_call_count;
        for _ in 0..100 {
            let hit = malloc(512, 0).expect("a hit");
            process::free(hit).expect("live");
        }
        assert_eq!(stats(0).driver_call_count, calls);
        assert_eq!(stats(0).reserved, 16 * PAGE);
        // A stream of its own has nothing cached, and its miss ends the window. What it takes of
        // the free memory is needed, the rest is not.
        let stream = machine.held_stream();
        let miss = malloc_on(20 * PAGE, stream).expect("fits");
        assert!(stats(0).reserved < 36 * PAGE, "{}", stats(0).reserved);
        machine.fill(stream, miss, 1, 20 * PAGE);
    });
}

#[test]
fn nothing_decays_before_its_time_or_while_little_is_wasted() {
    let test = "nothing_decays_before_its_time_or_while_little_is_wasted";
    for configuration in ["", "decay_ms:3600000", "decay_ms:1,decay_waste:60"] {
        scenario(test, configuration, |machine| {
            // Half of it is needed.
            let kept = malloc(16 * PAGE, 0).expect("fits");
            use_and_free(machine, 0, 16 * PAGE);
            machine.synchronize_all();
            for _ in 0..4 {
                a_window();
                assert_eq!(tick(), 0);
            }
            assert_eq!(stats(0).reserved, 32 * PAGE);
            process::free(kept).expect("live");
        });
    }
}

#[test]
fn decay_waits_for_nobody() {
    scenario("decay_waits_for_nobody", "decay_ms:1", |machine| {
        let (borrowed, held) = (machine.stream(), machine.stream());
        process::stream_open(0, held).expect("a stream");
        for stream in [borrowed, held] {
            let block = malloc_on(8 * PAGE, stream).expect("fits");
            machine.gate(stream, 1);
            machine.fill(stream, block, 1, 8 * PAGE);
            process::free(block).expect("live");
        }
        for _ in 0..4 {
            a_window();
            assert_eq!(tick(), 0, "it is in use");
        }
        machine.sim.gate_open(1);
        machine.synchronize_all();
        for _ in 0..2 {
            a_window();
            tick();
        }
        assert_eq!(stats(0).reserved, 0);
    });
}

#[test]
fn a_tick_wakes_no_device() {
    isolated("a_tick_wakes_no_device", &[("SIMCUDA_DEVICES", "2")], |machine| {
        assert_eq!(process::tick(process::ALL_DEVICES), Ok(0));
        assert_eq!(process::tick(1), Ok(0));
        assert_eq!((machine.sim.contexts_created(0), machine.sim.contexts_created(1)), (0, 0));
    });
}

/// What lies where it lay before: the pages are still there.
fn is_mapped(machine: &Machine, at: u64) -> bool {
    machine.sim.peek(at, &mut [0]).is_ok()
}

#[test]
fn pinned_pages_stay_where_they_are() {
    scenario("pinned_pages_stay_where_they_are", "memory_limit:32MiB,decay_ms:1", |machine| {
        let block = malloc(16 * PAGE, 0).expect("all that there is");
        machine.fill(0, block, 7, 16 * PAGE);
        process::pin(block + 5 * PAGE + 512, PAGE).expect("live");
        process::free(block).expect("live");
        machine.synchronize_all();
        // Two pages are touched.
        process::empty_cache(0).expect("the driver works");
        process::empty_cache(0).expect("the driver works");
        assert_eq!(stats(0).reserved, 2 * PAGE);
        assert!(is_mapped(machine, block + 5 * PAGE) && is_mapped(machine, block + 7 * PAGE - 1));
        assert!(!is_mapped(machine, block + 7 * PAGE) && !is_mapped(machine, block + 5 * PAGE - 1));
        for _ in 0..3 {
            a_window();
            tick();
        }
        assert_eq!(stats(0).reserved, 2 * PAGE, "nor does it decay");
        // It serves as any other memory, in its place.
        let again = malloc(2 * PAGE, 0).expect("it is cached");
        assert_eq!(again, block + 5 * PAGE);
        process::free(again).expect("live");
        // A miss that needs all of it harvests around it, and fails rather than take it.
        let stream = machine.held_stream();
        let most = malloc_on(14 * PAGE, stream).expect("beside it");
        assert!(malloc_on(3 * PAGE, stream).is_err());
        assert!(is_mapped(machine, block + 5 * PAGE));
        process::free(most).expect("live");
        process::unpin(block + 5 * PAGE + 512, PAGE).expect("it is pinned");
        process::empty_cache(0).expect("the driver works");
        assert_eq!(machine.holdings(), (0, 0, 0));
    });
}

#[test]
fn pins_are_counted_and_may_overlap() {
    scenario("pins_are_counted_and_may_overlap", "", |machine| {
        let block = malloc(4 * PAGE, 0).expect("fits");
        machine.fill(0, block, 7, 4 * PAGE);
        process::pin(block, 0).expect("live");
        process::pin(block, 4 * PAGE).expect("the same range");
        process::pin(block, PAGE).expect("a part of it");
        process::free(block).expect("live");
        let reserved = || {
            process::empty_cache(0).expect("the driver works");
            stats(0).reserved
        };
        assert_eq!(reserved(), 4 * PAGE);
        process::unpin(block, 4 * PAGE).expect("it is pinned");
        assert_eq!(reserved(), 4 * PAGE, "pinned twice");
        process::unpin(block, 4 * PAGE).expect("it is pinned");
        assert_eq!(reserved(), PAGE);
        process::unpin(block, 0).expect("it is pinned");
        assert_eq!(reserved(), 0);
    });
}

#[test]
fn pinned_segments_stay() {
    let test = "pinned_segments_stay";
    scenario(test, "backing:segments", |machine| {
        let block = malloc(16 * PAGE, 0).expect("fits");
        let other = malloc(16 * PAGE, 0).expect("fits");
        machine.fill(0, block, 7, 16 * PAGE);
        process::pin(block + 512, 1).expect("live");
        process::free(block).expect("live");
        process::free(other).expect("live");
        process::empty_cache(0).expect("the driver works");
        assert_eq!((stats(0).reserved, machine.holdings().2), (16 * PAGE, 1));
        process::unpin(block + 512, 1).expect("it is pinned");
        process::empty_cache(0).expect("the driver works");
        assert_eq!(machine.holdings(), (0, 0, 0));
    });
}

#[test]
fn misuse_of_pins_is_told_and_changes_nothing() {
    isolated("misuse_of_pins_is_told_and_changes_nothing", &[], |_| {
        let status = |outcome: Result<(), Error>| cuddy_status::from(&outcome.expect_err("misuse"));
        let invalid = cuddy_status::CUDDY_ERROR_INVALID_ARGUMENT;
        let block = malloc(PAGE, 0).expect("fits");
        let before = memory_only(stats(0));
        assert_eq!(status(process::pin(0x1234, 1)), cuddy_status::CUDDY_ERROR_FOREIGN_POINTER);
        assert_eq!(status(process::pin(block, 64 * PAGE)), invalid);
        assert_eq!(status(process::pin(block, u64::MAX)), invalid);
        assert_eq!(status(process::unpin(block, PAGE)), invalid);
        process::pin(block, PAGE).expect("live");
        assert_eq!(status(process::unpin(block, 512)), invalid);
        process::unpin(block, PAGE).expect("it is pinned");
        assert_eq!(status(process::unpin(block, 0)), invalid);
        assert_eq!(memory_only(stats(0)), before);
        process::free(block).expect("live");
        assert!(process::pin(block, 0).is_err(), "it is free");
        process::empty_cache(0).expect("the driver works");
        assert_eq!(stats(0).reserved, 0);
    });
}
