//! The ready operations, and which of them runs next.
//!
//! `wanted` holds those that somebody waits for or that are due; `idle` the others. Either may also hold
//! operations that have run meanwhile: whoever takes one looks whether it is still ready.
#![forbid(unsafe_code)]

use super::keys::OpKey;
use std::collections::VecDeque;

/// A seeded sequence of numbers (splitmix64).
#[derive(Debug)]
pub(super) struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// How busy the random device is, for a stretch of polls.
#[derive(Clone, Copy, Debug)]
enum Mood {
    /// Runs nothing.
    Stalled,
    /// Runs up to this many a poll.
    AtMost(usize),
    /// Runs all it can.
    Hungry,
}

/// The dice of the random schedule: a mood lasts 1 to 64 polls.
#[derive(Debug)]
pub(super) struct Dice {
    random: Random,
    mood: Mood,
    polls_left: usize,
    /// Operations left to run in the poll in hand; None between polls.
    budget: Option<usize>,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self { random: Random(seed), mood: Mood::Stalled, polls_left: 0, budget: None }
    }

    /// May the poll in hand run one more?
    pub fn roll(&mut self) -> bool {
        let left = match self.budget {
            Some(left) => left,
            None => self.new_poll(),
        };
        self.budget = left.checked_sub(1);
        left > 0
    }

    /// Nothing is left to run: the poll ends.
    pub fn poll_ends(&mut self) {
        self.budget = None;
    }

    fn new_poll(&mut self) -> usize {
        if self.polls_left == 0 {
            self.polls_left = 1 + self.random.below(64);
            self.mood = match self.random.below(8) {
                0 | 1 => Mood::Stalled,
                2 | 3 => Mood::AtMost(1),
                4 => Mood::AtMost(2),
                5 => Mood::AtMost(8),
                _ => Mood::Hungry,
            };
        }
        self.polls_left -= 1;
        match self.mood {
            Mood::Stalled => 0,
            Mood::AtMost(n) => self.random.below(n + 1),
            Mood::Hungry => usize::MAX,
        }
    }
}

/// Candidates to run.
#[derive(Debug, Default)]
pub(super) struct Ready {
    wanted: VecDeque<OpKey>,
    /// Kept by the random schedule only.
    idle: VecDeque<OpKey>,
}

impl Ready {
    pub fn clear(&mut self) {
        self.wanted.clear();
        self.idle.clear();
    }

    #[inline]
    pub fn nothing_wanted(&self) -> bool {
        self.wanted.is_empty()
    }

    pub fn add_wanted(&mut self, op: OpKey) {
        self.wanted.push_back(op);
    }

    pub fn add_idle(&mut self, op: OpKey) {
        self.idle.push_back(op);
    }

    /// The wanted one that was ready first.
    pub fn first(&mut self) -> Option<OpKey> {
        self.wanted.pop_front()
    }

    /// The wanted one with the smallest `rank`, the first of equals.
    pub fn best<R: Ord>(&mut self, rank: impl Fn(OpKey) -> R) -> Option<OpKey> {
        let best = (0..self.wanted.len()).min_by_key(|&i| rank(self.wanted[i]))?;
        self.wanted.remove(best)
    }

    /// Any; for a waiter mostly a wanted one.
    pub fn any(&mut self, dice: &mut Dice, for_waiter: bool) -> Option<OpKey> {
        let (wanted, idle) = (self.wanted.len(), self.idle.len());
        let only_wanted = for_waiter && wanted > 0 && dice.random.below(4) > 0;
        let choices = if only_wanted { wanted } else { wanted + idle };
        if choices == 0 {
            return None;
        }
        let choice = dice.random.below(choices);
        if choice < wanted {
            self.wanted.swap_remove_back(choice)
        } else {
            self.idle.swap_remove_back(choice - wanted)
        }
    }
}
