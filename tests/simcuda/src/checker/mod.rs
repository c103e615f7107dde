//! The happens-before checker: are two uses of the same bytes ordered?
#![forbid(unsafe_code)]

mod report;

pub use report::{Access, AccessKind, Report, ReportKind};

/// What the checker does with a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Nothing is checked and no clocks are kept.
    #[default]
    Off,
    /// Findings are kept.
    Log,
    /// The first finding is printed to stderr and the process aborts.
    Abort,
}

/// A deliberate mistake, for testing the tests; see [`Flaw`].
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    OneByteShort,
}

/// Which deliberate mistake is built in: [`Sound`] (none, compiled away) everywhere but in the tests of the tests.
#[doc(hidden)]
pub trait Flaw {
    fn has(&self, fault: Fault) -> bool;
}

/// No mistake.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sound;

impl Flaw for Sound {
    #[inline(always)]
    fn has(&self, _: Fault) -> bool {
        false
    }
}

/// Judges accesses by the clocks of streams and host threads.
pub struct Checker<F: Flaw = Sound> {
    flaw: F,
}

impl<F: Flaw> Checker<F> {
    /// Off forgets all past uses; checking starts anew when it is switched on again.
    pub fn set_mode(&mut self, mode: Mode) {
        todo!("{mode:?} {}", self.flaw.has(Fault::OneByteShort))
    }
    /// The mode in force.
    pub fn mode(&self) -> Mode {
        todo!()
    }
    /// False when the mode is Off: labels and accesses need not be made.
    pub fn is_on(&self) -> bool {
        todo!()
    }
    /// Findings so far, oldest first.
    pub fn reports(&self) -> &[Report] {
        todo!()
    }
    /// Takes the findings out.
    pub fn take_reports(&mut self) -> Vec<Report> {
        todo!()
    }
    /// Findings that repeat an earlier one's pair of operations, or came after the list was full.
    pub fn suppressed(&self) -> u64 {
        todo!()
    }
    /// How many accesses were compared with the past.
    pub fn accesses_checked(&self) -> u64 {
        todo!()
    }
    /// How many jobs came with `unknown_accesses`.
    pub fn unknown_launches(&self) -> u64 {
        todo!()
    }
    /// Reads of bytes never written become findings, for objects created from now on.
    pub fn set_report_uninitialised(&mut self, on: bool) {
        todo!("{on}")
    }
    /// Names an object; `bytes` long; nothing in it is written yet.
    pub fn object_created(&mut self, object: u64, bytes: u64, label: &str) {
        todo!("{object} {bytes} {label}")
    }
    /// Forgets the object's uses and name.
    pub fn object_gone(&mut self, object: u64) {
        todo!("{object}")
    }
    /// Adds a finding of the caller's own.
    pub fn report(&mut self, report: Report) {
        todo!("{report}")
    }
}
