#![forbid(unsafe_code)]
//! A map of **few** entries (contexts, devices, sizes): a sorted list, found by halving. What hits
//! look up is in here; a tree costs them three times as much.

/// See the module.
#[derive(Clone, Debug)]
pub struct Few<K, V>(Vec<(K, V)>);

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> Few<K, V> {
    /// An empty one.
    pub const fn new() -> Self {
        Self(Vec::new())
    }
}

impl<K: Copy + Ord, V> Few<K, V> {
    #[inline]
    fn place(&self, key: K) -> Result<usize, usize> {
        match self.0.as_slice() {
            // Most often it is the only one.
            [(only, _)] if *only == key => Ok(0),
            all => all.binary_search_by(|(its, _)| its.cmp(&key)),
        }
    }

    /// The entry of a key.
    #[inline]
    pub fn get(&self, key: K) -> Option<&V> {
        self.place(key).ok().map(|at| &self.0[at].1)
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        self.place(key).ok().map(|at| &mut self.0[at].1)
    }

    /// The entry of a key, a new one if there is none.
    #[inline]
    pub fn or_insert(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        let at = match self.place(key) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, (key, new()));
                at
            }
        };
        &mut self.0[at].1
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: K) -> Option<V> {
        self.place(key).ok().map(|at| self.0.remove(at).1)
    }

    /// All entries, by key.
    pub fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.0.iter()
    }

    /// All values, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// The entries from a key to another, both included.
    #[inline]
    pub fn between(&mut self, first: K, last: K) -> impl Iterator<Item = &mut (K, V)> {
        let start = match self.0.as_slice() {
            [(only, _)] => usize::from(*only < first),
            all => all.partition_point(|(key, _)| *key < first),
        };
        self.0[start..].iter_mut().take_while(move |(key, _)| *key <= last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map() {
        let mut few = Few::new();
        for key in [5, 1, 9, 5, 3] {
            *few.or_insert(key, || 0) += key;
        }
        let all: Vec<_> = few.iter().copied().collect();
        assert_eq!(all, [(1, 1), (3, 3), (5, 10), (9, 9)]);
        assert_eq!((few.get(3), few.get(4)), (Some(&3), None));
        assert_eq!((few.get_mut(9).copied(), few.get_mut(2).copied()), (Some(9), None));
        for (first, last, wanted) in [(2, 5, 2), (10, 20, 0), (0, 0, 0), (1, 9, 4)] {
            assert_eq!(few.between(first, last).count(), wanted, "{first} to {last}");
        }
        assert_eq!((few.remove(5), few.remove(5)), (Some(10), None));
        few.values_mut().for_each(|value| *value = 7);
        few.remove(1);
        few.remove(3);
        assert_eq!((few.get(9).copied(), few.get(1).copied()), (Some(7), None));
        assert_eq!(few.between(9, 9).count(), 1);
        assert_eq!(few.between(10, 11).count(), 0);
    }
}
