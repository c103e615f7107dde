//! The **program** under test: started, waited for, and told what this process is told.
//!
//! Ctrl-C reaches both from the terminal: the program decides, and the report comes all the same. A
//! request to end (`SIGTERM`, `SIGHUP`) is handed on.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

/// The program's process; 0 before it is known.
static PROGRAM: AtomicI32 = AtomicI32::new(0);
/// A signal that came before that; 0: none.
static EARLY: AtomicI32 = AtomicI32::new(0);

/// How a program ended.
#[derive(Clone, Copy, Debug)]
pub struct Status(ExitStatus);

impl Status {
    /// Its exit code, or 128 and the signal that ended it.
    pub fn code(self) -> u8 {
        let signal = self.0.signal().map(|signal| 128 + signal);
        // What a process leaves of its exit code is a byte.
        self.0.code().or(signal).unwrap_or(255) as u8
    }

    /// `exit code 3`, `signal 6`.
    pub fn text(self) -> String {
        match self.0.signal() {
            Some(signal) => format!("signal {signal}"),
            None => format!("exit code {}", self.code()),
        }
    }
}

extern "C" fn hand_on(signal: i32) {
    let program = PROGRAM.load(Ordering::SeqCst);
    if program == 0 {
        EARLY.store(signal, Ordering::SeqCst);
    } else {
        // SAFETY: `kill` may be called in a signal handler; the process is our own child, which has
        // not been waited for while its number stands here.
        unsafe { libc::kill(program, signal) };
    }
}

extern "C" fn leave_it(_signal: i32) {}

/// Handlers, not `SIG_IGN`, which the program would inherit.
fn handle(signal: i32, handler: extern "C" fn(i32)) {
    // SAFETY: the handlers do only what is allowed in one, and live as long as the process.
    unsafe { libc::signal(signal, handler as *const () as libc::sighandler_t) };
}

/// Runs a program to its end.
pub fn run(command: &mut Command) -> io::Result<Status> {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        handle(signal, leave_it);
    }
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        handle(signal, hand_on);
    }
    let mut child = command.spawn()?;
    PROGRAM.store(child.id() as i32, Ordering::SeqCst);
    match EARLY.swap(0, Ordering::SeqCst) {
        0 => {}
        early => hand_on(early),
    }
    let status = child.wait();
    PROGRAM.store(0, Ordering::SeqCst);
    status.map(Status)
}
