//! The driver's own functions, as the hooks use them: in the right context, and with plain answers.

use std::ffi::c_int;

use cuddy::mutants::mutant;

use crate::doors::Home;
use crate::report::{Door, timed};
use crate::table::Opaque;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: c_int = 2;
/// The code of a function that this driver does not have.
const NOT_FOUND: c_int = 500;
/// `CU_EVENT_DISABLE_TIMING`.
const WITHOUT_TIMING: u32 = 2;

fn pointer(handle: usize) -> Opaque {
    std::ptr::with_exposed_provenance_mut(handle)
}

fn good(code: c_int) -> Result<(), c_int> {
    if code == 0 { Ok(()) } else { Err(code) }
}

impl Home {
    /// The calling thread's current context, if it has one.
    pub fn current(&self) -> Option<usize> {
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { self.reals.cuCtxGetCurrent?(&mut context) };
        (code == 0 && !context.is_null()).then(|| context.expose_provenance())
    }

    /// The current context's device.
    pub fn device(&self) -> Option<i32> {
        let mut device = 0;
        // SAFETY: writes one int.
        (unsafe { self.reals.cuCtxGetDevice?(&mut device) } == 0).then_some(device)
    }

    /// Free and total memory of the current context's device.
    pub fn memory(&self) -> Option<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two size_t.
        let code = unsafe { self.reals.cuMemGetInfo_v2?(&mut free, &mut total) };
        (code == 0).then_some((free as u64, total as u64))
    }

    /// Does something with `context` current.
    pub fn inside<R>(&self, context: usize, act: impl FnOnce() -> R) -> Result<R, c_int> {
        self.inside_from(self.current().unwrap_or(0), context, act)
    }

    /// The same, where the current context is known.
    pub fn inside_from<R>(
        &self,
        current: usize,
        context: usize,
        act: impl FnOnce() -> R,
    ) -> Result<R, c_int> {
        if current == context {
            return Ok(act());
        }
        let (Some(push), Some(pop)) =
            (self.reals.cuCtxPushCurrent_v2, self.reals.cuCtxPopCurrent_v2)
        else {
            return Err(NOT_FOUND);
        };
        // SAFETY: a handle of the driver's, whose end we would have seen.
        good(unsafe { push(pointer(context)) })?;
        let answer = act();
        let mut popped = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let _ = unsafe { pop(&mut popped) };
        Ok(answer)
    }

    /// Gives a block back to the driver, in its own context.
    pub fn free(&self, context: usize, address: u64) -> Result<(), c_int> {
        let free = self.reals.cuMemFree_v2.ok_or(NOT_FOUND)?;
        let call = || {
            // SAFETY: a plain number; the driver refuses what it did not allocate.
            timed(self, Door::FreeCalls, Door::FreeTime, || good(unsafe { free(address) }))
        };
        self.inside(context, call)?
    }

    /// Waits until a context has nothing to do.
    pub fn synchronize(&self, context: usize) -> Result<(), c_int> {
        let wait = self.reals.cuCtxSynchronize.ok_or(NOT_FOUND)?;
        if mutant("preload-free-does-not-wait") {
            return Ok(());
        }
        let call = || {
            // SAFETY: takes no arguments.
            timed(self, Door::WaitCalls, Door::WaitTime, || good(unsafe { wait() }))
        };
        self.inside(context, call)?
    }

    /// Whether the driver can put a fence behind all work of a context.
    pub fn can_fence(&self) -> bool {
        self.version >= 12_050
            && self.reals.cuCtxRecordEvent.is_some()
            && self.reals.cuEventCreate.is_some()
            && self.reals.cuEventQuery.is_some()
    }

    /// A new event of the current context.
    pub fn new_event(&self) -> Option<usize> {
        let mut event = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { self.reals.cuEventCreate?(&mut event, WITHOUT_TIMING) };
        (code == 0).then(|| event.expose_provenance())
    }

    /// Records an event of ours behind all work of the current context, which this is.
    pub fn record(&self, context: usize, event: usize) -> bool {
        let Some(record) = self.reals.cuCtxRecordEvent else { return false };
        // SAFETY: the context is current and the event one of its own, made by `new_event`.
        unsafe { record(pointer(context), pointer(event)) == 0 }
    }

    /// Whether what an event of ours stands behind is over.
    pub fn is_over(&self, event: usize) -> bool {
        // SAFETY: an event made by `new_event`, in a context whose end we would have seen.
        self.reals.cuEventQuery.is_some_and(|query| unsafe { query(pointer(event)) } == 0)
            || mutant("preload-fence-not-asked")
    }

    /// Whether a stream is capturing; `None` if the driver does not say.
    pub fn is_capturing(&self, stream: usize) -> Option<bool> {
        let mut status = 0;
        // SAFETY: writes one int; the program has just used the stream.
        let code = unsafe { self.reals.cuStreamIsCapturing?(pointer(stream), &mut status) };
        (code == 0).then_some(status != 0)
    }

    /// The handle of a device's primary context, if that is active. What retains it stays the same.
    pub fn primary(&self, device: i32) -> Option<usize> {
        if !self.primary_is_active(device) {
            return None;
        }
        let release =
            self.reals.cuDevicePrimaryCtxRelease_v2.or(self.reals.cuDevicePrimaryCtxRelease)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one handle, and takes back what it retained.
        unsafe {
            if self.reals.cuDevicePrimaryCtxRetain?(&mut context, device) != 0 {
                return None;
            }
            release(device);
        }
        Some(context.expose_provenance())
    }

    /// Whether a device's primary context exists.
    pub fn primary_is_active(&self, device: i32) -> bool {
        let (mut flags, mut active) = (0, 0);
        let Some(ask) = self.reals.cuDevicePrimaryCtxGetState else { return false };
        // SAFETY: writes two ints.
        unsafe { ask(device, &mut flags, &mut active) == 0 && active != 0 }
    }
}
