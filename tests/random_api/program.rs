//! Programs: a seed gives a machine, a configuration and a list of steps. Any part of the list is a
//! program too, so that one that fails can be made shorter.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::machine::{MIB, Random};

/// What a step does; its numbers decide the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Malloc,
    Use,
    Free,
    NoteWait,
    Misuse,
    Trim,
    Limit,
    Synchronize,
    Stream,
    ThreadEnds,
    Pool,
    Graph,
    Look,
    Fault,
}

/// How often each comes, in a hundred steps or so.
const WEIGHTS: [(Kind, u64); 14] = [
    (Kind::Malloc, 34),
    (Kind::Use, 16),
    (Kind::Free, 22),
    (Kind::NoteWait, 3),
    (Kind::Misuse, 2),
    (Kind::Trim, 1),
    (Kind::Limit, 1),
    (Kind::Synchronize, 1),
    (Kind::Stream, 5),
    (Kind::ThreadEnds, 1),
    (Kind::Pool, 5),
    (Kind::Graph, 6),
    (Kind::Look, 2),
    (Kind::Fault, 3),
];

/// One step.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub kind: Kind,
    pub a: u64,
    pub b: u64,
    pub c: u64,
}

/// The machine and the configuration of a program.
#[derive(Clone, Debug)]
pub struct Setting {
    pub schedule: String,
    pub pages: bool,
    pub share: &'static str,
    /// The program destroys no stream, and says so.
    pub trusted: bool,
    pub caching: bool,
    pub driver: u32,
    pub limit: u64,
    /// Driver calls fail now and then.
    pub faults: bool,
    /// The device is reset in the middle, and at the end.
    pub resets: bool,
    pub threads: usize,
    /// Graphs are captured by the driver, and not played.
    pub captures: bool,
    /// Somebody observes, and frees blocks where memory is out.
    pub observes: bool,
    /// Half of the streams are opened as capturable: nobody tells of their captures.
    pub finds: bool,
    /// Blocks are watched, some have tags, and pins and ticks come in between.
    pub watches: bool,
}

fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

impl Setting {
    pub fn of(seed: u64) -> Self {
        let random = &mut Random(seed ^ 0x5e77_1265);
        let number = random.below(1000);
        let any = format!("random:{number}");
        let schedule = pick(random, &["lazy", "lazy", "lag:4", "lag:60", "eager", &any, &any]);
        let driver = pick(random, &[13000, 13000, 12080, 12050, 12000, 11040]);
        let caching = random.below(24) > 0;
        Self {
            schedule: schedule.to_owned(),
            // With caching off there are only segments.
            pages: random.below(4) > 0 && caching,
            share: pick(random, &["wait", "wait", "wait", "wait", "passed", "never"]),
            trusted: random.below(8) == 0,
            caching,
            driver,
            limit: MIB * pick(random, &[48, 64, 64, 96, 160]),
            faults: random.below(4) == 0,
            // Older drivers do not say that a context is another one.
            resets: random.below(8) == 0 && driver >= 12000,
            threads: 1 + random.below(3) as usize,
            captures: random.below(2) == 0,
            observes: random.below(3) == 0,
            finds: random.below(2) == 0,
            watches: random.below(4) == 0,
        }
    }

    /// Whether every stream has to be opened: the driver cannot tell a handle's streams apart.
    pub fn opens_all(&self) -> bool {
        self.driver < 12000 && !self.trusted
    }

    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let word = |on: bool, yes: &'static str, no: &'static str| if on { yes } else { no };
        let configuration = format!(
            "memory_limit:{}MiB,share:{},streams:{},caching:{}",
            self.limit / MIB,
            self.share,
            word(self.trusted, "trusted", "checked"),
            word(self.caching, "on", "off"),
        );
        vec![
            ("SIMCUDA_SCHEDULE", self.schedule.clone()),
            ("SIMCUDA_CHECKER", "log".to_owned()),
            ("SIMCUDA_MEMORY", "1GiB".to_owned()),
            ("SIMCUDA_VMM", word(self.pages, "1", "0").to_owned()),
            ("SIMCUDA_DRIVER", self.driver.to_string()),
            ("CUDDY_CONF", configuration),
        ]
    }
}

/// Which program, and which of its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pub seed: u64,
    pub steps: u64,
    /// The steps that are done, by number.
    pub kept: Vec<Range<u64>>,
    /// Host threads that run free; 0: one at a time.
    pub free_threads: u64,
}

impl Program {
    pub fn whole(seed: u64, steps: u64) -> Self {
        Self { seed, steps, kept: vec![0..steps], free_threads: 0 }
    }

    pub fn of_threads(seed: u64, steps: u64, free_threads: u64) -> Self {
        Self { free_threads, ..Self::whole(seed, steps) }
    }

    /// The steps that are done, with their numbers.
    pub fn ops(&self) -> Vec<(u64, Op)> {
        let mut random = Random(self.seed);
        let sum: u64 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let all = (0..self.steps).map(|number| {
            let mut at = random.below(sum);
            let found = WEIGHTS.iter().find(|(_, weight)| {
                let here = at < *weight;
                at = at.saturating_sub(*weight);
                here
            });
            let kind = found.expect("below the sum").0;
            (number, Op { kind, a: random.next(), b: random.next(), c: random.next() })
        });
        all.filter(|(number, _)| self.kept.iter().any(|range| range.contains(number))).collect()
    }

    /// The same with these of its steps alone, in their order.
    pub fn with(&self, numbers: &[u64]) -> Self {
        let mut kept: Vec<Range<u64>> = Vec::new();
        for &number in numbers {
            match kept.last_mut() {
                Some(last) if last.end == number => last.end += 1,
                _ => kept.push(number..number + 1),
            }
        }
        Self { kept, ..self.clone() }
    }
}

/// `seed=7,steps=600,keep=0-99.104` and, for free threads, `threads=4`.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed={},steps={}", self.seed, self.steps)?;
        if self.free_threads > 0 {
            write!(f, ",threads={}", self.free_threads)?;
        }
        if self.kept.len() == 1 && self.kept[0] == (0..self.steps) {
            return Ok(());
        }
        let mut between = ",keep=";
        for range in &self.kept {
            match range.end - range.start {
                1 => write!(f, "{between}{}", range.start)?,
                _ => write!(f, "{between}{}-{}", range.start, range.end - 1)?,
            }
            between = ".";
        }
        Ok(())
    }
}

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
        let mut program = Self::whole(0, 600);
        let mut kept = None;
        for part in text.split(',') {
            match part.split_once('=') {
                Some(("seed", value)) => program.seed = number(value)?,
                Some(("steps", value)) => program.steps = number(value)?,
                Some(("threads", value)) => program.free_threads = number(value)?,
                Some(("keep", value)) => {
                    let range = |text: &str| match text.split_once('-') {
                        Some((first, last)) => Ok(number(first)?..number(last)? + 1),
                        None => number(text).map(|only| only..only + 1),
                    };
                    kept = Some(value.split('.').map(range).collect::<Result<Vec<_>, String>>()?);
                }
                _ => return Err(format!("\"{part}\" is not seed=, steps=, threads= or keep=")),
            }
        }
        program.kept = kept.unwrap_or_else(|| vec![0..program.steps]);
        Ok(program)
    }
}
