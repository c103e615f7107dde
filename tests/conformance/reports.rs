//! What users of other allocators ran into, each as a small program.

use cuddy::process;

use crate::machine::*;
use crate::on;

/// A scratch buffer that grows a little each time, in many sizes, on a small device.
#[test]
fn a_growing_scratch_buffer_strands_none_of_its_predecessors() {
    on("1GiB", "reports::a_growing_scratch_buffer_strands_none_of_its_predecessors", |machine| {
        machine.sim.schedule("lag:50").expect("a schedule");
        let used = machine.sim.used(0);
        let grow = |sizes: &mut dyn Iterator<Item = u64>| {
            for bytes in sizes {
                let block = malloc(bytes, 0).expect("one buffer is live at a time");
                machine.fill(0, block, 1, bytes);
                process::free(block).expect("live");
                assert!(stats(0).reserved <= GIB && stats(0).allocated == 0);
            }
        };
        grow(&mut (4..200).map(|mib| mib * MIB));
        grow(&mut (0..600).map(|step| MIB + 1 + step * 512));
        assert_eq!(stats(0).out_of_memory_count, 0);
        process::empty_cache(0).expect("it works");
        assert_eq!((stats(0).reserved, machine.sim.used(0)), (0, used));
        machine.assert_clean();
    });
}

/// Cached bytes are no obstacle to a limit, at no moment is the limit passed, and a request that
/// cannot be served is told in figures.
#[test]
fn a_limit_that_only_the_cache_fills_lets_a_request_in() {
    on("4GiB", "reports::a_limit_that_only_the_cache_fills_lets_a_request_in", |machine| {
        process::set_memory_limit(0, GIB).expect("a limit");
        let a = malloc(536_870_912, 0).expect("fits");
        process::free(a).expect("live");
        assert_eq!(stats(0).allocated, 0);
        let b = malloc(805_306_368, 0).expect("the cache makes room");
        assert!(machine.sim.used_peak(0) <= GIB);
        assert_eq!((stats(0).allocated, stats(0).out_of_memory_count), (805_306_368, 0));
        let text = malloc(536_870_912, 0).expect_err("too much").to_string();
        for part in ["536870912", "1.00 GiB (1073741824 bytes)", "805306368"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        process::free(b).expect("live");
    });
}

/// After each kind of wrong free another thread allocates and frees as ever: no lock was left held.
#[test]
fn a_wrong_free_leaves_no_lock_behind() {
    on("1GiB", "reports::a_wrong_free_leaves_no_lock_behind", |machine| {
        machine.ends_within(60);
        let block = malloc(512, 0).expect("fits");
        process::free(block).expect("live");
        let before = memory_only(stats(0));
        for wrong in [block, block + 256, 0x123_4000] {
            assert!(process::free(wrong).is_err());
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let theirs = malloc(512, 0).expect("fits");
                        process::free(theirs).expect("live");
                    }
                });
            });
        }
        let now = memory_only(stats(0));
        assert_eq!((now.allocated, now.live_block_count), (0, 0));
        assert_eq!(before.reserved, now.reserved);
        let (x, y) = (malloc(512, 0).expect("fits"), malloc(512, 0).expect("fits"));
        assert!(x.abs_diff(y) >= 512);
        [x, y].into_iter().for_each(|block| process::free(block).expect("live"));
        process::empty_cache(0).expect("it works");
        assert_eq!((stats(0).reserved, stats(0).cached), (0, 0));
    });
}

/// Emptied caches leave counters at 0, so no limit bites on what is gone; and what others use of the
/// device is told apart.
#[test]
fn after_the_cache_is_emptied_no_counter_and_no_limit_remembers_it() {
    let test = "reports::after_the_cache_is_emptied_no_counter_and_no_limit_remembers_it";
    on("1GiB", test, |machine| {
        let used = machine.sim.used(0);
        let a = malloc(400, 0).expect("fits");
        assert!(stats(0).allocated >= 400 && stats(0).reserved >= stats(0).allocated);
        process::free(a).expect("live");
        assert_eq!(stats(0).allocated, 0);
        process::empty_cache(0).expect("it works");
        let now = stats(0);
        assert_eq!((now.reserved, now.active, now.cached), (0, 0, 0));
        assert_eq!(machine.sim.used(0), used);
        process::set_memory_limit(0, 2 * MIB).expect("a limit");
        for _ in 0..1000 {
            let a = malloc(400, 0).expect("the limit holds one page");
            process::free(a).expect("live");
            assert_eq!(process::empty_cache(0), Ok(2 * MIB), "how much it gave back");
        }
        process::set_memory_limit(0, 0).expect("no limit");
        machine.sim.others_use(0, 717 * MIB).expect("a device");
        let block = malloc(64 * MIB, 0).expect("fits");
        process::free(block).expect("live");
        process::empty_cache(0).expect("it works");
        let error = malloc(900 * MIB, 0).expect_err("others have it").to_string();
        assert!(error.contains("717.0 MiB (751828992 bytes) are used outside Cuddy"), "{error}");
    });
}

/// Pieces of 256 MiB, a kept block of 30 MiB beside them: peaks begin anew at what is live.
#[test]
fn peaks_begin_anew_at_what_is_live() {
    on("2GiB", "reports::peaks_begin_anew_at_what_is_live", |_| {
        let peak = |from: u64| (stats(0).allocated - from, stats(0).allocated_peak - from);
        let reset = || process::reset_peak_stats(0).expect("a device");
        let keep = malloc(30 * MIB, 0).expect("fits");
        reset();
        assert_eq!(peak(0), (30 * MIB, 30 * MIB));
        let from = stats(0).allocated;
        let piece = || malloc(256 * MIB, 0).expect("fits");
        let z = [piece(), piece(), piece(), piece()];
        z.into_iter().for_each(|block| process::free(block).expect("live"));
        assert_eq!(peak(from), (0, 1024 * MIB));
        reset();
        let (c1, c2) = (piece(), piece());
        process::free(c1).expect("live");
        assert_eq!(peak(from), (256 * MIB, 512 * MIB));
        process::free(c2).expect("live");
        reset();
        let (c1, c2) = (piece(), piece());
        process::free(c1).expect("live");
        process::free(c2).expect("live");
        assert_eq!(peak(from), (0, 512 * MIB));
        reset();
        process::free(keep).expect("live");
        assert_eq!(peak(0), (0, 30 * MIB));
        assert_eq!(stats(0).allocated_total, (30 + 8 * 256) * MIB);
    });
}

/// A cap made as n / total of the device holds n bytes, and no page more.
#[test]
fn a_fraction_made_of_a_size_holds_that_size() {
    for (total, size) in [(44, 30), (46, 26), (52, 30), (78, 62), (81_158, 102)] {
        on("88GiB", "reports::a_fraction_made_of_a_size_holds_that_size", |machine| {
            let (total, size) = (total * MIB, size * MIB);
            machine.sim.total_memory(0, total).expect("a device");
            process::set_memory_fraction(0, size as f64 / total as f64).expect("a fraction");
            let block = malloc(size, 0).expect("exactly what the cap holds");
            let error = malloc(2 * MIB, 0).expect_err("a page more").to_string();
            assert!(error.contains("limit"), "{error}");
            assert!(machine.sim.used_peak(0) <= size);
            process::free(block).expect("live");
            assert!(process::set_memory_fraction(0, -0.1).is_err());
            assert_eq!(process::memory_limit(0), Ok(size), "the old cap is kept");
        });
    }
}

/// A request that succeeds at the second try leaves no trace but a counter; one that fails, one.
#[test]
fn a_recovered_request_leaves_no_error_behind() {
    on("256MiB", "reports::a_recovered_request_leaves_no_error_behind", |machine| {
        let a = malloc(100 * MIB, 0).expect("fits");
        let stays = malloc(MIB, 0).expect("fits");
        let b = malloc(100 * MIB, 0).expect("fits");
        [a, b].into_iter().for_each(|block| process::free(block).expect("live"));
        let c = malloc(220 * MIB, 0).expect("by taking pages back");
        assert_eq!((stats(0).retry_count, stats(0).out_of_memory_count), (1, 0));
        machine.fill(0, c, 1, 220 * MIB);
        assert!(is_out_of_memory(&malloc(400 * MIB, 0)));
        assert_eq!(stats(0).out_of_memory_count, 1);
        // Work goes on: nothing of the failure is left in the driver.
        machine.fill(0, stays, 2, MIB);
        machine.synchronize_all();
        assert_eq!(machine.byte(stays), 2);
        machine.assert_clean();
    });
}

/// As many holes as there ever are: whatever is asked for next is served without the driver.
#[test]
fn many_separated_holes_are_found_without_the_driver() {
    on("4GiB", "reports::many_separated_holes_are_found_without_the_driver", |machine| {
        let stream = machine.held_stream();
        let blocks: Vec<u64> =
            (0..2 * 65_536).map(|_| malloc_on(1024, stream).expect("fits")).collect();
        let (keep, give): (Vec<_>, Vec<_>) =
            blocks.iter().enumerate().partition(|(at, _)| at % 2 == 0);
        give.iter().for_each(|(_, block)| process::free(**block).expect("live"));
        let calls = machine.sim.calls_total();
        let again: Vec<u64> =
            (0..65_536).map(|_| malloc_on(1024, stream).expect("a hole")).collect();
        assert_eq!(machine.sim.calls_total(), calls, "no driver call");
        let kept = keep.into_iter().map(|(_, block)| *block);
        kept.chain(again).for_each(|block| process::free(block).expect("live"));
        assert_eq!(stats(0).allocated, 0);
    });
}
