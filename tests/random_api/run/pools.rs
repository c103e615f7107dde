//! Private pools: made, pushed, popped, bounded, emptied and destroyed in any order.

use cuddy::abi::pools::{CUDDY_POOL_DEFAULT, CUDDY_POOL_USE_ON_OOM};
use cuddy::error::cuddy_status;

use super::Run;
use crate::api;
use crate::machine::MIB;
use crate::program::Op;

/// A private pool.
#[derive(Clone, Debug)]
pub struct Pool {
    pub name: u64,
    pub limit: u64,
    pub lends: bool,
    pub destroyed: bool,
    /// What was reserved when it was looked at last.
    pub reserved: u64,
}

const MOST: usize = 3;

impl Run {
    /// A pool of the program that is there, by a number.
    pub(super) fn pool_by(&self, number: u64) -> Option<u64> {
        let there: Vec<u64> = self.pools.iter().filter(|p| !p.destroyed).map(|p| p.name).collect();
        (!there.is_empty()).then(|| there[number as usize % there.len()])
    }

    /// The pool that serves a thread's request: the one that it names, or what the thread pushed.
    pub(super) fn effective(&self, thread: usize, asked: u64) -> u64 {
        match asked {
            0 => self.pushed[thread].last().copied().unwrap_or(CUDDY_POOL_DEFAULT),
            named => named,
        }
    }

    pub(super) fn is_destroyed(&self, pool: u64) -> bool {
        self.pools.iter().any(|p| p.name == pool && p.destroyed)
    }

    pub(super) fn is_bounded(&self, pool: u64) -> bool {
        self.pools.iter().any(|p| p.name == pool && p.limit != u64::MAX)
    }

    /// What private pools hold, this one left out: their free memory is for nobody else.
    pub(super) fn kept_by_pools(&self, but: u64) -> u64 {
        let others = self.pools.iter().filter(|pool| pool.name != but);
        others.filter_map(|pool| api::pool_stats(pool.name).ok()).map(|stats| stats.reserved).sum()
    }

    /// Whether a pool that was destroyed, a graph's for example, is still there for its blocks.
    pub(super) fn ended_pools_hold_memory(&self) -> bool {
        self.live.values().any(|block| block.graph.is_some() || self.is_destroyed(block.pool))
    }

    /// The pools that serve the default one rather than let it fail.
    pub(super) fn lenders(&self) -> Vec<u64> {
        let lenders = self.pools.iter().filter(|pool| pool.lends && !pool.destroyed);
        lenders.map(|pool| pool.name).collect()
    }

    /// The pool that a request was served from: its own, or one that helped out.
    pub(super) fn serving(&self, pool: u64, lenders: &[u64]) -> u64 {
        let helped = lenders.iter().find(|&&lender| {
            let known = self.live.values().filter(|block| block.pool == lender).count() as u64;
            let told = api::pool_stats(lender).map(|stats| stats.live_block_count);
            pool == CUDDY_POOL_DEFAULT && told.is_ok_and(|told| told > known)
        });
        helped.copied().unwrap_or(pool)
    }

    pub(super) fn pool(&mut self, op: &Op) {
        let turn = self.world.turn;
        let there = self.pools.iter().filter(|pool| !pool.destroyed).count();
        let Some(pool) = self.pool_by(op.b).filter(|_| op.a % 8 != 0 || there == MOST) else {
            self.create_pool(op);
            return;
        };
        match op.a % 8 {
            1 => {
                if self.must(turn, "pool_destroy", move || api::pool_destroy(pool)).is_none() {
                    // It may have been destroyed all the same.
                    if api::pool_stats(pool).is_ok() && api::pool_destroy(pool).is_err() {
                        panic!("a pool that cannot be destroyed");
                    }
                }
                self.say(|| format!("pool {pool} is destroyed"));
                self.pools.iter_mut().filter(|p| p.name == pool).for_each(|p| p.destroyed = true);
            }
            2 | 3 if self.pushed[turn].len() < 8 => {
                let pool = if op.c % 5 == 0 { CUDDY_POOL_DEFAULT } else { pool };
                if self.must(turn, "pool_push", move || api::pool_push(pool)).is_some() {
                    self.pushed[turn].push(pool);
                }
            }
            2..6 => {
                let Some(&last) = self.pushed[turn].last() else {
                    let refused = [cuddy_status::CUDDY_ERROR_INVALID_POOL];
                    return self.must_fail(&refused, move || api::pool_pop(pool));
                };
                if self.must(turn, "pool_pop", move || api::pool_pop(last)).is_some() {
                    self.pushed[turn].pop();
                }
            }
            6 => {
                self.check();
                let limit = [u64::MAX, 8 * MIB, 20 * MIB, self.setting.limit][op.c as usize % 4];
                self.must(turn, "pool_set_limit", move || api::pool_set_limit(pool, limit));
                self.pools.iter_mut().filter(|p| p.name == pool).for_each(|p| p.limit = limit);
                self.check();
            }
            _ => {
                let keep = if op.c % 2 == 0 { 0 } else { op.c % (16 * MIB) };
                self.must(turn, "pool_trim", move || api::pool_trim(pool, keep));
                api::pool_reset_peaks(pool).expect("a pool");
            }
        }
    }

    fn create_pool(&mut self, op: &Op) {
        let limit = [0, 0, u64::MAX, 24 * MIB][op.b as usize % 4];
        let lends = op.c % 3 == 0;
        let flags = if lends { CUDDY_POOL_USE_ON_OOM } else { 0 };
        let turn = self.world.turn;
        let made = self.must(turn, "pool_create", move || api::pool_create(limit, flags));
        let Some(name) = made else { return };
        assert!(name > CUDDY_POOL_DEFAULT && self.pools.iter().all(|pool| pool.name != name));
        self.say(|| format!("pool {name}, limit {limit}, lends {lends}"));
        let limit = if limit == 0 { u64::MAX } else { limit };
        self.pools.push(Pool { name, limit, lends, destroyed: false, reserved: 0 });
    }
}
