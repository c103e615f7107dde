#![forbid(unsafe_code)]
//! Limbo: freed blocks that other streams than their own may still be using.
//!
//! A block is due once every use noted for it has passed, whatever any other block waits for.
//! Room for a block's wait is made when its first use is noted, so that freeing never fails.

use std::collections::HashMap;

use crate::error::Error;
use crate::hash::ByNumber;
use crate::types::{Address, PoolId, Stamp, StreamSlot};

/// A freed block and what it waits for.
#[derive(Debug)]
struct Waiting {
    pool: PoolId,
    address: Address,
    bytes: u64,
    uses: Vec<Stamp>,
}

/// The uses noted for live blocks, and the blocks that wait.
#[derive(Debug, Default)]
pub(crate) struct Limbo {
    /// One stamp a stream; its epoch is not known before the free, since all work up to then counts.
    noted: HashMap<u64, Vec<Stamp>, ByNumber>,
    waiting: Vec<Waiting>,
}

impl Limbo {
    /// Notes that a stream uses a live block, beside the block's own.
    pub(crate) fn note(&mut self, address: Address, stream: StreamSlot) -> Result<(), Error> {
        let used = Stamp { stream, epoch: 0 };
        let host = |_| Error::HostOutOfMemory;
        self.noted.try_reserve(1).map_err(host)?;
        self.waiting.try_reserve(self.noted.len() + 1).map_err(host)?;
        if let Some(uses) = self.noted.get_mut(&address.0) {
            if uses.iter().any(|known| known.stream == stream) {
                return Ok(());
            }
            uses.try_reserve(1).map_err(host)?;
            uses.push(used);
            return Ok(());
        }
        let mut uses = Vec::new();
        uses.try_reserve(1).map_err(host)?;
        uses.push(used);
        self.noted.insert(address.0, uses);
        Ok(())
    }

    /// Whether a live block has uses noted.
    #[inline]
    pub(crate) fn is_noted(&self, address: Address) -> bool {
        !self.noted.is_empty() && self.noted.contains_key(&address.0)
    }

    /// Moves a freed block's uses here. `stamp` is asked for each stream what has to pass.
    pub(crate) fn hold(
        &mut self,
        (pool, address): (PoolId, Address),
        bytes: u64,
        mut stamp: impl FnMut(StreamSlot) -> Stamp,
    ) {
        let Some(mut uses) = self.noted.remove(&address.0) else { return };
        for used in &mut uses {
            *used = stamp(used.stream);
        }
        self.waiting.push(Waiting { pool, address, bytes, uses });
    }

    /// Takes out every block whose uses have all passed, and gives it to `due`.
    pub(crate) fn settle(
        &mut self,
        passed: impl Fn(Stamp) -> bool,
        mut due: impl FnMut(PoolId, Address),
    ) -> usize {
        let before = self.waiting.len();
        self.waiting.retain(|block| {
            let over = block.uses.iter().all(|&used| passed(used));
            if over {
                due(block.pool, block.address);
            }
            !over
        });
        before - self.waiting.len()
    }

    /// Whether a block waits that `bytes` could be cut from. Linear in the blocks that wait.
    pub(crate) fn could_serve(&self, bytes: u64) -> bool {
        self.waiting.iter().any(|block| block.bytes >= bytes)
    }

    /// Whether a stream uses a live block, or a block waits for it. Linear.
    pub(crate) fn mentions(&self, stream: StreamSlot) -> bool {
        let is = |used: &Stamp| used.stream == stream;
        self.noted.values().any(|uses| uses.iter().any(is))
            || self.waiting.iter().any(|block| block.uses.iter().any(is))
    }

    /// What the waiting blocks wait for, block by block.
    pub(crate) fn waits(&self, mut each: impl FnMut(u64, Stamp)) {
        for block in &self.waiting {
            block.uses.iter().for_each(|&used| each(block.bytes, used));
        }
    }

    /// What the block waits for that is best waited for when `bytes` are wanted: the smallest that
    /// is large enough, else the largest, of those whose uses `may_wait` all allows to wait for.
    pub(crate) fn best_for(
        &self,
        bytes: u64,
        may_wait: impl Fn(Stamp) -> bool,
    ) -> impl Iterator<Item = Stamp> + '_ {
        let able = |block: &&Waiting| block.uses.iter().all(|&used| may_wait(used));
        let best =
            self.waiting.iter().filter(able).min_by_key(|block| match block.bytes >= bytes {
                true => (false, block.bytes),
                false => (true, u64::MAX - block.bytes),
            });
        best.into_iter().flat_map(|block| block.uses.iter().copied())
    }

    /// How many blocks wait: for checks.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Address = Address(0x1000);
    const B: Address = Address(0x2000);
    const SLOW: StreamSlot = StreamSlot(1);
    const FAST: StreamSlot = StreamSlot(2);

    fn first(stream: StreamSlot) -> Stamp {
        Stamp { stream, epoch: 1 }
    }

    fn settled(limbo: &mut Limbo, passed: impl Fn(Stamp) -> bool) -> Vec<Address> {
        let mut due = Vec::new();
        let count = limbo.settle(passed, |_, address| due.push(address));
        assert_eq!(count, due.len());
        due
    }

    #[test]
    fn a_slow_stream_holds_its_own_blocks_only() {
        let mut limbo = Limbo::default();
        limbo.note(A, SLOW).expect("host memory");
        limbo.note(B, FAST).expect("host memory");
        limbo.hold((PoolId::DEFAULT, A), 512, first);
        limbo.hold((PoolId::DEFAULT, B), 4096, first);
        assert_eq!(settled(&mut limbo, |stamp| stamp.stream == FAST), [B]);
        assert_eq!(settled(&mut limbo, |stamp| stamp.stream == FAST), []);
        assert_eq!(settled(&mut limbo, |_| true), [A]);
        assert_eq!(limbo.len(), 0);
    }

    #[test]
    fn a_block_waits_for_all_its_streams() {
        let mut limbo = Limbo::default();
        limbo.note(A, SLOW).expect("host memory");
        limbo.note(A, FAST).expect("host memory");
        limbo.note(A, FAST).expect("host memory");
        assert!(limbo.is_noted(A) && !limbo.is_noted(B));
        limbo.hold((PoolId::DEFAULT, A), 512, first);
        assert!(!limbo.is_noted(A));
        let mut waits = 0;
        limbo.waits(|_, _| waits += 1);
        assert_eq!(waits, 2);
        assert_eq!(settled(&mut limbo, |stamp| stamp.stream == FAST), []);
        assert_eq!(settled(&mut limbo, |_| true), [A]);
    }

    #[test]
    fn what_has_to_pass_is_asked_at_the_free() {
        let mut limbo = Limbo::default();
        limbo.note(A, SLOW).expect("host memory");
        limbo.hold((PoolId::DEFAULT, A), 512, |stream| Stamp { stream, epoch: 5 });
        assert_eq!(settled(&mut limbo, |stamp| stamp.epoch <= 4), []);
        assert_eq!(settled(&mut limbo, |stamp| stamp.epoch <= 5), [A]);
    }

    #[test]
    fn the_block_to_wait_for_is_the_smallest_that_is_enough() {
        let mut limbo = Limbo::default();
        for (address, stream, bytes) in [(A, SLOW, 4096), (B, FAST, 1024)] {
            limbo.note(address, stream).expect("host memory");
            limbo.hold((PoolId::DEFAULT, address), bytes, first);
        }
        let best =
            |bytes| limbo.best_for(bytes, |_| true).map(|stamp| stamp.stream).collect::<Vec<_>>();
        assert_eq!((best(512), best(1024)), (vec![FAST], vec![FAST]));
        assert_eq!((best(1025), best(8192)), (vec![SLOW], vec![SLOW]));
    }
}
