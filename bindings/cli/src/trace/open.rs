//! From a file to a trace: the format is known by its first bytes, whatever the file is called.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::text::unreadable;
use super::{Trace, TraceError, cuddy, gputrace, rmm, snapshot};

/// Largest snapshot that is read, in bytes after decompression: it is held in memory whole.
const LARGEST_SNAPSHOT: u64 = 4 << 30;

/// How a trace can be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text format gputrace 1.
    GpuTrace,
    /// The CSV log of RMM's logging adaptor.
    Rmm,
    /// The pickle that PyTorch's `_dump_snapshot` writes.
    Snapshot,
    /// The JSON that Cuddy's snapshots are.
    Cuddy,
}

/// Reads the trace in a file of any known format, gzip-compressed or not.
pub fn open(path: &Path) -> Result<Trace, TraceError> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let file = File::open(path)
        .map_err(|error| TraceError::whole(format!("cannot be opened: {error}")))?;
    read(BufReader::with_capacity(1 << 16, file), name.strip_suffix(".gz").unwrap_or(&name))
}

/// Reads a trace from bytes of any known format, gzip-compressed or not.
///
/// `name` is what the trace is called unless it names itself.
pub fn read(from: impl BufRead, name: &str) -> Result<Trace, TraceError> {
    let (first, from) = peek(from)?;
    if first.starts_with(&[0x1f, 0x8b]) {
        return read_plain(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(from)), name);
    }
    read_plain(from, name)
}

fn read_plain(from: impl BufRead, name: &str) -> Result<Trace, TraceError> {
    let (first, from) = peek(from)?;
    match sniff(&first)? {
        Format::GpuTrace => gputrace::read(from, name),
        Format::Rmm => rmm::read(from, name),
        Format::Snapshot => {
            snapshot::read(&whole(from)?, name.strip_suffix(".pickle").unwrap_or(name))
        }
        Format::Cuddy => cuddy::read(&whole(from)?, name.strip_suffix(".json").unwrap_or(name)),
    }
}

/// All bytes of a snapshot.
fn whole(from: impl BufRead) -> Result<Vec<u8>, TraceError> {
    let mut whole = Vec::new();
    let outcome = from.take(LARGEST_SNAPSHOT + 1).read_to_end(&mut whole);
    outcome.map_err(|error| TraceError::whole(unreadable(&error)))?;
    match whole.len() as u64 {
        ..=LARGEST_SNAPSHOT => Ok(whole),
        _ => Err(TraceError::whole("the snapshot is larger than 4 GiB")),
    }
}

/// The first bytes (fewer only if there are no more), and a reader of all bytes.
fn peek(mut from: impl BufRead) -> Result<(Vec<u8>, impl BufRead), TraceError> {
    let mut first = Vec::with_capacity(32);
    let outcome = from.by_ref().take(32).read_to_end(&mut first);
    outcome.map_err(|error| TraceError::whole(unreadable(&error)))?;
    Ok((first.clone(), Cursor::new(first).chain(from)))
}

/// The format that these first bytes begin.
fn sniff(first: &[u8]) -> Result<Format, TraceError> {
    let begins =
        |text: &[u8]| first.get(..text.len()).is_some_and(|it| it.eq_ignore_ascii_case(text));
    if first.is_empty() {
        return Err(TraceError::whole("the file is empty"));
    }
    if first.starts_with(gputrace::MAGIC) {
        return Ok(Format::GpuTrace);
    }
    if begins(rmm::MAGIC) {
        return Ok(Format::Rmm);
    }
    if first[0] == 0x80 {
        return Ok(Format::Snapshot);
    }
    if first.starts_with(cuddy::MAGIC) {
        return Ok(Format::Cuddy);
    }
    Err(TraceError::whole(
        "not a trace: expected gputrace 1 (`# gputrace 1`), an RMM log (`Thread,Time,Action,...`), \
         a PyTorch memory snapshot (a pickle of protocol 2 to 5) or one of Cuddy's (JSON)",
    ))
}
