//! Driver entry points, as a program of the runtime asks for them.

use super::{exports, put, put_if, wanted};
use crate::driver::Driver;
use crate::types::{Outcome, code};
use std::ffi::{c_char, c_void};

type Name = *const c_char;
type Function = *mut *mut c_void;

/// The driver's flags; 0 is what the form of the function says.
const PER_THREAD: u64 = 2;

exports! {
    driver fn cudaGetDriverEntryPoint_12(
        name: Name, function: Function, flags: u64, status: *mut i32,
    ) |d| {
        find(d, name, function, 12080, flags, status)
    };
    driver fn cudaGetDriverEntryPoint_ptsz_12(
        name: Name, function: Function, flags: u64, status: *mut i32,
    ) |d| {
        find(d, name, function, 12080, own(flags), status)
    };
    driver fn cudaGetDriverEntryPoint_13(
        name: Name, function: Function, flags: u64, status: *mut i32,
    ) |d| {
        find(d, name, function, 13000, flags, status)
    };
    driver fn cudaGetDriverEntryPoint_ptsz_13(
        name: Name, function: Function, flags: u64, status: *mut i32,
    ) |d| {
        find(d, name, function, 13000, own(flags), status)
    };
    driver fn cudaGetDriverEntryPointByVersion(
        name: Name, function: Function, version: u32, flags: u64, status: *mut i32,
    ) |d| {
        find(d, name, function, version, flags, status)
    };
    driver fn cudaGetDriverEntryPointByVersion_ptsz(
        name: Name, function: Function, version: u32, flags: u64, status: *mut i32,
    ) |d| {
        find(d, name, function, version, own(flags), status)
    };
}

/// The flags of a per-thread form.
fn own(flags: u64) -> u64 {
    if flags == 0 { PER_THREAD } else { flags }
}

/// A name that the driver does not have is success with a status, if the caller takes one.
fn find(
    driver: &Driver,
    name: Name,
    function: Function,
    version: u32,
    flags: u64,
    status: *mut i32,
) -> Outcome {
    wanted(name)?;
    put(function, std::ptr::null_mut())?;
    let (at, found) = driver.entry_point(name, version, flags)?;
    put(function, at)?;
    put_if(status, found)?;
    if status.is_null() && at.is_null() { Err(code::SYMBOL_NOT_FOUND) } else { Ok(()) }
}
