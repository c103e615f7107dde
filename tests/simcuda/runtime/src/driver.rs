//! The **driver**: a table of its functions, each asked for by name and version, once. One that is
//! not there answers NOT_SUPPORTED.

use crate::{Code, Outcome, code};
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

type Resolver = unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64, *mut i32) -> Code;

macro_rules! functions {
    ($($name:ident $version:literal ($($arg:ident: $type:ty),*);)*) => {
        struct Table { $($name: Option<unsafe extern "C" fn($($type),*) -> Code>,)* }

        impl Table {
            fn fill(resolve: Resolver) -> Self {
                Self { $($name: {
                    let name = concat!(stringify!($name), "\0");
                    let at = ask(resolve, name, $version);
                    // SAFETY: the driver says that this is the function of that name and version,
                    // whose C signature this is; a null pointer is None.
                    unsafe { std::mem::transmute::<
                        *mut c_void, Option<unsafe extern "C" fn($($type),*) -> Code>>(at) }
                },)* }
            }
        }

        $(pub fn $name($($arg: $type),*) -> Outcome {
            let Some(function) = table()?.$name else { return Err(code::NOT_SUPPORTED) };
            // SAFETY: the arguments are the C caller's (see the crate), or this crate's own.
            answer(unsafe { function($($arg),*) })
        })*
    };
}

type Mode = i32;

functions! {
    cuInit 2000 (flags: u32);
    cuDriverGetVersion 2020 (version: *mut i32);
    cuDeviceGetCount 2000 (count: *mut i32);
    cuDeviceGetName 2000 (name: *mut u8, room: i32, device: i32);
    cuDeviceGetUuid 11040 (uuid: *mut [u8; 16], device: i32);
    cuDeviceTotalMem 3020 (bytes: *mut usize, device: i32);
    cuDeviceGetAttribute 2000 (value: *mut i32, attribute: i32, device: i32);
    cuDeviceGetPCIBusId 4010 (id: *mut u8, room: i32, device: i32);
    cuDeviceCanAccessPeer 4000 (can: *mut i32, device: i32, peer: i32);
    cuDevicePrimaryCtxRetain 7000 (context: *mut u64, device: i32);
    cuDevicePrimaryCtxReset 11000 (device: i32);
    cuDeviceGetDefaultMemPool 11020 (pool: *mut u64, device: i32);
    cuDeviceGetMemPool 11020 (pool: *mut u64, device: i32);
    cuDeviceSetMemPool 11020 (device: i32, pool: u64);
    cuCtxGetCurrent 4000 (context: *mut u64);
    cuCtxSetCurrent 4000 (context: u64);
    cuCtxGetDevice 2000 (device: *mut i32);
    cuCtxSynchronize 2000 ();
    cuCtxGetStreamPriorityRange 5050 (least: *mut i32, greatest: *mut i32);
    cuCtxEnablePeerAccess 4000 (peer: u64, flags: u32);
    cuCtxDisablePeerAccess 4000 (peer: u64);
    cuMemAlloc 3020 (address: *mut u64, bytes: usize);
    cuMemAllocManaged 6000 (address: *mut u64, bytes: usize, flags: u32);
    cuMemFree 3020 (address: u64);
    cuMemAllocAsync 11020 (address: *mut u64, bytes: usize, stream: u64);
    cuMemAllocFromPoolAsync 11020 (address: *mut u64, bytes: usize, pool: u64, stream: u64);
    cuMemFreeAsync 11020 (address: u64, stream: u64);
    cuMemHostAlloc 2020 (at: *mut u64, bytes: usize, flags: u32);
    cuMemFreeHost 2000 (at: u64);
    cuMemHostGetDevicePointer 3020 (address: *mut u64, at: u64, flags: u32);
    cuMemHostRegister 6050 (at: u64, bytes: usize, flags: u32);
    cuMemHostUnregister 4000 (at: u64);
    cuMemGetInfo 3020 (free: *mut usize, total: *mut usize);
    cuMemcpy 4000 (to: u64, from: u64, bytes: usize);
    cuMemcpyAsync 4000 (to: u64, from: u64, bytes: usize, stream: u64);
    cuMemcpyPeer 4000 (to: u64, toContext: u64, from: u64, fromContext: u64, bytes: usize);
    cuMemcpyPeerAsync 4000
        (to: u64, toContext: u64, from: u64, fromContext: u64, bytes: usize, stream: u64);
    cuMemsetD8 3020 (address: u64, value: u8, bytes: usize);
    cuMemsetD8Async 3020 (address: u64, value: u8, bytes: usize, stream: u64);
    cuMemPoolCreate 11020 (pool: *mut u64, properties: *const c_void);
    cuMemPoolDestroy 11020 (pool: u64);
    cuMemPoolGetAttribute 11020 (pool: u64, attribute: i32, value: *mut c_void);
    cuMemPoolSetAttribute 11020 (pool: u64, attribute: i32, value: *mut c_void);
    cuMemPoolSetAccess 11020 (pool: u64, list: *const c_void, count: usize);
    cuMemPoolTrimTo 11020 (pool: u64, keep: usize);
    cuPointerGetAttribute 4000 (value: *mut c_void, attribute: i32, address: u64);
    cuIpcGetMemHandle 4010 (handle: *mut Handle, address: u64);
    cuIpcOpenMemHandle 11000 (address: *mut u64, handle: Handle, flags: u32);
    cuIpcCloseMemHandle 4010 (address: u64);
    cuIpcGetEventHandle 4010 (handle: *mut Handle, event: u64);
    cuIpcOpenEventHandle 4010 (event: *mut u64, handle: Handle);
    cuStreamCreate 2000 (stream: *mut u64, flags: u32);
    cuStreamCreateWithPriority 5050 (stream: *mut u64, flags: u32, priority: i32);
    cuStreamDestroy 4000 (stream: u64);
    cuStreamQuery 2000 (stream: u64);
    cuStreamSynchronize 2000 (stream: u64);
    cuStreamWaitEvent 3020 (stream: u64, event: u64, flags: u32);
    cuStreamGetPriority 5050 (stream: u64, priority: *mut i32);
    cuStreamGetFlags 5050 (stream: u64, flags: *mut u32);
    cuStreamGetId 12000 (stream: u64, id: *mut u64);
    cuStreamAddCallback 5000 (stream: u64, function: u64, data: u64, flags: u32);
    cuLaunchHostFunc 10000 (stream: u64, function: u64, data: u64);
    cuStreamBeginCapture 10010 (stream: u64, mode: Mode);
    cuStreamEndCapture 10000 (stream: u64, graph: *mut u64);
    cuStreamIsCapturing 10000 (stream: u64, status: *mut i32);
    cuStreamGetCaptureInfo 11030 (stream: u64, status: *mut i32, id: *mut u64, graph: *mut u64,
        dependencies: *mut *const u64, count: *mut usize);
    cuStreamUpdateCaptureDependencies 11030
        (stream: u64, dependencies: *mut u64, count: usize, flags: u32);
    cuThreadExchangeStreamCaptureMode 10010 (mode: *mut Mode);
    cuEventCreate 2000 (event: *mut u64, flags: u32);
    cuEventRecord 2000 (event: u64, stream: u64);
    cuEventRecordWithFlags 11010 (event: u64, stream: u64, flags: u32);
    cuEventQuery 2000 (event: u64);
    cuEventSynchronize 2000 (event: u64);
    cuEventDestroy 4000 (event: u64);
    cuEventElapsedTime 2000 (ms: *mut f32, begin: u64, end: u64);
    cuModuleLoadData 2000 (module: *mut u64, image: *const c_void);
    cuModuleGetFunction 2000 (function: *mut u64, module: u64, name: *const c_char);
    cuFuncGetAttribute 2020 (value: *mut i32, attribute: i32, function: u64);
    cuFuncSetAttribute 9000 (function: u64, attribute: i32, value: i32);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags 7000
        (blocks: *mut i32, function: u64, size: i32, shared: usize, flags: u32);
    cuLaunchKernel 4000 (function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32,
        shared: u32, stream: u64, arguments: *mut *mut c_void, extra: *mut *mut c_void);
    cuGraphAddEmptyNode 10000
        (node: *mut u64, graph: u64, dependencies: *const u64, count: usize);
    cuGraphDebugDotPrint 11030 (graph: u64, path: *const c_char, flags: u32);
    cuGraphDestroy 10000 (graph: u64);
    cuGraphExecDestroy 10000 (exec: u64);
    cuGraphGetNodes 10000 (graph: u64, nodes: *mut u64, count: *mut usize);
    cuGraphInstantiateWithFlags 11040 (exec: *mut u64, graph: u64, flags: u64);
    cuGraphLaunch 10000 (exec: u64, stream: u64);
    cuGraphNodeGetDependencies 10000 (node: u64, nodes: *mut u64, count: *mut usize);
    cuGraphNodeGetType 10000 (node: u64, kind: *mut i32);
}

/// `cudaIpcMemHandle_t` and `cudaIpcEventHandle_t`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Handle([u8; 64]);

fn answer(code: Code) -> Outcome {
    if code == 0 { Ok(()) } else { Err(code) }
}

fn table() -> Result<&'static Table, Code> {
    static TABLE: OnceLock<Option<Table>> = OnceLock::new();
    let found = TABLE.get_or_init(|| resolver().map(Table::fill));
    found.as_ref().ok_or(code::INSUFFICIENT_DRIVER)
}

/// The driver's `cuGetProcAddress_v2`.
pub fn resolver() -> Option<Resolver> {
    const DRIVER: &CStr = c"libcuda.so.1";
    const RESOLVER: &CStr = c"cuGetProcAddress_v2";
    // SAFETY: two texts that end with 0; the driver is never closed.
    let at = unsafe {
        let handle = libc::dlopen(DRIVER.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
        if handle.is_null() { handle } else { libc::dlsym(handle, RESOLVER.as_ptr()) }
    };
    // SAFETY: the driver's function of this name has this signature; null is None.
    unsafe { std::mem::transmute::<*mut c_void, Option<Resolver>>(at) }
}

fn ask(resolve: Resolver, name: &str, version: i32) -> *mut c_void {
    let (mut at, mut status) = (std::ptr::null_mut(), 0);
    // SAFETY: the name ends with 0, and both results are ours.
    let code = unsafe { resolve(name.as_ptr().cast(), &mut at, version, 0, &mut status) };
    if code == 0 { at } else { std::ptr::null_mut() }
}
