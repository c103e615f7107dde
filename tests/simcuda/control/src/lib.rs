//! **simcuda-control**: finds the simulated driver, loads it, and calls its control functions.
//!
//! Loading it makes every later `dlopen("libcuda.so.1")` of the process find it, because that is
//! its SONAME.
//!
//! ```no_run
//! let sim = simcuda_control::load().expect("the simulated driver is built");
//! sim.configure("memory", "24GiB").expect("before cuInit");
//! ```

use std::ffi::{CStr, CString, OsStr, OsString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Why the simulator could not be had, or refused something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// What a control function that can refuse answers.
pub type Result<T> = std::result::Result<T, Error>;

const FILE: &str = "libsimcuda.so";
const VARIABLE: &str = "CUDDY_SIM_LIBRARY";

/// Where the library may be, the likeliest place first: where `CUDDY_SIM_LIBRARY` says, else beside
/// the executable and around it.
pub fn candidates() -> Vec<PathBuf> {
    if let Some(file) = std::env::var_os(VARIABLE) {
        return vec![file.into()];
    }
    let executable = std::env::current_exe().unwrap_or_default();
    let folder = executable.parent().unwrap_or(Path::new("."));
    // A test lies in deps/ beside its library; a program beside it, or in bin/ with lib/cuddy/ next
    // to that.
    ["deps", "", "../deps", "../lib/cuddy", "../lib"]
        .map(|part| folder.join(part).join(FILE))
        .into()
}

/// The library's file.
pub fn find() -> Result<PathBuf> {
    let all = candidates();
    let found = all.iter().find(|file| file.is_file());
    found.cloned().ok_or_else(|| {
        let list: Vec<_> = all.iter().map(|file| file.display().to_string()).collect();
        Error(format!(
            "the simulated CUDA driver was not found; looked for {}. Build it with 'cargo build -p simcuda', or set {VARIABLE} to the file",
            list.join(", ")
        ))
    })
}

/// Loads the library once; later calls give the same.
pub fn load() -> Result<&'static Sim> {
    static SIM: OnceLock<Result<Sim>> = OnceLock::new();
    SIM.get_or_init(|| Sim::open(&find()?)).as_ref().map_err(Clone::clone)
}

/// What to set so that a child process finds the simulated driver when it asks for CUDA:
/// `LD_PRELOAD=<library>`.
pub fn preload() -> Result<(&'static str, OsString)> {
    Ok(("LD_PRELOAD", find()?.into_os_string()))
}

macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) $(-> $answer:ty)?;)*) => {
        /// The loaded simulator. Its methods may be called from any thread.
        #[derive(Debug)]
        pub struct Sim {
            file: PathBuf,
            handle: usize,
            $($name: unsafe extern "C" fn($($arg),*) $(-> $answer)?,)*
        }

        impl Sim {
            fn open(file: &Path) -> Result<Self> {
                let handle = open(file)?;
                Ok(Self {
                    file: file.to_owned(),
                    handle,
                    $($name: {
                        let at = symbol(handle, stringify!($name))?;
                        // SAFETY: the library declares this function with this signature
                        // (include/simcuda.h), and stays loaded.
                        unsafe {
                            std::mem::transmute::<usize, unsafe extern "C" fn($($arg),*) $(-> $answer)?>(at)
                        }
                    },)*
                })
            }
        }

        /// The names of all control functions.
        pub const FUNCTIONS: &[&str] = &[$(stringify!($name)),*];
    };
}

type Text = *const libc::c_char;
type Buffer = *mut u8;

functions! {
    simcuda_configure: fn(Text, Text) -> i32;
    simcuda_reset: fn();
    simcuda_error: fn(Buffer, u64) -> i32;
    simcuda_schedule: fn(Text) -> i32;
    simcuda_checker: fn(Text) -> i32;
    simcuda_report_uninitialised: fn(i32);
    simcuda_report_count: fn() -> u64;
    simcuda_report_text: fn(u64, Buffer, u64) -> i32;
    simcuda_reports_clear: fn();
    simcuda_accesses_checked: fn() -> u64;
    simcuda_unknown_launches: fn() -> u64;
    simcuda_kernel_accesses: fn(Text, Text) -> i32;
    simcuda_fault: fn(Text, u64, u64, i32, i32) -> i32;
    simcuda_fault_random: fn(Text, u64, u64, i32) -> i32;
    simcuda_meet: fn(Text, u64, Option<extern "C" fn(usize)>, usize) -> i32;
    simcuda_faults_clear: fn();
    simcuda_faults_fired: fn() -> u64;
    simcuda_oom_above: fn(i32, u64) -> i32;
    simcuda_others_use: fn(i32, u64) -> i32;
    simcuda_total_memory: fn(i32, u64) -> i32;
    simcuda_used: fn(i32) -> u64;
    simcuda_used_peak: fn(i32) -> u64;
    simcuda_used_peak_reset: fn(i32) -> i32;
    simcuda_contexts_created: fn(i32) -> u64;
    simcuda_objects: fn(Text) -> u64;
    simcuda_calls: fn(Text) -> u64;
    simcuda_calls_total: fn() -> u64;
    simcuda_call_name: fn(u64, Buffer, u64) -> i32;
    simcuda_call_count: fn(u64) -> u64;
    simcuda_calls_clear: fn();
    simcuda_gate_open: fn(u64);
    simcuda_time_ns: fn() -> u64;
    simcuda_driver_time_ns: fn() -> u64;
    simcuda_advance: fn(u64);
    simcuda_cost: fn(Text, u64, u64);
    simcuda_peek: fn(u64, Buffer, u64) -> i32;
    simcuda_poke: fn(u64, *const u8, u64) -> i32;
    simcuda_threads: fn(Text) -> i32;
    simcuda_signal: fn(u64);
    simcuda_await: fn(u64);
    simcuda_host_write: fn(u64, u64, Text) -> i32;
    simcuda_host_read: fn(u64, u64, Text) -> i32;
}

fn c_string(text: impl AsRef<OsStr>) -> Result<CString> {
    let bytes = text.as_ref().as_bytes();
    CString::new(bytes).map_err(|_| Error("a text with a zero byte in it".to_owned()))
}

fn loader_error() -> Error {
    // SAFETY: `dlerror` gives null or a C string that lives until the next dl call of this thread.
    let text = unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            None
        } else {
            Some(CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    };
    Error(text.unwrap_or_else(|| "the dynamic loader gives no reason".to_owned()))
}

fn open(file: &Path) -> Result<usize> {
    let name = c_string(file)?;
    // SAFETY: the file is the simulator, whose loading runs no code of its own.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() { Err(loader_error()) } else { Ok(handle as usize) }
}

fn symbol(handle: usize, name: &str) -> Result<usize> {
    let c_name = c_string(name)?;
    // SAFETY: the handle came from `dlopen` and is never closed.
    let at = unsafe { libc::dlsym(handle as *mut c_void, c_name.as_ptr()) };
    if at.is_null() {
        Err(Error(format!("{name} is missing: {}", loader_error())))
    } else {
        Ok(at as usize)
    }
}

/// Calls a control function.
macro_rules! call {
    ($sim:ident.$name:ident($($arg:expr),*)) => {
        // SAFETY: the pointers among the arguments are of C strings and buffers that outlive the
        // call.
        unsafe { ($sim.$name)($($arg),*) }
    };
}

impl Sim {
    /// The file that was loaded.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The address of an exported function, `cu*` or `simcuda_*`; `None` if there is none.
    pub fn symbol(&self, name: &str) -> Option<*mut c_void> {
        symbol(self.handle, name).ok().map(|at| at as *mut c_void)
    }

    fn check(&self, answer: i32) -> Result<()> {
        if answer == 0 {
            return Ok(());
        }
        let mut buffer = vec![0; 4096];
        call!(self.simcuda_error(buffer.as_mut_ptr(), buffer.len() as u64));
        Err(Error(text_of(&buffer)))
    }

    /// Sets what `SIMCUDA_<KEY>` would; before `cuInit` or after [`Sim::reset`].
    pub fn configure(&self, key: &str, value: &str) -> Result<()> {
        let (key, value) = (c_string(key)?, c_string(value)?);
        self.check(call!(self.simcuda_configure(key.as_ptr(), value.as_ptr())))
    }

    /// Everything as before `cuInit`; what `configure` said is forgotten too.
    pub fn reset(&self) {
        call!(self.simcuda_reset());
    }

    /// `eager`, `lazy`, `lag:K` or `random:SEED`, from now on.
    pub fn schedule(&self, schedule: &str) -> Result<()> {
        let schedule = c_string(schedule)?;
        self.check(call!(self.simcuda_schedule(schedule.as_ptr())))
    }

    /// `off`, `log` or `abort`, from now on.
    pub fn checker(&self, mode: &str) -> Result<()> {
        let mode = c_string(mode)?;
        self.check(call!(self.simcuda_checker(mode.as_ptr())))
    }

    /// Whether reads of what was never written are findings, for objects made from now on.
    pub fn report_uninitialised(&self, on: bool) {
        call!(self.simcuda_report_uninitialised(i32::from(on)));
    }

    /// The checker's findings so far.
    pub fn reports(&self) -> Vec<String> {
        let count = call!(self.simcuda_report_count());
        let mut buffer = vec![0; 16 << 10];
        let mut one = |i| {
            let answer =
                call!(self.simcuda_report_text(i, buffer.as_mut_ptr(), buffer.len() as u64));
            (answer == 0).then(|| text_of(&buffer))
        };
        (0..count).map_while(&mut one).collect()
    }

    /// How many findings there are.
    pub fn report_count(&self) -> u64 {
        call!(self.simcuda_report_count())
    }

    /// Forgets the findings.
    pub fn clear_reports(&self) {
        call!(self.simcuda_reports_clear());
    }

    /// How many accesses the checker has compared: 0 means that it has proved nothing.
    pub fn accesses_checked(&self) -> u64 {
        call!(self.simcuda_accesses_checked())
    }

    /// Launches whose accesses nobody knows.
    pub fn unknown_launches(&self) -> u64 {
        call!(self.simcuda_unknown_launches())
    }

    /// Says what a kernel uses: `("scale_*", "write p0 bytes=w2*4")`; `include/simcuda.h` says how.
    pub fn kernel_accesses(&self, kernel: &str, uses: &str) -> Result<()> {
        let (kernel, uses) = (c_string(kernel)?, c_string(uses)?);
        self.check(call!(self.simcuda_kernel_accesses(kernel.as_ptr(), uses.as_ptr())))
    }

    /// Makes call `first` of a function fail, counted from now, and every `every`-th after it
    /// unless that is 0.
    pub fn fault(
        &self,
        function: &str,
        first: u64,
        every: u64,
        code: i32,
        after_effect: bool,
    ) -> Result<()> {
        let function = c_string(function)?;
        let after = i32::from(after_effect);
        self.check(call!(self.simcuda_fault(function.as_ptr(), first, every, code, after)))
    }

    /// Makes a share of the calls fail; `*` is every function.
    pub fn fault_random(
        &self,
        function: &str,
        per_million: u64,
        seed: u64,
        code: i32,
    ) -> Result<()> {
        let function = c_string(function)?;
        self.check(call!(self.simcuda_fault_random(function.as_ptr(), per_million, seed, code)))
    }

    /// Lets `first` go before call `at` of a function, counted from now, on that call's thread and
    /// before its effect: it may make driver calls, or wait for threads that do. Leaks a few bytes if
    /// that call never comes.
    pub fn meet(
        &self,
        function: &str,
        at: u64,
        first: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        type First = Box<dyn FnOnce() + Send>;
        extern "C" fn go(first: usize) {
            // SAFETY: it is the box below; the simulator calls once.
            let first = unsafe { Box::from_raw(first as *mut First) };
            first();
        }
        let function = c_string(function)?;
        let first = Box::into_raw(Box::<First>::new(Box::new(first))) as usize;
        self.check(call!(self.simcuda_meet(function.as_ptr(), at, Some(go), first)))
    }

    /// No more faults.
    pub fn clear_faults(&self) {
        call!(self.simcuda_faults_clear());
    }

    /// How many calls were made to fail.
    pub fn faults_fired(&self) -> u64 {
        call!(self.simcuda_faults_fired())
    }

    /// Refuses requests of at least this many bytes; 0: none.
    pub fn oom_above(&self, device: i32, bytes: u64) -> Result<()> {
        self.check(call!(self.simcuda_oom_above(device, bytes)))
    }

    /// Bytes that other processes take.
    pub fn others_use(&self, device: i32, bytes: u64) -> Result<()> {
        self.check(call!(self.simcuda_others_use(device, bytes)))
    }

    /// The device's size.
    pub fn total_memory(&self, device: i32, bytes: u64) -> Result<()> {
        self.check(call!(self.simcuda_total_memory(device, bytes)))
    }

    /// Physical bytes in use by this process.
    pub fn used(&self, device: i32) -> u64 {
        call!(self.simcuda_used(device))
    }

    /// The most that [`Sim::used`] has been.
    pub fn used_peak(&self, device: i32) -> u64 {
        call!(self.simcuda_used_peak(device))
    }

    /// The peak begins anew at what is in use.
    pub fn reset_used_peak(&self, device: i32) -> Result<()> {
        self.check(call!(self.simcuda_used_peak_reset(device)))
    }

    /// Contexts created on a device since `cuInit`.
    pub fn contexts_created(&self, device: i32) -> u64 {
        call!(self.simcuda_contexts_created(device))
    }

    /// Live objects of a kind: `handles`, `mappings`, `reservations`, `allocations`,
    /// `host_allocations`, `host_allocation_bytes` (their sum), `host_registrations`, `objects`,
    /// `streams`, `events`, `contexts`, `modules`. `u64::MAX` for any other name.
    pub fn objects(&self, what: &str) -> u64 {
        c_string(what).map_or(u64::MAX, |what| call!(self.simcuda_objects(what.as_ptr())))
    }

    /// Calls of a driver function since the last clearing; all its variants count under the base
    /// name.
    pub fn calls(&self, function: &str) -> u64 {
        c_string(function).map_or(0, |function| call!(self.simcuda_calls(function.as_ptr())))
    }

    /// Calls of all driver functions since the last clearing.
    pub fn calls_total(&self) -> u64 {
        call!(self.simcuda_calls_total())
    }

    /// The driver functions called since the last clearing, by name.
    pub fn calls_by_name(&self) -> Vec<(String, u64)> {
        let mut buffer = vec![0; 256];
        let mut one = |i| {
            let answer = call!(self.simcuda_call_name(i, buffer.as_mut_ptr(), buffer.len() as u64));
            (answer == 0).then(|| (text_of(&buffer), call!(self.simcuda_call_count(i))))
        };
        (0..).map_while(&mut one).collect()
    }

    /// Counts calls from 0 again.
    pub fn clear_calls(&self) {
        call!(self.simcuda_calls_clear());
    }

    /// Lets what waits in kernel `simcuda_gate(gate)` go on, now and for good.
    pub fn gate_open(&self, gate: u64) {
        call!(self.simcuda_gate_open(gate));
    }

    /// Virtual time of the host.
    pub fn time_ns(&self) -> u64 {
        call!(self.simcuda_time_ns())
    }

    /// The part of it that passed in driver calls, waits included.
    pub fn driver_time_ns(&self) -> u64 {
        call!(self.simcuda_driver_time_ns())
    }

    /// Lets virtual time pass on the host.
    pub fn advance(&self, ns: u64) {
        call!(self.simcuda_advance(ns));
    }

    /// What a driver function costs from now on.
    pub fn cost(&self, function: &str, fixed_ns: u64, ns_per_mib: u64) -> Result<()> {
        let function = c_string(function)?;
        call!(self.simcuda_cost(function.as_ptr(), fixed_ns, ns_per_mib));
        Ok(())
    }

    /// Reads device memory as it is now, outside all order and checks.
    pub fn peek(&self, address: u64, into: &mut [u8]) -> Result<()> {
        self.check(call!(self.simcuda_peek(address, into.as_mut_ptr(), into.len() as u64)))
    }

    /// Writes device memory, outside all order and checks.
    pub fn poke(&self, address: u64, from: &[u8]) -> Result<()> {
        self.check(call!(self.simcuda_poke(address, from.as_ptr(), from.len() as u64)))
    }

    /// Whether host threads are taken to be ordered as their driver calls happen (the default), or
    /// only by signals.
    pub fn threads_ordered(&self, ordered: bool) -> Result<()> {
        let order = if ordered { c"ordered" } else { c"separate" };
        self.check(call!(self.simcuda_threads(order.as_ptr())))
    }

    /// What this thread did so far comes before what follows an [`Sim::await_signal`] of the same
    /// tag.
    pub fn signal(&self, tag: u64) {
        call!(self.simcuda_signal(tag));
    }

    /// The other end of [`Sim::signal`].
    pub fn await_signal(&self, tag: u64) {
        call!(self.simcuda_await(tag));
    }

    /// Tells the checker that the host wrote page-locked memory.
    pub fn host_write(&self, address: u64, bytes: u64, label: &str) -> Result<()> {
        let label = c_string(label)?;
        self.check(call!(self.simcuda_host_write(address, bytes, label.as_ptr())))
    }

    /// Tells the checker that the host read page-locked memory.
    pub fn host_read(&self, address: u64, bytes: u64, label: &str) -> Result<()> {
        let label = c_string(label)?;
        self.check(call!(self.simcuda_host_read(address, bytes, label.as_ptr())))
    }
}

fn text_of(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).into_owned()
}
