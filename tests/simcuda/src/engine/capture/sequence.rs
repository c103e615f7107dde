//! A **sequence**: streams being captured together, from one begin to its end.
//!
//! A stream belongs to at most one sequence; it joins by waiting for an event that was recorded in
//! it. Each member has a *frontier*: the nodes that its next node comes after. A sequence that broke a
//! rule is invalid, and lasts until its end like any other.
#![forbid(unsafe_code)]

use crate::engine::{EventKey, StreamKey};
use std::collections::{BTreeMap, HashMap};

/// What a capture (or a thread) asks of calls that cannot be captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No thread makes them.
    Global,
    /// The thread that captures does not.
    ThreadLocal,
    /// Anybody may.
    Relaxed,
}

/// A stream, as the rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The stream.
    pub stream: StreamKey,
    /// Its context.
    pub context: u64,
    /// Whether the legacy stream of its context is ordered against it.
    pub blocking: bool,
}

/// `CUstreamCaptureStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not capturing.
    None,
    /// Capturing.
    Active,
    /// The capture broke a rule and was not ended.
    Invalidated,
}

/// See the file.
#[derive(Debug)]
pub struct Sequence {
    /// Never given twice.
    pub id: u64,
    /// The graph that it writes.
    pub graph: u64,
    /// The stream that it began on.
    pub origin: StreamKey,
    /// The thread that began it.
    pub thread: u64,
    /// How it was begun.
    pub mode: Mode,
    /// Whether every rule was kept so far.
    pub valid: bool,
    members: BTreeMap<StreamKey, Member>,
    /// Also of members that were destroyed: what they did has to be joined all the same.
    frontiers: BTreeMap<StreamKey, Vec<u64>>,
}

/// What waiting for an event means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// Nothing of it is captured: the stream waits.
    Plainly,
    /// It became an edge.
    Captured,
    /// The event was recorded in a capture that is another one than the stream's.
    Merge,
    /// The event and the stream are not both inside one capture.
    Isolation,
    /// The event was recorded in a capture, and the stream cannot join that.
    Captive,
    /// The event's capture is invalid.
    Invalid,
}

/// A capture that was ended.
#[derive(Debug)]
pub struct Ended {
    /// The graph.
    pub graph: u64,
    /// Whether every rule was kept.
    pub valid: bool,
    /// The frontier of the stream that it began on.
    pub joined: Vec<u64>,
    /// The frontiers of all others.
    pub others: Vec<u64>,
}

/// All sequences, and the events recorded in them.
#[derive(Debug, Default)]
pub struct Captures {
    sequences: Vec<Sequence>,
    of_stream: HashMap<StreamKey, u64>,
    /// Where an event was last recorded, if that was in a capture: the sequence (perhaps ended by
    /// now), and the nodes that it stands for.
    events: HashMap<EventKey, (u64, Vec<u64>)>,
    ids: u64,
}

impl Captures {
    /// Whether nothing is or was captured that a call could touch.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.sequences.is_empty() && self.events.is_empty()
    }

    /// Begins a capture on a stream that is in none; answers its id.
    pub fn begin(
        &mut self,
        member: Member,
        thread: u64,
        mode: Mode,
        graph: u64,
        after: &[u64],
    ) -> u64 {
        self.ids += 1;
        let id = self.ids;
        let origin = member.stream;
        self.sequences.push(Sequence {
            id,
            graph,
            origin,
            thread,
            mode,
            valid: true,
            members: BTreeMap::from([(origin, member)]),
            frontiers: BTreeMap::from([(origin, after.to_vec())]),
        });
        self.of_stream.insert(origin, id);
        id
    }

    fn find(&self, id: u64) -> Option<&Sequence> {
        self.sequences.iter().find(|s| s.id == id)
    }

    fn find_mut(&mut self, id: u64) -> Option<&mut Sequence> {
        self.sequences.iter_mut().find(|s| s.id == id)
    }

    /// The sequence that a stream belongs to.
    pub fn of(&self, stream: StreamKey) -> Option<&Sequence> {
        self.find(*self.of_stream.get(&stream)?)
    }

    /// Whether a stream is being captured.
    pub fn status(&self, stream: StreamKey) -> Status {
        match self.of(stream) {
            None => Status::None,
            Some(s) if s.valid => Status::Active,
            Some(_) => Status::Invalidated,
        }
    }

    /// The nodes that the next node of a stream comes after.
    pub fn frontier(&self, stream: StreamKey) -> &[u64] {
        self.of(stream).and_then(|s| s.frontiers.get(&stream)).map_or(&[], Vec::as_slice)
    }

    /// Sets them.
    pub fn set_frontier(&mut self, stream: StreamKey, nodes: Vec<u64>) {
        let Some(&id) = self.of_stream.get(&stream) else { return };
        if let Some(s) = self.find_mut(id) {
            s.frontiers.insert(stream, nodes);
        }
    }

    /// An event is recorded on a stream: inside a capture it stands for the stream's frontier.
    pub fn record(&mut self, stream: StreamKey, event: EventKey) {
        match self.of(stream).map(|s| s.id) {
            Some(id) => {
                let nodes = self.frontier(stream).to_vec();
                self.events.insert(event, (id, nodes));
            }
            None => self.forget_event(event),
        }
    }

    /// The event stands for nothing captured any more.
    #[inline]
    pub fn forget_event(&mut self, event: EventKey) {
        if !self.events.is_empty() {
            self.events.remove(&event);
        }
    }

    /// Whether the event was last recorded in a capture; and that capture, if it goes on.
    pub fn recorded_in(&self, event: EventKey) -> Option<Option<u64>> {
        let (id, _) = self.events.get(&event)?;
        Some(self.find(*id).map(|s| s.id))
    }

    /// A stream waits for an event. `recorded`: whether the event was ever recorded; `may_join`:
    /// whether the stream can be captured. Broken rules are answered, not yet punished.
    pub fn wait(
        &mut self,
        member: Member,
        event: EventKey,
        recorded: bool,
        may_join: bool,
    ) -> Waits {
        let mine = self.of(member.stream).map(|s| s.id);
        let Some((id, nodes)) = self.events.get(&event).cloned() else {
            return if mine.is_some() && recorded { Waits::Isolation } else { Waits::Plainly };
        };
        let Some(theirs) = self.find_mut(id) else {
            return if mine.is_some() { Waits::Isolation } else { Waits::Captive };
        };
        match mine {
            Some(mine) if mine != id => return Waits::Merge,
            None if !may_join => return Waits::Captive,
            _ if !theirs.valid => return Waits::Invalid,
            _ => {}
        }
        theirs.members.insert(member.stream, member);
        let frontier = theirs.frontiers.entry(member.stream).or_default();
        nodes
            .iter()
            .filter(|n| !frontier.contains(n))
            .copied()
            .collect::<Vec<_>>()
            .iter()
            .for_each(|n| frontier.push(*n));
        self.of_stream.insert(member.stream, id);
        Waits::Captured
    }

    /// Ends a sequence, by its id.
    pub fn end(&mut self, id: u64) -> Option<Ended> {
        let at = self.sequences.iter().position(|s| s.id == id)?;
        let mut s = self.sequences.remove(at);
        self.of_stream.retain(|_, of| *of != id);
        let joined = s.frontiers.remove(&s.origin).unwrap_or_default();
        let others = s.frontiers.into_values().flatten().collect();
        Some(Ended { graph: s.graph, valid: s.valid, joined, others })
    }

    /// A sequence broke a rule.
    pub fn invalidate(&mut self, ids: &[u64]) {
        for s in self.sequences.iter_mut().filter(|s| ids.contains(&s.id)) {
            s.valid = false;
        }
    }

    /// The captures that keep a thread from calls that cannot be captured.
    pub fn forbidding(&self, thread: u64, mode: Mode) -> Vec<u64> {
        let forbids = |s: &&Sequence| match mode {
            Mode::Relaxed => false,
            _ if s.thread == thread => s.mode != Mode::Relaxed,
            Mode::ThreadLocal => false,
            Mode::Global => s.mode == Mode::Global,
        };
        self.sequences.iter().filter(forbids).map(|s| s.id).collect()
    }

    /// The captures with a stream of this context; only blocking streams if `blocking`.
    pub fn in_context(&self, context: u64, blocking: bool) -> Vec<u64> {
        let here = |m: &Member| m.context == context && (m.blocking || !blocking);
        let inside = self.sequences.iter().filter(|s| s.members.values().any(here));
        inside.map(|s| s.id).collect()
    }

    /// A stream is destroyed. The capture that began on it is over; another is invalid, for nobody
    /// can join what the stream did.
    pub fn stream_gone(&mut self, stream: StreamKey) -> Option<Ended> {
        let id = self.of_stream.remove(&stream)?;
        let s = self.find_mut(id)?;
        s.members.remove(&stream);
        if s.origin == stream {
            return self.end(id);
        }
        s.valid = false;
        None
    }

    /// A context is destroyed with its streams; answers the graphs of the captures that ended.
    pub fn context_gone(&mut self, context: u64) -> Vec<u64> {
        let here = |m: &&Member| m.context == context;
        let streams: Vec<_> = self
            .sequences
            .iter()
            .flat_map(|s| s.members.values().filter(here).map(|m| m.stream))
            .collect();
        streams.into_iter().filter_map(|s| self.stream_gone(s)).map(|ended| ended.graph).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(stream: u64) -> Member {
        Member {
            stream: StreamKey(stream),
            context: stream / 10,
            blocking: stream.is_multiple_of(2),
        }
    }

    const E: EventKey = EventKey(1);

    #[test]
    fn the_modes_forbid_what_they_say() {
        use Mode::{Global, Relaxed, ThreadLocal};
        for (capture, mine, others) in [
            (Global, [true, true, false], [true, false, false]),
            (ThreadLocal, [true, true, false], [false, false, false]),
            (Relaxed, [false; 3], [false; 3]),
        ] {
            let mut c = Captures::default();
            c.begin(member(1), 7, capture, 100, &[]);
            for (i, mode) in [Global, ThreadLocal, Relaxed].into_iter().enumerate() {
                assert_eq!(!c.forbidding(7, mode).is_empty(), mine[i], "{capture:?} {mode:?}");
                assert_eq!(!c.forbidding(8, mode).is_empty(), others[i], "{capture:?} {mode:?}");
            }
        }
    }

    #[test]
    fn a_stream_joins_by_an_event_and_must_be_joined() {
        let mut c = Captures::default();
        let id = c.begin(member(1), 7, Mode::Global, 100, &[]);
        c.set_frontier(StreamKey(1), vec![11]);
        c.record(StreamKey(1), E);
        c.set_frontier(StreamKey(1), vec![12]);
        assert_eq!(c.wait(member(2), E, true, true), Waits::Captured);
        assert_eq!(c.frontier(StreamKey(2)), [11]);
        assert_eq!(c.wait(member(2), E, true, true), Waits::Captured);
        assert_eq!(c.frontier(StreamKey(2)), [11], "no node twice");
        c.set_frontier(StreamKey(2), vec![13]);
        let ended = c.end(id).expect("there");
        assert_eq!((ended.joined, ended.others, ended.valid), (vec![12], vec![13], true));
        assert_eq!(c.status(StreamKey(2)), Status::None);
        assert_eq!(c.wait(member(2), E, true, true), Waits::Captive, "its capture is over");
        c.record(StreamKey(2), E);
        assert_eq!(c.wait(member(1), E, true, true), Waits::Plainly);
        assert!(c.is_idle());
    }

    #[test]
    fn captures_do_not_mix() {
        let mut c = Captures::default();
        c.begin(member(1), 7, Mode::Global, 100, &[]);
        c.begin(member(2), 7, Mode::Global, 101, &[]);
        assert_eq!(c.wait(member(1), E, true, true), Waits::Isolation, "recorded outside");
        assert_eq!(c.wait(member(1), E, false, true), Waits::Plainly, "never recorded");
        c.record(StreamKey(1), E);
        assert_eq!(c.wait(member(2), E, true, true), Waits::Merge);
        assert_eq!(c.wait(member(3), E, true, false), Waits::Captive);
    }

    #[test]
    fn contexts_and_the_legacy_stream() {
        let mut c = Captures::default();
        let id = c.begin(member(21), 7, Mode::Relaxed, 100, &[]);
        assert_eq!((c.in_context(2, false), c.in_context(2, true)), (vec![id], vec![]));
        c.record(StreamKey(21), E);
        assert_eq!(c.wait(member(30), E, true, true), Waits::Captured);
        assert_eq!((c.in_context(3, false), c.in_context(3, true)), (vec![id], vec![id]));
        assert_eq!(c.context_gone(3), []);
        assert_eq!(c.status(StreamKey(21)), Status::Invalidated);
        assert_eq!(c.context_gone(2), [100]);
    }
}
