//! Reads the CSV log of RMM's logging adaptor.
//!
//! The first line names the columns: `Thread,Time,Action,Pointer,Size,Stream`. A block's name is
//! its pointer; `allocate` begins it, `free` ends it, `allocate failure` made none.

use std::io::BufRead;

use super::text::Lines;
use super::{Builder, Trace, TraceError};

/// How the first line begins.
pub const MAGIC: &[u8] = b"Thread,Time,Action,";

struct Columns {
    action: usize,
    pointer: usize,
    size: usize,
    stream: usize,
}

impl Columns {
    fn find(header: &str) -> Result<Self, String> {
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let find = |wanted: &str| {
            names
                .iter()
                .position(|name| name.eq_ignore_ascii_case(wanted))
                .ok_or_else(|| format!("no column `{wanted}` in the first line"))
        };
        Ok(Self {
            action: find("Action")?,
            pointer: find("Pointer")?,
            size: find("Size")?,
            stream: find("Stream")?,
        })
    }
}

/// Reads a whole log.
pub fn read(from: impl BufRead, file_name: &str) -> Result<Trace, TraceError> {
    let mut lines = Lines::new(from);
    let mut builder = Builder::new(file_name);
    let columns = match lines.next()? {
        Some((_, header)) => Columns::find(header).map_err(|why| TraceError::line(1, why))?,
        None => return Err(TraceError::whole("the file is empty")),
    };
    let mut failures = 0u64;
    while let Some((number, line)) = lines.next()? {
        if !line.is_empty() {
            row(number, line, &columns, &mut builder, &mut failures)
                .map_err(|reason| TraceError::line(number.into(), reason))?;
        }
    }
    if failures > 0 {
        builder.note(format!("{failures} failed allocations of the logged program are left out"));
    }
    Ok(builder.finish())
}

fn row(
    number: u32,
    line: &str,
    columns: &Columns,
    builder: &mut Builder,
    failures: &mut u64,
) -> Result<(), String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let field = |index: usize, name: &str| {
        fields.get(index).copied().ok_or_else(|| format!("no field for column `{name}`"))
    };
    let action = field(columns.action, "Action")?;
    if action == "allocate failure" {
        *failures += 1;
        return Ok(());
    }
    let pointer = number_of(field(columns.pointer, "Pointer")?, "Pointer")?;
    let stream = number_of(field(columns.stream, "Stream")?, "Stream")?;
    // cudaStreamLegacy is the default stream under its other name.
    let stream = if stream == 1 { 0 } else { stream };
    let size = number_of(field(columns.size, "Size")?, "Size")?;
    match action {
        // A request of zero bytes gets a null pointer, and its free does nothing.
        "allocate" | "free" | "deallocate" if size == 0 => Ok(()),
        "allocate" => builder.alloc(number, pointer, size, stream),
        "free" | "deallocate" => builder.free(number, pointer, stream),
        other => Err(format!("unknown action `{other}`: expected `allocate` or `free`")),
    }
}

/// A number in decimal, or in hexadecimal after `0x`; `(nil)` is how C prints a null pointer.
fn number_of(text: &str, what: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        _ if text == "(nil)" => return Ok(0),
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{what} is not a number: `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::super::Event;
    use super::*;

    const LOG: &str = "Thread,Time,Action,Pointer,Size,Stream\n\
        140,12:00:00:000001,allocate,0x7f0000000000,1024,0x0\n\
        140,12:00:00:000002,allocate,0x7f0000000400,4096,0x55d0\n\
        140,12:00:00:000003,allocate failure,(nil),99999999999,0x0\n\
        140,12:00:00:000004,allocate,(nil),0,0x0\n\
        140,12:00:00:000005,free,0x7f0000000000,1024,0x1\n";

    #[test]
    fn a_log_is_read() {
        let trace = read(LOG.as_bytes(), "log").expect("is well formed");
        assert_eq!(trace.events.len(), 3);
        assert_eq!(trace.events[1], Event::Alloc { slot: 1, stream: 1, bytes: 4096 });
        assert_eq!(trace.events[2], Event::Free { slot: 0, stream: 0 });
        assert_eq!(trace.lines, [2, 3, 6]);
        assert_eq!(trace.notes.len(), 1);
    }

    #[test]
    fn bad_rows_are_named() {
        for (row, reason) in [
            ("1,t,allocate,zz,1,0x0", "Pointer is not a number"),
            ("1,t,allocate,0x1", "no field for column"),
            ("1,t,free,0x1,8,0x0", "not live"),
            ("1,t,resize,0x1,8,0x0", "unknown action"),
        ] {
            let log = format!("Thread,Time,Action,Pointer,Size,Stream\n{row}\n");
            let error = read(log.as_bytes(), "log").expect_err(row);
            assert_eq!(error.place, "line 2");
            assert!(error.reason.contains(reason), "{row}: {error}");
        }
        let error = read(&b"Thread,Time,Action,Pointer,Size\n"[..], "log").expect_err("a column");
        assert!(error.reason.contains("Stream"));
    }
}
