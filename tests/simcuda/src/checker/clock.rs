//! A vector clock: what an actor (a stream or a host thread) knows to have happened.
//!
//! Every actor has a slot. An actor's time moves on (`tick`) with each thing it does and each time it
//! learns something, so that **(slot, time) fixes the whole clock**: who knows (slot, time) knows all
//! that the actor knew then. That makes `knows` exact and most joins one comparison.
#![forbid(unsafe_code)]

use std::sync::Arc;

/// The slot of a clock that belongs to no actor (a union of several clocks).
const NOBODY: u32 = u32::MAX;

/// A clock, or a snapshot of one: cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    slot: u32,
    time: u64,
    /// Times of the other slots; missing ones are 0 (nothing known). The own slot's entry is unused.
    others: Arc<Vec<u64>>,
}

impl Clock {
    /// A clock that knows nothing and belongs to no actor.
    pub fn nothing() -> Self {
        Self { slot: NOBODY, time: 0, others: Arc::default() }
    }

    /// The clock of an actor with this slot and time that knows nothing else.
    pub fn of(slot: u32, time: u64) -> Self {
        Self { slot, time, others: Arc::default() }
    }

    pub fn time(&self) -> u64 {
        self.time
    }

    /// The actor's slot; None for a union.
    pub fn actor(&self) -> Option<u32> {
        (self.slot != NOBODY).then_some(self.slot)
    }

    /// Did the thing that slot `slot` did at `time` come before?
    #[inline]
    pub fn knows(&self, slot: u32, time: u64) -> bool {
        if slot == self.slot {
            return time <= self.time;
        }
        self.others.get(slot as usize).is_some_and(|&known| time <= known)
    }

    /// Does this clock know everything that `other` knows? Only for clocks of actors.
    #[inline]
    pub fn knows_all_of(&self, other: &Clock) -> bool {
        other.slot != NOBODY && self.knows(other.slot, other.time)
    }

    /// Moves the own time on.
    #[inline]
    pub fn tick(&mut self) {
        self.time += 1;
    }

    /// Takes in what `other` knows of the first `width` slots; true if that was anything new. An
    /// actor must tick after it.
    pub fn join(&mut self, other: &Clock, width: usize) -> bool {
        if self.knows_all_of(other) {
            return false;
        }
        let mut changed = (other.slot as usize) < width && self.learn(other.slot, other.time);
        if Arc::ptr_eq(&self.others, &other.others) {
            return changed;
        }
        let told = &other.others[..other.others.len().min(width)];
        let news =
            |mine: &[u64]| (0..told.len()).any(|i| told[i] > mine.get(i).copied().unwrap_or(0));
        if !news(&self.others) {
            return changed;
        }
        let mine = Arc::make_mut(&mut self.others);
        if mine.len() < told.len() {
            mine.resize(told.len(), 0);
        }
        for (slot, (known, &told)) in mine.iter_mut().zip(told).enumerate() {
            if told > *known {
                *known = told;
                changed |= slot as u32 != self.slot;
            }
        }
        changed
    }

    /// Forgets all slots but the first `width`.
    pub fn cut(&mut self, width: usize) {
        if self.others.len() > width {
            self.others = Arc::new(self.others[..width].to_vec());
        }
    }

    fn learn(&mut self, slot: u32, time: u64) -> bool {
        if self.knows(slot, time) {
            return false;
        }
        let mine = Arc::make_mut(&mut self.others);
        if mine.len() <= slot as usize {
            mine.resize(slot as usize + 1, 0);
        }
        mine[slot as usize] = time;
        true
    }
}
