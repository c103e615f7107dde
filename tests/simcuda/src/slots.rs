//! **Slots**: the values that stand for streams, events, modules and functions in C.
//!
//! A new object gets the lowest free slot, so the value of a destroyed one comes back at once, as
//! it may with a real driver. The values look like pointers and are none.

use std::collections::BTreeSet;

/// Objects of one kind.
#[derive(Debug)]
pub struct Slots<T> {
    first: u64,
    slots: Vec<Option<T>>,
    free: BTreeSet<usize>,
}

const STEP: u64 = 0x40;

impl<T> Slots<T> {
    /// Values `kind << 32` and up.
    pub fn new(kind: u64) -> Self {
        Self {
            first: 0x5c00_0000_0000 + (kind << 32) + STEP,
            slots: Vec::new(),
            free: BTreeSet::new(),
        }
    }

    /// Puts an object into the lowest free slot and answers its value.
    pub fn insert(&mut self, object: T) -> u64 {
        let slot = self.free.pop_first().unwrap_or(self.slots.len());
        match self.slots.get_mut(slot) {
            Some(place) => *place = Some(object),
            None => self.slots.push(Some(object)),
        }
        self.first + slot as u64 * STEP
    }

    #[inline]
    fn slot(&self, value: u64) -> Option<usize> {
        let past = value.checked_sub(self.first)?;
        past.is_multiple_of(STEP).then_some((past / STEP) as usize)
    }

    /// The object of a value.
    #[inline]
    pub fn get(&self, value: u64) -> Option<&T> {
        self.slots.get(self.slot(value)?)?.as_ref()
    }

    /// The same, to change it.
    #[inline]
    pub fn get_mut(&mut self, value: u64) -> Option<&mut T> {
        let slot = self.slot(value)?;
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Takes the object out; its value is free.
    pub fn remove(&mut self, value: u64) -> Option<T> {
        let slot = self.slot(value)?;
        let object = self.slots.get_mut(slot)?.take()?;
        self.free.insert(slot);
        Some(object)
    }

    /// Values and objects.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let value = |slot: usize| self.first + slot as u64 * STEP;
        self.slots.iter().enumerate().filter_map(move |(i, o)| Some((value(i), o.as_ref()?)))
    }

    /// The objects, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }

    /// How many objects there are.
    pub fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes out all objects that `gone` names.
    pub fn remove_all(&mut self, gone: impl Fn(&T) -> bool) -> Vec<T> {
        let values: Vec<_> = self.iter().filter(|(_, o)| gone(o)).map(|(v, _)| v).collect();
        values.into_iter().filter_map(|v| self.remove(v)).collect()
    }
}

impl<T> std::ops::Index<u64> for Slots<T> {
    type Output = T;

    /// The object of a value that is known to be there.
    fn index(&self, value: u64) -> &T {
        self.get(value).expect("whoever indexes has looked before, under the same lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_value_comes_back_first() {
        let mut slots = Slots::new(1);
        let values: Vec<_> = (0..3).map(|i| slots.insert(i)).collect();
        assert_eq!(slots.remove(values[2]), Some(2));
        assert_eq!(slots.remove(values[0]), Some(0));
        assert_eq!(slots.remove(values[0]), None);
        assert_eq!(slots.count(), 1);
        assert_eq!((slots.insert(7), slots.insert(8)), (values[0], values[2]));
        assert_eq!(slots.get(values[0]), Some(&7));
        for wrong in [0, 1, 2, values[0] + 1, values[2] + STEP, u64::MAX] {
            assert_eq!(slots.get(wrong), None);
        }
    }
}
