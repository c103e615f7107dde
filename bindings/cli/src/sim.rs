//! The simulated device's controls, as far as a replay needs them.

use std::collections::BTreeMap;

use simcuda_control::Sim;

/// The simulated driver, loaded into this process. Device 0 is meant throughout.
pub struct Simulator(&'static Sim);

impl Simulator {
    /// Loads it, so that `libcuda.so.1` means it from now on in this process.
    pub fn load() -> Result<Self, String> {
        simcuda_control::load().map(Self).map_err(|error| error.to_string())
    }

    /// Sets a key before the driver is initialised.
    pub fn configure(&self, key: &str, value: &str) -> Result<(), String> {
        let set = self.0.configure(key, value);
        set.map_err(|error| format!("the simulated driver does not take {key} = {value}: {error}"))
    }

    /// Driver calls so far, by function.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.0.calls_by_name().into_iter().collect()
    }

    /// Driver calls so far.
    pub fn calls_total(&self) -> u64 {
        self.0.calls_total()
    }

    /// Virtual time spent in driver calls so far, in nanoseconds.
    pub fn driver_time_ns(&self) -> u64 {
        self.0.driver_time_ns()
    }

    /// Physical memory in use, in bytes.
    pub fn used(&self) -> u64 {
        self.0.used(0)
    }

    /// Its peak.
    pub fn used_peak(&self) -> u64 {
        self.0.used_peak(0)
    }

    /// Complaints of the checker.
    pub fn report_count(&self) -> u64 {
        self.0.report_count()
    }

    /// The first complaints, in full.
    pub fn reports(&self, most: usize) -> Vec<String> {
        let mut reports = self.0.reports();
        reports.truncate(most);
        reports
    }

    /// Accesses that the checker judged.
    pub fn accesses_checked(&self) -> u64 {
        self.0.accesses_checked()
    }

    /// Launches of which it does not know what they touch.
    pub fn unknown_launches(&self) -> u64 {
        self.0.unknown_launches()
    }

    /// Changes one byte of device memory behind everybody's back; an unmapped one stays as it is.
    pub fn flip_byte(&self, address: u64) -> Result<(), String> {
        let mut byte = [0];
        let flipped = self.0.peek(address, &mut byte).and_then(|()| {
            byte[0] ^= 0x10;
            self.0.poke(address, &byte)
        });
        flipped.map_err(|error| error.to_string())
    }
}
