//! **Extents**: which parts of a line of addresses are free.
//!
//! `free + taken = [start, end)`, no two free extents touch, and both indexes hold the same
//! extents. A request is served from the smallest extent that holds it, at its lowest fitting
//! address.

use std::collections::{BTreeMap, BTreeSet};

/// The free parts of one range of numbers.
#[derive(Debug, Default)]
pub struct Extents {
    by_start: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl Extents {
    /// One free extent `[start, end)`.
    pub fn new(start: u64, end: u64) -> Self {
        let mut new = Self::default();
        new.insert(start, end);
        new
    }

    fn insert(&mut self, start: u64, end: u64) {
        if start < end {
            self.by_start.insert(start, end);
            self.by_size.insert((end - start, start));
        }
    }

    fn remove(&mut self, start: u64, end: u64) {
        self.by_start.remove(&start);
        self.by_size.remove(&(end - start, start));
    }

    fn cut(&mut self, start: u64, end: u64, from: u64, to: u64) {
        self.remove(start, end);
        self.insert(start, from);
        self.insert(to, end);
    }

    /// Takes `bytes` at a multiple of `align`; `None` when no extent holds them.
    pub fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let align = align.max(1);
        let fits = |&&(size, start): &&(u64, u64)| {
            start.checked_next_multiple_of(align).is_some_and(|at| at - start <= size - bytes)
        };
        let &(size, start) = self.by_size.range((bytes, 0)..).find(fits)?;
        let at = start.next_multiple_of(align);
        self.cut(start, start + size, at, at + bytes);
        Some(at)
    }

    /// Takes exactly `[at, at + bytes)` if all of it is free.
    pub fn take_at(&mut self, at: u64, bytes: u64) -> bool {
        let Some(to) = at.checked_add(bytes) else { return false };
        let found = self.by_start.range(..=at).next_back().map(|(&s, &e)| (s, e));
        match found {
            Some((start, end)) if to <= end => {
                self.cut(start, end, at, to);
                true
            }
            _ => false,
        }
    }

    /// Gives `[at, at + bytes)` back, joined with its free neighbours.
    pub fn give(&mut self, at: u64, bytes: u64) {
        let (mut start, mut end) = (at, at + bytes);
        if let Some((&s, &e)) = self.by_start.range(..at).next_back()
            && e == at
        {
            self.remove(s, e);
            start = s;
        }
        if let Some(&e) = self.by_start.get(&end) {
            self.remove(end, e);
            end = e;
        }
        self.insert(start, end);
    }

    /// Sum of all that is free.
    #[cfg(test)]
    pub fn free(&self) -> u64 {
        self.by_start.iter().map(|(s, e)| e - s).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_extent_joins_both_neighbours() {
        let mut line = Extents::new(0, 100);
        let taken: Vec<_> = (0..10).map(|_| line.take(10, 1).expect("room for ten")).collect();
        assert_eq!(taken, (0..10).map(|i| i * 10).collect::<Vec<_>>());
        assert_eq!(line.take(1, 1), None);
        for at in [30, 50, 40] {
            line.give(at, 10);
        }
        assert_eq!(line.free(), 30);
        assert_eq!(line.take(30, 1), Some(30), "three neighbours are one extent");
    }

    #[test]
    fn alignment_and_exact_places_are_kept() {
        let mut line = Extents::new(3, 64);
        assert_eq!(line.take(8, 16), Some(16));
        assert!(!line.take_at(20, 2), "inside what is taken");
        assert!(!line.take_at(60, 5), "over the end");
        assert!(line.take_at(24, 40));
        assert_eq!(line.free(), 13);
        assert_eq!(line.take(13, 1), Some(3));
    }
}
