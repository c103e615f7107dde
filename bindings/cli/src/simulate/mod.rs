//! `cuddy sim`: any program, on simulated devices.
//!
//! The program runs as it is, with the simulated driver (and the substitutes of the CUDA runtime)
//! preloaded. Preloading and settings are in the environment, so that they hold for the programs that
//! it starts or becomes too; each process that initialises the driver writes to one `journal`, and
//! the `verdict` is on all of them together.

mod journal;
mod nobody;
mod settings;
mod verdict;
pub mod wait;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cli::{Outcome, Runtime, SimArgs};

/// Exit code: the checker has reported something.
pub const FOUND: u8 = 86;
/// Exit code: the program ended well, but too little of it was checked.
pub const TOO_LITTLE: u8 = 87;
/// Exit code: the program is there, but cannot be run.
const CANNOT_RUN: u8 = 126;
/// Exit code: there is no such program.
const NO_PROGRAM: u8 = 127;

/// What `cuddy sim --help` ends with.
pub const HELP: &str = "\
The program finds the simulated driver when it asks for libcuda.so.1, and needs no change. Kernels do
not run (but for a few of simcuda's own), so values mean nothing; memory, order and errors do. The checker
judges copies, fills and the kernels that it knows; launches of others are counted as unknown.

All processes that the program starts, or becomes by exec, are simulated and judged too; each has devices of
its own (they share memory by IPC, not by a common budget). A child that is forked after cuInit finds the
driver unusable, as with a real one. A process that is killed, or leaves by _exit, has its findings
reported, and is said not to have been judged to its end.

What cannot be simulated: programs with the vendor's runtime inside (linked statically, as nvcc does by
default, and as in CuPy): it asks the driver to prove that it is genuine, and simcuda does not answer.
Statically linked programs and those with special rights (setuid) ignore LD_PRELOAD. Programs built with
AddressSanitizer run: ASAN_OPTIONS gets verify_asan_link_order=0, so that something may be preloaded.

Kernels do not run, but what they use can be said in a file, a line for each name, in which * is any text:
  scale*  write p0 bytes=w2*4, read p1 bytes=w2*4
pN is the eight bytes of parameter N, wN four of them, pN[K] the same K bytes into a structure (simcuda.h).

The settings are also SIMCUDA_DEVICES, SIMCUDA_MEMORY, ... in the environment; options come before those.
SIMCUDA_REPORT is the command's own.
CUDDY_SIM_LIBRARY names the file of the simulated driver, where it is not found by itself.

Exit code:
  86 if the checker reported something, whatever the program says;
  87 if the program ended with 0, but fewer accesses were checked than --require-checked asks for;
  else the program's own, 128 + N if signal N ended it;
  126 if the program cannot be run, 127 if there is none of that name, 2 for a wrong option or setting.

Examples:
  cuddy sim --memory 24GiB -- python train_smoke.py
  cuddy sim --devices 2 --seed 7 --calls -- ./step
  cuddy sim --require-checked 1000 --kernels kernels.txt -- python train_smoke.py
  cuddy sim --faults cuMemAlloc:3:OUT_OF_MEMORY --report out.txt -- ./step";

/// Runs the program and says what the checker found.
pub fn run(args: &SimArgs) -> Result<Outcome, String> {
    let driver = simcuda_control::find().map_err(|error| error.to_string())?;
    let settings = settings::of(args)?;
    if let Some(file) = &args.report {
        // A report that cannot be written is better known before the program has run.
        std::fs::write(file, "")
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    let folder = Folder::new("sim")?;
    let libraries = preloaded(&driver, args.runtime, &folder)?;
    let report = folder.0.join("report.jsonl");
    let (word, arguments) = args.command.split_first().ok_or("there is no program to run")?;
    let mut command = Command::new(word);
    command
        .args(arguments)
        .envs(settings)
        .env("SIMCUDA_REPORT", &report)
        .env("LD_PRELOAD", before("LD_PRELOAD", &libraries)?)
        .env("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", std::slice::from_ref(&folder.0))?);
    let status = match wait::run(&mut command) {
        Ok(status) => status,
        Err(error) => return Ok(Outcome::Code(cannot_run("sim", word, &error))),
    };
    let journal = journal::read(&report)?;
    Ok(Outcome::Code(verdict::say(args, &journal, status)?))
}

/// Says why a program does not run; answers the exit code.
pub fn cannot_run(command: &str, word: &OsString, error: &std::io::Error) -> u8 {
    let name = word.to_string_lossy();
    let (code, why) = match error.kind() {
        ErrorKind::NotFound if Path::new(word).exists() => {
            (CANNOT_RUN, "the interpreter or loader that it names is not there".to_owned())
        }
        ErrorKind::NotFound if name.contains('/') => (NO_PROGRAM, "no such file".to_owned()),
        ErrorKind::NotFound => (NO_PROGRAM, "no program of that name on the PATH".to_owned()),
        ErrorKind::PermissionDenied => (CANNOT_RUN, "it is not executable".to_owned()),
        _ => (CANNOT_RUN, error.to_string()),
    };
    verdict::line(command, &format!("cannot run `{name}`: {why}"));
    code
}

/// Links the driver and the substitutes by the names that programs ask for; answers what to preload.
///
/// Preloaded, they come before whatever a program's own search path has. The links also serve a
/// `dlopen("libcuda.so")`, and keep blanks out of LD_PRELOAD, which they would cut.
fn preloaded(
    driver: &Path,
    wish: Option<Runtime>,
    folder: &Folder,
) -> Result<Vec<PathBuf>, String> {
    let driver = driver.canonicalize().map_err(|error| format!("{}: {error}", driver.display()))?;
    let mut libraries = Vec::new();
    for (wanted, name) in [(Runtime::V12, "libcudart.so.12"), (Runtime::V13, "libcudart.so.13")] {
        let asked = wish == Some(wanted);
        if wish.is_some() && !asked {
            continue;
        }
        match substitute(&driver, name) {
            Some(file) => libraries.push(folder.link(&file, name)?),
            None if asked => {
                return Err(format!(
                    "the substitute {name} was not found beside {}; build it, or leave --runtime out",
                    driver.display()
                ));
            }
            None => {}
        }
    }
    folder.link(&driver, "libcuda.so")?;
    libraries.push(folder.link(&driver, "libcuda.so.1")?);
    Ok(libraries)
}

/// The file of a substitute runtime, in the folder `cudart` beside the driver (a build folder may be
/// on the search path of programs, so it cannot lie there under this name).
fn substitute(driver: &Path, name: &str) -> Option<PathBuf> {
    let folder = driver.parent()?;
    let places = [folder.join("cudart"), folder.join("../cudart")];
    places.iter().map(|place| place.join(name)).find(|file| file.is_file())?.canonicalize().ok()
}

/// A list of paths, as the loader reads it, with ours before what is there already.
pub fn before(variable: &str, ours: &[PathBuf]) -> Result<OsString, String> {
    let mut list = OsString::new();
    for path in ours {
        let text = path.to_string_lossy();
        if text.contains([' ', ':', ';']) {
            return Err(format!(
                "{text}: the loader would cut this path; set TMPDIR to a folder without blanks and colons"
            ));
        }
        if !list.is_empty() {
            list.push(":");
        }
        list.push(path);
    }
    if let Some(old) = std::env::var_os(variable).filter(|old| !old.is_empty()) {
        list.push(":");
        list.push(old);
    }
    Ok(list)
}

/// A folder for the time of the run.
pub struct Folder(PathBuf);

impl Folder {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes an empty one.
    pub fn new(command: &str) -> Result<Self, String> {
        let name = format!("cuddy-{command}-{}", std::process::id());
        let template = std::env::temp_dir().join(name);
        let mut path = template.clone();
        for number in 1.. {
            match std::fs::create_dir(&path) {
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number < 1000 => {
                    path = template.with_extension(number.to_string());
                }
                Err(error) => return Err(format!("cannot make {}: {error}", path.display())),
            }
        }
        Ok(Self(path))
    }

    /// Links a file by another name.
    pub fn link(&self, file: &Path, name: &str) -> Result<PathBuf, String> {
        let link = self.0.join(name);
        std::os::unix::fs::symlink(file, &link)
            .map_err(|error| format!("cannot link {}: {error}", link.display()))?;
        Ok(link)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
