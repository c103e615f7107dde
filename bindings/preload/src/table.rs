//! The **table**: every driver function that we export and hand out, and those that we call.
//!
//! A hook is known by four things: its symbol, the name that `cuGetProcAddress` knows it by, the CUDA
//! version that brought it, and its stream convention. Results and enums cross as integers.

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::doors::{self, Home};
use crate::{attributes, captures, contexts, lookup, memory, pools, process, shortage};

/// A `CUcontext`, `CUstream`, `CUevent`, `CUgraph`, `CUmemoryPool`, `CUmodule`: never looked into.
pub type Opaque = *mut c_void;
/// A `CUdeviceptr`.
pub type Address = u64;
/// A C string.
pub type Text = *const std::ffi::c_char;
/// A `CUipcMemHandle`.
pub type IpcHandle = *mut [u8; 64];

/// `CUDA_ERROR_NOT_INITIALIZED`: what a program hears whose driver is not there.
const NOT_INITIALIZED: c_int = 3;
/// `CUDA_ERROR_NOT_FOUND`.
const NOT_FOUND: c_int = 500;
/// `CUDA_ERROR_UNKNOWN`.
const UNKNOWN: c_int = 999;

/// The stream convention of a hook, as `cuGetProcAddress` takes it.
pub const DEFAULT: u64 = 1;
/// Stream 0 is the calling thread's own.
pub const PER_THREAD: u64 = 2;

/// A hook, for those who look it up.
#[derive(Debug)]
pub struct Row {
    /// Its exported name.
    pub symbol: &'static CStr,
    /// The name that `cuGetProcAddress` knows.
    pub base: &'static CStr,
    /// Since this version: 1000 * major + 10 * minor.
    pub version: c_int,
    /// [`DEFAULT`] or [`PER_THREAD`].
    pub flag: u64,
    /// What is handed out in the driver's place.
    pub ours: fn() -> usize,
}

/// Looks for one row after the other; there are some dozens.
pub fn row_of(symbol: &CStr) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.symbol == symbol)
}

fn text(bytes: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(bytes.as_bytes()).unwrap_or(c"")
}

macro_rules! driver {
    (
        hooks { $($symbol:ident = $base:ident $version:literal $flag:ident
            ($($argument:ident: $type:ty),*) => $serve:path;)* }
        calls { $($called:ident ($($called_type:ty),*);)* }
    ) => {
        /// The driver's own functions; `None` where it does not have one.
        #[allow(non_snake_case)]
        #[derive(Debug, Default)]
        pub struct Reals {
            $(pub $symbol: Option<unsafe extern "C" fn($($type),*) -> c_int>,)*
            $(pub $called: Option<unsafe extern "C" fn($($called_type),*) -> c_int>,)*
        }

        impl Reals {
            /// Asks `resolve` for every symbol.
            ///
            /// # Safety
            /// `resolve` gives null, or a function that stays callable for ever and has the
            /// signature that cuda.h gives to the symbol.
            pub unsafe fn fill(resolve: &dyn Fn(&CStr) -> *mut c_void) -> Self {
                Self {
                    $($symbol: {
                        let found = resolve(text(concat!(stringify!($symbol), "\0")));
                        // SAFETY: null is `None`; else a function of this signature, by the caller's
                        // promise.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                Option<unsafe extern "C" fn($($type),*) -> c_int>,
                            >(found)
                        }
                    },)*
                    $($called: {
                        let found = resolve(text(concat!(stringify!($called), "\0")));
                        // SAFETY: as above.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                Option<unsafe extern "C" fn($($called_type),*) -> c_int>,
                            >(found)
                        }
                    },)*
                }
            }
        }

        /// The hooks: exported for programs that are linked to the driver, and the very same functions
        /// for those that look them up.
        #[allow(non_snake_case)]
        mod hooks {
            use super::*;

            $(
                /// The driver's function, as cuda.h has it.
                ///
                /// # Safety
                /// As cuda.h says.
                #[cfg_attr(not(test), unsafe(no_mangle))]
                pub unsafe extern "C" fn $symbol($($argument: $type),*) -> c_int {
                    let Some(home) = doors::home() else { return NOT_INITIALIZED };
                    let Some(real) = home.reals.$symbol else { return NOT_FOUND };
                    // SAFETY: the arguments are the program's own, who vouches for them as cuda.h
                    // asks.
                    let served = catch_unwind(AssertUnwindSafe(|| unsafe {
                        $serve(home, real, $($argument),*)
                    }));
                    served.unwrap_or_else(|_| {
                        process::give_up();
                        UNKNOWN
                    })
                }
            )*
        }

        /// Every hook.
        pub static ROWS: &[Row] = &[$(Row {
            symbol: match CStr::from_bytes_with_nul(concat!(stringify!($symbol), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            },
            base: match CStr::from_bytes_with_nul(concat!(stringify!($base), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            },
            version: $version,
            flag: $flag,
            ours: || hooks::$symbol as *const () as usize,
        },)*];

    };
}

driver! {
    hooks {
        cuGetProcAddress = cuGetProcAddress 11030 DEFAULT (
            name: Text, to: *mut Opaque, version: c_int, flags: u64) => lookup::version_1;
        cuGetProcAddress_v2 = cuGetProcAddress 12000 DEFAULT (
            name: Text, to: *mut Opaque, version: c_int, flags: u64, status: *mut c_int)
            => lookup::version_2;

        cuMemAlloc_v2 = cuMemAlloc 3020 DEFAULT (to: *mut Address, bytes: usize) => memory::alloc;
        cuMemAllocPitch_v2 = cuMemAllocPitch 3020 DEFAULT (
            to: *mut Address, pitch: *mut usize, width: usize, height: usize, element: u32)
            => memory::alloc_pitch;
        cuMemFree_v2 = cuMemFree 3020 DEFAULT (address: Address) => memory::free;
        cuMemGetInfo_v2 = cuMemGetInfo 3020 DEFAULT (free: *mut usize, total: *mut usize)
            => shortage::info;

        cuMemGetAddressRange_v2 = cuMemGetAddressRange 3020 DEFAULT (
            base: *mut Address, bytes: *mut usize, address: Address) => attributes::range;
        cuPointerGetAttribute = cuPointerGetAttribute 4000 DEFAULT (
            data: Opaque, attribute: c_int, address: Address) => attributes::get;
        cuPointerGetAttributes = cuPointerGetAttributes 7000 DEFAULT (
            count: u32, attributes: *const c_int, data: *const Opaque, address: Address)
            => attributes::get_many;
        cuPointerSetAttribute = cuPointerSetAttribute 6000 DEFAULT (
            value: *const c_void, attribute: c_int, address: Address) => attributes::set;
        cuIpcGetMemHandle = cuIpcGetMemHandle 4010 DEFAULT (
            handle: IpcHandle, address: Address) => attributes::export;
        cuMemGetHandleForAddressRange = cuMemGetHandleForAddressRange 11070 DEFAULT (
            handle: Opaque, address: Address, bytes: usize, kind: c_int, flags: u64)
            => attributes::export_range;

        cuMemAllocAsync = cuMemAllocAsync 11020 DEFAULT (
            to: *mut Address, bytes: usize, stream: Opaque) => pools::alloc;
        cuMemAllocAsync_ptsz = cuMemAllocAsync 11020 PER_THREAD (
            to: *mut Address, bytes: usize, stream: Opaque) => pools::alloc;
        cuMemAllocFromPoolAsync = cuMemAllocFromPoolAsync 11020 DEFAULT (
            to: *mut Address, bytes: usize, pool: Opaque, stream: Opaque) => pools::alloc_from;
        cuMemAllocFromPoolAsync_ptsz = cuMemAllocFromPoolAsync 11020 PER_THREAD (
            to: *mut Address, bytes: usize, pool: Opaque, stream: Opaque) => pools::alloc_from;
        cuMemFreeAsync = cuMemFreeAsync 11020 DEFAULT (address: Address, stream: Opaque)
            => memory::free_async;
        cuMemFreeAsync_ptsz = cuMemFreeAsync 11020 PER_THREAD (address: Address, stream: Opaque)
            => memory::free_async;
        cuMemPoolSetAttribute = cuMemPoolSetAttribute 11020 DEFAULT (
            pool: Opaque, attribute: c_int, value: Opaque) => pools::set_attribute;
        cuMemPoolGetAttribute = cuMemPoolGetAttribute 11020 DEFAULT (
            pool: Opaque, attribute: c_int, value: Opaque) => pools::get_attribute;

        cuMemCreate = cuMemCreate 10020 DEFAULT (
            handle: *mut u64, bytes: usize, properties: *const c_void, flags: u64)
            => shortage::create;
        cuMemAllocManaged = cuMemAllocManaged 6000 DEFAULT (
            to: *mut Address, bytes: usize, flags: u32) => shortage::alloc_managed;
        cuArrayCreate_v2 = cuArrayCreate 3020 DEFAULT (
            array: *mut Opaque, what: *const c_void) => shortage::array;
        cuArray3DCreate_v2 = cuArray3DCreate 3020 DEFAULT (
            array: *mut Opaque, what: *const c_void) => shortage::array;

        cuStreamBeginCapture = cuStreamBeginCapture 10000 DEFAULT (stream: Opaque)
            => captures::begin_1;
        cuStreamBeginCapture_ptsz = cuStreamBeginCapture 10000 PER_THREAD (stream: Opaque)
            => captures::begin_1_per_thread;
        cuStreamBeginCapture_v2 = cuStreamBeginCapture 10010 DEFAULT (
            stream: Opaque, mode: c_int) => captures::begin_2;
        cuStreamBeginCapture_v2_ptsz = cuStreamBeginCapture 10010 PER_THREAD (
            stream: Opaque, mode: c_int) => captures::begin_2_per_thread;
        cuStreamBeginCaptureToGraph = cuStreamBeginCaptureToGraph 12030 DEFAULT (
            stream: Opaque, graph: Opaque, nodes: *const Opaque, edges: *const c_void,
            count: usize, mode: c_int) => captures::begin_to_graph;
        cuStreamBeginCaptureToGraph_ptsz = cuStreamBeginCaptureToGraph 12030 PER_THREAD (
            stream: Opaque, graph: Opaque, nodes: *const Opaque, edges: *const c_void,
            count: usize, mode: c_int) => captures::begin_to_graph_per_thread;
        cuStreamEndCapture = cuStreamEndCapture 10000 DEFAULT (stream: Opaque, graph: *mut Opaque)
            => captures::end;
        cuStreamEndCapture_ptsz = cuStreamEndCapture 10000 PER_THREAD (
            stream: Opaque, graph: *mut Opaque) => captures::end_per_thread;
        cuStreamDestroy_v2 = cuStreamDestroy 4000 DEFAULT (stream: Opaque)
            => captures::stream_destroy;

        cuCtxDestroy = cuCtxDestroy 2000 DEFAULT (context: Opaque) => contexts::destroy;
        cuCtxDestroy_v2 = cuCtxDestroy 4000 DEFAULT (context: Opaque) => contexts::destroy;
        cuCtxDetach = cuCtxDetach 2000 DEFAULT (context: Opaque) => contexts::destroy;
        cuDevicePrimaryCtxRelease = cuDevicePrimaryCtxRelease 7000 DEFAULT (device: c_int)
            => contexts::primary_end;
        cuDevicePrimaryCtxRelease_v2 = cuDevicePrimaryCtxRelease 11000 DEFAULT (device: c_int)
            => contexts::primary_end;
        cuDevicePrimaryCtxReset = cuDevicePrimaryCtxReset 7000 DEFAULT (device: c_int)
            => contexts::primary_end;
        cuDevicePrimaryCtxReset_v2 = cuDevicePrimaryCtxReset 11000 DEFAULT (device: c_int)
            => contexts::primary_end;
        cuCtxSynchronize = cuCtxSynchronize 2000 DEFAULT () => contexts::synchronize;
        cuCtxEnablePeerAccess = cuCtxEnablePeerAccess 4000 DEFAULT (peer: Opaque, flags: u32)
            => contexts::enable_peer;
    }
    calls {
        cuDriverGetVersion(*mut c_int);
        cuCtxGetCurrent(*mut Opaque);
        cuCtxPushCurrent_v2(Opaque);
        cuCtxPopCurrent_v2(*mut Opaque);
        cuCtxGetDevice(*mut c_int);
        cuCtxRecordEvent(Opaque, Opaque);
        cuEventCreate(*mut Opaque, u32);
        cuEventQuery(Opaque);
        cuStreamIsCapturing(Opaque, *mut c_int);
        cuDevicePrimaryCtxRetain(*mut Opaque, c_int);
        cuDevicePrimaryCtxGetState(c_int, *mut u32, *mut c_int);
        cuDeviceGetDefaultMemPool(*mut Opaque, c_int);
        cuMemPoolTrimTo(Opaque, usize);
    }
}

/// Whether a driver has what no program could do without.
pub fn is_driver(home: &Home) -> bool {
    home.reals.cuMemAlloc_v2.is_some() && home.reals.cuCtxGetCurrent.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The simulator's table of the driver's exports is made from cuda.h.
    #[test]
    fn rows_are_as_the_header_has_them() {
        let names = include_str!("../../../tests/simcuda/names/names.tsv");
        let mut seen = BTreeSet::new();
        for row in ROWS {
            let text = |name: &CStr| name.to_str().expect("ASCII").to_owned();
            let flag = if row.flag == PER_THREAD { "per-thread" } else { "default" };
            let line = format!("{}\t{}\t{}\t{flag}", text(row.symbol), text(row.base), row.version);
            assert!(names.lines().any(|other| other == line), "{line}");
            assert!(seen.insert(line));
            assert_eq!(row_of(row.symbol).map(|it| it.symbol), Some(row.symbol));
        }
        assert!(row_of(c"cuInit").is_none() && row_of(c"").is_none());
        let addresses: BTreeSet<_> = ROWS.iter().map(|row| (row.ours)()).collect();
        assert!(addresses.len() > ROWS.len() / 2, "the forms are functions of their own");
    }
}
