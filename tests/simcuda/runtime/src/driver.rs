//! The **driver table**: every driver function that this runtime calls.
//!
//! It is filled as the vendor's runtime fills its own: `dlopen("libcuda.so.1")`, `dlsym` of
//! `cuGetProcAddress_v2`, and that for everything, each function by name, by the CUDA version whose
//! signature is meant and by the stream convention. What the driver does not have is called with
//! [`CALL_REQUIRES_NEWER_DRIVER`](code::CALL_REQUIRES_NEWER_DRIVER) for an answer.
#![allow(non_snake_case, missing_docs, clippy::too_many_arguments)]

use crate::types::{Code, DriverLaunchConfig, IpcHandle, Location, Memcpy2D, code};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

type GetProcAddress =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> Code;
type HostFunction = *mut c_void;

/// `cuGetProcAddress`'s flags.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

/// Declares the table: field, name asked for, version, flag, parameters.
macro_rules! table {
    ($($field:ident = $name:ident $version:literal $flag:ident ($($arg:ident: $type:ty),*);)*) => {
        /// See the module. A method answers `Err` with whatever code the driver gives.
        #[derive(Debug)]
        pub struct Driver {
            get: GetProcAddress,
            /// The driver's version: 1000 * major + 10 * minor.
            pub version: i32,
            $($field: Option<unsafe extern "C" fn($($type),*) -> Code>,)*
        }

        impl Driver {
            fn load(get: GetProcAddress) -> Self {
                Self {
                    get,
                    version: 0,
                    $($field: {
                        let at = ask(get, concat!(stringify!($name), "\0"), $version, $flag);
                        // SAFETY: the driver gave this address for the function of this name in the
                        // version that has this signature; null is `None`.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                Option<unsafe extern "C" fn($($type),*) -> Code>,
                            >(at)
                        }
                    },)*
                }
            }

            $(pub fn $field(&self, $($arg: $type),*) -> Result<(), Code> {
                let function = self.$field.ok_or(code::CALL_REQUIRES_NEWER_DRIVER)?;
                // SAFETY: the arguments are those of the runtime's own caller, who vouches for its
                // pointers as the CUDA runtime API asks, or point to locals of the function that
                // calls this.
                match unsafe { function($($arg),*) } {
                    0 => Ok(()),
                    other => Err(other),
                }
            })*
        }
    };
}

fn ask(get: GetProcAddress, name: &str, version: c_int, flag: u64) -> *mut c_void {
    let (mut at, mut status) = (std::ptr::null_mut(), 0);
    // SAFETY: the name ends with a zero; the results are locals.
    let answer = unsafe { get(name.as_ptr().cast(), &mut at, version, flag, &mut status) };
    if answer == 0 { at } else { std::ptr::null_mut() }
}

/// A list of nodes, edges, or how many there are.
type List = *mut u64;
type Count = *mut usize;
type Edges = *mut [u8; 8];

table! {
    cuInit = cuInit 2000 LEGACY (flags: u32);
    cuDriverGetVersion = cuDriverGetVersion 2020 LEGACY (version: *mut i32);
    cuDeviceGetCount = cuDeviceGetCount 2000 LEGACY (count: *mut i32);
    cuDeviceGetName = cuDeviceGetName 2000 LEGACY (name: *mut u8, room: i32, device: i32);
    cuDeviceGetUuid = cuDeviceGetUuid 11040 LEGACY (uuid: *mut u8, device: i32);
    cuDeviceGetLuid = cuDeviceGetLuid 10000 LEGACY (luid: *mut u8, mask: *mut u32, device: i32);
    cuDeviceTotalMem = cuDeviceTotalMem 3020 LEGACY (bytes: *mut usize, device: i32);
    cuDeviceGetAttribute = cuDeviceGetAttribute 2000 LEGACY (
        value: *mut i32, attribute: i32, device: i32);
    cuDeviceGetPCIBusId = cuDeviceGetPCIBusId 4010 LEGACY (id: *mut u8, room: i32, device: i32);
    cuDeviceGetByPCIBusId = cuDeviceGetByPCIBusId 4010 LEGACY (device: *mut i32, id: *const u8);
    cuDeviceCanAccessPeer = cuDeviceCanAccessPeer 4000 LEGACY (
        can: *mut i32, device: i32, peer: i32);
    cuDeviceGetP2PAttribute = cuDeviceGetP2PAttribute 8000 LEGACY (
        value: *mut i32, attribute: i32, from: i32, to: i32);
    cuDeviceGetDefaultMemPool = cuDeviceGetDefaultMemPool 11020 LEGACY (
        pool: *mut u64, device: i32);
    cuDeviceGetMemPool = cuDeviceGetMemPool 11020 LEGACY (pool: *mut u64, device: i32);
    cuDeviceSetMemPool = cuDeviceSetMemPool 11020 LEGACY (device: i32, pool: u64);
    cuDeviceGetGraphMemAttribute = cuDeviceGetGraphMemAttribute 11040 LEGACY (
        device: i32, attribute: i32, value: *mut c_void);
    cuDeviceSetGraphMemAttribute = cuDeviceSetGraphMemAttribute 11040 LEGACY (
        device: i32, attribute: i32, value: *mut c_void);
    cuDeviceGraphMemTrim = cuDeviceGraphMemTrim 11040 LEGACY (device: i32);
    cuDevicePrimaryCtxRetain = cuDevicePrimaryCtxRetain 7000 LEGACY (
        context: *mut u64, device: i32);
    cuDevicePrimaryCtxReset = cuDevicePrimaryCtxReset 11000 LEGACY (device: i32);
    cuDevicePrimaryCtxSetFlags = cuDevicePrimaryCtxSetFlags 11000 LEGACY (device: i32, flags: u32);
    cuDevicePrimaryCtxGetState = cuDevicePrimaryCtxGetState 7000 LEGACY (
        device: i32, flags: *mut u32, active: *mut i32);
    cuCtxGetCurrent = cuCtxGetCurrent 4000 LEGACY (context: *mut u64);
    cuCtxSetCurrent = cuCtxSetCurrent 4000 LEGACY (context: u64);
    cuCtxGetDevice = cuCtxGetDevice 2000 LEGACY (device: *mut i32);
    cuCtxSynchronize = cuCtxSynchronize 2000 LEGACY ();
    cuCtxGetStreamPriorityRange = cuCtxGetStreamPriorityRange 5050 LEGACY (
        least: *mut i32, greatest: *mut i32);
    cuCtxEnablePeerAccess = cuCtxEnablePeerAccess 4000 LEGACY (peer: u64, flags: u32);
    cuCtxDisablePeerAccess = cuCtxDisablePeerAccess 4000 LEGACY (peer: u64);
    cuCtxGetLimit = cuCtxGetLimit 3010 LEGACY (value: *mut usize, limit: i32);
    cuCtxSetLimit = cuCtxSetLimit 3010 LEGACY (limit: i32, value: usize);
    cuCtxGetCacheConfig = cuCtxGetCacheConfig 3020 LEGACY (config: *mut i32);
    cuCtxSetCacheConfig = cuCtxSetCacheConfig 3020 LEGACY (config: i32);
    cuCtxResetPersistingL2Cache = cuCtxResetPersistingL2Cache 11000 LEGACY ();
    cuProfilerStart = cuProfilerStart 4000 LEGACY ();
    cuProfilerStop = cuProfilerStop 4000 LEGACY ();
    cuMemAlloc = cuMemAlloc 3020 LEGACY (address: *mut u64, bytes: usize);
    cuMemAllocPitch = cuMemAllocPitch 3020 LEGACY (
        address: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32);
    cuMemAllocManaged = cuMemAllocManaged 6000 LEGACY (
        address: *mut u64, bytes: usize, flags: u32);
    cuMemFree = cuMemFree 3020 LEGACY (address: u64);
    cuMemGetInfo = cuMemGetInfo 3020 LEGACY (free: *mut usize, total: *mut usize);
    cuMemHostAlloc = cuMemHostAlloc 2020 LEGACY (address: *mut u64, bytes: usize, flags: u32);
    cuMemFreeHost = cuMemFreeHost 2000 LEGACY (address: u64);
    cuMemHostRegister = cuMemHostRegister 6050 LEGACY (address: u64, bytes: usize, flags: u32);
    cuMemHostUnregister = cuMemHostUnregister 4000 LEGACY (address: u64);
    cuMemHostGetDevicePointer = cuMemHostGetDevicePointer 3020 LEGACY (
        to: *mut u64, address: u64, flags: u32);
    cuMemHostGetFlags = cuMemHostGetFlags 2030 LEGACY (flags: *mut u32, address: u64);
    cuPointerGetAttributes = cuPointerGetAttributes 7000 LEGACY (
        count: u32, attributes: *const i32, data: *const *mut c_void, address: u64);
    cuMemAdvise = cuMemAdvise 12020 LEGACY (
        address: u64, bytes: usize, advice: i32, location: Location);
    cuMemAdvise_v1 = cuMemAdvise 8000 LEGACY (
        address: u64, bytes: usize, advice: i32, device: i32);
    cuMemPrefetchAsync = cuMemPrefetchAsync 12020 LEGACY (
        address: u64, bytes: usize, location: Location, flags: u32, stream: u64);
    cuMemPrefetchAsync_v1 = cuMemPrefetchAsync 8000 LEGACY (
        address: u64, bytes: usize, device: i32, stream: u64);
    cuMemRangeGetAttribute = cuMemRangeGetAttribute 8000 LEGACY (
        data: *mut c_void, size: usize, attribute: i32, address: u64, bytes: usize);
    cuMemcpy = cuMemcpy 4000 LEGACY (to: u64, from: u64, bytes: usize);
    cuMemcpyHtoD = cuMemcpyHtoD 3020 LEGACY (to: u64, from: u64, bytes: usize);
    cuMemcpyDtoH = cuMemcpyDtoH 3020 LEGACY (to: u64, from: u64, bytes: usize);
    cuMemcpyDtoD = cuMemcpyDtoD 3020 LEGACY (to: u64, from: u64, bytes: usize);
    cuMemcpy_ptds = cuMemcpy 7000 PER_THREAD (to: u64, from: u64, bytes: usize);
    cuMemcpyHtoD_ptds = cuMemcpyHtoD 7000 PER_THREAD (to: u64, from: u64, bytes: usize);
    cuMemcpyDtoH_ptds = cuMemcpyDtoH 7000 PER_THREAD (to: u64, from: u64, bytes: usize);
    cuMemcpyDtoD_ptds = cuMemcpyDtoD 7000 PER_THREAD (to: u64, from: u64, bytes: usize);
    cuMemcpyAsync = cuMemcpyAsync 4000 LEGACY (to: u64, from: u64, bytes: usize, stream: u64);
    cuMemcpyHtoDAsync = cuMemcpyHtoDAsync 3020 LEGACY (
        to: u64, from: u64, bytes: usize, stream: u64);
    cuMemcpyDtoHAsync = cuMemcpyDtoHAsync 3020 LEGACY (
        to: u64, from: u64, bytes: usize, stream: u64);
    cuMemcpyDtoDAsync = cuMemcpyDtoDAsync 3020 LEGACY (
        to: u64, from: u64, bytes: usize, stream: u64);
    cuMemcpyPeer = cuMemcpyPeer 4000 LEGACY (
        to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize);
    cuMemcpyPeerAsync = cuMemcpyPeerAsync 4000 LEGACY (
        to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: u64);
    cuMemcpy2DUnaligned = cuMemcpy2DUnaligned 3020 LEGACY (what: *const Memcpy2D);
    cuMemcpy2DUnaligned_ptds = cuMemcpy2DUnaligned 7000 PER_THREAD (what: *const Memcpy2D);
    cuMemcpy2DAsync = cuMemcpy2DAsync 3020 LEGACY (what: *const Memcpy2D, stream: u64);
    cuMemsetD8 = cuMemsetD8 3020 LEGACY (to: u64, value: u8, count: usize);
    cuMemsetD8_ptds = cuMemsetD8 7000 PER_THREAD (to: u64, value: u8, count: usize);
    cuMemsetD8Async = cuMemsetD8Async 3020 LEGACY (
        to: u64, value: u8, count: usize, stream: u64);
    cuMemsetD2D8 = cuMemsetD2D8 3020 LEGACY (
        to: u64, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD2D8_ptds = cuMemsetD2D8 7000 PER_THREAD (
        to: u64, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD2D8Async = cuMemsetD2D8Async 3020 LEGACY (
        to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: u64);
    cuStreamCreate = cuStreamCreate 2000 LEGACY (stream: *mut u64, flags: u32);
    cuStreamCreateWithPriority = cuStreamCreateWithPriority 5050 LEGACY (
        stream: *mut u64, flags: u32, priority: i32);
    cuStreamDestroy = cuStreamDestroy 4000 LEGACY (stream: u64);
    cuStreamSynchronize = cuStreamSynchronize 2000 LEGACY (stream: u64);
    cuStreamQuery = cuStreamQuery 2000 LEGACY (stream: u64);
    cuStreamWaitEvent = cuStreamWaitEvent 3020 LEGACY (stream: u64, event: u64, flags: u32);
    cuStreamAddCallback = cuStreamAddCallback 5000 LEGACY (
        stream: u64, function: HostFunction, data: *mut c_void, flags: u32);
    cuLaunchHostFunc = cuLaunchHostFunc 10000 LEGACY (
        stream: u64, function: HostFunction, data: *mut c_void);
    cuStreamGetPriority = cuStreamGetPriority 5050 LEGACY (stream: u64, priority: *mut i32);
    cuStreamGetFlags = cuStreamGetFlags 5050 LEGACY (stream: u64, flags: *mut u32);
    cuStreamGetId = cuStreamGetId 12000 LEGACY (stream: u64, id: *mut u64);
    cuStreamGetDevice = cuStreamGetDevice 12080 LEGACY (stream: u64, device: *mut i32);
    cuStreamAttachMemAsync = cuStreamAttachMemAsync 6000 LEGACY (
        stream: u64, address: u64, bytes: usize, flags: u32);
    cuStreamCopyAttributes = cuStreamCopyAttributes 11000 LEGACY (to: u64, from: u64);
    cuStreamGetAttribute = cuStreamGetAttribute 11000 LEGACY (
        stream: u64, attribute: i32, value: *mut c_void);
    cuStreamSetAttribute = cuStreamSetAttribute 11000 LEGACY (
        stream: u64, attribute: i32, value: *const c_void);
    cuStreamIsCapturing = cuStreamIsCapturing 10000 LEGACY (stream: u64, status: *mut i32);
    cuStreamBeginCapture = cuStreamBeginCapture 10010 LEGACY (stream: u64, mode: i32);
    cuStreamBeginCaptureToGraph = cuStreamBeginCaptureToGraph 12030 LEGACY (
        stream: u64, graph: u64, nodes: *const u64, edges: *const [u8; 8], count: usize, mode: i32);
    cuStreamEndCapture = cuStreamEndCapture 10000 LEGACY (stream: u64, graph: *mut u64);
    cuStreamGetCaptureInfo = cuStreamGetCaptureInfo 11030 LEGACY (
        stream: u64, status: *mut i32, id: *mut u64, graph: *mut u64, nodes: *mut *const u64,
        count: *mut usize);
    cuStreamGetCaptureInfo_v3 = cuStreamGetCaptureInfo 12030 LEGACY (
        stream: u64, status: *mut i32, id: *mut u64, graph: *mut u64, nodes: *mut *const u64,
        edges: *mut *const [u8; 8], count: *mut usize);
    cuStreamUpdateCaptureDependencies = cuStreamUpdateCaptureDependencies 11030 LEGACY (
        stream: u64, nodes: List, count: usize, flags: u32);
    cuStreamUpdateCaptureDependencies_v2 = cuStreamUpdateCaptureDependencies 12030 LEGACY (
        stream: u64, nodes: List, edges: *const [u8; 8], count: usize, flags: u32);
    cuThreadExchangeStreamCaptureMode = cuThreadExchangeStreamCaptureMode 10010 LEGACY (
        mode: *mut i32);
    cuEventCreate = cuEventCreate 2000 LEGACY (event: *mut u64, flags: u32);
    cuEventDestroy = cuEventDestroy 4000 LEGACY (event: u64);
    cuEventRecord = cuEventRecord 2000 LEGACY (event: u64, stream: u64);
    cuEventRecordWithFlags = cuEventRecordWithFlags 11010 LEGACY (
        event: u64, stream: u64, flags: u32);
    cuEventQuery = cuEventQuery 2000 LEGACY (event: u64);
    cuEventSynchronize = cuEventSynchronize 2000 LEGACY (event: u64);
    cuEventElapsedTime = cuEventElapsedTime 2000 LEGACY (ms: *mut f32, start: u64, end: u64);
    cuEventElapsedTime_v2 = cuEventElapsedTime 12080 LEGACY (ms: *mut f32, start: u64, end: u64);
    cuMemAllocAsync = cuMemAllocAsync 11020 LEGACY (address: *mut u64, bytes: usize, stream: u64);
    cuMemAllocFromPoolAsync = cuMemAllocFromPoolAsync 11020 LEGACY (
        address: *mut u64, bytes: usize, pool: u64, stream: u64);
    cuMemFreeAsync = cuMemFreeAsync 11020 LEGACY (address: u64, stream: u64);
    cuMemPoolCreate = cuMemPoolCreate 11020 LEGACY (pool: *mut u64, wanted: *const c_void);
    cuMemPoolDestroy = cuMemPoolDestroy 11020 LEGACY (pool: u64);
    cuMemPoolGetAttribute = cuMemPoolGetAttribute 11020 LEGACY (
        pool: u64, attribute: i32, value: *mut c_void);
    cuMemPoolSetAttribute = cuMemPoolSetAttribute 11020 LEGACY (
        pool: u64, attribute: i32, value: *mut c_void);
    cuMemPoolSetAccess = cuMemPoolSetAccess 11020 LEGACY (
        pool: u64, wanted: *const c_void, count: usize);
    cuMemPoolGetAccess = cuMemPoolGetAccess 11020 LEGACY (
        flags: *mut i32, pool: u64, location: *mut Location);
    cuMemPoolTrimTo = cuMemPoolTrimTo 11020 LEGACY (pool: u64, bytes: usize);
    cuMemPoolExportToShareableHandle = cuMemPoolExportToShareableHandle 11020 LEGACY (
        to: *mut c_void, pool: u64, kind: i32, flags: u64);
    cuMemPoolImportFromShareableHandle = cuMemPoolImportFromShareableHandle 11020 LEGACY (
        pool: *mut u64, from: *mut c_void, kind: i32, flags: u64);
    cuMemPoolExportPointer = cuMemPoolExportPointer 11020 LEGACY (to: *mut c_void, address: u64);
    cuMemPoolImportPointer = cuMemPoolImportPointer 11020 LEGACY (
        address: *mut u64, pool: u64, from: *mut c_void);
    cuIpcGetMemHandle = cuIpcGetMemHandle 4010 LEGACY (handle: *mut IpcHandle, address: u64);
    cuIpcOpenMemHandle = cuIpcOpenMemHandle 11000 LEGACY (
        address: *mut u64, handle: IpcHandle, flags: u32);
    cuIpcCloseMemHandle = cuIpcCloseMemHandle 4010 LEGACY (address: u64);
    cuIpcGetEventHandle = cuIpcGetEventHandle 4010 LEGACY (handle: *mut IpcHandle, event: u64);
    cuIpcOpenEventHandle = cuIpcOpenEventHandle 4010 LEGACY (event: *mut u64, handle: IpcHandle);
    cuModuleLoadData = cuModuleLoadData 2000 LEGACY (module: *mut u64, image: *const c_void);
    cuModuleUnload = cuModuleUnload 2000 LEGACY (module: u64);
    cuModuleGetFunction = cuModuleGetFunction 2000 LEGACY (
        function: *mut u64, module: u64, name: *const c_char);
    cuModuleGetGlobal = cuModuleGetGlobal 3020 LEGACY (
        address: *mut u64, bytes: *mut usize, module: u64, name: *const c_char);
    cuFuncGetAttribute = cuFuncGetAttribute 2020 LEGACY (
        value: *mut i32, attribute: i32, function: u64);
    cuFuncSetAttribute = cuFuncSetAttribute 9000 LEGACY (
        function: u64, attribute: i32, value: i32);
    cuFuncSetCacheConfig = cuFuncSetCacheConfig 3000 LEGACY (function: u64, config: i32);
    cuOccupancyMaxActiveBlocks = cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags 7000 LEGACY (
        blocks: *mut i32, function: u64, block_size: i32, shared: usize, flags: u32);
    cuLaunchKernel = cuLaunchKernel 4000 LEGACY (
        function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: u64, parameters: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchKernelEx = cuLaunchKernelEx 11060 LEGACY (
        config: *const DriverLaunchConfig, function: u64, parameters: *mut *mut c_void,
        extra: *mut *mut c_void);
    cuLaunchCooperativeKernel = cuLaunchCooperativeKernel 9000 LEGACY (
        function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: u64, parameters: *mut *mut c_void);
    cuGraphCreate = cuGraphCreate 10000 LEGACY (graph: *mut u64, flags: u32);
    cuGraphDestroy = cuGraphDestroy 10000 LEGACY (graph: u64);
    cuGraphClone = cuGraphClone 10000 LEGACY (clone: *mut u64, graph: u64);
    cuGraphInstantiateWithFlags = cuGraphInstantiateWithFlags 11040 LEGACY (
        exec: *mut u64, graph: u64, flags: u64);
    cuGraphInstantiateWithParams = cuGraphInstantiateWithParams 12000 LEGACY (
        exec: *mut u64, graph: u64, parameters: *mut c_void);
    cuGraphLaunch = cuGraphLaunch 10000 LEGACY (exec: u64, stream: u64);
    cuGraphUpload = cuGraphUpload 11010 LEGACY (exec: u64, stream: u64);
    cuGraphExecDestroy = cuGraphExecDestroy 10000 LEGACY (exec: u64);
    cuGraphExecUpdate = cuGraphExecUpdate 12000 LEGACY (
        exec: u64, graph: u64, result: *mut c_void);
    cuGraphGetNodes = cuGraphGetNodes 10000 LEGACY (graph: u64, nodes: List, count: Count);
    cuGraphGetRootNodes = cuGraphGetRootNodes 10000 LEGACY (graph: u64, nodes: List, count: Count);
    cuGraphGetEdges = cuGraphGetEdges 10000 LEGACY (
        graph: u64, from: List, to: List, count: Count);
    cuGraphGetEdges_v2 = cuGraphGetEdges 12030 LEGACY (
        graph: u64, from: List, to: List, edges: Edges, count: Count);
    cuGraphNodeGetType = cuGraphNodeGetType 10000 LEGACY (node: u64, kind: *mut i32);
    cuGraphNodeGetDependencies = cuGraphNodeGetDependencies 10000 LEGACY (
        node: u64, nodes: List, count: Count);
    cuGraphNodeGetDependencies_v2 = cuGraphNodeGetDependencies 12030 LEGACY (
        node: u64, nodes: List, edges: Edges, count: Count);
    cuGraphNodeGetDependentNodes = cuGraphNodeGetDependentNodes 10000 LEGACY (
        node: u64, nodes: List, count: Count);
    cuGraphNodeGetDependentNodes_v2 = cuGraphNodeGetDependentNodes 12030 LEGACY (
        node: u64, nodes: List, edges: Edges, count: Count);
    cuGraphAddDependencies = cuGraphAddDependencies 10000 LEGACY (
        graph: u64, from: *const u64, to: *const u64, count: usize);
    cuGraphAddDependencies_v2 = cuGraphAddDependencies 12030 LEGACY (
        graph: u64, from: *const u64, to: *const u64, edges: *const [u8; 8], count: usize);
    cuGraphDestroyNode = cuGraphDestroyNode 10000 LEGACY (node: u64);
    cuGraphAddEmptyNode = cuGraphAddEmptyNode 10000 LEGACY (
        node: *mut u64, graph: u64, after: *const u64, count: usize);
    cuGraphAddHostNode = cuGraphAddHostNode 10000 LEGACY (
        node: *mut u64, graph: u64, after: *const u64, count: usize, what: *const c_void);
    cuGraphAddChildGraphNode = cuGraphAddChildGraphNode 10000 LEGACY (
        node: *mut u64, graph: u64, after: *const u64, count: usize, child: u64);
    cuGraphAddEventRecordNode = cuGraphAddEventRecordNode 11010 LEGACY (
        node: *mut u64, graph: u64, after: *const u64, count: usize, event: u64);
    cuGraphAddEventWaitNode = cuGraphAddEventWaitNode 11010 LEGACY (
        node: *mut u64, graph: u64, after: *const u64, count: usize, event: u64);
    cuGraphAddMemFreeNode = cuGraphAddMemFreeNode 11040 LEGACY (
        node: *mut u64, graph: u64, after: *const u64, count: usize, address: u64);
    cuGraphAddMemAllocNode = cuGraphAddMemAllocNode 11040 LEGACY (
        node: *mut u64, graph: u64, after: *const u64, count: usize, what: *mut c_void);
    cuGraphDebugDotPrint = cuGraphDebugDotPrint 11030 LEGACY (
        graph: u64, path: *const c_char, flags: u32);
}

impl Driver {
    /// What the driver has under a name: status 0 with an address, or why there is none.
    pub fn entry_point(
        &self,
        name: *const c_char,
        version: u32,
        flags: u64,
    ) -> Result<(*mut c_void, c_int), Code> {
        let (mut at, mut status) = (std::ptr::null_mut(), 0);
        let version = c_int::try_from(version).map_err(|_| code::INVALID_VALUE)?;
        // SAFETY: the name is the caller's, who vouches for it; the results are locals.
        match unsafe { (self.get)(name, &mut at, version, flags, &mut status) } {
            0 => Ok((at, status)),
            other => Err(other),
        }
    }
}

static DRIVER: AtomicPtr<Driver> = AtomicPtr::new(std::ptr::null_mut());
static LOADING: Mutex<()> = Mutex::new(());

/// The driver, loaded at the first use and initialised.
pub fn driver() -> Result<&'static Driver, Code> {
    // SAFETY: the pointer is null or that of a leaked, finished table.
    match unsafe { DRIVER.load(Ordering::Acquire).as_ref() } {
        Some(driver) => Ok(driver),
        None => load(),
    }
}

#[cold]
fn load() -> Result<&'static Driver, Code> {
    let _one = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: as above.
    if let Some(driver) = unsafe { DRIVER.load(Ordering::Acquire).as_ref() } {
        return Ok(driver);
    }
    let driver = open().ok_or(code::INSUFFICIENT_DRIVER)?;
    driver.cuInit(0)?;
    let driver = Box::leak(Box::new(driver));
    DRIVER.store(driver, Ordering::Release);
    Ok(driver)
}

/// The table of a driver that is not initialised yet; `None` without a driver that can give one.
pub fn open() -> Option<Driver> {
    let find = |handle, name: &CStr| {
        // SAFETY: an open handle and a name.
        let at = unsafe { libc::dlsym(handle, name.as_ptr()) };
        (!at.is_null()).then_some(at)
    };
    // SAFETY: loading the CUDA driver runs its constructors, which is what is wanted.
    let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() {
        return None;
    }
    let at = find(handle, c"cuGetProcAddress_v2")?;
    // SAFETY: the driver API gives the function of this name this signature.
    let get = unsafe { std::mem::transmute::<*mut c_void, GetProcAddress>(at) };
    let mut driver = Driver::load(get);
    let mut version = 0;
    driver.cuDriverGetVersion(&mut version).ok()?;
    driver.version = version;
    Some(driver)
}

/// The driver, if anything has used it yet.
pub fn loaded() -> Option<&'static Driver> {
    // SAFETY: as in `driver`.
    unsafe { DRIVER.load(Ordering::Acquire).as_ref() }
}
