//! The judge is judged: the checker's verdict on random programs equals that of a brute-force
//! reference, wrong programs are each reported once and their mended twins not at all, and faults put
//! into the checker are caught by these tests. The scheduler is held to the same graph.

mod drive;
mod program;
mod reference;

use drive::{Finding, Outcome, run};
use program::{Dice, Program};
use reference::{Graph, has_race, verdict};
use simcuda::checker::{Flaw, Sound};
use simcuda::engine::Schedule::{self, Eager, Lag, Lazy, Random};

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
