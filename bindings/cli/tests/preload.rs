//! `cuddy run` and `cuddy doctor -- PROGRAM`: what they say, and how they end.

mod common;

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use common::{Ended, cuddy, driver_folder, run, simulated_driver, workspace};

/// The programs of tests/preload/c that are run here.
struct Programs {
    _folder: tempfile::TempDir,
    naive: String,
    fixed: String,
}

fn programs() -> &'static Programs {
    static PROGRAMS: LazyLock<Programs> = LazyLock::new(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let sources = workspace().join("tests/preload/c");
        let build = |to: &str, name: &str, flags: &[&str]| {
            let program = folder.path().join(to);
            let mut compiler = Command::new("cc");
            compiler.args(["-std=gnu11", "-w"]).args(flags).arg(sources.join(name));
            let done = compiler.args(["-ldl", "-o"]).arg(&program).output().expect("a C compiler");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            program.to_str().expect("UTF-8").to_owned()
        };
        let naive = build("naive", "naive.c", &[]);
        let fixed = build("fixed", "life.c", &["-static", "-DWITHOUT_DLOPEN"]);
        Programs { _folder: folder, naive, fixed }
    });
    &PROGRAMS
}

/// Runs it on the simulated driver.
fn on_sim(words: &[&str]) -> Ended {
    let folder = driver_folder();
    Ended::of(cuddy(words).env("LD_LIBRARY_PATH", folder.path()).env_remove("CUDDY_PRELOAD"))
}

#[test]
fn a_naive_program_calls_the_driver_ten_times_and_the_report_says_so() {
    for mode in ["strict", "fenced"] {
        let ended = on_sim(&["run", "--mode", mode, "--", &programs().naive]);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert_eq!(ended.out, "findings 0\ndriver 10 0\n", "{mode}");
        let waits = if mode == "strict" { "10 000 waits" } else { "0 waits" };
        for part in [
            "cuddy run: 9 990 of 10 000 allocations served from kept memory (99.9 %)",
            &format!("10 allocations, 0 frees and {waits} for 10 000 allocations and 10 000 frees"),
            "of allocating (no free was made to measure one by) saved",
            "virtual time of the simulated driver",
            "15.74 MiB asked for",
            "dlsym (",
        ] {
            assert!(ended.err.contains(part), "{mode}: {part} in {}", ended.err);
        }
    }
    let off = on_sim(&["run", "--mode", "off", "--", &programs().naive, "5"]);
    assert_eq!((off.code, off.out.as_str()), (Some(0), "findings 0\ndriver 50 50\n"));
    assert_eq!(off.err, "cuddy run: mode off, every call was the driver's\n");
}

/// As install.sh and the wheel lay them out: `bin/cuddy`, and what it preloads in `lib/cuddy`.
#[test]
fn an_installed_command_finds_its_libraries() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (bin, lib) = (folder.path().join("bin"), folder.path().join("lib/cuddy"));
    std::fs::create_dir_all(&bin).and_then(|()| std::fs::create_dir_all(&lib)).expect("it is ours");
    let installed = bin.join("cuddy");
    std::fs::copy(env!("CARGO_BIN_EXE_cuddy"), &installed).expect("it is built");
    let run = |words: &[&str]| {
        let mut command = Command::new(&installed);
        command.env_remove("CUDDY_PRELOAD_LIBRARY").env_remove("CUDDY_SIM_LIBRARY");
        Ended::of(command.args(words))
    };
    let (ours, sim) = (["run", "--", "true"], ["sim", "--", "true"]);
    let missing = run(&ours);
    assert_eq!(missing.code, Some(2), "{}", missing.err);
    assert!(missing.err.contains("libcuddy_preload.so was not found"), "{}", missing.err);
    let preload = cuddy_cli::preload::library().expect("it is built");
    for (file, name) in [(preload, "libcuddy_preload.so"), (simulated_driver(), "libsimcuda.so")] {
        std::fs::copy(file, lib.join(name)).expect("it is ours");
    }
    for words in [ours, sim] {
        let ended = run(&words);
        assert_eq!(ended.code, Some(0), "{words:?}: {}", ended.err);
    }
}

#[test]
fn the_report_goes_to_a_file_and_nothing_else_is_printed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (text, lines) = (file("report.txt"), file("report.jsonl"));
    for file in [&text, &lines] {
        let ended = on_sim(&["run", "--report", file, "--", &programs().naive, "20"]);
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    }
    let read = |file: &str| std::fs::read_to_string(file).expect("it was written");
    assert!(read(&text).starts_with("cuddy run: 190 of 200 allocations"), "{}", read(&text));
    let line: serde_json::Value = serde_json::from_str(&read(&lines)).expect("one line of JSON");
    assert_eq!(
        (&line["hits"], &line["misses"], &line["mode"]),
        (&190.into(), &10.into(), &"strict".into())
    );
    let ended = on_sim(&["run", "--report", "/no/such/folder/x", "--", "true"]);
    assert_eq!(ended.code, Some(2), "{}", ended.err);
}

#[test]
fn processes_without_cuda_and_those_that_are_killed_are_said_to_be_so() {
    let ended = on_sim(&["run", "--", "sh", "-c", "exit 3"]);
    assert_eq!(ended.code, Some(3));
    assert!(ended.err.contains("no process allocated device memory"), "{}", ended.err);
    assert!(ended.err.contains("the program ended with exit code 3"), "{}", ended.err);
    let naive = &programs().naive;
    let ended = on_sim(&["run", "--", "sh", "-c", &format!("{naive} 10; {naive} 10")]);
    assert!(ended.err.contains("180 of 200 allocations"), "{}", ended.err);
    assert!(ended.err.contains("2 processes"), "{}", ended.err);
    let ended = on_sim(&["run", "--", "/no/such/program"]);
    assert_eq!(
        (ended.code, ended.err.as_str()),
        (Some(127), "cuddy run: cannot run `/no/such/program`: no such file\n")
    );
    for wrong in [
        &["run", "--mode", "quick", "--", "true"][..],
        &["run", "--cap", "2", "--", "true"],
        &["run"],
    ] {
        assert_eq!(run(wrong).code, Some(2), "{wrong:?}");
    }
    let ended =
        Ended::of(cuddy(&["run", "--", "true"]).env("CUDDY_PRELOAD_LIBRARY", "/nowhere.so"));
    assert!(ended.code == Some(2) && ended.err.contains("/nowhere.so"), "{}", ended.err);
}

#[test]
fn the_doctor_says_who_cannot_be_served() {
    let doctor = |program: &str| run(&["doctor", "--", program]);
    let ended = doctor(&programs().naive);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    for part in ["opens libcuda.so.1 itself", "would serve it", "RTLD_DEEPBIND"] {
        assert!(ended.out.contains(part), "{part} in {}", ended.out);
    }
    let ended = doctor(&programs().fixed);
    assert!(ended.code == Some(1) && ended.out.contains("is linked statically"), "{}", ended.out);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str| -> PathBuf { folder.path().join(name) };
    std::fs::copy(&programs().naive, place("special")).expect("a copy");
    let chmod = |mode: &str, file: &PathBuf| Command::new("chmod").arg(mode).arg(file).status();
    assert!(chmod("4755", &place("special")).is_ok_and(|status| status.success()));
    let ended = doctor(place("special").to_str().expect("UTF-8"));
    assert!(ended.code == Some(1) && ended.out.contains("is setuid or setgid"), "{}", ended.out);
    std::fs::write(place("script"), format!("#!/usr/bin/env {}\n", programs().fixed))
        .expect("a file");
    let ended = doctor(place("script").to_str().expect("UTF-8"));
    assert!(ended.out.contains("it is a script for") && ended.code == Some(1), "{}", ended.out);
    std::fs::write(place("text"), "no program").expect("a file");
    let ended = doctor(place("text").to_str().expect("UTF-8"));
    assert!(ended.out.contains("neither a program nor a script"), "{}", ended.out);
    assert_eq!(doctor("/no/such/program").code, Some(2));
    let ended = Ended::of(cuddy(&["doctor", "--", "sh"]).env("CUDA_INJECTION64_PATH", "/x.so"));
    assert!(ended.code == Some(1) && ended.out.contains("CUDA_INJECTION64_PATH"), "{}", ended.out);
}
