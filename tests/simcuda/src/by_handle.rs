//! **Objects by handle**: a sorted table for the few things that nearly every call looks up.
//!
//! `handles` is sorted, and `objects[i]` is the one of `handles[i]`: with one or two contexts, as
//! almost every program has, a look-up is a comparison or two.

use std::ops::Index;

/// See the module.
#[derive(Debug)]
pub struct ByHandle<T> {
    handles: Vec<u64>,
    objects: Vec<T>,
}

impl<T> Default for ByHandle<T> {
    fn default() -> Self {
        Self { handles: Vec::new(), objects: Vec::new() }
    }
}

impl<T> ByHandle<T> {
    #[inline]
    fn place(&self, handle: u64) -> Option<usize> {
        self.handles.binary_search(&handle).ok()
    }

    /// The object of a handle.
    #[inline]
    pub fn get(&self, handle: &u64) -> Option<&T> {
        self.objects.get(self.place(*handle)?)
    }

    /// The same, to change it.
    #[inline]
    pub fn get_mut(&mut self, handle: &u64) -> Option<&mut T> {
        let place = self.place(*handle)?;
        self.objects.get_mut(place)
    }

    /// Whether there is one.
    #[inline]
    pub fn contains_key(&self, handle: &u64) -> bool {
        self.place(*handle).is_some()
    }

    /// Puts an object in; answers the one that had the handle.
    pub fn insert(&mut self, handle: u64, object: T) -> Option<T> {
        match self.handles.binary_search(&handle) {
            Ok(place) => Some(std::mem::replace(&mut self.objects[place], object)),
            Err(place) => {
                self.handles.insert(place, handle);
                self.objects.insert(place, object);
                None
            }
        }
    }

    /// Takes an object out.
    pub fn remove(&mut self, handle: &u64) -> Option<T> {
        let place = self.place(*handle)?;
        self.handles.remove(place);
        Some(self.objects.remove(place))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// Handles and objects, by handle.
    pub fn iter(&self) -> impl Iterator<Item = (&u64, &T)> {
        self.handles.iter().zip(&self.objects)
    }

    /// The handles, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &u64> {
        self.handles.iter()
    }

    /// The objects, by handle.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.objects.iter()
    }

    /// The same, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.objects.iter_mut()
    }
}

impl<T> Index<&u64> for ByHandle<T> {
    type Output = T;

    /// The object of a handle that is known to be there.
    #[inline]
    fn index(&self, handle: &u64) -> &T {
        self.get(handle).expect("whoever indexes has looked before, under the same lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn it_answers_as_a_map_does() {
        let (mut table, mut map, mut state) = (ByHandle::default(), BTreeMap::new(), 1);
        for step in 0..4_000 {
            let handle = crate::faults::split_mix(&mut state) % 23;
            match crate::faults::split_mix(&mut state) % 3 {
                0 => assert_eq!(table.insert(handle, step), map.insert(handle, step)),
                1 => assert_eq!(table.remove(&handle), map.remove(&handle)),
                _ => assert_eq!(table.get_mut(&handle), map.get_mut(&handle)),
            }
            assert_eq!(table.get(&handle), map.get(&handle));
            assert_eq!(table.contains_key(&handle), map.contains_key(&handle));
            assert_eq!((table.len(), table.is_empty()), (map.len(), map.is_empty()));
            assert!(table.iter().eq(map.iter()) && table.keys().eq(map.keys()));
            assert!(table.values().eq(map.values()));
        }
    }
}
