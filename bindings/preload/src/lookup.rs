//! **Lookups**: `cuGetProcAddress` in both its forms, the driver's own answer first.

use std::ffi::c_int;

use cuddy::mutants::mutant;

use crate::doors::Home;
use crate::report::{Door, note};
use crate::table::{Opaque, Text};

type Version1 = unsafe extern "C" fn(Text, *mut Opaque, c_int, u64) -> c_int;
type Version2 = unsafe extern "C" fn(Text, *mut Opaque, c_int, u64, *mut c_int) -> c_int;

/// `cuGetProcAddress` of CUDA 11.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn version_1(
    home: &Home,
    real: Version1,
    name: Text,
    to: *mut Opaque,
    version: c_int,
    flags: u64,
) -> c_int {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(name, to, version, flags) };
    // SAFETY: as the caller of this promises; the driver has taken the pointer.
    unsafe { swap(home, code, to, Door::Lookup1) }
}

/// `cuGetProcAddress` since CUDA 12.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn version_2(
    home: &Home,
    real: Version2,
    name: Text,
    to: *mut Opaque,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> c_int {
    // SAFETY: the program's own arguments.
    let code = unsafe { real(name, to, version, flags, status) };
    // SAFETY: as the caller of this promises; the driver has taken the pointer.
    unsafe { swap(home, code, to, Door::Lookup2) }
}

/// # Safety
/// `to` is null or may be read and written, if `code` is 0.
unsafe fn swap(home: &Home, code: c_int, to: *mut Opaque, door: Door) -> c_int {
    if code == 0 && !to.is_null() {
        // SAFETY: the driver has just written there.
        let found = unsafe { *to };
        if let Some(ours) = home.ours_for(found.expose_provenance())
            && !mutant("preload-lookup-passes")
        {
            note(door);
            // SAFETY: as above.
            unsafe { *to = std::ptr::with_exposed_provenance_mut(ours) };
        }
    }
    code
}
