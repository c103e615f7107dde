//! The spans against a model that knows one byte at a time, and the equations of the map.

use super::*;
use std::collections::{BTreeMap as Map, BTreeSet};

const LENGTH: u64 = 48;

/// Priors are ordered before a new use if they are of the same of three chains, or far older.
fn ordered(prior: u32, new: u32) -> bool {
    prior % 3 == new % 3 || prior + 9 < new
}

/// Counts mentions and notes clashes as single bytes.
#[derive(Default)]
struct Notes {
    new: u32,
    mentions: Map<u32, i64>,
    clashes: BTreeSet<(u64, u32, u8)>,
}

fn code(kind: AccessKind) -> u8 {
    kind as u8
}

impl Uses for Notes {
    fn before(&self, prior: u32) -> bool {
        ordered(prior, self.new)
    }
    fn clash(&mut self, prior: u32, kind: AccessKind, from: u64, to: u64) {
        assert!(from < to, "an empty range clashes");
        self.clashes.extend((from..to).map(|byte| (byte, prior, code(kind))));
    }
    fn hold(&mut self, id: u32) {
        *self.mentions.entry(id).or_default() += 1;
    }
    fn release(&mut self, id: u32) {
        *self.mentions.entry(id).or_default() -= 1;
    }
}

/// The past of one byte.
#[derive(Clone, Default)]
struct Byte {
    write: Option<(u32, AccessKind)>,
    reads: Vec<u32>,
}

impl Byte {
    fn touch(&mut self, kind: AccessKind, me: u32) -> Vec<(u32, u8)> {
        let mut against: Vec<(u32, u8)> = self.write.iter().map(|&(w, k)| (w, code(k))).collect();
        if kind == AccessKind::Read {
            if self.write.is_none_or(|(w, _)| w != me) && !self.reads.contains(&me) {
                self.reads.retain(|&r| !ordered(r, me));
                self.reads.push(me);
            }
        } else {
            against.extend(self.reads.iter().map(|&r| (r, code(AccessKind::Read))));
            *self = Byte { write: Some((me, kind)), reads: Vec::new() };
        }
        against.retain(|&(prior, _)| prior != me && !ordered(prior, me));
        against
    }
}

fn check_equations(spans: &Spans, notes: &Notes, model: &[Byte]) {
    let mut mentions: Map<u32, i64> = Map::new();
    let mut at = 0;
    for (&start, span) in &spans.map {
        assert!(at <= start && start < span.end, "disjoint, sorted, not empty");
        at = span.end;
        span.each(|id| *mentions.entry(id).or_default() += 1);
        for byte in &model[start as usize..span.end as usize] {
            let write = (span.writer != NONE).then_some((span.writer, span.how));
            assert_eq!(write, byte.write);
            let sorted = |ids: &[u32]| ids.iter().copied().collect::<BTreeSet<_>>();
            assert_eq!(sorted(span.readers.as_slice()), sorted(&byte.reads));
        }
    }
    let counted: Map<u32, i64> =
        notes.mentions.iter().filter(|m| *m.1 != 0).map(|(&id, &n)| (id, n)).collect();
    assert_eq!(counted, mentions, "records are held as often as they are mentioned");
}

#[test]
fn spans_agree_with_one_record_a_byte() {
    let mut state = 88172645463325252u64;
    let mut below = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    for round in 0..4000 {
        let (mut spans, mut notes) = (Spans::default(), Notes::default());
        let mut model = vec![Byte::default(); LENGTH as usize];
        let words = round % 2 == 0;
        for step in 0..40 {
            let me = step / 2;
            let kinds = [AccessKind::Write, AccessKind::Destroy, AccessKind::Allocate];
            let kind = kinds.get(below(6) as usize).copied().unwrap_or(AccessKind::Read);
            let (start, end) = match below(4) {
                0 => (0, LENGTH),
                _ if words => {
                    let word = below(LENGTH / 8) * 8;
                    (word, word + 8)
                }
                _ => {
                    let (a, b) = (below(LENGTH), below(LENGTH));
                    (a.min(b), a.max(b) + 1)
                }
            };
            notes.new = me as u32;
            notes.clashes.clear();
            spans.touch((start, end), kind, me as u32, &mut notes);
            let due: BTreeSet<_> = (start..end)
                .flat_map(|i| {
                    let against = model[i as usize].touch(kind, me as u32);
                    against.into_iter().map(move |(prior, code)| (i, prior, code))
                })
                .collect();
            assert_eq!(notes.clashes, due, "{kind:?} {start}..{end} by {me}: {spans:?}");
            check_equations(&spans, &notes, &model);
        }
        spans.clear(&mut notes);
        check_equations(&spans, &notes, &model);
        assert_eq!(spans.len(), 0);
    }
}

#[test]
fn neighbours_with_the_same_past_are_one_span() {
    let (mut spans, mut notes) = (Spans::default(), Notes::default());
    for word in 0..100 {
        spans.touch((word * 8, word * 8 + 8), AccessKind::Write, 1, &mut notes);
    }
    assert_eq!(spans.len(), 1);
    notes.new = 4;
    spans.touch((0, 400), AccessKind::Read, 4, &mut notes);
    assert_eq!(spans.len(), 2);
    spans.touch((400, 600), AccessKind::Read, 4, &mut notes);
    assert_eq!(spans.len(), 2);
    spans.touch((100, 200), AccessKind::Write, 4, &mut notes);
    assert_eq!(spans.len(), 4);
    spans.touch((200, 300), AccessKind::Write, 4, &mut notes);
    assert_eq!(spans.len(), 4);
    spans.touch((0, 800), AccessKind::Destroy, 7, &mut notes);
    assert_eq!(spans.len(), 1);
}
