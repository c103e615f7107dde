//! The exported functions, a chapter a file.
//!
//! Each is declared by `exports!`: what it needs (`plain` nothing, `driver` the driver, `context` a
//! context), its name and that of its per-thread-stream form if there is one, C parameters, body.
//! The library exports it as `simrt_<name>`; the build script of each runtime gives it the names
//! that it has there.
//!
//! # Safety
//! Every function here takes what C gives it: pointers that are not null must be valid for what the
//! CUDA runtime API does with them.
#![allow(non_snake_case, missing_docs)]
#![allow(clippy::missing_safety_doc, clippy::too_many_arguments)]

use crate::types::{Code, Outcome, code};

pub mod capture;
pub mod copy;
pub mod device;
pub mod entry;
pub mod error;
pub mod event;
pub mod fill;
pub mod graph;
pub mod host;
pub mod ipc;
pub mod launch;
pub mod managed;
pub mod memory;
pub mod pool;
pub mod properties;
pub mod register;
pub mod stream;
pub mod unimplemented;

/// Stream 0 of a function's per-thread form.
const STREAM_PER_THREAD: u64 = 2;

/// What a stream handle stands for in a function, by its form.
pub(crate) const fn stream_of<const PER_THREAD: bool>(stream: u64) -> u64 {
    if PER_THREAD && stream == 0 { STREAM_PER_THREAD } else { stream }
}

/// Declares exported functions; see the module. In a function with two forms, the body gets as
/// `lane` what turns a stream into the one that is meant, and as `own` whether it is the per-thread
/// form.
macro_rules! exports {
    () => {};
    (
        $level:ident fn $name:ident ($($arg:ident: $type:ty),* $(,)?) |$d:ident| $body:expr;
        $($rest:tt)*
    ) => {
        #[unsafe(export_name = concat!("simrt_", stringify!($name)))]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> i32 {
            $crate::call::$level(|$d| $body)
        }
        exports!($($rest)*);
    };
    (
        $level:ident fn $name:ident, fn $per_thread:ident ($($arg:ident: $type:ty),* $(,)?)
            |$d:ident, $lane:ident| $body:expr;
        $($rest:tt)*
    ) => {
        exports!(@form $level $name false ($($arg: $type),*) $d $lane $body);
        exports!(@form $level $per_thread true ($($arg: $type),*) $d $lane $body);
        exports!($($rest)*);
    };
    (
        @form $level:ident $name:ident $own:literal ($($arg:ident: $type:ty),*)
            $d:ident $lane:ident $body:expr
    ) => {
        #[unsafe(export_name = concat!("simrt_", stringify!($name)))]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> i32 {
            let $lane = $crate::api::Lane::<$own>;
            $crate::call::$level(|$d| $body)
        }
    };
}
pub(crate) use exports;

/// The stream convention of a function's form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane<const PER_THREAD: bool>;

impl<const PER_THREAD: bool> Lane<PER_THREAD> {
    /// The stream that a handle stands for.
    pub(crate) fn of(self, stream: u64) -> u64 {
        stream_of::<PER_THREAD>(stream)
    }

    /// Whether stream 0 is the calling thread's own.
    pub(crate) fn per_thread(self) -> bool {
        PER_THREAD
    }
}

/// Writes a result through a caller's pointer; null is an invalid value.
pub(crate) fn put<T>(to: *mut T, value: T) -> Outcome {
    wanted(to)?;
    // SAFETY: not null, and the C caller vouches for the rest (see the module); it need not be
    // aligned.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// The same where null means that the caller does not want it.
pub(crate) fn put_if<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() { Ok(()) } else { put(to, value) }
}

/// Reads what a caller's pointer leads to; null is an invalid value.
pub(crate) fn get<T: Copy>(from: *const T) -> Result<T, Code> {
    wanted(from)?;
    // SAFETY: not null, and the C caller vouches for the rest (see the module).
    Ok(unsafe { from.read_unaligned() })
}

/// Checks that a pointer is there, before anything takes effect.
pub(crate) fn wanted<T>(to: *const T) -> Outcome {
    require(!to.is_null(), code::INVALID_VALUE)
}

/// Fails with a code unless something holds.
pub(crate) fn require(holds: bool, code: Code) -> Outcome {
    if holds { Ok(()) } else { Err(code) }
}
