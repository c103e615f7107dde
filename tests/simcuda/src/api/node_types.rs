//! How C describes the nodes of a graph: the structures of `cuda.h`.
//!
//! A newer form of a structure begins with the older one.

use crate::types::{Location, Memcpy2D, PoolProperties};

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelNode {
    /// The function; 0 where `KernelNodeV2` names a kernel of a library.
    pub function: u64,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Pointers to the parameters.
    pub parameters: u64,
    /// The parameters in one buffer.
    pub extra: u64,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2` and `_v3`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelNodeV2 {
    /// The older form.
    pub plain: KernelNode,
    /// The kernel of a library.
    pub kernel: u64,
    /// The context in which that runs; 0 = the current one.
    pub context: u64,
}

/// One side of `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Side3D {
    pub x: usize,
    pub y: usize,
    pub z: usize,
    pub lod: usize,
    pub kind: i32,
    pub host: u64,
    pub device: u64,
    pub array: u64,
    pub reserved: u64,
    pub pitch: usize,
    pub height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct Memcpy3D {
    pub src: Side3D,
    pub dst: Side3D,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

impl Memcpy3D {
    /// The same as rows of one plane; none if it is layers with rows between them that are not
    /// copied.
    pub fn flat(&self) -> Option<Memcpy2D> {
        let Self { src, dst, width, height, depth } = *self;
        let whole = |side: &Side3D| depth <= 1 || side.height == height;
        if !whole(&src) || !whole(&dst) {
            return None;
        }
        let row = |side: &Side3D| side.z.checked_mul(side.height)?.checked_add(side.y);
        Some(Memcpy2D {
            src_x: src.x,
            src_y: row(&src)?,
            src_kind: src.kind,
            src_host: src.host,
            src_device: src.device,
            src_array: src.array,
            src_pitch: src.pitch,
            dst_x: dst.x,
            dst_y: row(&dst)?,
            dst_kind: dst.kind,
            dst_host: dst.host,
            dst_device: dst.device,
            dst_array: dst.array,
            dst_pitch: dst.pitch,
            width,
            height: height.checked_mul(depth)?,
        })
    }
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct CopyNode {
    pub flags: i32,
    pub reserved: i32,
    pub context: u64,
    pub copy: Memcpy3D,
}

/// `CUDA_MEMSET_NODE_PARAMS_v1`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct FillNode {
    pub at: u64,
    pub pitch: usize,
    pub value: u32,
    pub size: u32,
    pub width: usize,
    pub rows: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct FillNodeV2 {
    pub plain: FillNode,
    pub context: u64,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct HostNode {
    pub f: u64,
    pub data: u64,
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AllocationNode {
    /// Where the memory lies; handle types must be none.
    pub pool: PoolProperties,
    /// Further devices that may use it: `CUmemAccessDesc`s.
    pub access: u64,
    /// How many.
    pub access_count: usize,
    /// How many bytes.
    pub bytes: usize,
    /// Out: the address.
    pub address: u64,
}

/// `CUgraphNodeParams`: a kind, and 232 bytes that are one of the others.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AnyNode {
    /// `CUgraphNodeType`.
    pub kind: i32,
    /// Zeroes.
    pub reserved: [i32; 3],
    /// The rest.
    pub body: [u64; 29],
    /// Zero.
    pub last: u64,
}

const _: () = {
    assert!(size_of::<KernelNode>() == 56 && size_of::<KernelNodeV2>() == 72);
    assert!(size_of::<Memcpy3D>() == 200 && size_of::<CopyNode>() == 216);
    assert!(size_of::<FillNode>() == 40 && size_of::<AllocationNode>() == 120);
    assert!(size_of::<AnyNode>() == 256 && size_of::<Location>() == 8);
};
