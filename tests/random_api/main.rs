//! Random programs of the whole C interface, on the simulated driver, with the happens-before checker
//! as the judge: whatever a program does that the header allows, its memory is its own, is ordered,
//! keeps what was written to it, and adds up.
//!
//! A program is a seed. `RANDOM_API=seed=7,steps=400 cargo test --test random_api replay -- --nocapture`
//! runs one alone and says each step; a program that fails is made shorter first, and printed so.
//! Seeds that failed once are kept in `seeds`, and run each time.

// Choices by a number's remainder read better so.
#![allow(clippy::manual_is_multiple_of, clippy::single_range_in_vec_init)]

#[macro_use]
#[path = "../machine/mod.rs"]
mod machine;

mod api;
mod host;
mod program;
mod run;
mod shrink;
mod tally;
mod world;

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use machine::Machine;
use program::{Program, Setting};
use tally::{REQUIRED, Tally};

/// The variable that tells a child which program it is to run.
const VARIABLE: &str = "RANDOM_API";
/// Says every step.
const SAY: &str = "RANDOM_API_SAY";
/// How long a program may take.
pub const SECONDS: &str = "RANDOM_API_SECONDS";
/// What a child says last.
const DONE: &str = "the program ran to its end";

/// Programs of the sample, steps of each, and how often each rung and fence has to be reached.
const SAMPLE: u64 = 2200;
const STEPS: u64 = 500;
const AT_LEAST: u64 = 100;

/// How a program went.
pub struct Went {
    /// To its end.
    pub well: bool,
    /// What it said.
    pub text: String,
    /// What it reached.
    pub tally: Tally,
}

impl Went {
    /// The step that failed, or the last that was said.
    pub fn failed_at(&self) -> Option<u64> {
        if let Some((_, after)) = self.text.split_once("failed at step ") {
            return after.lines().next()?.parse().ok();
        }
        let said = |line: &str| line.split_once(": Op {")?.0.parse().ok();
        self.text.lines().rev().find_map(said)
    }

    /// Why, in a line.
    pub fn why(&self) -> String {
        let mut lines = self.text.lines().skip_while(|line| !line.contains("panicked at"));
        let (place, why) = (lines.next().unwrap_or("it crashed"), lines.next().unwrap_or_default());
        let place = place.split("panicked at").last().unwrap_or(place);
        format!("{}: {why}", place.trim())
    }
}

/// Runs a program in a process of its own.
pub fn play(program: &Program, say: bool, seconds: u32) -> Went {
    let mut child = Command::new(std::env::current_exe().expect("this file"));
    child.env(SECONDS, seconds.to_string());
    child.args(["--exact", "child", "--nocapture", "--ignored", "--test-threads=1"]);
    child.env_remove("CUDDY_CONF").envs(Setting::of(program.seed).environment());
    child.env(VARIABLE, program.to_string());
    if say {
        child.env(SAY, "1");
    }
    let output = child.output().expect("this file runs");
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let well = output.status.success() && text.contains(DONE);
    Went { well, tally: Tally::of_text(&text), text }
}

/// The program's own process.
#[test]
#[ignore = "a part of the others, which run it in a process of its own"]
fn child() {
    let Ok(program) = std::env::var(VARIABLE) else { return };
    let program: Program = program.parse().expect("a program");
    let setting = Setting::of(program.seed);
    let machine: &'static Machine = Box::leak(Box::new(Machine::new()));
    // A program hangs only if something is wrong.
    let seconds = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok());
    machine.ends_within(seconds.unwrap_or(60));
    machine.use_device(0);
    let say = std::env::var_os(SAY).is_some();
    std::panic::set_hook(Box::new(|panic| {
        println!("failed at step {}", run::NOW.get());
        println!("{panic}");
    }));
    let mut run = run::Run::new(machine, setting, say);
    run.run(&program.ops(), program.steps / 2);
    println!("{}", run.tally.to_line());
    println!("{DONE}");
    std::process::exit(0);
}

/// Fails with the shortest program that fails, and how to repeat it.
fn report(program: &Program, went: &Went) -> String {
    let (shortest, went) = shrink::shortest(program, went);
    let command = |program: &Program| {
        format!("RANDOM_API={program} cargo test --test random_api replay -- --ignored --nocapture")
    };
    let steps = play(&shortest, true, 10).text;
    let last: Vec<&str> = steps.lines().filter(|line| !line.is_empty()).collect();
    let last = last[last.len().saturating_sub(60)..].join("\n");
    format!(
        "{}\n\n{:?}\nthe whole: {}\nshortened: {}\n\n{last}",
        went.why(),
        Setting::of(program.seed),
        command(program),
        command(&shortest),
    )
}

/// Runs programs, two at a time, and tells what they reached.
fn play_all(programs: &[Program]) -> (Tally, Option<(Program, Went)>) {
    let next = AtomicU64::new(0);
    let seen = Mutex::new((Tally::default(), None));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(program) =
                    programs.get(next.fetch_add(1, Ordering::Relaxed) as usize)
                {
                    let went = play(program, false, 60);
                    let seen = &mut *seen.lock().expect("nobody panics");
                    seen.0.join(&went.tally);
                    if !went.well && seen.1.is_none() {
                        seen.1 = Some((program.clone(), went));
                    }
                    if seen.1.is_some() {
                        return;
                    }
                }
            });
        }
    });
    seen.into_inner().expect("nobody panicked")
}

#[test]
fn a_sample_of_programs_reaches_everything_and_breaks_nothing() {
    let programs: Vec<Program> = (0..SAMPLE).map(|seed| Program::whole(seed, STEPS)).collect();
    let (tally, failed) = play_all(&programs);
    if let Some((program, went)) = failed {
        panic!("{}", report(&program, &went));
    }
    println!("{SAMPLE} programs of {STEPS} steps reached:\n{}", tally.table());
    for (what, meaning) in REQUIRED {
        let count = tally.0.get(what).copied().unwrap_or(0);
        assert!(count >= AT_LEAST, "{what} ({meaning}) was reached {count} times");
    }
}

#[test]
fn seeds_that_failed_once() {
    let kept = include_str!("seeds").lines().filter(|line| !line.starts_with('#'));
    let programs: Vec<Program> = kept
        .filter_map(|line| line.split_whitespace().next())
        .map(|text| text.parse().expect("a program"))
        .collect();
    assert!(!programs.is_empty());
    if let (_, Some((program, went))) = play_all(&programs) {
        panic!("{}", report(&program, &went));
    }
}

/// `RANDOM_API=seed=7,steps=400 cargo test --test random_api replay -- --ignored --nocapture`
#[test]
#[ignore = "repeats one program"]
fn replay() {
    let text = std::env::var(VARIABLE).expect("RANDOM_API=seed=...,steps=... says which");
    let program: Program = text.parse().expect("a program");
    println!("{:?}", Setting::of(program.seed));
    let went = play(&program, true, 10);
    println!("{}", went.text);
    assert!(went.well, "{}", went.why());
}

/// `cargo test --release --test random_api long -- --ignored --nocapture`: ten minutes, or as many as
/// `RANDOM_API_MINUTES` says, of seeds that nobody has seen (from `RANDOM_API_FIRST` on).
#[test]
#[ignore = "ten minutes"]
fn long() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let minutes = number("RANDOM_API_MINUTES").unwrap_or(10);
    let clock = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let first = number("RANDOM_API_FIRST").unwrap_or(clock << 16);
    let (begun, mut tally, mut programs) = (Instant::now(), Tally::default(), 0);
    println!("RANDOM_API_FIRST={first}");
    while begun.elapsed() < Duration::from_secs(60 * minutes) {
        let batch: Vec<Program> =
            (0..32).map(|at| Program::whole(first + programs + at, STEPS)).collect();
        let (reached, failed) = play_all(&batch);
        if let Some((program, went)) = failed {
            panic!("{}", report(&program, &went));
        }
        tally.join(&reached);
        programs += batch.len() as u64;
    }
    let seconds = begun.elapsed().as_secs();
    println!("{programs} programs of {STEPS} steps in {seconds} s reached:\n{}", tally.table());
}

/// `RANDOM_API=seed=7,steps=400 cargo test --test random_api shorten -- --ignored --nocapture`
#[test]
#[ignore = "makes one program that fails shorter"]
fn shorten() {
    let text = std::env::var(VARIABLE).expect("RANDOM_API=seed=...,steps=... says which");
    let program: Program = text.parse().expect("a program");
    let went = play(&program, false, 10);
    assert!(!went.well, "it does not fail");
    println!("{}", report(&program, &went));
}
