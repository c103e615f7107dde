#![forbid(unsafe_code)]
//! A hasher for keys that are a few integers: cheap, and spread over all bits.

use std::hash::{BuildHasherDefault, Hasher};

/// How the tables of this crate hash.
pub(crate) type ByNumber = BuildHasherDefault<Spread>;

/// The running hash: each integer is mixed in by one wide multiplication.
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Spread {
    fn mix(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.mix(u64::from(byte) + 1));
    }
    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }
    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }
    fn write_isize(&mut self, value: isize) {
        self.mix((value as u64).wrapping_add(1));
    }
}
