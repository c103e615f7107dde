//! **Virtual memory management**: reservations, physical handles, mappings, access.
//!
//! A mapping shows a whole object inside one reservation; access is set on whole mappings; an
//! object outlives its handle while it is mapped, and its mapping while it has a handle.

use super::linear::{HostRange, MemoryFile};
use super::object::{Home, Object};
use super::table::{Kind, Mapping};
use super::{Gone, Memory};
use crate::types::{AccessDescriptor, AllocationProperties, Code, LOCATION_DEVICE, code};
use std::io;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub const POSIX_FILE_DESCRIPTOR: i32 = 1;
const MAGIC: u64 = u64::from_le_bytes(*b"simcuda1");
const TRAILER: u64 = 4096;

/// A value that names an object, with its count of references.
#[derive(Clone, Copy, Debug)]
pub struct Handle {
    /// The object.
    pub object: u64,
    /// Times that it was handed out, less times that it was released.
    pub references: u32,
}

/// One mapping that was taken away.
#[derive(Debug)]
pub struct Unmapped {
    /// What it showed.
    pub mapping: Mapping,
    /// Whether its object went with it.
    pub gone: Gone,
}

impl Memory {
    fn aligned(&self, number: u64) -> bool {
        number.is_multiple_of(self.granularity)
    }

    /// `cuMemAddressReserve`.
    pub fn reserve(&mut self, bytes: u64, align: u64, wish: u64) -> Result<u64, Code> {
        let right = bytes > 0 && self.aligned(bytes) && (align == 0 || align.is_power_of_two());
        if !right {
            return Err(code::INVALID_VALUE);
        }
        let at_wish = wish != 0
            && self.aligned(wish)
            && (align == 0 || wish.is_multiple_of(align))
            && self.addresses.take_at(wish, bytes);
        let align = align.max(self.granularity);
        let start = if at_wish { Some(wish) } else { self.addresses.take(bytes, align) };
        let start = start.ok_or(code::OUT_OF_MEMORY)?;
        self.reservations.insert(start, bytes);
        Ok(start)
    }

    /// `cuMemAddressFree`: the whole reservation, with nothing mapped in it.
    pub fn unreserve(&mut self, start: u64, bytes: u64) -> Result<(), Code> {
        let whole = self.reservations.get(&start) == Some(&bytes);
        if !whole || self.table.overlaps(start, bytes) {
            return Err(code::INVALID_VALUE);
        }
        self.reservations.remove(&start);
        self.addresses.give(start, bytes);
        Ok(())
    }

    /// The reservation that holds `address`.
    pub fn reservation(&self, address: u64) -> Option<(u64, u64)> {
        let (&start, &bytes) = self.reservations.range(..=address).next_back()?;
        (address - start < bytes).then_some((start, bytes))
    }

    /// Checks what `cuMemCreate` was asked for; answers the device.
    pub fn check_properties(&self, asked: &AllocationProperties) -> Result<u32, Code> {
        let device = usize::try_from(asked.location.id).ok().filter(|&d| d < self.budgets.len());
        match device {
            _ if asked.kind != 1 || asked.location.kind != LOCATION_DEVICE => {
                Err(code::INVALID_VALUE)
            }
            _ if asked.requested_handle_types & !POSIX_FILE_DESCRIPTOR != 0 => {
                Err(code::NOT_SUPPORTED)
            }
            Some(device) => Ok(device as u32),
            None => Err(code::INVALID_DEVICE),
        }
    }

    /// `cuMemCreate`: answers the handle and the object.
    pub fn create(&mut self, bytes: u64, asked: &AllocationProperties) -> Result<(u64, u64), Code> {
        let device = self.check_properties(asked)?;
        if bytes == 0 || !self.aligned(bytes) {
            return Err(code::INVALID_VALUE);
        }
        self.budgets[device as usize].check(bytes)?;
        let shared = asked.requested_handle_types & POSIX_FILE_DESCRIPTOR != 0;
        let (home, base) = if shared {
            shared_home(device, bytes).map_err(|_| code::OUT_OF_MEMORY)?
        } else {
            (Home::Linear, self.linear.take(bytes).ok_or(code::OUT_OF_MEMORY)?)
        };
        self.budgets[device as usize].take(bytes);
        let object = self.new_object(device, bytes, home, base);
        object.properties = *asked;
        let object = object.id;
        Ok((self.new_handle(object), object))
    }

    /// Handle values are never used twice, so that a stale one is always refused.
    fn new_handle(&mut self, object: u64) -> u64 {
        let handle = self.unique() << 4;
        self.handles.insert(handle, Handle { object, references: 1 });
        if let Some(object) = self.objects.get_mut(&object) {
            object.handles.push(handle);
        }
        handle
    }

    fn by_handle(&self, handle: u64) -> Result<u64, Code> {
        self.handles.get(&handle).map(|h| h.object).ok_or(code::INVALID_VALUE)
    }

    /// `cuMemGetAllocationPropertiesFromHandle`.
    pub fn properties(&self, handle: u64) -> Result<AllocationProperties, Code> {
        let object = self.by_handle(handle)?;
        self.objects.get(&object).map(|o| o.properties).ok_or(code::INVALID_VALUE)
    }

    /// The object that a handle names.
    pub fn handle_object(&self, handle: u64) -> Option<u64> {
        self.by_handle(handle).ok()
    }

    /// `cuMemRelease`.
    pub fn release(&mut self, handle: u64) -> Result<Gone, Code> {
        let entry = self.handles.get_mut(&handle).ok_or(code::INVALID_VALUE)?;
        let object = entry.object;
        entry.references -= 1;
        if entry.references == 0 {
            self.handles.remove(&handle);
            if let Some(object) = self.objects.get_mut(&object) {
                object.handles.retain(|h| *h != handle);
            }
        }
        Ok(self.bury(object))
    }

    /// `cuMemRetainAllocationHandle`: the handle of what is mapped at `address`, one reference
    /// more.
    pub fn retain(&mut self, address: u64) -> Result<u64, Code> {
        let mapping = self.table.find(address).ok_or(code::INVALID_VALUE)?;
        if mapping.kind != Kind::Virtual {
            return Err(code::INVALID_VALUE);
        }
        let object = mapping.object;
        let known = self.objects.get(&object).and_then(|o| o.handles.first().copied());
        if let Some(handle) = known
            && let Some(entry) = self.handles.get_mut(&handle)
        {
            entry.references += 1;
            return Ok(handle);
        }
        Ok(self.new_handle(object))
    }

    /// `cuMemMap`: answers the object.
    pub fn map(&mut self, start: u64, bytes: u64, offset: u64, handle: u64) -> Result<u64, Code> {
        let object = self.by_handle(handle)?;
        let (device, base, size) = match self.objects.get(&object) {
            Some(object) => (object.device, object.base, object.bytes),
            None => return Err(code::INVALID_VALUE),
        };
        let (from, length) = self.reservation(start).ok_or(code::INVALID_VALUE)?;
        let inside = start.checked_add(bytes).is_some_and(|end| end <= from + length);
        let right = offset == 0 && bytes == size && self.aligned(start) && inside;
        if !right || self.table.overlaps(start, bytes) {
            return Err(code::INVALID_VALUE);
        }
        let buffer = self.unique();
        let kind = Kind::Virtual;
        let (context, readers, writers, flags, sync_memops) = (0, 0, 0, 0, false);
        self.table.insert(Mapping {
            start,
            bytes,
            object,
            base,
            kind,
            device,
            context,
            readers,
            writers,
            flags,
            buffer,
            sync_memops,
        });
        if let Some(object) = self.objects.get_mut(&object) {
            object.mappings += 1;
        }
        Ok(object)
    }

    /// The whole VMM mappings that make up a range.
    pub fn virtual_range(&self, start: u64, bytes: u64) -> Result<Vec<u64>, Code> {
        let starts = self.table.exactly(start, bytes).ok_or(code::INVALID_VALUE)?;
        let ours = |s: &u64| self.table.find(*s).is_some_and(|m| m.kind == Kind::Virtual);
        if starts.iter().all(ours) { Ok(starts) } else { Err(code::INVALID_VALUE) }
    }

    /// `cuMemUnmap` of one mapping that [`Memory::virtual_range`] named.
    pub fn unmap(&mut self, start: u64) -> Option<Unmapped> {
        let mapping = self.table.remove(start)?;
        let gone = self.drop_mapping(&mapping);
        Some(Unmapped { mapping, gone })
    }

    /// `cuMemSetAccess`: answers how many mappings there are.
    pub fn set_access(
        &mut self,
        start: u64,
        bytes: u64,
        wanted: &[AccessDescriptor],
    ) -> Result<u64, Code> {
        for w in wanted {
            let known = (0..self.budgets.len() as i64).contains(&i64::from(w.location.id));
            match w.location.kind {
                LOCATION_DEVICE if !known => return Err(code::INVALID_DEVICE),
                LOCATION_DEVICE if matches!(w.flags, 0 | 1 | 3) => {}
                _ => return Err(code::INVALID_VALUE),
            }
        }
        let starts = self.virtual_range(start, bytes)?;
        for &at in &starts {
            let Some(mapping) = self.table.find_mut(at) else { continue };
            for w in wanted {
                let bit = 1u64 << w.location.id;
                let set = |bits: u64, on: bool| if on { bits | bit } else { bits & !bit };
                mapping.readers = set(mapping.readers, w.flags & 1 != 0);
                mapping.writers = set(mapping.writers, w.flags & 2 != 0);
            }
        }
        Ok(starts.len() as u64)
    }

    /// The memory file of an object that was made to be shared.
    pub fn export(&self, handle: u64) -> Result<i32, Code> {
        let object = self.by_handle(handle)?;
        match self.objects.get(&object).map(|o| &o.home) {
            Some(Home::Shared { file, .. }) => duplicate(file.fd).map_err(|_| code::UNKNOWN),
            _ => Err(code::INVALID_VALUE),
        }
    }

    /// `cuMemImportFromShareableHandle`: a handle to the object behind a file. A file of this
    /// process names the object that it already has. Answers the handle, and the object if it is
    /// new here.
    pub fn import(&mut self, fd: i32) -> Result<(u64, Option<u64>), Code> {
        let (identity, bytes) = identify(fd).map_err(|_| code::INVALID_VALUE)?;
        let same =
            |o: &&Object| matches!(o.home, Home::Shared { identity: i, .. } if i == identity);
        if let Some(id) = self.objects.values().find(same).map(|o| o.id) {
            return Ok((self.new_handle(id), None));
        }
        let opened = open_shared(fd, bytes, identity).map_err(|_| code::INVALID_VALUE)?;
        let (device, size, home, base) = opened;
        if device as usize >= self.budgets.len() {
            return Err(code::INVALID_DEVICE);
        }
        let object = self.new_object(device, size, home, base);
        object.counted = false;
        object.properties = AllocationProperties {
            kind: 1,
            requested_handle_types: POSIX_FILE_DESCRIPTOR,
            location: crate::types::Location { kind: LOCATION_DEVICE, id: device as i32 },
            ..Default::default()
        };
        let id = object.id;
        Ok((self.new_handle(id), Some(id)))
    }
}

/// A file of an object and a trailer that says what it is: magic, device, size.
pub(super) fn shared_home(device: u32, bytes: u64) -> io::Result<(Home, u64)> {
    let file = MemoryFile::create(c"simcuda-shared-memory", bytes + TRAILER)?;
    let range = HostRange::of_file(file.fd, bytes + TRAILER)?;
    range.keep_private();
    let (identity, _) = identify(file.fd)?;
    let trailer = (range.start + bytes) as *mut [u64; 3];
    // SAFETY: the mapping is `bytes + TRAILER` long and page aligned, and nobody else knows it yet.
    unsafe { trailer.write([MAGIC, u64::from(device), bytes]) };
    let base = range.start;
    Ok((Home::Shared { file, range, identity }, base))
}

fn open_shared(fd: i32, length: u64, identity: (u64, u64)) -> io::Result<(u32, u64, Home, u64)> {
    let wrong = || io::Error::other("not a file of simulated device memory");
    let bytes = length.checked_sub(TRAILER).filter(|b| *b > 0).ok_or_else(wrong)?;
    let file = MemoryFile { fd: duplicate(fd)? };
    let range = HostRange::of_file(file.fd, length)?;
    range.keep_private();
    // SAFETY: the file is `length` long and mapped whole; the trailer is its last page.
    let [magic, device, size] = unsafe { ((range.start + bytes) as *const [u64; 3]).read() };
    let device = u32::try_from(device).map_err(|_| wrong())?;
    if magic != MAGIC || size != bytes {
        return Err(wrong());
    }
    let base = range.start;
    Ok((device, size, Home::Shared { file, range, identity }, base))
}

fn identify(fd: i32) -> io::Result<((u64, u64), u64)> {
    // SAFETY: an all-zero `stat` is valid; the call fills it or fails.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is ours; any descriptor number is allowed, a wrong one fails.
    match unsafe { libc::fstat(fd, &mut stat) } {
        0 => Ok(((stat.st_dev, stat.st_ino), stat.st_size as u64)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn duplicate(fd: i32) -> io::Result<i32> {
    // SAFETY: the call makes a new descriptor or fails; it touches no memory.
    match unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) } {
        new if new >= 0 => Ok(new),
        _ => Err(io::Error::last_os_error()),
    }
}
