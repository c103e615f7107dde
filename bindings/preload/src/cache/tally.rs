#![forbid(unsafe_code)]
//! The **tally**: what the cache did.

/// What happened so far, and the peaks of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests served from the cache.
    pub hits: u64,
    /// Requests that the driver served.
    pub misses: u64,
    /// Frees that kept the block.
    pub kept: u64,
    /// Frees of blocks that must not be reused.
    pub tainted: u64,
    /// Frees of blocks larger than the cap.
    pub too_large: u64,
    /// Cached blocks given back to the driver.
    pub evicted: u64,
    /// Bytes that the program has, as asked, now and at most.
    pub live: u64,
    pub live_peak: u64,
    /// Bytes held from the driver, now and at most.
    pub held: u64,
    pub held_peak: u64,
    /// Bytes cached at most.
    pub cached_peak: u64,
}

impl Tally {
    /// Nothing happened.
    pub const NONE: Self = Self {
        hits: 0,
        misses: 0,
        kept: 0,
        tainted: 0,
        too_large: 0,
        evicted: 0,
        live: 0,
        live_peak: 0,
        held: 0,
        held_peak: 0,
        cached_peak: 0,
    };
}
