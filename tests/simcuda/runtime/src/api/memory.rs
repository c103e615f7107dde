//! Device memory: taken, given back, asked about. A request of no bytes gets no address and success.

use super::{exports, put, wanted};
use crate::types::{Extent, PitchedPointer, code};

/// The driver's rows are a multiple of this many bytes wide.
const ELEMENT: u32 = 16;

exports! {
    context fn cudaMalloc(address: *mut u64, bytes: usize) |d| {
        wanted(address)?;
        if bytes == 0 { put(address, 0) } else { d.cuMemAlloc(address, bytes) }
    };
    context fn cudaFree(address: u64) |d| if address == 0 { Ok(()) } else { d.cuMemFree(address) };
    context fn cudaMallocPitch(
        address: *mut u64, pitch: *mut usize, width: usize, height: usize,
    ) |d| {
        wanted(address)?;
        wanted(pitch)?;
        if width == 0 || height == 0 {
            put(pitch, 0)?;
            return put(address, 0);
        }
        d.cuMemAllocPitch(address, pitch, width, height, ELEMENT)
    };
    context fn cudaMalloc3D(pitched: *mut PitchedPointer, extent: Extent) |d| {
        wanted(pitched)?;
        let rows = extent.height.checked_mul(extent.depth).ok_or(code::INVALID_VALUE)?;
        let (mut address, mut pitch) = (0, 0);
        if rows > 0 && extent.width > 0 {
            d.cuMemAllocPitch(&mut address, &mut pitch, extent.width, rows, ELEMENT)?;
        }
        put(pitched, PitchedPointer {
            address, pitch, x_size: extent.width, y_size: extent.height,
        })
    };
    context fn cudaMemGetInfo(free: *mut usize, total: *mut usize) |d| d.cuMemGetInfo(free, total);
    context fn cudaPointerGetAttributes_12(to: *mut Attributes, address: u64) |d| {
        wanted(to)?;
        put(to, attributes(d, address)?)
    };
    context fn cudaPointerGetAttributes_13(to: *mut Attributes13, address: u64) |d| {
        wanted(to)?;
        put(to, Attributes13 { attributes: attributes(d, address)?, reserved: [0; 8] })
    };
    context fn cudaMemRangeGetAttribute(
        data: *mut std::ffi::c_void, size: usize, attribute: i32, address: u64, bytes: usize,
    ) |d| {
        d.cuMemRangeGetAttribute(data, size, attribute, address, bytes)
    };
}

/// `cudaPointerAttributes` of CUDA 12.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// 0 = not CUDA's, 1 = host, 2 = device, 3 = managed.
    kind: i32,
    device: i32,
    device_address: u64,
    host_address: u64,
}

/// That of CUDA 13.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Attributes13 {
    attributes: Attributes,
    reserved: [u64; 8],
}

/// `CUpointer_attribute`: memory type, device pointer, host pointer, is managed, device ordinal.
const ASKED: [i32; 5] = [2, 3, 4, 8, 9];
const NO_DEVICE: i32 = -2;

fn attributes(driver: &crate::driver::Driver, address: u64) -> Result<Attributes, i32> {
    let (mut kind, mut managed, mut device) = (0u32, 0u32, NO_DEVICE);
    let (mut device_address, mut host_address) = (0u64, 0u64);
    let to: [*mut std::ffi::c_void; 5] = [
        (&raw mut kind).cast(),
        (&raw mut device_address).cast(),
        (&raw mut host_address).cast(),
        (&raw mut managed).cast(),
        (&raw mut device).cast(),
    ];
    driver.cuPointerGetAttributes(ASKED.len() as u32, ASKED.as_ptr(), to.as_ptr(), address)?;
    Ok(match (kind, managed) {
        (0, _) => {
            Attributes { kind: 0, device: NO_DEVICE, device_address: 0, host_address: address }
        }
        (_, 0) => Attributes { kind: kind as i32, device, device_address, host_address },
        _ => Attributes { kind: 3, device, device_address: address, host_address: address },
    })
}
