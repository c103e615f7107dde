//! The actors: one clock for each stream and host thread, in slots.
//!
//! A dead stream's slot passes to a new stream only when the new stream's creator knows the dead one's
//! last time. So all that ever happened in a slot is one chain, and a time in it means what it says.
#![forbid(unsafe_code)]

use super::clock::Clock;

/// How many dead slots a newcomer looks at before it takes a fresh one.
const DEAD_LOOKED_AT: usize = 32;

/// All clocks, by slot.
#[derive(Debug, Default)]
pub(crate) struct Order {
    clocks: Vec<Clock>,
    dead: Vec<u32>,
}

impl Order {
    /// A new actor, which knows what its creator knows. `unsafe_reuse` is a deliberate fault.
    pub fn add(&mut self, creator: Option<u32>, careless_reuse: bool) -> u32 {
        let parent = creator.map_or_else(Clock::nothing, |c| self.clock(c).clone());
        let fit = |slot: u32| careless_reuse || parent.knows(slot, self.clock(slot).time());
        let reused = self.dead.iter().rev().take(DEAD_LOOKED_AT).position(|&slot| fit(slot));
        let slot = match reused {
            Some(back) => self.dead.swap_remove(self.dead.len() - 1 - back),
            None => {
                let slot = u32::try_from(self.clocks.len()).expect("fewer than 2^32 streams");
                self.clocks.push(Clock::of(slot, 0));
                slot
            }
        };
        let mut clock = Clock::of(slot, self.clock(slot).time());
        clock.join(&parent);
        clock.tick();
        self.clocks[slot as usize] = clock;
        slot
    }

    /// The actor does nothing any more.
    pub fn retire(&mut self, slot: u32) {
        self.dead.push(slot);
    }

    #[inline]
    pub fn clock(&self, slot: u32) -> &Clock {
        &self.clocks[slot as usize]
    }

    /// The actor does the next thing.
    #[inline]
    pub fn tick(&mut self, slot: u32) {
        self.clocks[slot as usize].tick();
    }

    /// The actor takes in a clock. The caller ticks before anybody can see the new clock.
    pub fn join(&mut self, slot: u32, clock: &Clock) -> bool {
        self.clocks[slot as usize].join(clock)
    }

    /// The same, from another actor.
    #[inline]
    pub fn join_actor(&mut self, slot: u32, from: u32) -> bool {
        if slot == from || self.clock(slot).knows_all_of(self.clock(from)) {
            return false;
        }
        let clock = self.clock(from).clone();
        self.join(slot, &clock)
    }

    /// Slots in use or dead, for tests of recycling.
    pub fn slots(&self) -> usize {
        self.clocks.len()
    }
}
