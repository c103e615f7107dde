//! Errors: the last one of a thread, names, texts; versions.

use super::{exports, put};
use crate::{call, driver};
use std::ffi::{CStr, c_char};

exports! {
    driver fn cudaProfilerStart() |d| d.cuProfilerStart();
    driver fn cudaProfilerStop() |d| d.cuProfilerStop();
    // Not above the CUDA of the headers that programs were built with: 12.8 and 13.0.
    plain fn cudaRuntimeGetVersion_12(version: *mut i32) |_none| put(version, 12080);
    plain fn cudaRuntimeGetVersion_13(version: *mut i32) |_none| put(version, 13000);
    // Without a driver there is version 0, and no error.
    plain fn cudaDriverGetVersion(version: *mut i32) |_none| {
        put(version, driver::open().map_or(0, |driver| driver.version))
    };
}

#[unsafe(export_name = "simrt_cudaGetLastError")]
pub extern "C" fn cudaGetLastError() -> i32 {
    call::take_last()
}

#[unsafe(export_name = "simrt_cudaPeekAtLastError")]
pub extern "C" fn cudaPeekAtLastError() -> i32 {
    call::last()
}

#[unsafe(export_name = "simrt_cudaGetErrorName")]
pub extern "C" fn cudaGetErrorName(error: i32) -> *const c_char {
    known(error).map_or(c"unrecognized error code", |row| row.1).as_ptr()
}

#[unsafe(export_name = "simrt_cudaGetErrorString")]
pub extern "C" fn cudaGetErrorString(error: i32) -> *const c_char {
    known(error).map_or(c"unrecognized error code", |row| row.2).as_ptr()
}

type Row = (i32, &'static CStr, &'static CStr);

fn known(error: i32) -> Option<&'static Row> {
    ERRORS.binary_search_by_key(&error, |row| row.0).ok().map(|place| &ERRORS[place])
}

include!(concat!(env!("OUT_DIR"), "/errors.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_for_the_binary_search() {
        assert!(ERRORS.is_sorted_by(|a, b| a.0 < b.0));
        assert!(ERRORS.len() > 100);
        assert_eq!(known(2).map(|row| row.1), Some(c"cudaErrorMemoryAllocation"));
        assert_eq!(known(10_000), None);
    }
}
