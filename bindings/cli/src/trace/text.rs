//! Lines of text, each with its number and of bounded length.

use std::io::BufRead;

use super::TraceError;

/// Longest line that is read, in bytes; real ones are below 100.
const LONGEST_LINE: u64 = 64 << 10;

/// Reads lines one by one into a buffer of its own.
pub struct Lines<R> {
    from: R,
    buffer: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// Begins at line 1.
    pub fn new(from: R) -> Self {
        Self { from, buffer: Vec::new(), number: 0 }
    }

    /// The next line without its end, and its number; `None` at the end of the text.
    pub fn next(&mut self) -> Result<Option<(u32, &str)>, TraceError> {
        self.buffer.clear();
        self.number += 1;
        let number = self.number;
        let mut limited = std::io::Read::take(&mut self.from, LONGEST_LINE);
        let read = limited.read_until(b'\n', &mut self.buffer);
        let read = read.map_err(|error| TraceError::line(number, unreadable(&error)))?;
        if read == 0 {
            return Ok(None);
        }
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        } else if read as u64 == LONGEST_LINE {
            return Err(TraceError::line(number, format!("longer than {LONGEST_LINE} bytes")));
        }
        let line = std::str::from_utf8(&self.buffer)
            .map_err(|_| TraceError::line(number, "not text: a byte is not UTF-8"))?;
        let number = u32::try_from(number)
            .map_err(|_| TraceError::line(number, "more lines than a trace may have"))?;
        Ok(Some((number, line.trim_end_matches('\r'))))
    }
}

/// Says what kept a file from being read; a truncated gzip stream says so.
pub fn unreadable(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            "the compressed file ends too early: it is truncated".to_owned()
        }
        std::io::ErrorKind::InvalidInput | std::io::ErrorKind::InvalidData => {
            format!("the compressed file is damaged ({error})")
        }
        _ => format!("cannot be read: {error}"),
    }
}

/// Splits off the next word, words being parted by single spaces.
pub fn word<'a>(rest: &mut &'a str) -> Option<&'a str> {
    if rest.is_empty() {
        return None;
    }
    let (word, tail) = rest.split_once(' ').unwrap_or((rest, ""));
    *rest = tail;
    Some(word)
}
