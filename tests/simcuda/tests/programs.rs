//! Programs in C on the simulated driver, each a process of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn here(part: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(part)
}

/// A folder for what this test builds, under the build folder.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
    std::fs::create_dir_all(&folder).expect("a folder in the build folder");
    folder
}

/// Compiles a program against the library; what it needs at run time is `libcuda.so.1`.
fn compile(name: &str, test: &str) -> PathBuf {
    let program = folder().join(format!("{name}-{test}"));
    let output = Command::new("cc")
        .args([
            "-std=c11",
            "-D_POSIX_C_SOURCE=200809L",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
        ])
        .arg("-I")
        .arg(here("include"))
        .arg(here("tests/c").join(format!("{name}.c")))
        .arg(simcuda_control::find().expect("the library is built"))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn run(program: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> (Output, String, String) {
    let (variable, library) = simcuda_control::preload().expect("the library is built");
    let output = Command::new(program)
        .args(arguments)
        .env(variable, library)
        .envs(variables.iter().copied())
        .output()
        .expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output, out, err)
}

#[test]
fn a_program_that_links_the_driver_finds_the_simulated_one() {
    let program = compile("saxpy", "links");
    let needed = Command::new("readelf").arg("-d").arg(&program).output().expect("readelf");
    assert!(String::from_utf8_lossy(&needed.stdout).contains("[libcuda.so.1]"));
    for schedule in ["eager", "lazy", "lag:2", "random:4"] {
        let variables = [("SIMCUDA_SCHEDULE", schedule), ("SIMCUDA_CHECKER", "abort")];
        let (output, out, err) = run(&program, &[], &variables);
        assert!(output.status.success(), "{schedule}: {out}{err}");
        assert_eq!((out.as_str(), err.as_str()), ("Simulated GPU 0 (simcuda)\n", ""));
    }
}

#[test]
fn the_exit_report_counts_calls_and_time() {
    let program = compile("saxpy", "report");
    let file = folder().join("report.txt");
    let to = file.to_str().expect("UTF-8");
    for report in ["stderr", to] {
        let (output, _, err) =
            run(&program, &[], &[("SIMCUDA_REPORT", report), ("SIMCUDA_CHECKER", "log")]);
        assert!(output.status.success());
        let text = match report {
            "stderr" => err,
            _ => std::fs::read_to_string(&file).expect("a report"),
        };
        for part in [
            "0 findings in",
            " 3 cuMemAlloc\n",
            " 1 cuLaunchKernel\n",
            "0 bytes in use, 12288 at most",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }
    let (_, _, err) = run(&program, &[], &[("SIMCUDA_REPORT", "stderr")]);
    assert!(err.starts_with("simcuda: NOT CHECKED: the checker was off"), "{err}");
    assert!(!err.contains("0 findings"), "{err}");
}

#[test]
fn a_journal_has_lines_of_many_processes() {
    let program = compile("saxpy", "journal");
    let file = folder().join("journal.jsonl");
    let _ = std::fs::remove_file(&file);
    let to = file.to_str().expect("UTF-8");
    for _ in 0..2 {
        let (output, _, err) =
            run(&program, &[], &[("SIMCUDA_REPORT", to), ("SIMCUDA_CHECKER", "log")]);
        assert!(output.status.success() && err.is_empty(), "{err}");
    }
    let text = std::fs::read_to_string(&file).expect("a journal");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    for pair in lines.chunks(2) {
        assert!(pair[0].contains("\"event\":\"begin\"") && pair[0].contains("saxpy-journal"));
        assert!(pair[1].contains("\"event\":\"end\"") && pair[1].contains("[\"cuMemAlloc\",3]"));
        assert_eq!(pair[0].split(',').next(), pair[1].split(',').next(), "one process");
    }
    assert_ne!(lines[0].split(',').next(), lines[2].split(',').next());
}

#[test]
fn a_mistake_is_reported_with_both_sides() {
    let program = compile("mistakes", "race");
    let (output, out, err) = run(&program, &["race"], &[("SIMCUDA_CHECKER", "log")]);
    assert!(output.status.success(), "{:?} {out}{err}", output.status);
    assert!(out.contains("race") && out.matches("cuMemsetD8Async").count() >= 2, "{out}");
    assert!(out.contains("no report of this number"), "{out}");
    let (output, _, err) = run(&program, &["race"], &[("SIMCUDA_CHECKER", "abort")]);
    assert!(!output.status.success() && err.contains("race"), "{err}");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(libc::SIGABRT));
}

#[test]
fn a_forked_child_cannot_use_the_driver_and_its_parent_can() {
    let program = compile("mistakes", "fork");
    let (output, out, err) = run(&program, &["fork"], &[]);
    assert!(output.status.success(), "{:?} {out}{err}", output.status);
}

#[test]
fn after_its_shutdown_the_driver_answers_deinitialized() {
    let program = compile("exit", "deinitialized");
    let (output, out, err) = run(&program, &[], &[]);
    assert!(output.status.success(), "{err}");
    assert_eq!((out.as_str(), err.as_str()), ("before 0\nafter 4 0\n", ""));
}

#[test]
fn a_wrong_environment_is_a_clear_error() {
    let program = compile("saxpy", "wrong");
    for (key, value) in
        [("SIMCUDA_MEMORY", "much"), ("SIMCUDA_SCHEDULE", "soon"), ("SIMCUDA_VMM", "maybe")]
    {
        let (output, _, err) = run(&program, &[], &[(key, value)]);
        assert_eq!(output.status.code(), Some(1));
        assert!(err.contains(key) && err.contains(value), "{err}");
        assert!(err.contains("CUDA_ERROR_INVALID_VALUE"), "{err}");
    }
}

#[test]
fn the_header_is_c99_c11_and_cpp17() {
    for (compiler, standard, language) in
        [("cc", "-std=c99", "c"), ("cc", "-std=c11", "c"), ("c++", "-std=c++17", "c++")]
    {
        let output = Command::new(compiler)
            .args([
                standard,
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                "-fsyntax-only",
                "-x",
                language,
            ])
            .arg(here("include/simcuda.h"))
            .output()
            .expect("a compiler");
        assert!(output.status.success(), "{standard}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_library_is_a_driver_by_name_and_exports_nothing_else() {
    let library = simcuda_control::find().expect("the library is built");
    let dynamic = Command::new("readelf").arg("-d").arg(&library).output().expect("readelf");
    let dynamic = String::from_utf8_lossy(&dynamic.stdout).into_owned();
    assert!(dynamic.contains("Library soname: [libcuda.so.1]"), "{dynamic}");
    assert!(dynamic.contains("SYMBOLIC") && dynamic.contains("NODELETE"), "{dynamic}");
    let names =
        Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().expect("nm");
    let names = String::from_utf8_lossy(&names.stdout).into_owned();
    let names: Vec<_> = names.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let ours = |name: &&&str| name.starts_with("cu") || name.starts_with("simcuda_");
    assert!(names.len() > 600);
    assert_eq!(names.iter().filter(|name| !ours(name)).collect::<Vec<_>>(), Vec::<&&str>::new());
    let folder = library.parent().expect("a folder");
    assert!(!folder.join("libcuda.so.1").exists(), "it would hide a real driver");
}

#[test]
fn the_table_of_control_functions_is_complete() {
    let library = simcuda_control::find().expect("the library is built");
    let names =
        Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().expect("nm");
    let names = String::from_utf8_lossy(&names.stdout).into_owned();
    let exported = names.lines().filter_map(|line| line.split(' ').nth(2));
    let mut exported: Vec<_> = exported.filter(|name| name.starts_with("simcuda_")).collect();
    let mut known = simcuda_control::FUNCTIONS.to_vec();
    exported.sort_unstable();
    known.sort_unstable();
    assert_eq!(exported, known);
}

/// Cargo hands a crate's link flags on to the cdylibs that have it as an ordinary dependency: such a
/// library would be called `libcuda.so.1` too.
#[test]
fn no_library_of_the_workspace_depends_on_the_simulator_but_in_its_tests() {
    let root = here("../..");
    let text = |file: &Path| std::fs::read_to_string(file).expect("a manifest");
    let workspace = text(&root.join("Cargo.toml"));
    let list = workspace.split("members = [").nth(1).and_then(|rest| rest.split(']').next());
    let members = list.expect("a list of members").split(',').map(|m| m.trim().trim_matches('"'));
    let mut libraries = 0;
    for member in members.filter(|member| !member.is_empty()) {
        let manifest = text(&root.join(member).join("Cargo.toml"));
        if !manifest.contains("\"cdylib\"") {
            continue;
        }
        libraries += 1;
        for section in manifest.split("\n[").filter(|s| s.starts_with("dependencies]")) {
            let mut names = section.lines().filter_map(|line| line.split([' ', '.', '=']).next());
            assert!(names.all(|name| name != "simcuda"), "{member} depends on simcuda");
        }
    }
    assert!(libraries >= 2, "the manifests were read");
}
