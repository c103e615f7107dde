//! Counters, limits and failures, as PyTorch's tests ask for them.

use cuddy::error::Error;
use cuddy::process::{self, PoolOptions};

use crate::machine::*;
use crate::on;

#[test]
fn an_allocation_raises_what_is_allocated_and_its_free_lowers_it() {
    on("1GiB", "memory::an_allocation_raises_what_is_allocated_and_its_free_lowers_it", |_| {
        let kept = malloc(1000, 0).expect("fits");
        let before = stats(0).allocated;
        for bytes in [1, 512, 513, 4096, MIB, 10 * MIB + 1] {
            let block = malloc(bytes, 0).expect("fits");
            assert_eq!(stats(0).allocated, before + bytes.div_ceil(512) * 512);
            process::free(block).expect("live");
            assert_eq!(stats(0).allocated, before);
        }
        process::free(kept).expect("live");
        assert_eq!(stats(0).allocated, 0);
    });
}

#[test]
fn two_hundred_and_fifty_six_floats_are_1024_bytes() {
    on("1GiB", "memory::two_hundred_and_fifty_six_floats_are_1024_bytes", |_| {
        let before = stats(0);
        let block = malloc(256 * 4, 0).expect("fits");
        let during = stats(0);
        assert_eq!(during.active - before.active, 1024);
        assert_eq!(during.allocated_total - before.allocated_total, 1024);
        process::free(block).expect("live");
        let after = stats(0);
        // What was freed is what was ever allocated, without what still is.
        assert_eq!(after.allocated_total - after.allocated, 1024);
        assert_eq!(after.active_peak, 1024);
        process::reset_peak_stats(0).expect("a device");
        let rebased = stats(0);
        assert_eq!((rebased.active_peak, rebased.allocated_peak), (0, 0));
        assert_eq!(rebased.reserved_peak, rebased.reserved);
    });
}

#[test]
fn a_request_that_is_too_large_says_so_and_work_goes_on() {
    on("1GiB", "memory::a_request_that_is_too_large_says_so_and_work_goes_on", |machine| {
        let block = malloc(MIB, 0).expect("fits");
        let error = malloc(3 << 30, 0).expect_err("too large").to_string();
        assert!(error.contains("3.00 GiB (3221225472 bytes) were asked for"), "{error}");
        for beyond in [(1 << 60) + 1, u64::MAX] {
            let error = malloc(beyond, 0).expect_err("beyond all addresses").to_string();
            assert!(error.contains(&beyond.to_string()), "{error}");
        }
        machine.fill(0, block, 7, MIB);
        machine.synchronize_all();
        assert_eq!(machine.byte(block + MIB - 1), 7);
        machine.assert_clean();
    });
}

#[test]
fn what_did_not_fit_fits_when_the_first_half_is_free() {
    on("1GiB", "memory::what_did_not_fit_fits_when_the_first_half_is_free", |machine| {
        let half = 512 * MIB;
        let first = malloc(half + 2 * MIB, 0).expect("fits");
        assert!(is_out_of_memory(&malloc(half, 0)));
        machine.fill(0, first, 1, 4096);
        process::free(first).expect("live");
        let second = malloc(half, 0).expect("there is room now");
        machine.fill(0, second, 2, 4096);
        assert_eq!((stats(0).out_of_memory_count, stats(0).live_block_count), (1, 1));
        machine.assert_clean();
    });
}

#[test]
fn a_fraction_of_a_half_holds_a_half() {
    on("1GiB", "memory::a_fraction_of_a_half_holds_a_half", |_| {
        for wrong in [0.0, -0.1, 1.5, f64::NAN, f64::INFINITY] {
            let refused = process::set_memory_fraction(0, wrong);
            assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{wrong}");
        }
        assert_eq!(process::memory_limit(0), Ok(u64::MAX), "the old one is kept");
        assert!(process::set_memory_fraction(7, 0.5).is_err(), "no such device");
        process::set_memory_fraction(0, 0.5).expect("a fraction");
        let fits = malloc(GIB / 1000 * 499, 0).expect("0.499 of it");
        process::free(fits).expect("live");
        assert!(is_out_of_memory(&malloc(GIB / 2 + 1, 0)), "a byte more than a half");
        process::set_memory_fraction(0, 1.0).expect("a fraction");
        let more = malloc(GIB / 2 + MIB, 0).expect("all of it again");
        process::free(more).expect("live");
    });
}

/// A hundred blocks that another stream still uses, each the size of what is left: each is waited for
/// in its turn, and none is missed.
#[test]
fn blocks_with_pending_uses_never_make_a_request_fail() {
    on("1GiB", "memory::blocks_with_pending_uses_never_make_a_request_fail", |machine| {
        machine.sim.schedule("lazy").expect("a schedule");
        let [own, other] = machine.held_streams();
        for round in 0..100 {
            let block = malloc_on(160 * MIB, own).expect("never out of memory");
            machine.fill(own, block, round, 4096);
            machine.order(own, other);
            machine.fill(other, block, round + 1, 4096);
            process::record_stream(block, other).expect("live");
            process::free(block).expect("live");
        }
        assert_eq!(stats(0).out_of_memory_count, 0);
        assert!(stats(0).reserved <= GIB);
        machine.assert_clean();
    });
}

/// 60 of 80, then 70: the pool's own cache makes room, and nobody else's.
#[test]
fn a_pool_makes_room_out_of_its_own_cache() {
    on("80GiB", "memory::a_pool_makes_room_out_of_its_own_cache", |_| {
        process::set_memory_limit(0, 80 * GIB).expect("a limit");
        let stays = malloc(5 * GIB, 0).expect("fits");
        process::free(stays).expect("live");
        let options = PoolOptions { device: 0, limit: 0, use_on_oom: false };
        let pool = process::pool_create(options).expect("room");
        let within = |bytes| process::malloc_in(pool, bytes, 0, 0, 0, None);
        let x = within(60 * GIB).expect("fits");
        process::free(x).expect("live");
        let y = within(70 * GIB).expect("by releasing its own");
        assert_eq!(
            stats(0).reserved - process::pool_stats(pool).expect("a pool").reserved,
            5 * GIB
        );
        assert_eq!(stats(0).out_of_memory_count, 0);
        process::free(y).expect("live");
        process::pool_destroy(pool).expect("it is there");
    });
}

/// While one thread is in its pool, what another one empties is the default pool's too.
#[test]
fn emptying_while_a_thread_is_in_its_pool_goes_for_the_default_pool() {
    let test = "memory::emptying_while_a_thread_is_in_its_pool_goes_for_the_default_pool";
    on("1GiB", test, |machine| {
        let context = machine.context();
        let cached = malloc(64 * MIB, 0).expect("fits");
        process::free(cached).expect("live");
        let options = PoolOptions { device: 0, limit: 0, use_on_oom: false };
        let pool = process::pool_create(options).expect("room");
        process::pool_push(pool).expect("it is there");
        let block = malloc(MIB, 0).expect("fits");
        let freed = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                machine.set_context(context);
                process::empty_cache(0).expect("it works")
            });
            thread.join().expect("it ends")
        });
        assert!(freed >= 64 * MIB, "{freed}");
        assert_eq!(process::block_info(block).expect("live").bytes, MIB);
        process::free(block).expect("live");
        process::pool_pop(pool).expect("it was pushed");
        process::pool_destroy(pool).expect("it is there");
    });
}

/// A thousand rounds of a large block and a wait: the driver is asked for memory once.
#[test]
fn a_synchronised_loop_gets_its_memory_from_the_driver_once() {
    on("1GiB", "memory::a_synchronised_loop_gets_its_memory_from_the_driver_once", |machine| {
        let round = || {
            let block = malloc(90_000_000, 0).expect("fits");
            machine.fill(0, block, 1, 4096);
            process::free(block).expect("live");
            machine.synchronize(0);
        };
        round();
        let calls = |name| machine.sim.calls(name);
        let before = [calls("cuMemCreate"), calls("cuMemMap"), calls("cuMemUnmap")];
        (1..1000).for_each(|_| round());
        let after = [calls("cuMemCreate"), calls("cuMemMap"), calls("cuMemUnmap")];
        assert_eq!(before, after);
    });
}

/// Mapping fails at each of its calls in turn: the request fails, nothing moves, and what fits into
/// the memory that there is succeeds at once.
#[test]
fn a_failure_at_any_call_of_a_growth_changes_nothing() {
    on("1GiB", "memory::a_failure_at_any_call_of_a_growth_changes_nothing", |machine| {
        let kept = malloc(MIB, 0).expect("fits");
        for function in ["cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
            for call in 1..=25 {
                let (before, holdings) = (memory_only(stats(0)), machine.holdings());
                let fired = machine.sim.faults_fired();
                machine.sim.fault(function, call, 1, OUT_OF_MEMORY, false).expect("a function");
                let outcome = malloc(50 * MIB, 0);
                machine.sim.clear_faults();
                if machine.sim.faults_fired() == fired {
                    process::free(outcome.expect("no call failed")).expect("live");
                    process::empty_cache(0).expect("it works");
                    continue;
                }
                assert!(is_out_of_memory(&outcome), "{function} {call}: {outcome:?}");
                assert_eq!(memory_only(stats(0)), before, "{function} {call}");
                assert_eq!(machine.holdings(), holdings, "{function} {call}");
                let small = malloc(15 * MIB, 0).expect("it fits");
                machine.fill(0, small, 1, 15 * MIB);
                process::free(small).expect("live");
                process::empty_cache(0).expect("it works");
            }
        }
        process::free(kept).expect("live");
        process::empty_cache(0).expect("it works");
        assert_eq!((stats(0).reserved, machine.holdings()), (0, (0, 0, 0)));
        machine.assert_clean();
    });
}

/// What a plug-in of another allocator's interface may be asked: nothing, NULL, and a great deal.
#[test]
fn no_address_is_handed_out_while_it_is_live() {
    on("1GiB", "memory::no_address_is_handed_out_while_it_is_live", |machine| {
        let before = stats(0);
        assert_eq!((malloc(0, 0), process::free(0)), (Ok(0), Ok(())));
        assert_eq!(memory_only(before), memory_only(stats(0)));
        let stream = machine.held_stream();
        let mut random = Random(3);
        let mut live = std::collections::BTreeMap::new();
        let mut order: Vec<u64> = Vec::new();
        for _ in 0..1_000_000 {
            if order.len() < 200 && random.below(2) == 0 {
                let bytes = 1 + random.below(40_000);
                let at = malloc_on(bytes, stream).expect("fits");
                let end = at + bytes;
                let before: Option<(&u64, &u64)> = live.range(..end).next_back();
                assert!(before.is_none_or(|(_, end)| *end <= at), "{at:#x} is live");
                live.insert(at, end);
                order.push(at);
            } else if !order.is_empty() {
                let at = order.swap_remove(random.below(order.len() as u64) as usize);
                live.remove(&at);
                process::free(at).expect("live");
            }
        }
        assert_eq!(stats(0).live_block_count, live.len() as u64);
        assert!(stats(0).reserved < 64 * MIB);
        let limit = stats(0).reserved;
        process::set_memory_limit(0, limit).expect("a limit");
        assert!(is_out_of_memory(&malloc_on(2 * limit, stream)), "beyond the limit");
    });
}

/// A pool that was made to help out, and was destroyed, helps nobody; nor does its name come back.
#[test]
fn a_destroyed_pool_helps_nobody_and_its_name_is_not_used_again() {
    on("1GiB", "memory::a_destroyed_pool_helps_nobody_and_its_name_is_not_used_again", |_| {
        process::set_memory_limit(0, 20 * MIB).expect("a limit");
        let options = PoolOptions { device: 0, limit: 0, use_on_oom: true };
        let mut names = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let pool = process::pool_create(options).expect("room");
            assert!(pool > process::DEFAULT_POOL && names.insert(pool), "{pool} came back");
            process::pool_destroy(pool).expect("it is there");
        }
        let pool = process::pool_create(options).expect("room");
        let within = |bytes| process::malloc_in(pool, bytes, 0, 0, 0, None);
        let (kept, given) = (within(8 * MIB).expect("fits"), within(8 * MIB).expect("fits"));
        process::free(given).expect("live");
        let helped = malloc(8 * MIB, 0).expect("the pool helps");
        assert_eq!(helped, given);
        process::free(helped).expect("live");
        process::pool_destroy(pool).expect("it is there");
        assert!(is_out_of_memory(&malloc(14 * MIB, 0)), "the live block is in the way");
        let other = malloc(8 * MIB, 0).expect("what the pool had free went back");
        assert_ne!(other, given, "not out of the destroyed pool");
        [kept, other].into_iter().for_each(|block| process::free(block).expect("live"));
        process::empty_cache(0).expect("it works");
        assert_eq!(stats(0).reserved, 0);
    });
}
