//! The meter: what the allocator's calls cost, and nothing else.
//!
//! Every allocator call of a replay goes through [`Meter::call`]. On the simulated device its
//! driver calls and driver time are the differences of the device's own totals, read on both
//! sides of the call; on a GPU the allocator's own count is asked, and the measured time of a call
//! that made driver calls is taken as theirs.

use std::time::{Duration, Instant};

use crate::allocator::Allocator;
use crate::sim::Simulator;

/// Wraps an allocator and adds up what its calls cost.
pub struct Meter<'a> {
    /// Who serves.
    pub allocator: Box<dyn Allocator + 'a>,
    simulator: Option<&'a Simulator>,
    /// Driver calls and nanoseconds in them, since the steady state began.
    steady: Option<(u64, u64)>,
    clock_cost: Duration,
    /// Calls made.
    pub operations: u64,
    host: Duration,
    driver_ns: u64,
}

impl<'a> Meter<'a> {
    /// Begins at zero.
    pub fn new(allocator: Box<dyn Allocator + 'a>, simulator: Option<&'a Simulator>) -> Self {
        Self {
            allocator,
            simulator,
            steady: None,
            clock_cost: clock_cost(),
            operations: 0,
            host: Duration::ZERO,
            driver_ns: 0,
        }
    }

    /// From now on driver calls count as of the steady state too.
    pub fn begin_steady_state(&mut self) {
        self.steady = Some((0, 0));
    }

    /// Makes a call of the allocator.
    pub fn call<T>(&mut self, work: impl FnOnce(&mut (dyn Allocator + 'a)) -> T) -> T {
        let (calls, driver_ns) = self.totals();
        let start = Instant::now();
        let answer = work(self.allocator.as_mut());
        let took = start.elapsed().saturating_sub(self.clock_cost);
        let (calls_after, driver_ns_after) = self.totals();
        self.operations += 1;
        self.host += took;
        let made = calls_after - calls;
        let driver_ns = match self.simulator {
            Some(_) => driver_ns_after - driver_ns,
            None if made > 0 => took.as_nanos() as u64,
            None => 0,
        };
        self.driver_ns += driver_ns;
        if let Some((calls, ns)) = &mut self.steady {
            *calls += made;
            *ns += driver_ns;
        }
        answer
    }

    fn totals(&self) -> (u64, u64) {
        match self.simulator {
            Some(simulator) => (simulator.calls_total(), simulator.driver_time_ns()),
            None => (self.allocator.driver_calls_total(), 0),
        }
    }

    /// Driver calls, and nanoseconds in them, since the steady state began; `None` if it never did.
    pub fn steady(&self) -> Option<(u64, u64)> {
        self.steady
    }

    /// Time in the allocator's driver calls, in nanoseconds.
    pub fn driver_ns(&self) -> u64 {
        self.driver_ns
    }

    /// Mean host time of a call, in nanoseconds.
    pub fn ns_per_op(&self) -> f64 {
        match self.operations {
            0 => 0.0,
            operations => self.host.as_nanos() as f64 / operations as f64,
        }
    }
}

/// What the two readings of the clock cost by themselves: the least of many.
fn clock_cost() -> Duration {
    let pair = || {
        let start = Instant::now();
        start.elapsed()
    };
    (0..1000).map(|_| pair()).min().unwrap_or_default()
}
