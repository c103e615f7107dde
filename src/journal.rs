#![forbid(unsafe_code)]
//! The journal: what happened to memory last, in a ring of fixed size.
//!
//! `noted == kept + lost`: what is kept are the last entries, in the order in which they were noted.

use crate::error::Error;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A block was handed out.
    Alloc,
    /// A block was given back.
    Free,
    /// A request found no memory.
    OutOfMemory,
    /// More memory is held from the driver.
    Growth,
    /// Less memory is held from the driver.
    Release,
}

impl Kind {
    /// Its name in snapshots.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alloc => "alloc",
            Self::Free => "free",
            Self::OutOfMemory => "out_of_memory",
            Self::Growth => "growth",
            Self::Release => "release",
        }
    }
}

/// One thing that happened. Numbers that do not belong to its kind are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Microseconds since 1970.
    pub time_us: u64,
    pub kind: Kind,
    pub device: i32,
    pub stream: u64,
    pub address: u64,
    /// Of the block; by how much memory grew or shrank.
    pub bytes: u64,
    /// As they were asked for.
    pub requested: u64,
    /// The scope's number; 0 is none.
    pub scope: u32,
    /// Which thread it was: numbers from 1, as threads came.
    pub thread: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Journal {
    ring: Vec<Entry>,
    capacity: usize,
    /// Where the next entry goes: the oldest one's place, once the ring is full.
    next: usize,
    noted: u64,
}

/// What the manual promises of the memory that history takes.
const _: () = assert!(size_of::<Entry>() == 64);

impl Journal {
    /// One that keeps nothing.
    pub const fn new() -> Self {
        Self { ring: Vec::new(), capacity: 0, next: 0, noted: 0 }
    }

    /// Forgets everything; the last `capacity` entries are kept from now on, 0 for none.
    pub fn resize(&mut self, capacity: usize) -> Result<(), Error> {
        let mut ring = Vec::new();
        ring.try_reserve_exact(capacity).map_err(|_| Error::HostOutOfMemory)?;
        *self = Self { ring, capacity, next: 0, noted: 0 };
        Ok(())
    }

    /// The most that it keeps.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many entries were noted, and how many of them are lost.
    pub fn counts(&self) -> (u64, u64) {
        (self.noted, self.noted - self.ring.len() as u64)
    }

    /// Notes an entry; the oldest goes if there is no more room.
    #[inline]
    pub fn note(&mut self, entry: Entry) {
        if self.capacity == 0 {
            return;
        }
        match self.ring.get_mut(self.next) {
            Some(oldest) => *oldest = entry,
            None => self.ring.push(entry), // there is room for `capacity` of them
        }
        self.next = if self.next + 1 == self.capacity { 0 } else { self.next + 1 };
        self.noted += 1;
    }

    /// What is kept, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        let full = self.ring.len() == self.capacity;
        let (young, old) = self.ring.split_at(if full { self.next } else { 0 });
        old.iter().chain(young)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> Entry {
        Entry {
            time_us: number,
            kind: Kind::Alloc,
            device: 0,
            stream: 1,
            address: 512 * number,
            bytes: 512,
            requested: 1,
            scope: 0,
            thread: 1,
        }
    }

    #[test]
    fn the_last_entries_are_kept_in_order() {
        let mut journal = Journal::new();
        journal.note(entry(0));
        assert_eq!((journal.counts(), journal.entries().count()), ((0, 0), 0));
        for capacity in [1, 2, 7] {
            journal.resize(capacity).expect("memory");
            for number in 0..20 {
                journal.note(entry(number));
                let kept: Vec<u64> = journal.entries().map(|entry| entry.time_us).collect();
                let first = (number + 1).saturating_sub(capacity as u64);
                assert_eq!(kept, (first..=number).collect::<Vec<_>>());
                assert_eq!(journal.counts(), (number + 1, first));
            }
        }
        journal.resize(0).expect("memory");
        assert_eq!((journal.capacity(), journal.counts()), (0, (0, 0)));
    }
}
