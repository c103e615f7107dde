#![forbid(unsafe_code)]
//! The log: lines in a file about devices that are first used, memory got from the driver and given
//! back, and requests that failed.
//!
//! A line is one write at the file's end, so that processes and threads may share a file. None is
//! written on the way of a cache hit, and none under a lock.

use std::ffi::CString;
use std::fmt::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::configuration::in_force;
use super::facts::DeviceFacts;
use crate::environment;
use crate::error::{Error, Words, cuddy_status, sentence};
use crate::json::Quoted;
use crate::mutants::mutant;
use crate::observers::{self, Event};

/// The file's name from the root; `None` while nothing is logged.
static FILE: OnceLock<Option<CString>> = OnceLock::new();
static HAS_COMPLAINED: AtomicBool = AtomicBool::new(false);

/// Logs from now on, if the options say so. What is not there by the first use of a device never is.
pub(super) fn begin() {
    FILE.get_or_init(|| {
        let name = in_force().log;
        // The program may change its folder later.
        let file = std::path::absolute(name).ok()?;
        let file = CString::new(file.into_os_string().into_encoded_bytes()).ok()?;
        observers::add(observers::GROWTH | observers::RELEASE, reserved_changed, 0, 0).ok()?;
        Some(file)
    });
}

/// A device is used for the first time.
pub(super) fn opened(facts: impl FnOnce() -> Result<DeviceFacts, Error>) {
    if file().is_none() {
        return;
    }
    let Ok(facts) = facts() else { return };
    let (device, bytes, backing) = (facts.device, facts.total_bytes, facts.backing);
    let version = env!("CARGO_PKG_VERSION");
    let name = Quoted(&facts.name);
    line(format_args!(
        "event=device device={device} bytes={bytes} backing={backing} name={name} cuddy={version}"
    ));
}

/// A request failed; the error, as it is. What the caller did wrong is its own affair.
pub(super) fn failed(error: Error, bytes: u64) -> Error {
    let told = matches!(error, Error::OutOfMemory(_) | Error::Driver(_) | Error::DeviceReset(_));
    if told && file().is_some() {
        let (status, why) = (cuddy_status::from(&error), sentence!("{error}"));
        let why = Quoted(&why);
        line(format_args!("event=failed bytes={bytes} status={status:?} why={why}"));
    }
    error
}

fn reserved_changed(event: &Event, _function: usize, _user: usize) {
    let what = if event.kind == observers::GROWTH { "growth" } else { "release" };
    let Event { bytes, allocated, reserved, .. } = event;
    let figures = format_args!("bytes={bytes} allocated={allocated} reserved={reserved}");
    match event.device {
        observers::HOST => line(format_args!("event={what} device=host {figures}")),
        device => line(format_args!("event={what} device={device} {figures}")),
    }
}

fn file() -> Option<&'static CString> {
    FILE.get()?.as_ref().filter(|_| !mutant("log-stays-empty"))
}

fn line(text: std::fmt::Arguments<'_>) {
    let Some(file) = file() else { return };
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let process = std::process::id();
    let mut line = Words::default();
    // Without memory for it, what fits is written.
    let _ = writeln!(line, "{}.{:06} pid={process} {text}", time.as_secs(), time.subsec_micros());
    if !environment::append(file, &line.into_string())
        && !HAS_COMPLAINED.swap(true, Ordering::Relaxed)
    {
        let file = file.to_string_lossy();
        environment::complain(&sentence!("cuddy: the log {file} cannot be written\n"));
    }
}
