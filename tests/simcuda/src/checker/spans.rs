//! Spans: for every byte of one object, its last writer and the readers since.
//!
//! Spans are disjoint, sorted by start, and uniform: all bytes of a span have the same past. A byte in
//! no span was never used. Of the readers only those are kept that come before no later reader.
#![forbid(unsafe_code)]

use super::{AccessKind, Fault};
use std::collections::BTreeMap;

/// No record.
const NONE: u32 = u32::MAX;

/// What a new use needs to know and to tell. Priors are indices of records.
pub(crate) trait Uses {
    /// Did the prior come before the new use?
    fn before(&self, prior: u32) -> bool;
    /// The prior (a use of kind `kind`) and the new use clash in `from..to`.
    fn clash(&mut self, prior: u32, kind: AccessKind, from: u64, to: u64);
    /// One more mention of a record.
    fn hold(&mut self, id: u32);
    /// One mention less.
    fn release(&mut self, id: u32);
    /// A deliberate fault.
    fn has(&self, _fault: Fault) -> bool {
        false
    }
}

/// Records of the readers: nearly always none or one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Readers {
    None,
    One(u32),
    Many(Box<[u32]>),
}

impl Readers {
    fn as_slice(&self) -> &[u32] {
        match self {
            Self::None => &[],
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    end: u64,
    writer: u32,
    /// How the writer used them; never `Read`.
    how: AccessKind,
    readers: Readers,
}

impl Span {
    fn same_past(&self, other: &Span) -> bool {
        self.writer == other.writer && self.how == other.how && self.readers == other.readers
    }

    /// Every record named here, with repetition.
    fn each(&self, mut tell: impl FnMut(u32)) {
        if self.writer != NONE {
            tell(self.writer);
        }
        self.readers.as_slice().iter().for_each(|&id| tell(id));
    }
}

/// A new use: record `me` uses the bytes `start..end`.
#[derive(Clone, Copy)]
struct New {
    start: u64,
    end: u64,
    kind: AccessKind,
    me: u32,
}

/// The past of one object.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    map: BTreeMap<u64, Span>,
}

impl Spans {
    /// Compares the use of `start..end` by record `me` with the past, then adds it to the past.
    pub fn touch<U: Uses>(&mut self, range: (u64, u64), kind: AccessKind, me: u32, uses: &mut U) {
        let new = New { start: range.0, end: range.1, kind, me };
        if new.start >= new.end || self.touch_one(new, uses) {
            return;
        }
        match kind {
            AccessKind::Read => self.read(new, uses),
            AccessKind::Write | AccessKind::Destroy | AccessKind::Allocate => self.write(new, uses),
        }
    }

    /// Forgets everything.
    pub fn clear<U: Uses>(&mut self, uses: &mut U) {
        for span in std::mem::take(&mut self.map).into_values() {
            span.each(|id| uses.release(id));
        }
    }

    /// The frequent cases, with one search: the range is exactly one span, or grows the span before it.
    fn touch_one<U: Uses>(&mut self, new: New, uses: &mut U) -> bool {
        let mut near = self.map.range_mut(..new.end);
        let Some((&start, span)) = near.next_back() else { return false };
        if start == new.start && span.end == new.end {
            compare(start, span, new, uses);
            renew(span, new, uses);
            return true;
        }
        let grows = span.end == new.start
            && new.kind != AccessKind::Read
            && span.writer == new.me
            && span.how == new.kind
            && span.readers == Readers::None;
        if grows {
            span.end = new.end;
        }
        grows
    }

    fn write<U: Uses>(&mut self, new: New, uses: &mut U) {
        self.split(new.start, uses);
        self.split(new.end, uses);
        let whole = self.map.first_key_value().is_none_or(|(&k, _)| k >= new.start)
            && self.map.last_key_value().is_none_or(|(_, s)| s.end <= new.end);
        let mut forget = |start: u64, span: &Span| {
            compare(start, span, new, uses);
            span.each(|id| uses.release(id));
        };
        if whole {
            std::mem::take(&mut self.map).iter().for_each(|(&start, span)| forget(start, span));
        } else {
            self.map
                .extract_if(new.start..new.end, |_, _| true)
                .for_each(|(start, span)| forget(start, &span));
        }
        if new.kind == AccessKind::Destroy && uses.has(Fault::DestroyNotKept) {
            return;
        }
        uses.hold(new.me);
        let span = Span { end: new.end, writer: new.me, how: new.kind, readers: Readers::None };
        self.map.insert(new.start, span);
        self.merge(new.start, uses);
        self.merge(new.end, uses);
    }

    fn read<U: Uses>(&mut self, new: New, uses: &mut U) {
        if let Some((&start, span)) = self.map.range(..=new.start).next_back()
            && span.end >= new.end
            && (span.writer == new.me || span.readers.as_slice().contains(&new.me))
        {
            return compare(start, span, new, uses);
        }
        self.split(new.start, uses);
        self.split(new.end, uses);
        let mut gaps = Vec::new();
        let mut at = new.start;
        for (&start, span) in self.map.range_mut(new.start..new.end) {
            if at < start {
                gaps.push((at, start));
            }
            at = span.end;
            compare(start, span, new, uses);
            renew(span, new, uses);
        }
        if at < new.end {
            gaps.push((at, new.end));
        }
        for (start, end) in gaps {
            uses.hold(new.me);
            let readers = Readers::One(new.me);
            self.map.insert(start, Span { end, writer: NONE, how: AccessKind::Write, readers });
        }
        self.merge(new.start, uses);
        self.merge(new.end, uses);
    }

    /// Makes `at` a border between spans.
    fn split<U: Uses>(&mut self, at: u64, uses: &mut U) {
        let Some((_, span)) = self.map.range_mut(..at).next_back() else { return };
        if span.end <= at {
            return;
        }
        let right = span.clone();
        span.end = at;
        if uses.has(Fault::SplitDropsTail) {
            return;
        }
        right.each(|id| uses.hold(id));
        self.map.insert(at, right);
    }

    /// Joins the spans before and after `at` if their past is the same.
    fn merge<U: Uses>(&mut self, at: u64, uses: &mut U) {
        let Some(right) = self.map.get(&at) else { return };
        let Some((&start, left)) = self.map.range(..at).next_back() else { return };
        if left.end != at || !left.same_past(right) {
            return;
        }
        let end = right.end;
        if let Some(right) = self.map.remove(&at) {
            right.each(|id| uses.release(id));
        }
        if let Some(left) = self.map.get_mut(&start) {
            left.end = end;
        }
    }

    /// Number of spans.
    pub fn len(&self) -> usize {
        self.map.len()
    }
}

/// The rule: a read against the last writer; a write against that and the readers since.
fn compare<U: Uses>(start: u64, span: &Span, new: New, uses: &mut U) {
    let (from, to) = (start.max(new.start), span.end.min(new.end));
    if new.kind == AccessKind::Destroy && uses.has(Fault::DestroyForgets) {
        return;
    }
    let readers = new.kind != AccessKind::Read && !uses.has(Fault::ReadersForgotten);
    let mut against = |prior: u32, kind: AccessKind| {
        if prior != new.me && !uses.before(prior) {
            uses.clash(prior, kind, from, to);
        }
    };
    if span.writer != NONE {
        against(span.writer, span.how);
    }
    if readers {
        span.readers.as_slice().iter().for_each(|&reader| against(reader, AccessKind::Read));
    }
}

/// The new use becomes the span's past.
fn renew<U: Uses>(span: &mut Span, new: New, uses: &mut U) {
    if new.kind == AccessKind::Read {
        return add_reader(span, new.me, uses);
    }
    if new.kind == AccessKind::Destroy && uses.has(Fault::DestroyNotKept) {
        return;
    }
    uses.hold(new.me);
    span.each(|id| uses.release(id));
    span.writer = new.me;
    span.how = new.kind;
    span.readers = Readers::None;
}

fn add_reader<U: Uses>(span: &mut Span, me: u32, uses: &mut U) {
    if uses.has(Fault::ReadHidesWriter) && span.writer != NONE {
        uses.release(span.writer);
        span.writer = NONE;
    }
    if span.writer == me || span.readers.as_slice().contains(&me) {
        return;
    }
    uses.hold(me);
    let one = match span.readers {
        Readers::None => true,
        Readers::One(reader) => uses.before(reader),
        Readers::Many(_) => false,
    };
    if one || uses.has(Fault::OneReaderKept) {
        span.readers.as_slice().iter().for_each(|&id| uses.release(id));
        span.readers = Readers::One(me);
        return;
    }
    let mut kept = Vec::with_capacity(span.readers.as_slice().len() + 1);
    for &reader in span.readers.as_slice() {
        if uses.before(reader) { uses.release(reader) } else { kept.push(reader) }
    }
    kept.push(me);
    span.readers = if kept.len() == 1 { Readers::One(me) } else { Readers::Many(kept.into()) };
}

#[cfg(test)]
#[path = "spans_test.rs"]
mod tests;
