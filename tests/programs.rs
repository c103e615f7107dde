//! The C programs of tests/c: compiled as C99 and C++17 against cuddy.h and libcuddy.so, and run on
//! the simulated driver with its checker set to abort, once with each backing.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ended, Folder};

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

#[derive(Clone, Copy)]
enum Language {
    C99,
    Cpp17,
}

/// Compiles a program against the header and the library under test.
fn compile(folder: &Folder, source: &Path, language: Language) -> PathBuf {
    let binary = folder.file(match language {
        Language::C99 => "program-c",
        Language::Cpp17 => "program-cpp",
    });
    let mut command = match language {
        Language::C99 => Command::new("cc"),
        Language::Cpp17 => Command::new("c++"),
    };
    match language {
        Language::C99 => command.args(["-x", "c", "-std=c99", "-D_XOPEN_SOURCE=700"]),
        Language::Cpp17 => command.args(["-x", "c++", "-std=c++17"]),
    };
    command.args(WARNINGS).args(["-g", "-Iinclude", "-Itests/c"]).arg(source);
    command.args(["-x", "none", "-L"]).arg(folder.path()).args(["-lcuddy", "-ldl", "-lpthread"]);
    common::output(command.arg("-o").arg(&binary));
    binary
}

/// A command that runs a program in an environment of its own: two devices of 512 MiB.
fn in_sandbox(folder: &Folder, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("LD_LIBRARY_PATH", folder.path());
    command.env("SIMCUDA_MEMORY", "512MiB").env("SIMCUDA_CHECKER", "abort");
    // A deliberate fault, if one is asked for.
    command.envs(std::env::var_os("CUDDY_MUTANT").map(|fault| ("CUDDY_MUTANT", fault)));
    command
}

/// Runs a program as C99 and as C++17, with each backing.
fn check(name: &str) {
    let folder = Folder::with_libraries();
    let source = Path::new("tests/c").join(name);
    for language in [Language::C99, Language::Cpp17] {
        let binary = compile(&folder, &source, language);
        for backing in ["backing:pages", "backing:segments"] {
            common::run(in_sandbox(&folder, &binary).env("CUDDY_CONF", backing)).quietly();
        }
    }
}

#[test]
fn errors() {
    check("errors.c");
}

#[test]
fn memory() {
    check("memory.c");
}

#[test]
fn stats() {
    check("stats.c");
}

#[test]
fn host() {
    check("host.c");
}

#[test]
fn observers() {
    check("observers.c");
}

/// What the header says of exceptions: no undefined behaviour, but the end.
#[test]
fn an_exception_out_of_a_callback_ends_the_process() {
    let folder = Folder::with_libraries();
    let binary = compile(&folder, Path::new("tests/c/throws.cpp"), Language::Cpp17);
    let ended = common::run(&mut in_sandbox(&folder, &binary));
    assert_eq!(ended.code, None, "{ended:#?}");
    assert!(ended.err.contains("foreign exception"), "{ended:#?}");
}

#[test]
fn limits() {
    check("limits.c");
}

#[test]
fn pools() {
    check("pools.c");
}

#[test]
fn graphs() {
    check("graphs.c");
}

#[test]
fn streams() {
    check("streams.c");
}

#[test]
fn watching() {
    check("watching.c");
}

#[test]
fn threads() {
    check("threads.c");
}

/// Threads at once on shared streams, short of memory, with held streams and with borrowed ones.
#[test]
fn crowd() {
    let folder = Folder::with_libraries();
    let binary = compile(&folder, Path::new("tests/c/crowd.c"), Language::C99);
    for streams in ["held", "borrowed"] {
        for (seed, schedule) in ["eager", "lazy", "lag:50", "random:4"].into_iter().enumerate() {
            let mut program = in_sandbox(&folder, &binary);
            program.env("SIMCUDA_SCHEDULE", schedule).args([streams, &seed.to_string()]);
            common::run(&mut program).quietly();
        }
    }
}

/// Threads that capture beside threads that open streams and allocate.
#[test]
fn crowd_graphs() {
    let folder = Folder::with_libraries();
    let binary = compile(&folder, Path::new("tests/c/crowd_graphs.c"), Language::C99);
    for schedule in ["eager", "lazy", "lag:50", "random:4", "random:5", "lazy"] {
        common::run(in_sandbox(&folder, &binary).env("SIMCUDA_SCHEDULE", schedule)).quietly();
    }
}

/// Threads at once, of which each does something else: graphs, private pools, host memory.
#[test]
fn crowd_kinds() {
    let folder = Folder::with_libraries();
    let binary = compile(&folder, Path::new("tests/c/crowd_kinds.c"), Language::C99);
    for (seed, schedule) in ["eager", "lazy", "lag:50", "random:4"].into_iter().enumerate() {
        let mut program = in_sandbox(&folder, &binary);
        common::run(program.env("SIMCUDA_SCHEDULE", schedule).arg(seed.to_string())).quietly();
    }
}

#[test]
fn fork() {
    check("fork.c");
}

#[test]
fn exit() {
    check("exit.c");
    let folder = Folder::with_libraries();
    let binary = compile(&folder, Path::new("tests/c/exit.c"), Language::C99);
    for _ in 0..10 {
        common::run(in_sandbox(&folder, &binary).arg("thread")).quietly();
    }
}

#[test]
fn per_thread() {
    check("per_thread.c");
}

#[test]
fn devices() {
    let folder = Folder::with_libraries();
    let binary = compile(&folder, Path::new("tests/c/devices.c"), Language::C99);
    common::run(in_sandbox(&folder, &binary).env("SIMCUDA_DEVICES", "2")).quietly();
}

#[test]
fn static_objects() {
    let folder = Folder::with_libraries();
    let binary = compile(&folder, Path::new("tests/c/static_objects.cpp"), Language::Cpp17);
    common::run(&mut in_sandbox(&folder, &binary)).quietly();
}

/// It is not linked with the library: it finds it by its soname.
#[test]
fn dlopen() {
    let folder = Folder::with_libraries();
    let binary = folder.file("program");
    let mut compiler = Command::new("cc");
    compiler.arg("-std=gnu11").args(["-Wall", "-Wextra", "-Werror", "tests/c/dlopen.c"]);
    common::output(compiler.args(["-ldl", "-lpthread", "-o"]).arg(&binary));
    common::run(&mut in_sandbox(&folder, &binary)).quietly();
}

#[test]
fn no_driver() {
    let folder = Folder::with_libraries();
    let binary = compile(&folder, Path::new("tests/c/no_driver.c"), Language::C99);
    fs::remove_file(folder.file("libcuda.so.1")).expect("the folder is ours");
    if common::run(Command::new("ldconfig").arg("-p")).out.contains("libcuda.so.1 ") {
        return common::skipped("no_driver.c", "this machine has a CUDA driver");
    }
    common::run(&mut in_sandbox(&folder, &binary)).quietly();
}

/// What tests/c/options.c expects to find.
const OPTIONS_CONF: &str = "memory_limit:96MiB,cachng:off,segment_small:4MiB,streams:perhaps";

/// Bad entries are said once each, in the order they stand, and change nothing.
#[test]
fn options() {
    let folder = Folder::with_libraries();
    let binary = compile(&folder, Path::new("tests/c/options.c"), Language::C99);
    let Ended { code, out, err } =
        common::run(in_sandbox(&folder, &binary).env("CUDDY_CONF", OPTIONS_CONF));
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
    assert_eq!(
        err.lines().collect::<Vec<_>>(),
        [
            "cuddy: CUDDY_CONF: left out \"cachng:off\": there is no option \"cachng\", the nearest \
             is caching (on or off)",
            "cuddy: CUDDY_CONF: left out \"streams:perhaps\": \"perhaps\" is not a value of streams \
             (checked or trusted)",
        ]
    );
}

/// Each allocation of host memory that a step of the program makes, and all after it, fails once.
#[test]
fn host_memory() {
    let folder = Folder::with_libraries();
    let binary = compile(&folder, Path::new("tests/c/host_memory.c"), Language::C99);
    let steps = [
        "first_use",
        "many_blocks",
        "frees",
        "other_stream",
        "too_large",
        "misuse",
        "looks",
        "giving_back",
    ];
    let mut failed = 0;
    for conf in ["backing:pages", "backing:segments", "caching:off"] {
        for step in steps {
            let run = |first: u32| {
                let first = first.to_string();
                let mut command = in_sandbox(&folder, &binary);
                let ended = common::run(command.args([step, &first]).env("CUDDY_CONF", conf));
                assert!(ended.code == Some(0), "{conf}, {step}, allocation {first}: {ended:#?}");
                ended.out.trim().parse::<u32>().expect("a number")
            };
            let made = run(0);
            for first in 1..=made {
                run(first);
            }
            failed += made;
        }
    }
    assert!(failed > 20, "only {failed} allocations were made: is the right library watched?");
}

/// Every option has an effect that a program can see.
#[test]
fn configured() {
    let folder = Folder::with_libraries();
    let binary = compile(&folder, Path::new("tests/c/configured.c"), Language::C99);
    let entries = [
        ("backing:pages", ""),
        ("backing:segments", ""),
        ("memory_limit:64MiB", ""),
        ("memory_fraction:0.5", ""),
        ("caching:off", ",backing:pages"),
        ("caching:off", ",backing:segments"),
        ("streams:checked", ""),
        ("streams:trusted", ""),
        ("address_range:64MiB", ",backing:pages"),
        ("segment_small:4MiB", ",backing:segments"),
        ("segment_large:40MiB", ",backing:segments"),
        ("share:never", ",backing:pages"),
        ("share_growth:1", ",backing:pages"),
        ("wait_ms:0", ",backing:pages,share:passed,memory_limit:64MiB"),
        ("decay_ms:1", ",backing:pages"),
        ("decay_waste:100", ",backing:pages,decay_ms:1"),
        ("log:cuddy.log", ",backing:pages"),
    ];
    for (entry, with) in entries {
        let mut command = in_sandbox(&folder, &binary);
        command.arg(entry).env("CUDDY_CONF", format!("{entry}{with}")).current_dir(folder.path());
        common::run(&mut command).quietly();
    }
    for row in &cuddy::options::TABLE {
        let tried = |(entry, _): &(&str, &str)| entry.starts_with(&format!("{}:", row.name));
        assert!(entries.iter().any(tried), "the option {} is not tried", row.name);
    }
}

/// The program that the header shows, as a reader would copy it.
fn example() -> String {
    let header = fs::read_to_string("include/cuddy.h").expect("build.rs wrote it");
    let lines = header.lines().skip_while(|line| *line != "// A program in full:").skip(2);
    let code = lines.map_while(|line| match line {
        "//" => Some(""),
        _ => line.strip_prefix("//     "),
    });
    code.collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn the_program_in_the_header_runs() {
    let folder = Folder::with_libraries();
    let source = folder.file("example.c");
    let code = example();
    assert!(code.contains("int main(void) {") && code.trim_end().ends_with('}'), "{code}");
    fs::write(&source, code).expect("the folder is ours");
    for language in [Language::C99, Language::Cpp17] {
        let binary = compile(&folder, &source, language);
        let out = common::run(&mut in_sandbox(&folder, &binary)).quietly();
        assert_eq!(out, "0 bytes in use, 67108864 kept\n");
    }
    fs::remove_file(folder.file("libcuda.so.1")).expect("the folder is ours");
    let ended = common::run(&mut in_sandbox(&folder, folder.file("program-c")));
    if ended.code == Some(1) {
        assert!(ended.err.starts_with("no memory: "), "{ended:?}");
    }
}

/// No program may be forgotten.
#[test]
fn every_program_has_a_test() {
    let tests = fs::read_to_string(file!()).expect("this file");
    let mut programs = 0;
    for entry in fs::read_dir("tests/c").expect("tests/c can be read") {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        if name.ends_with(".c") || name.ends_with(".cpp") {
            let named = [format!("\"{name}\""), format!("tests/c/{name}\"")];
            assert!(named.iter().any(|name| tests.contains(name)), "{name} has no test");
            programs += 1;
        }
    }
    assert!(programs >= 14);
}

/// Reads and writes outside of what is ours, and memory that is lost, as valgrind sees them.
#[test]
fn under_valgrind() {
    if !common::is_installed("valgrind") {
        return common::skipped("the C programs under valgrind", "valgrind is not installed");
    }
    let folder = Folder::with_libraries();
    for name in ["errors.c", "memory.c", "stats.c", "options.c", "streams.c", "watching.c"] {
        let binary = compile(&folder, &Path::new("tests/c").join(name), Language::C99);
        let mut command = in_sandbox(&folder, "valgrind");
        command.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
        command
            .args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"])
            .arg(&binary);
        // It looks for pointers in all that can be read: the simulated device is kept small.
        command.env("SIMCUDA_MEMORY", "160MiB");
        let conf = match name {
            "options.c" => OPTIONS_CONF,
            // And it has no room for a range of thousands of GiB.
            _ => "address_range:4GiB",
        };
        let ended = common::run(command.env("CUDDY_CONF", conf));
        assert!(ended.code == Some(0), "{name}: {ended:#?}");
    }
}
