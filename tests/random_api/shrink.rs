//! Makes a program that fails shorter: steps are left out as long as it goes on failing.

use crate::program::Program;
use crate::{Went, play};

/// Programs that are tried.
const TRIES: u32 = 150;

/// The shortest that was found, and how it fails.
pub fn shortest(program: &Program, went: &Went) -> (Program, Went) {
    let mut numbers: Vec<u64> = program.ops().iter().map(|(number, _)| *number).collect();
    let said = if went.failed_at().is_none() { play(program, true, 10) } else { again(went) };
    if let Some(last) = said.failed_at() {
        numbers.retain(|number| *number <= last);
    }
    let mut best = (program.clone(), again(went));
    let mut tries = 0;
    let mut attempt = |numbers: &[u64], best: &mut (Program, Went)| {
        tries += 1;
        let shorter = program.with(numbers);
        let went = play(&shorter, false, 3);
        let fails = !went.well && tries <= TRIES;
        if fails {
            *best = (shorter, went);
        }
        (fails, tries < TRIES)
    };
    if !attempt(&numbers, &mut best).0 {
        return best;
    }
    let mut part = numbers.len().div_ceil(2);
    while part > 0 {
        let mut at = 0;
        while at < numbers.len() {
            let end = (at + part).min(numbers.len());
            let without: Vec<u64> = [&numbers[..at], &numbers[end..]].concat();
            let (fails, go_on) = attempt(&without, &mut best);
            if !go_on {
                return best;
            }
            match fails {
                true => numbers = without,
                false => at = end,
            }
        }
        part = if part == 1 { 0 } else { part.div_ceil(2) };
    }
    best
}

fn again(went: &Went) -> Went {
    Went { well: went.well, text: went.text.clone(), tally: went.tally.clone() }
}
