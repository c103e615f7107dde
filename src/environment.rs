//! What the process was given to start with: environment variables, a place for complaints, files, threads.
//!
//! But for threads, none takes a lock, allocates or panics, as the standard library's ways do.

use std::ffi::CStr;

/// Shows the value of an environment variable, empty if it is not set. A program with more rights than
/// its caller (setuid) sees none: its caller must not say which files it writes.
///
/// A program that changes its environment in another thread meanwhile breaks POSIX's rule for
/// `setenv`; that is its affair, as with every C library that reads a variable.
pub(crate) fn with_variable<R>(name: &CStr, look: impl FnOnce(&[u8]) -> R) -> R {
    // SAFETY: it takes a number.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return look(&[]);
    }
    // SAFETY: the name is a C string.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return look(&[]);
    }
    // SAFETY: getenv gives a C string of the environment, which stays as it is while `look` runs.
    look(unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// Writes a line to standard error in one piece. A program that has none does not want to know.
pub(crate) fn complain(line: &str) {
    // SAFETY: the bytes are readable; a descriptor that is closed is an error that changes nothing.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

/// Starts a thread that no signal of the program's is delivered to. `false` if there can be no more.
pub(crate) fn spawn(name: &'static CStr, body: impl FnOnce() + Send + 'static) -> bool {
    // SAFETY: a signal set is plain numbers, for which zero is a value.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
    // SAFETY: both sets are ours. The new thread begins with the mask that this one has then.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let name = name.to_string_lossy().into_owned();
    let spawned = std::thread::Builder::new().name(name).spawn(body);
    // SAFETY: the mask is the one that this thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    spawned.is_ok()
}

/// Appends text to a file in one piece, making the file if it is not there; `false` if it cannot be.
///
/// The file is opened anew each time: a descriptor that is kept can be closed by a program that does
/// not know it, and come back as something else's.
pub(crate) fn append(file: &CStr, text: &str) -> bool {
    let how = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOCTTY;
    // SAFETY: the name is a C string.
    let opened = unsafe { libc::open(file.as_ptr(), how, 0o644) };
    if opened < 0 {
        return false;
    }
    // SAFETY: the bytes are readable, the descriptor is ours.
    let written = unsafe { libc::write(opened, text.as_ptr().cast(), text.len()) };
    // SAFETY: the descriptor is ours and used no more.
    unsafe { libc::close(opened) };
    usize::try_from(written) == Ok(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_read_or_empty() {
        assert!(with_variable(c"PATH", |value| !value.is_empty()));
        assert!(with_variable(c"CUDDY_NO_SUCH_VARIABLE", <[u8]>::is_empty));
    }
}
