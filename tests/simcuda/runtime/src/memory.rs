//! **Memory**: device, stream-ordered and page-locked memory, copies and fills, what a pointer is, and
//! handles for other processes.

use crate::driver::Handle;
use crate::{Outcome, code, device, driver, put, thread};
use std::ffi::c_void;

/// `cudaPointerAttributes`.
#[repr(C)]
pub struct PointerAttributes {
    kind: i32,
    device: i32,
    device_pointer: u64,
    host_pointer: u64,
}

/// `cudaMemcpyKind` has these values: from host or device to host or device, and "find out".
fn direction(kind: i32) -> Outcome {
    if (0..=4).contains(&kind) { Ok(()) } else { Err(21) }
}

crate::exports! {
    fn rt_cudaMalloc(at: *mut u64, bytes: usize) {
        thread::context()?;
        if bytes == 0 { put(at, 0) } else { driver::cuMemAlloc(at, bytes) }
    }
    fn rt_cudaMallocManaged(at: *mut u64, bytes: usize, flags: u32) {
        thread::context()?;
        driver::cuMemAllocManaged(at, bytes, flags)
    }
    fn rt_cudaFree(at: u64) {
        thread::context()?;
        if at == 0 { Ok(()) } else { driver::cuMemFree(at) }
    }
    fn rt_cudaMallocAsync(at: *mut u64, bytes: usize, stream: u64) {
        thread::context()?;
        if bytes == 0 { put(at, 0) } else { driver::cuMemAllocAsync(at, bytes, stream) }
    }
    fn rt_cudaMallocFromPoolAsync(at: *mut u64, bytes: usize, pool: u64, stream: u64) {
        thread::context()?;
        if bytes == 0 { put(at, 0) } else { driver::cuMemAllocFromPoolAsync(at, bytes, pool, stream) }
    }
    fn rt_cudaFreeAsync(at: u64, stream: u64) {
        thread::context()?;
        if at == 0 { Ok(()) } else { driver::cuMemFreeAsync(at, stream) }
    }
    fn rt_cudaHostAlloc(at: *mut u64, bytes: usize, flags: u32) {
        thread::context()?;
        if bytes == 0 { put(at, 0) } else { driver::cuMemHostAlloc(at, bytes, flags) }
    }
    fn rt_cudaMallocHost(at: *mut u64, bytes: usize) {
        thread::context()?;
        if bytes == 0 { put(at, 0) } else { driver::cuMemHostAlloc(at, bytes, 0) }
    }
    fn rt_cudaFreeHost(at: u64) {
        thread::context()?;
        if at == 0 { Ok(()) } else { driver::cuMemFreeHost(at) }
    }
    fn rt_cudaHostGetDevicePointer(address: *mut u64, at: u64, flags: u32) {
        thread::context()?;
        driver::cuMemHostGetDevicePointer(address, at, flags)
    }
    fn rt_cudaHostRegister(at: u64, bytes: usize, flags: u32) {
        thread::context()?;
        driver::cuMemHostRegister(at, bytes, flags)
    }
    fn rt_cudaHostUnregister(at: u64) {
        thread::context()?;
        driver::cuMemHostUnregister(at)
    }
    fn rt_cudaMemGetInfo(free: *mut usize, total: *mut usize) {
        thread::context()?;
        driver::cuMemGetInfo(free, total)
    }
    fn rt_cudaMemcpy(to: u64, from: u64, bytes: usize, kind: i32) {
        direction(kind)?;
        thread::context()?;
        if bytes == 0 { Ok(()) } else { driver::cuMemcpy(to, from, bytes) }
    }
    fn rt_cudaMemcpyAsync(to: u64, from: u64, bytes: usize, kind: i32, stream: u64) {
        direction(kind)?;
        thread::context()?;
        if bytes == 0 { Ok(()) } else { driver::cuMemcpyAsync(to, from, bytes, stream) }
    }
    fn rt_cudaMemcpyPeer(to: u64, to_device: i32, from: u64, from_device: i32, bytes: usize) {
        thread::context()?;
        let (a, b) = (device::primary(to_device)?, device::primary(from_device)?);
        driver::cuMemcpyPeer(to, a, from, b, bytes)
    }
    fn rt_cudaMemcpyPeerAsync(
        to: u64, to_device: i32, from: u64, from_device: i32, bytes: usize, stream: u64,
    ) {
        thread::context()?;
        let (a, b) = (device::primary(to_device)?, device::primary(from_device)?);
        driver::cuMemcpyPeerAsync(to, a, from, b, bytes, stream)
    }
    fn rt_cudaMemset(at: u64, value: i32, bytes: usize) {
        thread::context()?;
        if bytes == 0 { Ok(()) } else { driver::cuMemsetD8(at, value as u8, bytes) }
    }
    fn rt_cudaMemsetAsync(at: u64, value: i32, bytes: usize, stream: u64) {
        thread::context()?;
        if bytes == 0 { Ok(()) } else { driver::cuMemsetD8Async(at, value as u8, bytes, stream) }
    }
    fn rt_cudaMemPoolCreate(pool: *mut u64, properties: *const c_void) {
        device::start()?;
        driver::cuMemPoolCreate(pool, properties)
    }
    fn rt_cudaMemPoolDestroy(pool: u64) {
        driver::cuMemPoolDestroy(pool)
    }
    fn rt_cudaMemPoolGetAttribute(pool: u64, attribute: i32, value: *mut c_void) {
        driver::cuMemPoolGetAttribute(pool, attribute, value)
    }
    fn rt_cudaMemPoolSetAttribute(pool: u64, attribute: i32, value: *mut c_void) {
        driver::cuMemPoolSetAttribute(pool, attribute, value)
    }
    fn rt_cudaMemPoolSetAccess(pool: u64, list: *const c_void, count: usize) {
        driver::cuMemPoolSetAccess(pool, list, count)
    }
    fn rt_cudaMemPoolTrimTo(pool: u64, keep: usize) {
        driver::cuMemPoolTrimTo(pool, keep)
    }
    fn rt_cudaPointerGetAttributes(attributes: *mut PointerAttributes, at: u64) {
        thread::context()?;
        put(attributes, attributes_of(at))
    }
    fn rt_cudaIpcGetMemHandle(handle: *mut Handle, at: u64) {
        thread::context()?;
        driver::cuIpcGetMemHandle(handle, at)
    }
    fn rt_cudaIpcOpenMemHandle(at: *mut u64, handle: Handle, flags: u32) {
        thread::context()?;
        driver::cuIpcOpenMemHandle(at, handle, flags)
    }
    fn rt_cudaIpcCloseMemHandle(at: u64) {
        thread::context()?;
        driver::cuIpcCloseMemHandle(at)
    }
    fn rt_cudaIpcGetEventHandle(handle: *mut Handle, event: u64) {
        thread::context()?;
        driver::cuIpcGetEventHandle(handle, event)
    }
    fn rt_cudaIpcOpenEventHandle(event: *mut u64, handle: Handle) {
        thread::context()?;
        driver::cuIpcOpenEventHandle(event, handle)
    }
}

/// What CUDA knows of a pointer: 0 nothing, 1 page-locked host memory, 2 device, 3 managed.
fn attributes_of(at: u64) -> PointerAttributes {
    const MEMORY_TYPE: i32 = 2;
    const DEVICE_POINTER: i32 = 3;
    const HOST_POINTER: i32 = 4;
    const IS_MANAGED: i32 = 8;
    const ORDINAL: i32 = 9;
    let ask = |attribute| {
        let mut value = 0u64;
        driver::cuPointerGetAttribute((&raw mut value).cast(), attribute, at).ok().map(|()| value)
    };
    let Some(kind) = ask(MEMORY_TYPE).filter(|kind| *kind as u32 != 0) else {
        return PointerAttributes { kind: 0, device: -2, device_pointer: 0, host_pointer: at };
    };
    let managed = ask(IS_MANAGED).is_some_and(|yes| yes as u8 != 0);
    PointerAttributes {
        kind: if managed { 3 } else { kind as i32 },
        device: ask(ORDINAL).map_or(-2, |n| n as i32),
        device_pointer: ask(DEVICE_POINTER).unwrap_or(0),
        host_pointer: ask(HOST_POINTER).unwrap_or(0),
    }
}

const _: () = assert!(std::mem::size_of::<PointerAttributes>() == 24 && code::INVALID_VALUE == 1);
