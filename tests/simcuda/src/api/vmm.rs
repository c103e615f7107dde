//! Virtual memory management.

use super::memory::{announce, destroy_access, forget, note_freed};
use super::{exports, get, put, require, wanted};
use crate::call::Call;
use crate::memory::vmm::POSIX_FILE_DESCRIPTOR;
use crate::types::{AccessDescriptor, AllocationProperties, Code, Location, code};

exports! {
    fn cuMemAddressReserve(
        address: *mut u64, bytes: usize, align: usize, wish: u64, flags: u64,
    ) |call| {
        supported(call)?;
        wanted(address)?;
        require(flags == 0, code::INVALID_VALUE)?;
        let start = call.memory.reserve(bytes as u64, align as u64, wish)?;
        put(address, start)
    };
    fn cuMemAddressFree(address: u64, bytes: usize) |call| {
        supported(call)?;
        call.memory.unreserve(address, bytes as u64)?;
        note_freed(call, (address, bytes as u64), None);
        Ok(())
    };
    fn cuMemCreate(
        handle: *mut u64, bytes: usize, asked: *const AllocationProperties, flags: u64,
    ) |call| {
        supported(call)?;
        wanted(handle)?;
        let asked = get(asked)?;
        require(flags == 0, code::INVALID_VALUE)?;
        call.about_bytes(bytes as u64);
        let (new, object) = call.memory.create(bytes as u64, &asked)?;
        announce(call, object, bytes as u64, || format!("cuMemCreate({bytes}) = handle {new:#x}"));
        put(handle, new)
    };
    fn cuMemRelease(handle: u64) |call| {
        supported(call)?;
        let gone = call.memory.release(handle)?;
        forget(call, gone);
        Ok(())
    };
    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) |call| {
        supported(call)?;
        require(flags == 0, code::INVALID_VALUE)?;
        call.memory.map(address, bytes as u64, offset as u64, handle).map(|_| ())
    };
    fn cuMemUnmap(address: u64, bytes: usize) |call| {
        supported(call)?;
        let starts = call.memory.virtual_range(address, bytes as u64)?;
        call.about_units(starts.len() as u64);
        for start in starts {
            let Some(mapping) = call.memory.table.find(start).cloned() else { continue };
            destroy_access(call, &mapping);
            let gone = call.memory.unmap(start).and_then(|u| u.gone);
            forget(call, gone);
        }
        Ok(())
    };
    fn cuMemSetAccess(
        address: u64, bytes: usize, wanted: *const AccessDescriptor, count: usize,
    ) |call| {
        supported(call)?;
        require(count > 0 && count <= 4096, code::INVALID_VALUE)?;
        let wanted = (0..count).map(|i| get(wanted.wrapping_add(i)));
        let wanted = wanted.collect::<Result<Vec<_>, _>>()?;
        let units = call.memory.set_access(address, bytes as u64, &wanted)?;
        call.about_units(units);
        Ok(())
    };
    fn cuMemGetAccess(flags: *mut u64, location: *const Location, address: u64) |call| {
        supported(call)?;
        let location = get(location)?;
        require(location.kind == 1, code::INVALID_VALUE)?;
        let device = call.device(location.id)?;
        let mapping = call.memory.table.find(address).ok_or(code::INVALID_VALUE)?;
        let (reads, writes) = (mapping.readers >> device & 1, mapping.writers >> device & 1);
        put(flags, reads | writes << 1)
    };
    fn cuMemGetAllocationGranularity(
        bytes: *mut usize, asked: *const AllocationProperties, option: i32,
    ) |call| {
        supported(call)?;
        let asked = get(asked)?;
        require((0..=1).contains(&option), code::INVALID_VALUE)?;
        call.memory.check_properties(&asked)?;
        put(bytes, call.memory.granularity as usize)
    };
    fn cuMemGetAllocationPropertiesFromHandle(
        properties: *mut AllocationProperties, handle: u64,
    ) |call| {
        supported(call)?;
        put(properties, call.memory.properties(handle)?)
    };
    fn cuMemRetainAllocationHandle(handle: *mut u64, address: u64) |call| {
        supported(call)?;
        wanted(handle)?;
        put(handle, call.memory.retain(address)?)
    };
    fn cuMemExportToShareableHandle(to: *mut i32, handle: u64, kind: i32, flags: u64) |call| {
        supported(call)?;
        wanted(to)?;
        require(flags == 0 && kind == POSIX_FILE_DESCRIPTOR, code::INVALID_VALUE)?;
        put(to, call.memory.export(handle)?)
    };
    fn cuMemImportFromShareableHandle(handle: *mut u64, from: usize, kind: i32) |call| {
        supported(call)?;
        wanted(handle)?;
        require(kind == POSIX_FILE_DESCRIPTOR, code::INVALID_VALUE)?;
        let (new, object) = call.memory.import(from as i32)?;
        if let Some(object) = object {
            let bytes = call.memory.object(object).map_or(0, |o| o.bytes);
            announce(call, object, bytes, || format!("imported handle {new:#x}"));
        }
        put(handle, new)
    };
}

/// Fails where the simulated devices have no virtual memory management.
fn supported(call: &Call) -> Result<(), Code> {
    call.started()?;
    require(call.config.vmm, code::NOT_SUPPORTED)
}
