#![forbid(unsafe_code)]
//! The export: the counters for Prometheus, written to a file again and again by a thread that a program
//! or the environment asks for. `cuddy top` and exporters of a node read it.
//!
//! Who reads sees a whole file: each is written beside the one before, and takes its place.

use std::fs;
use std::time::Duration;

use super::metrics::prometheus;
use super::paths::{begin_as_named, with_process};
use crate::environment;
use crate::error::{Error, sentence};
use crate::mutants::mutant;
use crate::sync::{Lock, refuse_after_fork};

/// Rank of the lock around the export: nothing else is locked under it.
const RANK: u8 = 24;
/// Where a process is looked for by its number.
const BY_NUMBER: &str = "/dev/shm/cuddy-%p.prom";
/// How often the file is written where the environment asks for it.
const EVERY_MS: u64 = 500;

/// How often an export was begun or ended: a thread goes on while this is as when it began.
static TURN: Lock<u64, RANK> = Lock::new(0);

/// Writes the counters to `path` now, and every `every_ms` milliseconds from now on. `None` ends it.
pub fn export_metrics(path: Option<&str>, every_ms: u64) -> Result<(), Error> {
    refuse_after_fork()?;
    let Some(path) = path else {
        *TURN.lock() += 1;
        return Ok(());
    };
    if path.is_empty() || every_ms == 0 {
        let argument = if path.is_empty() { "path" } else { "every_ms" };
        let why = sentence!("it is empty or 0: name the file, and milliseconds between two writes");
        return Err(Error::InvalidArgument { argument, why });
    }
    let path = with_process(path)?;
    write(&path)?;
    let mine = {
        let mut turn = TURN.lock();
        *turn += 1;
        *turn
    };
    let every = Duration::from_millis(every_ms);
    let started = environment::spawn(c"cuddy-export", move || {
        loop {
            std::thread::sleep(every);
            if *TURN.lock() != mine && !mutant("export-never-ends") {
                return;
            }
            // A file that cannot be written this time may be the next.
            let _ = write(&path);
        }
    });
    match started {
        true => Ok(()),
        false => Err(Error::NotSupported(sentence!("no more threads can be started"))),
    }
}

fn write(path: &str) -> Result<(), Error> {
    let text = prometheus()?;
    let beside = sentence!("{path}.new");
    fs::write(&beside, text).and_then(|()| fs::rename(&beside, path)).map_err(|error| {
        Error::InvalidArgument {
            argument: "path",
            why: sentence!("{path} cannot be written: {error}"),
        }
    })
}

/// Begins what the environment asks for: `CUDDY_EXPORT` names the file; "on" is the one that `cuddy top`
/// finds by the process's number.
pub(super) fn from_environment() {
    begin_as_named(c"CUDDY_EXPORT", |path| {
        export_metrics(Some(if path == "on" { BY_NUMBER } else { path }), EVERY_MS)
    });
}
