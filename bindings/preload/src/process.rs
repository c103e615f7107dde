//! The **process**: its settings, and whether calls are the driver's alone.

use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use cuddy::mutants::mutant;

use crate::settings::{Mode, Settings};

static FORKED: AtomicBool = AtomicBool::new(false);
static INTRODUCED: AtomicBool = AtomicBool::new(false);
static GAVE_UP: AtomicBool = AtomicBool::new(false);

/// The settings, read at the first allocation.
pub fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let text = std::env::var_os("CUDDY_PRELOAD").unwrap_or_default();
        let mut settings = Settings::read(text.as_bytes());
        // A tool that watches every allocation wants to see every allocation.
        let watched = std::env::var_os("CUDA_INJECTION64_PATH").is_some()
            || std::env::var_os("NV_SANITIZER_INJECTION_PORT_BASE").is_some();
        let off = cuddy::process::option(b"caching").is_ok_and(|it| it.value == "off");
        if watched || off {
            settings.mode = Mode::Off;
        }
        settings
    })
}

/// The mode in force, as `CUDDY_PRELOAD` has it.
pub fn mode_name() -> &'static str {
    match settings().mode {
        Mode::Strict => "strict",
        Mode::Fenced => "fenced",
        Mode::Off => "off",
    }
}

/// A bug of ours was caught: nothing more is cached.
pub fn give_up() {
    GAVE_UP.store(true, Ordering::Relaxed);
}

/// Whether this is the child of a process that had memory: it cannot use CUDA, and our books may be
/// locked for ever.
pub fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Whether there is nothing of ours to look for: no context was introduced, or not in this process.
/// No lock is taken to say so, for the sake of children.
pub fn is_out() -> bool {
    is_forked() || !INTRODUCED.load(Ordering::Acquire)
}

/// For `pthread_atfork`.
pub extern "C" fn mark_child() {
    FORKED.store(!mutant("preload-child-unmarked"), Ordering::Relaxed);
}

/// Whether calls are the driver's alone.
pub fn is_off() -> bool {
    is_forked() || GAVE_UP.load(Ordering::Relaxed) || settings().mode == Mode::Off
}

/// Whether a bug of ours was caught.
pub fn has_given_up() -> bool {
    GAVE_UP.load(Ordering::Relaxed)
}

/// A context was introduced.
pub fn mark_introduced() {
    INTRODUCED.store(true, Ordering::Release);
}
