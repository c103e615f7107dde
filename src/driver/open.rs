//! Finding libcuda, the ordinary way.

use std::ffi::{CStr, c_void};

use super::Driver;
use crate::error::{Error, sentence};

/// What the loader's name for the driver is, on every Linux.
const LIBRARY: &CStr = c"libcuda.so.1";

impl Driver {
    /// Loads `libcuda.so.1`, takes its functions by `dlsym` and initialises it. Creates no context.
    pub(crate) fn open_system() -> Result<Self, Error> {
        // SAFETY: the name is a C string. Loading libcuda runs its initialisers, which every CUDA
        // program runs; it is never closed again.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(Error::NoDriver(sentence!(
                "the CUDA driver cannot be loaded: {}. Install the NVIDIA driver, or put the \
                 folder of libcuda.so.1 on LD_LIBRARY_PATH",
                loader_message()
            )));
        }
        let resolve = |name: &CStr| -> *mut c_void {
            // SAFETY: `library` is a handle that dlopen gave and nobody closes; `name` is a C string.
            unsafe { libc::dlsym(library, name.as_ptr()) }
        };
        // SAFETY: libcuda's functions have the signatures of cuda.h, and it stays loaded.
        unsafe { Self::new(&resolve) }
    }
}

/// What the loader says about its last failure.
fn loader_message() -> String {
    // SAFETY: dlerror gives null, or a C string that lives until the next call of the loader on
    // this thread; it is copied at once.
    unsafe {
        let message = libc::dlerror();
        match message.is_null() {
            true => sentence!("{} was not found", LIBRARY.to_string_lossy()),
            false => sentence!("{}", CStr::from_ptr(message).to_string_lossy()),
        }
    }
}
