//! Page-locked host memory. The flags are the driver's.

use super::{exports, put, wanted};

exports! {
    context fn cudaHostAlloc(address: *mut u64, bytes: usize, flags: u32) |d| {
        wanted(address)?;
        if bytes == 0 { put(address, 0) } else { d.cuMemHostAlloc(address, bytes, flags) }
    };
    context fn cudaMallocHost(address: *mut u64, bytes: usize) |d| {
        wanted(address)?;
        if bytes == 0 { put(address, 0) } else { d.cuMemHostAlloc(address, bytes, 0) }
    };
    context fn cudaFreeHost(address: u64) |d| {
        if address == 0 { Ok(()) } else { d.cuMemFreeHost(address) }
    };
    context fn cudaHostRegister(address: u64, bytes: usize, flags: u32) |d| {
        d.cuMemHostRegister(address, bytes, flags)
    };
    context fn cudaHostUnregister(address: u64) |d| d.cuMemHostUnregister(address);
    context fn cudaHostGetDevicePointer(to: *mut u64, address: u64, flags: u32) |d| {
        d.cuMemHostGetDevicePointer(to, address, flags)
    };
    context fn cudaHostGetFlags(flags: *mut u32, address: u64) |d| {
        d.cuMemHostGetFlags(flags, address)
    };
}
