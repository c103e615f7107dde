//! What the tests of the C library share: where the libraries are, a place to build and run C
//! programs in, comparing with files that are generated.

// Each test program uses its own part of this.
#![allow(dead_code)]

use std::env;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Compares a generated text with its committed copy; `CUDDY_BLESS=1` writes the copy instead.
pub fn compare(path: &str, fresh: &str) {
    let committed = fs::read_to_string(path).unwrap_or_default();
    if committed == fresh {
        return;
    }
    if env::var_os("CUDDY_BLESS").is_some_and(|value| value == "1") {
        if let Some(folder) = Path::new(path).parent() {
            fs::create_dir_all(folder).expect("the folder can be made");
        }
        fs::write(path, fresh).expect("the copy can be written");
        return;
    }
    let changed: Vec<_> = difference(&committed, fresh);
    panic!(
        "{path} differs from its source; CUDDY_BLESS=1 cargo test writes it anew:\n{}",
        changed.join("\n")
    );
}

/// The lines that only one of two texts has.
fn difference(old: &str, new: &str) -> Vec<String> {
    let gone = old.lines().filter(|line| !new.lines().any(|other| other == *line));
    let come = new.lines().filter(|line| !old.lines().any(|other| other == *line));
    gone.map(|line| format!("- {line}")).chain(come.map(|line| format!("+ {line}"))).collect()
}

/// Says past the test harness, which hides the output of tests that pass, that something was not
/// tested.
pub fn skipped(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {what}: {why}\n");
}

/// The first fenced block of `language` after `heading`.
pub fn block<'a>(text: &'a str, heading: &str, language: &str) -> &'a str {
    let section = text.split_once(heading).unwrap_or_else(|| panic!("no {heading} in the text")).1;
    let fence = format!("```{language}\n");
    let body = section.split_once(&fence).unwrap_or_else(|| panic!("no {fence} after {heading}")).1;
    body.split_once("```").expect("a block ends").0
}

/// The text with another body in that block.
pub fn with_block(text: &str, heading: &str, language: &str, body: &str) -> String {
    let old = block(text, heading, language);
    // `block` lies in `text`, so their addresses tell where.
    let at = old.as_ptr() as usize - text.as_ptr() as usize;
    format!("{}{body}{}", &text[..at], &text[at + old.len()..])
}

/// A library that this build made, beside the running test.
pub fn library(name: &str) -> PathBuf {
    let path = env::current_exe().expect("a test has a path").with_file_name(name);
    assert!(path.exists(), "{} is missing: build the whole workspace", path.display());
    path
}

/// Whether a program is there.
pub fn is_installed(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The output of a program that must succeed.
pub fn output(command: &mut Command) -> String {
    let run = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        run.status.success(),
        "{command:?} failed:\n{}{}",
        String::from_utf8_lossy(&run.stdout),
        String::from_utf8_lossy(&run.stderr)
    );
    String::from_utf8_lossy(&run.stdout).into_owned()
}

/// How a program ended, and what it wrote.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; `None` after a signal, or when it ran too long.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Ended {
    /// Insists on success and silence on stderr.
    pub fn quietly(self) -> String {
        assert!(self.code == Some(0) && self.err.is_empty(), "{self:#?}");
        self.out
    }
}

/// Runs a program to its end, or kills it after two minutes: a hang fails instead of hanging.
pub fn run(command: &mut Command) -> Ended {
    command.env_remove("CUDA_VISIBLE_DEVICES");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let collect = |stream: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut stream) = stream {
                let _ = stream.read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = collect(child.stdout.take().map(|stream| Box::new(stream) as _));
    let err = collect(child.stderr.take().map(|stream| Box::new(stream) as _));
    let deadline = Instant::now() + Duration::from_secs(120);
    let status = loop {
        match child.try_wait().expect("our own child") {
            Some(status) => break Some(status),
            None if Instant::now() > deadline => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    Ended {
        code: status.and_then(|status| status.code()),
        out: out.join().unwrap_or_default(),
        err: err.join().unwrap_or_default(),
    }
}

/// A folder of a test's own, removed with it.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes an empty one.
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("cuddy-test-{}-{number}", std::process::id()));
        fs::create_dir(&path).expect("a temporary folder can be made");
        Self(path)
    }

    /// One with the libraries under test in it, by the names that programs ask for. The simulated
    /// driver is linked as libcuda.so.1 here and nowhere else: it must never hide a real one.
    pub fn with_libraries() -> Self {
        let folder = Self::new();
        folder.link(&library("libcuddy.so"), "libcuddy.so");
        folder.link(&library("libcuddy.so"), "libcuddy.so.0");
        folder.link(&library("libsimcuda.so"), "libcuda.so.1");
        folder
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn link(&self, to: &Path, name: &str) {
        symlink(to, self.file(name)).expect("a link can be made");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Builds a stranger's crate over this one, as its README says: a library if that is its name, else
/// a program. The folder of what was built; it stays, so that only the first run takes long.
pub fn stranger(name: &str, source: &str) -> PathBuf {
    let (folder, root) = (Folder::new(), env!("CARGO_MANIFEST_DIR"));
    fs::create_dir(folder.file("src")).expect("the folder is ours");
    let (kind, file) = match name {
        "library" => ("[lib]\ncrate-type = [\"cdylib\"]\n", "lib.rs"),
        _ => ("", "main.rs"),
    };
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{kind}\
         [dependencies]\ncuddy = {{ path = \"{root}\" }}\n"
    );
    fs::write(folder.file("Cargo.toml"), manifest).expect("the folder is ours");
    fs::write(folder.file("src").join(file), source).expect("the folder is ours");
    fs::copy("Cargo.lock", folder.file("Cargo.lock")).expect("a copy");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--offline", "--quiet"]).current_dir(folder.path());
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stranger");
    // Cargo gave the variable to this test, as its configuration asks; a stranger would not have it.
    cargo.env_remove("CUDDY_SONAME").env("CARGO_TARGET_DIR", &target);
    output(&mut cargo);
    target.join("debug")
}
