//! Standard output, for a reader who may stop reading: `out!` and `outln!` in place of `print!`.
//!
//! A closed pipe ends the program quietly; any other failure is said in one line, with exit code 2.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

/// Writes text, or ends the program.
pub fn write(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) else { return };
    match error.kind() {
        ErrorKind::BrokenPipe => std::process::exit(0),
        _ => {
            eprintln!("cuddy: cannot write to standard output: {error}");
            std::process::exit(2)
        }
    }
}

/// `print!` that never panics.
#[macro_export]
macro_rules! out {
    ($($part:tt)*) => { $crate::out::write(format_args!($($part)*)) };
}

/// `println!` that never panics.
#[macro_export]
macro_rules! outln {
    () => { $crate::out::write(format_args!("\n")) };
    ($text:literal $($part:tt)*) => { $crate::out::write(format_args!("{}\n", format_args!($text $($part)*))) };
}
