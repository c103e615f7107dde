//! **Entry points**: `cuGetProcAddress`, in both its forms, over the [`entries`].
//!
//! The first form says "no" with an error, the second with success, a null pointer and a status;
//! only the second refuses a version above the driver's. Both may be called before `cuInit`.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::entries::{self, Missing, Row};
use crate::types::Code;
use crate::types::code::{INVALID_VALUE, NOT_FOUND};

/// Flags: 0 = as the client was compiled, which for a driver is the same as 1 = legacy stream.
const PER_THREAD: u64 = 2;

/// `CUdriverProcAddressQueryResult`.
const FOUND: c_int = 0;
const NO_SUCH_NAME: c_int = 1;
const VERSION_TOO_LOW: c_int = 2;

/// A question, after its arguments were checked.
struct Question<'a> {
    name: &'a str,
    asked: c_int,
    per_thread: bool,
    driver: c_int,
}

impl<'a> Question<'a> {
    /// Reads the arguments that both forms have; `None` if they are not valid.
    ///
    /// # Safety
    /// `symbol` is null or a C string that lives for `'a`.
    unsafe fn read(symbol: *const c_char, asked: c_int, flags: u64) -> Option<Self> {
        if symbol.is_null() || flags > PER_THREAD {
            return None;
        }
        // SAFETY: not null, so by this function's contract it is a C string.
        let name = unsafe { CStr::from_ptr(symbol) };
        // Names are ASCII: one that is not UTF-8 is as unknown as the empty one.
        let name = name.to_str().unwrap_or_default();
        let driver = crate::driver_version();
        Some(Self { name, asked, per_thread: flags == PER_THREAD, driver })
    }

    fn answer(&self) -> Result<&'static Row, Missing> {
        entries::lookup(self.name, self.asked, self.per_thread, self.driver)
    }
}

fn pointer_or_null(answer: Result<&Row, Missing>) -> *mut c_void {
    answer.map_or(std::ptr::null_mut(), |row| row.address.pointer())
}

/// Writes the function that `symbol` stands for in CUDA `version` to `*function`; null and
/// `NOT_FOUND` if there is none.
///
/// # Safety
/// `symbol` is null or a C string; `function` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> Code {
    if function.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's promise is passed on.
    let question = unsafe { Question::read(symbol, version, flags) };
    let answer = question.map(|question| question.answer());
    // SAFETY: not null, so the caller lets us write it.
    unsafe { *function = pointer_or_null(answer.unwrap_or(Err(Missing::Name))) };
    match answer {
        None => INVALID_VALUE,
        Some(Err(_)) => NOT_FOUND,
        Some(Ok(_)) => 0,
    }
}

/// The same since CUDA 12: what is not there is a null pointer and, if asked for, a status, and no
/// error. A `version` above the driver's is `INVALID_VALUE`.
///
/// # Safety
/// `symbol` is null or a C string; `function` and `status` are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> Code {
    if function.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's promise is passed on.
    let question = unsafe { Question::read(symbol, version, flags) };
    let question = question.filter(|question| question.asked <= question.driver);
    let answer = question.map(|question| question.answer());
    // SAFETY: not null, so the caller lets us write it.
    unsafe { *function = pointer_or_null(answer.unwrap_or(Err(Missing::Name))) };
    let Some(answer) = answer else { return INVALID_VALUE };
    if !status.is_null() {
        let found = match answer {
            Ok(_) => FOUND,
            Err(Missing::Name) => NO_SUCH_NAME,
            Err(Missing::Version) => VERSION_TOO_LOW,
        };
        // SAFETY: not null, so the caller lets us write it.
        unsafe { *status = found };
    }
    0
}

/// Private tables between the driver and its own libraries: there are none. Never answer it: the
/// vendor's runtime asks here for proof that the driver is genuine, and this one is not.
///
/// # Safety
/// `table` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetExportTable(table: *mut *const c_void, _id: *const c_void) -> Code {
    if !table.is_null() {
        // SAFETY: not null, so the caller lets us write it.
        unsafe { *table = std::ptr::null() };
    }
    NOT_FOUND
}
