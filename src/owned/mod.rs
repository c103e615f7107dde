//! The Rust face: device memory that frees itself, and the streams, pools and scopes that it is of.
//!
//! Owners are in here; functions that own nothing ([`crate::memory_stats`], [`crate::empty_cache`]...)
//! are the process's own. Nothing in here decides anything: convert, one call down, convert.

mod pool;
mod scope;
mod stream;

use std::ffi::c_void;
use std::marker::PhantomData;
use std::time::Duration;

use crate::error::{Error, sentence};
use crate::mutants::mutant;
use crate::process;

pub use self::pool::Pool;
pub use self::scope::scope;
pub use self::stream::{HeldStream, Stream};

/// Where memory is to come from, and how: each field has a usual value.
///
/// ```no_run
/// use cuddy::{Buffer, Request, Stream};
///
/// let there = Request { device: 1, stream: Stream::PER_THREAD, ..Request::default() };
/// let weights = Buffer::<f32>::with(1 << 20, &there)?;
/// # Ok::<(), cuddy::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The device's number, or [`crate::CURRENT_DEVICE`], which is the default.
    pub device: i32,
    /// The stream that uses the memory first; [`Stream::LEGACY`] is the default.
    pub stream: Stream,
    /// The address is a multiple of this, a power of two up to 2 MiB; 0 is 512.
    pub alignment: u64,
    /// The pool; `None` is the thread's current one (see [`Pool::inside`]).
    pub pool: Option<&'a Pool>,
    /// The longest wait for streams to finish with memory; `None` is as the option `wait_ms` says.
    pub longest_wait: Option<Duration>,
}

impl Default for Request<'_> {
    fn default() -> Self {
        Self {
            device: process::CURRENT_DEVICE,
            stream: Stream::LEGACY,
            alignment: 0,
            pool: None,
            longest_wait: None,
        }
    }
}

/// An array of elements in device memory, not initialised. The host cannot touch them.
///
/// Dropped, it goes back in the order of its stream, from whatever thread: no wait, no driver call.
/// Use on another stream is said by [`Buffer::record_stream`] before that.
///
/// ```no_run
/// use cuddy::Buffer;
///
/// let scratch = Buffer::<f32>::new(1 << 20)?; // legacy stream, current device
/// // kernels get scratch.as_ptr() and scratch.len()
/// # Ok::<(), cuddy::Error>(())
/// ```
#[derive(Debug)]
pub struct Buffer<T: Copy> {
    /// 0 where there is no memory.
    address: u64,
    len: usize,
    stream: Stream,
    elements: PhantomData<T>,
}

impl<T: Copy> Buffer<T> {
    /// Memory of the current device for the legacy default stream.
    ///
    /// # Errors
    /// As [`Buffer::with`].
    pub fn new(len: usize) -> Result<Self, Error> {
        Self::with(len, &Request::default())
    }

    /// Memory as the request says.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], whose text explains where memory is; whatever is wrong with the request;
    /// what the driver says.
    pub fn with(len: usize, request: &Request<'_>) -> Result<Self, Error> {
        let bytes = (len as u64).checked_mul(size_of::<T>() as u64).ok_or_else(|| {
            let each = size_of::<T>();
            Error::OutOfMemory(sentence!(
                "{len} elements of {each} bytes were asked for: more than the address space has"
            ))
        })?;
        let address = process::malloc_in(
            request.pool.map_or(process::CURRENT_POOL, Pool::id),
            bytes,
            request.alignment,
            request.device,
            request.stream.raw(),
            request.longest_wait.map(|wait| wait.as_millis().try_into().unwrap_or(u64::MAX)),
        )?;
        Ok(Self { address, len, stream: request.stream, elements: PhantomData })
    }

    /// Where the elements are, as the device sees them; null without memory.
    pub fn as_ptr(&self) -> *const T {
        std::ptr::without_provenance(self.address as usize)
    }

    /// The same, for kernels that write.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        std::ptr::without_provenance_mut(self.address as usize)
    }

    /// The address as the driver's `CUdeviceptr`.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The stream that it was made for.
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// Says that another stream uses it too: it is not used again before the work is over that this
    /// stream has been given when the buffer is dropped.
    ///
    /// # Errors
    /// [`Error::InvalidStream`], or what the driver says.
    pub fn record_stream(&self, other: Stream) -> Result<(), Error> {
        if mutant("owned-record-forgotten") {
            return Ok(());
        }
        process::record_stream(self.address, other.raw())
    }

    /// Gives it back now: dropping does the same, but nobody hears of an error.
    ///
    /// # Errors
    /// The memory is lost to the program then, as with every error of a free.
    pub fn free(self) -> Result<(), Error> {
        process::free(self.into_address())
    }

    /// Gives it to `next`, whose work from now on the program has ordered behind every use of it.
    ///
    /// # Errors
    /// As [`Buffer::free`].
    pub fn free_on(self, next: Stream) -> Result<(), Error> {
        process::free_on(self.into_address(), next.raw())
    }

    /// Gives it back once an event is over.
    ///
    /// # Safety
    /// `event` is a `CUevent` (a `cudaEvent_t`) that exists.
    ///
    /// # Errors
    /// As [`Buffer::free`].
    pub unsafe fn free_after(self, event: *mut c_void) -> Result<(), Error> {
        process::free_after(self.into_address(), event.expose_provenance())
    }

    /// Says what it is for: leaks, snapshots and reports show the label.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: it was allocated while neither scopes nor history were in use.
    pub fn annotate(&self, label: &str) -> Result<(), Error> {
        process::annotate(self.address, label)
    }

    /// Hands the block over: whoever has the address frees it by `cuddy_free`.
    pub fn into_address(self) -> u64 {
        std::mem::ManuallyDrop::new(self).address
    }
}

impl<T: Copy> Drop for Buffer<T> {
    fn drop(&mut self) {
        if mutant("owned-drop-keeps") {
            return;
        }
        // Nobody could hear of an error: at exit there is none left to tell.
        let _ = process::free(self.address);
    }
}
