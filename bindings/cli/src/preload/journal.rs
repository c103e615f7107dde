//! The **journal** of a run: what each process asked of the library.
//!
//! It writes a line of JSON when the process allocates for the first time, and one at its end. A process
//! without an end was killed, or left by `_exit`.

use std::path::Path;

use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
#[serde(rename_all = "lowercase", tag = "event")]
enum Line {
    Begin { program: String, process: u32 },
    End(Box<End>),
}

/// The last line of a process: counts of calls, bytes, and nanoseconds.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[allow(missing_docs)]
pub struct End {
    pub program: String,
    pub process: u32,
    pub simulated: bool,
    pub mode: String,
    pub symbols: u64,
    pub dlsym: u64,
    #[serde(rename = "cuGetProcAddress")]
    pub lookup_1: u64,
    #[serde(rename = "cuGetProcAddress_v2")]
    pub lookup_2: u64,
    pub runtime_calls: u64,
    pub foreign_frees: u64,
    pub captured_frees: u64,
    pub failed_frees: u64,
    pub rescues: u64,
    pub passed_allocs: u64,
    pub alloc_calls: u64,
    pub alloc_ns: u64,
    pub free_calls: u64,
    pub free_ns: u64,
    pub wait_calls: u64,
    pub wait_ns: u64,
    pub hits: u64,
    pub misses: u64,
    pub kept: u64,
    pub tainted: u64,
    pub too_large: u64,
    pub evicted: u64,
    pub live_peak: u64,
    pub held_peak: u64,
    pub cached_peak: u64,
}

/// A process that allocated.
pub struct Process {
    /// Its name and number.
    pub name: String,
    /// What it did; `None` if it did not come to its end.
    pub end: Option<End>,
}

/// Reads the journal; one that is not there is of a run that never allocated.
pub fn read(file: &Path) -> Result<Vec<Process>, String> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", file.display())),
    };
    let mut processes: Vec<(u32, Process)> = Vec::new();
    // A line that is cut short is one of a process that was killed as it wrote.
    for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        match line {
            Line::Begin { program, process } => {
                processes.push((process, Process { name: program, end: None }));
            }
            Line::End(end) => {
                // By exec, a process number begins anew.
                let last = processes.iter_mut().rev().find(|(number, _)| *number == end.process);
                if let Some((_, process)) = last {
                    process.end = Some(*end);
                }
            }
        }
    }
    Ok(processes.into_iter().map(|(_, process)| process).collect())
}
