//! The **verdict** on a run: what was found, and how much was looked at.
//!
//! A run is called clean only if something was checked, nothing was found, and every process was seen
//! to its end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

use super::journal::{End, Journal, Process};
use super::wait::Status;
use crate::cli::SimArgs;
use crate::table::{Table, bytes_text, count_text, time_text};

/// Findings printed to stderr; a report file has them all.
const SHOWN: usize = 20;

/// Says one thing on stderr. A stderr that cannot be written to is no reason to fail.
pub fn line(command: &str, text: &str) {
    let _ = writeln!(std::io::stderr(), "cuddy {command}: {text}");
}

/// Says what there is to say, writes the report file if one is asked for; answers the exit code.
pub fn say(args: &SimArgs, journal: &Journal, status: Status) -> Result<u8, String> {
    let processes = &journal.processes;
    let sums = Sums::of(processes);
    let said_at_the_end = sums.verdict(args, journal, status);
    let mut text = String::new();
    if args.report.is_none() {
        text += &findings(processes, SHOWN);
    }
    if args.calls && args.report.is_none() {
        text += &calls(processes);
    }
    if args.time && args.report.is_none() {
        text += &times(processes);
    }
    for said in &said_at_the_end {
        let _ = writeln!(text, "cuddy sim: {said}");
    }
    let _ = std::io::stderr().write_all(text.as_bytes());
    if let Some(file) = &args.report {
        let text = match file.extension().is_some_and(|it| it == "jsonl") {
            true => json(processes)?,
            false => whole(processes, &said_at_the_end),
        };
        std::fs::write(file, text)
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    Ok(match status.code() {
        _ if sums.findings > 0 => super::FOUND,
        0 if sums.accesses < args.require_checked => super::TOO_LITTLE,
        code => code,
    })
}

fn whole(processes: &[Process], verdict: &[String]) -> String {
    let mut text = findings(processes, usize::MAX);
    text += &calls(processes);
    text += &times(processes);
    text += &(verdict.join("\n") + "\n");
    text
}

fn json(processes: &[Process]) -> Result<String, String> {
    let lines = processes.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>();
    lines.map(|lines| lines.join("\n") + "\n").map_err(|error| error.to_string())
}

/// All processes together.
#[derive(Default)]
struct Sums {
    processes: usize,
    unfinished: usize,
    unchecked: usize,
    findings: u64,
    accesses: u64,
    unknown_launches: u64,
    /// Of which kernels they were.
    unknown: BTreeMap<String, u64>,
    faults: u64,
}

impl Sums {
    fn of(processes: &[Process]) -> Self {
        let mut sums = Self { processes: processes.len(), ..Self::default() };
        for process in processes {
            sums.findings += process.findings().len() as u64;
            let Some(end) = &process.end else {
                sums.unfinished += 1;
                sums.unchecked += usize::from(process.checker == "off");
                continue;
            };
            sums.unchecked += usize::from(end.checker == "off" && end.accesses == 0);
            sums.findings += end.left_out;
            sums.accesses += end.accesses;
            sums.unknown_launches += end.unknown_launches;
            for (name, count) in &end.unknown {
                *sums.unknown.entry(name.clone()).or_default() += count;
            }
            sums.faults += end.faults;
        }
        sums
    }

    fn verdict(&self, args: &SimArgs, journal: &Journal, status: Status) -> Vec<String> {
        let accesses = counted(self.accesses, "access", "accesses");
        let mut lines = Vec::new();
        if self.processes == 0 {
            lines.push(super::nobody::why(args, journal));
        } else if self.findings > 0 {
            let findings = counted(self.findings, "finding", "findings");
            let of = match self.accesses {
                0 => String::new(),
                _ => format!(" in {accesses} checked"),
            };
            lines.push(format!(
                "{findings}{of}; exit code {} (the program ended with {})",
                super::FOUND,
                status.text()
            ));
        } else if self.unchecked == self.processes {
            lines.push("NOT CHECKED: the checker was off".to_owned());
        } else if self.accesses == 0 && self.unfinished == 0 {
            lines.push(format!("NOT CHECKED: no access to memory was seen{}", self.in_processes()));
        } else if self.unchecked + self.unfinished > 0 {
            lines.push(format!("nothing found in {accesses} checked, but not all was checked"));
        } else {
            lines.push(format!("clean: {accesses} checked{}", self.in_processes()));
        }
        if 0 < self.unchecked && self.unchecked < self.processes {
            lines.push(format!(
                "in {} the checker was off",
                counted(self.unchecked as u64, "process", "processes")
            ));
        }
        if self.unfinished > 0 {
            lines.push(format!(
                "{} not judged to the end: killed, left by _exit, became another program, or still runs",
                counted(self.unfinished as u64, "process was", "processes were")
            ));
        }
        if self.unknown_launches > 0 {
            let launches = counted(
                self.unknown_launches,
                "launch of a kernel that the checker does not know",
                "launches of kernels that the checker does not know",
            );
            lines.push(format!("{launches}: what these touched was not checked"));
            lines.extend(self.unknown_names());
        }
        lines.extend(super::nobody::notes(journal));
        if self.accesses < args.require_checked {
            lines.push(format!(
                "TOO LITTLE CHECKED: {accesses}, and --require-checked asks for {}",
                count_text(args.require_checked)
            ));
        }
        let asked_for = args.faults.is_some() && journal.refused.is_empty();
        if asked_for && self.faults == 0 && self.unfinished == 0 {
            lines.push(
                "no call was made to fail: --faults names calls that were not made".to_owned(),
            );
        }
        lines
    }

    /// The kernels launched most, and what to do about them.
    fn unknown_names(&self) -> Option<String> {
        const SHOWN: usize = 5;
        let mut names: Vec<_> = self.unknown.iter().collect();
        names.sort_by_key(|&(name, count)| (std::cmp::Reverse(*count), name));
        let shown = names.iter().take(SHOWN);
        let shown: Vec<_> =
            shown.map(|(name, count)| format!("\n  {} of {name}", count_text(**count))).collect();
        let more = match names.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!("\n  and {}", counted(more as u64, "other kernel", "other kernels")),
        };
        let list = shown.concat();
        (!list.is_empty())
            .then(|| format!("--kernels FILE says what a kernel uses; not known are{list}{more}"))
    }

    fn in_processes(&self) -> String {
        match self.processes {
            1 => String::new(),
            several => format!(" in {several} processes"),
        }
    }
}

/// `1 access`, `2 468 accesses`.
fn counted(count: u64, one: &str, several: &str) -> String {
    format!("{} {}", count_text(count), if count == 1 { one } else { several })
}

/// The first findings, by process where there are several.
fn findings(processes: &[Process], most: usize) -> String {
    let mut text = String::new();
    let (mut number, mut all) = (0, 0);
    for process in processes {
        let found = process.findings();
        all += found.len();
        if !found.is_empty() && processes.len() > 1 && number < most {
            let _ = writeln!(text, "process {}: {}", process.number, process.program);
        }
        for finding in found.iter().take(most.saturating_sub(number)) {
            number += 1;
            let _ = writeln!(text, "[{number}] {finding}");
        }
    }
    if all > number {
        let _ = writeln!(text, "... and {} more (--report FILE has them all)", all - number);
    }
    text
}

fn ends(processes: &[Process]) -> impl Iterator<Item = (&Process, &End)> {
    processes.iter().filter_map(|process| Some((process, process.end.as_ref()?)))
}

/// Calls by function, of all processes.
fn calls(processes: &[Process]) -> String {
    let mut sums = BTreeMap::<&str, u64>::new();
    for (name, count) in ends(processes).flat_map(|(_, end)| &end.calls) {
        *sums.entry(name).or_default() += count;
    }
    let mut table = Table::new(["driver function", "calls"]);
    for (name, count) in &sums {
        table.row([(*name).to_owned(), count_text(*count)]);
    }
    table.row(["all".to_owned(), count_text(sums.values().sum())]);
    table.text()
}

/// Virtual time and memory, a line a process and device.
fn times(processes: &[Process]) -> String {
    let heads = ["process", "virtual time", "in driver calls", "device", "most in use", "of"];
    let mut table = Table::new(heads);
    for (process, end) in ends(processes) {
        let time = |ns: u64| time_text(ns as f64);
        let who = [process.number.to_string(), time(end.time_ns), time(end.driver_ns)];
        for (device, memory) in end.devices.iter().enumerate() {
            let of = [device.to_string(), bytes_text(memory.peak), bytes_text(memory.total)];
            table.row([who.clone(), of].concat());
        }
        if end.devices.is_empty() {
            table.row(who);
        }
    }
    table.text()
}
