//! **simcudart**: a substitute for the CUDA runtime, for tests.
//!
//! It is not NVIDIA's runtime and has none of its code: it is written over the driver API, so that
//! programs which link `libcudart.so.12` or `libcudart.so.13` dynamically run on the simulated
//! driver, which the vendor's runtime refuses to do. The crates libcudart12 and libcudart13 make the
//! two libraries from this one; `names/names.tsv` says which function has which name in which.
//!
//! ```text
//!  api        what C calls, a chapter a file: convert, one driver call, convert
//!  call       one call: the thread's device and context, its last error
//!  registry   kernels and variables that programs register, and where each is on each device
//!  driver     the table of driver functions: dlopen, dlsym, then cuGetProcAddress for everything
//! ```
//!
//! `runtime error = driver error`: since CUDA 10.1 both number them alike.

mod api;
mod call;
mod driver;
mod registry;
mod types;

/// What this library is.
pub const SUBSTITUTE: &str = "a substitute for the CUDA runtime, for tests on a simulated driver";

/// Unit tests stand for no runtime's CUDA in particular.
#[cfg(test)]
#[unsafe(no_mangle)]
static SIMRT_MAJOR: i32 = 12;
