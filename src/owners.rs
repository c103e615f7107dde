#![forbid(unsafe_code)]
//! Which device, and which of its pools, serves an address: two bytes for every 2 MiB of the address
//! space, found in two steps and without a lock.
//!
//! Only what has been given an owner takes memory: a leaf covers 32 GiB.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::error::{Error, sentence};
use crate::types::{Address, DeviceId, PoolId};

/// log2 of the bytes that share one owner.
const CELL_BITS: u32 = 21;
/// log2 of the cells of a leaf.
const LEAF_BITS: u32 = 14;
/// log2 of the leaves; together they reach 2^50, beyond what any CUDA system hands out.
const ROOT_BITS: u32 = 15;

/// The largest number of devices that a process can use.
pub(crate) const MOST_DEVICES: usize = 64;
/// The largest number of pools that a device can have at once, the default one among them.
pub(crate) const MOST_POOLS: usize = 1 << (16 - DEVICE_BITS);
/// Bits of a cell that name the device; the others name the pool.
const DEVICE_BITS: u32 = 7;
const DEVICE_MASK: u32 = (1 << DEVICE_BITS) - 1;

/// The table. Cells hold the device's number plus one, and the pool's above it; zero is nobody.
///
/// A cell keeps its owner after the memory is gone: the owner then says that it does not know the
/// address. The latest owner of a cell is the one that counts: where segments of several pools share
/// a cell, its pool is but the first to be asked.
pub(crate) struct Owners {
    root: [OnceLock<Box<[AtomicU16]>>; 1 << ROOT_BITS],
}

impl Owners {
    /// A table in which nobody owns anything.
    pub(crate) const fn new() -> Self {
        Self { root: [const { OnceLock::new() }; 1 << ROOT_BITS] }
    }

    /// Says that this pool of `device` serves the `bytes` bytes from `start` on.
    pub(crate) fn set(
        &self,
        start: Address,
        bytes: u64,
        device: DeviceId,
        pool: PoolId,
    ) -> Result<(), Error> {
        if device.0 as usize >= MOST_DEVICES || pool.0 as usize >= MOST_POOLS {
            return Err(Error::Internal("a device or a pool beyond what an owner's mark can name"));
        }
        let mark = (pool.0 << DEVICE_BITS | (device.0 + 1)) as u16;
        let last = start
            .0
            .checked_add(bytes.saturating_sub(1))
            .filter(|last| last >> (CELL_BITS + LEAF_BITS + ROOT_BITS) == 0);
        let Some(last) = last else {
            return Err(Error::NotSupported(sentence!(
                "the driver handed out {start}, an address beyond the 2^50 that Cuddy can serve"
            )));
        };
        for cell in start.0 >> CELL_BITS..=last >> CELL_BITS {
            self.leaf(cell)?[place(cell)].store(mark, Ordering::Release);
        }
        Ok(())
    }

    /// The device that serves `address`, and its pool, or `None`.
    #[inline]
    pub(crate) fn get(&self, address: Address) -> Option<(DeviceId, PoolId)> {
        let cell = address.0 >> CELL_BITS;
        let leaf = self.root.get((cell >> LEAF_BITS) as usize)?.get()?;
        match leaf[place(cell)].load(Ordering::Acquire) {
            0 => None,
            mark => {
                let mark = u32::from(mark);
                Some((DeviceId((mark & DEVICE_MASK) - 1), PoolId(mark >> DEVICE_BITS)))
            }
        }
    }

    /// The leaf of a cell, made now if it is not there.
    fn leaf(&self, cell: u64) -> Result<&[AtomicU16], Error> {
        let slot = &self.root[(cell >> LEAF_BITS) as usize];
        if let Some(leaf) = slot.get() {
            return Ok(leaf);
        }
        let mut cells = Vec::new();
        cells.try_reserve_exact(1 << LEAF_BITS).map_err(|_| Error::HostOutOfMemory)?;
        cells.resize_with(1 << LEAF_BITS, || AtomicU16::new(0));
        Ok(slot.get_or_init(|| cells.into_boxed_slice()))
    }
}

/// A cell's place in its leaf.
fn place(cell: u64) -> usize {
    (cell & ((1 << LEAF_BITS) - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    static OWNERS: Owners = Owners::new();

    #[test]
    fn ranges_and_their_edges() {
        let (gib, mib) = (1u64 << 30, 1u64 << 20);
        let start = Address(31 * gib);
        let main = PoolId::DEFAULT;
        OWNERS.set(start, 2 * gib, DeviceId(0), main).expect("in reach");
        OWNERS.set(Address(40 * gib), 2 * mib, DeviceId(63), PoolId(511)).expect("in reach");
        assert_eq!(OWNERS.get(Address(start.0 - 1)), None);
        assert_eq!(OWNERS.get(start), Some((DeviceId(0), main)));
        assert_eq!(OWNERS.get(Address(start.0 + 2 * gib - 1)), Some((DeviceId(0), main)));
        assert_eq!(OWNERS.get(Address(start.0 + 2 * gib)), None);
        assert_eq!(OWNERS.get(Address(40 * gib + 2 * mib - 1)), Some((DeviceId(63), PoolId(511))));
        OWNERS.set(Address(40 * gib), 512, DeviceId(1), main).expect("in reach");
        assert_eq!(OWNERS.get(Address(40 * gib)), Some((DeviceId(1), main)));
    }

    #[test]
    fn addresses_out_of_reach_have_no_owner() {
        assert_eq!(OWNERS.get(Address(u64::MAX)), None);
        assert_eq!(OWNERS.get(Address(1 << 50)), None);
        assert!(OWNERS.set(Address((1 << 50) - 512), 1024, DeviceId(0), PoolId::DEFAULT).is_err());
        let start = Address(1 << 30);
        assert!(OWNERS.set(start, 512, DeviceId(MOST_DEVICES as u32), PoolId::DEFAULT).is_err());
        assert!(OWNERS.set(start, 512, DeviceId(0), PoolId(MOST_POOLS as u32)).is_err());
        assert_eq!(OWNERS.get(start), None);
        assert!(OWNERS.set(Address(u64::MAX - 512), 1024, DeviceId(0), PoolId::DEFAULT).is_err());
    }
}
