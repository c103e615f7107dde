#![forbid(unsafe_code)]
//! The counters of one device, and the verbs that move them.
//!
//! At every moment `allocated <= active <= reserved <= reserved peak`, and
//! `requested <= allocated`.

/// Counters of one device. All are 64 bits; bytes unless the name ends in `_count`.
///
/// Set `struct_size` to `sizeof(cuddy_stats)` before the call: no more than that is written, so a
/// program built against an older cuddy.h keeps working. New fields are added at the end only.
///
/// At every moment allocated <= active <= reserved <= reserved_peak, and requested <= allocated.
/// "peak" is the largest value since the last cuddy_reset_peak_memory_stats(), "total" the sum of all
/// that was added since the last cuddy_reset_accumulated_memory_stats().
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct cuddy_stats {
    /// In: sizeof(cuddy_stats) in the caller's header. Out: the bytes that were filled.
    pub struct_size: u64,
    /// Bytes that callers asked for, in live blocks.
    pub requested: u64,
    /// Its peak.
    pub requested_peak: u64,
    /// Its total.
    pub requested_total: u64,
    /// Bytes of live blocks, after rounding to 512.
    pub allocated: u64,
    /// Its peak.
    pub allocated_peak: u64,
    /// Its total.
    pub allocated_total: u64,
    /// Allocated, plus bytes of freed blocks that some stream may still be using.
    pub active: u64,
    /// Its peak.
    pub active_peak: u64,
    /// Physical bytes held from the driver.
    pub reserved: u64,
    /// Its peak.
    pub reserved_peak: u64,
    /// Bytes got from the driver over time.
    pub reserved_total: u64,
    /// Physical bytes kept by the cache: reserved - active.
    pub cached: u64,
    /// Physical bytes kept without an address, ready to be mapped again; part of cached.
    pub unmapped: u64,
    /// The most that may be reserved; UINT64_MAX when there is no limit.
    pub limit: u64,
    /// The largest block that this device could serve from its cache, on one stream.
    pub largest_free: u64,
    /// Bytes that the driver took neither back nor gave: lost to a failed release. Part of
    /// reserved, never used again.
    pub quarantined: u64,
    /// Live blocks.
    pub live_block_count: u64,
    /// Its peak.
    pub live_block_peak_count: u64,
    /// Allocations served.
    pub malloc_count: u64,
    /// Blocks freed.
    pub free_count: u64,
    /// Allocations served from the cache, with no driver call.
    pub hit_count: u64,
    /// Allocations that needed the driver.
    pub miss_count: u64,
    /// Misses served by taking pages from free blocks and mapping them elsewhere.
    pub harvest_count: u64,
    /// Times that the host waited for a stream, to make memory reusable.
    pub wait_count: u64,
    /// Allocations that failed at first and succeeded after memory was taken back.
    pub retry_count: u64,
    /// Allocations that failed for want of memory.
    pub out_of_memory_count: u64,
    /// Freed blocks that wait for a stream.
    pub limbo_block_count: u64,
    /// Driver calls made on behalf of this device.
    pub driver_call_count: u64,
    /// Blocks that a stream got from other streams' free memory.
    pub crossing_count: u64,
    /// Stream waits put in, so that a stream could have another one's memory at once.
    pub stream_wait_count: u64,
    /// Misses served on rung 1: a block of the same stream that was freed meanwhile.
    pub rung_own_count: u64,
    /// Misses served on rung 2: free memory of any stream whose last use was over, or known to be ordered
    /// before.
    pub rung_passed_count: u64,
    /// Misses served on rung 3: fresh memory, while growth was within share_growth.
    pub rung_growth_count: u64,
    /// Misses served on rung 4: another stream's free memory, behind a stream wait.
    pub rung_stream_wait_count: u64,
    /// Misses served on rung 5: fresh memory within the limit.
    pub rung_fresh_count: u64,
    /// Misses that got to rung 6: pages or segments taken back without any wait.
    pub rung_harvest_count: u64,
    /// Misses that got to rung 7: the host waited for the last users of memory.
    pub rung_host_wait_count: u64,
    /// Times that rung 8 was reached: out-of-memory callbacks were called, and the search began
    /// again.
    pub rung_callback_count: u64,
}

/// Names and values of a struct of numbers, as its `Debug` tells them.
pub(crate) fn fields(told: &str) -> impl Iterator<Item = (&str, &str)> {
    let inside = told.split_once('{').map_or("", |it| it.1).trim_end_matches('}');
    let each = inside.split(',').filter_map(|field| field.split_once(':'));
    each.map(|(name, value)| (name.trim(), value.trim()))
}

impl cuddy_stats {
    /// Nothing has happened yet.
    pub(crate) const NONE: Self = Self {
        struct_size: size_of::<Self>() as u64,
        requested: 0,
        requested_peak: 0,
        requested_total: 0,
        allocated: 0,
        allocated_peak: 0,
        allocated_total: 0,
        active: 0,
        active_peak: 0,
        reserved: 0,
        reserved_peak: 0,
        reserved_total: 0,
        cached: 0,
        unmapped: 0,
        limit: u64::MAX,
        largest_free: 0,
        quarantined: 0,
        live_block_count: 0,
        live_block_peak_count: 0,
        malloc_count: 0,
        free_count: 0,
        hit_count: 0,
        miss_count: 0,
        harvest_count: 0,
        wait_count: 0,
        retry_count: 0,
        out_of_memory_count: 0,
        limbo_block_count: 0,
        driver_call_count: 0,
        crossing_count: 0,
        stream_wait_count: 0,
        rung_own_count: 0,
        rung_passed_count: 0,
        rung_growth_count: 0,
        rung_stream_wait_count: 0,
        rung_fresh_count: 0,
        rung_harvest_count: 0,
        rung_host_wait_count: 0,
        rung_callback_count: 0,
    };

    /// A block was freed, and may be used again at once.
    #[inline]
    pub(crate) fn freed(&mut self, bytes: u64, requested: u64) {
        self.freed_to_limbo(bytes, requested);
        self.settled(bytes);
    }

    /// The driver gave memory.
    pub(crate) fn grew(&mut self, bytes: u64) {
        self.reserved += bytes;
        self.reserved_total += bytes;
        self.reserved_peak = self.reserved_peak.max(self.reserved);
    }

    /// The driver took memory back.
    pub(crate) fn shrank(&mut self, bytes: u64) {
        self.reserved -= bytes;
    }

    /// The device was reset: nothing is left. Peaks and totals stay.
    pub(crate) fn lose_everything(&mut self) {
        self.requested = 0;
        self.allocated = 0;
        self.active = 0;
        self.reserved = 0;
        self.unmapped = 0;
        self.quarantined = 0;
        self.live_block_count = 0;
        self.limbo_block_count = 0;
    }

    /// Every total, and every count of events, starts at zero again.
    pub(crate) fn reset_accumulated(&mut self) {
        self.requested_total = 0;
        self.allocated_total = 0;
        self.reserved_total = 0;
        self.malloc_count = 0;
        self.free_count = 0;
        self.hit_count = 0;
        self.miss_count = 0;
        self.harvest_count = 0;
        self.wait_count = 0;
        self.retry_count = 0;
        self.out_of_memory_count = 0;
        self.driver_call_count = 0;
        self.crossing_count = 0;
        self.stream_wait_count = 0;
        self.rung_own_count = 0;
        self.rung_passed_count = 0;
        self.rung_growth_count = 0;
        self.rung_stream_wait_count = 0;
        self.rung_fresh_count = 0;
        self.rung_harvest_count = 0;
        self.rung_host_wait_count = 0;
        self.rung_callback_count = 0;
    }
}

/// Counters of page-locked host memory. All are 64 bits; bytes unless the name ends in `_count`.
///
/// Set `struct_size` as for cuddy_stats. "peak" and "total" as there. At every moment
/// requested <= allocated <= active <= reserved <= reserved_peak.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct cuddy_host_stats {
    /// In: sizeof(cuddy_host_stats) in the caller's header. Out: the bytes that were filled.
    pub struct_size: u64,
    /// Bytes that callers asked for, in live blocks.
    pub requested: u64,
    /// Its peak.
    pub requested_peak: u64,
    /// Its total.
    pub requested_total: u64,
    /// Bytes of live blocks, after rounding to 512.
    pub allocated: u64,
    /// Its peak.
    pub allocated_peak: u64,
    /// Its total.
    pub allocated_total: u64,
    /// Allocated, plus bytes of freed blocks that some stream may still be using.
    pub active: u64,
    /// Its peak.
    pub active_peak: u64,
    /// Bytes that are page-locked: got from the driver, and not given back.
    pub reserved: u64,
    /// Its peak.
    pub reserved_peak: u64,
    /// Bytes got from the driver over time.
    pub reserved_total: u64,
    /// Bytes kept by the cache: reserved - active - quarantined.
    pub cached: u64,
    /// Bytes that the driver failed to take back. Part of reserved, never used again.
    pub quarantined: u64,
    /// Live blocks.
    pub live_block_count: u64,
    /// Its peak.
    pub live_block_peak_count: u64,
    /// Freed blocks that wait for a stream.
    pub limbo_block_count: u64,
    /// Driver allocations held.
    pub segment_count: u64,
    /// Allocations served.
    pub malloc_count: u64,
    /// Blocks freed.
    pub free_count: u64,
    /// Allocations served from the cache.
    pub hit_count: u64,
    /// Allocations that needed more memory from the driver.
    pub miss_count: u64,
    /// Driver allocations given back.
    pub release_count: u64,
    /// Times that the host waited for a stream, to make memory reusable.
    pub wait_count: u64,
    /// Allocations that failed at first and succeeded after memory was given back or waited for.
    pub retry_count: u64,
    /// Allocations that failed for want of memory.
    pub out_of_memory_count: u64,
    /// Times that out-of-memory callbacks were called.
    pub callback_count: u64,
}

impl cuddy_host_stats {
    /// The driver gave memory.
    pub(crate) fn grew(&mut self, bytes: u64) {
        self.reserved += bytes;
        self.reserved_total += bytes;
        self.reserved_peak = self.reserved_peak.max(self.reserved);
        self.segment_count += 1;
    }

    /// The driver took memory back.
    pub(crate) fn shrank(&mut self, bytes: u64) {
        self.reserved -= bytes;
        self.segment_count -= 1;
        self.release_count += 1;
    }

    /// Every total, and every count of events, starts at zero again.
    pub(crate) fn reset_accumulated(&mut self) {
        *self = Self {
            requested_total: 0,
            allocated_total: 0,
            reserved_total: 0,
            malloc_count: 0,
            free_count: 0,
            hit_count: 0,
            miss_count: 0,
            release_count: 0,
            wait_count: 0,
            retry_count: 0,
            out_of_memory_count: 0,
            callback_count: 0,
            ..*self
        };
    }
}

/// The verbs of what has counters of its blocks: the same for device memory and for host memory.
macro_rules! moved_by_blocks {
    ($stats:ty) => {
        impl $stats {
            /// A request of `requested` bytes got a block of `bytes`.
            #[inline]
            pub(crate) fn served(&mut self, bytes: u64, requested: u64) {
                self.requested += requested;
                self.requested_total += requested;
                self.requested_peak = self.requested_peak.max(self.requested);
                self.allocated += bytes;
                self.allocated_total += bytes;
                self.allocated_peak = self.allocated_peak.max(self.allocated);
                self.active += bytes;
                self.active_peak = self.active_peak.max(self.active);
                self.live_block_count += 1;
                self.live_block_peak_count = self.live_block_peak_count.max(self.live_block_count);
                self.malloc_count += 1;
            }

            /// A block was freed, but streams may still be using it: it stays active.
            pub(crate) fn freed_to_limbo(&mut self, bytes: u64, requested: u64) {
                self.requested -= requested;
                self.allocated -= bytes;
                self.live_block_count -= 1;
                self.free_count += 1;
                self.limbo_block_count += 1;
            }

            /// A block left limbo.
            pub(crate) fn settled(&mut self, bytes: u64) {
                self.active -= bytes;
                self.limbo_block_count -= 1;
            }

            /// Every peak becomes what is now.
            pub(crate) fn reset_peaks(&mut self) {
                self.requested_peak = self.requested;
                self.allocated_peak = self.allocated;
                self.active_peak = self.active;
                self.reserved_peak = self.reserved;
                self.live_block_peak_count = self.live_block_count;
            }
        }
    };
}

moved_by_blocks!(cuddy_stats);
moved_by_blocks!(cuddy_host_stats);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inequalities_hold_through_a_life() {
        let mut stats = cuddy_stats::NONE;
        stats.grew(2 << 20);
        stats.served(1024, 1000);
        stats.served(512, 1);
        stats.freed_to_limbo(1024, 1000);
        assert_eq!((stats.requested, stats.allocated, stats.active), (1, 512, 1536));
        assert_eq!((stats.limbo_block_count, stats.live_block_count), (1, 1));
        stats.settled(1024);
        stats.freed(512, 1);
        assert_eq!((stats.requested, stats.allocated, stats.active), (0, 0, 0));
        assert_eq!(
            (stats.requested_peak, stats.allocated_peak, stats.active_peak),
            (1001, 1536, 1536)
        );
        assert_eq!((stats.malloc_count, stats.free_count, stats.live_block_peak_count), (2, 2, 2));
        stats.shrank(2 << 20);
        assert_eq!(
            (stats.reserved, stats.reserved_peak, stats.reserved_total),
            (0, 2 << 20, 2 << 20)
        );
    }

    #[test]
    fn resets_touch_what_they_name_only() {
        let mut stats = cuddy_stats::NONE;
        stats.served(2048, 2048);
        stats.served(1024, 1024);
        stats.freed(1024, 1024);
        stats.reset_peaks();
        assert_eq!(
            (stats.allocated, stats.allocated_peak, stats.allocated_total),
            (2048, 2048, 3072)
        );
        stats.reset_accumulated();
        assert_eq!((stats.allocated, stats.allocated_peak, stats.allocated_total), (2048, 2048, 0));
        stats.freed(2048, 2048);
        assert_eq!((stats.allocated, stats.allocated_peak, stats.free_count), (0, 2048, 1));
    }
}
