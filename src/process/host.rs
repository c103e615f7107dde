#![forbid(unsafe_code)]
//! Page-locked host memory as the program names it: by addresses and raw streams.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use super::configuration::in_force;
use super::log;
use super::start::{Process, started};
use crate::device::{Device, Named};
use crate::driver::StreamHandle;
use crate::error::{DriverError, Error, sentence};
use crate::host::{Host, Want};
use crate::stats::cuddy_host_stats;
use crate::sync::{Lock, refuse_after_fork};
use crate::types::{Address, DeviceId};

/// The memory is page-locked to all contexts (`CU_MEMHOSTALLOC_PORTABLE`).
pub const HOST_PORTABLE: u32 = 1;
/// It is mapped to the device's addresses (`CU_MEMHOSTALLOC_DEVICEMAP`).
pub const HOST_MAPPED: u32 = 2;
/// It is write-combined: slow to read on the host (`CU_MEMHOSTALLOC_WRITECOMBINED`).
pub const HOST_WRITE_COMBINED: u32 = 4;
/// The program records every stream that uses the block.
pub const HOST_STREAMS_RECORDED: u32 = 0x100;

/// What the driver is told.
const DRIVER_FLAGS: u32 = HOST_PORTABLE | HOST_MAPPED | HOST_WRITE_COMBINED;

static HOST: OnceLock<Host> = OnceLock::new();
static MAKING: Lock<(), 0> = Lock::new(());

fn host() -> Result<&'static Host, Error> {
    if let Some(host) = HOST.get() {
        return Ok(host);
    }
    let _one_at_a_time = MAKING.lock();
    let host = Host::new(in_force().caching)?;
    Ok(HOST.get_or_init(|| host))
}

/// Page-locked host memory. 0 for no bytes.
pub fn host_malloc(bytes: u64, flags: u32) -> Result<u64, Error> {
    refuse_after_fork()?;
    if flags & !(DRIVER_FLAGS | HOST_STREAMS_RECORDED) != 0 {
        let why = sentence!(
            "{flags:#x} has bits other than those of CUDDY_HOST_PORTABLE, _MAPPED, _WRITE_COMBINED \
             and _STREAMS_RECORDED"
        );
        return Err(Error::InvalidArgument { argument: "flags", why });
    }
    if bytes == 0 {
        return Ok(0);
    }
    let named = flags & HOST_STREAMS_RECORDED != 0;
    let want = Want { bytes, flags: flags & DRIVER_FLAGS, named };
    let device = || {
        let process = started()?;
        process.device(process.current()?)
    };
    let given = host()?.malloc(want, device).map(|address| address.0);
    given.map_err(|error| log::failed(error, bytes))
}

/// Gives a block back. 0 is no block, and fine.
pub fn host_free(pointer: u64) -> Result<(), Error> {
    if pointer == 0 {
        return Ok(());
    }
    refuse_after_fork()?;
    let host = HOST.get().ok_or(Error::ForeignPointer(Address(pointer)))?;
    host.free(Address(pointer))
}

/// Says that a stream uses a block: after its free it is not used again before the work that the
/// stream had then is over. 0 is no block, and fine.
pub fn host_record_stream(pointer: u64, stream: usize) -> Result<(), Error> {
    if pointer == 0 {
        return Ok(());
    }
    refuse_after_fork()?;
    let address = Address(pointer);
    let host = HOST.get().ok_or(Error::ForeignPointer(address))?;
    let process = started()?;
    let device = match stream {
        Named::ANY => host.device_of(address).ok_or(Error::ForeignPointer(address))?,
        0..=2 => process.device(process.current()?)?,
        handle => process.device_of(StreamHandle(handle))?,
    };
    host.record_stream(address, device, process.name(device, stream)?)
}

/// Gives all that is free back to the driver, and waits for the streams that used it last. How many
/// bytes.
pub fn host_empty_cache() -> Result<u64, Error> {
    refuse_after_fork()?;
    HOST.get().map_or(Ok(0), Host::empty_cache)
}

/// The counters; zeros before the first use.
pub fn host_stats() -> Result<cuddy_host_stats, Error> {
    refuse_after_fork()?;
    Ok(HOST.get().map_or_else(cuddy_host_stats::default, Host::stats))
}

/// Every peak becomes what is now.
pub fn host_reset_peak_stats() -> Result<(), Error> {
    refuse_after_fork()?;
    HOST.get().into_iter().for_each(Host::reset_peaks);
    Ok(())
}

/// Totals and counts of events start at zero again.
pub fn host_reset_accumulated_stats() -> Result<(), Error> {
    refuse_after_fork()?;
    HOST.get().into_iter().for_each(Host::reset_accumulated);
    Ok(())
}

impl Process {
    /// The device of a created stream.
    fn device_of(&'static self, stream: StreamHandle) -> Result<&'static Device, Error> {
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let bad = |error| match error {
            DriverError { code: 1 | 201 | 400 | 709, .. } => {
                Error::InvalidStream(sentence!("{:#x} is not a valid stream: {error}", stream.0))
            }
            error => error.into(),
        };
        let context = match self.driver.stream_context(stream) {
            // The calling thread may have no context at all; a stream is of some device in use, or
            // of one that nobody could name.
            Err(error @ DriverError { code: 201, .. }) => self
                .devices_in_use()
                .find_map(|device| {
                    device.within(|inside| inside.driver().stream_context(stream)).ok()
                })
                .ok_or(error),
            answer => answer,
        }
        .map_err(bad)?;
        let id = match self.driver.current_context()? {
            Some(current) if current == context => self.driver.current_device()?,
            // Which device is only known inside; nothing is asked of this one.
            _ => {
                let inside = self.driver.enter(context, DeviceId(0), &CALLS)?;
                inside.driver().current_device()?
            }
        };
        self.device(id)
    }
}
