//! The happens-before checker: are two uses of the same bytes ordered?
//!
//! CUDA's order is fixed by the sequence of API calls, so each operation is judged when it is
//! submitted, whatever the scheduler does later. The rule, for an access x to a byte:
//! - x is compared with the last write (or destruction) of that byte submitted before x;
//! - if x writes or destroys, also with the reads since then, except reads that come before a later
//!   one, and reads by the operation that wrote;
//! - a compared access that does not come before x is reported, together with x.
//!
//! So a program has a report if and only if it has two conflicting uses that nothing orders.
//! Mode Off keeps no clocks and no uses.
#![forbid(unsafe_code)]

mod clock;
mod findings;
mod flaw;
mod judge;
mod order;
mod parts;
mod records;
mod report;
mod spans;
mod written;

use crate::engine::StreamName;
pub(crate) use clock::Clock;
use findings::Findings;
#[doc(hidden)]
pub use flaw::{ALL_FAULTS, Planted};
pub use flaw::{Fault, Flaw, Sound};
use judge::{Judge, Object};
pub(crate) use order::Order;
use records::Records;
pub use report::{Access, AccessKind, Report, ReportKind};
use std::collections::HashMap;
use std::sync::Arc;
use written::Written;

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

/// Who submitted an operation, as reports name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    /// None: the host itself.
    pub stream: Option<StreamName>,
    /// The caller's number of the host thread.
    pub thread: u64,
}

/// Judges accesses by the clocks of streams and host threads. Not thread-safe: it lives in the engine.
#[derive(Debug)]
pub struct Checker<F: Flaw = Sound> {
    pub(crate) flaw: F,
    pub(crate) order: Order,
    mode: Mode,
    /// Clocks are kept although nothing is judged.
    order_wanted: bool,
    report_unwritten: bool,
    objects: HashMap<u64, Object, crate::engine::FastHash>,
    records: Records,
    parts: parts::Parts,
    findings: Findings,
    accesses_checked: u64,
    unknown_launches: u64,
}

impl<F: Flaw> Checker<F> {
    pub(crate) fn new(flaw: F) -> Self {
        Self {
            flaw,
            order: Order::default(),
            mode: Mode::Off,
            order_wanted: false,
            report_unwritten: false,
            objects: HashMap::default(),
            records: Records::default(),
            parts: parts::Parts::default(),
            findings: Findings::default(),
            accesses_checked: 0,
            unknown_launches: 0,
        }
    }

    /// Off forgets all past uses (reports and counts stay); switching on again starts anew.
    pub fn set_mode(&mut self, mode: Mode) {
        if mode == Mode::Off {
            self.objects.clear();
            self.records = Records::default();
            self.parts.clear();
        }
        self.findings.abort = mode == Mode::Abort;
        self.mode = mode;
    }

    /// Has a function told of every report that is kept, at once.
    pub fn set_told(&mut self, told: Option<fn(&Report)>) {
        self.findings.told = told;
    }

    /// The mode in force.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// False when the mode is Off: then nobody needs to make labels and accesses.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.mode != Mode::Off
    }

    /// From now on clocks are kept in mode Off too: somebody asks what comes before what.
    pub fn keep_order(&mut self) {
        self.order_wanted = true;
    }

    /// Whether clocks are kept.
    #[inline]
    pub fn keeps_order(&self) -> bool {
        self.order_wanted || self.is_on()
    }

    /// Findings not yet taken, oldest first; at most 10,000 are kept.
    pub fn reports(&self) -> &[Report] {
        &self.findings.reports
    }

    /// Takes the findings out.
    pub fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.findings.reports)
    }

    /// Findings not in the list: further ranges of a pair already reported, or the list was full.
    pub fn suppressed(&self) -> u64 {
        self.findings.suppressed()
    }

    /// The part of [`Self::suppressed`] that no report in the list stands for.
    pub fn overflowed(&self) -> u64 {
        self.findings.overflowed()
    }

    /// How many accesses were compared with the past.
    pub fn accesses_checked(&self) -> u64 {
        self.accesses_checked
    }

    /// How many jobs came with `unknown_accesses`, in whatever mode.
    pub fn unknown_launches(&self) -> u64 {
        self.unknown_launches
    }

    /// Reads of bytes never written become findings, for objects created from now on.
    pub fn set_report_uninitialised(&mut self, on: bool) {
        self.report_unwritten = on;
    }

    /// Names an object of `bytes` bytes; nothing in it is written yet. A use beyond its end becomes a
    /// finding. Off: does nothing.
    pub fn object_created(&mut self, object: u64, bytes: u64, label: &str) {
        if !self.is_on() {
            return;
        }
        let written = self.report_unwritten.then(Written::default);
        let label = label.into();
        self.objects
            .insert(object, Object { written, label, bytes: Some(bytes), ..Object::default() });
    }

    /// Names a part of an object, from one offset to another. Off: does nothing.
    pub fn part_named(&mut self, object: u64, range: (u64, u64), label: &str) {
        if self.is_on() {
            self.parts.name(object, range, label);
        }
    }

    /// What these bytes are: the part's name if it has one, else the object's.
    pub fn label_at(&self, object: u64, offset: u64) -> Option<&str> {
        let whole = || self.objects.get(&object).map(|object| &*object.label);
        self.parts.at(object, offset).or_else(whole).filter(|label| !label.is_empty())
    }

    /// Forgets the object's uses and its name. Its number must not be used again.
    pub fn object_gone(&mut self, object: u64) {
        if let Some(mut gone) = self.objects.remove(&object) {
            gone.spans.clear(&mut Forget(&mut self.records));
            self.parts.forget(object);
        }
    }

    /// Adds a finding of the caller's own. Off: does nothing.
    pub fn report(&mut self, report: Report) {
        if self.is_on() {
            self.findings.add(report);
        }
    }

    /// Records and spans alive, for tests of what is forgotten.
    #[doc(hidden)]
    pub fn remembered(&self) -> (usize, usize) {
        (self.records.alive(), self.objects.values().map(|o| o.spans.len()).sum())
    }

    /// Slots of clocks in use or dead, for tests of recycling.
    #[doc(hidden)]
    pub fn clock_slots(&self) -> usize {
        self.order.slots()
    }

    /// Gives slots of clocks back at every chance, so that short programs try it.
    #[doc(hidden)]
    pub fn be_thrifty(&mut self) {
        self.order.be_thrifty();
    }

    pub(crate) fn count_unknown(&mut self) {
        self.unknown_launches += 1;
    }

    /// Judges the operation that the actor `slot` does at its present time.
    pub(crate) fn judge(
        &mut self,
        slot: u32,
        number: u64,
        who: Who,
        label: String,
        accesses: &[Access],
    ) {
        if accesses.is_empty() {
            return;
        }
        self.accesses_checked += accesses.len() as u64;
        let clock = self.order.clock(slot);
        let me = self.records.add(slot, clock.time(), number, label, who);
        let mut judge = Judge {
            flaw: self.flaw,
            clock,
            order: &self.order,
            records: &mut self.records,
            parts: &self.parts,
            findings: &mut self.findings,
            me,
            kind: AccessKind::Read,
            object: (u64::MAX, Arc::default()),
            seen: HashMap::new(),
        };
        for run in accesses.chunk_by(|a, b| a.object == b.object) {
            let object = self.objects.entry(run[0].object).or_default();
            run.iter().for_each(|access| judge.access(access, object));
        }
        self.records.release(me);
    }
}

/// Forgetting compares nothing.
struct Forget<'a>(&'a mut Records);

impl spans::Uses for Forget<'_> {
    fn before(&self, _: u32) -> bool {
        true
    }
    fn clash(&mut self, _: u32, _: AccessKind, _: u64, _: u64) {}
    fn hold(&mut self, id: u32) {
        self.0.hold(id);
    }
    fn release(&mut self, id: u32) {
        self.0.release(id);
    }
}
