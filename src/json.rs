#![forbid(unsafe_code)]
//! JSON that is written without insisting on host memory.
//!
//! A page comes out whole or not at all: half a page is no JSON.

use std::fmt::{Arguments, Display, Formatter, Result as Written, Write};

use crate::error::{Error, Words};

/// A text in quotes.
pub(crate) struct Quoted<'a>(pub &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, to: &mut Formatter<'_>) -> Written {
        to.write_char('"')?;
        for letter in self.0.chars() {
            match letter {
                '"' | '\\' => write!(to, "\\{letter}")?,
                control if u32::from(control) < 0x20 => {
                    write!(to, "\\u{:04x}", u32::from(control))?
                }
                other => to.write_char(other)?,
            }
        }
        to.write_char('"')
    }
}

/// A number, or `null`.
pub(crate) struct Maybe(pub Option<u64>);

impl Display for Maybe {
    fn fmt(&self, to: &mut Formatter<'_>) -> Written {
        match self.0 {
            Some(number) => number.fmt(to),
            None => to.write_str("null"),
        }
    }
}

/// Text that grows, and notes whether host memory had room for all of it.
#[derive(Default)]
pub(crate) struct Page {
    words: Words,
    cut: bool,
}

impl Page {
    pub(crate) fn put(&mut self, text: Arguments<'_>) {
        self.cut |= self.words.write_fmt(text).is_err();
    }

    /// A comma, but for the first of several.
    pub(crate) fn next(&mut self, first: &mut bool) {
        if !std::mem::replace(first, false) {
            self.put(format_args!(","));
        }
    }

    /// The whole of it.
    pub(crate) fn whole(self) -> Result<String, Error> {
        if self.cut { Err(Error::HostOutOfMemory) } else { Ok(self.words.into_string()) }
    }
}

/// Writes to a page, as `write!` does.
macro_rules! put {
    ($page:expr, $($part:tt)*) => { $page.put(format_args!($($part)*)) };
}
pub(crate) use put;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_json() {
        assert_eq!(Quoted("a\"b\\c\n\u{1}é").to_string(), "\"a\\\"b\\\\c\\u000a\\u0001é\"");
        assert_eq!(
            (Maybe(Some(7)).to_string(), Maybe(None).to_string()),
            ("7".into(), "null".into())
        );
    }
}
