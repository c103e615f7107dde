#![forbid(unsafe_code)]
//! The edge between Rust and C: a failure or a panic becomes a number here and goes no further.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::last_error;
use crate::error::{Error, cuddy_status};

/// Runs `body` and turns its outcome into the number that C sees.
///
/// A function inside each body, not a macro around it: cbindgen does not see through macros.
#[inline]
pub(super) fn guarded(body: impl FnOnce() -> Result<(), Error>) -> cuddy_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => cuddy_status::CUDDY_OK,
        Ok(Err(error)) => failed(&error),
        Err(panic) => panicked(&*panic),
    }
}

/// The same for a function that returns bytes: 0 after a failure.
#[inline]
pub(super) fn guarded_bytes(body: impl FnOnce() -> Result<u64, Error>) -> usize {
    let mut bytes = 0;
    guarded(|| {
        bytes = body()?;
        Ok(())
    });
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cold]
fn failed(error: &Error) -> cuddy_status {
    last_error::set(format_args!("{error}"));
    error.into()
}

#[cold]
fn panicked(panic: &(dyn Any + Send)) -> cuddy_status {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without words");
    last_error::set(format_args!("a bug in Cuddy, please report it: {text}"));
    cuddy_status::CUDDY_ERROR_INTERNAL
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::last_error::copied as last_error;

    #[test]
    fn a_panic_becomes_a_status_with_its_words() {
        assert_eq!(guarded(|| panic!("on {}", "purpose")), cuddy_status::CUDDY_ERROR_INTERNAL);
        assert_eq!(last_error(), "a bug in Cuddy, please report it: on purpose");
        assert_eq!(guarded_bytes(|| panic!("again")), 0);
        assert_eq!(last_error(), "a bug in Cuddy, please report it: again");
    }

    #[test]
    fn a_failure_leaves_its_sentence_and_a_success_does_not_touch_it() {
        assert_eq!(guarded(|| Err(Error::Shutdown)), cuddy_status::CUDDY_ERROR_SHUTDOWN);
        assert_eq!(guarded(|| Ok(())), cuddy_status::CUDDY_OK);
        assert_eq!(last_error(), Error::Shutdown.to_string());
        assert_eq!(guarded_bytes(|| Ok(7)), 7);
    }
}
