//! Memory and events of other processes, passed on to the driver.

use super::exports;
use crate::types::IpcHandle;

exports! {
    context fn cudaIpcGetMemHandle(handle: *mut IpcHandle, address: u64) |d| {
        d.cuIpcGetMemHandle(handle, address)
    };
    context fn cudaIpcOpenMemHandle(address: *mut u64, handle: IpcHandle, flags: u32) |d| {
        d.cuIpcOpenMemHandle(address, handle, flags)
    };
    context fn cudaIpcCloseMemHandle(address: u64) |d| d.cuIpcCloseMemHandle(address);
    context fn cudaIpcGetEventHandle(handle: *mut IpcHandle, event: u64) |d| {
        d.cuIpcGetEventHandle(handle, event)
    };
    context fn cudaIpcOpenEventHandle(event: *mut u64, handle: IpcHandle) |d| {
        d.cuIpcOpenEventHandle(event, handle)
    };
}
