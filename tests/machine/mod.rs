//! A simulated machine for tests: the driver's functions, and short names for what scenarios do with
//! memory, streams and captures.

#![allow(dead_code)]

use std::ffi::c_void;

use cuddy::error::Error;
use cuddy::process;
use cuddy::stats::cuddy_stats;
use simcuda_control::Sim;

/// One MiB, in bytes.
pub const MIB: u64 = 1 << 20;
/// One GiB, in bytes.
pub const GIB: u64 = 1 << 30;
/// The driver's code for "no memory".
pub const OUT_OF_MEMORY: i32 = 2;
/// A code that no driver function of ours expects.
pub const UNKNOWN: i32 = 999;

/// The simulated driver, loaded, and its functions.
pub struct Machine {
    pub sim: &'static Sim,
}

/// Calls a function of the simulated driver by name, with the types of cuda.h.
macro_rules! cu {
    ($machine:expr, $name:literal ($($value:expr => $type:ty),*)) => {{
        let found = $machine.sim.symbol($name).unwrap_or_else(|| panic!("{} is missing", $name));
        // SAFETY: the simulated driver exports the function with this signature, as cuda.h has it;
        // pointers among the arguments are to locals that outlive the call.
        unsafe {
            let function = std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn($($type),*) -> i32,
            >(found);
            function($($value),*)
        }
    }};
}

mod captures;
mod scenarios;

#[allow(unused_imports)]
pub use self::{captures::*, scenarios::*};

impl Machine {
    pub fn new() -> Self {
        let sim = simcuda_control::load().expect("the simulated driver is built");
        // Whatever the shell of a developer has; once the driver is initialised it is too late.
        let _ = sim.configure("visible_devices", "all");
        Self { sim }
    }

    /// `cuInit`, and the device's primary context made current; its handle.
    pub fn use_device(&self, device: i32) -> usize {
        assert_eq!(cu!(self, "cuInit"(0 => u32)), 0);
        let mut context = 0usize;
        let to = &mut context;
        assert_eq!(cu!(self, "cuDevicePrimaryCtxRetain"(to => *mut usize, device => i32)), 0);
        self.set_context(context);
        context
    }

    /// Ends the scenario as failed if it has not ended by itself after so many seconds: for threads
    /// that wait for each other, one of which may have failed.
    pub fn ends_within(&self, seconds: u32) {
        // SAFETY: it takes a number; the signal's default action ends the process.
        unsafe { libc::alarm(seconds) };
    }

    pub fn set_context(&self, context: usize) {
        assert_eq!(cu!(self, "cuCtxSetCurrent"(context => usize)), 0);
    }

    /// The current context; 0 is none. Asks again if a fault that was meant for others strikes.
    pub fn context(&self) -> usize {
        let mut context = 0usize;
        for _ in 0..3 {
            let to = &mut context;
            if cu!(self, "cuCtxGetCurrent"(to => *mut usize)) == 0 {
                return context;
            }
        }
        panic!("cuCtxGetCurrent fails");
    }

    /// A context of its own on a device, made current.
    pub fn create_context(&self, device: i32) -> usize {
        let mut context = 0usize;
        let to = &mut context;
        assert_eq!(cu!(self, "cuCtxCreate_v2"(to => *mut usize, 0 => u32, device => i32)), 0);
        context
    }

    pub fn destroy_context(&self, context: usize) {
        assert_eq!(cu!(self, "cuCtxDestroy_v2"(context => usize)), 0);
    }

    pub fn reset_device(&self, device: i32) {
        assert_eq!(cu!(self, "cuDevicePrimaryCtxReset_v2"(device => i32)), 0);
    }

    /// A new stream that does not wait for the legacy one.
    pub fn stream(&self) -> usize {
        let mut stream = 0usize;
        let to = &mut stream;
        assert_eq!(cu!(self, "cuStreamCreate"(to => *mut usize, 1 => u32)), 0);
        stream
    }

    /// A new stream, opened on device 0.
    pub fn held_stream(&self) -> usize {
        let stream = self.stream();
        process::stream_open(0, stream).expect("a stream");
        stream
    }

    /// So many of them.
    pub fn held_streams<const COUNT: usize>(&self) -> [usize; COUNT] {
        [(); COUNT].map(|()| self.held_stream())
    }

    pub fn destroy_stream(&self, stream: usize) {
        assert_eq!(cu!(self, "cuStreamDestroy_v2"(stream => usize)), 0);
    }

    pub fn synchronize(&self, stream: usize) {
        assert_eq!(cu!(self, "cuStreamSynchronize"(stream => usize)), 0);
    }

    pub fn synchronize_all(&self) {
        assert_eq!(cu!(self, "cuCtxSynchronize"()), 0);
    }

    /// Fills memory on a stream.
    pub fn fill(&self, stream: usize, at: u64, value: u8, bytes: u64) {
        let bytes = bytes as usize;
        let code = cu!(self, "cuMemsetD8Async"(
            at => u64, value => u8, bytes => usize, stream => usize
        ));
        assert_eq!(code, 0, "filling {bytes} bytes at {at:#x}");
    }

    /// Copies memory on a stream.
    pub fn copy(&self, stream: usize, to: u64, from: u64, bytes: u64) {
        let bytes = bytes as usize;
        let code = cu!(self, "cuMemcpyDtoDAsync_v2"(
            to => u64, from => u64, bytes => usize, stream => usize
        ));
        assert_eq!(code, 0, "copying {bytes} bytes");
    }

    /// Makes what `second` does from now on come after what `first` has been given.
    pub fn order(&self, first: usize, second: usize) {
        let mut event = 0usize;
        let to = &mut event;
        assert_eq!(cu!(self, "cuEventCreate"(to => *mut usize, 2 => u32)), 0);
        assert_eq!(cu!(self, "cuEventRecord"(event => usize, first => usize)), 0);
        assert_eq!(cu!(self, "cuStreamWaitEvent"(second => usize, event => usize, 0 => u32)), 0);
        assert_eq!(cu!(self, "cuEventDestroy_v2"(event => usize)), 0);
    }

    /// A new event, recorded on a stream.
    pub fn event(&self, stream: usize) -> usize {
        let mut event = 0usize;
        let to = &mut event;
        assert_eq!(cu!(self, "cuEventCreate"(to => *mut usize, 2 => u32)), 0);
        assert_eq!(cu!(self, "cuEventRecord"(event => usize, stream => usize)), 0);
        event
    }

    pub fn destroy_event(&self, event: usize) {
        assert_eq!(cu!(self, "cuEventDestroy_v2"(event => usize)), 0);
    }

    /// Makes a stream wait until [`Sim::gate_open`].
    pub fn gate(&self, stream: usize, gate: u64) {
        let (mut module, mut function) = (0usize, 0usize);
        let to = &mut module;
        let image = c"image".as_ptr() as usize;
        assert_eq!(cu!(self, "cuModuleLoadData"(to => *mut usize, image => usize)), 0);
        let to = &mut function;
        let name = c"simcuda_gate".as_ptr() as usize;
        let code = cu!(self, "cuModuleGetFunction"(
            to => *mut usize, module => usize, name => usize
        ));
        assert_eq!(code, 0);
        let parameters = [&raw const gate as usize];
        let parameters = parameters.as_ptr() as usize;
        let code = cu!(self, "cuLaunchKernel"(
            function => usize, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32,
            0 => u32, stream => usize, parameters => usize, 0 => usize
        ));
        assert_eq!(code, 0);
    }

    /// Whether a device may read and write at an address.
    pub fn may_use(&self, device: i32, at: u64) -> bool {
        let mut flags = 0u64;
        // A CUmemLocation: the type of a device, and its number.
        let location = [1i32, device];
        let (to, of) = (&mut flags, &raw const location as usize);
        let code = cu!(self, "cuMemGetAccess"(to => *mut u64, of => usize, at => u64));
        assert_eq!(code, 0, "asking for the rights at {at:#x}");
        flags == 3
    }

    /// The byte at an address, outside all order.
    pub fn byte(&self, at: u64) -> u8 {
        let mut byte = [0];
        self.sim.peek(at, &mut byte).expect("the address is mapped");
        byte[0]
    }

    /// Fails if the checker has anything to say.
    pub fn assert_no_reports(&self) {
        let reports = self.sim.reports();
        assert!(reports.is_empty(), "{} reports, the first:\n{}", reports.len(), reports[0]);
    }

    /// Fails if the checker has anything to say, or has looked at nothing.
    pub fn assert_clean(&self) {
        self.assert_no_reports();
        assert!(self.sim.accesses_checked() > 0, "the checker has compared nothing");
    }

    /// Physical memory of a device, and the driver's objects that hold it.
    pub fn holdings(&self) -> (u64, u64, u64) {
        let sim = self.sim;
        (sim.objects("handles"), sim.objects("mappings"), sim.objects("allocations"))
    }
}

/// A block on the legacy stream of a device.
pub fn malloc(bytes: u64, device: i32) -> Result<u64, Error> {
    process::malloc(bytes, 0, device, 0)
}

/// A block on a stream of device 0.
pub fn malloc_on(bytes: u64, stream: usize) -> Result<u64, Error> {
    process::malloc(bytes, 0, 0, stream)
}

pub fn is_out_of_memory(outcome: &Result<u64, Error>) -> bool {
    matches!(outcome, Err(Error::OutOfMemory(_)))
}

/// Whether two blocks, each an address and a size, share a byte.
pub fn overlap((a, a_bytes): (u64, u64), (b, b_bytes): (u64, u64)) -> bool {
    a < b + b_bytes && b < a + a_bytes
}

pub fn stats(device: i32) -> cuddy_stats {
    process::stats(device).expect("statistics")
}

/// The counters without those that count events rather than memory.
pub fn memory_only(stats: cuddy_stats) -> cuddy_stats {
    cuddy_stats {
        driver_call_count: 0,
        out_of_memory_count: 0,
        hit_count: 0,
        miss_count: 0,
        malloc_count: 0,
        free_count: 0,
        retry_count: 0,
        harvest_count: 0,
        wait_count: 0,
        requested_total: 0,
        allocated_total: 0,
        reserved_total: 0,
        requested_peak: 0,
        allocated_peak: 0,
        active_peak: 0,
        reserved_peak: 0,
        live_block_peak_count: 0,
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
        ..stats
    }
}

/// Numbers that look random and are the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
