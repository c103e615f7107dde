//! Records: who used the bytes. All accesses of one operation share one record.
//!
//! A record lives while a span names it: `uses == number of mentions in all spans`, plus one while
//! its operation is being judged.
#![forbid(unsafe_code)]

use super::Who;

/// One operation, as the spans remember it.
#[derive(Debug)]
pub(crate) struct Record {
    pub slot: u32,
    pub time: u64,
    pub number: u64,
    pub label: String,
    pub who: Who,
    uses: u32,
}

/// The records alive, by index.
#[derive(Debug, Default)]
pub(crate) struct Records {
    all: Vec<Record>,
    free: Vec<u32>,
}

impl Records {
    /// A new record with one use, the caller's.
    pub fn add(&mut self, slot: u32, time: u64, number: u64, label: String, who: Who) -> u32 {
        let record = Record { slot, time, number, label, who, uses: 1 };
        if let Some(id) = self.free.pop() {
            self.all[id as usize] = record;
            return id;
        }
        self.all.push(record);
        u32::try_from(self.all.len() - 1).expect("fewer than 2^32 operations are remembered")
    }

    #[inline]
    pub fn get(&self, id: u32) -> &Record {
        &self.all[id as usize]
    }

    #[inline]
    pub fn hold(&mut self, id: u32) {
        self.all[id as usize].uses += 1;
    }

    #[inline]
    pub fn release(&mut self, id: u32) {
        let record = &mut self.all[id as usize];
        record.uses -= 1;
        if record.uses == 0 {
            record.label = String::new();
            self.free.push(id);
        }
    }

    /// How many records are alive.
    pub fn alive(&self) -> usize {
        self.all.len() - self.free.len()
    }
}
