//! The command line: words in, exit code out.
//!
//! Exit codes: 0 all is well; 1 the work was done and something is wrong (a trace did not complete,
//! a check failed, the machine is not healthy); 2 the work could not be done (a bad option, a bad
//! trace, no driver). `cuddy sim` and `cuddy run` have the program's own, and [`simulate`] says which else. Results go to standard output, everything else to standard error.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::job::{Backing, Schedule, Target, Who};
use crate::manual::{self, ManArgs};
use crate::preload::{self, RunArgs};
use crate::{child, demo, doctor, page, run, simulate, top};

/// What a command came to.
pub enum Outcome {
    /// All is well.
    Well,
    /// Done, and something is wrong; it has been said already.
    Wrong,
    /// The exit code of a program that was run.
    Code(u8),
}

/// See what Cuddy, the caching CUDA allocator, does for the memory of a GPU program.
#[derive(Parser)]
#[command(name = "cuddy", version, disable_help_subcommand = true)]
#[command(
    after_help = "Start with `cuddy demo`. It needs no GPU: without one it uses a simulated device and says so.\n\
        `cuddy COMMAND --help` explains a command, with examples and exit codes.\n\n\
        CUDDY_CONF=\"key:value,key:value\" configures the allocator in any program; `cuddy doctor` lists the keys.\n\
        Results go to standard output, everything else to standard error."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Replay the training of a real model, with bare driver calls and with Cuddy
    #[command(after_long_help = DEMO_HELP)]
    Demo(DemoArgs),
    /// Replay recorded allocations, and check every block on the way
    #[command(after_long_help = REPLAY_HELP)]
    Replay(ReplayArgs),
    /// Run any program on simulated devices, and check what it does with their memory
    #[command(after_long_help = simulate::HELP)]
    Sim(SimArgs),
    /// Make a page of a snapshot: what was live when, where it lies, which scope has it
    #[command(after_long_help = REPORT_HELP)]
    Report(ReportArgs),
    /// Run any program with the device memory that it frees kept for it
    #[command(after_long_help = preload::HELP)]
    Run(RunArgs),
    /// Watch a running process's memory in the terminal
    #[command(after_long_help = TOP_HELP)]
    Top(TopArgs),
    /// Look at the driver, the devices and the configuration, and try them
    #[command(after_long_help = DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Write the manual pages into a folder; install.sh does it
    #[command(hide = true)]
    Man(ManArgs),
    #[command(name = child::SUBCOMMAND, hide = true)]
    Child,
}

const DEMO_HELP: &str = "\
What is printed: driver calls, the time that the driver took (on the simulated device what it would take, from
published figures), host time a call, and memory: at the peak, as allocated and as held. Then Cuddy's own summary.
Every block is written and read back.

Exit code:
  0 if nothing was wrong, 1 if something was, 2 if it cannot be run.";

const DOCTOR_HELP: &str = "\
What is printed: the library and the driver that are used, what each device can do, every option with its value
and where that came from, and whether memory can be got, used and given back.

Exit code:
  0 if all is well (or the program would be served), 1 if not, 2 if that cannot be said.

Examples:
  cuddy doctor
  CUDDY_CONF=memory_limit:4GiB cuddy doctor --on sim
  cuddy doctor -- ./app";

const REPLAY_HELP: &str = "\
Traces:
  A TRACE is a file or the name of one in $CUDDY_TRACES (else in ../shared/traces and tests/traces
  of the workspace). Four formats are known, by their first bytes, compressed with gzip or not:
  gputrace 1, RMM's CSV log, the pickle of torch.cuda.memory._dump_snapshot (a reader of plain
  data: whatever would import or run anything is refused), and Cuddy's own snapshots with their
  history. Of one that was written where a request found no memory (CUDDY_OOM_SNAPSHOT,
  cuddy_flight_recorder()), --fit also says what would have let that request fit.

What is checked:
  Each block is written on its stream at once, read back on every stream that it is recorded on,
  and read back before it is freed. On the simulated device a happens-before checker judges every
  one of these accesses. Addresses must be disjoint, and the allocator's counters must agree with
  what was asked of it and with what the device lent.

Exit code:
  0 if every trace completed and nothing wrong was found, 1 if not, 2 if a trace cannot be replayed.

Examples:
  cuddy replay llama7b_train_bf16_s2048
  cuddy replay --fit --json tests/traces/*.gz > fit.jsonl
  cuddy replay --schedule lag:1000 --device-memory 40GiB my_snapshot.pickle";

#[derive(Args)]
struct OnArgs {
    /// What to run on: a GPU if there is one and else the simulated device, or one of them by name
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    on: Target,
}

#[derive(Args)]
struct DemoArgs {
    #[command(flatten)]
    on: OnArgs,
}

#[derive(Args)]
struct DoctorArgs {
    #[command(flatten)]
    on: OnArgs,

    /// A program: say whether `cuddy run` would serve it, and if not, why
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<OsString>,
}

/// Options of `cuddy replay`.
#[derive(Args)]
pub struct ReplayArgs {
    /// Traces: files, or names of known ones (see --list)
    #[arg(value_name = "TRACE", required_unless_present_any = ["list", "self_test"])]
    pub traces: Vec<String>,

    /// List the known traces
    #[arg(long, conflicts_with_all = ["traces", "self_test", "fit"])]
    pub list: bool,

    /// Print one JSON object a trace, a line each (sizes in bytes)
    #[arg(long)]
    pub json: bool,

    /// Memory of the device, such as 24GiB [default: 80GiB on the simulated device, what is free on a GPU]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub device_memory: Option<u64>,

    /// Find the smallest device on which each trace completes (to 0.1 % or 2 MiB)
    #[arg(long, conflicts_with = "device_memory")]
    pub fit: bool,

    /// Who serves the memory
    #[arg(long, value_name = "WHO", default_value = "cuddy")]
    pub allocator: Who,

    /// Where Cuddy gets its memory [default: what the device supports best]
    #[arg(long, value_name = "BACKING")]
    pub backing: Option<Backing>,

    /// How far the simulated device lags behind: eager, lazy, lag:K (K operations) or random:SEED
    #[arg(long, value_name = "SCHEDULE", default_value = "eager")]
    pub schedule: Schedule,

    /// Make three mistakes on purpose, and see each of them reported
    #[arg(long, conflicts_with_all = ["fit", "json"], action = ArgAction::SetTrue)]
    pub self_test: bool,

    /// What to run on: a GPU if there is one and else the simulated device, or one of them by name
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub on: Target,
}

/// Options of `cuddy sim`. What is not given is as `SIMCUDA_*` in the environment says, or the default.
#[derive(Args)]
pub struct SimArgs {
    /// Number of devices, 0 to 64 [default: 1]
    #[arg(long, value_name = "N")]
    pub devices: Option<String>,

    /// Memory of each, such as 24GiB; the last holds for those after it [default: 80GiB]
    #[arg(long, value_name = "SIZE[,SIZE]")]
    pub memory: Option<String>,

    /// How far the devices lag behind: eager, lazy, lag:K (K operations) or random:SEED [default: eager]
    #[arg(long, value_name = "SCHEDULE")]
    pub schedule: Option<String>,

    /// Run work in a random order, within what the program ordered: the same as --schedule random:N
    #[arg(long, value_name = "N", conflicts_with = "schedule")]
    pub seed: Option<u64>,

    /// What the checker does with a finding: off (no checking), log, or abort the program [default: log]
    #[arg(long, value_name = "MODE")]
    pub checker: Option<String>,

    /// Calls that fail, such as cuMemAlloc:3:OUT_OF_MEMORY (the third), separated by commas
    #[arg(long, value_name = "SPEC")]
    pub faults: Option<String>,

    /// Version of the driver, such as 12.8: what is newer is not there [default: 13.0]
    #[arg(long, value_name = "VERSION")]
    pub driver: Option<String>,

    /// What the program's kernels use, so that they are checked too; the form is below
    #[arg(long, value_name = "FILE")]
    pub kernels: Option<PathBuf>,

    /// Fail with exit code 87 if fewer accesses than these were checked
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub require_checked: u64,

    /// Which substitute of the CUDA runtime to preload [default: both, where they are built]
    #[arg(long, value_name = "WHICH")]
    pub runtime: Option<Runtime>,

    /// Print the driver calls by function
    #[arg(long)]
    pub calls: bool,

    /// Print the virtual time: what the driver calls would cost, from published figures
    #[arg(long)]
    pub time: bool,

    /// Write the whole report to a file, lines of JSON if its name ends in .jsonl, and only the verdict to stderr
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// The program and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

const REPORT_HELP: &str = "\
A snapshot is what cuddy.memory.dump_snapshot(\"memory.json\") writes in Python, and cuddy_snapshot() in C; it has a
timeline if history was kept (cuddy.memory.record_history(), cuddy_record_history()). The page is one file that
needs no network.

Example:
  cuddy report memory.json -o memory.html";

/// What `cuddy report` is told.
#[derive(Args)]
pub struct ReportArgs {
    /// The snapshot
    #[arg(value_name = "SNAPSHOT")]
    pub snapshot: PathBuf,

    /// Where to write the page; the snapshot's name with .html if it is left out
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

const TOP_HELP: &str = "\
The process writes its counters to a file, in the format of Prometheus, every half second: if it is started with
CUDDY_EXPORT=on, or CUDDY_EXPORT=FILE, or once it calls cuddy_export_metrics().

Example:
  CUDDY_EXPORT=on ./app & cuddy top $!";

/// What `cuddy top` is told.
#[derive(Args)]
pub struct TopArgs {
    /// The process's number, or the file that it writes
    #[arg(value_name = "PID|FILE")]
    pub target: String,

    /// Milliseconds from one look to the next
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..))]
    pub interval_ms: u64,

    /// Print one page, and end; so it is where the output is no terminal
    #[arg(long)]
    pub once: bool,
}

/// Substitutes of the CUDA runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Runtime {
    /// libcudart.so.12
    #[value(name = "12")]
    V12,
    /// libcudart.so.13
    #[value(name = "13")]
    V13,
    /// None: the program's own is used.
    None,
}

/// A size such as `24GiB`, `512m` or plain bytes; units are powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("`{text}` is not a size: write bytes, or a number with KiB, MiB, GiB or TiB");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(1 << shift).ok_or_else(wrong)?,
        Err(_) => {
            let value = number.parse::<f64>().map_err(|_| wrong())? * (1u64 << shift) as f64;
            if value < (1u64 << 60) as f64 { value as u64 } else { return Err(wrong()) }
        }
    };
    if bytes == 0 || bytes > 1 << 60 { Err(wrong()) } else { Ok(bytes) }
}

/// Does what the command line says.
pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Demo(args) => demo::run(args.on.on),
        Command::Replay(args) => run::replay(&args),
        Command::Sim(args) => simulate::run(&args),
        Command::Report(args) => page::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Run(args) => preload::run(&args),
        Command::Doctor(args) => match args.command.first() {
            Some(program) => preload::why::run(program),
            None => doctor::run(args.on.on),
        },
        Command::Man(args) => manual::run(&args, Cli::command()),
        Command::Child => child::serve().map(|()| Outcome::Well),
    };
    match outcome {
        Ok(Outcome::Well) => ExitCode::SUCCESS,
        Ok(Outcome::Wrong) => ExitCode::from(1),
        Ok(Outcome::Code(code)) => ExitCode::from(code),
        Err(error) => {
            eprintln!("cuddy: {error}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(parse_size("1"), Ok(1));
        assert_eq!(parse_size("24GiB"), Ok(24 << 30));
        assert_eq!(parse_size("24 g"), Ok(24 << 30));
        assert_eq!(parse_size("1.5GiB"), Ok(3 << 29));
        for wrong in
            ["", "0", "x", "1X", "-1", "1e3", "18446744073709551615T", "9999999999T", ".", "1.2.3G"]
        {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
