//! `libcudart.so.12`, a **substitute** for tests: all of it is in the crate `simcudart`, and the
//! build script gives its functions their names in CUDA 12.

pub use simcudart::SUBSTITUTE;

/// The CUDA whose runtime this library stands in for; `simcudart` reads it.
#[unsafe(no_mangle)]
pub static SIMRT_MAJOR: i32 = 12;
