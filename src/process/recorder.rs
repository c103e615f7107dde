#![forbid(unsafe_code)]
//! The flight recorder: a snapshot, with the history that led to it, is written where a request finds
//! no memory.
//!
//! A program that asks again and again is not slowed down: a file is written at most every
//! [`BETWEEN_US`], over the one before.

use std::fmt::Write;
use std::fs;

use super::paths::{begin_as_named, with_process};
use super::watch;
use crate::error::{Error, Words, sentence};
use crate::mutants::mutant;
use crate::sync::{Lock, refuse_after_fork};

/// Rank of the lock around the recorder: nothing else is locked under it.
const RANK: u8 = 23;
/// The least time between two files, in microseconds.
const BETWEEN_US: u64 = 10_000_000;
/// How many events are kept where the environment asks for the recorder: 6.4 MB.
const EVENTS: usize = 100_000;

struct Recorder {
    path: String,
    /// When the last file was begun; 0 before the first.
    written_us: u64,
}

static RECORDER: Lock<Option<Recorder>, RANK> = Lock::new(None);

/// Keeps the last `events` events from now on, and writes a snapshot to `path` where a request finds no
/// memory. `None` ends both.
pub fn flight_recorder(path: Option<&str>, events: usize) -> Result<(), Error> {
    refuse_after_fork()?;
    let recorder = match path {
        None => None,
        Some("") => {
            let why = sentence!("it is empty: name the file to write");
            return Err(Error::InvalidArgument { argument: "path", why });
        }
        Some(path) => Some(Recorder { path: with_process(path)?, written_us: 0 }),
    };
    watch::record_history(if recorder.is_some() { events } else { 0 })?;
    *RECORDER.lock() = recorder;
    Ok(())
}

/// Begins what the environment asks for: `CUDDY_OOM_SNAPSHOT` names the file.
pub(super) fn from_environment() {
    begin_as_named(c"CUDDY_OOM_SNAPSHOT", |path| flight_recorder(Some(path), EVENTS));
}

/// A request has found no memory: writes the snapshot if that is wanted, and says so.
pub(super) fn write(words: &mut Words) {
    let now = watch::now_us();
    let path = {
        let mut recorder = RECORDER.lock();
        let Some(recorder) = &mut *recorder else { return };
        let again = recorder.written_us != 0
            && now.saturating_sub(recorder.written_us) < BETWEEN_US
            && !mutant("recorder-writes-again-and-again");
        if again {
            return;
        }
        recorder.written_us = now;
        sentence!("{}", recorder.path)
    };
    let written = watch::snapshot()
        .map_err(|error| sentence!("{error}"))
        .and_then(|text| fs::write(&path, text).map_err(|error| sentence!("{error}")));
    // What host memory has no room for is cut.
    let _ = match written {
        Ok(()) => write!(
            words,
            " What led to this is in {path}: `cuddy report {path}` shows it, `cuddy replay --fit {path}` says \
             what would have fitted."
        ),
        Err(why) => write!(words, " The snapshot could not be written to {path}: {why}."),
    };
}
