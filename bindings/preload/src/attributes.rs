//! **Attributes**: what the driver says of an address, put right for blocks of ours.
//!
//! The program sees its request, not the block that serves it; an address that it does not have is
//! one that nobody has.

use std::ffi::{c_int, c_void};

use cuddy::mutants::mutant;

use crate::books::books;
use crate::cache::Place;
use crate::doors::Home;
use crate::memory::NOBODYS;
use crate::process::is_out;
use crate::table::{Address, IpcHandle, Opaque};

/// `CU_POINTER_ATTRIBUTE_*`.
const P2P_TOKENS: c_int = 5;
const BUFFER_ID: c_int = 7;
const RANGE_SIZE: c_int = 12;
const MAPPING_SIZE: c_int = 18;

/// Numbers of buffers that the driver did not give: it counts from the bottom.
const REUSED: u64 = 1 << 63;

fn look(address: Address) -> Place {
    if is_out() { Place::Unknown } else { books().cache.look(address) }
}

/// The address to ask the driver for.
fn asked_for(place: Place, address: Address) -> Address {
    if place == Place::Dead && !mutant("preload-freed-address-known") { NOBODYS } else { address }
}

/// `cuMemGetAddressRange`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn range(
    _home: &Home,
    real: unsafe extern "C" fn(*mut Address, *mut usize, Address) -> c_int,
    base: *mut Address,
    bytes: *mut usize,
    address: Address,
) -> c_int {
    let place = look(address);
    // SAFETY: the program's own arguments.
    let code = unsafe { real(base, bytes, asked_for(place, address)) };
    if let Place::Live { asked, capacity, .. } = place
        && code == 0
        && !bytes.is_null()
    {
        // SAFETY: not null, and the driver has just written there.
        unsafe {
            // A driver that counts otherwise is left its word.
            if *bytes as u64 == capacity {
                *bytes = asked as usize;
            }
        }
    }
    code
}

/// Puts one attribute's value right.
///
/// # Safety
/// The driver has just written the attribute's value to `data`.
unsafe fn correct(place: Place, attribute: c_int, data: Opaque, address: Address) {
    let Place::Live { asked, capacity, reuse, .. } = place else { return };
    match attribute {
        P2P_TOKENS => books().cache.taint(address),
        BUFFER_ID if reuse > 0 && !data.is_null() => {
            // SAFETY: a 64-bit value, by the caller's promise.
            unsafe { data.cast::<u64>().write_unaligned(REUSED | reuse) };
        }
        RANGE_SIZE | MAPPING_SIZE if !data.is_null() => {
            // SAFETY: a size_t, by the caller's promise.
            unsafe {
                let size = data.cast::<u64>();
                if size.read_unaligned() == capacity {
                    size.write_unaligned(asked);
                }
            }
        }
        _ => {}
    }
}

/// `cuPointerGetAttribute`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn get(
    _home: &Home,
    real: unsafe extern "C" fn(Opaque, c_int, Address) -> c_int,
    data: Opaque,
    attribute: c_int,
    address: Address,
) -> c_int {
    let place = look(address);
    // SAFETY: the program's own arguments.
    let code = unsafe { real(data, attribute, asked_for(place, address)) };
    if code == 0 {
        // SAFETY: the driver has succeeded.
        unsafe { correct(place, attribute, data, address) };
    }
    code
}

/// `cuPointerGetAttributes`.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn get_many(
    _home: &Home,
    real: unsafe extern "C" fn(u32, *const c_int, *const Opaque, Address) -> c_int,
    count: u32,
    attributes: *const c_int,
    data: *const Opaque,
    address: Address,
) -> c_int {
    let place = look(address);
    // SAFETY: the program's own arguments.
    let code = unsafe { real(count, attributes, data, asked_for(place, address)) };
    if code == 0 && matches!(place, Place::Live { .. }) {
        for i in 0..count as usize {
            // SAFETY: the driver has read so many of both, and written each value.
            unsafe { correct(place, *attributes.add(i), *data.add(i), address) };
        }
    }
    code
}

/// `cuPointerSetAttribute`: what the program wants of this memory, its next owner would inherit.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn set(
    _home: &Home,
    real: unsafe extern "C" fn(*const c_void, c_int, Address) -> c_int,
    value: *const c_void,
    attribute: c_int,
    address: Address,
) -> c_int {
    let address = tainted(address);
    // SAFETY: the program's own arguments.
    unsafe { real(value, attribute, address) }
}

/// `cuIpcGetMemHandle`: another process may use this memory from now on.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn export(
    _home: &Home,
    real: unsafe extern "C" fn(IpcHandle, Address) -> c_int,
    handle: IpcHandle,
    address: Address,
) -> c_int {
    let address = tainted(address);
    // SAFETY: the program's own arguments.
    unsafe { real(handle, address) }
}

/// `cuMemGetHandleForAddressRange`: a device may use this memory from now on.
///
/// # Safety
/// As cuda.h says.
pub unsafe fn export_range(
    _home: &Home,
    real: unsafe extern "C" fn(Opaque, Address, usize, c_int, u64) -> c_int,
    handle: Opaque,
    address: Address,
    bytes: usize,
    kind: c_int,
    flags: u64,
) -> c_int {
    let address = tainted(address);
    // SAFETY: the program's own arguments.
    unsafe { real(handle, address, bytes, kind, flags) }
}

/// Marks the live block around an address, before the driver is asked: a failure costs one reuse.
fn tainted(address: Address) -> Address {
    let place = look(address);
    if matches!(place, Place::Live { .. }) && !mutant("preload-export-unseen") {
        books().cache.taint(address);
    }
    asked_for(place, address)
}
