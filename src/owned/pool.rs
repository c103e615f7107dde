#![forbid(unsafe_code)]
//! A private pool: an isolated part of a device's memory, and its owner.

use crate::error::Error;
use crate::process;
use crate::stats::cuddy_stats;

/// An isolated part of a device's memory: what is freed in it serves later requests to it, and nobody
/// else. Blocks outlive it: its memory goes back to the driver with the last of them.
#[derive(Debug)]
pub struct Pool(u64);

impl Pool {
    /// A pool of a device. `limit` is the most that may be reserved in it, in bytes; `None` is no limit.
    ///
    /// # Errors
    /// [`Error::InvalidDevice`], or what the driver says.
    pub fn new(device: i32, limit: Option<u64>) -> Result<Self, Error> {
        let limit = limit.unwrap_or(u64::MAX);
        let options = process::PoolOptions { device, limit, use_on_oom: false };
        process::pool_create(options).map(Self)
    }

    /// Its name, as a `cuddy_pool` of the C functions.
    pub fn id(&self) -> u64 {
        self.0
    }

    /// Runs `work`; what this thread allocates meanwhile on the pool's device comes from the pool.
    ///
    /// # Errors
    /// [`Error::InvalidPool`] when 64 are nested; `work` is not run then.
    pub fn inside<R>(&self, work: impl FnOnce() -> R) -> Result<R, Error> {
        struct Pushed(u64);
        impl Drop for Pushed {
            fn drop(&mut self) {
                // It is the last that was pushed: `work` has popped its own.
                let _ = process::pool_pop(self.0);
            }
        }
        process::pool_push(self.0)?;
        let _pushed = Pushed(self.0);
        Ok(work())
    }

    /// Its counters, all of one moment.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn stats(&self) -> Result<cuddy_stats, Error> {
        process::pool_stats(self.0)
    }

    /// Gives free memory back to the driver until at most `keep` bytes are reserved; how many went.
    ///
    /// # Errors
    /// What the driver says.
    pub fn trim(&self, keep: u64) -> Result<u64, Error> {
        process::pool_trim(self.0, keep)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Nobody could hear of an error.
        let _ = process::pool_destroy(self.0);
    }
}
