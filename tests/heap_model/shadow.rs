//! The shadow: what an allocator *is*, and nothing about how one is made.
//!
//! Every byte of the ranges and segments is in one [`Cell`]; the map from addresses to cells is all
//! there is. It shares no code and no idea with the heap: no trees, no figures that are kept, no
//! blocks but those that somebody holds.

use std::collections::BTreeMap;

/// What holds of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub kind: Kind,
    /// Whether it is claimed: then nobody else may touch it, and `kind` is what it was.
    pub claimed: bool,
    /// Who used it last, and until when.
    pub stream: u32,
    pub epoch: u64,
}

/// The states of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Gap,
    Free,
    /// In the live block that starts there.
    Live(u64),
    /// In the block in limbo that starts there.
    Limbo(u64),
}

/// A range or segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    pub start: u64,
    pub bytes: u64,
    pub paged: bool,
}

/// A maximal run of bytes for which something holds.
pub type Run = (u64, u64);

/// Areas, and a cell for each byte of them, as disjoint intervals start -> (end, cell).
#[derive(Default)]
pub struct Shadow {
    pub areas: Vec<Area>,
    cells: BTreeMap<u64, (u64, Cell)>,
}

impl Shadow {
    pub fn add_area(&mut self, area: Area, kind: Kind, stream: u32, epoch: u64) {
        self.areas.push(area);
        self.areas.sort_by_key(|area| area.start);
        let cell = Cell { kind, claimed: false, stream, epoch };
        self.cells.insert(area.start, (area.start + area.bytes, cell));
    }

    pub fn remove_area(&mut self, start: u64) {
        let place = self.areas.iter().position(|area| area.start == start).expect("an area");
        let area = self.areas.remove(place);
        self.part(area.start, area.start + area.bytes);
        self.cells.retain(|&at, _| at < area.start || at >= area.start + area.bytes);
    }

    pub fn area_of(&self, address: u64) -> Option<Area> {
        let inside = |area: &&Area| area.start <= address && address < area.start + area.bytes;
        self.areas.iter().find(inside).copied()
    }

    pub fn cell(&self, address: u64) -> Option<Cell> {
        let (_, &(end, cell)) = self.cells.range(..=address).next_back()?;
        (address < end).then_some(cell)
    }

    /// The cells of [from, to), clipped to it; panics if any byte of it is in no area.
    pub fn over(&self, from: u64, to: u64) -> Vec<(u64, u64, Cell)> {
        let first = self.cells.range(..=from).next_back().map_or(from, |(&start, _)| start);
        let mut at = from;
        let mut out = Vec::new();
        for (&start, &(end, cell)) in self.cells.range(first..to) {
            assert!(start <= at && end > at, "{at:#x} is in no range");
            out.push((at, end.min(to), cell));
            at = end.min(to);
        }
        assert_eq!(at, to, "{at:#x} is in no range");
        out
    }

    /// All cells, in address order.
    pub fn all(&self) -> impl Iterator<Item = (u64, u64, Cell)> + '_ {
        self.cells.iter().map(|(&start, &(end, cell))| (start, end, cell))
    }

    /// Changes every byte of [from, to).
    pub fn paint(&mut self, from: u64, to: u64, change: impl Fn(Cell) -> Cell) {
        self.part(from, to);
        for (_, (_, cell)) in self.cells.range_mut(from..to) {
            *cell = change(*cell);
        }
        self.heal(from, to);
    }

    /// Whether `test` holds for every byte of [from, to).
    pub fn whole(&self, from: u64, to: u64, test: impl Fn(Cell) -> bool) -> bool {
        self.over(from, to).into_iter().all(|(_, _, cell)| test(cell))
    }

    /// The maximal runs, each within one area, of bytes for which `test` holds.
    pub fn runs(&self, test: impl Fn(Cell) -> bool) -> Vec<Run> {
        let mut out: Vec<Run> = Vec::new();
        for (start, end, cell) in self.all() {
            if !test(cell) {
                continue;
            }
            let begins = self.areas.iter().any(|area| area.start == start);
            match out.last_mut() {
                Some(last) if last.1 == start && !begins => last.1 = end,
                _ => out.push((start, end)),
            }
        }
        out
    }

    /// Bytes for which `test` holds.
    pub fn sum(&self, test: impl Fn(Cell) -> bool) -> u64 {
        self.all().filter(|&(_, _, cell)| test(cell)).map(|(start, end, _)| end - start).sum()
    }

    /// Makes `from` and `to` borders of intervals.
    fn part(&mut self, from: u64, to: u64) {
        for at in [from, to] {
            if let Some((&start, &(end, cell))) = self.cells.range(..at).next_back()
                && end > at
            {
                self.cells.insert(start, (at, cell));
                self.cells.insert(at, (end, cell));
            }
        }
    }

    /// Joins equal neighbours in and around [from, to), but not over the border of an area.
    fn heal(&mut self, from: u64, to: u64) {
        let mut at = self.cells.range(..from).next_back().map_or(from, |(&start, _)| start);
        while at <= to {
            let Some(&(end, cell)) = self.cells.get(&at) else { break };
            match self.cells.get(&end) {
                Some(&(next_end, next)) if next == cell && !self.begins(end) => {
                    self.cells.remove(&end);
                    self.cells.insert(at, (next_end, cell));
                }
                Some(_) => at = end,
                None => break,
            }
        }
    }

    fn begins(&self, at: u64) -> bool {
        self.areas.binary_search_by_key(&at, |area| area.start).is_ok()
    }
}
