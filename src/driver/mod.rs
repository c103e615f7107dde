//! The only door to libcuda: safe functions, named for what they do.
//!
//! The contract of this room. A [`Driver`] is a table of function pointers from a resolver that it
//! is given. Functions that need no context are methods of [`Driver`]; those that need one are
//! methods of [`Inside`], which exists only while that context is current on the calling thread and
//! while the thread's stream capture mode is relaxed. Dropping it puts back what was current before.
//! Every call returns `Ok` or the function's name and code; nothing here waits but the functions
//! named `synchronize`, and nothing remembers a block, a page or a stream. All is thread-safe.

mod captures;
mod inside;
mod open;
mod peers;
mod table;

use std::ffi::{CStr, c_char, c_int, c_void};

use cudarc::driver::sys::{
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1,
    CUmemAllocationType, CUmemLocation, CUmemLocationType,
};

pub(crate) use self::inside::{Access, Inside};
use self::table::{Counts, Entry, NAMES, Table};
use crate::error::{DriverError, Error, sentence};
use crate::types::DeviceId;

/// A `CUcontext`; only ever given back to the driver. 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Context(pub(crate) usize);

/// A `CUstream`; 1 is the legacy default stream, 2 the calling thread's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamHandle(pub(crate) usize);

/// A `CUevent`, made without timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Event(pub(crate) usize);

/// Physical memory of a device, as `cuMemCreate` gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Memory(u64);

/// What `CUresult` means by "not yet": no failure.
const NOT_READY: i32 = 600;
/// The code that we report for a function that this driver does not have.
const NOT_FOUND: i32 = 500;
/// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`.
const HAS_VIRTUAL_MEMORY: c_int = 102;
/// `CU_DEVICE_ATTRIBUTE_INTEGRATED`.
const IS_INTEGRATED: c_int = 18;

/// The functions of one CUDA driver.
pub(crate) struct Driver {
    table: Table,
    counts: Counts,
    version: i32,
}

impl Driver {
    /// Takes the driver's functions from `resolve` and initialises it (`cuInit`).
    ///
    /// # Safety
    /// `resolve` gives null, or a function that stays callable for ever and has the signature that
    /// cuda.h gives to the symbol of that name.
    pub(crate) unsafe fn new(resolve: &dyn Fn(&CStr) -> *mut c_void) -> Result<Self, Error> {
        // SAFETY: the caller's promise, passed on.
        let table = unsafe { Table::fill(resolve) };
        let mut driver = Self { table, counts: Counts::new(), version: 0 };
        driver.require_the_old()?;
        let refused = |error: DriverError| match error.code {
            4 => Error::Shutdown,
            _ => Error::NoDriver(sentence!("the CUDA driver does not start: {error}")),
        };
        // SAFETY: cuInit takes flags, which must be zero.
        driver.call(Entry::init, driver.table.init, |f| unsafe { f(0) }).map_err(refused)?;
        let mut version = 0;
        // SAFETY: writes one int through a pointer that lives until the end of this function.
        let asked = driver.call(Entry::driver_version, driver.table.driver_version, |f| unsafe {
            f(&mut version)
        });
        asked.map_err(refused)?;
        driver.version = version;
        driver.forget_newer();
        Ok(driver)
    }

    /// Forgets functions that came after this driver: a library that stands in for an old one may
    /// export them all the same.
    fn forget_newer(&mut self) {
        if self.version < 11_030 {
            self.table.user_object_create = None;
            self.table.graph_retain_object = None;
        }
        if self.version < 12_000 {
            self.table.stream_id = None;
            self.table.context_id = None;
        }
        if self.version < 12_050 {
            self.table.context_record = None;
        }
    }

    /// Refuses a driver that lacks what every driver since CUDA 10.1 has.
    fn require_the_old(&self) -> Result<(), Error> {
        let table = &self.table;
        let required = [
            (Entry::init, table.init.is_some()),
            (Entry::driver_version, table.driver_version.is_some()),
            (Entry::device_count, table.device_count.is_some()),
            (Entry::device_get, table.device_get.is_some()),
            (Entry::device_attribute, table.device_attribute.is_some()),
            (Entry::device_total, table.device_total.is_some()),
            (Entry::primary_retain, table.primary_retain.is_some()),
            (Entry::context_current, table.context_current.is_some()),
            (Entry::context_push, table.context_push.is_some()),
            (Entry::context_pop, table.context_pop.is_some()),
            (Entry::context_synchronize, table.context_synchronize.is_some()),
            (Entry::event_record, table.event_record.is_some()),
            (Entry::memory_alloc, table.memory_alloc.is_some()),
            (Entry::memory_free, table.memory_free.is_some()),
        ];
        match required.iter().find(|(_, there)| !there) {
            None => Ok(()),
            Some((missing, _)) => Err(Error::NoDriver(sentence!(
                "the CUDA driver has no {}: it is older than CUDA 10.1, or not a CUDA driver",
                NAMES[*missing as usize]
            ))),
        }
    }

    /// Calls one entry, counts it, and names it in the error.
    #[inline]
    fn call<F: Copy>(
        &self,
        entry: Entry,
        function: Option<F>,
        invoke: impl FnOnce(F) -> c_int,
    ) -> Result<(), DriverError> {
        let name = NAMES[entry as usize];
        let Some(function) = function else {
            return Err(DriverError { function: name, code: NOT_FOUND });
        };
        self.counts.add(entry);
        match invoke(function) {
            0 => Ok(()),
            code => Err(DriverError { function: name, code }),
        }
    }

    /// Each function that was called, with its count, over the whole process.
    pub(crate) fn calls(&self) -> Vec<(&'static str, u64)> {
        self.counts.list()
    }

    /// The driver's version as cuda.h writes it: 12040 is CUDA 12.4.
    pub(crate) fn version(&self) -> i32 {
        self.version
    }

    /// Whether streams can be told apart by id (CUDA 12.0).
    pub(crate) fn has_stream_ids(&self) -> bool {
        self.table.stream_id.is_some()
    }

    /// Whether an event can be recorded over a whole context (CUDA 12.5).
    pub(crate) fn has_context_events(&self) -> bool {
        self.table.context_record.is_some()
    }

    /// Whether the driver can say that a captured graph is gone (CUDA 11.3).
    pub(crate) fn can_watch_captures(&self) -> bool {
        let table = &self.table;
        table.stream_capture.is_some()
            && table.user_object_create.is_some()
            && table.user_object_release.is_some()
            && table.graph_retain_object.is_some()
    }

    /// How many devices the driver sees.
    pub(crate) fn device_count(&self) -> Result<u32, DriverError> {
        let mut count = 0;
        // SAFETY: writes one int through a pointer that outlives the call.
        self.call(Entry::device_count, self.table.device_count, |f| unsafe { f(&mut count) })?;
        Ok(count.max(0) as u32)
    }

    /// The `CUdevice` of a number.
    fn device(&self, id: DeviceId) -> Result<c_int, DriverError> {
        let mut device = 0;
        // SAFETY: writes one int through a pointer that outlives the call.
        self.call(Entry::device_get, self.table.device_get, |f| unsafe {
            f(&mut device, id.0 as c_int)
        })?;
        Ok(device)
    }

    /// The device's name; what is not UTF-8 in it is replaced.
    pub(crate) fn device_name(&self, id: DeviceId) -> Result<String, DriverError> {
        let device = self.device(id)?;
        let mut name = [0 as c_char; 256];
        // SAFETY: writes at most `len` bytes, with their final zero, into an array of that length.
        self.call(Entry::device_name, self.table.device_name, |f| unsafe {
            f(name.as_mut_ptr(), name.len() as c_int, device)
        })?;
        let bytes = name.map(|byte| byte as u8);
        let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        Ok(sentence!("{}", String::from_utf8_lossy(&bytes[..length])))
    }

    /// The device's memory, in bytes.
    pub(crate) fn device_total(&self, id: DeviceId) -> Result<u64, DriverError> {
        let device = self.device(id)?;
        let mut bytes = 0;
        // SAFETY: writes one size_t through a pointer that outlives the call.
        self.call(Entry::device_total, self.table.device_total, |f| unsafe {
            f(&mut bytes, device)
        })?;
        Ok(bytes as u64)
    }

    /// Whether the device has virtual memory management, and the driver all functions for it.
    pub(crate) fn has_virtual_memory(&self, id: DeviceId) -> Result<bool, DriverError> {
        let table = &self.table;
        let functions = table.granularity.is_some()
            && table.address_reserve.is_some()
            && table.address_free.is_some()
            && table.handle_create.is_some()
            && table.handle_release.is_some()
            && table.map.is_some()
            && table.unmap.is_some()
            && table.set_access.is_some();
        if !functions {
            return Ok(false);
        }
        self.has(id, HAS_VIRTUAL_MEMORY)
    }

    /// Whether the device has no memory of its own.
    pub(crate) fn shares_host_memory(&self, id: DeviceId) -> Result<bool, DriverError> {
        self.has(id, IS_INTEGRATED)
    }

    /// Whether `device` can be made to use memory of `other`.
    pub(crate) fn can_access(
        &self,
        device: DeviceId,
        other: DeviceId,
    ) -> Result<bool, DriverError> {
        let (device, other) = (self.device(device)?, self.device(other)?);
        let mut able = 0;
        // SAFETY: writes one int through a pointer that outlives the call; plain numbers.
        self.call(Entry::can_access, self.table.can_access, |f| unsafe {
            f(&mut able, device, other)
        })?;
        Ok(able != 0)
    }

    /// Whether a device's attribute is there and not zero.
    fn has(&self, id: DeviceId, attribute: c_int) -> Result<bool, DriverError> {
        let device = self.device(id)?;
        let mut value = 0;
        // SAFETY: writes one int through a pointer that outlives the call.
        let asked = self.call(Entry::device_attribute, self.table.device_attribute, |f| unsafe {
            f(&mut value, attribute, device)
        });
        match asked {
            Ok(()) => Ok(value != 0),
            // A driver that has never heard of the attribute.
            Err(DriverError { code: 1, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The unit of physical memory that can be mapped on the device, in bytes.
    pub(crate) fn granularity(&self, id: DeviceId) -> Result<u64, DriverError> {
        const MINIMUM: c_int = 0;
        let properties = properties(id);
        let mut bytes = 0;
        // SAFETY: reads one structure and writes one size_t, both of which outlive the call.
        self.call(Entry::granularity, self.table.granularity, |f| unsafe {
            f(&mut bytes, &properties, MINIMUM)
        })?;
        Ok(bytes as u64)
    }

    /// Takes a reference on the device's primary context, making it if it is not there.
    pub(crate) fn primary_retain(&self, id: DeviceId) -> Result<Context, DriverError> {
        let device = self.device(id)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one handle through a pointer that outlives the call.
        self.call(Entry::primary_retain, self.table.primary_retain, |f| unsafe {
            f(&mut context, device)
        })?;
        Ok(Context(context.expose_provenance()))
    }

    /// Gives a reference of [`Driver::primary_retain`] back.
    pub(crate) fn primary_release(&self, id: DeviceId) -> Result<(), DriverError> {
        let device = self.device(id)?;
        // SAFETY: a plain number.
        self.call(Entry::primary_release, self.table.primary_release, |f| unsafe { f(device) })
    }

    /// The context that is current on the calling thread; `None` if there is none.
    pub(crate) fn current_context(&self) -> Result<Option<Context>, DriverError> {
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one handle through a pointer that outlives the call.
        self.call(Entry::context_current, self.table.context_current, |f| unsafe {
            f(&mut context)
        })?;
        Ok((!context.is_null()).then(|| Context(context.expose_provenance())))
    }

    /// The device of the context that is current on the calling thread.
    pub(crate) fn current_device(&self) -> Result<DeviceId, DriverError> {
        let mut device = 0;
        // SAFETY: writes one int through a pointer that outlives the call.
        self.call(Entry::context_device, self.table.context_device, |f| unsafe { f(&mut device) })?;
        Ok(DeviceId(device.max(0) as u32))
    }

    /// The context's id, which no other context of this process ever has; `None` if the driver is
    /// older than CUDA 12.0.
    pub(crate) fn context_id(&self, context: Context) -> Result<Option<u64>, DriverError> {
        let Some(function) = self.table.context_id else { return Ok(None) };
        let mut id = 0;
        // SAFETY: the driver checks the handle (CUDA_ERROR_CONTEXT_IS_DESTROYED is among its
        // answers) and writes one u64 through a pointer that outlives the call.
        self.call(Entry::context_id, Some(function), |f| unsafe {
            f(pointer(context.0), &mut id)
        })?;
        Ok(Some(id))
    }

    /// The stream's id, which no other stream of this process ever has.
    ///
    /// The handle must be one that the caller of Cuddy vouches for in this very call.
    pub(crate) fn stream_id(&self, stream: StreamHandle) -> Result<u64, DriverError> {
        let mut id = 0;
        // SAFETY: the stream is valid by the rule above; writes one u64 that outlives the call.
        self.call(Entry::stream_id, self.table.stream_id, |f| unsafe {
            f(pointer(stream.0), &mut id)
        })?;
        Ok(id)
    }

    /// The stream's context. The handle must be valid, as for [`Driver::stream_id`].
    pub(crate) fn stream_context(&self, stream: StreamHandle) -> Result<Context, DriverError> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the stream is valid by the rule above; writes one handle that outlives the call.
        self.call(Entry::stream_context, self.table.stream_context, |f| unsafe {
            f(pointer(stream.0), &mut context)
        })?;
        Ok(Context(context.expose_provenance()))
    }

    /// Reserves addresses, without memory behind them, aligned to `alignment`.
    pub(crate) fn address_reserve(&self, bytes: u64, alignment: u64) -> Result<u64, DriverError> {
        let mut start = 0;
        // SAFETY: writes one address that outlives the call; a hint of 0 leaves the place free.
        self.call(Entry::address_reserve, self.table.address_reserve, |f| unsafe {
            f(&mut start, bytes as usize, alignment as usize, 0, 0)
        })?;
        Ok(start)
    }

    /// Gives reserved addresses back. Nothing may be mapped there.
    pub(crate) fn address_free(&self, start: u64, bytes: u64) -> Result<(), DriverError> {
        // SAFETY: plain numbers; the driver refuses a range that it did not reserve.
        self.call(Entry::address_free, self.table.address_free, |f| unsafe {
            f(start, bytes as usize)
        })
    }
}

/// What every page is made of: plain memory of the device.
fn properties(id: DeviceId) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
        location: location(id),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

/// The device as a place of memory.
fn location(id: DeviceId) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: id.0 as c_int }
}

/// A handle as the driver takes it.
fn pointer(handle: usize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(handle)
}
