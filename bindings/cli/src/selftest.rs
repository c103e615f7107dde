//! The self-test: deliberate mistakes of a replay, each of which must be reported.
//!
//! A replay that finds nothing wrong says something only if it would have found it. So one written
//! byte is flipped, one wait of a stream for another is dropped, and one block is freed while it
//! is still in use, each in a replay of its own; and a replay without mistakes must be clean.

use serde::{Deserialize, Serialize};

use crate::child;
use crate::job::{Job, Source};
use crate::report::Report;
use crate::trace::{Event, Slot, Trace};

/// One deliberate mistake; events are indices into the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sabotage {
    /// Flip one written byte of the block that this event frees, just before.
    FlipByte {
        /// The free.
        before: usize,
    },
    /// Leave this wait out.
    DropWait {
        /// The wait.
        event: usize,
    },
    /// Free the block in this slot after that event, and go on using it.
    EarlyFree {
        /// Where the block is kept.
        slot: Slot,
        /// The event after which it is freed.
        after: usize,
    },
}

/// The trace used when none is given: two streams that pass buffers to each other.
const SAMPLE: &str = "\
# gputrace 1
# name: self-test
m step_0
a 0 4194304 1
a 1 65536 1
s 0 1
r 0 0
r 1 0
a 2 8388608 0
a 3 100000 0
f 1 1
f 0 1
a 0 4194304 1
s 0 1
r 0 0
f 3 0
a 3 100000 0
f 2 0
a 2 8388608 0
y
f 0 1
f 2 0
a 0 2000000 0
a 1 700000 0
a 2 2000000 0
f 1 0
f 0 0
f 3 0
f 2 0
y
";

/// The trace used when none is given.
pub fn sample() -> Trace {
    let trace = crate::trace::read(SAMPLE.as_bytes(), "self-test");
    trace.expect("the text above is well formed, as a test shows")
}

/// The free of the largest block: its byte is the one to flip.
pub fn plan_flip(trace: &Trace) -> Option<Sabotage> {
    let mut bytes = vec![0; trace.slots as usize];
    let mut largest: Option<(u64, usize)> = None;
    for (index, event) in trace.events.iter().enumerate() {
        match *event {
            Event::Alloc { slot, bytes: asked, .. } => bytes[slot as usize] = asked,
            Event::Free { slot, .. }
                if largest.is_none_or(|(most, _)| bytes[slot as usize] > most) =>
            {
                largest = Some((bytes[slot as usize], index));
            }
            _ => {}
        }
    }
    largest.map(|(_, before)| Sabotage::FlipByte { before })
}

/// A wait that alone orders a use on the waiting stream after the writing of a block: between the
/// two nothing else can order them.
pub fn plan_wait(trace: &Trace) -> Option<Sabotage> {
    let events = &trace.events;
    let waits = events.iter().enumerate().filter_map(|(index, event)| match *event {
        Event::Wait { waiter, awaited } if waiter != awaited => Some((index, waiter, awaited)),
        _ => None,
    });
    for (wait, waiter, awaited) in waits {
        // Blocks that the awaited stream wrote since the last thing that could order the two.
        let orders = |event: &Event| match *event {
            Event::Wait { waiter: other, .. } => other == waiter,
            Event::Alloc { .. } | Event::Record { .. } | Event::Marker { .. } => false,
            Event::Free { .. } | Event::Synchronize | Event::EmptyCache => true,
        };
        let since = events[..wait].iter().rposition(orders).map_or(0, |last| last + 1);
        let written: Vec<Slot> = events[since..wait]
            .iter()
            .filter_map(|event| match *event {
                Event::Alloc { slot, stream, .. } if stream == awaited => Some(slot),
                _ => None,
            })
            .collect();
        let after = events[wait + 1..].iter().take_while(|event| !orders(event));
        let used = |event: &Event| match *event {
            Event::Record { slot, stream } => stream == Some(waiter) && written.contains(&slot),
            _ => false,
        };
        if after.into_iter().any(used) {
            return Some(Sabotage::DropWait { event: wait });
        }
    }
    None
}

/// A block, freed just before the next block of its size is asked for on its stream.
pub fn plan_free(trace: &Trace) -> Option<Sabotage> {
    let mut live: Vec<Option<(u64, u32, usize)>> = vec![None; trace.slots as usize];
    for (index, event) in trace.events.iter().enumerate() {
        match *event {
            Event::Alloc { slot, stream, bytes } => {
                let twin = |block: &Option<(u64, u32, usize)>| {
                    block.is_some_and(|(size, on, born)| {
                        (size, on) == (bytes, stream) && bytes >= 512 && born + 1 < index
                    })
                };
                if let Some(twin) = live.iter().position(twin) {
                    return Some(Sabotage::EarlyFree { slot: twin as Slot, after: index - 1 });
                }
                live[slot as usize] = Some((bytes, stream, index));
            }
            Event::Free { slot, .. } => live[slot as usize] = None,
            _ => {}
        }
    }
    None
}

/// What became of one mistake.
pub struct Row {
    /// What was done.
    pub mistake: String,
    /// Whether it was reported; for the replay without mistakes, whether nothing was.
    pub as_it_should: bool,
    /// What was reported, in full.
    pub reported: String,
}

/// Replays without a mistake and with each of the three.
pub fn run(job: &Job) -> Result<Vec<Row>, String> {
    let trace = job.source.open().map_err(|error| format!("{}: {error}", job.source.label()))?;
    let line = |event: usize| format!("line {}", trace.lines[event]);
    let mut rows = vec![control(&child::run(job)?)];
    let flip = plan_flip(&trace);
    let wait = plan_wait(&trace);
    let free = plan_free(&trace);
    for (name, plan) in [("a flipped byte", flip), ("a dropped `s`", wait), ("an early free", free)]
    {
        let Some(sabotage) = plan else {
            let why = "this trace has no place for it: give a trace with two streams and `s` lines, or none";
            rows.push(Row {
                mistake: name.to_owned(),
                as_it_should: false,
                reported: why.to_owned(),
            });
            continue;
        };
        let at = match sabotage {
            Sabotage::FlipByte { before: event } | Sabotage::DropWait { event } => line(event),
            Sabotage::EarlyFree { after, .. } => line(after),
        };
        let report = child::run(&Job { sabotage: Some(sabotage), ..job.clone() })?;
        rows.push(mistake(&format!("{name} ({at})"), &sabotage, &report));
    }
    Ok(rows)
}

fn control(report: &Report) -> Row {
    let accesses = report.accesses_checked.unwrap_or(0);
    let reported = match report.clean() {
        true => format!("nothing, as it should be ({accesses} accesses checked)"),
        false => findings(report),
    };
    Row { mistake: "no mistake".to_owned(), as_it_should: report.clean() && accesses > 0, reported }
}

fn mistake(name: &str, sabotage: &Sabotage, report: &Report) -> Row {
    let complaints = report.checker_reports.unwrap_or(0);
    let caught = match sabotage {
        // Each must be seen by the part of the judge that is there for it.
        Sabotage::FlipByte { .. } => report.corrupt_blocks > 0,
        Sabotage::DropWait { .. } => complaints > 0,
        Sabotage::EarlyFree { .. } => report.corrupt_blocks > 0 || complaints > 0,
    };
    Row { mistake: name.to_owned(), as_it_should: caught, reported: findings(report) }
}

/// The first finding in full, a second if both are short, and how many more there were.
fn findings(report: &Report) -> String {
    let other = report.error.iter().chain(&report.wrong_counters);
    let all: Vec<&str> = report.findings.iter().chain(other).map(String::as_str).collect();
    let short = all.iter().take(2).all(|finding| finding.lines().count() == 1);
    let shown = all.len().min(if short { 2 } else { 1 });
    let seen =
        report.corrupt_blocks + report.misplaced_blocks + report.checker_reports.unwrap_or(0);
    let more = seen.max(all.len() as u64) - shown as u64;
    match (all[..shown].join("\n"), more) {
        (_, _) if all.is_empty() => "nothing".to_owned(),
        (text, 0) => text,
        (text, more) => format!("{text}\nand {more} more"),
    }
}

/// The job of the self-test when no trace is given.
pub fn default_source() -> Source {
    Source::Sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_has_a_place_for_every_mistake() {
        let trace = sample();
        let line = |event: usize| trace.lines[event];
        match plan_flip(&trace) {
            Some(Sabotage::FlipByte { before }) => assert_eq!(line(before), 18),
            other => panic!("{other:?}"),
        }
        match plan_wait(&trace) {
            Some(Sabotage::DropWait { event }) => assert_eq!(line(event), 6),
            other => panic!("{other:?}"),
        }
        let twins = "# gputrace 1\na 0 512 0\na 1 100 0\na 2 512 0\n";
        let trace = crate::trace::read(twins.as_bytes(), "t").expect("well formed");
        assert_eq!(plan_free(&trace), Some(Sabotage::EarlyFree { slot: 0, after: 1 }));
    }

    #[test]
    fn a_wait_that_something_else_replaces_is_not_chosen() {
        for between in ["y\n", "s 0 1\n", "a 5 1 0\nf 5 0\n"] {
            let text = format!("# gputrace 1\na 0 512 1\ns 0 1\n{between}r 0 0\n");
            let trace = crate::trace::read(text.as_bytes(), "t").expect("well formed");
            let chosen = plan_wait(&trace);
            assert_ne!(chosen, Some(Sabotage::DropWait { event: 1 }), "{between:?}");
        }
    }
}
