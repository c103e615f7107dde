//! The border with C: integers and `#[repr(C)]` structures of the driver API.
//!
//! Whatever a C enum holds is read as an integer: a value that this library has never heard of must
//! be an error code, not undefined behaviour.

/// A `CUresult`. Zero is success.
pub type Code = i32;

/// What an API function's body answers; [`crate::call::enter`] turns it into a `CUresult`.
pub type Outcome = Result<(), Code>;

/// The values of `CUresult` that this driver gives.
pub mod code {
    #![allow(missing_docs)]
    use super::Code;
    pub const INVALID_VALUE: Code = 1;
    pub const OUT_OF_MEMORY: Code = 2;
    pub const NOT_INITIALIZED: Code = 3;
    pub const DEINITIALIZED: Code = 4;
    pub const NO_DEVICE: Code = 100;
    pub const INVALID_DEVICE: Code = 101;
    pub const INVALID_IMAGE: Code = 200;
    pub const INVALID_CONTEXT: Code = 201;
    pub const MAP_FAILED: Code = 205;
    pub const ALREADY_MAPPED: Code = 208;
    pub const UNSUPPORTED_LIMIT: Code = 215;
    pub const FILE_NOT_FOUND: Code = 301;
    pub const OPERATING_SYSTEM: Code = 304;
    pub const INVALID_HANDLE: Code = 400;
    pub const ILLEGAL_STATE: Code = 401;
    pub const NOT_FOUND: Code = 500;
    pub const NOT_READY: Code = 600;
    pub const ILLEGAL_ADDRESS: Code = 700;
    pub const PEER_ACCESS_UNSUPPORTED: Code = 217;
    pub const PEER_ACCESS_ALREADY_ENABLED: Code = 704;
    pub const PEER_ACCESS_NOT_ENABLED: Code = 705;
    pub const CONTEXT_IS_DESTROYED: Code = 709;
    pub const HOST_MEMORY_ALREADY_REGISTERED: Code = 712;
    pub const HOST_MEMORY_NOT_REGISTERED: Code = 713;
    pub const NOT_PERMITTED: Code = 800;
    pub const NOT_SUPPORTED: Code = 801;
    pub const CAPTURE_UNSUPPORTED: Code = 900;
    pub const CAPTURE_INVALIDATED: Code = 901;
    pub const CAPTURE_MERGE: Code = 902;
    pub const CAPTURE_UNMATCHED: Code = 903;
    pub const CAPTURE_UNJOINED: Code = 904;
    pub const CAPTURE_ISOLATION: Code = 905;
    pub const CAPTURE_IMPLICIT: Code = 906;
    pub const CAPTURED_EVENT: Code = 907;
    pub const CAPTURE_WRONG_THREAD: Code = 908;
    pub const GRAPH_UPDATE_FAILURE: Code = 910;
    pub const UNKNOWN: Code = 999;
}

/// `CUmemLocation`: a kind of place and its ordinal.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// 1 = a device; the other kinds are refused.
    pub kind: i32,
    /// The device's ordinal.
    pub id: i32,
}

/// `CUmemLocation.type` of a device.
pub const LOCATION_DEVICE: i32 = 1;

/// `CUmemAccessDesc`: what one location may do with a mapping.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessDescriptor {
    /// Who.
    pub location: Location,
    /// 0 = nothing, 1 = read, 3 = read and write.
    pub flags: i32,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocationProperties {
    /// 1 = pinned, the only kind.
    pub kind: i32,
    /// A set of handle types: 1 = POSIX file descriptor.
    pub requested_handle_types: i32,
    /// Where the memory lies.
    pub location: Location,
    /// Unused (Windows).
    pub win32_handle_metadata: usize,
    /// Not used here; given back as it came.
    pub compression: u8,
    /// Whether RDMA is asked for; given back as it came.
    pub gpu_direct_rdma: u8,
    /// Intended use; given back as it came.
    pub usage: u16,
    /// Padding of the C structure.
    pub reserved: [u8; 4],
}

/// `CUDA_MEMCPY2D` (version 2).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
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

/// `CUlaunchConfig`, as far as it is read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct LaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub stream: u64,
    pub attributes: u64,
    pub attribute_count: u32,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstantiateParameters {
    /// `CUgraphInstantiate_flags`.
    pub flags: u64,
    /// Where an upload is queued.
    pub upload_stream: u64,
    /// Out: the node at fault.
    pub error_node: u64,
    /// Out: `CUgraphInstantiateResult`.
    pub result: i32,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpdateResult {
    /// `CUgraphExecUpdateResult`.
    pub result: i32,
    /// The node at fault.
    pub error_node: u64,
    /// The other end of an edge at fault.
    pub error_from_node: u64,
}

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolProperties {
    /// 1 = pinned.
    pub kind: i32,
    /// A set of handle types: 1 = POSIX file descriptor.
    pub handle_types: i32,
    /// Where the memory lies.
    pub location: Location,
    /// Unused (Windows).
    pub win32_security_attributes: usize,
    /// The most that the pool may hold; 0 = as much as the device has.
    pub max_size: usize,
    /// Intended use; given back as it came.
    pub usage: u16,
    /// Zeroes.
    pub reserved: [u8; 54],
}

impl PoolProperties {
    /// A device's default pool.
    pub fn of_device(device: u32) -> Self {
        Self {
            kind: 1,
            handle_types: 0,
            location: Location { kind: LOCATION_DEVICE, id: device as i32 },
            win32_security_attributes: 0,
            max_size: 0,
            usage: 0,
            reserved: [0; 54],
        }
    }

    /// The most bytes that the pool may hold.
    pub fn most(&self) -> u64 {
        if self.max_size == 0 { u64::MAX } else { self.max_size as u64 }
    }
}
