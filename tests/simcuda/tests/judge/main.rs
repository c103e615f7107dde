//! The judge is judged: the checker's verdict on random programs equals that of a brute-force
//! reference, wrong programs are each reported once and their mended twins not at all, and faults put
//! into the checker are caught by these tests. The scheduler is held to the same graph.

mod drive;
mod engine;
mod planted;
mod program;
mod reference;
mod schedule;
mod speed;

use drive::{Finding, Outcome, run};
use planted::Case;
use program::{Dice, Program};
use reference::{Graph, has_race, verdict};
use simcuda::checker::{ALL_FAULTS, Flaw, Planted, Sound};
use simcuda::engine::Schedule::{self, Eager, Lag, Lazy, Random};
use std::collections::BTreeSet;

/// Random programs compared.
const PROGRAMS: u64 = 100_000;

fn schedules(seed: u64) -> [Schedule; 4] {
    [Eager, Lazy, Lag(seed % 5), Random(seed)]
}

/// Runs one program; the error says how the checker differs from the reference.
fn compare<F: Flaw>(program: &Program, schedule: Schedule, flaw: F) -> Result<Outcome, String> {
    let outcome = run(program, schedule, flaw);
    let graph = Graph::of(program, &outcome.answers);
    let due: Vec<Finding> = verdict(program, &graph).into_iter().collect();
    let mut found = outcome.findings.clone();
    found.sort_unstable();
    if found != due {
        return Err(format!("{program:#?}\n{schedule:?}\nreported {found:?}\nexpected {due:?}"));
    }
    if found.is_empty() == has_race(program, &graph) {
        return Err(format!("{program:#?}\na race without report, or the reverse: {found:?}"));
    }
    Ok(outcome)
}

#[test]
fn the_verdict_on_random_programs_is_that_of_brute_force() {
    let mut dice = Dice::new(1);
    let (mut with, mut without, mut done, mut not_ready) = (0, 0, 0, 0);
    for seed in 0..PROGRAMS {
        let program = program::random(&mut dice);
        let all = schedules(seed);
        let some = if seed % 8 == 0 { &all[..] } else { &all[seed as usize % 4..][..1] };
        for &schedule in some {
            let outcome = compare(&program, schedule, Sound).unwrap_or_else(|e| panic!("{e}"));
            *(if outcome.findings.is_empty() { &mut without } else { &mut with }) += 1;
            for (step, answer) in program.steps.iter().zip(&outcome.answers) {
                let query = matches!(step.act, program::Act::Query { .. });
                done += u64::from(query && *answer);
                not_ready += u64::from(query && !answer);
            }
        }
    }
    println!("{with} runs with reports, {without} without; queries: {done} done, {not_ready} not");
    assert!(with > 10_000 && without > 10_000, "{with} runs with reports, {without} without");
    assert!(done > 1000 && not_ready > 1000, "queries: {done} done, {not_ready} not ready");
}

/// Checks a wrong program and its mended twin; the error says what is wrong with the checker.
fn check_case<F: Flaw>(case: &Case, flaw: F) -> Result<(), String> {
    let fail = |what: String| Err(format!("{}: {what}", case.name));
    let wrong = compare(&case.wrong, case.schedule, flaw)?;
    let [report] = &wrong.reports[..] else {
        return fail(format!("{} reports: {:#?}", wrong.reports.len(), wrong.reports));
    };
    if wrong.findings[0] != (case.sides.0, case.sides.1, case.kind) {
        return fail(format!("wrong sides: {report}"));
    }
    if (report.offset, report.bytes) != case.range {
        return fail(format!("wrong bytes: {report}"));
    }
    for (side, step) in [(&report.first, case.sides.0), (&report.second, case.sides.1)] {
        let thread = 70 + case.wrong.steps[step].thread;
        let by = match wrong.streams[step] {
            0 => format!("by host thread {thread} itself"),
            stream => format!("stream {stream}, submitted by host thread {thread}"),
        };
        let named = side.contains(&format!("work{step} (")) && side.contains(&by);
        if !named || !report.to_string().contains(side) {
            return fail(format!("a side is not named: {report}"));
        }
    }
    let mended = compare(&case.mended, case.schedule, flaw)?;
    if !mended.reports.is_empty() {
        return fail(format!("mended, but reported: {:#?}", mended.reports));
    }
    Ok(())
}

#[test]
fn each_wrong_program_is_reported_once_and_its_mended_twin_is_silent() {
    let cases = planted::cases();
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name).collect();
    assert!(names.len() >= 30, "{} kinds of mistakes", names.len());
    let wrong: Vec<String> = cases.iter().filter_map(|c| check_case(c, Sound).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn each_fault_in_the_checker_is_caught() {
    let cases = planted::cases();
    let mut missed = Vec::new();
    for fault in ALL_FAULTS {
        let flaw = Planted(fault);
        let planted = cases.iter().filter(|case| check_case(case, flaw).is_err()).count();
        let mut dice = Dice::new(1);
        let random = (1..=PROGRAMS).find(|&seed| {
            let program = program::random(&mut dice);
            compare(&program, schedules(seed)[seed as usize % 4], flaw).is_err()
        });
        println!("{fault:?}: {planted} planted programs, random program {random:?}");
        if planted == 0 && random.is_none() {
            missed.push(fault);
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
