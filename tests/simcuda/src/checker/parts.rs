//! **Parts**: names of ranges of objects, for reports. A pool's chunk is one object; what a program knows
//! are its allocations in it. A part keeps its name when it is freed, until another takes its bytes.
#![forbid(unsafe_code)]

use crate::engine::FastHash;
use std::collections::{BTreeMap, HashMap};

/// One object's parts: the end and the name, by the beginning.
type OfObject = BTreeMap<u64, (u64, Box<str>)>;

/// The parts of all objects.
#[derive(Debug, Default)]
pub(super) struct Parts(HashMap<u64, OfObject, FastHash>);

impl Parts {
    /// Names a range; names of what it overlaps are forgotten.
    pub fn name(&mut self, object: u64, (start, end): (u64, u64), name: &str) {
        let parts = self.0.entry(object).or_default();
        while let Some((&old, _)) =
            parts.range(..end).next_back().filter(|(_, (old_end, _))| *old_end > start)
        {
            parts.remove(&old);
        }
        parts.insert(start, (end, name.into()));
    }

    /// The name of the part that holds a byte.
    pub fn at(&self, object: u64, offset: u64) -> Option<&str> {
        let (_, (end, name)) = self.0.get(&object)?.range(..=offset).next_back()?;
        (offset < *end).then_some(&**name)
    }

    /// Forgets an object's.
    pub fn forget(&mut self, object: u64) {
        self.0.remove(&object);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::Parts;

    #[test]
    fn the_last_name_of_a_byte_holds_and_what_it_overlaps_is_forgotten() {
        let mut parts = Parts::default();
        parts.name(1, (0, 10), "a");
        parts.name(1, (10, 20), "b");
        parts.name(1, (20, 30), "c");
        assert_eq!(
            [9, 10, 19, 20, 30].map(|at| parts.at(1, at)),
            [Some("a"), Some("b"), Some("b"), Some("c"), None]
        );
        parts.name(1, (5, 12), "d");
        assert_eq!(
            [0, 5, 11, 12, 20].map(|at| parts.at(1, at)),
            [None, Some("d"), Some("d"), None, Some("c")]
        );
        assert_eq!(parts.at(2, 5), None);
        parts.forget(1);
        assert_eq!(parts.at(1, 5), None);
    }
}
