//! Managed memory: one address for the host and for all devices, and advice on where it lies.

use super::memory::announce;
use super::{exports, get, put, require, wanted};
use crate::call::Call;
use crate::memory::host::Wish;
use crate::memory::managed::{Advice, HOST_BIT, Place};
use crate::memory::table::Kind;
use crate::submit::StreamRef;
use crate::types::{Code, LOCATION_DEVICE, Location, Outcome, code};
use crate::work::Body;

exports! {
    fn cuMemAllocManaged(address: *mut u64, bytes: usize, flags: u32) |call| {
        call.started()?;
        wanted(address)?;
        let context = call.context()?;
        require(bytes > 0 && matches!(flags, GLOBAL | HOST), code::INVALID_VALUE)?;
        let (device, bytes) = (call.contexts[&context].device, bytes as u64);
        let (start, object) =
            call.memory.allocate_managed(Wish { context, device, bytes, flags })?;
        announce(call, object, bytes, || format!("cuMemAllocManaged({bytes}) = {start:#x}"));
        put(address, start)
    };
    fn cuMemAdvise(address: u64, bytes: usize, advice: i32, device: i32) |call| {
        advise(call, address, bytes as u64, advice, of_device(device))
    };
    fn cuMemAdvise_v2(address: u64, bytes: usize, advice: i32, location: Location) |call| {
        advise(call, address, bytes as u64, advice, location)
    };
    fn cuMemPrefetchAsync, fn cuMemPrefetchAsync_ptsz (
        address: u64, bytes: usize, device: i32, stream: u64,
    ) |call| {
        let stream = call.stream(stream)?;
        prefetch(call, address, bytes as u64, of_device(device), &stream)
    };
    fn cuMemPrefetchAsync_v2, fn cuMemPrefetchAsync_v2_ptsz (
        address: u64, bytes: usize, location: Location, flags: u32, stream: u64,
    ) |call| {
        let stream = call.stream(stream)?;
        require(flags == 0, code::INVALID_VALUE)?;
        prefetch(call, address, bytes as u64, location, &stream)
    };
    fn cuMemRangeGetAttribute(
        data: *mut i32, room: usize, attribute: i32, address: u64, bytes: usize,
    ) |call| {
        call.context()?;
        attribute_of(call, data, room, attribute, address, bytes as u64)
    };
    fn cuMemRangeGetAttributes(
        data: *const *mut i32, rooms: *const usize, attributes: *const i32, count: usize,
        address: u64, bytes: usize,
    ) |call| {
        call.context()?;
        require(count > 0 && count <= 64, code::INVALID_VALUE)?;
        (0..count).try_for_each(|i| {
            let (to, room) = (get(data.wrapping_add(i))?, get(rooms.wrapping_add(i))?);
            let attribute = get(attributes.wrapping_add(i))?;
            attribute_of(call, to, room, attribute, address, bytes as u64)
        })
    };
    fn cuStreamAttachMemAsync, fn cuStreamAttachMemAsync_ptsz (
        stream: u64, address: u64, bytes: usize, flags: u32,
    ) |call| {
        let found = call.stream(stream)?;
        require(matches!(flags, GLOBAL | HOST | SINGLE), code::INVALID_VALUE)?;
        require(stream != 0 || flags != SINGLE, code::INVALID_VALUE)?;
        let mapping = call.memory.table.find_mut(address).ok_or(code::INVALID_VALUE)?;
        let whole = bytes == 0 || bytes as u64 == mapping.bytes;
        let right = mapping.kind == Kind::Managed && mapping.start == address && whole;
        require(right, code::INVALID_VALUE)?;
        mapping.flags = flags;
        call.submit(&found, Body::Nothing, 0, || format!("cuStreamAttachMemAsync({address:#x})"));
        Ok(())
    };
}

const GLOBAL: u32 = 1;
const HOST: u32 = 2;
const SINGLE: u32 = 4;

/// `CU_DEVICE_CPU`, and what stands for no device.
const CPU: i32 = -1;
const NO_DEVICE: i32 = -2;

/// `CUmemLocationType` of the host.
const LOCATION_HOST: i32 = 2;

fn of_device(device: i32) -> Location {
    match device {
        CPU => Location { kind: LOCATION_HOST, id: 0 },
        id => Location { kind: LOCATION_DEVICE, id },
    }
}

fn place(call: &Call, location: Location) -> Result<Place, Code> {
    match location.kind {
        LOCATION_DEVICE => call.device(location.id).map(Place::Device),
        kind @ LOCATION_HOST..=4 => Ok(Place::Host { kind, id: location.id }),
        _ => Err(code::INVALID_VALUE),
    }
}

fn bit(place: Place) -> u64 {
    match place {
        Place::Device(device) => 1 << device,
        _ => HOST_BIT,
    }
}

fn advise(call: &mut Call, address: u64, bytes: u64, advice: i32, location: Location) -> Outcome {
    call.context()?;
    let (start, end) = call.memory.managed_pages(address, bytes)?;
    // What takes advice back has no use for a place, but for the one that is about somebody.
    let place = match advice {
        1 | 2 | 4 => Place::Nowhere,
        _ => place(call, location)?,
    };
    let change: &dyn Fn(&mut Advice) = match advice {
        1 => &|a| a.read_mostly = true,
        2 => &|a| a.read_mostly = false,
        3 => &|a| a.preferred = place,
        4 => &|a| a.preferred = Place::Nowhere,
        5 => &|a| a.accessed_by |= bit(place),
        6 => &|a| a.accessed_by &= !bit(place),
        _ => return Err(code::INVALID_VALUE),
    };
    call.memory.managed.change(start, end, change);
    Ok(())
}

/// Nothing moves, so there is nothing to wait for; but it is an operation of its stream.
fn prefetch(
    call: &mut Call,
    address: u64,
    bytes: u64,
    location: Location,
    stream: &StreamRef,
) -> Outcome {
    let (start, end) = call.memory.managed_pages(address, bytes)?;
    let place = place(call, location)?;
    call.memory.managed.change(start, end, |a| a.prefetched = place);
    call.submit(stream, Body::Nothing, 0, || format!("cuMemPrefetchAsync({address:#x})"));
    Ok(())
}

/// What all pages agree on; nowhere if they do not.
fn common(pages: &[Advice], of: impl Fn(&Advice) -> Place) -> Place {
    let first = pages.first().map_or(Place::Nowhere, &of);
    if pages.iter().all(|p| of(p) == first) { first } else { Place::Nowhere }
}

fn attribute_of(
    call: &Call,
    data: *mut i32,
    room: usize,
    attribute: i32,
    address: u64,
    bytes: u64,
) -> Outcome {
    wanted(data)?;
    require(room > 0 && room.is_multiple_of(4), code::INVALID_VALUE)?;
    require(room == 4 || attribute == 3, code::INVALID_VALUE)?;
    let (start, end) = call.memory.managed_pages(address, bytes)?;
    let pages = call.memory.managed.of(start, end);
    let preferred = common(&pages, |p| p.preferred);
    let prefetched = common(&pages, |p| p.prefetched);
    let value = match attribute {
        1 => i32::from(pages.iter().all(|p| p.read_mostly)),
        2 => device_of(preferred),
        3 => {
            return list(data, room / 4, pages.iter().fold(u64::MAX, |all, p| all & p.accessed_by));
        }
        4 => device_of(prefetched),
        5 => location_of(preferred).kind,
        6 => location_of(preferred).id,
        7 => location_of(prefetched).kind,
        8 => location_of(prefetched).id,
        _ => return Err(code::INVALID_VALUE),
    };
    put(data, value)
}

fn device_of(place: Place) -> i32 {
    match place {
        Place::Nowhere => NO_DEVICE,
        Place::Host { .. } => CPU,
        Place::Device(device) => device as i32,
    }
}

fn location_of(place: Place) -> Location {
    match place {
        Place::Nowhere => Location { kind: 0, id: 0 },
        Place::Host { kind, id } => Location { kind, id },
        Place::Device(device) => Location { kind: LOCATION_DEVICE, id: device as i32 },
    }
}

/// The devices of a set, as many as there is room for, and no device in the places left.
fn list(data: *mut i32, room: usize, set: u64) -> Outcome {
    let host = (set & HOST_BIT != 0).then_some(CPU);
    let devices = (0..63).filter(|d| set >> d & 1 == 1);
    let all = host.into_iter().chain(devices).chain(std::iter::repeat(NO_DEVICE));
    all.take(room).enumerate().try_for_each(|(i, device)| put(data.wrapping_add(i), device))
}
