//! A hasher for keys that are small numbers of our own making: one multiplication, the same in every run.
#![forbid(unsafe_code)]

use std::hash::{BuildHasherDefault, Hasher};

/// Hashes one integer.
#[derive(Debug, Default)]
pub(crate) struct NumberHasher(u64);

/// For `HashMap<u64, _, FastHash>`.
pub(crate) type FastHash = BuildHasherDefault<NumberHasher>;

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
