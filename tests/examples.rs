//! The programs of tests/examples, as they are: each compiles without a warning, runs on the simulated
//! driver with its checker set to abort, and prints what its last lines say.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Folder, output, run, stranger};

fn source(name: &str) -> PathBuf {
    Path::new("tests/examples").join(name)
}

/// What a program says that it prints: the lines behind `Prints:`, as comments of its language.
fn said(name: &str) -> String {
    let text = fs::read_to_string(source(name)).expect("it is committed");
    let comment = if name.ends_with(".py") { "# " } else { "// " };
    let lines = text.split_once(&format!("\n{comment}Prints:\n")).expect("it says so").1.lines();
    let lines = lines.map(|line| line.strip_prefix(comment).expect("comments to the end"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Runs it beside the libraries.
fn prints_what_it_says(name: &str, folder: &Folder, command: &mut Command) {
    command.env_clear().env("LD_LIBRARY_PATH", folder.path()).env("SIMCUDA_CHECKER", "abort");
    command.env("SIMCUDA_MEMORY", "2GiB").env("CUDDY_LIBRARY", folder.file("libcuddy.so.0"));
    command.env("PYTHONPATH", "bindings/python/src").env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    assert_eq!(run(command).quietly(), said(name), "{name}");
}

/// Compiles it with the libraries of the folder, and runs it.
fn compiled(name: &str, compiler: &str, standard: &str) {
    let folder = Folder::with_libraries();
    let mut command = Command::new(compiler);
    command.args([standard, "-Wall", "-Wextra", "-Werror", "-Iinclude", "-Ibindings/cpp"]);
    command.arg(source(name)).arg("-o").arg(folder.file("program"));
    command.arg("-L").arg(folder.path()).arg("-lcuddy").arg(folder.file("libcuda.so.1"));
    output(&mut command);
    prints_what_it_says(name, &folder, &mut Command::new(folder.file("program")));
}

#[test]
fn two_streams() {
    compiled("two_streams.c", "cc", "-std=c99");
}

#[test]
fn budget() {
    compiled("budget.cpp", "c++", "-std=c++17");
}

#[test]
fn leaks() {
    let folder = Folder::with_libraries();
    let mut python = Command::new("python3");
    python.args(["-W", "error"]).arg(source("leaks.py"));
    prints_what_it_says("leaks.py", &folder, &mut python);
}

#[test]
fn requests() {
    let folder = Folder::with_libraries();
    let text = fs::read_to_string(source("requests.rs")).expect("it is committed");
    let program = stranger("requests", &text).join("requests");
    prints_what_it_says("requests.rs", &folder, &mut Command::new(program));
}

/// No program may be forgotten.
#[test]
fn every_program_has_a_test() {
    let tests = fs::read_to_string(file!()).expect("this file");
    for entry in fs::read_dir("tests/examples").expect("it can be read") {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        assert!(tests.contains(&format!("\"{name}\"")), "{name}");
    }
}
