//! Captures: what the driver says of them. None of these calls disturbs one.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::table::Entry;
use super::{Inside, StreamHandle, pointer};
use crate::error::DriverError;

/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: c_int = 801;
/// `CU_STREAM_CAPTURE_STATUS_NONE`.
const NONE: c_int = 0;
/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`.
const ACTIVE: c_int = 1;
/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`: the only way there is.
const WITHOUT_SYNCHRONISATION: c_uint = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: the caller's reference becomes the graph's.
const MOVE: c_uint = 1;

/// A capture's number, and the flag that is raised when its graph is gone.
type Watched = (u64, Arc<AtomicBool>);

/// A capture that is under way.
struct Capture {
    number: u64,
    graph: *mut c_void,
}

/// The destructor of the objects that graphs hold for us. It runs on a thread of the driver's, which
/// may not call the driver.
unsafe extern "C" fn is_gone(flag: *mut c_void) {
    // SAFETY: the driver calls this once for each object, with what it was made with: a reference
    // that was given away for this.
    let flag = unsafe { Arc::from_raw(flag.cast_const().cast::<AtomicBool>()) };
    flag.store(true, Ordering::Release);
}

impl Inside<'_> {
    /// The driver's number of the capture that the stream is in, if it is in one.
    ///
    /// The handle must be valid: built-in, held, or passed to Cuddy in this very call.
    pub(crate) fn capture_of(&self, stream: StreamHandle) -> Result<Option<u64>, DriverError> {
        Ok(self.capture(stream)?.map(|capture| capture.number))
    }

    fn capture(&self, stream: StreamHandle) -> Result<Option<Capture>, DriverError> {
        let Some(function) = self.driver.table.stream_capture else { return Ok(None) };
        let (mut status, mut number, mut graph) = (0, 0, null_mut());
        // SAFETY: writes one int, one u64 and one handle that outlive the call; the outputs that are
        // NULL are left out; the stream is valid by the rule.
        let asked = self.call(Entry::stream_capture, Some(function), |f| unsafe {
            f(pointer(stream.0), &mut status, &mut number, &mut graph, null_mut(), null_mut())
        });
        match asked {
            Ok(()) => {}
            // A driver that cannot say has no captures.
            Err(DriverError { code: NOT_SUPPORTED, .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
        // An invalidated capture (2) has no number that is still good.
        Ok((status == ACTIVE).then_some(Capture { number, graph }))
    }

    /// The number of the capture that the stream is in, and a flag that the driver raises when the
    /// captured graph and all that was made of it is gone, and its launches are over.
    ///
    /// The handle must be valid, as above.
    pub(crate) fn watch_capture(
        &self,
        stream: StreamHandle,
    ) -> Result<Option<Watched>, DriverError> {
        let Some(Capture { number, graph }) = self.capture(stream)? else { return Ok(None) };
        let gone = Arc::new(AtomicBool::new(false));
        let table = &self.driver.table;
        let theirs = Arc::into_raw(Arc::clone(&gone));
        let mut object = null_mut();
        // SAFETY: writes one handle that outlives the call. The destructor takes the reference that
        // `theirs` is, once.
        let made = self.call(Entry::user_object_create, table.user_object_create, |f| unsafe {
            f(&mut object, theirs.cast_mut().cast(), is_gone, 1, WITHOUT_SYNCHRONISATION)
        });
        if made.is_err() {
            // SAFETY: there is no object that could take it.
            drop(unsafe { Arc::from_raw(theirs) });
        }
        made?;
        // SAFETY: the graph is being captured, and the object was just made; its one reference
        // becomes the graph's.
        let held = self.call(Entry::graph_retain_object, table.graph_retain_object, |f| unsafe {
            f(graph, object, 1, MOVE)
        });
        if held.is_err() {
            // SAFETY: the reference is ours still. If the driver fails here too, nobody minds the
            // object.
            let _ = self.call(Entry::user_object_release, table.user_object_release, |f| unsafe {
                f(object, 1)
            });
        }
        held.map(|()| Some((number, gone)))
    }

    /// Whether the driver says that the stream is capturing.
    ///
    /// The handle must be valid, as above.
    pub(crate) fn is_capturing(&self, stream: StreamHandle) -> bool {
        self.capture_status(stream).is_ok_and(|status| status == ACTIVE)
    }

    /// Whether the stream may be capturing: also if the driver will not say.
    ///
    /// The handle must be valid, as above.
    pub(crate) fn may_be_capturing(&self, stream: StreamHandle) -> bool {
        let captures_exist = self.driver.table.stream_is_capturing.is_some();
        captures_exist && self.capture_status(stream) != Ok(NONE)
    }

    fn capture_status(&self, stream: StreamHandle) -> Result<c_int, DriverError> {
        let mut status = NONE;
        let entry = self.driver.table.stream_is_capturing;
        // SAFETY: writes one int that outlives the call; the stream is valid by the rule.
        self.call(Entry::stream_is_capturing, entry, |f| unsafe {
            f(pointer(stream.0), &mut status)
        })
        .map(|()| status)
    }
}
