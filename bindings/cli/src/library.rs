//! Cuddy as the one who serves: through its C functions, as any program would.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int, c_void};

use cuddy::abi::{cache, limits, memory, options, statistics, streams, version};
use cuddy::error::cuddy_status;
use cuddy::stats::cuddy_stats;

use crate::allocator::{Account, Allocator, Refusal};
use crate::gpu::Stream;

/// Cuddy, on one device.
pub struct CuddyLibrary {
    device: c_int,
}

impl CuddyLibrary {
    /// On the device of that number.
    pub fn new(device: u32) -> Self {
        Self { device: device as c_int }
    }

    /// Sets an option, before first use.
    pub fn set_option(&self, key: &str, value: &str) -> Result<(), Refusal> {
        let text = |text: &str| CString::new(text).map_err(|_| refusal("a zero byte in an option"));
        let (key, value) = (text(key)?, text(value)?);
        // SAFETY: both are C strings that live through the call.
        checked(unsafe { options::cuddy_set_option(key.as_ptr(), value.as_ptr()) })
    }

    /// Limits what may be held from the driver, in bytes.
    pub fn set_memory_limit(&self, bytes: u64) -> Result<(), Refusal> {
        checked(limits::cuddy_set_memory_limit(self.device, bytes as usize))
    }

    /// All counters.
    pub fn stats(&self) -> Result<cuddy_stats, Refusal> {
        let struct_size = size_of::<cuddy_stats>() as u64;
        let mut stats = cuddy_stats { struct_size, ..cuddy_stats::default() };
        // SAFETY: `stats` is a live local whose size it says.
        checked(unsafe { statistics::cuddy_memory_stats(self.device, &mut stats) }).map(|()| stats)
    }
}

fn refusal(text: &str) -> Refusal {
    Refusal { text: text.to_owned(), out_of_memory: false }
}

/// Turns a status into a result, with the thread's last error as text.
fn checked(status: cuddy_status) -> Result<(), Refusal> {
    if status == cuddy_status::CUDDY_OK {
        return Ok(());
    }
    // SAFETY: never null, ended by zero, and not changed before this thread's next failure.
    let text = unsafe { CStr::from_ptr(version::cuddy_last_error()) };
    Err(Refusal {
        text: text.to_string_lossy().into_owned(),
        out_of_memory: status == cuddy_status::CUDDY_ERROR_OUT_OF_MEMORY,
    })
}

fn handle(stream: Stream) -> *mut c_void {
    stream.0 as *mut c_void
}

impl Allocator for CuddyLibrary {
    fn malloc(&mut self, bytes: u64, stream: Stream) -> Result<u64, Refusal> {
        let mut address = std::ptr::null_mut();
        let bytes = bytes as usize;
        // SAFETY: `address` is a live local; the stream lives until the end.
        let status =
            unsafe { memory::cuddy_malloc(&mut address, bytes, self.device, handle(stream)) };
        checked(status).map(|()| address as u64)
    }

    fn free(&mut self, address: u64) -> Result<(), Refusal> {
        checked(memory::cuddy_free(address as *mut c_void))
    }

    fn record_stream(&mut self, address: u64, stream: Stream) -> Result<(), Refusal> {
        checked(memory::cuddy_record_stream(address as *mut c_void, handle(stream)))
    }

    fn empty_cache(&mut self) -> Result<(), Refusal> {
        // SAFETY: the place for the freed bytes may be null.
        checked(unsafe { cache::cuddy_empty_cache(self.device, std::ptr::null_mut()) })
    }

    fn open_stream(&mut self, stream: Stream) -> Result<(), Refusal> {
        checked(streams::cuddy_stream_open(self.device, handle(stream)))
    }

    fn account(&self) -> Option<Account> {
        let stats = self.stats().ok()?;
        Some(Account {
            requested: (stats.requested, stats.requested_peak),
            allocated: (stats.allocated, stats.allocated_peak),
            active: stats.active,
            reserved: (stats.reserved, stats.reserved_peak),
            mallocs: stats.malloc_count,
            frees: stats.free_count,
            live_blocks: stats.live_block_count,
        })
    }

    fn driver_calls(&self) -> BTreeMap<String, u64> {
        let calls = cuddy::process::driver_calls().into_iter();
        calls.filter(|&(_, n)| n > 0).map(|(name, n)| (name.to_owned(), n)).collect()
    }

    fn driver_calls_total(&self) -> u64 {
        self.stats().map(|stats| stats.driver_call_count).unwrap_or(0)
    }

    fn summary(&self) -> Option<String> {
        let mut needed = 0;
        let mut buffer = vec![0u8; 1 << 16];
        // SAFETY: the buffer has the size that is given, and `needed` is a live local.
        let status = unsafe {
            statistics::cuddy_memory_summary(
                self.device,
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &mut needed,
            )
        };
        checked(status).ok()?;
        let text = CStr::from_bytes_until_nul(&buffer).ok()?;
        Some(text.to_string_lossy().into_owned())
    }
}
