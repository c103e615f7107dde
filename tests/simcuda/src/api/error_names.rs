//! **Error names**: what each `CUresult` is called, and what it means in one line.
//!
//! The numbers and names are those of CUDA 13.0; the descriptions are ours. Codes rise, so a code
//! is found by binary search; a number that is not in the table is no error of CUDA.

use std::ffi::{CStr, c_char};

use super::{exports, put, require};
use crate::types::{Code, Outcome, code};

/// `(code, name, meaning)`.
pub type Row = (Code, &'static CStr, &'static CStr);

/// Every code, rising.
#[rustfmt::skip]
pub static ERRORS: [Row; 101] = [
    (0, c"CUDA_SUCCESS", c"the call did what it was asked to"),
    (1, c"CUDA_ERROR_INVALID_VALUE", c"an argument lies outside what the function accepts"),
    (2, c"CUDA_ERROR_OUT_OF_MEMORY", c"not enough memory is free for this request"),
    (3, c"CUDA_ERROR_NOT_INITIALIZED", c"cuInit has not been called, or it failed"),
    (4, c"CUDA_ERROR_DEINITIALIZED", c"the driver has already begun to shut down"),
    (5, c"CUDA_ERROR_PROFILER_DISABLED", c"profiling is switched off in this run"),
    (6, c"CUDA_ERROR_PROFILER_NOT_INITIALIZED", c"the profiler has not been set up"),
    (7, c"CUDA_ERROR_PROFILER_ALREADY_STARTED", c"the profiler is running already"),
    (8, c"CUDA_ERROR_PROFILER_ALREADY_STOPPED", c"the profiler is not running"),
    (34, c"CUDA_ERROR_STUB_LIBRARY", c"the library that was loaded is a stub without a driver behind it"),
    (36, c"CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", c"this call is newer than the installed driver"),
    (46, c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"the device is busy or reserved for somebody else"),
    (100, c"CUDA_ERROR_NO_DEVICE", c"no CUDA device was found"),
    (101, c"CUDA_ERROR_INVALID_DEVICE", c"there is no device of this number"),
    (102, c"CUDA_ERROR_DEVICE_NOT_LICENSED", c"the device lacks the licence that it needs"),
    (200, c"CUDA_ERROR_INVALID_IMAGE", c"the module's image is damaged or of an unknown kind"),
    (201, c"CUDA_ERROR_INVALID_CONTEXT", c"no context is current, or the one given is not valid"),
    (202, c"CUDA_ERROR_CONTEXT_ALREADY_CURRENT", c"the context is current already"),
    (205, c"CUDA_ERROR_MAP_FAILED", c"the resource could not be mapped"),
    (206, c"CUDA_ERROR_UNMAP_FAILED", c"the resource could not be unmapped"),
    (207, c"CUDA_ERROR_ARRAY_IS_MAPPED", c"a mapped array cannot be destroyed"),
    (208, c"CUDA_ERROR_ALREADY_MAPPED", c"something is mapped there already"),
    (209, c"CUDA_ERROR_NO_BINARY_FOR_GPU", c"the module holds no code that this device can run"),
    (210, c"CUDA_ERROR_ALREADY_ACQUIRED", c"the resource is held already"),
    (211, c"CUDA_ERROR_NOT_MAPPED", c"nothing is mapped there"),
    (212, c"CUDA_ERROR_NOT_MAPPED_AS_ARRAY", c"the mapped resource cannot be used as an array"),
    (213, c"CUDA_ERROR_NOT_MAPPED_AS_POINTER", c"the mapped resource cannot be used through a pointer"),
    (214, c"CUDA_ERROR_ECC_UNCORRECTABLE", c"device memory lost bits that ECC could not restore"),
    (215, c"CUDA_ERROR_UNSUPPORTED_LIMIT", c"the device does not have this limit"),
    (216, c"CUDA_ERROR_CONTEXT_ALREADY_IN_USE", c"another thread holds this context"),
    (217, c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", c"these two devices cannot reach each other's memory"),
    (218, c"CUDA_ERROR_INVALID_PTX", c"the PTX could not be compiled"),
    (219, c"CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", c"the graphics context cannot be used"),
    (220, c"CUDA_ERROR_NVLINK_UNCORRECTABLE", c"an NVLink transfer failed beyond repair"),
    (221, c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", c"the library that compiles PTX is missing"),
    (222, c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", c"the PTX is of a newer version than the compiler"),
    (223, c"CUDA_ERROR_JIT_COMPILATION_DISABLED", c"compiling at run time is switched off"),
    (224, c"CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", c"the device does not have this execution affinity"),
    (225, c"CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", c"device code may not call cudaDeviceSynchronize"),
    (226, c"CUDA_ERROR_CONTAINED", c"a fault on the device was confined, and this context was hit by it"),
    (300, c"CUDA_ERROR_INVALID_SOURCE", c"the kernel's source is not valid"),
    (301, c"CUDA_ERROR_FILE_NOT_FOUND", c"the file does not exist"),
    (302, c"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", c"a shared library lacks a needed symbol"),
    (303, c"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", c"a shared library could not be set up"),
    (304, c"CUDA_ERROR_OPERATING_SYSTEM", c"a call of the operating system failed"),
    (400, c"CUDA_ERROR_INVALID_HANDLE", c"the handle names nothing that exists"),
    (401, c"CUDA_ERROR_ILLEGAL_STATE", c"the object is in no state that allows this"),
    (402, c"CUDA_ERROR_LOSSY_QUERY", c"the answer would have left out something that matters"),
    (500, c"CUDA_ERROR_NOT_FOUND", c"nothing of that name was found"),
    (600, c"CUDA_ERROR_NOT_READY", c"earlier work has not finished yet"),
    (700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"device code touched memory that it may not touch"),
    (701, c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", c"the launch needs more registers, threads or memory than there are"),
    (702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"the kernel ran longer than the watchdog allows"),
    (703, c"CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", c"the kernel was built for another texturing mode"),
    (704, c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", c"peer access is on already"),
    (705, c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", c"peer access is not on"),
    (708, c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", c"the primary context is in use already"),
    (709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"the thread's current context has been destroyed"),
    (710, c"CUDA_ERROR_ASSERT", c"an assertion in device code failed"),
    (711, c"CUDA_ERROR_TOO_MANY_PEERS", c"no further peer can be enabled"),
    (712, c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", c"part of this host memory is registered already"),
    (713, c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", c"this host memory is not registered"),
    (714, c"CUDA_ERROR_HARDWARE_STACK_ERROR", c"device code broke its call stack"),
    (715, c"CUDA_ERROR_ILLEGAL_INSTRUCTION", c"device code met an instruction that does not exist"),
    (716, c"CUDA_ERROR_MISALIGNED_ADDRESS", c"device code used an address that is not aligned"),
    (717, c"CUDA_ERROR_INVALID_ADDRESS_SPACE", c"device code used an address of the wrong address space"),
    (718, c"CUDA_ERROR_INVALID_PC", c"device code jumped to where no code is"),
    (719, c"CUDA_ERROR_LAUNCH_FAILED", c"the kernel was broken off by a fault"),
    (720, c"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", c"a cooperative grid must fit on the device all at once"),
    (721, c"CUDA_ERROR_TENSOR_MEMORY_LEAK", c"a kernel ended without giving tensor memory back"),
    (800, c"CUDA_ERROR_NOT_PERMITTED", c"this is not allowed here"),
    (801, c"CUDA_ERROR_NOT_SUPPORTED", c"this driver or device cannot do that"),
    (802, c"CUDA_ERROR_SYSTEM_NOT_READY", c"a service that the driver depends on is not up yet"),
    (803, c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", c"kernel driver and user driver are of different versions"),
    (804, c"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", c"forward compatibility does not cover this device"),
    (805, c"CUDA_ERROR_MPS_CONNECTION_FAILED", c"the MPS server could not be reached"),
    (806, c"CUDA_ERROR_MPS_RPC_FAILURE", c"a call to the MPS server failed"),
    (807, c"CUDA_ERROR_MPS_SERVER_NOT_READY", c"the MPS server takes no new clients at the moment"),
    (808, c"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", c"the MPS server has no room for a further client"),
    (809, c"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", c"the MPS server has no device connection left"),
    (810, c"CUDA_ERROR_MPS_CLIENT_TERMINATED", c"the MPS server ended this client"),
    (811, c"CUDA_ERROR_CDP_NOT_SUPPORTED", c"launches from device code are not supported"),
    (812, c"CUDA_ERROR_CDP_VERSION_MISMATCH", c"device code was built for another way to launch from the device"),
    (900, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"a capturing stream cannot take this call"),
    (901, c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", c"an earlier error has spoilt this capture"),
    (902, c"CUDA_ERROR_STREAM_CAPTURE_MERGE", c"two captures must not be joined"),
    (903, c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", c"the capture did not begin in this stream"),
    (904, c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", c"a forked stream was not joined before the capture ended"),
    (905, c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", c"captured work must not depend on work outside the capture"),
    (906, c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", c"the call would order a capture behind the legacy stream"),
    (907, c"CUDA_ERROR_CAPTURED_EVENT", c"the event was recorded in a capture and stands for no real work"),
    (908, c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", c"another thread began this capture and must end it"),
    (909, c"CUDA_ERROR_TIMEOUT", c"the wait took too long"),
    (910, c"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", c"the graph differs too much to update the executable one"),
    (911, c"CUDA_ERROR_EXTERNAL_DEVICE", c"a device outside CUDA failed, and this context was hit by it"),
    (912, c"CUDA_ERROR_INVALID_CLUSTER_SIZE", c"the kernel cannot be launched with this cluster size"),
    (913, c"CUDA_ERROR_FUNCTION_NOT_LOADED", c"the function has not been loaded yet"),
    (914, c"CUDA_ERROR_INVALID_RESOURCE_TYPE", c"the resource is of the wrong type for this call"),
    (915, c"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", c"the resources do not make a valid configuration"),
    (916, c"CUDA_ERROR_KEY_ROTATION", c"the call failed while encryption keys were being changed"),
    (999, c"CUDA_ERROR_UNKNOWN", c"an error of no known kind"),
];

/// The row of a code.
pub fn row(code: Code) -> Option<&'static Row> {
    ERRORS.binary_search_by_key(&code, |row| row.0).ok().map(|index| &ERRORS[index])
}

/// The code that a text names: `OUT_OF_MEMORY`, `CUDA_ERROR_OUT_OF_MEMORY` or `2`.
pub fn code_of(text: &str) -> Option<Code> {
    if let Ok(number) = text.parse() {
        return row(number).map(|row| row.0);
    }
    let known = |row: &&Row| {
        let name = row.1.to_str().unwrap_or_default();
        name == text || name.strip_prefix("CUDA_ERROR_") == Some(text)
    };
    ERRORS.iter().find(known).map(|row| row.0)
}

/// Writes a text of a code's row; a code that does not exist leaves a null pointer.
fn answer(error: Code, to: *mut *const c_char, text: fn(&Row) -> &'static CStr) -> Outcome {
    let found = row(error).map(text);
    put(to, found.map_or(std::ptr::null(), CStr::as_ptr))?;
    require(found.is_some(), code::INVALID_VALUE)
}

exports! {
    fn cuGetErrorName(
        error: Code, name: *mut *const c_char,
    ) |_call| answer(error, name, |row| row.1);
    fn cuGetErrorString(
        error: Code, text: *mut *const c_char,
    ) |_call| answer(error, text, |row| row.2);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_rise_and_no_text_is_empty_or_twice() {
        assert!(ERRORS.is_sorted_by(|a, b| a.0 < b.0));
        for column in [|row: &Row| row.1, |row: &Row| row.2] {
            let mut texts: Vec<_> = ERRORS.iter().map(column).collect();
            assert!(texts.iter().all(|text| text.count_bytes() > 8));
            texts.sort();
            texts.dedup();
            assert_eq!(texts.len(), ERRORS.len());
        }
    }

    #[test]
    fn codes_are_known_by_number_and_by_both_names() {
        for row in &ERRORS {
            let name = row.1.to_str().expect("ASCII");
            assert_eq!(code_of(name), Some(row.0));
            assert_eq!(code_of(&row.0.to_string()), Some(row.0));
        }
        assert_eq!(code_of("OUT_OF_MEMORY"), Some(2));
        for wrong in ["", "9", "-1", "out_of_memory", "CUDA_ERROR_", "ERROR_OUT_OF_MEMORY"] {
            assert_eq!(code_of(wrong), None, "{wrong}");
        }
    }
}
