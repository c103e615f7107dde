//! What code that nvcc wrote calls as a program starts: it registers its kernels and variables.

use crate::registry::{self, Wrapper};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Nothing is answered to these: a defect here costs the kernel, not the program.
fn guarded<T: Default>(body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_default()
}

fn owned(name: *const c_char) -> CString {
    if name.is_null() {
        return CString::default();
    }
    // SAFETY: not null; the caller is code that nvcc wrote, and passes a text of its own.
    unsafe { CStr::from_ptr(name) }.to_owned()
}

#[unsafe(export_name = "simrt___cudaRegisterFatBinary")]
pub unsafe extern "C" fn __cudaRegisterFatBinary(wrapper: *const Wrapper) -> usize {
    guarded(|| registry::add_image(wrapper))
}

#[unsafe(export_name = "simrt___cudaRegisterFatBinaryEnd")]
pub unsafe extern "C" fn __cudaRegisterFatBinaryEnd(_image: usize) {}

#[unsafe(export_name = "simrt___cudaUnregisterFatBinary")]
pub unsafe extern "C" fn __cudaUnregisterFatBinary(image: usize) {
    guarded(|| registry::remove_image(image, crate::driver::loaded()));
}

#[unsafe(export_name = "simrt___cudaInitModule")]
pub unsafe extern "C" fn __cudaInitModule(_image: usize) -> c_char {
    1
}

#[unsafe(export_name = "simrt___cudaRegisterFunction")]
pub unsafe extern "C" fn __cudaRegisterFunction(
    image: usize,
    stub: usize,
    _device_function: *const c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _thread_id: *const c_void,
    _block_id: *const c_void,
    _block: *const c_void,
    _grid: *const c_void,
    _warp: *const c_int,
) {
    guarded(|| registry::add_kernel(image, stub, owned(name)));
}

#[unsafe(export_name = "simrt___cudaRegisterVar")]
pub unsafe extern "C" fn __cudaRegisterVar(
    image: usize,
    shadow: usize,
    _device_address: *const c_char,
    name: *const c_char,
    _external: c_int,
    bytes: usize,
    _constant: c_int,
    _global: c_int,
) {
    guarded(|| registry::add_variable(image, shadow, owned(name), bytes));
}

/// Managed variables have no memory here: their pointer stays as it is.
#[unsafe(export_name = "simrt___cudaRegisterManagedVar")]
pub unsafe extern "C" fn __cudaRegisterManagedVar() {}

/// Host variables are of no use to kernels that do not run.
#[unsafe(export_name = "simrt___cudaRegisterHostVar")]
pub unsafe extern "C" fn __cudaRegisterHostVar() {}

/// So is the table of functions that are the same on host and device.
#[unsafe(export_name = "simrt___cudaRegisterUnifiedTable")]
pub unsafe extern "C" fn __cudaRegisterUnifiedTable() {}
