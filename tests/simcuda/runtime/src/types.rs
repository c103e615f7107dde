//! The border with C: integers and `#[repr(C)]` structures of the runtime API. Enums are read as
//! integers.

/// A `cudaError_t`, which is a `CUresult` too. Zero is success.
pub type Code = i32;

/// What an API function's body answers; [`crate::call`] turns it into a `cudaError_t`.
pub type Outcome = Result<(), Code>;

/// The values of `cudaError_t` that this runtime gives of itself.
pub mod code {
    #![allow(missing_docs)]
    use super::Code;
    pub const INVALID_VALUE: Code = 1;
    pub const INVALID_SYMBOL: Code = 13;
    pub const INVALID_MEMCPY_DIRECTION: Code = 21;
    pub const INSUFFICIENT_DRIVER: Code = 35;
    pub const CALL_REQUIRES_NEWER_DRIVER: Code = 36;
    pub const MISSING_CONFIGURATION: Code = 52;
    pub const INVALID_DEVICE_FUNCTION: Code = 98;
    pub const NO_DEVICE: Code = 100;
    pub const INVALID_DEVICE: Code = 101;
    pub const DEVICE_UNINITIALIZED: Code = 201;
    pub const SYMBOL_NOT_FOUND: Code = 500;
    pub const NOT_SUPPORTED: Code = 801;
    pub const UNKNOWN: Code = 999;
}

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Dim3 {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

/// `cudaExtent`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Extent {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// `cudaPitchedPtr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct PitchedPointer {
    pub address: u64,
    pub pitch: usize,
    pub x_size: usize,
    pub y_size: usize,
}

/// `cudaMemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Location {
    pub kind: i32,
    pub id: i32,
}

/// `cudaIpcMemHandle_t` and `cudaIpcEventHandle_t`: 64 bytes that mean something to the driver.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IpcHandle(pub [u8; 64]);

/// `cudaLaunchConfig_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct LaunchConfig {
    pub grid: Dim3,
    pub block: Dim3,
    pub shared_bytes: usize,
    pub stream: u64,
    pub attributes: u64,
    pub attribute_count: u32,
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct DriverLaunchConfig {
    pub grid: Dim3,
    pub block: Dim3,
    pub shared_bytes: u32,
    pub stream: u64,
    pub attributes: u64,
    pub attribute_count: u32,
}

/// `cudaFuncAttributes`, as far as the driver knows it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct FunctionAttributes {
    pub sizes: [usize; 3],
    pub numbers: [i32; 12],
    pub non_portable: i32,
    pub reserved: [i32; 16],
}

/// `CUDA_MEMCPY2D` (version 2).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Memcpy2D {
    pub src_x: usize,
    pub src_y: usize,
    pub src_kind: i32,
    pub src_host: u64,
    pub src_device: u64,
    pub src_array: u64,
    pub src_pitch: usize,
    pub dst_x: usize,
    pub dst_y: usize,
    pub dst_kind: i32,
    pub dst_host: u64,
    pub dst_device: u64,
    pub dst_array: u64,
    pub dst_pitch: usize,
    pub width: usize,
    pub height: usize,
}
