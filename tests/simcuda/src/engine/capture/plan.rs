//! A **plan**: a graph laid out over streams.
//!
//! `a before b by the plan == a before b by the graph`: a lane is a stream, and runs what is on it in
//! order; every edge between two lanes is an event. Lane 0 is the stream of the launch; every other
//! lane waits for the launch's beginning, and the launch's end waits for every lane.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

/// One step, to be queued in the order of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Run a node on a lane.
    Run {
        /// Index of the node.
        node: usize,
        /// Where.
        lane: usize,
    },
    /// Record the event of a node on its lane.
    Record {
        /// Whose event.
        node: usize,
        /// Where.
        lane: usize,
    },
    /// Wait on a lane for the event of a node.
    Wait {
        /// Whose event.
        node: usize,
        /// Where.
        lane: usize,
    },
    /// A lane begins: it waits for the beginning of the launch.
    Begin {
        /// Which.
        lane: usize,
    },
    /// Lane 0 waits for all that a lane did.
    Join {
        /// Which.
        lane: usize,
    },
}

/// See the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What to queue.
    pub moves: Vec<Move>,
    /// The home of each lane, as the nodes say.
    pub homes: Vec<u64>,
}

impl Plan {
    /// Lays out nodes given in an order that fits their edges: `before[n]` are the nodes that `n`
    /// comes after, all below `n`; `home[n]` is the place (the context) that its stream must belong
    /// to; lane 0 belongs to `first`.
    pub fn new(before: &[Vec<usize>], home: &[u64], first: u64) -> Self {
        let mut plan = Self { moves: Vec::new(), homes: vec![first] };
        let lanes = lanes(before, home, &mut plan.homes);
        let mut crossed = vec![false; before.len()];
        for (node, earlier) in before.iter().enumerate() {
            for &e in earlier.iter().filter(|&&e| lanes[e] != lanes[node]) {
                crossed[e] = true;
            }
        }
        let mut begun = BTreeSet::from([0]);
        for (node, earlier) in before.iter().enumerate() {
            let lane = lanes[node];
            if begun.insert(lane) {
                plan.moves.push(Move::Begin { lane });
            }
            for &e in earlier.iter().filter(|&&e| lanes[e] != lane) {
                plan.moves.push(Move::Wait { node: e, lane });
            }
            plan.moves.push(Move::Run { node, lane });
            if crossed[node] {
                plan.moves.push(Move::Record { node, lane });
            }
        }
        plan.moves.extend((1..plan.homes.len()).map(|lane| Move::Join { lane }));
        plan
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> usize {
        self.homes.len()
    }
}

/// A node goes on in the lane of a node that it comes after, if that is the last there and the home
/// is right; else it opens a lane.
fn lanes(before: &[Vec<usize>], home: &[u64], homes: &mut Vec<u64>) -> Vec<usize> {
    let mut last: Vec<Option<usize>> = vec![None];
    let mut lanes: Vec<usize> = Vec::with_capacity(before.len());
    for (node, earlier) in before.iter().enumerate() {
        let follows = earlier.iter().map(|&e| (lanes[e], e));
        let goes_on =
            follows.into_iter().find(|&(l, e)| last[l] == Some(e) && homes[l] == home[node]);
        let lane = match goes_on {
            Some((lane, _)) => lane,
            // The stream of the launch itself is free until something runs there.
            None if last[0].is_none() && homes[0] == home[node] => 0,
            None => {
                last.push(None);
                homes.push(home[node]);
                homes.len() - 1
            }
        };
        last[lane] = Some(node);
        lanes.push(lane);
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// What comes before what, by streams and events as CUDA defines them.
    fn order_of(plan: &Plan, nodes: usize) -> Vec<BTreeSet<usize>> {
        let mut lane: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); plan.lanes()];
        let mut event: Vec<Option<BTreeSet<usize>>> = vec![None; nodes];
        let mut known = vec![BTreeSet::new(); nodes];
        for step in &plan.moves {
            match *step {
                Move::Begin { lane: l } => assert!(l > 0 && lane[l].is_empty()),
                Move::Wait { node, lane: l } => {
                    let done = event[node].clone().expect("recorded before it is waited for");
                    lane[l].extend(done);
                }
                Move::Run { node, lane: l } => {
                    known[node] = lane[l].clone();
                    lane[l].insert(node);
                }
                Move::Record { node, lane: l } => event[node] = Some(lane[l].clone()),
                Move::Join { lane: l } => {
                    let done = lane[l].clone();
                    lane[0].extend(done);
                }
            }
        }
        assert_eq!(lane[0].len(), nodes, "the end of the launch waits for everything");
        known
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn the_plan_orders_what_the_graph_orders_and_no_more(
            shape in prop::collection::vec((prop::collection::vec(any::<u16>(), 0..4), 0u64..2), 0..24),
        ) {
            let before: Vec<Vec<usize>> = shape.iter().enumerate().map(|(n, (picks, _))| {
                let set: BTreeSet<_> = picks.iter().filter(|_| n > 0).map(|p| usize::from(*p) % n).collect();
                set.into_iter().collect()
            }).collect();
            let home: Vec<u64> = shape.iter().map(|(_, home)| *home).collect();
            let mut truth: Vec<BTreeSet<usize>> = Vec::new();
            for earlier in &before {
                let mut all = BTreeSet::new();
                for &e in earlier {
                    all.insert(e);
                    all.extend(truth[e].iter().copied());
                }
                truth.push(all);
            }
            let plan = Plan::new(&before, &home, 0);
            prop_assert_eq!(order_of(&plan, before.len()), truth);
            for step in &plan.moves {
                if let Move::Run { node, lane } = *step {
                    prop_assert_eq!(plan.homes[lane], home[node]);
                }
            }
        }
    }

    #[test]
    fn a_chain_stays_on_the_stream_of_the_launch() {
        let plan = Plan::new(&[vec![], vec![0], vec![1]], &[7, 7, 7], 7);
        assert_eq!(plan.lanes(), 1);
        assert_eq!(plan.moves, [0, 1, 2].map(|node| Move::Run { node, lane: 0 }));
    }
}
