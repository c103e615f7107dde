//! Who serves the memory of a replay.
//!
//! Everything here is timed and its driver calls are counted as the allocator's; the replayer's
//! own calls go through [`Gpu`]'s counted methods instead.

use std::collections::BTreeMap;

use crate::gpu::{Gpu, Stream};

/// Why the allocator could not do it, in its own words.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// One paragraph or more.
    pub text: String,
    /// Whether memory was short, rather than something wrong.
    pub out_of_memory: bool,
}

/// The allocator's own account of itself. In bytes, but for those that say otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Account {
    /// Asked for, in live blocks: now and its peak.
    pub requested: (u64, u64),
    /// The same after rounding to 512.
    pub allocated: (u64, u64),
    /// Live, or freed and perhaps still in use by a stream.
    pub active: u64,
    /// Held from the driver: now and its peak.
    pub reserved: (u64, u64),
    /// Blocks that were given out: how many.
    pub mallocs: u64,
    /// Blocks that were freed: how many.
    pub frees: u64,
    /// Blocks that are live: how many.
    pub live_blocks: u64,
}

/// An allocator under replay, on device 0.
pub trait Allocator {
    /// Memory for use on `stream`.
    fn malloc(&mut self, bytes: u64, stream: Stream) -> Result<u64, Refusal>;
    /// Gives a block back, in the order of its own stream.
    fn free(&mut self, address: u64) -> Result<(), Refusal>;
    /// `stream` uses the block too.
    fn record_stream(&mut self, address: u64, stream: Stream) -> Result<(), Refusal>;
    /// Unused memory goes back to the driver.
    fn empty_cache(&mut self) -> Result<(), Refusal>;
    /// A stream was made, and will live until the end.
    fn open_stream(&mut self, stream: Stream) -> Result<(), Refusal>;
    /// Its counters, if it keeps any.
    fn account(&self) -> Option<Account>;
    /// Driver calls that it counted itself, by function.
    fn driver_calls(&self) -> BTreeMap<String, u64>;
    /// How many these are in all; cheap.
    fn driver_calls_total(&self) -> u64;
    /// Its memory summary, if it has one.
    fn summary(&self) -> Option<String>;
}

/// Bare driver calls: each block is a `cuMemAlloc`, each free a `cuMemFree`, which waits for the
/// device; so a block recorded on other streams needs nothing more.
pub struct DriverCalls<'g> {
    gpu: &'g Gpu,
    allocs: u64,
    frees: u64,
}

impl<'g> DriverCalls<'g> {
    /// Over the device in use.
    pub fn new(gpu: &'g Gpu) -> Self {
        Self { gpu, allocs: 0, frees: 0 }
    }
}

impl Allocator for DriverCalls<'_> {
    fn malloc(&mut self, bytes: u64, _stream: Stream) -> Result<u64, Refusal> {
        self.allocs += 1;
        self.gpu.mem_alloc(bytes).map_err(|error| Refusal {
            out_of_memory: error.is_out_of_memory(),
            text: format!("{error} for {bytes} bytes"),
        })
    }

    fn free(&mut self, address: u64) -> Result<(), Refusal> {
        self.frees += 1;
        let refusal = |text| Refusal { text, out_of_memory: false };
        self.gpu.mem_free(address).map_err(|error| refusal(error.to_string()))
    }

    fn record_stream(&mut self, _address: u64, _stream: Stream) -> Result<(), Refusal> {
        Ok(())
    }

    fn empty_cache(&mut self) -> Result<(), Refusal> {
        Ok(())
    }

    fn open_stream(&mut self, _stream: Stream) -> Result<(), Refusal> {
        Ok(())
    }

    fn account(&self) -> Option<Account> {
        None
    }

    fn driver_calls(&self) -> BTreeMap<String, u64> {
        let calls = [("cuMemAlloc", self.allocs), ("cuMemFree", self.frees)];
        calls.into_iter().filter(|&(_, n)| n > 0).map(|(name, n)| (name.to_owned(), n)).collect()
    }

    fn driver_calls_total(&self) -> u64 {
        self.allocs + self.frees
    }

    fn summary(&self) -> Option<String> {
        None
    }
}
