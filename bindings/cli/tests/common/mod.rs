//! Runs the command `cuddy` as a user would.

#![allow(dead_code)] // each test file uses its share

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// The workspace's root.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The command, with the traces of the workspace and nothing configured.
pub fn cuddy(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cuddy"));
    command.args(arguments).env("CUDDY_TRACES", workspace().join("tests/traces"));
    let ours = |name: &str| {
        let others = ["CUDDY_CONF", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "ASAN_OPTIONS"];
        name.starts_with("SIMCUDA_") || others.contains(&name)
    };
    for (variable, _) in std::env::vars().filter(|(name, _)| ours(name)) {
        command.env_remove(variable);
    }
    command
}

/// What a run said and how it ended.
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    pub fn of(command: &mut Command) -> Self {
        Self::from(command.output().expect("the command starts"))
    }

    /// The same, with standard output where the caller has put it.
    pub fn of_parts(command: &mut Command) -> Self {
        let child = command.stderr(std::process::Stdio::piped()).spawn();
        let ended = child.and_then(std::process::Child::wait_with_output);
        Self::from(ended.expect("the command runs"))
    }

    fn from(output: Output) -> Self {
        let Output { status, stdout, stderr } = output;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the command writes UTF-8");
        Self { code: status.code(), out: text(stdout), err: text(stderr) }
    }
}

/// Runs it.
pub fn run(arguments: &[&str]) -> Ended {
    Ended::of(&mut cuddy(arguments))
}

/// Runs `cuddy replay --json` on the simulated device and reads what it printed.
pub fn replay(arguments: &[&str]) -> Vec<Value> {
    let ended = run(&[&["replay", "--json", "--on", "sim"], arguments].concat());
    assert_ne!(ended.code, Some(2), "{arguments:?}: {}", ended.err);
    ended.out.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
}

/// A file with this text, in a folder that lives as long as the guard.
pub fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).expect("the folder takes files");
    let path = path.to_str().expect("the path is UTF-8").to_owned();
    (folder, path)
}

pub fn number(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("{field} is a number in {report}"))
}

/// The simulated driver as cargo built it for these tests.
pub fn simulated_driver() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_cuddy")).parent().expect("a file is in a folder");
    let library = folder.join("deps/libsimcuda.so");
    assert!(library.is_file(), "{} is built as a dependency", library.display());
    library
}

/// A folder in which `libcuda.so.1` is the simulated driver, for `LD_LIBRARY_PATH`.
pub fn driver_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let link = folder.path().join("libcuda.so.1");
    std::os::unix::fs::symlink(simulated_driver(), link).expect("the folder takes links");
    folder
}

/// Compiles a C program against Cuddy and the CUDA driver, whose names it finds at run time.
pub fn compile(name: &str, source: &str) -> (tempfile::TempDir, String) {
    compile_with(name, source, &[])
}

/// The same, with options of the compiler.
pub fn compile_with(name: &str, source: &str, options: &[&str]) -> (tempfile::TempDir, String) {
    let (folder, file) = file(&format!("{name}.c"), source.as_bytes());
    let program = folder.path().join(name);
    let libraries = simulated_driver().parent().expect("a folder").to_path_buf();
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-std=gnu11", "-I"])
        .arg(workspace().join("include"))
        .args(options)
        .arg(&file)
        .arg("-L")
        .arg(&libraries)
        .args(["-lcuddy", "-lsimcuda", "-lpthread", "-Wl,--disable-new-dtags"])
        .arg(format!("-Wl,-rpath,{}", folder.path().display()))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // By the name that the program asks for.
    let link = folder.path().join("libcuddy.so.0");
    std::os::unix::fs::symlink(libraries.join("libcuddy.so"), link).expect("a folder of ours");
    (folder, program.to_str().expect("UTF-8").to_owned())
}
