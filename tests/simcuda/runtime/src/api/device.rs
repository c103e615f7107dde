//! Devices: which there are, which is the thread's, what they can do.

use super::{exports, put, put_if, require, wanted};
use crate::call;
use crate::types::code;

exports! {
    plain fn cudaGetDeviceCount(count: *mut i32) |_none| {
        wanted(count)?;
        put(count, 0)?;
        let mut found = 0;
        match call::driver(|d| d.cuDeviceGetCount(&mut found)) {
            0 if found > 0 => put(count, found),
            0 => Err(code::NO_DEVICE),
            error => Err(error),
        }
    };
    driver fn cudaGetDevice(device: *mut i32) |d| {
        wanted(device)?;
        put(device, call::device(d)?)
    };
    driver fn cudaSetDevice(device: i32) |d| call::set_device(d, device);
    driver fn cudaInitDevice(device: i32, device_flags: u32, flags: u32) |d| {
        require(flags <= 1, code::INVALID_VALUE)?;
        if flags & 1 != 0 {
            d.cuDevicePrimaryCtxSetFlags(device, device_flags)?;
        }
        call::primary(d, device).map(drop)
    };
    driver fn cudaSetDeviceFlags(flags: u32) |d| {
        // Mapping host memory, 8, is always on.
        let device = call::device(d)?;
        d.cuDevicePrimaryCtxSetFlags(device, flags & !8)
    };
    driver fn cudaGetDeviceFlags(flags: *mut u32) |d| {
        let (mut found, mut active) = (0, 0);
        d.cuDevicePrimaryCtxGetState(call::device(d)?, &mut found, &mut active)?;
        put(flags, found | 8)
    };
    driver fn cudaSetValidDevices(devices: *const i32, count: i32) |_d| {
        require(count >= 0 && (count == 0 || !devices.is_null()), code::INVALID_VALUE)
    };
    driver fn cudaChooseDevice(device: *mut i32, wished: *const u8) |_d| {
        wanted(wished)?;
        put(device, 0)
    };
    context fn cudaDeviceSynchronize() |d| d.cuCtxSynchronize();
    context fn cudaThreadSynchronize() |d| d.cuCtxSynchronize();
    driver fn cudaDeviceReset() |d| call::reset_device(d);
    driver fn cudaThreadExit() |d| call::reset_device(d);
    driver fn cudaDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32) |d| {
        d.cuDeviceGetAttribute(value, attribute, device)
    };
    driver fn cudaDeviceGetPCIBusId(id: *mut u8, room: i32, device: i32) |d| {
        d.cuDeviceGetPCIBusId(id, room, device)
    };
    driver fn cudaDeviceGetByPCIBusId(device: *mut i32, id: *const u8) |d| {
        d.cuDeviceGetByPCIBusId(device, id)
    };
    driver fn cudaDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) |d| {
        d.cuDeviceCanAccessPeer(can, device, peer)
    };
    driver fn cudaDeviceGetP2PAttribute(value: *mut i32, attribute: i32, from: i32, to: i32) |d| {
        d.cuDeviceGetP2PAttribute(value, attribute, from, to)
    };
    context fn cudaDeviceEnablePeerAccess(peer: i32, flags: u32) |d| {
        d.cuCtxEnablePeerAccess(call::primary(d, peer)?, flags)
    };
    context fn cudaDeviceDisablePeerAccess(peer: i32) |d| {
        d.cuCtxDisablePeerAccess(call::primary(d, peer)?)
    };
    context fn cudaDeviceGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) |d| {
        let (mut from, mut to) = (0, 0);
        d.cuCtxGetStreamPriorityRange(&mut from, &mut to)?;
        put_if(least, from)?;
        put_if(greatest, to)
    };
    context fn cudaDeviceGetLimit(value: *mut usize, limit: i32) |d| d.cuCtxGetLimit(value, limit);
    context fn cudaDeviceSetLimit(limit: i32, value: usize) |d| d.cuCtxSetLimit(limit, value);
    context fn cudaThreadGetLimit(value: *mut usize, limit: i32) |d| d.cuCtxGetLimit(value, limit);
    context fn cudaThreadSetLimit(limit: i32, value: usize) |d| d.cuCtxSetLimit(limit, value);
    context fn cudaDeviceGetCacheConfig(config: *mut i32) |d| d.cuCtxGetCacheConfig(config);
    context fn cudaDeviceSetCacheConfig(config: i32) |d| d.cuCtxSetCacheConfig(config);
    context fn cudaThreadGetCacheConfig(config: *mut i32) |d| d.cuCtxGetCacheConfig(config);
    context fn cudaThreadSetCacheConfig(config: i32) |d| d.cuCtxSetCacheConfig(config);
    context fn cudaCtxResetPersistingL2Cache() |d| d.cuCtxResetPersistingL2Cache();
    // Banks of shared memory have one size on devices of today: asking for another does nothing.
    context fn cudaDeviceGetSharedMemConfig(config: *mut i32) |_d| put(config, 1);
    context fn cudaDeviceSetSharedMemConfig(config: i32) |_d| {
        require((0..=2).contains(&config), code::INVALID_VALUE)
    };
    driver fn cudaDeviceGetDefaultMemPool(pool: *mut u64, device: i32) |d| {
        d.cuDeviceGetDefaultMemPool(pool, device)
    };
    driver fn cudaDeviceGetMemPool(pool: *mut u64, device: i32) |d| {
        d.cuDeviceGetMemPool(pool, device)
    };
    driver fn cudaDeviceSetMemPool(device: i32, pool: u64) |d| d.cuDeviceSetMemPool(device, pool);
}
