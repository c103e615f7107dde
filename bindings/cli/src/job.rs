//! A job: one replay, as the command line orders it and a child process does it.
//!
//! The library under test is global to its process, and so is a driver. So each replay runs in a
//! process of its own: the command starts itself again, writes a [`Job`] to that child's standard
//! input, and reads a [`Report`](crate::report::Report) from its standard output, both as JSON.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::bundled;
use crate::selftest::{Sabotage, sample};
use crate::trace::{self, Trace, TraceError};

/// Where a trace comes from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// One of those inside this program.
    Bundled(String),
    /// The small program of the self-test.
    Sample,
}

impl Source {
    /// Reads it.
    pub fn open(&self) -> Result<Trace, TraceError> {
        match self {
            Self::File(path) => trace::open(path),
            Self::Bundled(name) => bundled::open(name),
            Self::Sample => Ok(sample()),
        }
    }

    /// What to call it in messages.
    pub fn label(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Bundled(name) => name.clone(),
            Self::Sample => "the self-test's own trace".to_owned(),
        }
    }

    /// The trace's name as far as the file's name tells.
    pub fn short_name(&self) -> String {
        match self {
            Self::File(path) => {
                let name = path.file_name().unwrap_or(Path::new("").as_os_str()).to_string_lossy();
                name.strip_suffix(".gz").unwrap_or(&name).to_owned()
            }
            Self::Bundled(name) => name.clone(),
            Self::Sample => "self-test".to_owned(),
        }
    }
}

/// Who serves the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// Cuddy
    Cuddy,
    /// Bare driver calls: cuMemAlloc and cuMemFree
    Driver,
    /// The driver's own stream-ordered pool: cuMemAllocAsync and cuMemFreeAsync
    DriverAsync,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cuddy => "cuddy",
            Self::Driver => "driver",
            Self::DriverAsync => "driver-async",
        })
    }
}

/// Where Cuddy gets its memory from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Backing {
    /// Pages mapped into one large address range
    Pages,
    /// Segments from cuMemAlloc
    Segments,
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pages => "pages",
            Self::Segments => "segments",
        })
    }
}

/// On what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// A GPU if the driver sees one, else the simulated device
    Auto,
    /// A GPU, or fail
    Gpu,
    /// The simulated device, even where there is a GPU
    Sim,
}

/// How far the simulated device lags behind the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Schedule {
    /// Work runs as soon as it may.
    Eager,
    /// Work runs when somebody waits for it.
    Lazy,
    /// Work runs when this many operations more have been queued.
    Lag(u64),
    /// Work runs in an order drawn from this seed.
    Random(u64),
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eager => f.write_str("eager"),
            Self::Lazy => f.write_str("lazy"),
            Self::Lag(k) => write!(f, "lag:{k}"),
            Self::Random(seed) => write!(f, "random:{seed}"),
        }
    }
}

impl From<Schedule> for String {
    fn from(schedule: Schedule) -> Self {
        schedule.to_string()
    }
}

impl TryFrom<String> for Schedule {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Schedule {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let number =
            |digits: &str| digits.parse().map_err(|_| format!("`{digits}` is not a number"));
        match text.split_once(':') {
            None if text == "eager" => Ok(Self::Eager),
            None if text == "lazy" => Ok(Self::Lazy),
            Some(("lag", k)) => Ok(Self::Lag(number(k)?)),
            Some(("random", seed)) => Ok(Self::Random(number(seed)?)),
            _ => Err("expected eager, lazy, lag:K or random:SEED".to_owned()),
        }
    }
}

/// One replay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// What is replayed.
    pub source: Source,
    /// Who serves it.
    pub who: Who,
    /// How, where it is Cuddy; `None` is Cuddy's own choice.
    pub backing: Option<Backing>,
    /// On what; never `Auto` by the time a child gets it.
    pub target: Target,
    /// How streams share memory, where it is Cuddy; `None` is Cuddy's default.
    pub share: Option<String>,
    /// How large the device is, in bytes; `None` is the default.
    pub device_memory: Option<u64>,
    /// The simulated device's schedule.
    pub schedule: Schedule,
    /// A deliberate mistake of the replayer, for the self-test.
    pub sabotage: Option<Sabotage>,
    /// Whether to draw a progress bar on a terminal.
    pub progress: bool,
}
