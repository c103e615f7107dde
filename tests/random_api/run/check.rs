//! What has to hold between steps, and when all is over.

use super::Run;
use super::blocks::TAG;
use crate::api;
use crate::program::{Kind, Op};

impl Run {
    /// The counters against the model, and the limits against the driver.
    pub(super) fn check(&mut self) {
        let sim = self.world.machine.sim;
        let stats = api::stats();
        let live = self.live.values();
        let (mut allocated, mut requested) = (0, 0);
        live.for_each(|block| {
            allocated += block.rounded();
            requested += block.bytes;
        });
        assert_eq!(stats.allocated, allocated, "allocated");
        assert_eq!(stats.requested, requested, "requested");
        assert_eq!(stats.live_block_count, self.live.len() as u64, "live blocks");
        assert_eq!(stats.malloc_count, self.counts.mallocs, "allocations");
        assert_eq!(stats.free_count, self.counts.frees, "frees");
        assert_eq!(stats.out_of_memory_count, self.counts.refused, "refused");
        assert_eq!(stats.malloc_count, stats.hit_count + stats.miss_count);
        assert!(stats.allocated <= stats.active, "{stats:?}");
        assert!(stats.active <= stats.reserved, "{stats:?}");
        assert!(stats.reserved <= stats.reserved_peak, "{stats:?}");
        assert!(stats.allocated <= stats.allocated_peak && stats.active <= stats.active_peak);
        assert_eq!(stats.cached, stats.reserved - stats.active);
        assert_eq!(stats.limit, self.limit);
        assert_eq!(stats.reserved, sim.used(0) - self.not_ours, "what the driver gave");
        // The limit held at every moment; one that was set below what is held lets nothing grow.
        let most = self.limit.max(self.reserved_before);
        let peak = sim.used_peak(0) - self.not_ours;
        assert!(peak <= most, "{peak} bytes were held, and {most} are allowed");
        self.reserved_before = stats.reserved;
        sim.reset_used_peak(0).expect("a device");
        self.check_pools();
        self.check_observed(stats.reserved);
        let reports = sim.reports();
        assert!(reports.is_empty(), "{} findings, the first:\n{}", reports.len(), reports[0]);
    }

    /// Every live block is known, and those with a tag are told with it.
    pub(super) fn check_known(&self) {
        let known = api::leaks();
        let tagged = self.live.values().filter(|block| block.tagged).count();
        let told = |what| known.matches(what).count();
        let told = (told("\"address\":"), told(TAG.to_str().expect("ASCII")));
        // Blocks that vanished with their device stay known.
        assert!(told.0 >= self.live.len() && told.1 >= tagged, "{known}");
        if !self.setting.resets {
            assert_eq!(told, (self.live.len(), tagged), "{known}");
        }
    }

    /// What lies in a pinned block stays there, whatever goes back meanwhile.
    pub(super) fn pin_and_tick(&mut self, op: &Op) {
        let turn = self.world.turn;
        let Some(at) = self.block_by(op.b) else { return };
        let pinned = self.must(turn, "pin", move || api::pin(at));
        self.must(turn, "tick", api::tick);
        self.must(turn, "empty_cache", api::empty_cache);
        if pinned.is_some() {
            api::unpin(at).expect("it was pinned");
        }
    }

    fn check_pools(&mut self) {
        let mut sum = 0;
        for at in 0..self.pools.len() {
            let pool = &self.pools[at];
            let Ok(stats) = api::pool_stats(pool.name) else {
                assert!(pool.destroyed, "pool {} is gone", pool.name);
                continue;
            };
            let own = || self.live.values().filter(|block| block.pool == pool.name);
            assert_eq!(stats.allocated, own().map(|block| block.rounded()).sum::<u64>());
            assert_eq!(stats.requested, own().map(|block| block.bytes).sum::<u64>());
            assert_eq!(stats.live_block_count, own().count() as u64);
            assert!(stats.allocated <= stats.active && stats.active <= stats.reserved);
            assert!(stats.reserved <= pool.limit.max(pool.reserved), "{stats:?}, {pool:?}");
            sum += stats.reserved;
            self.pools[at].reserved = stats.reserved;
        }
        assert!(sum <= self.reserved_before, "pools hold more than the device");
    }

    /// Frees everything: then nothing is left, anywhere.
    pub(super) fn finish(&mut self) {
        self.armed = None;
        self.world.turn = 0;
        self.end_all_graphs();
        for (number, at) in self.ages.clone().into_iter().enumerate() {
            let op = Op { kind: Kind::Free, a: 0, b: 5 * number as u64, c: 1 };
            self.free_block(at, &op);
        }
        assert_eq!(self.live.len(), 0, "blocks that the program could not free");
        self.check();
        for thread in 0..self.setting.threads {
            while let Some(pool) = self.pushed[thread].pop() {
                self.must(thread, "pool_pop", move || api::pool_pop(pool));
            }
        }
        for at in 0..self.pools.len() {
            let name = self.pools[at].name;
            if !self.pools[at].destroyed {
                self.must(0, "pool_destroy", move || api::pool_destroy(name));
                self.pools[at].destroyed = true;
            }
        }
        self.must(0, "empty_cache", api::empty_cache);
        self.wait_for_found_graphs();
        self.check();
        let stats = api::stats();
        assert_eq!((stats.allocated, stats.active, stats.limbo_block_count), (0, 0, 0));
        assert_eq!(stats.reserved, stats.quarantined, "what stays reserved: {stats:?}");
        assert!(stats.quarantined == 0 || self.struck_ever > 0, "{stats:?}");
        if self.struck_ever == 0 {
            let holdings = self.world.machine.holdings();
            assert_eq!(holdings, (0, 0, 1), "objects of the driver");
        }
        self.world.look();
        assert!(self.world.machine.sim.accesses_checked() > 0);
        self.tally.add_stats(&stats);
        self.tally.add_driver_calls();
        self.tally.add("comparison", self.world.comparisons);
    }
}
