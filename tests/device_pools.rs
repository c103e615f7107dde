//! Private pools: isolated, limited, helpful when told, and gone with their last block.

mod machine;

use cuddy::error::Error;
use cuddy::options::Sharing;
use cuddy::process::{self, CURRENT_POOL, DEFAULT_POOL, PoolOptions};
use machine::*;

const SCHEDULES: [&str; 5] = ["eager", "lazy", "lag:100", "random:1", "random:7"];

fn under_every_schedule(test: &str, more: &[(&str, &str)], body: impl Fn(&Machine)) {
    let device = [("SIMCUDA_MEMORY", "1GiB"), ("SIMCUDA_DEVICES", "2")];
    under(&SCHEDULES, test, &[&device, more].concat(), |machine| {
        body(machine);
        machine.assert_clean();
    });
}

fn pool(limit: u64, use_on_oom: bool) -> u64 {
    process::pool_create(PoolOptions { device: 0, limit, use_on_oom }).expect("room for a pool")
}

fn malloc_in(pool: u64, bytes: u64, stream: usize) -> Result<u64, Error> {
    process::malloc_in(pool, bytes, 0, 0, stream, None)
}

/// Uses a whole block on a stream.
fn work(machine: &Machine, stream: usize, block: u64, bytes: u64) {
    machine.fill(stream, block, 7, bytes);
}

#[test]
fn what_is_freed_in_a_pool_serves_that_pool_alone() {
    let name = "what_is_freed_in_a_pool_serves_that_pool_alone";
    under_every_schedule(name, &[], |machine| {
        let (a, b) = (pool(0, false), pool(0, false));
        let block = malloc_in(a, 4 * MIB, 0).expect("fits");
        work(machine, 0, block, 4 * MIB);
        process::free(block).expect("live");
        let in_b = malloc_in(b, 4 * MIB, 0).expect("fits");
        let in_default = malloc_in(DEFAULT_POOL, 4 * MIB, 0).expect("fits");
        work(machine, 0, in_b, 4 * MIB);
        work(machine, 0, in_default, 4 * MIB);
        assert!(in_b != block && in_default != block);
        assert_eq!(malloc_in(a, 4 * MIB, 0), Ok(block), "its own pool has it still");
        let (own, all) = (process::pool_stats(a).expect("a pool"), stats(0));
        assert_eq!((own.allocated, own.reserved, own.malloc_count), (4 * MIB, 4 * MIB, 2));
        assert_eq!((own.hit_count, own.miss_count), (1, 1));
        assert_eq!((all.allocated, all.reserved), (12 * MIB, 12 * MIB));
        for block in [block, in_b, in_default] {
            process::free(block).expect("live");
        }
        assert_eq!(process::pool_stats(a).expect("a pool").active, 0);
        assert_eq!(process::pool_empty_cache(a), Ok(4 * MIB));
        assert_eq!(
            (process::pool_stats(a).expect("a pool").reserved, stats(0).reserved),
            (0, 8 * MIB)
        );
        assert_eq!(process::empty_cache(0), Ok(8 * MIB), "all pools of the device");
        assert_eq!(machine.holdings(), (0, 0, 0));
    });
}

#[test]
fn a_pushed_pool_serves_its_thread_alone_and_scopes_nest() {
    let name = "a_pushed_pool_serves_its_thread_alone_and_scopes_nest";
    under_every_schedule(name, &[], |machine| {
        let (outer, inner) = (pool(0, false), pool(0, false));
        let held = |pool| process::pool_stats(pool).expect("a pool").live_block_count;
        process::pool_push(outer).expect("a pool");
        let first = malloc_on(MIB, 0).expect("fits");
        process::pool_push(inner).expect("a pool");
        let second = malloc_on(MIB, 0).expect("fits");
        process::pool_push(DEFAULT_POOL).expect("always");
        let third = malloc_on(MIB, 0).expect("fits");
        assert_eq!((held(outer), held(inner), stats(0).live_block_count), (1, 1, 3));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                machine.use_device(0);
                let theirs = malloc_on(MIB, 0).expect("fits");
                assert_eq!((held(outer), held(inner)), (1, 1), "another thread's is the default");
                process::free(theirs).expect("live");
                assert!(matches!(process::pool_pop(inner), Err(Error::InvalidPool(_))));
                // A thread may free what another pushed a pool for.
                process::free(second).expect("live");
            });
        });
        assert!(matches!(process::pool_pop(outer), Err(Error::InvalidPool(_))), "not the last");
        process::pool_pop(DEFAULT_POOL).expect("the last");
        assert_eq!(malloc_on(MIB, 0), Ok(second), "free in the inner pool");
        process::pool_pop(inner).expect("the last");
        let fourth = malloc_on(MIB, 0).expect("fits");
        assert_eq!((held(outer), held(inner)), (2, 1));
        process::pool_pop(outer).expect("the last");
        assert!(matches!(process::pool_pop(outer), Err(Error::InvalidPool(_))), "none is left");
        for block in [first, second, third, fourth] {
            work(machine, 0, block, MIB);
            process::free(block).expect("live");
        }
        assert_eq!((held(outer), held(inner)), (0, 0));
    });
}

#[test]
fn many_threads_each_in_a_pool_of_its_own() {
    under_every_schedule("many_threads_each_in_a_pool_of_its_own", &[], |machine| {
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    machine.use_device(0);
                    let stream = machine.stream();
                    for round in 0..6 {
                        let mine = pool(0, thread % 2 == 0);
                        process::pool_push(mine).expect("a pool");
                        let blocks: Vec<u64> = (1..20)
                            .map(|n| malloc_on(n * 30_000 + thread, stream).expect("fits"))
                            .collect();
                        process::pool_pop(mine).expect("the last");
                        let count = process::pool_stats(mine).expect("a pool").live_block_count;
                        assert_eq!(count, 19);
                        if round % 2 == 0 {
                            process::pool_destroy(mine).expect("a pool");
                        }
                        for (n, &block) in (1..20).zip(&blocks) {
                            work(machine, stream, block, n * 30_000 + thread);
                            process::free(block).expect("live");
                        }
                        if round % 2 == 1 {
                            process::pool_destroy(mine).expect("a pool");
                        }
                    }
                    machine.synchronize(stream);
                });
            }
        });
        assert_eq!((stats(0).allocated, stats(0).active), (0, 0));
        process::empty_cache(0).expect("works");
        assert_eq!(machine.holdings(), (0, 0, 0));
    });
}

#[test]
fn a_destroyed_pool_ends_with_its_last_block() {
    under_every_schedule("a_destroyed_pool_ends_with_its_last_block", &[], |machine| {
        let own = pool(0, false);
        let (a, b) =
            (malloc_in(own, 3 * MIB, 0).expect("fits"), malloc_in(own, MIB, 0).expect("fits"));
        process::pool_push(own).expect("a pool");
        process::pool_destroy(own).expect("a pool");
        for refused in [
            malloc_in(own, 512, 0).map(|_| ()),
            malloc_on(512, 0).map(|_| ()),
            process::pool_destroy(own),
            process::pool_push(own),
            process::pool_stats(own).map(|_| ()),
            process::pool_trim(own, 0).map(|_| ()),
            process::pool_set_limit(own, MIB),
        ] {
            let Err(Error::InvalidPool(why)) = refused else { panic!("{refused:?}") };
            assert!(why.contains("was destroyed"), "{why}");
        }
        process::pool_pop(own).expect("popped all the same");
        work(machine, 0, a, 3 * MIB);
        work(machine, 0, b, MIB);
        assert_eq!(process::block_info(a).expect("still live").bytes, 3 * MIB);
        process::free(a).expect("live");
        assert_eq!(stats(0).allocated, MIB);
        process::free(b).expect("live");
        machine.synchronize(0);
        // Anything that needs the driver sees that the work is over; this keeps what others cache.
        process::trim(0, GIB).expect("works");
        assert_eq!(stats(0).reserved, 0);
        assert_eq!(machine.holdings(), (0, 0, 0));
        assert!(matches!(process::free(b), Err(Error::ForeignPointer(_) | Error::DoubleFree(_))));
        // The number is used again, the name is not.
        let next = pool(0, false);
        assert_ne!(next, own);
        assert!(matches!(malloc_in(own, 512, 0), Err(Error::InvalidPool(_))));
    });
}

#[test]
fn memory_of_a_destroyed_pool_waits_for_its_work() {
    let environment = [("SIMCUDA_MEMORY", "64MiB"), ("SIMCUDA_CHECKER", "log")];
    isolated("memory_of_a_destroyed_pool_waits_for_its_work", &environment, |machine| {
        machine.use_device(0);
        let stream = machine.held_stream();
        let own = pool(0, false);
        let block = malloc_in(own, 40 * MIB, stream).expect("fits");
        machine.gate(stream, 1);
        work(machine, stream, block, 40 * MIB);
        process::free(block).expect("live");
        process::pool_destroy(own).expect("a pool");
        assert_eq!(stats(0).reserved, 40 * MIB, "the stream is still at work");
        let other = malloc_on(20 * MIB, 0).expect("there is room beside it");
        process::free(other).expect("live");
        machine.sim.gate_open(1);
        let large = malloc_on(60 * MIB, 0).expect("the pool's memory is nobody's");
        work(machine, 0, large, 60 * MIB);
        process::free(large).expect("live");
        process::empty_cache(0).expect("works");
        assert_eq!(machine.holdings(), (0, 0, 0));
        machine.assert_clean();
    });
}

#[test]
fn a_pools_limit_is_its_own() {
    for backing in ["auto", "segments"] {
        let conf = format!("backing:{backing},segment_large:2MiB");
        let more = [("CUDDY_CONF", conf.as_str())];
        under_every_schedule("a_pools_limit_is_its_own", &more, |machine| {
            let own = pool(8 * MIB, false);
            let block = malloc_in(own, 6 * MIB, 0).expect("within its limit");
            let refused = malloc_in(own, 4 * MIB, 0).expect_err("beyond it");
            let Error::OutOfMemory(why) = &refused else { panic!("{refused}") };
            assert!(why.contains("pool"), "the limit is the pool's: {why}");
            let beside = malloc_in(DEFAULT_POOL, 100 * MIB, 0).expect("the default has none");
            work(machine, 0, block, 6 * MIB);
            process::free(block).expect("live");
            // What is cached in the pool is taken back for the larger block, nobody else's.
            process::free(beside).expect("live");
            let whole = malloc_in(own, 8 * MIB, 0).expect("by taking its own back");
            work(machine, 0, whole, 8 * MIB);
            let own_stats = process::pool_stats(own).expect("a pool");
            assert!(own_stats.reserved <= 8 * MIB && own_stats.reserved_peak <= 8 * MIB);
            assert_eq!(own_stats.out_of_memory_count, 1);
            assert_eq!(stats(0).cached, 100 * MIB, "nothing was taken from others");
            process::pool_set_limit(own, 2 * MIB).expect("live blocks stay");
            assert!(malloc_in(own, 512, 0).is_err());
            process::free(whole).expect("live");
            process::pool_set_limit(own, 0).expect("no limit");
            let more = malloc_in(own, 20 * MIB, 0).expect("no limit any more");
            process::free(more).expect("live");
            process::pool_set_limit(own, 4 * MIB).expect("gives back");
            assert!(process::pool_stats(own).expect("a pool").reserved <= 4 * MIB);
        });
    }
}

#[test]
fn the_default_pool_is_helped_out_only_by_pools_made_for_it() {
    for backing in ["auto", "segments"] {
        let conf = format!("backing:{backing},segment_large:2MiB,memory_limit:20MiB");
        let more = [("CUDDY_CONF", conf.as_str())];
        let name = "the_default_pool_is_helped_out_only_by_pools_made_for_it";
        under_every_schedule(name, &more, |machine| {
            let (closed, helping) = (pool(0, false), pool(0, true));
            let kept = malloc_in(closed, 8 * MIB, 0).expect("fits");
            let lent = malloc_in(helping, 8 * MIB, 0).expect("fits");
            work(machine, 0, kept, 8 * MIB);
            work(machine, 0, lent, 8 * MIB);
            process::free(kept).expect("live");
            assert!(matches!(malloc_on(6 * MIB, 0), Err(Error::OutOfMemory(_))), "isolated");
            process::free(lent).expect("live");
            let block = malloc_on(8 * MIB, 0).expect("the helping pool's");
            work(machine, 0, block, 8 * MIB);
            assert_eq!(process::pool_stats(closed).expect("a pool").reserved, 8 * MIB, "untouched");
            assert!(matches!(malloc_on(6 * MIB, 0), Err(Error::OutOfMemory(_))), "isolated still");
            process::free(block).expect("live, whatever pool it is of");
            assert_eq!(malloc_in(closed, 8 * MIB, 0), Ok(kept), "its own memory, where it was");
            process::free(kept).expect("live");
        });
    }
}

#[test]
fn a_private_pool_takes_from_the_default_ones_cache_and_its_own_first() {
    let more = [("CUDDY_CONF", "memory_limit:80MiB")];
    let name = "a_private_pool_takes_from_the_default_ones_cache_and_its_own_first";
    under_every_schedule(name, &more, |machine| {
        let own = pool(0, false);
        let first = malloc_in(own, 60 * MIB, 0).expect("fits");
        work(machine, 0, first, 60 * MIB);
        let cached = malloc_on(8 * MIB, 0).expect("fits");
        work(machine, 0, cached, 8 * MIB);
        process::free(cached).expect("live");
        process::free(first).expect("live");
        let larger = malloc_in(own, 70 * MIB, 0).expect("by releasing its own 60");
        assert_eq!(malloc_on(8 * MIB, 0), Ok(cached), "the default pool's was not touched");
        process::free(cached).expect("live");
        process::free(larger).expect("live");
        let all = malloc_in(own, 80 * MIB, 0).expect("the default pool's cache is taken too");
        work(machine, 0, all, 80 * MIB);
        process::free(all).expect("live");
    });
}

#[test]
fn pools_are_not_captures() {
    under_every_schedule("pools_are_not_captures", &[], |machine| {
        let (s1, s2) = (machine.stream(), machine.stream());
        let own = pool(0, false);
        let block = malloc_in(own, MIB, s1).expect("fits");
        work(machine, s1, block, MIB);
        machine.order(s1, s2);
        work(machine, s2, block, MIB);
        process::record_stream(block, s2).expect("live");
        process::free(block).expect("live");
        assert_eq!(process::pool_stats(own).expect("a pool").limbo_block_count, 1);
        machine.synchronize_all();
        // A miss looks at limbo; the block is free again, in its own pool.
        let other = malloc_on(64 * MIB, s1).expect("fits");
        assert_eq!(malloc_in(own, MIB, s1), Ok(block));
        process::free(block).expect("live");
        process::free(other).expect("live");
        assert_eq!(process::pool_stats(own).expect("a pool").limbo_block_count, 0);
    });
}

#[test]
fn names_that_name_no_pool() {
    let environment = [("SIMCUDA_MEMORY", "64MiB"), ("SIMCUDA_DEVICES", "2")];
    isolated("names_that_name_no_pool", &environment, |machine| {
        assert!(matches!(process::pool_destroy(77), Err(Error::InvalidPool(_))));
        machine.use_device(0);
        let own = pool(0, false);
        for none in [CURRENT_POOL, DEFAULT_POOL, 2, u64::MAX, own + 1, own + (1 << 32)] {
            assert!(matches!(process::pool_stats(none), Err(Error::InvalidPool(_))), "{none:#x}");
            assert!(matches!(process::pool_destroy(none), Err(Error::InvalidPool(_))));
        }
        assert!(matches!(malloc_in(own + 1, 512, 0), Err(Error::InvalidPool(_))));
        assert_eq!(
            process::malloc_in(own, 512, 0, 1, 0, None),
            Err(Error::WrongDevice { named: 1, actual: 0 })
        );
        // A pool pushed for one device means nothing to another.
        process::pool_push(own).expect("a pool");
        let there = process::malloc(512, 0, 1, 0).expect("fits");
        assert_eq!((stats(1).live_block_count, stats(0).live_block_count), (1, 0));
        process::free(there).expect("live");
        for _ in 1..64 {
            process::pool_push(own).expect("a pool");
        }
        let Err(Error::InvalidPool(why)) = process::pool_push(own) else { panic!("65 deep") };
        assert!(why.contains("pop one for each"), "{why}");
    });
}

#[test]
fn a_reset_device_keeps_its_pools_and_loses_their_blocks() {
    let environment = [("SIMCUDA_MEMORY", "64MiB"), ("SIMCUDA_CHECKER", "log")];
    isolated("a_reset_device_keeps_its_pools_and_loses_their_blocks", &environment, |machine| {
        machine.use_device(0);
        let (own, ending) = (pool(0, false), pool(0, false));
        let lost = malloc_in(own, MIB, 0).expect("fits");
        let also = malloc_in(ending, MIB, 0).expect("fits");
        process::pool_destroy(ending).expect("a pool");
        machine.reset_device(0);
        let fresh = malloc_in(own, 4 * MIB, 0).expect("it starts anew");
        assert_eq!(process::free(lost), Err(Error::DeviceReset(0)));
        assert!(process::free(also).is_err());
        assert_eq!(process::pool_stats(own).expect("a pool").allocated, 4 * MIB);
        process::free(fresh).expect("live");
    });
}

/// One pool keeps its streams apart, beside others that do not.
#[test]
fn a_pools_way_of_sharing_is_its_own() {
    let name = "a_pools_way_of_sharing_is_its_own";
    under_every_schedule(name, &[], |machine| {
        let [own, other] = machine.held_streams();
        let crossed = |share| {
            // Within its limit the pool has this block alone.
            let pool = pool(4 * MIB, false);
            process::pool_set_share(pool, share).expect("a pool");
            let block = malloc_in(pool, 4 * MIB, own).expect("fits");
            work(machine, own, block, 4 * MIB);
            process::free(block).expect("live");
            let before = stats(0);
            let again = malloc_in(pool, 4 * MIB, other).expect("one way or another");
            work(machine, other, again, 4 * MIB);
            let after = stats(0);
            process::free(again).expect("live");
            process::pool_destroy(pool).expect("a pool");
            (
                after.crossing_count - before.crossing_count,
                after.harvest_count - before.harvest_count,
                after.stream_wait_count - before.stream_wait_count,
            )
        };
        assert_eq!(crossed(Some(Sharing::Never)), (0, 1, 0));
        let (crossings, harvests, waits) = crossed(Some(Sharing::Passed));
        assert_eq!((crossings, harvests, waits), (1, 0, 0));
        assert_eq!(crossed(Some(Sharing::Wait)).0, 1);
        assert_eq!(crossed(None).0, 1);
    });
}
