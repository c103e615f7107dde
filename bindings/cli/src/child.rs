//! One replay in a process of its own: this program, started again.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::job::Job;
use crate::report::Report;

/// The hidden subcommand by which the program knows that it is the child.
pub const SUBCOMMAND: &str = "__replay";

/// Has a child do the job. The error is a sentence for the user.
pub fn run(job: &Job) -> Result<Report, String> {
    let name = job.source.label();
    let program = std::env::current_exe().map_err(|error| {
        format!("cannot find this program's own file to start it again: {error}")
    })?;
    let order = serde_json::to_vec(job).map_err(|error| format!("{name}: {error}"))?;
    let mut child = Command::new(program)
        .arg(SUBCOMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start the replay of {name}: {error}"))?;
    if let Some(mut input) = child.stdin.take() {
        // A child that died early closed its end; its status says more than this error would.
        let _ = input.write_all(&order);
    }
    let output = child.wait_with_output().map_err(|error| format!("{name}: {error}"))?;
    if let Some(signal) = output.status.signal() {
        return Err(format!("{name}: the replay was ended by signal {signal}; that is a bug"));
    }
    let answer: Result<Answer, _> = serde_json::from_slice(&output.stdout);
    match answer {
        Ok(Answer::Report(report)) if output.status.success() => Ok(*report),
        Ok(Answer::Error(error)) => Err(error),
        _ => Err(format!("{name}: the replay ended without a report ({})", output.status)),
    }
}

/// What a child writes to its standard output.
#[derive(serde::Serialize, serde::Deserialize)]
pub enum Answer {
    /// The replay was done.
    Report(Box<Report>),
    /// It could not be.
    Error(String),
}

/// The child's side: reads the job, does it, writes the answer.
pub fn serve() -> Result<(), String> {
    let job: Job = serde_json::from_reader(std::io::stdin().lock())
        .map_err(|error| format!("{SUBCOMMAND} is for this program's own use ({error})"))?;
    let answer = match crate::replay::run(&job) {
        Ok(report) => Answer::Report(Box::new(report)),
        Err(error) => Answer::Error(error),
    };
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, &answer).map_err(|error| error.to_string())?;
    out.flush().map_err(|error| error.to_string())
}
