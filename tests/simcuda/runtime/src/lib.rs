//! **libcudart.so.12, a substitute**: the part of the CUDA runtime API that PyTorch and allocators
//! use, over the public driver API. It is for tests on the simulated driver: programs that link the
//! runtime dynamically get it by `LD_PRELOAD`. It is not the vendor's, says so in
//! `cudaGetErrorString` of what it does not know, and takes part in none of the vendor's private
//! interfaces.
//!
//! It reaches the driver as the real one does: `dlopen("libcuda.so.1")`, `dlsym`, and
//! `cuGetProcAddress` for everything. Error codes of the two APIs have the same numbers.
//!
//! # Safety
//! Every exported function takes what C gives it: pointers must be valid for what the CUDA runtime API
//! says of them.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc, clippy::too_many_arguments)]

/// What a function answers; 0 is success.
pub type Code = i32;
/// Success, or why not.
pub type Outcome = Result<(), Code>;

/// `cudaError_t` values that this library makes itself.
pub mod code {
    pub const INVALID_VALUE: i32 = 1;
    pub const INSUFFICIENT_DRIVER: i32 = 35;
    pub const INVALID_DEVICE_FUNCTION: i32 = 98;
    pub const NO_DEVICE: i32 = 100;
    pub const INVALID_DEVICE: i32 = 101;
    pub const NOT_SUPPORTED: i32 = 801;
    pub const UNKNOWN: i32 = 999;
}

/// Declares exported functions: each runs its body, and the thread remembers its failure.
macro_rules! exports {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $crate::Code {
            $crate::thread::noted(|| -> $crate::Outcome { $body })
        }
    )*};
}
pub(crate) use exports;

mod device;
mod driver;
mod error;
mod graph;
mod kernel;
mod memory;
mod properties;
mod stream;
mod thread;

/// Writes a result through a caller's pointer.
pub(crate) fn put<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: not null, and the C caller vouches for the rest (see the crate).
    unsafe { to.write_unaligned(value) };
    Ok(())
}
