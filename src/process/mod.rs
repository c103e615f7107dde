#![forbid(unsafe_code)]
//! The process: which devices there are, which of them serves an address, what is configured, and
//! what a fork or the process's end means for every call.
//!
//! Nothing happens before the first call that needs it: the driver is loaded by the first call that
//! names a device, and a device gets a context by the first call that uses it. What is made stays
//! until the process ends; nothing here has a destructor. All functions are thread-safe.

mod configuration;
mod exporter;
mod facts;
mod graphs;
mod host;
mod log;
mod metrics;
mod observers;
mod paths;
mod pools;
mod recorder;
mod shortage;
mod start;
mod watch;

use std::fmt::Write;

use self::start::{OWNERS, Process, started, started_already};
use crate::device::{Device, Named, Want};
use crate::error::{Error, Words, sentence};
use crate::size::GRANULE;
use crate::stats::cuddy_stats;
use crate::sync::{is_watched, must_detour, refuse_after_fork};
use crate::types::{Address, DeviceId, PoolId};

pub use self::configuration::{option, options, rejected_options, set_option};
pub use self::facts::{DeviceFacts, device_count, device_facts, driver_calls, driver_version};
pub use self::graphs::{graph_begin, graph_destroy, graph_end};
pub use self::host::{
    HOST_MAPPED, HOST_PORTABLE, HOST_STREAMS_RECORDED, HOST_WRITE_COMBINED, host_empty_cache,
    host_free, host_malloc, host_record_stream, host_reset_accumulated_stats,
    host_reset_peak_stats, host_stats,
};
pub use self::observers::{
    EVENT_GROWTH, EVENT_OUT_OF_MEMORY, EVENT_RELEASE, HOST_MEMORY, unobserve,
};
pub(crate) use self::observers::{Event, observe};
pub use self::pools::{
    CURRENT_POOL, DEFAULT_POOL, PoolOptions, pool_create, pool_destroy, pool_empty_cache, pool_pop,
    pool_push, pool_reset_peaks, pool_set_limit, pool_set_share, pool_stats, pool_trim,
};

pub use self::exporter::export_metrics;
pub use self::metrics::prometheus;
pub use self::recorder::flight_recorder;
pub use self::shortage::last_out_of_memory;
pub use self::watch::{
    annotate, leaks, record_history, scope_begin, scope_end, scopes, snapshot, tagged,
};

/// In place of a device's number: the device of the calling thread's current CUDA context, or
/// device 0 if it has none.
pub const CURRENT_DEVICE: i32 = -1;
/// In place of a device's number, where a function says so: every device in use.
pub const ALL_DEVICES: i32 = -2;
/// In place of a stream: none in particular. A block of it may be used by anybody at once, and its
/// free is behind the work of all streams.
pub const ANY_STREAM: usize = Named::ANY;
/// The largest alignment that can be asked for, in bytes.
const LARGEST_ALIGNMENT: u64 = 2 << 20;

/// What is known about a live block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// Where it starts.
    pub address: u64,
    /// What may be used: the request rounded up, in bytes.
    pub bytes: u64,
    /// What was asked for, in bytes.
    pub requested: u64,
    /// The device that it lies on.
    pub device: u32,
    /// The stream's handle, as it was passed to malloc.
    pub stream: usize,
    /// The stream's unique id; 0 when it was never asked for (built-in streams).
    pub stream_id: u64,
}

/// Allocates `bytes` bytes, aligned to `alignment` (a power of two up to 2 MiB; 0 and whatever is
/// below 512 means 512), on `device`, for use on `stream`. The answer is the address; 0 for no bytes.
///
/// Default streams (0, 1 and 2) are those of the device's primary context; with
/// [`CURRENT_DEVICE`], of the current context.
#[inline(always)]
pub fn malloc(bytes: u64, alignment: u64, device: i32, stream: usize) -> Result<u64, Error> {
    malloc_in(CURRENT_POOL, bytes, alignment, device, stream, None)
}

/// The same in a pool: one of [`pool_create`], [`CURRENT_POOL`] or [`DEFAULT_POOL`]; and waiting for
/// memory no longer than `wait_ms` milliseconds; `None` is as configured.
#[inline(always)]
pub fn malloc_in(
    pool: u64,
    bytes: u64,
    alignment: u64,
    device: i32,
    stream: usize,
    wait_ms: Option<u64>,
) -> Result<u64, Error> {
    let asked = Asked { pool, bytes, alignment, device, stream, wait_ms };
    if asked.is_plain()
        && let Some(address) = off_shelf(bytes, device, stream)
    {
        return Ok(address);
    }
    malloc_missed(asked)
}

/// What a request asks for: as [`malloc_in`] has it.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// One of [`pool_create`], [`CURRENT_POOL`] or [`DEFAULT_POOL`].
    pub pool: u64,
    /// Bytes.
    pub bytes: u64,
    /// A power of two up to 2 MiB, or 0.
    pub alignment: u64,
    /// A device's number, or [`CURRENT_DEVICE`].
    pub device: i32,
    /// The stream that uses the block first.
    pub stream: usize,
    /// The longest wait for memory, in milliseconds; `None` is as configured.
    pub wait_ms: Option<u64>,
}

impl Asked {
    /// Whether a shelf could serve it.
    #[inline]
    fn is_plain(&self) -> bool {
        self.pool <= DEFAULT_POOL
            && (self.alignment == 0
                || self.alignment.is_power_of_two() && self.alignment <= GRANULE)
    }
}

/// A block off the calling thread's shelf, if there is one of the size; `None` says nothing else.
///
/// Nothing in here waits, allocates, calls the driver or can panic.
#[inline(always)]
pub fn off_shelf(bytes: u64, device: i32, stream: usize) -> Option<u64> {
    if must_detour() { None } else { shelf_serves(bytes, device, stream) }
}

/// [`off_shelf`], whether somebody watches or not.
#[inline]
fn shelf_serves(bytes: u64, device: i32, stream: usize) -> Option<u64> {
    if self::pools::any_pushed() {
        return None;
    }
    let device = started_already()?.device_in_use(DeviceId(u32::try_from(device).ok()?))?;
    device.off_shelf(Named { raw: stream, context: None }, bytes).map(|address| address.0)
}

/// Frees a block to the calling thread's shelf. `false` says only that this has not been done.
///
/// Nothing in here waits, allocates, calls the driver or can panic.
#[inline]
pub fn to_shelf(pointer: u64) -> bool {
    !must_detour() && shelf_takes(pointer)
}

/// [`to_shelf`], whether somebody watches or not.
#[inline]
fn shelf_takes(pointer: u64) -> bool {
    owner(pointer).is_some_and(|(_, device, _)| device.to_shelf(Address(pointer)))
}

/// What [`malloc_in`] does when there is nothing on the shelf, or somebody watches.
#[inline(never)]
pub fn malloc_missed(asked: Asked) -> Result<u64, Error> {
    let served = if is_watched() { watch::malloc(asked) } else { serve(asked) };
    served.map_err(|error| match error {
        Error::OutOfMemory(text) => log::failed(shortage::happened(text, asked), asked.bytes),
        error => log::failed(error, asked.bytes),
    })
}

/// [`malloc_missed`], not watched.
#[inline]
fn serve(asked: Asked) -> Result<u64, Error> {
    let Asked { pool, bytes, alignment, device, stream, wait_ms } = asked;
    refuse_after_fork()?;
    if alignment != 0 && (!alignment.is_power_of_two() || alignment > LARGEST_ALIGNMENT) {
        let why = sentence!("{alignment} is not a power of two from 1 to {LARGEST_ALIGNMENT}");
        return Err(Error::InvalidArgument { argument: "alignment", why });
    }
    if bytes == 0 {
        return Ok(0);
    }
    let process = started()?;
    let (device, stream) = process.place(device, stream)?;
    let pool = self::pools::pool_on(device, pool)?;
    let want = Want { bytes, alignment: alignment.max(GRANULE), stream, pool, wait_ms };
    device.malloc(want).map(|address| address.0)
}

/// Gives a block back. 0 is no block, and fine.
#[inline(always)]
pub fn free(pointer: u64) -> Result<(), Error> {
    match to_shelf(pointer) {
        true => Ok(()),
        false => free_missed(pointer),
    }
}

/// What [`free`] does with what cannot be put on the shelf, or where somebody watches.
#[inline(never)]
pub fn free_missed(pointer: u64) -> Result<(), Error> {
    if pointer != 0 && is_watched() {
        return watch::free(pointer);
    }
    give(pointer)
}

/// [`free_missed`], not watched.
fn give(pointer: u64) -> Result<(), Error> {
    if pointer == 0 {
        return Ok(());
    }
    refuse_after_fork()?;
    let (_, device, pool) = served(pointer)?;
    device.free(pool, Address(pointer))
}

/// Gives a block back to `stream`: the caller knows that its work from now on is ordered behind every
/// use of the block. 0 is no block, and fine.
pub fn free_on(pointer: u64, stream: usize) -> Result<(), Error> {
    if pointer == 0 {
        return Ok(());
    }
    refuse_after_fork()?;
    let (process, device, pool) = served(pointer)?;
    let named = process.name(device, stream)?;
    watch::around(pointer, || device.free_on(pool, Address(pointer), named))
}

/// Gives a block back once what `event` (a `CUevent`) holds by now is over. 0 is no block, and fine.
pub fn free_after(pointer: u64, event: usize) -> Result<(), Error> {
    if pointer == 0 {
        return Ok(());
    }
    refuse_after_fork()?;
    let (_, device, pool) = served(pointer)?;
    watch::around(pointer, || device.free_after(pool, Address(pointer), event))
}

/// Says that the program has made `thief` wait for all that `donor` had been given.
pub fn note_wait(device: i32, thief: usize, donor: usize) -> Result<(), Error> {
    let process = started()?;
    let (device, thief) = process.place(device, thief)?;
    let donor = Named { raw: donor, context: thief.context };
    device.note_wait(thief, donor)
}

/// Says that `stream` uses the block too: after its free, it is not used again before the work that
/// the stream had then is over. A default stream is that of the current context, if this is one of
/// the block's device, else of the primary context. 0 is no block, and fine.
pub fn record_stream(pointer: u64, stream: usize) -> Result<(), Error> {
    if pointer == 0 {
        return Ok(());
    }
    refuse_after_fork()?;
    let (process, device, pool) = served(pointer)?;
    let named = process.name(device, stream)?;
    device.record_stream(pool, Address(pointer), named)
}

/// What is known about the live block that `pointer` is the start of, or lies in.
pub fn block_info(pointer: u64) -> Result<BlockInfo, Error> {
    refuse_after_fork()?;
    let (_, device, pool) = served(pointer)?;
    let info = device.info(pool, Address(pointer))?;
    Ok(BlockInfo {
        address: info.address.0,
        bytes: info.bytes,
        requested: info.requested,
        device: device.id().0,
        stream: info.handle,
        stream_id: info.id,
    })
}

/// Says that a created stream lives until it is retired: its handle may be kept.
pub fn stream_open(device: i32, stream: usize) -> Result<(), Error> {
    let process = started()?;
    let (device, named) = process.place(device, stream)?;
    device.open_stream(named)
}

/// The same for a stream whose captures Cuddy is to find by itself: each call asks.
pub fn stream_open_capturable(device: i32, stream: usize) -> Result<(), Error> {
    let process = started()?;
    let (device, named) = process.place(device, stream)?;
    device.open_capturable(named)
}

/// Says that a stream is about to be destroyed. Its handle is never touched again.
pub fn stream_retire(device: i32, stream: usize) -> Result<(), Error> {
    let process = started()?;
    let (device, named) = process.place(device, stream)?;
    device.retire_stream(named)
}

/// Gives all cached memory of a device, or of [`ALL_DEVICES`], back to the driver; waits for the
/// streams that used it last. How many bytes were given back.
pub fn empty_cache(device: i32) -> Result<u64, Error> {
    trim(device, 0)
}

/// Gives cached memory back until no more than `keep` bytes are reserved on the device (on each, for
/// [`ALL_DEVICES`]). How many bytes were given back.
pub fn trim(device: i32, keep: u64) -> Result<u64, Error> {
    let mut given = 0;
    each_in_use(device, |device| {
        given += device.trim(keep)?;
        Ok(())
    })?;
    Ok(given)
}

/// Lets `peer` use the memory that is allocated on `device`, what there is and what comes. Nothing is
/// made on the peer.
pub fn enable_peer_access(device: i32, peer: i32) -> Result<(), Error> {
    set_peer_access(device, peer, true)
}

/// Ends [`enable_peer_access`].
pub fn disable_peer_access(device: i32, peer: i32) -> Result<(), Error> {
    set_peer_access(device, peer, false)
}

fn set_peer_access(device: i32, peer: i32, enabled: bool) -> Result<(), Error> {
    let process = started()?;
    let (id, peer) = (process.id(device)?, process.id(peer)?);
    match enabled {
        true => process.device(id)?.set_peer(peer, true),
        // What was never used has no peers.
        false => process.device_in_use(id).map_or(Ok(()), |device| device.set_peer(peer, false)),
    }
}

/// Lets time pass for an idle program: gives back what has decayed on a device, or on each of
/// [`ALL_DEVICES`]. Waits for nobody. How many bytes were given back.
pub fn tick(device: i32) -> Result<u64, Error> {
    let mut given = 0;
    each_in_use(device, |device| {
        given += device.tick()?;
        Ok(())
    })?;
    Ok(given)
}

/// Keeps the pages under `bytes` bytes from `pointer` on where they are, until [`unpin`]; 0 bytes is
/// the rest of the block.
pub fn pin(pointer: u64, bytes: u64) -> Result<(), Error> {
    refuse_after_fork()?;
    let (_, device, pool) = served(pointer)?;
    device.pin(pool, Address(pointer), bytes)
}

/// Ends one [`pin`] of the same range.
pub fn unpin(pointer: u64, bytes: u64) -> Result<(), Error> {
    refuse_after_fork()?;
    let (_, device, pool) = served(pointer)?;
    device.unpin(pool, Address(pointer), bytes)
}

/// Sets the most that may be reserved on a device, or on each of [`ALL_DEVICES`] that there are; 0
/// and `u64::MAX` are no limit. What is cached above it is given back; an error says that this failed
/// on a device, the limits are set all the same.
pub fn set_memory_limit(device: i32, bytes: u64) -> Result<(), Error> {
    let limit = if bytes == 0 { u64::MAX } else { bytes };
    let process = started()?;
    let set = |id| process.set_limit(DeviceId(id), limit);
    process.ids(device)?.map(set).fold(Ok(()), Result::and)
}

/// The same as a fraction of the device's memory, above 0 and up to 1.
pub fn set_memory_fraction(device: i32, fraction: f64) -> Result<(), Error> {
    if !(fraction > 0.0 && fraction <= 1.0) {
        let why = sentence!("{fraction} is not above 0 and up to 1");
        return Err(Error::InvalidArgument { argument: "fraction", why });
    }
    let process = started()?;
    let set = |id| {
        let share = start::share(process.total(DeviceId(id))?, fraction);
        process.set_limit(DeviceId(id), share)
    };
    process.ids(device)?.map(set).fold(Ok(()), Result::and)
}

/// The most that may be reserved on a device, in bytes; `u64::MAX` is no limit.
pub fn memory_limit(device: i32) -> Result<u64, Error> {
    let process = started()?;
    let id = process.id(device)?;
    process.limit(id)
}

/// Free and total bytes of a device. What is cached counts as free, as far as the limit allows. The
/// device is used by this call: it gets a context, as with `cudaMemGetInfo`.
pub fn mem_get_info(device: i32) -> Result<(u64, u64), Error> {
    let process = started()?;
    process.device(process.id(device)?)?.memory_info()
}

/// The counters of a device; zeros (and the limit) if it has not been used.
pub fn stats(device: i32) -> Result<cuddy_stats, Error> {
    let process = started()?;
    let id = process.id(device)?;
    match process.device_in_use(id) {
        Some(device) => Ok(device.stats()),
        None => Ok(cuddy_stats { limit: process.limit(id)?, ..cuddy_stats::NONE }),
    }
}

/// Every peak of a device, or of [`ALL_DEVICES`], becomes what is now.
pub fn reset_peak_stats(device: i32) -> Result<(), Error> {
    each_in_use(device, |device| {
        device.reset_peaks();
        Ok(())
    })
}

/// Totals and counts of events of a device, or of [`ALL_DEVICES`], start at zero again.
pub fn reset_accumulated_stats(device: i32) -> Result<(), Error> {
    each_in_use(device, |device| {
        device.reset_accumulated();
        Ok(())
    })
}

/// A page of text about a device, or one for each of [`ALL_DEVICES`].
pub fn summary(device: i32) -> Result<String, Error> {
    if device == ALL_DEVICES {
        let mut pages = Words::default();
        let mut between = "";
        each_in_use(device, |device| {
            // What host memory has no room for is cut.
            let _ = write!(pages, "{between}{}", device.summary());
            between = "\n";
            Ok(())
        })?;
        return Ok(pages.into_string());
    }
    let process = started()?;
    let id = process.id(device)?;
    Ok(match process.device_in_use(id) {
        Some(device) => device.summary(),
        None => crate::device::untouched(id.0),
    })
}

/// Calls `each` for a device if it is in use, or for every one that is. Creates nothing.
fn each_in_use(
    device: i32,
    mut each: impl FnMut(&'static Device) -> Result<(), Error>,
) -> Result<(), Error> {
    refuse_after_fork()?;
    if device != ALL_DEVICES {
        let process = started()?;
        let id = process.id(device)?;
        return process.device_in_use(id).map_or(Ok(()), each);
    }
    let Some(process) = started_already() else { return Ok(()) };
    let mut outcome = Ok(());
    for device in process.devices_in_use() {
        if let Err(error) = each(device) {
            outcome = Err(error);
        }
    }
    outcome
}

/// The device that serves an address, and the pool of it that is the first to be asked.
#[inline]
fn owner(pointer: u64) -> Option<(&'static Process, &'static Device, PoolId)> {
    let (id, pool) = OWNERS.get(Address(pointer))?;
    let process = started_already()?;
    Some((process, process.device_guessed(id)?, pool))
}

/// The same; an error if there is none.
fn served(pointer: u64) -> Result<(&'static Process, &'static Device, PoolId), Error> {
    owner(pointer).ok_or(Error::ForeignPointer(Address(pointer)))
}

impl Process {
    /// The device and the stream that a caller names; the device is opened if it is not in use.
    #[inline]
    fn place(&'static self, device: i32, stream: usize) -> Result<(&'static Device, Named), Error> {
        if device >= 0 {
            let device = self.device(self.id(device)?)?;
            return Ok((device, Named { raw: stream, context: None }));
        }
        let device = self.device(self.id(device)?)?;
        Ok((device, self.name(device, stream)?))
    }

    /// A stream, by its handle; a default stream is that of the current context, if this is one of
    /// the device.
    fn name(&self, device: &Device, stream: usize) -> Result<Named, Error> {
        let mut named = Named { raw: stream, context: None };
        if stream <= 2
            && let Some(context) = self.driver.current_context()?
            && self.driver.current_device()? == device.id()
        {
            named.context = device.home_if_other(context)?;
        }
        Ok(named)
    }

    /// The device's number, checked.
    #[inline]
    fn id(&self, device: i32) -> Result<DeviceId, Error> {
        match u32::try_from(device) {
            Ok(id) if id < self.count() => Ok(DeviceId(id)),
            Err(_) if device == CURRENT_DEVICE => self.current(),
            _ => Err(Error::InvalidDevice { device: i64::from(device), count: self.count() }),
        }
    }

    /// The devices that a number stands for: one, or all that there are.
    fn ids(&self, device: i32) -> Result<std::ops::Range<u32>, Error> {
        if device == ALL_DEVICES {
            return Ok(0..self.count());
        }
        let id = self.id(device)?.0;
        Ok(id..id + 1)
    }
}
