#![forbid(unsafe_code)]
//! What can go wrong, and the number that C sees for it.
//!
//! [`Error`] carries the figures, [`cuddy_status`] the number; one `match` without a catch-all arm
//! ties them, so that a new error does not compile until it has a number.

use std::fmt;

use crate::types::Address;

/// What a call of Cuddy returns. Zero is success; numbers never change their meaning.
///
/// cuddy_last_error() has the sentence that belongs to the last failure on the calling thread.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum cuddy_status {
    /// The call did what it says.
    CUDDY_OK = 0,
    /// An argument is outside what the function accepts; the message names it.
    CUDDY_ERROR_INVALID_ARGUMENT = 1,
    /// No memory: everything reusable was tried first. The message explains where memory went.
    CUDDY_ERROR_OUT_OF_MEMORY = 2,
    /// No usable CUDA driver: libcuda.so.1 is missing, too old, or cuInit failed.
    CUDDY_ERROR_NO_DRIVER = 3,
    /// There is no device of that number.
    CUDDY_ERROR_INVALID_DEVICE = 4,
    /// The stream is not a valid stream, or was never opened.
    CUDDY_ERROR_INVALID_STREAM = 5,
    /// The pointer was not allocated by Cuddy.
    CUDDY_ERROR_FOREIGN_POINTER = 6,
    /// The pointer lies inside a live block, but is not its start.
    CUDDY_ERROR_INTERIOR_POINTER = 7,
    /// The pointer's block has already been freed.
    CUDDY_ERROR_DOUBLE_FREE = 8,
    /// The pointer, stream or event belongs to another device than the one named.
    CUDDY_ERROR_WRONG_DEVICE = 9,
    /// The CUDA driver failed; the message has the function and the CUDA code's name.
    CUDDY_ERROR_DRIVER = 10,
    /// The device or its context was reset: all its blocks are gone.
    CUDDY_ERROR_DEVICE_RESET = 11,
    /// This process is a fork of one that used CUDA; CUDA does not work in such a child.
    CUDDY_ERROR_FORKED = 12,
    /// The CUDA driver has shut down, at process exit.
    CUDDY_ERROR_SHUTDOWN = 13,
    /// The device or the driver cannot do this.
    CUDDY_ERROR_NOT_SUPPORTED = 14,
    /// Host memory ran out; nothing was changed.
    CUDDY_ERROR_HOST_OUT_OF_MEMORY = 15,
    /// There is no such option, or it does not take that value.
    CUDDY_ERROR_INVALID_OPTION = 16,
    /// A bug in Cuddy: please report it.
    CUDDY_ERROR_INTERNAL = 17,
    /// There is no such pool, it was destroyed, or it is not the one to be popped.
    CUDDY_ERROR_INVALID_POOL = 18,
    /// There is no such graph, or it is not in the state that the call needs.
    CUDDY_ERROR_INVALID_GRAPH = 19,
    // Last added: 19.
}

/// A failure, with the figures that its sentence needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// `argument` was outside what is accepted; `why` says what would be.
    InvalidArgument {
        /// The parameter's name in the C header.
        argument: &'static str,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A request that nothing could serve; the explanation is complete sentences.
    OutOfMemory(String),
    /// No usable driver; the text says what was tried.
    NoDriver(String),
    /// There is no such device.
    InvalidDevice {
        /// The number given.
        device: i64,
        /// How many devices there are.
        count: u32,
    },
    /// Not a stream that can be used here; the text says why.
    InvalidStream(String),
    /// Never ours.
    ForeignPointer(Address),
    /// Inside a live block.
    InteriorPointer {
        /// The pointer given.
        pointer: Address,
        /// The block's start: the pointer to give.
        start: Address,
    },
    /// Freed before.
    DoubleFree(Address),
    /// Of another device.
    WrongDevice {
        /// The device named.
        named: u32,
        /// The device that it belongs to.
        actual: u32,
    },
    /// A driver call failed.
    Driver(DriverError),
    /// The device was reset under us.
    DeviceReset(u32),
    /// We are in the child of a fork after use.
    Forked,
    /// The driver is gone; the process is exiting.
    Shutdown,
    /// Not possible here; the text says what is missing.
    NotSupported(String),
    /// Host memory ran out.
    HostOutOfMemory,
    /// A bad option or value; the text has the accepted values and the nearest name.
    InvalidOption(String),
    /// Not a pool that can be used here; the text says why.
    InvalidPool(String),
    /// Not a graph that can be used so; the text says why.
    InvalidGraph(String),
    /// One of our own equations is broken.
    Internal(&'static str),
}

/// Text that grows without insisting on host memory: where that runs out, it is cut.
#[derive(Default)]
pub(crate) struct Words(String);

impl Words {
    /// The text as far as it could be written.
    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

impl From<String> for Words {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Write for Words {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.0.try_reserve(part.len()).map_err(|_| fmt::Error)?;
        self.0.push_str(part);
        Ok(())
    }
}

/// The text of an error. `format!` would abort the process when host memory runs out.
pub(crate) fn compose(text: fmt::Arguments<'_>) -> String {
    let mut words = Words::default();
    // An error only says that the text was cut.
    let _ = fmt::Write::write_fmt(&mut words, text);
    words.into_string()
}

/// `format!` by way of [`compose`].
macro_rules! sentence {
    ($($text:tt)*) => { $crate::error::compose(format_args!($($text)*)) };
}
pub(crate) use sentence;

/// A driver function and the code that it returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverError {
    /// The function's name in cuda.h, without version suffix.
    pub function: &'static str,
    /// The `CUresult`, as an integer: a newer driver may return codes that we have no name for.
    pub code: i32,
}

impl DriverError {
    /// The code's name in cuda.h, or "unknown code".
    pub fn name(self) -> &'static str {
        match self.code {
            1 => "CUDA_ERROR_INVALID_VALUE",
            2 => "CUDA_ERROR_OUT_OF_MEMORY",
            3 => "CUDA_ERROR_NOT_INITIALIZED",
            4 => "CUDA_ERROR_DEINITIALIZED",
            34 => "CUDA_ERROR_STUB_LIBRARY",
            46 => "CUDA_ERROR_DEVICE_UNAVAILABLE",
            100 => "CUDA_ERROR_NO_DEVICE",
            101 => "CUDA_ERROR_INVALID_DEVICE",
            201 => "CUDA_ERROR_INVALID_CONTEXT",
            205 => "CUDA_ERROR_MAP_FAILED",
            206 => "CUDA_ERROR_UNMAP_FAILED",
            214 => "CUDA_ERROR_ECC_UNCORRECTABLE",
            304 => "CUDA_ERROR_OPERATING_SYSTEM",
            400 => "CUDA_ERROR_INVALID_HANDLE",
            401 => "CUDA_ERROR_ILLEGAL_STATE",
            500 => "CUDA_ERROR_NOT_FOUND",
            600 => "CUDA_ERROR_NOT_READY",
            700 => "CUDA_ERROR_ILLEGAL_ADDRESS",
            702 => "CUDA_ERROR_LAUNCH_TIMEOUT",
            709 => "CUDA_ERROR_CONTEXT_IS_DESTROYED",
            710 => "CUDA_ERROR_ASSERT",
            719 => "CUDA_ERROR_LAUNCH_FAILED",
            800 => "CUDA_ERROR_NOT_PERMITTED",
            801 => "CUDA_ERROR_NOT_SUPPORTED",
            802 => "CUDA_ERROR_SYSTEM_NOT_READY",
            803 => "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            900 => "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
            901 => "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
            906 => "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
            907 => "CUDA_ERROR_CAPTURED_EVENT",
            908 => "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
            999 => "CUDA_ERROR_UNKNOWN",
            _ => "unknown code",
        }
    }

    /// Whether the driver had no memory for the request.
    pub fn is_out_of_memory(self) -> bool {
        self.code == 2
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} returned {} ({})", self.function, self.code, self.name())
    }
}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        match error.code {
            4 => Self::Shutdown,
            _ => Self::Driver(error),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidArgument { argument, why } => write!(f, "argument `{argument}`: {why}"),
            Self::OutOfMemory(text)
            | Self::NoDriver(text)
            | Self::InvalidStream(text)
            | Self::NotSupported(text)
            | Self::InvalidOption(text)
            | Self::InvalidPool(text)
            | Self::InvalidGraph(text) => f.write_str(text),
            Self::InvalidDevice { device, count: 0 } => {
                write!(f, "there is no device {device}: the driver sees no device at all")
            }
            Self::InvalidDevice { device, count } => {
                write!(f, "there is no device {device}: the driver sees 0 to {}", count - 1)
            }
            Self::ForeignPointer(pointer) => {
                write!(f, "{pointer} was not allocated by Cuddy: free it with what allocated it")
            }
            Self::InteriorPointer { pointer, start } => {
                let inside = pointer.0.saturating_sub(start.0);
                write!(f, "{pointer} lies {inside} bytes inside the block at {start}: pass {start}")
            }
            Self::DoubleFree(pointer) => write!(f, "the block at {pointer} is already free"),
            Self::WrongDevice { named, actual } => {
                write!(f, "device {named} was named, but it belongs to device {actual}")
            }
            Self::Driver(error) => error.fmt(f),
            Self::DeviceReset(device) => {
                write!(f, "device {device} was reset: its blocks are gone, allocate them anew")
            }
            Self::Forked => f.write_str(
                "this process was forked from one that had used CUDA, where CUDA cannot work: \
                 fork before the first use, or start the child with exec (spawn)",
            ),
            Self::Shutdown => f.write_str("the CUDA driver has shut down: the process is exiting"),
            Self::HostOutOfMemory => f.write_str("host memory ran out; nothing was changed"),
            Self::Internal(what) => write!(f, "a bug in Cuddy, please report it: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<&Error> for cuddy_status {
    fn from(error: &Error) -> Self {
        match error {
            Error::InvalidArgument { .. } => Self::CUDDY_ERROR_INVALID_ARGUMENT,
            Error::OutOfMemory(_) => Self::CUDDY_ERROR_OUT_OF_MEMORY,
            Error::NoDriver(_) => Self::CUDDY_ERROR_NO_DRIVER,
            Error::InvalidDevice { .. } => Self::CUDDY_ERROR_INVALID_DEVICE,
            Error::InvalidStream(_) => Self::CUDDY_ERROR_INVALID_STREAM,
            Error::ForeignPointer(_) => Self::CUDDY_ERROR_FOREIGN_POINTER,
            Error::InteriorPointer { .. } => Self::CUDDY_ERROR_INTERIOR_POINTER,
            Error::DoubleFree(_) => Self::CUDDY_ERROR_DOUBLE_FREE,
            Error::WrongDevice { .. } => Self::CUDDY_ERROR_WRONG_DEVICE,
            Error::Driver(_) => Self::CUDDY_ERROR_DRIVER,
            Error::DeviceReset(_) => Self::CUDDY_ERROR_DEVICE_RESET,
            Error::Forked => Self::CUDDY_ERROR_FORKED,
            Error::Shutdown => Self::CUDDY_ERROR_SHUTDOWN,
            Error::NotSupported(_) => Self::CUDDY_ERROR_NOT_SUPPORTED,
            Error::HostOutOfMemory => Self::CUDDY_ERROR_HOST_OUT_OF_MEMORY,
            Error::InvalidOption(_) => Self::CUDDY_ERROR_INVALID_OPTION,
            Error::InvalidPool(_) => Self::CUDDY_ERROR_INVALID_POOL,
            Error::InvalidGraph(_) => Self::CUDDY_ERROR_INVALID_GRAPH,
            Error::Internal(_) => Self::CUDDY_ERROR_INTERNAL,
        }
    }
}
