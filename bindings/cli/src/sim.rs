//! The simulated device's controls, as far as a replay needs them.

use std::collections::BTreeMap;

/// The simulated driver, loaded into this process. Device 0 is meant throughout.
pub struct Simulator;

impl Simulator {
    /// Loads it, so that `libcuda.so.1` means it from now on in this process.
    pub fn load() -> Result<Self, String> {
        Err("the simulated driver was not found".to_owned())
    }
    /// Sets a key before the driver is initialised.
    pub fn configure(&self, _key: &str, _value: &str) -> Result<(), String> {
        Ok(())
    }
    /// Driver calls so far, by function.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
    /// Driver calls so far.
    pub fn calls_total(&self) -> u64 {
        0
    }
    /// Virtual time spent in driver calls so far, in nanoseconds.
    pub fn driver_time_ns(&self) -> u64 {
        0
    }
    /// Physical memory in use, in bytes.
    pub fn used(&self) -> u64 {
        0
    }
    /// Its peak.
    pub fn used_peak(&self) -> u64 {
        0
    }
    /// Complaints of the checker.
    pub fn report_count(&self) -> u64 {
        0
    }
    /// The first complaints, in full.
    pub fn reports(&self, _most: usize) -> Vec<String> {
        Vec::new()
    }
    /// Accesses that the checker judged.
    pub fn accesses_checked(&self) -> u64 {
        0
    }
    /// Launches of which it does not know what they touch.
    pub fn unknown_launches(&self) -> u64 {
        0
    }
    /// Changes one byte of device memory behind everybody's back.
    pub fn flip_byte(&self, _address: u64) {}
}
