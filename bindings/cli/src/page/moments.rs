//! Which blocks were live at each point of the timeline: those of the first point, and from each point to
//! the next the ones that came or went. A block that came and went between two points is in neither.
//!
//! Where even that is too much, blocks that are too small to be seen are left out, and the page says so.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::sites::Sites;
use crate::snapshot::{DevicePart, Event, Kind};

/// The most changes that a page has, over all its points.
const MOST_CHANGES: usize = 150_000;

#[derive(Default, Serialize)]
pub struct Moments {
    /// Blocks: address, bytes, scope, stack (0: none is known).
    blocks: Vec<Seen>,
    /// Places in `blocks`, for each point: what changes there. At the first point nothing was live before.
    changes: Vec<Vec<u32>>,
    /// Blocks of fewer bytes are left out.
    least: u64,
}

/// One block, from its allocation to its free.
type Seen = (u64, u64, u32, u32);

impl Moments {
    /// `after` says how many of the events each point of the timeline has behind it.
    pub fn of(device: &DevicePart, events: &[&Event], after: &[usize], sites: &mut Sites) -> Self {
        let mut live = live_at_first(device, events, sites);
        let mut changes: Vec<Vec<Seen>> = Vec::with_capacity(after.len());
        let mut changed: HashSet<Seen> = live.values().copied().collect();
        let mut done = 0;
        for &upto in after {
            for event in &events[done..upto] {
                let gone = match event.1 {
                    Kind::Alloc => {
                        let seen = (event.4, event.5, event.7, sites.number(&event.9));
                        toggle(&mut changed, seen);
                        live.insert(event.4, seen)
                    }
                    Kind::Free => live.remove(&event.4),
                    _ => None,
                };
                if let Some(seen) = gone {
                    toggle(&mut changed, seen);
                }
            }
            done = upto;
            let mut now: Vec<Seen> = changed.drain().collect();
            now.sort_unstable();
            changes.push(now);
        }
        let least = least(&changes);
        Self::numbered(&changes, least)
    }

    fn numbered(changes: &[Vec<Seen>], least: u64) -> Self {
        let mut numbers: HashMap<Seen, u32> = HashMap::new();
        let mut blocks = Vec::new();
        let mut number = |seen: &Seen| {
            *numbers.entry(*seen).or_insert_with(|| {
                blocks.push(*seen);
                blocks.len() as u32 - 1
            })
        };
        let large = |seen: &&Seen| seen.1 >= least;
        let changes = changes
            .iter()
            .map(|change| change.iter().filter(large).map(&mut number).collect())
            .collect();
        Self { blocks, changes, least }
    }
}

fn toggle(changed: &mut HashSet<Seen>, seen: Seen) {
    if !changed.remove(&seen) {
        changed.insert(seen);
    }
}

/// What was live before the first event, by address: what is live now, and the history undone.
fn live_at_first(device: &DevicePart, events: &[&Event], sites: &mut Sites) -> HashMap<u64, Seen> {
    let mut live = HashMap::new();
    for segment in &device.segments {
        let mut address = segment.address;
        for block in &segment.blocks {
            if block.state == "live" {
                let stack = sites.number(&block.stack);
                live.insert(address, (address, block.bytes, block.scope, stack));
            }
            address = address.wrapping_add(block.bytes);
        }
    }
    for event in events.iter().rev() {
        match event.1 {
            Kind::Alloc => drop(live.remove(&event.4)),
            Kind::Free => drop(live.insert(event.4, (event.4, event.5, event.7, 0))),
            _ => {}
        }
    }
    live
}

/// The fewest bytes of a block that is kept: a power of two, so that the changes are few enough.
fn least(changes: &[Vec<Seen>]) -> u64 {
    let mut counts = [0usize; 65];
    for seen in changes.iter().flatten() {
        counts[seen.1.checked_ilog2().map_or(0, |power| power as usize + 1)] += 1;
    }
    let mut kept = 0;
    for power in (0..counts.len()).rev() {
        kept += counts[power];
        if kept > MOST_CHANGES {
            return 1u64.checked_shl(power as u32).unwrap_or(u64::MAX);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::super::timeline::tests::{device, event};
    use super::*;

    /// The blocks that a page makes of it at a point.
    fn at(moments: &Moments, point: usize) -> Vec<(u64, u64)> {
        let mut live = HashSet::new();
        for &block in moments.changes[..=point].iter().flatten() {
            let (address, bytes, ..) = moments.blocks[block as usize];
            if !live.remove(&(address, bytes)) {
                live.insert((address, bytes));
            }
        }
        let mut live: Vec<_> = live.into_iter().collect();
        live.sort_unstable();
        live
    }

    fn moments(events: &[Event], after: &[usize]) -> Moments {
        let (device, events) = (device(1024), events.iter().collect::<Vec<_>>());
        let mut sites = Sites::of(&device, &events, &[]);
        Moments::of(&device, &events, after, &mut sites)
    }

    #[test]
    fn each_point_has_the_blocks_that_were_live_there() {
        // What is live now lies at 512; before, it was allocated, freed and allocated again.
        let mut events = Vec::new();
        for (kind, address, bytes) in [
            (Kind::Free, 8192, 2048), // live before the history
            (Kind::Alloc, 4096, 512),
            (Kind::Alloc, 512, 1024),
            (Kind::Free, 4096, 512),
            (Kind::Free, 512, 1024),
            (Kind::Alloc, 512, 1024),
        ] {
            let mut it = event(1, kind, bytes);
            it.4 = address;
            events.push(it);
        }
        let seen = moments(&events, &[0, 1, 3, 5, 6, 6]);
        assert_eq!(at(&seen, 0), [(8192, 2048)]);
        assert_eq!(at(&seen, 1), []);
        assert_eq!(at(&seen, 2), [(512, 1024), (4096, 512)]);
        assert_eq!(at(&seen, 3), []);
        assert_eq!((at(&seen, 4), seen.least), (vec![(512, 1024)], 0));
        assert_eq!(at(&seen, 5), at(&seen, 4));
    }

    #[test]
    fn where_there_are_too_many_the_small_ones_are_left_out() {
        let mut events = Vec::new();
        for step in 0..200_000u64 {
            let mut it = event(step, Kind::Alloc, if step % 10 == 0 { 4096 } else { 512 });
            it.4 = (1 << 20) + (step << 12);
            events.push(it);
        }
        let after: Vec<usize> = (0..=2000).map(|point| point * 100).collect();
        let seen = moments(&events, &after);
        // And the one that is live now.
        assert_eq!((seen.least, seen.blocks.len()), (1024, 20_001));
        assert_eq!(at(&seen, 1000).len(), 10_001);
    }
}
