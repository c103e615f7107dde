//! The written bytes of one object, as disjoint ranges that do not touch each other.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

/// Ranges by start.
#[derive(Debug, Default)]
pub(crate) struct Written {
    ends: BTreeMap<u64, u64>,
}

impl Written {
    /// The bytes `start..end` are written now.
    pub fn add(&mut self, start: u64, end: u64) {
        let (mut from, mut to) = (start, end);
        while let Some((&s, &e)) = self.ends.range(..=to).next_back() {
            if e < from {
                break;
            }
            from = from.min(s);
            to = to.max(e);
            self.ends.remove(&s);
        }
        self.ends.insert(from, to);
    }

    /// The bytes `start..end` hold nothing any more.
    pub fn remove(&mut self, start: u64, end: u64) {
        let inside = |(&s, &e): (&u64, &u64)| (s, e);
        let touching: Vec<_> =
            self.ends.range(..end).rev().map(inside).take_while(|&(_, e)| e > start).collect();
        for (s, e) in touching {
            self.ends.remove(&s);
            if s < start {
                self.ends.insert(s, start);
            }
            if e > end {
                self.ends.insert(end, e);
            }
        }
    }

    /// The first range within `start..end` that was never written.
    pub fn first_gap(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let covered = self.ends.range(..=start).next_back().map_or(0, |(_, &e)| e);
        let from = covered.max(start);
        let to = self.ends.range(from..).next().map_or(end, |(&s, _)| s.min(end));
        (from < to).then_some((from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_one_flag_a_byte() {
        let mut random = 1u64;
        let mut draw = |n: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) % n
        };
        for _ in 0..2000 {
            let (mut set, mut bytes) = (Written::default(), [false; 40]);
            for _ in 0..12 {
                let (a, b) = (draw(40), draw(40));
                let (start, end) = (a.min(b), a.max(b) + 1);
                let gap = (start..end).find(|&i| !bytes[i as usize]).map(|from| {
                    let to = (from..end).find(|&i| bytes[i as usize]).unwrap_or(end);
                    (from, to)
                });
                assert_eq!(set.first_gap(start, end), gap, "{set:?} {start}..{end}");
                let write = draw(3) > 0;
                if write {
                    set.add(start, end)
                } else {
                    set.remove(start, end)
                }
                bytes[start as usize..end as usize].fill(write);
                let ranges: Vec<_> = set.ends.iter().map(|(&s, &e)| (s, e)).collect();
                assert!(ranges.windows(2).all(|w| w[0].1 < w[1].0), "{ranges:?}");
            }
        }
    }
}
