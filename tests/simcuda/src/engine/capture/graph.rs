//! A **graph**: nodes, each with the nodes that it comes after.
//!
//! `a in before(b) == b in after(a)`. Nodes are numbers of the caller's, never used twice, and are
//! listed in the order in which they were added. Nothing keeps a caller from closing a cycle: `order`
//! finds it.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Why an edge was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeError {
    /// A node is not in this graph.
    NoSuchNode,
    /// The edge is there already (or twice in one list).
    Twice,
    /// The edge is not there.
    NotThere,
    /// A node cannot come after itself.
    Itself,
}

#[derive(Clone, Debug)]
struct Node<P> {
    payload: P,
    before: Vec<u64>,
    after: Vec<u64>,
}

/// See the file; `P` is what a node does.
#[derive(Clone, Debug)]
pub struct Graph<P> {
    nodes: BTreeMap<u64, Node<P>>,
    edges: usize,
}

impl<P> Default for Graph<P> {
    fn default() -> Self {
        Self { nodes: BTreeMap::new(), edges: 0 }
    }
}

impl<P> Graph<P> {
    /// Adds a node that comes after others; its number is above all that the graph has had.
    pub fn add(&mut self, node: u64, after: &[u64], payload: P) -> Result<(), EdgeError> {
        self.check_list(after)?;
        self.nodes.insert(node, Node { payload, before: after.to_vec(), after: Vec::new() });
        self.edges += after.len();
        for earlier in after {
            if let Some(earlier) = self.nodes.get_mut(earlier) {
                earlier.after.push(node);
            }
        }
        Ok(())
    }

    /// Whether a list of nodes is one of this graph's, without repetition.
    pub fn check_list(&self, list: &[u64]) -> Result<(), EdgeError> {
        let mut seen = BTreeSet::new();
        for node in list {
            if !self.nodes.contains_key(node) {
                return Err(EdgeError::NoSuchNode);
            }
            if !seen.insert(node) {
                return Err(EdgeError::Twice);
            }
        }
        Ok(())
    }

    /// Takes a node out, with its edges.
    pub fn remove(&mut self, node: u64) -> Option<P> {
        let gone = self.nodes.remove(&node)?;
        self.edges -= gone.before.len() + gone.after.len();
        for earlier in &gone.before {
            if let Some(n) = self.nodes.get_mut(earlier) {
                n.after.retain(|&a| a != node);
            }
        }
        for later in &gone.after {
            if let Some(n) = self.nodes.get_mut(later) {
                n.before.retain(|&b| b != node);
            }
        }
        Some(gone.payload)
    }

    /// Adds edges, all or none.
    pub fn connect(&mut self, edges: &[(u64, u64)]) -> Result<(), EdgeError> {
        let mut new = BTreeSet::new();
        for &(from, to) in edges {
            let known = self.nodes.get(&from).ok_or(EdgeError::NoSuchNode)?;
            self.nodes.get(&to).ok_or(EdgeError::NoSuchNode)?;
            if from == to {
                return Err(EdgeError::Itself);
            }
            if known.after.contains(&to) || !new.insert((from, to)) {
                return Err(EdgeError::Twice);
            }
        }
        for &(from, to) in edges {
            if let Some(n) = self.nodes.get_mut(&from) {
                n.after.push(to);
            }
            if let Some(n) = self.nodes.get_mut(&to) {
                n.before.push(from);
            }
        }
        self.edges += edges.len();
        Ok(())
    }

    /// Takes edges out, all or none.
    pub fn disconnect(&mut self, edges: &[(u64, u64)]) -> Result<(), EdgeError> {
        let mut gone = BTreeSet::new();
        for &(from, to) in edges {
            let known = self.nodes.get(&from).ok_or(EdgeError::NoSuchNode)?;
            self.nodes.get(&to).ok_or(EdgeError::NoSuchNode)?;
            if !known.after.contains(&to) || !gone.insert((from, to)) {
                return Err(EdgeError::NotThere);
            }
        }
        for &(from, to) in edges {
            if let Some(n) = self.nodes.get_mut(&from) {
                n.after.retain(|&a| a != to);
            }
            if let Some(n) = self.nodes.get_mut(&to) {
                n.before.retain(|&b| b != from);
            }
        }
        self.edges -= edges.len();
        Ok(())
    }

    /// The nodes, in the order in which they were added.
    pub fn nodes(&self) -> impl Iterator<Item = (u64, &P)> {
        self.nodes.iter().map(|(&number, node)| (number, &node.payload))
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many edges there are.
    pub fn edge_count(&self) -> usize {
        self.edges
    }

    /// The nodes that come after nothing.
    pub fn roots(&self) -> Vec<u64> {
        self.nodes.iter().filter(|(_, n)| n.before.is_empty()).map(|(&n, _)| n).collect()
    }

    /// The edges, by the node that they lead from.
    pub fn edges(&self) -> Vec<(u64, u64)> {
        self.nodes.iter().flat_map(|(&from, n)| n.after.iter().map(move |&to| (from, to))).collect()
    }

    /// What a node comes directly after.
    pub fn before(&self, node: u64) -> Option<&[u64]> {
        self.nodes.get(&node).map(|n| n.before.as_slice())
    }

    /// What comes directly after a node.
    pub fn after(&self, node: u64) -> Option<&[u64]> {
        self.nodes.get(&node).map(|n| n.after.as_slice())
    }

    /// What a node does.
    pub fn get(&self, node: u64) -> Option<&P> {
        self.nodes.get(&node).map(|n| &n.payload)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, node: u64) -> Option<&mut P> {
        self.nodes.get_mut(&node).map(|n| &mut n.payload)
    }

    /// The nodes, each after all that it comes after and otherwise as they were added; or a node on
    /// a cycle.
    pub fn order(&self) -> Result<Vec<u64>, u64> {
        let mut left: HashMap<u64, usize> =
            self.nodes.iter().map(|(&n, node)| (n, node.before.len())).collect();
        let mut ready: BTreeSet<u64> = self.roots().into_iter().collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(node) = ready.pop_first() {
            order.push(node);
            for &later in &self.nodes[&node].after {
                let Some(count) = left.get_mut(&later) else { continue };
                *count -= 1;
                if *count == 0 {
                    ready.insert(later);
                }
            }
        }
        let stuck = self.nodes.keys().find(|n| left.get(n).is_some_and(|&count| count > 0));
        stuck.map_or(Ok(order), |&node| Err(node))
    }

    /// `from`, and all that they come after, directly or not.
    pub fn ancestors(&self, from: &[u64]) -> BTreeSet<u64> {
        let mut seen: BTreeSet<u64> = BTreeSet::new();
        let mut todo = from.to_vec();
        while let Some(node) = todo.pop() {
            if let (Some(n), true) = (self.nodes.get(&node), seen.insert(node)) {
                todo.extend_from_slice(&n.before);
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diamond() -> Graph<char> {
        let mut g = Graph::default();
        g.add(1, &[], 'a').expect("a root");
        g.add(2, &[1], 'b').expect("new");
        g.add(3, &[1], 'c').expect("new");
        g.add(4, &[3, 2], 'd').expect("new");
        g
    }

    #[test]
    fn edges_go_both_ways() {
        let mut g = diamond();
        assert_eq!(g.order(), Ok(vec![1, 2, 3, 4]));
        assert_eq!((g.before(4), g.after(1)), (Some(&[3, 2][..]), Some(&[2, 3][..])));
        assert_eq!(g.edges(), [(1, 2), (1, 3), (2, 4), (3, 4)]);
        assert_eq!(g.ancestors(&[2]), BTreeSet::from([1, 2]));
        assert_eq!(g.remove(2), Some('b'));
        assert_eq!((g.edge_count(), g.before(4)), (2, Some(&[3][..])));
        assert_eq!(g.edges().len(), g.edge_count());
        assert_eq!(g.roots(), [1]);
    }

    #[test]
    fn wrong_edges_change_nothing() {
        let mut g = diamond();
        let before = g.edges();
        assert_eq!(g.connect(&[(2, 3), (1, 2)]), Err(EdgeError::Twice));
        assert_eq!(g.connect(&[(2, 3), (2, 3)]), Err(EdgeError::Twice));
        assert_eq!(g.connect(&[(2, 3), (2, 9)]), Err(EdgeError::NoSuchNode));
        assert_eq!(g.connect(&[(2, 2)]), Err(EdgeError::Itself));
        assert_eq!(g.disconnect(&[(1, 2), (2, 3)]), Err(EdgeError::NotThere));
        assert_eq!(g.disconnect(&[(1, 2), (1, 2)]), Err(EdgeError::NotThere));
        assert_eq!(g.add(5, &[1, 1], 'e'), Err(EdgeError::Twice));
        assert_eq!((g.edges(), g.len()), (before, 4));
    }

    #[test]
    fn a_cycle_is_found() {
        let mut g = diamond();
        g.connect(&[(4, 2)]).expect("a new edge");
        assert!(matches!(g.order(), Err(2 | 4)));
        g.disconnect(&[(4, 2)]).expect("there");
        assert_eq!(g.order().map(|o| o.len()), Ok(4));
    }
}
