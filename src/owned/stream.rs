//! A stream: its handle, and how long that is good.

use std::ffi::c_void;

use crate::error::Error;
use crate::process;

/// A stream of the driver's, not owned: a `CUstream`, which a `cudaStream_t` is too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(usize);

impl Stream {
    /// The legacy default stream.
    pub const LEGACY: Self = Self(1);
    /// The calling thread's own default stream.
    pub const PER_THREAD: Self = Self(2);
    /// None in particular, as `cudaMalloc` has it: memory that anybody may use at once, and whose free
    /// is behind the work of all streams.
    pub const ANY: Self = Self(process::ANY_STREAM);

    /// A stream by its handle.
    ///
    /// # Safety
    /// Whenever this value is passed to Cuddy, and as long as a [`HeldStream`] of it was not dropped, the
    /// handle must be a stream that exists.
    pub unsafe fn from_raw(handle: *mut c_void) -> Self {
        Self(handle.expose_provenance())
    }

    /// The handle.
    pub(super) fn raw(self) -> usize {
        self.0
    }

    /// Tells Cuddy that the stream lives as long as the answer does, which saves driver calls. Drop that
    /// before the stream is destroyed. `device` is the stream's own, by its number.
    ///
    /// # Errors
    /// [`Error::InvalidStream`], [`Error::InvalidDevice`], or what the driver says.
    pub fn hold(self, device: i32) -> Result<HeldStream, Error> {
        if device < 0 {
            // Another one may be current when the stream is given up.
            return Err(Error::InvalidDevice {
                device: device.into(),
                count: process::device_count()?,
            });
        }
        process::stream_open(device, self.0)?;
        Ok(HeldStream { stream: self, device })
    }
}

/// A stream that Cuddy may use until this is dropped.
#[derive(Debug)]
pub struct HeldStream {
    stream: Stream,
    device: i32,
}

impl HeldStream {
    /// Which one.
    pub fn stream(&self) -> Stream {
        self.stream
    }
}

impl Drop for HeldStream {
    fn drop(&mut self) {
        // Nobody could hear of an error.
        let _ = process::stream_retire(self.device, self.stream.0);
    }
}
