//! **Error names**: what each `CUresult` is called, and what it means in one line.
//!
//! The numbers and names are those of CUDA 13.0. The texts are those that programs know from CUDA where
//! they look for them, and else our own. Codes rise, so a code
//! is found by binary search; a number that is not in the table is no error of CUDA.

use std::ffi::{CStr, c_char};

use super::{exports, put, require};
use crate::types::{Code, Outcome, code};

/// `(code, name, meaning)`.
pub type Row = (Code, &'static CStr, &'static CStr);

/// Every code, rising.
#[rustfmt::skip]
pub static ERRORS: [Row; 101] = [
    (0, c"CUDA_SUCCESS", c"no error"),
    (1, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (3, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
    (4, c"CUDA_ERROR_DEINITIALIZED", c"driver shutting down"),
    (5, c"CUDA_ERROR_PROFILER_DISABLED", c"profiling is switched off in this run"),
    (6, c"CUDA_ERROR_PROFILER_NOT_INITIALIZED", c"the profiler has not been set up"),
    (7, c"CUDA_ERROR_PROFILER_ALREADY_STARTED", c"profiler already started"),
    (8, c"CUDA_ERROR_PROFILER_ALREADY_STOPPED", c"profiler already stopped"),
    (34, c"CUDA_ERROR_STUB_LIBRARY", c"CUDA driver is a stub library"),
    (36, c"CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", c"this call is newer than the installed driver"),
    (46, c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"CUDA-capable device(s) is/are busy or unavailable"),
    (100, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
    (101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (102, c"CUDA_ERROR_DEVICE_NOT_LICENSED", c"the device lacks the licence that it needs"),
    (200, c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid"),
    (201, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (202, c"CUDA_ERROR_CONTEXT_ALREADY_CURRENT", c"context already current"),
    (205, c"CUDA_ERROR_MAP_FAILED", c"mapping of buffer object failed"),
    (206, c"CUDA_ERROR_UNMAP_FAILED", c"unmapping of buffer object failed"),
    (207, c"CUDA_ERROR_ARRAY_IS_MAPPED", c"array is mapped"),
    (208, c"CUDA_ERROR_ALREADY_MAPPED", c"resource already mapped"),
    (209, c"CUDA_ERROR_NO_BINARY_FOR_GPU", c"no kernel image is available for execution on the device"),
    (210, c"CUDA_ERROR_ALREADY_ACQUIRED", c"resource already acquired"),
    (211, c"CUDA_ERROR_NOT_MAPPED", c"resource not mapped"),
    (212, c"CUDA_ERROR_NOT_MAPPED_AS_ARRAY", c"resource not mapped as array"),
    (213, c"CUDA_ERROR_NOT_MAPPED_AS_POINTER", c"resource not mapped as pointer"),
    (214, c"CUDA_ERROR_ECC_UNCORRECTABLE", c"uncorrectable ECC error encountered"),
    (215, c"CUDA_ERROR_UNSUPPORTED_LIMIT", c"limit is not supported on this architecture"),
    (216, c"CUDA_ERROR_CONTEXT_ALREADY_IN_USE", c"another thread holds this context"),
    (217, c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", c"peer access is not supported between these two devices"),
    (218, c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed"),
    (219, c"CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", c"invalid OpenGL or DirectX context"),
    (220, c"CUDA_ERROR_NVLINK_UNCORRECTABLE", c"an NVLink transfer failed beyond repair"),
    (221, c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", c"PTX JIT compiler library not found"),
    (222, c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", c"the PTX is of a newer version than the compiler"),
    (223, c"CUDA_ERROR_JIT_COMPILATION_DISABLED", c"PTX JIT compilation was disabled"),
    (224, c"CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", c"the device does not have this execution affinity"),
    (225, c"CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", c"device code may not call cudaDeviceSynchronize"),
    (226, c"CUDA_ERROR_CONTAINED", c"a fault on the device was confined, and this context was hit by it"),
    (300, c"CUDA_ERROR_INVALID_SOURCE", c"the kernel's source is not valid"),
    (301, c"CUDA_ERROR_FILE_NOT_FOUND", c"file not found"),
    (302, c"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", c"shared object symbol not found"),
    (303, c"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", c"shared object initialization failed"),
    (304, c"CUDA_ERROR_OPERATING_SYSTEM", c"a call of the operating system failed"),
    (400, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
    (401, c"CUDA_ERROR_ILLEGAL_STATE", c"the object is in no state that allows this"),
    (402, c"CUDA_ERROR_LOSSY_QUERY", c"the answer would have left out something that matters"),
    (500, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (600, c"CUDA_ERROR_NOT_READY", c"device not ready"),
    (700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
    (701, c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", c"too many resources requested for launch"),
    (702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"the launch timed out and was terminated"),
    (703, c"CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", c"the kernel was built for another texturing mode"),
    (704, c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", c"peer access is already enabled"),
    (705, c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", c"peer access has not been enabled"),
    (708, c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", c"cannot set while device is active in this process"),
    (709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"context is destroyed"),
    (710, c"CUDA_ERROR_ASSERT", c"device-side assert triggered"),
    (711, c"CUDA_ERROR_TOO_MANY_PEERS", c"peer mapping resources exhausted"),
    (712, c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", c"part or all of the requested memory range is already mapped"),
    (713, c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", c"pointer does not correspond to a registered memory region"),
    (714, c"CUDA_ERROR_HARDWARE_STACK_ERROR", c"hardware stack error"),
    (715, c"CUDA_ERROR_ILLEGAL_INSTRUCTION", c"an illegal instruction was encountered"),
    (716, c"CUDA_ERROR_MISALIGNED_ADDRESS", c"misaligned address"),
    (717, c"CUDA_ERROR_INVALID_ADDRESS_SPACE", c"device code used an address of the wrong address space"),
    (718, c"CUDA_ERROR_INVALID_PC", c"invalid program counter"),
    (719, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
    (720, c"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", c"too many blocks in cooperative launch"),
    (721, c"CUDA_ERROR_TENSOR_MEMORY_LEAK", c"a kernel ended without giving tensor memory back"),
    (800, c"CUDA_ERROR_NOT_PERMITTED", c"operation not permitted"),
    (801, c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
    (802, c"CUDA_ERROR_SYSTEM_NOT_READY", c"system not yet initialized"),
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
    (900, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"operation not permitted when stream is capturing"),
    (901, c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", c"operation failed due to a previous error during capture"),
    (902, c"CUDA_ERROR_STREAM_CAPTURE_MERGE", c"operation would result in a merge of separate capture sequences"),
    (903, c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", c"capture was not ended in the same stream as it began"),
    (904, c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", c"capturing stream has unjoined work"),
    (905, c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", c"dependency created on uncaptured work in another stream"),
    (906, c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", c"the call would order a capture behind the legacy stream"),
    (907, c"CUDA_ERROR_CAPTURED_EVENT", c"operation not permitted on an event last recorded in a capturing stream"),
    (908, c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", c"another thread began this capture and must end it"),
    (909, c"CUDA_ERROR_TIMEOUT", c"the wait took too long"),
    (910, c"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", c"the graph differs too much to update the executable one"),
    (911, c"CUDA_ERROR_EXTERNAL_DEVICE", c"a device outside CUDA failed, and this context was hit by it"),
    (912, c"CUDA_ERROR_INVALID_CLUSTER_SIZE", c"the kernel cannot be launched with this cluster size"),
    (913, c"CUDA_ERROR_FUNCTION_NOT_LOADED", c"the function has not been loaded yet"),
    (914, c"CUDA_ERROR_INVALID_RESOURCE_TYPE", c"the resource is of the wrong type for this call"),
    (915, c"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", c"the resources do not make a valid configuration"),
    (916, c"CUDA_ERROR_KEY_ROTATION", c"the call failed while encryption keys were being changed"),
    (999, c"CUDA_ERROR_UNKNOWN", c"unknown error"),
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
            assert!(texts.iter().all(|text| text.count_bytes() >= 8));
            texts.sort();
            texts.dedup();
            assert_eq!(texts.len(), ERRORS.len());
        }
    }

    #[test]
    fn texts_are_those_that_programs_look_for() {
        for (code, text) in [
            (0, "no error"),
            (1, "invalid argument"),
            (2, "out of memory"),
            (400, "invalid resource handle"),
            (700, "an illegal memory access was encountered"),
        ] {
            assert_eq!(row(code).and_then(|row| row.2.to_str().ok()), Some(text));
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
