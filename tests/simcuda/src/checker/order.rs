//! The actors: one clock for each stream and host thread, in slots.
//!
//! **All that ever happened in a slot is one chain**, so a time in it means what it says. A dead
//! actor's slot passes on in two ways:
//! - at once, to a newcomer whose creator knows the dead one's last time: that one comes after it;
//! - to anybody, once it is *settled*.
//!
//! A dead slot is **settled** up to its last time T when every host (all threads together, or each
//! thread that has a clock, and what later threads start with) knows (slot, T). From then on
//! everything that will ever be judged comes after T: an operation takes in what its submitting host
//! knows, hosts never forget, and a new host starts with what another knows. So `time <=
//! settled[slot]` is an answer by itself, whatever the clock in hand says, and clocks, records and
//! events that still mention (slot, time <= T) need not be visited:
//! - the slot's next actor starts at T, and its own times are > T: an old mention says nothing of it;
//! - who lacks such an entry lacks nothing, so clocks are cut to the slots in use, and `join` passes
//!   over slots beyond those. `settled` itself is kept for all slots there ever were.
//!
//! Actors that live in high slots move to low ones that are settled. A move is a birth: the actor goes
//! on in the new slot knowing all that it knew, its last time in the old slot included, and the old
//! slot is dead, to be settled like any other.
#![forbid(unsafe_code)]

use super::clock::Clock;
use super::{Fault, Flaw};

/// How many dead slots a newcomer looks at before it takes a fresh one.
const DEAD_LOOKED_AT: usize = 32;
/// So many slots without a living actor are not worth looking for settled ones.
const SPARE: usize = 64;

/// All clocks, by slot.
#[derive(Debug, Default)]
pub(crate) struct Order {
    clocks: Vec<Clock>,
    /// By slot: the time at which its actor began.
    began: Vec<u64>,
    /// By slot, also those beyond `clocks`: the time up to which all that will come knows it.
    settled: Vec<u64>,
    dead: Vec<u32>,
    /// Settled slots without an actor, highest first.
    free: Vec<u32>,
    /// With fewer dead slots there is nothing new to find out.
    look_again_at: usize,
    /// Settles whatever can be, for tests.
    thrifty: bool,
}

impl Order {
    /// A new actor, which knows what its creator knows.
    pub fn add(&mut self, creator: Option<u32>, flaw: impl Flaw) -> u32 {
        let parent = creator.map_or_else(Clock::nothing, |c| self.clock(c).clone());
        let careless = flaw.has(Fault::SlotReusedEarly);
        let fit = |slot: u32| careless || parent.knows(slot, self.clock(slot).time());
        let reused = self.dead.iter().rev().take(DEAD_LOOKED_AT).position(|&slot| fit(slot));
        let slot = match (self.free.pop(), reused) {
            (Some(slot), _) => slot,
            (None, Some(back)) => self.dead.swap_remove(self.dead.len() - 1 - back),
            (None, None) => self.fresh_slot(flaw),
        };
        self.begin(slot, &parent);
        slot
    }

    fn fresh_slot(&mut self, flaw: impl Flaw) -> u32 {
        let slot = u32::try_from(self.clocks.len()).expect("fewer than 2^32 streams");
        if self.settled.len() == self.clocks.len() {
            self.settled.push(0);
        }
        let forgets = flaw.has(Fault::TimesStartAgain);
        let time = if forgets { 0 } else { self.settled[slot as usize] };
        self.clocks.push(Clock::of(slot, time));
        self.began.push(time);
        slot
    }

    /// An actor that knows what `parent` knows begins in a slot.
    fn begin(&mut self, slot: u32, parent: &Clock) {
        let last = self.clock(slot).time();
        let mut clock = Clock::of(slot, last);
        clock.join(parent, self.clocks.len());
        clock.tick();
        self.clocks[slot as usize] = clock;
        self.began[slot as usize] = last;
    }

    /// The actor does nothing any more.
    pub fn retire(&mut self, slot: u32) {
        self.dead.push(slot);
    }

    /// The actor never did anything, and nobody has seen its clock: it is as if it had not been.
    pub fn withdraw(&mut self, slot: u32) {
        let began = self.began[slot as usize];
        self.clocks[slot as usize] = Clock::of(slot, began);
        if self.is_settled(slot, began) {
            let place = self.free.partition_point(|&higher| higher > slot);
            self.free.insert(place, slot);
        } else {
            self.dead.push(slot);
        }
    }

    #[inline]
    pub fn clock(&self, slot: u32) -> &Clock {
        &self.clocks[slot as usize]
    }

    /// Does everything that is judged from now on come after (slot, time)?
    #[inline]
    pub fn is_settled(&self, slot: u32, time: u64) -> bool {
        self.settled.get(slot as usize).is_some_and(|&settled| time <= settled)
    }

    /// Does an actor know all that a clock of an actor knows?
    pub fn knows_all_of(&self, slot: u32, clock: &Clock) -> bool {
        self.clock(slot).knows_all_of(clock)
            || clock.actor().is_some_and(|actor| self.is_settled(actor, clock.time()))
    }

    /// The actor does the next thing.
    #[inline]
    pub fn tick(&mut self, slot: u32) {
        self.clocks[slot as usize].tick();
    }

    /// The actor takes in a clock. The caller ticks before anybody can see the new clock.
    pub fn join(&mut self, slot: u32, clock: &Clock) -> bool {
        let width = self.clocks.len();
        self.clocks[slot as usize].join(clock, width)
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

    /// A clock of nobody takes in another.
    pub fn unite(&self, clock: &mut Clock, other: &Clock) {
        clock.join(other, self.clocks.len());
    }

    /// Whether so many slots have no living actor that it is worth while to [`Self::settle`].
    /// `all`: a host has just learnt much at once.
    pub fn is_wasteful(&self, all: bool) -> bool {
        let spare = if self.thrifty { 0 } else { SPARE.max(self.clocks.len() / 2) };
        let news = all || self.dead.len() >= self.look_again_at;
        news && !self.dead.is_empty() && self.dead.len() + self.free.len() > spare
    }

    /// Settles the dead slots whose end all `hosts` know, moves `actors` to low slots and cuts the
    /// clocks. Answers the width to which clocks kept elsewhere may be cut.
    pub fn settle<'a>(
        &mut self,
        hosts: &[u32],
        actors: impl Iterator<Item = &'a mut u32>,
        flaw: impl Flaw,
    ) -> usize {
        if self.find_settled(hosts, flaw) {
            self.move_down(actors, flaw);
            self.find_settled(hosts, flaw);
            self.cut();
        }
        self.look_again_at = 2 * self.dead.len();
        self.clocks.len()
    }

    /// Settles dead slots; false if there is none to settle.
    fn find_settled(&mut self, hosts: &[u32], flaw: impl Flaw) -> bool {
        let careless = flaw.has(Fault::SlotSettledEarly);
        let Self { clocks, settled, free, dead, .. } = self;
        let before = dead.len();
        dead.retain(|&slot| {
            let last = clocks[slot as usize].time();
            let known = hosts.iter().all(|&host| clocks[host as usize].knows(slot, last));
            if known || careless {
                settled[slot as usize] = last;
                free.push(slot);
            }
            !known && !careless
        });
        free.sort_unstable_by(|a, b| b.cmp(a));
        dead.len() < before
    }

    /// Settled slots above all others are no more.
    fn cut(&mut self) {
        let top = self.clocks.len() as u32;
        let above = (0..top).rev().zip(&self.free).take_while(|(slot, free)| slot == *free).count();
        self.free.drain(..above);
        let width = self.clocks.len() - above;
        self.clocks.truncate(width);
        self.began.truncate(width);
        self.clocks.iter_mut().for_each(|clock| clock.cut(width));
    }

    /// Actors in slots that are higher than there need be go on in free ones.
    fn move_down<'a>(&mut self, actors: impl Iterator<Item = &'a mut u32>, flaw: impl Flaw) {
        let enough = (self.clocks.len() - self.free.len()) as u32;
        for actor in actors.filter(|slot| **slot >= enough) {
            let Some(slot) = self.free.pop_if(|slot| *slot < *actor) else { return };
            let forgets = flaw.has(Fault::MoveForgets);
            let parent = if forgets { Clock::nothing() } else { self.clock(*actor).clone() };
            self.begin(slot, &parent);
            self.retire(std::mem::replace(actor, slot));
        }
    }

    /// Settle at every chance, for tests.
    pub fn be_thrifty(&mut self) {
        self.thrifty = true;
    }

    /// Slots in use or dead, for tests of recycling.
    pub fn slots(&self) -> usize {
        self.clocks.len()
    }
}
