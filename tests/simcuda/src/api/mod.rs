//! The exported functions, a chapter a file.
//!
//! Each is declared by `exports!`: symbol, the per-thread-stream symbol if there is one, C
//! parameters, body. The body gets the [`Call`](crate::call::Call) and answers `Ok` or an error
//! code; it reads C's enums as integers, checks its arguments in the order in which the driver
//! does, and writes results through `put`.
//!
//! # Safety
//! Every function here takes what C gives it: out pointers that are not null must be valid for a
//! write, as the CUDA driver API asks of its callers.
#![allow(non_snake_case, missing_docs)]
#![allow(clippy::missing_safety_doc, clippy::too_many_arguments)]

use crate::types::{Code, Outcome, code};

pub mod capture;
pub mod context;
pub mod copy;
pub mod device;
pub mod entry;
pub mod error_names;
pub mod event;
pub mod fill;
pub mod function;
pub mod graph;
pub mod graph_exec;
pub mod graph_memory;
pub mod host;
pub mod init;
pub mod ipc;
pub mod launch;
pub mod library;
pub mod managed;
pub mod memory;
pub mod module;
pub mod node;
pub mod node_params;
pub mod node_types;
pub mod occupancy;
pub mod peer;
pub mod pointer;
pub mod pool;
pub mod primary;
pub mod stream;
pub mod unimplemented;
pub mod vmm;

/// Declares exported functions; see the module.
macro_rules! exports {
    () => {};
    (
        fn $symbol:ident ($($arg:ident: $type:ty),* $(,)?) |$call:ident| $body:expr;
        $($rest:tt)*
    ) => {
        exports!(@one $symbol false ($($arg: $type),*) $call $body);
        exports!($($rest)*);
    };
    (
        fn $symbol:ident, fn $per_thread:ident
            ($($arg:ident: $type:ty),* $(,)?) |$call:ident| $body:expr;
        $($rest:tt)*
    ) => {
        exports!(@one $symbol false ($($arg: $type),*) $call $body);
        exports!(@one $per_thread true ($($arg: $type),*) $call $body);
        exports!($($rest)*);
    };
    (@one $symbol:ident $per_thread:literal ($($arg:ident: $type:ty),*) $call:ident $body:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($($arg: $type),*) -> i32 {
            static SITE: $crate::call::Site =
                $crate::call::Site::new(stringify!($symbol), $per_thread);
            $crate::call::enter(&SITE, |$call: &mut $crate::call::Call| $body)
        }
    };
}
pub(crate) use exports;

/// Writes a result through a caller's pointer; null is an invalid value.
pub(crate) fn put<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(code::INVALID_VALUE);
    }
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
    if from.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: not null, and the C caller vouches for the rest (see the module); `T` is made of
    // integers.
    Ok(unsafe { from.read_unaligned() })
}

/// Checks that an out pointer is there, before anything takes effect.
pub(crate) fn wanted<T>(to: *const T) -> Outcome {
    if to.is_null() { Err(code::INVALID_VALUE) } else { Ok(()) }
}

/// Fails with a code unless something holds.
pub(crate) fn require(holds: bool, code: Code) -> Outcome {
    if holds { Ok(()) } else { Err(code) }
}

/// Copies a text and its end into a caller's buffer, cut short if it must be.
pub(crate) fn put_text(to: *mut u8, room: i32, text: &str) -> Outcome {
    let room = usize::try_from(room).ok().filter(|r| *r > 0).ok_or(code::INVALID_VALUE)?;
    wanted(to)?;
    let length = text.len().min(room - 1);
    // SAFETY: the C caller vouches for `room` bytes at `to`; `length + 1 <= room`.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to, length);
        to.add(length).write(0);
    }
    Ok(())
}
