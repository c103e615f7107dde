//! `cuddy run`: any program, with the memory that it frees kept for it.
//!
//! The program runs as it is, with `libcuddy_preload.so` before every other library. That is said in
//! the environment, so that it holds for the programs that it starts or becomes too; each process that
//! allocates writes what it did to one `journal`, which becomes the report.

mod elf;
mod journal;
mod report;
pub mod why;

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};

use crate::cli::Outcome;
use crate::simulate::{Folder, before, cannot_run, wait};

/// The library that stands between a program and the driver.
const FILE: &str = "libcuddy_preload.so";
/// Names its file, where it is not found by itself.
const VARIABLE: &str = "CUDDY_PRELOAD_LIBRARY";

/// What `cuddy run --help` ends with.
pub const HELP: &str = "\
What it does: memory that the program frees with cuMemFree (cudaFree) is kept and handed out again to the next
cuMemAlloc (cudaMalloc) that it fits; the driver is not called. Whole allocations of the driver are kept, so
that exporting, peer access and attributes of an address stay as they are. At most a tenth of a device's memory
is kept (--cap), and all of it is given back when the device runs short.

Modes:
  strict  a free waits for the device, as cudaFree does: the default, for any program
  fenced  a free does not wait; the memory is handed out again once the work that was under way is over. For
          programs that do not count on cudaFree to wait
  off     every call is the driver's, to compare

It also works without this command:
  LD_PRELOAD=libcuddy_preload.so CUDDY_PRELOAD=mode:fenced,cap:0.2,async:off,report:FILE.jsonl ./app

What cannot be served: statically linked programs and those with special rights (setuid) ignore LD_PRELOAD, and
plug-ins loaded with RTLD_DEEPBIND are not seen. `cuddy doctor -- ./app` says whether a program is one of them.
CUDDY_PRELOAD_LIBRARY names the file of the library, where it is not found by itself.

Exit code:
  the program's own, 128 + N if signal N ended it;
  126 if the program cannot be run, 127 if there is none of that name, 2 for a wrong option.

Examples:
  cuddy run -- ./app
  cuddy run --mode fenced --report memory.txt -- python train.py
  cuddy sim -- cuddy run -- ./app          # on a simulated device, without a GPU";

/// Options of `cuddy run`.
#[derive(Args)]
pub struct RunArgs {
    /// What a free does before its memory may be handed out again
    #[arg(long, value_name = "MODE", default_value = "strict")]
    pub mode: Mode,

    /// The most that is kept, as a share of each device's memory
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = share)]
    pub cap: f64,

    /// Write the report to a file instead of stderr; lines of JSON, one a process, if its name ends in .jsonl
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// The program and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    pub command: Vec<std::ffi::OsString>,
}

/// See [`HELP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Frees wait.
    Strict,
    /// Fences guard reuse.
    Fenced,
    /// Nothing is kept.
    Off,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Fenced => "fenced",
            Self::Off => "off",
        }
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number from 0 to 1, such as 0.2".to_owned()),
    }
}

/// Runs the program and says what was served.
pub fn run(args: &RunArgs) -> Result<Outcome, String> {
    let library = library()?;
    if let Some(file) = &args.report {
        // A report that cannot be written is better known before the program has run.
        std::fs::write(file, "")
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    let folder = Folder::new("run")?;
    // A path with blanks would be cut by the loader.
    let library = match library.to_string_lossy().contains([' ', ':', ';']) {
        true => folder.link(&library, FILE)?,
        false => library,
    };
    let lines = folder.path().join("report.jsonl");
    let settings = format!("mode:{},cap:{},report:{}", args.mode.name(), args.cap, lines.display());
    let (word, arguments) = args.command.split_first().ok_or("there is no program to run")?;
    let mut command = Command::new(word);
    command
        .args(arguments)
        .env("LD_PRELOAD", before("LD_PRELOAD", std::slice::from_ref(&library))?)
        .env("CUDDY_PRELOAD", settings);
    let status = match wait::run(&mut command) {
        Ok(status) => status,
        Err(error) => return Ok(Outcome::Code(cannot_run("run", word, &error))),
    };
    let processes = journal::read(&lines)?;
    report::say(args, &processes, status)?;
    Ok(Outcome::Code(status.code()))
}

/// The library's file: where `VARIABLE` says, else beside this program and around it.
pub fn library() -> Result<PathBuf, String> {
    let places: Vec<PathBuf> = match std::env::var_os(VARIABLE) {
        Some(file) => vec![file.into()],
        None => {
            let program = std::env::current_exe().unwrap_or_default();
            let folder = program.parent().unwrap_or(Path::new("."));
            ["deps", "", "../lib", "../lib/cuddy"].map(|part| folder.join(part).join(FILE)).into()
        }
    };
    let found = places.iter().find(|file| file.is_file()).and_then(|it| it.canonicalize().ok());
    found.ok_or_else(|| {
        let list: Vec<_> = places.iter().map(|file| file.display().to_string()).collect();
        format!(
            "{FILE} was not found; looked for {}. Build it with `cargo build -p cuddy-preload`, or set \
             {VARIABLE} to the file",
            list.join(", ")
        )
    })
}
