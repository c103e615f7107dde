//! The scheduler is held to the reference's graph: whatever it does, work runs once, after all that
//! comes before it, and a wait is over only when what it waited for has run.

use crate::drive::{Outcome, run};
use crate::program::{Act, Dice, Program, random};
use crate::reference::Graph;
use crate::schedules;
use simcuda::checker::Sound;
use simcuda::engine::Schedule::{self, Lag, Lazy, Random};
use std::collections::BTreeSet;

fn works(program: &Program) -> impl Iterator<Item = usize> {
    let is_work = |&i: &usize| matches!(program.steps[i].act, Act::Work { .. });
    (0..program.steps.len()).filter(is_work)
}

/// Did the host wait for something in this step?
fn waited(program: &Program, outcome: &Outcome, step: usize) -> bool {
    matches!(program.steps[step].act, Act::Sync { .. }) || outcome.answers[step]
}

fn check(program: &Program, schedule: Schedule, outcome: &Outcome, graph: &Graph) {
    let what = || format!("{program:#?}\n{schedule:?}\nran {:?}", outcome.ran);
    let ran: BTreeSet<usize> = outcome.ran.iter().copied().collect();
    assert!(ran.len() == outcome.ran.len() && ran == works(program).collect(), "{}", what());
    for (i, &early) in outcome.ran.iter().enumerate() {
        for &late in &outcome.ran[i..] {
            assert!(!graph.comes_before(late, early), "{early} before {late}: {}", what());
        }
    }
    let mut asked = BTreeSet::new();
    for step in 0..program.steps.len() {
        let done = &outcome.ran[..outcome.ran_by[step]];
        if waited(program, outcome, step) {
            let needed: Vec<_> = works(program).filter(|&w| graph.comes_before(w, step)).collect();
            assert!(needed.iter().all(|w| done.contains(w)), "step {step}: {}", what());
            asked.extend(needed);
        }
        match schedule {
            Lazy => assert!(done.iter().all(|w| asked.contains(w)), "unasked: {}", what()),
            Schedule::Eager => assert_eq!(outcome.pending_by[step], 0, "{}", what()),
            Lag(k) => assert!(outcome.pending_by[step] as u64 <= k, "too far: {}", what()),
            Random(_) => {}
        }
    }
}

#[test]
fn every_schedule_keeps_the_order_and_its_own_promise() {
    let mut dice = Dice::new(2);
    for seed in 0..30_000 {
        let program = random(&mut dice);
        for schedule in schedules(seed) {
            let outcome = run(&program, schedule, Sound);
            let graph = Graph::of(&program, &outcome.answers);
            check(&program, schedule, &outcome, &graph);
        }
    }
}

#[test]
fn a_seed_reproduces_a_run_and_another_differs() {
    let mut dice = Dice::new(3);
    let (mut orders, mut ready) = (0, 0);
    for seed in 0..5000 {
        let program = random(&mut dice);
        let once = run(&program, Random(seed), Sound);
        let again = run(&program, Random(seed), Sound);
        assert_eq!((&once.ran, &once.ran_by), (&again.ran, &again.ran_by));
        assert_eq!(once.answers, again.answers);
        let other = run(&program, Random(seed + 1_000_000), Sound);
        orders += u32::from(other.ran != once.ran);
        ready += u32::from(other.ran_by != once.ran_by);
    }
    assert!(orders > 500 && ready > 2000, "{orders} other orders, {ready} at other times");
}
