//! Judging one operation: each of its accesses against the past of the same bytes.
//!
//! An operation's accesses are taken in their order. Whatever clashes is reported once for a pair of
//! operations and a kind; since the pair's later side is the operation judged, one judgement sees all
//! repetitions.
#![forbid(unsafe_code)]

use super::clock::Clock;
use super::order::Order;
use super::parts::Parts;
use super::records::{Record, Records};
use super::spans::{Spans, Uses};
use super::written::Written;
use super::{Access, AccessKind, Fault, Findings, Flaw, Report, ReportKind};
use std::collections::HashMap;
use std::sync::Arc;

/// What is remembered of a physical object.
#[derive(Debug, Default)]
pub(super) struct Object {
    pub spans: Spans,
    /// Length in bytes, if it is known.
    pub bytes: Option<u64>,
    /// Kept only for objects created while reads of unwritten bytes are reported.
    pub written: Option<Written>,
    pub label: Arc<str>,
}

/// The operation under judgement, record `me`.
pub(super) struct Judge<'a, F: Flaw> {
    pub flaw: F,
    pub clock: &'a Clock,
    pub order: &'a Order,
    pub records: &'a mut Records,
    pub parts: &'a Parts,
    pub findings: &'a mut Findings,
    pub me: u32,
    /// The kind of the access in hand.
    pub kind: AccessKind,
    /// The object in hand: number and label.
    pub object: (u64, Arc<str>),
    /// Reported in this judgement, by the other side's number and the kind: where the report lies.
    pub seen: HashMap<(u64, ReportKind), Option<usize>>,
}

impl<F: Flaw> Judge<'_, F> {
    pub fn access(&mut self, access: &Access, object: &mut Object) {
        if self.object.0 != access.object {
            self.object = (access.object, object.label.clone());
        }
        self.kind = access.kind;
        let start = access.offset;
        let mut end = start.saturating_add(access.bytes);
        if self.flaw.has(Fault::OneByteShort) && access.bytes > 1 {
            end -= 1;
        }
        if start == end {
            return;
        }
        if object.bytes.is_some_and(|bytes| end > bytes) {
            self.beyond((start, end));
        }
        if let Some(written) = &mut object.written {
            match access.kind {
                AccessKind::Read => self.unwritten(written.first_gap(start, end)),
                AccessKind::Write => written.add(start, end),
                AccessKind::Destroy => {}
                AccessKind::Allocate => written.remove(start, end),
            }
        }
        object.spans.touch((start, end), access.kind, self.me, self);
    }

    fn beyond(&mut self, range: (u64, u64)) {
        if self.repeats(0, ReportKind::OutOfBounds) {
            return;
        }
        let second = side(self.records.get(self.me), self.kind);
        self.found(ReportKind::OutOfBounds, (0, "the object ends before".into()), second, range);
    }

    fn unwritten(&mut self, gap: Option<(u64, u64)>) {
        let Some((from, to)) = gap else { return };
        if self.repeats(0, ReportKind::Uninitialised) {
            return;
        }
        let first = format!("created and not written since: {}", self.object.1);
        let second = side(self.records.get(self.me), AccessKind::Read);
        self.found(ReportKind::Uninitialised, (0, first), second, (from, to));
    }

    fn found(
        &mut self,
        kind: ReportKind,
        first: (u64, String),
        second: String,
        (from, to): (u64, u64),
    ) {
        let (object, whole) = &self.object;
        let object_label = match self.parts.at(*object, from) {
            Some(part) => format!("{part}; in {whole}"),
            None => whole.to_string(),
        };
        let report = Report {
            kind,
            first: first.1,
            second,
            first_op: first.0,
            second_op: self.records.get(self.me).number,
            object: *object,
            object_label,
            offset: from,
            bytes: to - from,
            more: 0,
        };
        let at = self.findings.add(report);
        self.seen.insert((first.0, kind), at);
    }

    /// True if the pair was reported already; then it is counted.
    fn repeats(&mut self, other: u64, kind: ReportKind) -> bool {
        if self.flaw.has(Fault::RepeatsReported) {
            return false;
        }
        let Some(&at) = self.seen.get(&(other, kind)) else { return false };
        self.findings.again(at);
        true
    }
}

impl<F: Flaw> Uses for Judge<'_, F> {
    #[inline]
    fn before(&self, prior: u32) -> bool {
        let record = self.records.get(prior);
        let (slot, time) = (record.slot, record.time);
        self.clock.knows(slot, time) || self.order.is_settled(slot, time)
    }

    fn clash(&mut self, prior: u32, prior_kind: AccessKind, from: u64, to: u64) {
        let taken = [prior_kind, self.kind].contains(&AccessKind::Destroy);
        let kind = match prior_kind {
            AccessKind::Allocate if self.kind != AccessKind::Allocate => {
                ReportKind::BeforeAllocation
            }
            _ if taken => ReportKind::DestroyUnderWork,
            _ => ReportKind::Race,
        };
        let record = self.records.get(prior);
        let number = record.number;
        if self.repeats(number, kind) {
            return;
        }
        let first = side(self.records.get(prior), prior_kind);
        let second = side(self.records.get(self.me), self.kind);
        self.found(kind, (number, first), second, (from, to));
    }

    #[inline]
    fn hold(&mut self, id: u32) {
        self.records.hold(id);
    }

    #[inline]
    fn release(&mut self, id: u32) {
        self.records.release(id);
    }

    #[inline]
    fn has(&self, fault: Fault) -> bool {
        self.flaw.has(fault)
    }
}

/// One side of a report in words.
fn side(record: &Record, kind: AccessKind) -> String {
    let use_ = match kind {
        AccessKind::Read => "read",
        AccessKind::Write => "write",
        AccessKind::Destroy => "taking away",
        AccessKind::Allocate => "giving out",
    };
    let Record { label, number, who, .. } = record;
    let thread = who.thread;
    match who.stream {
        Some(stream) => format!(
            "{use_} by {label} (operation {number}, {stream}, submitted by host thread {thread})"
        ),
        None => format!("{use_} by {label} (operation {number}, by host thread {thread} itself)"),
    }
}
