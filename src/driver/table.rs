//! The driver's entry points: one nullable function pointer each, and a count of its calls.
//!
//! Signatures are those of cuda.h; every result and every enum crosses as an integer, since a
//! newer driver may send values that no list of ours knows.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::{CUdeviceptr, CUmemAccessDesc, CUmemAllocationProp};

/// A `CUcontext`, `CUstream` or `CUevent`: never looked into.
type Opaque = *mut c_void;
/// A `CUmemGenericAllocationHandle`.
type Memory = u64;

/// A `CUhostFn`.
type Destructor = unsafe extern "C" fn(*mut c_void);

macro_rules! entries {
    ($($field:ident = $symbol:literal $name:literal ($($argument:ty),*),)*) => {
        /// The pointers; `None` where this driver is too old to have the function.
        #[derive(Default)]
        pub(super) struct Table {
            $(pub(super) $field: Option<unsafe extern "C" fn($($argument),*) -> c_int>,)*
        }

        /// Names the entries, to count their calls.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        pub(super) enum Entry { $($field,)* }

        /// The functions' names in cuda.h, without version suffix, in the order of [`Entry`].
        pub(super) const NAMES: &[&str] = &[$($name,)*];

        impl Table {
            /// Asks `resolve` for every symbol.
            ///
            /// # Safety
            /// `resolve` gives null, or a function that stays callable for ever and has the
            /// signature that cuda.h gives to the symbol.
            pub(super) unsafe fn fill(resolve: &dyn Fn(&CStr) -> *mut c_void) -> Self {
                Self { $($field: {
                    let found = resolve($symbol);
                    // SAFETY: `found` is null, which is `None`, or a function of this signature:
                    // the caller's promise. Pointers to functions and to data have one size here.
                    unsafe {
                        std::mem::transmute::<
                            *mut c_void,
                            Option<unsafe extern "C" fn($($argument),*) -> c_int>,
                        >(found)
                    }
                },)* }
            }
        }
    };
}

entries! {
    init = c"cuInit" "cuInit" (c_uint),
    driver_version = c"cuDriverGetVersion" "cuDriverGetVersion" (*mut c_int),
    device_count = c"cuDeviceGetCount" "cuDeviceGetCount" (*mut c_int),
    device_get = c"cuDeviceGet" "cuDeviceGet" (*mut c_int, c_int),
    device_name = c"cuDeviceGetName" "cuDeviceGetName" (*mut c_char, c_int, c_int),
    device_attribute = c"cuDeviceGetAttribute" "cuDeviceGetAttribute" (*mut c_int, c_int, c_int),
    device_total = c"cuDeviceTotalMem_v2" "cuDeviceTotalMem" (*mut usize, c_int),
    can_access = c"cuDeviceCanAccessPeer" "cuDeviceCanAccessPeer" (*mut c_int, c_int, c_int),
    primary_retain = c"cuDevicePrimaryCtxRetain" "cuDevicePrimaryCtxRetain" (*mut Opaque, c_int),
    primary_release = c"cuDevicePrimaryCtxRelease_v2" "cuDevicePrimaryCtxRelease" (c_int),
    primary_state = c"cuDevicePrimaryCtxGetState" "cuDevicePrimaryCtxGetState" (c_int, *mut c_uint, *mut c_int),
    peer_enable = c"cuCtxEnablePeerAccess" "cuCtxEnablePeerAccess" (Opaque, c_uint),
    peer_disable = c"cuCtxDisablePeerAccess" "cuCtxDisablePeerAccess" (Opaque),
    context_current = c"cuCtxGetCurrent" "cuCtxGetCurrent" (*mut Opaque),
    context_push = c"cuCtxPushCurrent_v2" "cuCtxPushCurrent" (Opaque),
    context_pop = c"cuCtxPopCurrent_v2" "cuCtxPopCurrent" (*mut Opaque),
    context_device = c"cuCtxGetDevice" "cuCtxGetDevice" (*mut c_int),
    context_id = c"cuCtxGetId" "cuCtxGetId" (Opaque, *mut u64),
    context_synchronize = c"cuCtxSynchronize" "cuCtxSynchronize" (),
    context_record = c"cuCtxRecordEvent" "cuCtxRecordEvent" (Opaque, Opaque),
    capture_mode = c"cuThreadExchangeStreamCaptureMode" "cuThreadExchangeStreamCaptureMode" (*mut c_int),
    stream_id = c"cuStreamGetId" "cuStreamGetId" (Opaque, *mut u64),
    stream_context = c"cuStreamGetCtx" "cuStreamGetCtx" (Opaque, *mut Opaque),
    stream_create = c"cuStreamCreate" "cuStreamCreate" (*mut Opaque, c_uint),
    stream_capture = c"cuStreamGetCaptureInfo_v2" "cuStreamGetCaptureInfo" (Opaque, *mut c_int, *mut u64, *mut Opaque, *mut *const Opaque, *mut usize),
    stream_is_capturing = c"cuStreamIsCapturing" "cuStreamIsCapturing" (Opaque, *mut c_int),
    user_object_create = c"cuUserObjectCreate" "cuUserObjectCreate" (*mut Opaque, Opaque, Destructor, c_uint, c_uint),
    user_object_release = c"cuUserObjectRelease" "cuUserObjectRelease" (Opaque, c_uint),
    graph_retain_object = c"cuGraphRetainUserObject" "cuGraphRetainUserObject" (Opaque, Opaque, c_uint, c_uint),
    stream_wait = c"cuStreamWaitEvent" "cuStreamWaitEvent" (Opaque, Opaque, c_uint),
    event_create = c"cuEventCreate" "cuEventCreate" (*mut Opaque, c_uint),
    event_record = c"cuEventRecord" "cuEventRecord" (Opaque, Opaque),
    event_query = c"cuEventQuery" "cuEventQuery" (Opaque),
    event_synchronize = c"cuEventSynchronize" "cuEventSynchronize" (Opaque),
    event_destroy = c"cuEventDestroy_v2" "cuEventDestroy" (Opaque),
    memory_info = c"cuMemGetInfo_v2" "cuMemGetInfo" (*mut usize, *mut usize),
    memory_alloc = c"cuMemAlloc_v2" "cuMemAlloc" (*mut CUdeviceptr, usize),
    memory_free = c"cuMemFree_v2" "cuMemFree" (CUdeviceptr),
    host_alloc = c"cuMemHostAlloc" "cuMemHostAlloc" (*mut Opaque, usize, c_uint),
    host_free = c"cuMemFreeHost" "cuMemFreeHost" (Opaque),
    granularity = c"cuMemGetAllocationGranularity" "cuMemGetAllocationGranularity" (*mut usize, *const CUmemAllocationProp, c_int),
    address_reserve = c"cuMemAddressReserve" "cuMemAddressReserve" (*mut CUdeviceptr, usize, usize, CUdeviceptr, u64),
    address_free = c"cuMemAddressFree" "cuMemAddressFree" (CUdeviceptr, usize),
    handle_create = c"cuMemCreate" "cuMemCreate" (*mut Memory, usize, *const CUmemAllocationProp, u64),
    handle_release = c"cuMemRelease" "cuMemRelease" (Memory),
    map = c"cuMemMap" "cuMemMap" (CUdeviceptr, usize, usize, Memory, u64),
    unmap = c"cuMemUnmap" "cuMemUnmap" (CUdeviceptr, usize),
    set_access = c"cuMemSetAccess" "cuMemSetAccess" (CUdeviceptr, usize, *const CUmemAccessDesc, usize),
}

/// How often each entry was called, over the whole process.
pub(super) struct Counts([AtomicU64; NAMES.len()]);

impl Counts {
    pub(super) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; NAMES.len()])
    }

    pub(super) fn add(&self, entry: Entry) {
        self.0[entry as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Each function that was called, with its count.
    pub(super) fn list(&self) -> Vec<(&'static str, u64)> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        NAMES.iter().copied().zip(counts).filter(|(_, count)| *count > 0).collect()
    }
}
