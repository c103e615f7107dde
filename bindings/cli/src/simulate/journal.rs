//! The **journal** of a run: what each process did with the simulated driver.
//!
//! simcuda writes a line of JSON at `cuInit`, at each finding, at the end of the process, and where a
//! process does not get as far as that
//! (`tests/simcuda/include/simcuda.h`). A process without an end has what it found until then.

use std::path::Path;

use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Line {
    process: u32,
    #[serde(flatten)]
    event: Event,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase", tag = "event")]
enum Event {
    Begin { program: String, checker: String },
    Finding { text: String },
    Refused { program: String, why: String },
    Proof { program: String, file: String },
    End(End),
}

/// The last line of a process.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct End {
    /// The checker's mode at the end.
    pub checker: String,
    /// Findings that the program did not clear.
    pub findings: Vec<String>,
    /// Findings beyond what is kept.
    pub left_out: u64,
    /// Accesses compared.
    pub accesses: u64,
    /// Launches of kernels that the checker does not know.
    pub unknown_launches: u64,
    /// The kernels of most of them, with their launches.
    #[serde(default)]
    pub unknown: Vec<(String, u64)>,
    /// Virtual time of the host.
    pub time_ns: u64,
    /// The part of it spent in driver calls.
    pub driver_ns: u64,
    /// Calls made to fail.
    pub faults: u64,
    /// Calls by function.
    pub calls: Vec<(String, u64)>,
    /// The devices.
    pub devices: Vec<Device>,
}

/// One device of a process.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Device {
    /// Its bytes.
    pub total: u64,
    /// In use at the end.
    pub used: u64,
    /// The most that was in use.
    pub peak: u64,
}

/// One process, from `cuInit` to its end or the program that it became.
#[derive(Debug, Serialize)]
pub struct Process {
    /// Its number.
    pub number: u32,
    /// Its command line.
    pub program: String,
    /// The checker's mode at the beginning.
    pub checker: String,
    /// Findings as they were found.
    pub found: Vec<String>,
    /// None: it was killed, left by `_exit`, became another program, or still runs.
    pub end: Option<End>,
}

impl Process {
    /// What the checker holds against it.
    pub fn findings(&self) -> &[String] {
        self.end.as_ref().map_or(&self.found, |end| &end.findings)
    }
}

/// All that a journal says.
#[derive(Debug, Default)]
pub struct Journal {
    /// The processes that initialised the driver, in the order of their beginnings.
    pub processes: Vec<Process>,
    /// Those in which `cuInit` failed: the command line, and why.
    pub refused: Vec<(String, String)>,
    /// Files that asked for private tables of the vendor's driver, with the command line.
    pub proofs: Vec<(String, String)>,
}

/// Reads a journal. A file that nobody wrote is empty.
pub fn read(file: &Path) -> Result<Journal, String> {
    match std::fs::read_to_string(file) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Journal::default()),
        Err(error) => Err(format!("the report of the simulated driver: {error}")),
    }
}

fn parse(text: &str) -> Result<Journal, String> {
    let mut journal = Journal::default();
    let processes = &mut journal.processes;
    for line in text.lines() {
        let Line { process: number, event } = serde_json::from_str(line).map_err(|error| {
            format!(
                "the report of the simulated driver has a line that is none of its own: {error}"
            )
        })?;
        let last = processes.iter_mut().rev().find(|p| p.number == number);
        match (event, last) {
            (Event::Begin { program, checker }, _) => {
                let (found, end) = (Vec::new(), None);
                processes.push(Process { number, program, checker, found, end });
            }
            (Event::Refused { program, why }, _) => journal.refused.push((program, why)),
            (Event::Proof { program, file }, _) => journal.proofs.push((file, program)),
            (Event::Finding { text }, Some(process)) => process.found.push(text),
            (Event::End(end), Some(process)) => process.end = Some(end),
            (_, None) => return Err(format!("process {number} has no beginning in the report")),
        }
    }
    Ok(journal)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = r#"{"process":7,"event":"begin","program":"a b","checker":"log"}"#;
    const FOUND: &str = r#"{"process":7,"event":"finding","text":"race\nof two"}"#;
    const END: &str = concat!(
        r#"{"process":7,"event":"end","checker":"log","findings":["race\nof two"],"left_out":0,"#,
        r#""accesses":4,"unknown_launches":1,"time_ns":5,"driver_ns":3,"faults":0,"calls":[["cuInit",1]],"devices":[{"total":9,"used":0,"peak":2}]}"#
    );

    #[test]
    fn a_process_that_became_another_program_is_two() {
        let text = [BEGIN, FOUND, BEGIN, END].join("\n");
        let processes = parse(&text).expect("a right journal").processes;
        assert_eq!(processes.len(), 2);
        assert!(processes[0].end.is_none() && processes[0].findings() == ["race\nof two"]);
        let end = processes[1].end.as_ref().expect("the second ended");
        assert_eq!((end.accesses, end.calls.len(), end.devices[0].peak), (4, 1, 2));
    }

    #[test]
    fn findings_that_the_program_cleared_do_not_count() {
        let text = [BEGIN, FOUND, &END.replace(r#"["race\nof two"]"#, "[]")].join("\n");
        assert!(parse(&text).expect("a right journal").processes[0].findings().is_empty());
    }

    #[test]
    fn a_broken_journal_is_an_error() {
        assert!(parse(FOUND).is_err() && parse("{}").is_err() && parse("nonsense").is_err());
        assert!(parse("").is_ok_and(|journal| journal.processes.is_empty()));
    }
}
