//! What needs a context: callable only while one is current.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::{CUmemAccess_flags, CUmemAccessDesc};

use super::table::Entry;
use super::{
    Context, Driver, Event, Memory, NOT_READY, StreamHandle, location, pointer, properties,
};
use crate::error::DriverError;
use crate::mutants::mutant;
use crate::types::DeviceId;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: calls on this thread disturb no capture of other threads.
const RELAXED: c_int = 2;
/// `CU_EVENT_DISABLE_TIMING`.
const WITHOUT_TIMING: u32 = 2;

/// What a device may do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    None,
    ReadWrite,
}

/// A context is current on this thread, and the thread's capture mode relaxed, while this lives.
pub(crate) struct Inside<'d> {
    pub(super) driver: &'d Driver,
    context: Context,
    device: DeviceId,
    calls: &'d AtomicU64,
    pushed: bool,
    mode: Option<c_int>,
}

impl Driver {
    /// Makes `context`, one of `device`, current until the answer is dropped.
    ///
    /// Calls made through the answer are added to `calls` too.
    pub(crate) fn enter<'d>(
        &'d self,
        context: Context,
        device: DeviceId,
        calls: &'d AtomicU64,
    ) -> Result<Inside<'d>, DriverError> {
        let mut inside = Inside { driver: self, context, device, calls, pushed: false, mode: None };
        inside.note();
        if self.current_context()? != Some(context) {
            inside.note();
            // SAFETY: `context` is a context that the driver gave; it checks the handle.
            let answer = self.call(Entry::context_push, self.table.context_push, |f| unsafe {
                f(pointer(context.0))
            });
            // A call that failed may still have had its effect; then it is undone on return.
            inside.pushed = answer.is_ok() || inside.is_current();
            answer?;
        }
        if self.table.capture_mode.is_some() && !mutant("capture-calls-are-not-relaxed") {
            inside.mode = Some(inside.exchange_mode(RELAXED)?);
        }
        Ok(inside)
    }
}

impl Drop for Inside<'_> {
    /// Puts back what was before. The driver may fail here too, so each step is made sure of.
    fn drop(&mut self) {
        if let Some(mode) = self.mode.take()
            && self.exchange_mode(mode).is_err()
        {
            let _ = self.exchange_mode(mode);
        }
        if self.pushed && self.pop().is_err() && self.is_current() {
            let _ = self.pop();
        }
    }
}

impl Inside<'_> {
    /// The driver, for what needs no context.
    pub(crate) fn driver(&self) -> &Driver {
        self.driver
    }

    fn note(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn call<F: Copy>(
        &self,
        entry: Entry,
        function: Option<F>,
        invoke: impl FnOnce(F) -> c_int,
    ) -> Result<(), DriverError> {
        self.note();
        self.driver.call(entry, function, invoke)
    }

    /// Sets this thread's capture mode; the answer is the one before.
    fn exchange_mode(&self, mode: c_int) -> Result<c_int, DriverError> {
        let mut mode = mode;
        // SAFETY: reads and writes one int that outlives the call.
        self.call(Entry::capture_mode, self.driver.table.capture_mode, |f| unsafe {
            f(&mut mode)
        })?;
        Ok(mode)
    }

    fn pop(&self) -> Result<(), DriverError> {
        let mut popped = std::ptr::null_mut();
        // SAFETY: writes one handle that outlives the call.
        self.call(Entry::context_pop, self.driver.table.context_pop, |f| unsafe { f(&mut popped) })
    }

    fn is_current(&self) -> bool {
        matches!(self.driver.current_context(), Ok(Some(context)) if context == self.context)
    }

    /// The context's id; see [`Driver::context_id`].
    pub(crate) fn context_id(&self) -> Result<Option<u64>, DriverError> {
        self.note();
        self.driver.context_id(self.context)
    }

    /// Waits until all work of the context is over.
    pub(crate) fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: takes no arguments.
        self.call(Entry::context_synchronize, self.driver.table.context_synchronize, |f| unsafe {
            f()
        })
    }

    /// A new stream of the current context, which the legacy default stream does not wait for.
    pub(crate) fn stream_create(&self) -> Result<StreamHandle, DriverError> {
        const NON_BLOCKING: u32 = 1;
        let mut stream = std::ptr::null_mut();
        // SAFETY: writes one handle that outlives the call.
        self.call(Entry::stream_create, self.driver.table.stream_create, |f| unsafe {
            f(&mut stream, NON_BLOCKING)
        })?;
        Ok(StreamHandle(stream.expose_provenance()))
    }

    /// A new event, without timing, of the current context.
    pub(crate) fn event_create(&self) -> Result<Event, DriverError> {
        let mut event = std::ptr::null_mut();
        // SAFETY: writes one handle that outlives the call.
        self.call(Entry::event_create, self.driver.table.event_create, |f| unsafe {
            f(&mut event, WITHOUT_TIMING)
        })?;
        Ok(Event(event.expose_provenance()))
    }

    /// Records the event behind all work that the stream has been given.
    ///
    /// The handle must be valid: built-in, held, or passed to Cuddy in this very call.
    pub(crate) fn event_record(
        &self,
        event: Event,
        stream: StreamHandle,
    ) -> Result<(), DriverError> {
        // SAFETY: `Event` values come from event_create alone; the stream is valid by the rule.
        self.call(Entry::event_record, self.driver.table.event_record, |f| unsafe {
            f(pointer(event.0), pointer(stream.0))
        })
    }

    /// Records the event behind all work of the current context.
    pub(crate) fn event_record_context(&self, event: Event) -> Result<(), DriverError> {
        // SAFETY: the context is current, and `Event` values come from event_create alone.
        self.call(Entry::context_record, self.driver.table.context_record, |f| unsafe {
            f(pointer(self.context.0), pointer(event.0))
        })
    }

    /// Makes the stream's later work wait for what the event stands behind; the host goes on.
    ///
    /// The handle must be valid, as for [`Inside::event_record`]; neither may be of a capture.
    pub(crate) fn stream_wait(
        &self,
        stream: StreamHandle,
        event: Event,
    ) -> Result<(), DriverError> {
        self.wait_for(stream, event.0)
    }

    /// The same for an event of the caller's.
    pub(crate) fn stream_wait_foreign(
        &self,
        stream: StreamHandle,
        event: usize,
    ) -> Result<(), DriverError> {
        self.wait_for(stream, event)
    }

    fn wait_for(&self, stream: StreamHandle, event: usize) -> Result<(), DriverError> {
        // SAFETY: the stream and the event are valid by the rule, or by the caller's promise.
        self.call(Entry::stream_wait, self.driver.table.stream_wait, |f| unsafe {
            f(pointer(stream.0), pointer(event), 0)
        })
    }

    /// Whether what an event of the caller's stands behind is over.
    pub(crate) fn foreign_event_is_done(&self, event: usize) -> Result<bool, DriverError> {
        self.event_is_done(Event(event))
    }

    /// Whether what the event stands behind is over.
    pub(crate) fn event_is_done(&self, event: Event) -> Result<bool, DriverError> {
        // SAFETY: `Event` values come from event_create alone.
        let answer = self.call(Entry::event_query, self.driver.table.event_query, |f| unsafe {
            f(pointer(event.0))
        });
        match answer {
            Ok(()) => Ok(true),
            Err(DriverError { code: NOT_READY, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits until what the event stands behind is over.
    pub(crate) fn event_synchronize(&self, event: Event) -> Result<(), DriverError> {
        // SAFETY: `Event` values come from event_create alone.
        self.call(Entry::event_synchronize, self.driver.table.event_synchronize, |f| unsafe {
            f(pointer(event.0))
        })
    }

    /// Destroys the event; work that it stands behind goes on.
    pub(crate) fn event_destroy(&self, event: Event) -> Result<(), DriverError> {
        // SAFETY: `Event` values come from event_create alone, and the caller gives this one up.
        self.call(Entry::event_destroy, self.driver.table.event_destroy, |f| unsafe {
            f(pointer(event.0))
        })
    }

    /// The device's free and total memory, in bytes.
    pub(crate) fn memory_info(&self) -> Result<(u64, u64), DriverError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two size_t that outlive the call.
        self.call(Entry::memory_info, self.driver.table.memory_info, |f| unsafe {
            f(&mut free, &mut total)
        })?;
        Ok((free as u64, total as u64))
    }

    /// Device memory with an address, the old way.
    pub(crate) fn memory_alloc(&self, bytes: u64) -> Result<u64, DriverError> {
        let mut address = 0;
        // SAFETY: writes one address that outlives the call.
        self.call(Entry::memory_alloc, self.driver.table.memory_alloc, |f| unsafe {
            f(&mut address, bytes as usize)
        })?;
        Ok(address)
    }

    /// Gives memory of [`Inside::memory_alloc`] back.
    pub(crate) fn memory_free(&self, address: u64) -> Result<(), DriverError> {
        // SAFETY: a plain number; the driver refuses what it did not allocate.
        self.call(Entry::memory_free, self.driver.table.memory_free, |f| unsafe { f(address) })
    }

    /// Page-locked host memory; `flags` are those of `cuMemHostAlloc`. Its device address is the same.
    pub(crate) fn host_alloc(&self, bytes: u64, flags: u32) -> Result<u64, DriverError> {
        let mut address = std::ptr::null_mut();
        // SAFETY: writes one pointer that outlives the call.
        self.call(Entry::host_alloc, self.driver.table.host_alloc, |f| unsafe {
            f(&mut address, bytes as usize, flags)
        })?;
        Ok(address.expose_provenance() as u64)
    }

    /// Gives memory of [`Inside::host_alloc`] back. The driver may wait for work that uses it.
    pub(crate) fn host_free(&self, address: u64) -> Result<(), DriverError> {
        // SAFETY: the driver refuses what it did not allocate; nobody uses it any more, by the promise
        // of who freed it.
        self.call(Entry::host_free, self.driver.table.host_free, |f| unsafe {
            f(pointer(address as usize))
        })
    }

    /// Physical memory of the device, without an address.
    pub(crate) fn handle_create(&self, bytes: u64) -> Result<Memory, DriverError> {
        let properties = properties(self.device);
        let mut memory = 0;
        // SAFETY: reads one structure and writes one handle, both of which outlive the call.
        self.call(Entry::handle_create, self.driver.table.handle_create, |f| unsafe {
            f(&mut memory, bytes as usize, &properties, 0)
        })?;
        Ok(Memory(memory))
    }

    /// Gives physical memory back; it is gone once nothing maps it.
    pub(crate) fn handle_release(&self, memory: Memory) -> Result<(), DriverError> {
        // SAFETY: `Memory` values come from handle_create alone, and the caller gives this one up.
        self.call(Entry::handle_release, self.driver.table.handle_release, |f| unsafe {
            f(memory.0)
        })
    }

    /// Puts all `bytes` of the memory at a reserved address. Not usable before [`Inside::allow`].
    pub(crate) fn map(&self, address: u64, bytes: u64, memory: Memory) -> Result<(), DriverError> {
        // SAFETY: plain numbers, and a handle of handle_create.
        self.call(Entry::map, self.driver.table.map, |f| unsafe {
            f(address, bytes as usize, 0, memory.0, 0)
        })
    }

    /// Takes the memory of one mapping, or of several whole ones, away from its address.
    pub(crate) fn unmap(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        // SAFETY: plain numbers; the driver refuses a range that is not mapped.
        self.call(Entry::unmap, self.driver.table.unmap, |f| unsafe { f(address, bytes as usize) })
    }

    /// Lets the device read and write a mapped range.
    pub(crate) fn allow(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        self.set_access(address, bytes, self.device, Access::ReadWrite)
    }

    /// Sets what a device may do with a mapped range; the rights of others stay as they are.
    pub(crate) fn set_access(
        &self,
        address: u64,
        bytes: u64,
        device: DeviceId,
        access: Access,
    ) -> Result<(), DriverError> {
        let flags = match access {
            Access::None => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
            Access::ReadWrite => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let access = CUmemAccessDesc { location: location(device), flags };
        // SAFETY: reads one structure that outlives the call; the rest is plain numbers.
        self.call(Entry::set_access, self.driver.table.set_access, |f| unsafe {
            f(address, bytes as usize, &access, 1)
        })
    }
}
