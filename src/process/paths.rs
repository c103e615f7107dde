#![forbid(unsafe_code)]
//! Paths of files that the program or the environment has Cuddy write; "%p" is the process's number.

use std::ffi::CStr;
use std::fmt::Write;

use crate::environment;
use crate::error::{Error, Words, sentence};

/// A path with the process's number for each "%p".
pub(super) fn with_process(path: &str) -> Result<String, Error> {
    let mut words = Words::default();
    for (place, part) in path.split("%p").enumerate() {
        let number = if place == 0 { sentence!("") } else { sentence!("{}", std::process::id()) };
        write!(words, "{number}{part}").map_err(|_| Error::HostOutOfMemory)?;
    }
    Ok(words.into_string())
}

/// Begins with the path that a variable of the environment holds; says so on stderr if that fails.
/// Does nothing where it is not set, or empty.
pub(super) fn begin_as_named(variable: &CStr, begin: impl FnOnce(&str) -> Result<(), Error>) {
    let begun = environment::with_variable(variable, |path| match std::str::from_utf8(path) {
        Ok("") => Ok(()),
        Ok(path) => begin(path),
        Err(_) => Err(Error::NotSupported(sentence!("it is no UTF-8"))),
    });
    if let Err(error) = begun {
        let variable = variable.to_string_lossy();
        environment::complain(&sentence!("cuddy: {variable}: left out: {error}\n"));
    }
}
