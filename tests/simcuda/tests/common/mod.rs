//! What the tests of the driver share: the library as a client loads it, one session at a time.
#![allow(dead_code, non_snake_case, clippy::too_many_arguments)]

use std::ffi::{CString, c_char, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

pub use simcuda_control::Sim;

/// CUDA's codes that tests expect.
pub mod code {
    pub const INVALID_VALUE: i32 = 1;
    pub const OUT_OF_MEMORY: i32 = 2;
    pub const NOT_INITIALIZED: i32 = 3;
    pub const NO_DEVICE: i32 = 100;
    pub const INVALID_DEVICE: i32 = 101;
    pub const INVALID_CONTEXT: i32 = 201;
    pub const INVALID_HANDLE: i32 = 400;
    pub const NOT_FOUND: i32 = 500;
    pub const NOT_READY: i32 = 600;
    pub const ILLEGAL_ADDRESS: i32 = 700;
    pub const CONTEXT_IS_DESTROYED: i32 = 709;
    pub const NOT_PERMITTED: i32 = 800;
    pub const NOT_SUPPORTED: i32 = 801;
}

/// Schedules that a test which holds for all of them is run with.
pub const SCHEDULES: [&str; 6] = ["eager", "lazy", "lag:0", "lag:3", "random:1", "random:99"];

pub const MIB: usize = 1 << 20;
pub const PAGE: usize = 2 * MIB;

macro_rules! driver {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        /// The driver's functions, by `dlsym`.
        pub struct Driver { $($name: unsafe extern "C" fn($($type),*) -> i32,)* }

        impl Driver {
            fn load(sim: &Sim) -> Self {
                Self { $($name: {
                    let at = sim.symbol(stringify!($name)).expect(stringify!($name));
                    // SAFETY: the signature below is the driver API's.
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> i32>(at) }
                },)* }
            }
            $(pub fn $name(&self, $($arg: $type),*) -> i32 {
                // SAFETY: tests pass pointers to locals that outlive the call, or null where they try that.
                unsafe { (self.$name)($($arg),*) }
            })*
        }
    };
}

/// `CUipcMemHandle` and `CUipcEventHandle`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpcHandle(pub [u64; 8]);

pub type Parameters = [*mut c_void; 8];

/// `CUDA_KERNEL_NODE_PARAMS`, in its newer form.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelNode {
    pub function: u64,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub parameters: *const *const u64,
    pub extra: u64,
    pub kernel: u64,
    pub context: u64,
}

impl Default for KernelNode {
    fn default() -> Self {
        // SAFETY: integers and a pointer, which may be null.
        unsafe { std::mem::zeroed() }
    }
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillNode {
    pub at: u64,
    pub pitch: usize,
    pub value: u32,
    pub size: u32,
    pub width: usize,
    pub rows: usize,
}

/// `CUgraphNodeParams`: a kind, two words of nothing, and what the kind says.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AnyNode(pub [u64; 32]);

impl AnyNode {
    pub fn new(kind: u64, body: &[u64]) -> Self {
        let mut words = [0; 32];
        words[0] = kind;
        words[2..2 + body.len()].copy_from_slice(body);
        Self(words)
    }
}

/// A fill of single bytes.
pub fn bytes_node(at: u64, value: u32, bytes: usize) -> FillNode {
    FillNode { at, pitch: 0, value, size: 1, width: bytes, rows: 1 }
}

/// Kinds of the sides of a copy.
pub const HOST: u64 = 1;
pub const DEVICE: u64 = 2;

/// `CUDA_MEM_ALLOC_NODE_PARAMS`: the address comes into the last word.
pub fn allocation_node(device: u64, bytes: u64) -> [u64; 15] {
    let mut words = [0; 15];
    (words[0], words[1], words[13]) = (1, 1 | device << 32, bytes);
    words
}

/// `CUDA_MEMCPY3D` of plain bytes; kinds: [`HOST`], [`DEVICE`], 4 = whichever.
pub fn copy_node(to: (u64, u64), from: (u64, u64), bytes: u64) -> [u64; 25] {
    let mut words = [0; 25];
    for (first, (kind, at)) in [(0, from), (11, to)] {
        words[first + 4] = kind;
        words[first + if kind == 1 { 5 } else { 6 }] = at;
    }
    (words[22], words[23], words[24]) = (bytes, 1, 1);
    words
}

driver! {
    cuInit(flags: u32);
    cuDriverGetVersion(version: *mut i32);
    cuDeviceGet(device: *mut i32, ordinal: i32);
    cuDeviceGetCount(count: *mut i32);
    cuDeviceGetName(name: *mut u8, room: i32, device: i32);
    cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: i32);
    cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32);
    cuDeviceGetPCIBusId(id: *mut u8, room: i32, device: i32);
    cuDeviceGetByPCIBusId(device: *mut i32, id: *const c_char);
    cuDeviceTotalMem_v2(bytes: *mut usize, device: i32);
    cuDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32);
    cuDevicePrimaryCtxRetain(context: *mut u64, device: i32);
    cuDevicePrimaryCtxRelease_v2(device: i32);
    cuDevicePrimaryCtxReset_v2(device: i32);
    cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32);
    cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32);
    cuCtxCreate_v2(context: *mut u64, flags: u32, device: i32);
    cuCtxDestroy_v2(context: u64);
    cuCtxPushCurrent_v2(context: u64);
    cuCtxPopCurrent_v2(context: *mut u64);
    cuCtxSetCurrent(context: u64);
    cuCtxGetCurrent(context: *mut u64);
    cuCtxGetDevice(device: *mut i32);
    cuCtxGetId(context: u64, id: *mut u64);
    cuCtxSynchronize();
    cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32);
    cuCtxEnablePeerAccess(peer: u64, flags: u32);
    cuCtxDisablePeerAccess(peer: u64);
    cuCtxRecordEvent(context: u64, event: u64);
    cuCtxWaitEvent(context: u64, event: u64);
    cuThreadExchangeStreamCaptureMode(mode: *mut i32);
    cuMemAlloc_v2(address: *mut u64, bytes: usize);
    cuMemAllocPitch_v2(address: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32);
    cuMemFree_v2(address: u64);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64);
    cuMemAllocManaged(address: *mut u64, bytes: usize, flags: u32);
    cuMemHostAlloc(address: *mut u64, bytes: usize, flags: u32);
    cuMemAllocHost_v2(address: *mut u64, bytes: usize);
    cuMemFreeHost(address: u64);
    cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32);
    cuMemHostUnregister(address: u64);
    cuMemHostGetDevicePointer_v2(device_address: *mut u64, address: u64, flags: u32);
    cuMemHostGetFlags(flags: *mut u32, address: u64);
    cuPointerGetAttribute(data: *mut c_void, attribute: i32, address: u64);
    cuPointerGetAttributes(count: u32, attributes: *const i32, data: *const *mut c_void, address: u64);
    cuPointerSetAttribute(value: *const u32, attribute: i32, address: u64);
    cuMemAddressReserve(address: *mut u64, bytes: usize, align: usize, wish: u64, flags: u64);
    cuMemAddressFree(address: u64, bytes: usize);
    cuMemCreate(handle: *mut u64, bytes: usize, asked: *const [i32; 8], flags: u64);
    cuMemRelease(handle: u64);
    cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64);
    cuMemUnmap(address: u64, bytes: usize);
    cuMemSetAccess(address: u64, bytes: usize, wanted: *const [i32; 3], count: usize);
    cuMemGetAccess(flags: *mut u64, location: *const [i32; 2], address: u64);
    cuMemGetAllocationGranularity(bytes: *mut usize, asked: *const [i32; 8], option: i32);
    cuMemGetAllocationPropertiesFromHandle(asked: *mut [i32; 8], handle: u64);
    cuMemRetainAllocationHandle(handle: *mut u64, address: u64);
    cuMemExportToShareableHandle(to: *mut i32, handle: u64, kind: i32, flags: u64);
    cuMemImportFromShareableHandle(handle: *mut u64, from: usize, kind: i32);
    cuMemPoolExportToShareableHandle(to: *mut i32, pool: u64, kind: i32, flags: u64);
    cuMemPoolImportFromShareableHandle(pool: *mut u64, from: usize, kind: i32, flags: u64);
    cuMemPoolExportPointer(data: *mut IpcHandle, address: u64);
    cuMemPoolImportPointer(address: *mut u64, pool: u64, data: *const IpcHandle);
    cuIpcGetMemHandle(handle: *mut IpcHandle, address: u64);
    cuIpcOpenMemHandle(address: *mut u64, handle: IpcHandle, flags: u32);
    cuIpcOpenMemHandle_v2(address: *mut u64, handle: IpcHandle, flags: u32);
    cuIpcCloseMemHandle(address: u64);
    cuIpcGetEventHandle(handle: *mut IpcHandle, event: u64);
    cuIpcOpenEventHandle(event: *mut u64, handle: IpcHandle);
    cuDeviceGetDefaultMemPool(pool: *mut u64, device: i32);
    cuDeviceGetMemPool(pool: *mut u64, device: i32);
    cuDeviceSetMemPool(device: i32, pool: u64);
    cuMemPoolCreate(pool: *mut u64, asked: *const [u64; 11]);
    cuMemPoolDestroy(pool: u64);
    cuMemPoolTrimTo(pool: u64, keep: usize);
    cuMemPoolSetAttribute(pool: u64, attribute: i32, value: *const u64);
    cuMemPoolGetAttribute(pool: u64, attribute: i32, value: *mut u64);
    cuMemPoolSetAccess(pool: u64, wanted: *const [i32; 3], count: usize);
    cuMemPoolGetAccess(flags: *mut i32, pool: u64, location: *const [i32; 2]);
    cuMemAllocAsync(address: *mut u64, bytes: usize, stream: u64);
    cuMemAllocAsync_ptsz(address: *mut u64, bytes: usize, stream: u64);
    cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: u64, stream: u64);
    cuMemFreeAsync(address: u64, stream: u64);
    cuMemAdvise(address: u64, bytes: usize, advice: i32, device: i32);
    cuMemAdvise_v2(address: u64, bytes: usize, advice: i32, location: u64);
    cuMemPrefetchAsync(address: u64, bytes: usize, device: i32, stream: u64);
    cuMemPrefetchAsync_v2(address: u64, bytes: usize, location: u64, flags: u32, stream: u64);
    cuMemRangeGetAttribute(data: *mut i32, room: usize, attribute: i32, address: u64, bytes: usize);
    cuMemRangeGetAttributes(data: *const *mut i32, rooms: *const usize, attributes: *const i32, count: usize, address: u64, bytes: usize);
    cuStreamAttachMemAsync(stream: u64, address: u64, bytes: usize, flags: u32);
    cuStreamCreate(stream: *mut u64, flags: u32);
    cuStreamCreateWithPriority(stream: *mut u64, flags: u32, priority: i32);
    cuStreamDestroy_v2(stream: u64);
    cuStreamSynchronize(stream: u64);
    cuStreamSynchronize_ptsz(stream: u64);
    cuStreamQuery(stream: u64);
    cuStreamWaitEvent(stream: u64, event: u64, flags: u32);
    cuStreamGetId(stream: u64, id: *mut u64);
    cuStreamGetId_ptsz(stream: u64, id: *mut u64);
    cuStreamGetCtx(stream: u64, context: *mut u64);
    cuStreamGetFlags(stream: u64, flags: *mut u32);
    cuStreamGetPriority(stream: u64, priority: *mut i32);
    cuStreamIsCapturing(stream: u64, status: *mut i32);
    cuStreamBeginCapture_v2(stream: u64, mode: i32);
    cuStreamBeginCapture_v2_ptsz(stream: u64, mode: i32);
    cuStreamBeginCaptureToGraph(
        stream: u64, graph: u64, nodes: *const u64, data: *const u64, count: usize, mode: i32
    );
    cuStreamEndCapture(stream: u64, graph: *mut u64);
    cuStreamGetCaptureInfo_v2(
        stream: u64, status: *mut i32, id: *mut u64, graph: *mut u64, nodes: *mut *const u64, count: *mut usize
    );
    cuStreamUpdateCaptureDependencies(stream: u64, nodes: *const u64, count: usize, flags: u32);
    cuGraphCreate(graph: *mut u64, flags: u32);
    cuGraphDestroy(graph: u64);
    cuGraphClone(clone: *mut u64, graph: u64);
    cuGraphGetNodes(graph: u64, nodes: *mut u64, count: *mut usize);
    cuGraphGetRootNodes(graph: u64, nodes: *mut u64, count: *mut usize);
    cuGraphGetEdges(graph: u64, from: *mut u64, to: *mut u64, count: *mut usize);
    cuGraphNodeGetType(node: u64, kind: *mut i32);
    cuGraphNodeFindInClone(found: *mut u64, original: u64, clone: u64);
    cuGraphNodeGetDependencies(node: u64, nodes: *mut u64, count: *mut usize);
    cuGraphNodeGetDependencies_v2(node: u64, nodes: *mut u64, data: *mut u64, count: *mut usize);
    cuGraphNodeGetDependentNodes(node: u64, nodes: *mut u64, count: *mut usize);
    cuGraphAddEmptyNode(node: *mut u64, graph: u64, after: *const u64, count: usize);
    cuGraphAddKernelNode(node: *mut u64, graph: u64, after: *const u64, count: usize, what: *const KernelNode);
    cuGraphAddKernelNode_v2(node: *mut u64, graph: u64, after: *const u64, count: usize, what: *const KernelNode);
    cuGraphAddMemcpyNode(node: *mut u64, graph: u64, after: *const u64, count: usize, what: *const [u64; 25], context: u64);
    cuGraphAddMemsetNode(node: *mut u64, graph: u64, after: *const u64, count: usize, what: *const FillNode, context: u64);
    cuGraphAddHostNode(node: *mut u64, graph: u64, after: *const u64, count: usize, what: *const [u64; 2]);
    cuGraphAddChildGraphNode(node: *mut u64, graph: u64, after: *const u64, count: usize, inner: u64);
    cuGraphAddEventRecordNode(node: *mut u64, graph: u64, after: *const u64, count: usize, event: u64);
    cuGraphAddEventWaitNode(node: *mut u64, graph: u64, after: *const u64, count: usize, event: u64);
    cuGraphAddMemAllocNode(node: *mut u64, graph: u64, after: *const u64, count: usize, what: *mut [u64; 15]);
    cuGraphAddMemFreeNode(node: *mut u64, graph: u64, after: *const u64, count: usize, address: u64);
    cuGraphMemAllocNodeGetParams(node: u64, what: *mut [u64; 15]);
    cuGraphMemFreeNodeGetParams(node: u64, address: *mut u64);
    cuDeviceGraphMemTrim(device: i32);
    cuDeviceGetGraphMemAttribute(device: i32, attribute: i32, value: *mut u64);
    cuDeviceSetGraphMemAttribute(device: i32, attribute: i32, value: *const u64);
    cuGraphAddNode(node: *mut u64, graph: u64, after: *const u64, count: usize, what: *mut AnyNode);
    cuGraphAddNode_v2(node: *mut u64, graph: u64, after: *const u64, data: *const u64, count: usize, what: *mut AnyNode);
    cuGraphKernelNodeGetParams(node: u64, what: *mut KernelNode);
    cuGraphKernelNodeGetParams_v2(node: u64, what: *mut KernelNode);
    cuGraphKernelNodeSetParams(node: u64, what: *const KernelNode);
    cuGraphKernelNodeSetParams_v2(node: u64, what: *const KernelNode);
    cuGraphMemcpyNodeGetParams(node: u64, what: *mut [u64; 25]);
    cuGraphMemcpyNodeSetParams(node: u64, what: *const [u64; 25]);
    cuGraphMemsetNodeGetParams(node: u64, what: *mut FillNode);
    cuGraphMemsetNodeSetParams(node: u64, what: *const FillNode);
    cuGraphHostNodeGetParams(node: u64, what: *mut [u64; 2]);
    cuGraphHostNodeSetParams(node: u64, what: *const [u64; 2]);
    cuGraphEventRecordNodeGetEvent(node: u64, event: *mut u64);
    cuGraphEventRecordNodeSetEvent(node: u64, event: u64);
    cuGraphEventWaitNodeGetEvent(node: u64, event: *mut u64);
    cuGraphEventWaitNodeSetEvent(node: u64, event: u64);
    cuGraphChildGraphNodeGetGraph(node: u64, graph: *mut u64);
    cuGraphNodeSetParams(node: u64, what: *const AnyNode);
    cuGraphExecKernelNodeSetParams(exec: u64, node: u64, what: *const KernelNode);
    cuGraphExecKernelNodeSetParams_v2(exec: u64, node: u64, what: *const KernelNode);
    cuGraphExecMemcpyNodeSetParams(exec: u64, node: u64, what: *const [u64; 25], context: u64);
    cuGraphExecMemsetNodeSetParams(exec: u64, node: u64, what: *const FillNode, context: u64);
    cuGraphExecHostNodeSetParams(exec: u64, node: u64, what: *const [u64; 2]);
    cuGraphExecEventRecordNodeSetEvent(exec: u64, node: u64, event: u64);
    cuGraphExecEventWaitNodeSetEvent(exec: u64, node: u64, event: u64);
    cuGraphExecChildGraphNodeSetParams(exec: u64, node: u64, graph: u64);
    cuGraphExecNodeSetParams(exec: u64, node: u64, what: *const AnyNode);
    cuGraphAddDependencies(graph: u64, from: *const u64, to: *const u64, count: usize);
    cuGraphAddDependencies_v2(graph: u64, from: *const u64, to: *const u64, data: *const u64, count: usize);
    cuGraphRemoveDependencies(graph: u64, from: *const u64, to: *const u64, count: usize);
    cuGraphDestroyNode(node: u64);
    cuGraphDebugDotPrint(graph: u64, path: *const c_char, flags: u32);
    cuGraphInstantiate_v2(exec: *mut u64, graph: u64, error: *mut u64, log: *mut u8, room: usize);
    cuGraphInstantiateWithParams(exec: *mut u64, graph: u64, parameters: *mut [u64; 4]);
    cuGraphExecGetFlags(exec: u64, flags: *mut u64);
    cuGraphUpload(exec: u64, stream: u64);
    cuGraphNodeSetEnabled(exec: u64, node: u64, on: u32);
    cuGraphNodeGetEnabled(exec: u64, node: u64, on: *mut u32);
    cuGraphExecUpdate(exec: u64, graph: u64, error: *mut u64, result: *mut i32);
    cuGraphInstantiateWithFlags(exec: *mut u64, graph: u64, flags: u64);
    cuGraphLaunch(exec: u64, stream: u64);
    cuGraphExecDestroy(exec: u64);
    cuGraphExecUpdate_v2(exec: u64, graph: u64, result: *mut [u64; 3]);
    cuUserObjectCreate(object: *mut u64, pointer: u64, destroy: u64, references: u32, flags: u32);
    cuUserObjectRetain(object: u64, count: u32);
    cuUserObjectRelease(object: u64, count: u32);
    cuGraphRetainUserObject(graph: u64, object: u64, count: u32, flags: u32);
    cuGraphReleaseUserObject(graph: u64, object: u64, count: u32);
    cuEventRecordWithFlags(event: u64, stream: u64, flags: u32);
    cuLaunchHostFunc(stream: u64, f: u64, data: u64);
    cuStreamAddCallback(stream: u64, f: u64, data: u64, flags: u32);
    cuEventCreate(event: *mut u64, flags: u32);
    cuEventDestroy_v2(event: u64);
    cuEventRecord(event: u64, stream: u64);
    cuEventQuery(event: u64);
    cuEventSynchronize(event: u64);
    cuEventElapsedTime(ms: *mut f32, start: u64, end: u64);
    cuMemsetD8_v2(at: u64, value: u8, count: usize);
    cuMemsetD8Async(at: u64, value: u8, count: usize, stream: u64);
    cuMemsetD8Async_ptsz(at: u64, value: u8, count: usize, stream: u64);
    cuMemsetD16Async(at: u64, value: u16, count: usize, stream: u64);
    cuMemsetD32Async(at: u64, value: u32, count: usize, stream: u64);
    cuMemsetD2D8Async(at: u64, pitch: usize, value: u8, width: usize, rows: usize, stream: u64);
    cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize);
    cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize);
    cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: u64);
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: u64);
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64);
    cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: u64);
    cuMemcpyPeerAsync(to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: u64);
    cuMemcpy2DAsync_v2(what: *const [u64; 16], stream: u64);
    cuModuleLoadData(module: *mut u64, image: *const c_char);
    cuModuleUnload(module: u64);
    cuModuleGetFunction(function: *mut u64, module: u64, name: *const c_char);
    cuFuncGetName(name: *mut *const c_char, function: u64);
    cuFuncGetAttribute(value: *mut i32, attribute: i32, function: u64);
    cuLaunchKernel(
        f: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, stream: u64,
        parameters: *const Parameters, extra: *const [u64; 5]
    );
}

/// The simulator and its driver, as before `cuInit` but configured; nobody else uses it meanwhile.
pub struct Session {
    pub sim: &'static Sim,
    pub driver: &'static Driver,
    _alone: MutexGuard<'static, ()>,
}

impl std::ops::Deref for Session {
    type Target = Driver;
    fn deref(&self) -> &Driver {
        self.driver
    }
}

static ALONE: Mutex<()> = Mutex::new(());

/// A session that has not called `cuInit`.
pub fn fresh(configuration: &[(&str, &str)]) -> Session {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let sim = simcuda_control::load().expect("libsimcuda.so is built with its tests");
    static DRIVER: LazyLock<Driver> =
        LazyLock::new(|| Driver::load(simcuda_control::load().expect("loaded above")));
    sim.reset();
    // Whatever the shell of a developer has.
    sim.configure("visible_devices", "all").expect("any list is one");
    for (key, value) in configuration {
        sim.configure(key, value).expect("a right configuration");
    }
    Session { sim, driver: &DRIVER, _alone: alone }
}

/// A session with the primary context of device 0 current.
pub fn session(configuration: &[(&str, &str)]) -> Session {
    let s = fresh(configuration);
    assert_eq!(s.cuInit(0), 0);
    s.use_device(0);
    s
}

/// Fails the test unless a call succeeds.
#[macro_export]
macro_rules! ok {
    ($call:expr) => {
        assert_eq!($call, 0, "{}", stringify!($call))
    };
}

impl Session {
    /// Makes a device's primary context current to this thread; answers it.
    pub fn use_device(&self, device: i32) -> u64 {
        let mut context = 0;
        ok!(self.cuDevicePrimaryCtxRetain(&mut context, device));
        ok!(self.cuCtxSetCurrent(context));
        context
    }

    pub fn alloc(&self, bytes: usize) -> u64 {
        let mut address = 0;
        ok!(self.cuMemAlloc_v2(&mut address, bytes));
        address
    }

    pub fn pinned(&self, bytes: usize) -> u64 {
        let mut address = 0;
        ok!(self.cuMemHostAlloc(&mut address, bytes, 0));
        address
    }

    pub fn stream(&self) -> u64 {
        let mut stream = 0;
        ok!(self.cuStreamCreate(&mut stream, 1));
        stream
    }

    pub fn blocking_stream(&self) -> u64 {
        let mut stream = 0;
        ok!(self.cuStreamCreate(&mut stream, 0));
        stream
    }

    pub fn event(&self) -> u64 {
        let mut event = 0;
        ok!(self.cuEventCreate(&mut event, 0));
        event
    }

    pub fn stream_id(&self, stream: u64) -> u64 {
        let mut id = 0;
        ok!(self.cuStreamGetId(stream, &mut id));
        id
    }

    pub fn reserve(&self, bytes: usize) -> u64 {
        let mut address = 0;
        ok!(self.cuMemAddressReserve(&mut address, bytes, 0, 0, 0));
        address
    }

    pub fn create(&self, bytes: usize, device: i32) -> u64 {
        let mut handle = 0;
        ok!(self.cuMemCreate(&mut handle, bytes, &properties(device, 0), 0));
        handle
    }

    /// Maps a handle and lets device 0 use it.
    pub fn map(&self, address: u64, bytes: usize, handle: u64) {
        ok!(self.cuMemMap(address, bytes, 0, handle, 0));
        self.grant(address, bytes, 0, 3);
    }

    pub fn grant(&self, address: u64, bytes: usize, device: i32, flags: i32) {
        ok!(self.cuMemSetAccess(address, bytes, &[1, device, flags], 1));
    }

    /// Bytes of device memory as they are now.
    pub fn peek(&self, address: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.sim.peek(address, &mut bytes).expect("mapped memory");
        bytes
    }

    pub fn function(&self, name: &str) -> u64 {
        let (mut module, mut function) = (0, 0);
        let name = CString::new(name).expect("no zero inside");
        ok!(self.cuModuleLoadData(&mut module, c"any image".as_ptr()));
        ok!(self.cuModuleGetFunction(&mut function, module, name.as_ptr()));
        function
    }

    /// Launches a kernel by name; parameters are passed by their 8-byte values.
    pub fn launch(&self, name: &str, values: &[u64], stream: u64) {
        ok!(self.try_launch(self.function(name), values, stream));
    }

    pub fn try_launch(&self, function: u64, values: &[u64], stream: u64) -> i32 {
        let mut values = values.to_vec();
        let mut parameters: Parameters = [std::ptr::null_mut(); 8];
        for (place, value) in parameters.iter_mut().zip(&mut values) {
            *place = std::ptr::from_mut(value).cast();
        }
        self.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, &parameters, std::ptr::null())
    }

    pub fn graph(&self) -> u64 {
        let mut graph = 0;
        ok!(self.cuGraphCreate(&mut graph, 0));
        graph
    }

    pub fn exec(&self, graph: u64) -> u64 {
        let mut exec = 0;
        ok!(self.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        exec
    }

    /// Adds a node that fills single bytes.
    pub fn add_fill(&self, graph: u64, after: &[u64], what: FillNode) -> u64 {
        let mut node = 0;
        let (list, count) = (after.as_ptr(), after.len());
        ok!(self.cuGraphAddMemsetNode(&mut node, graph, list, count, &what, 0));
        node
    }

    /// Adds a node that copies.
    pub fn add_copy(&self, graph: u64, after: &[u64], what: [u64; 25]) -> u64 {
        let mut node = 0;
        let (list, count) = (after.as_ptr(), after.len());
        ok!(self.cuGraphAddMemcpyNode(&mut node, graph, list, count, &what, 0));
        node
    }

    /// Launches an executable, and waits.
    pub fn play(&self, exec: u64, stream: u64) {
        ok!(self.cuGraphLaunch(exec, stream));
        ok!(self.cuStreamSynchronize(stream));
    }

    pub fn gate(&self, gate: u64, stream: u64) {
        self.launch("simcuda_gate", &[gate], stream);
    }
}

/// `CUmemAllocationProp` of pinned memory on a device.
pub fn properties(device: i32, handle_types: i32) -> [i32; 8] {
    [1, handle_types, 1, device, 0, 0, 0, 0]
}
