//! Page-locked host memory: allocated, or the program's own, registered.

use super::memory::{announce, destroy_access, forget, implied_wait};
use super::{exports, put, put_if, require, wanted};
use crate::call::Call;
use crate::memory::host::Wish;
use crate::memory::table::{Kind, Mapping};
use crate::types::{Code, Outcome, code};

exports! {
    fn cuMemHostAlloc(address: *mut u64, bytes: usize, flags: u32) |call| {
        call.started()?;
        wanted(address)?;
        require(flags & !7 == 0, code::INVALID_VALUE)?;
        put(address, allocate(call, bytes as u64, flags)?)
    };
    fn cuMemAllocHost_v2(address: *mut u64, bytes: usize) |call| {
        call.started()?;
        wanted(address)?;
        put(address, allocate(call, bytes as u64, 0)?)
    };
    fn cuMemFreeHost(address: u64) |call| {
        call.context()?;
        if address == 0 {
            return Ok(());
        }
        remove(call, address, Kind::Pinned, code::INVALID_VALUE)
    };
    fn cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32) |call| {
        let context = call.context()?;
        let end = address.checked_add(bytes as u64);
        let right = address != 0 && bytes > 0 && end.is_some() && flags & !15 == 0;
        require(right, code::INVALID_VALUE)?;
        require(!call.memory.is_device_address(address), code::INVALID_VALUE)?;
        require(is_mapped(address, bytes), code::INVALID_VALUE)?;
        let device = call.contexts[&context].device;
        call.about_bytes(bytes as u64);
        let wish = Wish { context, device, bytes: bytes as u64, flags };
        let object = call.memory.register(address, wish)?;
        let label = || format!("cuMemHostRegister({address:#x}, {bytes})");
        announce(call, object, bytes as u64, label);
        Ok(())
    };
    fn cuMemHostUnregister(address: u64) |call| {
        call.context()?;
        remove(call, address, Kind::Registered, code::HOST_MEMORY_NOT_REGISTERED)
    };
    fn cuMemHostGetDevicePointer_v2(device_address: *mut u64, address: u64, flags: u32) |call| {
        call.context()?;
        require(flags == 0, code::INVALID_VALUE)?;
        host_mapping(call, address)?;
        put(device_address, address)
    };
    fn cuMemHostGetFlags(flags: *mut u32, address: u64) |call| {
        call.context()?;
        let mapping = host_mapping(call, address)?;
        require(mapping.kind == Kind::Pinned, code::INVALID_VALUE)?;
        put_if(flags, mapping.flags | 2)
    };
}

/// Whether all of it is memory of this process.
fn is_mapped(address: u64, bytes: usize) -> bool {
    const PAGE: u64 = 4096;
    let start = address & !(PAGE - 1);
    // SAFETY: with this flag Linux only looks at the range, and says ENOMEM if part of it is not there.
    unsafe { libc::msync(start as *mut _, bytes + (address - start) as usize, libc::MS_ASYNC) == 0 }
}

fn host_mapping(call: &Call, address: u64) -> Result<Mapping, Code> {
    call.memory.table.find(address).filter(|m| m.is_host()).cloned().ok_or(code::INVALID_VALUE)
}

fn allocate(call: &mut Call, bytes: u64, flags: u32) -> Result<u64, Code> {
    let context = call.context()?;
    require(bytes > 0, code::INVALID_VALUE)?;
    call.about_bytes(bytes);
    let device = call.contexts[&context].device;
    let (start, object) = call.memory.allocate_host(Wish { context, device, bytes, flags })?;
    announce(call, object, bytes, || format!("cuMemHostAlloc({bytes}) = {start:#x}"));
    Ok(start)
}

fn remove(call: &mut Call, address: u64, kind: Kind, otherwise: Code) -> Outcome {
    let ours = |m: &&Mapping| m.start == address && m.kind == kind;
    let mapping = call.memory.table.find(address).filter(ours).cloned().ok_or(otherwise)?;
    implied_wait(call, &mapping);
    let still = |m: &&Mapping| m.buffer == mapping.buffer;
    call.memory.table.find(address).filter(still).ok_or(otherwise)?;
    destroy_access(call, &mapping);
    let gone = call.memory.remove_host(address);
    forget(call, gone);
    Ok(())
}
