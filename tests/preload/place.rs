//! A place to build and run programs in, with and without the library.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{self, Ended, Folder, library};

/// The sources, whatever folder a test runs in.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/preload/c").join(name)
}

/// A folder with the simulated driver and runtimes by the names that programs ask for, and the
/// preload library.
pub struct Place(Folder);

/// What a program said, without its last line; and that: driver calls that allocated and that freed.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    pub text: String,
    pub driver: (u64, u64),
}

impl Place {
    pub fn new() -> Self {
        let folder = Folder::new();
        let link = |to: &Path, name: &str| symlink(to, folder.file(name)).expect("a link");
        link(&library("libsimcuda.so"), "libcuda.so.1");
        for cuda in [12, 13] {
            link(&library(&format!("libsimcudart{cuda}.so")), &format!("libcudart.so.{cuda}"));
        }
        link(&library("libcuddy_preload.so"), "libcuddy_preload.so");
        Self(folder)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.file(name)
    }

    /// Compiles a C program.
    pub fn compile(&self, name: &str, flags: &[&str]) -> PathBuf {
        self.build(name, &format!("program-{}", flags.join("")).replace(['/', ':'], "-"), flags)
    }

    pub fn build(&self, name: &str, to: &str, flags: &[&str]) -> PathBuf {
        let program = self.file(to);
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-g", "-I"]);
        compiler.arg(source("")).arg(source(name)).arg("-o").arg(&program);
        compiler.arg("-L").arg(self.0.path()).args(flags).args(["-ldl", "-lpthread"]);
        common::output(&mut compiler);
        program
    }

    /// A program in an environment of its own.
    pub fn plain(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LD_LIBRARY_PATH", self.0.path());
        command.env("SIMCUDA_MEMORY", "1GiB").env("SIMCUDA_CHECKER", "log");
        // A deliberate fault, if one is asked for.
        command.envs(std::env::var_os("CUDDY_MUTANT").map(|fault| ("CUDDY_MUTANT", fault)));
        command
    }

    /// The same, preloaded.
    pub fn preloaded(&self, program: &Path, settings: &str) -> Command {
        let mut command = self.plain(program);
        command.env("LD_PRELOAD", self.file("libcuddy_preload.so"));
        command.env("CUDDY_PRELOAD", settings);
        command
    }

    /// Runs a program preloaded and asks for its report.
    pub fn reported(&self, program: &Path, settings: &str, words: &[&str]) -> (Said, Report) {
        let file = self.file("report.jsonl");
        let _ = fs::remove_file(&file);
        let settings = format!("{settings},report:{}", file.display());
        let said = said(common::run(self.preloaded(program, &settings).args(words)));
        (said, Report::read(&file))
    }
}

/// Splits what a program said. It must have succeeded, silently.
pub fn said(ended: Ended) -> Said {
    let text = ended.quietly();
    let (text, last) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
    let number = |at: usize| last.split(' ').nth(at).and_then(|it| it.parse().ok());
    let driver = number(1).zip(number(2)).unwrap_or_else(|| panic!("the last line is {last}"));
    Said { text: text.to_owned(), driver }
}

/// The lines of a report file.
#[derive(Debug)]
pub struct Report(Vec<String>);

impl Report {
    pub fn read(file: &Path) -> Self {
        Self(fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect())
    }

    /// A number of the only process that came to its end.
    pub fn number(&self, field: &str) -> u64 {
        let ends: Vec<_> =
            self.0.iter().filter(|line| line.contains("\"event\":\"end\"")).collect();
        let [end] = ends[..] else { panic!("{} processes have ended: {self:?}", ends.len()) };
        let (_, rest) = end.split_once(&format!("\"{field}\":")).expect("the field is there");
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    }
}
