//! The GPU as the replayer uses it: the driver calls that it makes by itself.
//!
//! One path for real and simulated devices: `libcuda.so.1`, by its soname, and its functions by
//! name. Every call is counted here under its name in cuda.h, so that the calls of whoever serves
//! the memory are what remains: `allocator's = all - replayer's`. Only [`Gpu::mem_alloc`] and
//! [`Gpu::mem_free`] are not counted: they *are* an allocator, and it counts them.
//!
//! Used from one thread. Every method leaves the device's primary context current.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fmt;

/// A stream handle; [`Stream::DEFAULT`] is the legacy default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(pub usize);

impl Stream {
    /// The legacy default stream.
    pub const DEFAULT: Self = Self(0);
}

/// An event handle.
#[derive(Clone, Copy, Debug)]
pub struct EventHandle(usize);

/// A function of a loaded module.
#[derive(Clone, Copy, Debug)]
pub struct Kernel(usize);

/// A driver call that failed, or could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuError {
    /// The function's name in cuda.h.
    pub function: String,
    /// The `CUresult`; 0 where there was no such function to call.
    pub code: i32,
}

impl GpuError {
    /// Whether the device had no memory for the request.
    pub fn is_out_of_memory(&self) -> bool {
        self.code == 2
    }
}

impl fmt::Display for GpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            0 => write!(f, "the driver has no {}: it is too old", self.function),
            code => write!(f, "{} returned {code} ({})", self.function, code_name(code)),
        }
    }
}

impl std::error::Error for GpuError {}

fn code_name(code: i32) -> &'static str {
    cuddy::error::DriverError { function: "", code }.name()
}

/// Declares the functions: a table of pointers, and a counter for each.
macro_rules! driver_functions {
    ($($name:ident = $symbol:literal ($($argument:ty),*);)*) => {
        #[allow(non_snake_case)]
        struct Table { $($name: unsafe extern "C" fn($($argument),*) -> c_int,)* }

        #[allow(non_snake_case)]
        #[derive(Default)]
        struct Counts { $($name: Cell<u64>,)* }

        impl Table {
            fn resolve(library: *mut c_void) -> Result<Self, GpuError> {
                Ok(Self { $($name: {
                    let symbol = lookup(library, $symbol)?;
                    // SAFETY: cuda.h declares the function of this name with this signature; the
                    // symbol was found in libcuda and is not null.
                    unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> c_int>(symbol) }
                },)* })
            }
        }

        impl Counts {
            fn list(&self) -> BTreeMap<String, u64> {
                let all = [$((stringify!($name), self.$name.get()),)*];
                all.into_iter().filter(|&(_, n)| n > 0).map(|(name, n)| (name.to_owned(), n)).collect()
            }
        }
    };
}

// Handles are passed as `usize`, which has the size and ABI of a pointer.
driver_functions! {
    cuInit = "cuInit" (c_uint);
    cuDriverGetVersion = "cuDriverGetVersion" (*mut c_int);
    cuDeviceGetCount = "cuDeviceGetCount" (*mut c_int);
    cuDeviceGet = "cuDeviceGet" (*mut c_int, c_int);
    cuDeviceGetName = "cuDeviceGetName" (*mut c_char, c_int, c_int);
    cuDeviceGetAttribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    cuDeviceTotalMem = "cuDeviceTotalMem_v2" (*mut usize, c_int);
    cuDevicePrimaryCtxRetain = "cuDevicePrimaryCtxRetain" (*mut usize, c_int);
    cuCtxSetCurrent = "cuCtxSetCurrent" (usize);
    cuCtxSynchronize = "cuCtxSynchronize" ();
    cuStreamCreate = "cuStreamCreate" (*mut usize, c_uint);
    cuEventCreate = "cuEventCreate" (*mut usize, c_uint);
    cuEventRecord = "cuEventRecord" (usize, usize);
    cuStreamWaitEvent = "cuStreamWaitEvent" (usize, usize, c_uint);
    cuModuleLoadData = "cuModuleLoadData" (*mut usize, *const c_void);
    cuModuleGetFunction = "cuModuleGetFunction" (*mut usize, usize, *const c_char);
    cuLaunchKernel = "cuLaunchKernel"
        (usize, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, usize, *mut *mut c_void, *mut *mut c_void);
    cuMemHostAlloc = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    cuMemHostGetDevicePointer = "cuMemHostGetDevicePointer_v2" (*mut u64, *mut c_void, c_uint);
    cuMemGetInfo = "cuMemGetInfo_v2" (*mut usize, *mut usize);
    cuMemAlloc = "cuMemAlloc_v2" (*mut u64, usize);
    cuMemFree = "cuMemFree_v2" (u64);
}

fn lookup(library: *mut c_void, symbol: &str) -> Result<*mut c_void, GpuError> {
    let missing = || GpuError { function: symbol.to_owned(), code: 0 };
    let name = CString::new(symbol).map_err(|_| missing())?;
    // SAFETY: `library` came from dlopen and is never closed; `name` is a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() { Err(missing()) } else { Ok(found) }
}

/// Opens `libcuda.so.1`: the machine's, or whichever library of that soname is loaded already.
/// The error is the loader's own sentence.
fn open_library() -> Result<*mut c_void, String> {
    // SAFETY: the name is a C string; libcuda's initialisers are what any CUDA program runs.
    let library =
        unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if !library.is_null() {
        return Ok(library);
    }
    // SAFETY: dlerror returns null or a C string that lives until the thread's next dl call.
    let text = unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            None
        } else {
            Some(CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    };
    Err(text.unwrap_or_else(|| "libcuda.so.1 could not be loaded".to_owned()))
}

/// The driver, initialised, and perhaps one device of it in use.
pub struct Gpu {
    table: Table,
    counts: Counts,
    simulated: bool,
    library: *mut c_void,
}

/// What the driver says of a device without using it.
#[derive(Clone, Debug)]
pub struct DeviceFacts {
    /// Its name.
    pub name: String,
    /// All its memory, in bytes.
    pub memory: u64,
}

/// Counts a call, makes it, and turns its code into a result.
macro_rules! call {
    ($gpu:ident.$name:ident($($argument:expr),*)) => {{
        $gpu.counts.$name.set($gpu.counts.$name.get() + 1);
        // SAFETY: the table holds the function that cuda.h declares so; every pointer argument is
        // to a live local or to memory that the caller of the method vouches for.
        let code = unsafe { ($gpu.table.$name)($($argument),*) };
        check(stringify!($name), code)
    }};
}

/// Turns a code into a result.
pub fn check(function: &str, code: c_int) -> Result<(), GpuError> {
    match code {
        0 => Ok(()),
        code => Err(GpuError { function: function.to_owned(), code }),
    }
}

impl Gpu {
    /// Loads the driver and initialises it. The error says what is missing.
    pub fn load() -> Result<Self, String> {
        let library = open_library()?;
        let table = Table::resolve(library).map_err(|error| error.to_string())?;
        let simulated = lookup(library, "simcuda_calls_total").is_ok();
        let gpu = Self { table, counts: Counts::default(), simulated, library };
        call!(gpu.cuInit(0)).map_err(|error| error.to_string())?;
        Ok(gpu)
    }

    /// A function of the driver by its name there, for whoever declares and counts it himself.
    pub fn symbol(&self, name: &str) -> Result<*mut c_void, GpuError> {
        lookup(self.library, name)
    }

    /// Whether the driver is the simulated one.
    pub fn simulated(&self) -> bool {
        self.simulated
    }

    /// The driver's version, such as 13000 for 13.0.
    pub fn version(&self) -> Result<i32, GpuError> {
        let mut version = 0;
        call!(self.cuDriverGetVersion(&mut version))?;
        Ok(version)
    }

    /// How many devices there are.
    pub fn device_count(&self) -> Result<u32, GpuError> {
        let mut count = 0;
        call!(self.cuDeviceGetCount(&mut count))?;
        Ok(count.max(0) as u32)
    }

    /// Name and memory of a device; no context is made.
    pub fn device_facts(&self, number: u32) -> Result<DeviceFacts, GpuError> {
        let device = self.device(number)?;
        let mut name = [0u8; 256];
        call!(self.cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int - 1, device))?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        let mut memory = 0;
        call!(self.cuDeviceTotalMem(&mut memory, device))?;
        Ok(DeviceFacts { name: name.to_string_lossy().into_owned(), memory: memory as u64 })
    }

    /// An attribute of a device, by its number in cuda.h.
    pub fn attribute(&self, number: u32, attribute: i32) -> Result<i32, GpuError> {
        let device = self.device(number)?;
        let mut value = 0;
        call!(self.cuDeviceGetAttribute(&mut value, attribute, device))?;
        Ok(value)
    }

    fn device(&self, number: u32) -> Result<c_int, GpuError> {
        let mut device = 0;
        call!(self.cuDeviceGet(&mut device, number as c_int))?;
        Ok(device)
    }

    /// Makes the primary context of a device and makes it current on this thread.
    pub fn use_device(&self, number: u32) -> Result<(), GpuError> {
        let device = self.device(number)?;
        let mut context = 0;
        call!(self.cuDevicePrimaryCtxRetain(&mut context, device))?;
        call!(self.cuCtxSetCurrent(context))
    }

    /// The host waits for all work of the context.
    pub fn synchronize(&self) -> Result<(), GpuError> {
        call!(self.cuCtxSynchronize())
    }

    /// A new stream that the default stream does not wait for, nor it for that.
    pub fn stream(&self) -> Result<Stream, GpuError> {
        const NON_BLOCKING: c_uint = 1;
        let mut stream = 0;
        call!(self.cuStreamCreate(&mut stream, NON_BLOCKING))?;
        Ok(Stream(stream))
    }

    /// A new event that takes no times.
    pub fn event(&self) -> Result<EventHandle, GpuError> {
        const DISABLE_TIMING: c_uint = 2;
        let mut event = 0;
        call!(self.cuEventCreate(&mut event, DISABLE_TIMING))?;
        Ok(EventHandle(event))
    }

    /// Work that `waiter` is given from now on runs after what `awaited` has been given so far.
    pub fn order(
        &self,
        waiter: Stream,
        awaited: Stream,
        event: EventHandle,
    ) -> Result<(), GpuError> {
        call!(self.cuEventRecord(event.0, awaited.0))?;
        call!(self.cuStreamWaitEvent(waiter.0, event.0, 0))
    }

    /// Loads PTX text and finds a kernel in it by name.
    pub fn kernel(&self, ptx: &CStr, name: &CStr) -> Result<Kernel, GpuError> {
        let mut module = 0;
        call!(self.cuModuleLoadData(&mut module, ptx.as_ptr().cast()))?;
        let mut kernel = 0;
        call!(self.cuModuleGetFunction(&mut kernel, module, name.as_ptr()))?;
        Ok(Kernel(kernel))
    }

    /// Queues a kernel whose parameters are all 64-bit numbers, with enough threads for `items`.
    ///
    /// The kernel must take exactly these parameters; what it does with addresses among them is
    /// the device's business, which reports a bad one as an error and touches no host memory.
    pub fn launch<const N: usize>(
        &self,
        kernel: Kernel,
        stream: Stream,
        items: u64,
        mut parameters: [u64; N],
    ) -> Result<(), GpuError> {
        const THREADS: u64 = 128;
        let blocks = items.div_ceil(THREADS).clamp(1, 1024) as c_uint;
        let mut pointers =
            parameters.each_mut().map(|value| std::ptr::from_mut(value).cast::<c_void>());
        call!(self.cuLaunchKernel(
            kernel.0,
            blocks,
            1,
            1,
            THREADS as c_uint,
            1,
            1,
            0,
            stream.0,
            pointers.as_mut_ptr(),
            std::ptr::null_mut()
        ))
    }

    /// Host memory that kernels can write, all zero; it lives until the process ends.
    pub fn counters(&self, length: usize) -> Result<Counters, GpuError> {
        const DEVICE_MAP: c_uint = 2;
        let mut host = std::ptr::null_mut();
        let bytes = length.max(1) * size_of::<u64>();
        call!(self.cuMemHostAlloc(&mut host, bytes, DEVICE_MAP))?;
        // SAFETY: the driver has just given us `bytes` bytes there, and nobody else uses them.
        unsafe { std::ptr::write_bytes(host.cast::<u8>(), 0, bytes) };
        let mut address = 0;
        call!(self.cuMemHostGetDevicePointer(&mut address, host, 0))?;
        Ok(Counters { host: host.cast(), length, address })
    }

    /// Free and total memory of the device, in bytes.
    pub fn memory(&self) -> Result<(u64, u64), GpuError> {
        let (mut free, mut total) = (0, 0);
        call!(self.cuMemGetInfo(&mut free, &mut total))?;
        Ok((free as u64, total as u64))
    }

    /// Memory straight from the driver. Not counted here.
    pub fn mem_alloc(&self, bytes: u64) -> Result<u64, GpuError> {
        let mut address = 0;
        // SAFETY: the table holds the function that cuda.h declares so; `address` is a live local.
        let code = unsafe { (self.table.cuMemAlloc)(&mut address, bytes as usize) };
        check("cuMemAlloc", code).map(|()| address)
    }

    /// Gives it back, after the wait for the device that this implies. Not counted here.
    pub fn mem_free(&self, address: u64) -> Result<(), GpuError> {
        // SAFETY: the table holds the function that cuda.h declares so; the driver checks addresses.
        check("cuMemFree", unsafe { (self.table.cuMemFree)(address) })
    }

    /// Calls made by these methods so far, by function.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.counts.list()
    }
}

/// Numbers in host memory to which kernels add.
pub struct Counters {
    host: *const u64,
    length: usize,
    address: u64,
}

impl Counters {
    /// The address that a kernel uses for the number of that index.
    pub fn address(&self, index: usize) -> u64 {
        debug_assert!(index < self.length);
        self.address + (index * size_of::<u64>()) as u64
    }

    /// All numbers. Only after the device was synchronised are they complete.
    pub fn read(&self) -> Vec<u64> {
        // SAFETY: `host` points to `length` numbers that live until the process ends; volatile,
        // since the device writes them behind the compiler's back.
        (0..self.length).map(|index| unsafe { self.host.add(index).read_volatile() }).collect()
    }
}
