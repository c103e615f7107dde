//! The README's programs in C and Rust, pasted as they are: they compile, run on the simulated device,
//! and print what the README says that they print.

mod common;

use std::fs;
use std::process::Command;

use common::{Folder, block};

#[test]
fn the_program_prints_what_the_readme_says() {
    let heading = "## Use it from C, C++ and Rust";
    let readme = fs::read_to_string("README.md").expect("there is a README");
    let folder = Folder::with_libraries();
    let source = folder.file("step.c");
    fs::write(&source, block(&readme, heading, "c")).expect("the folder takes files");
    let program = folder.file("step");
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-Iinclude", "-L"]).arg(folder.path());
    common::output(compiler.arg(&source).arg("-lcuddy").arg("-o").arg(&program));
    let mut command = Command::new(&program);
    command.env_clear().env("LD_LIBRARY_PATH", folder.path());
    let printed = common::run(&mut command).quietly();
    let fresh =
        readme.replacen(block(&readme, heading, "text"), &format!("{}\n", printed.trim_end()), 1);
    common::compare("README.md", &fresh);
}

/// The Rust program, in a crate that names this one as the README says.
#[test]
fn the_rust_program_prints_what_the_readme_says() {
    let heading = "### Rust";
    let readme = fs::read_to_string("README.md").expect("there is a README");
    let program = common::stranger("step", block(&readme, heading, "rust")).join("step");
    let folder = Folder::with_libraries();
    let mut command = Command::new(program);
    command.env_clear().env("LD_LIBRARY_PATH", folder.path());
    let printed = common::run(&mut command).quietly();
    common::compare("README.md", &common::with_block(&readme, heading, "text", &printed));
}
