//! The command's manners: help, exit codes, where messages go.

mod common;

use common::{Ended, cuddy, file, run};

#[test]
fn help_says_what_there_is() {
    let help = run(&["--help"]);
    assert_eq!(help.code, Some(0));
    for word in ["demo", "replay", "sim", "doctor"] {
        assert!(help.out.contains(word), "{}", help.out);
    }
    assert!(!help.out.contains("__replay"), "what is internal is hidden");
    let help = run(&["replay", "--help"]);
    for option in [
        "--json",
        "--device-memory",
        "--fit",
        "--backing",
        "--allocator",
        "--schedule",
        "--self-test",
        "--list",
    ] {
        assert!(help.out.contains(option), "{option} in {}", help.out);
    }
    assert_eq!(run(&["--version"]).out, format!("cuddy {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn what_cannot_be_done_is_said_on_stderr_with_exit_code_2() {
    let (_folder, bad) = file("bad", b"# gputrace 1\na 0 5 0\na 0 5 0\n");
    let cases: [(&[&str], &str); 9] = [
        (&[], "Usage"),
        (&["replay"], "TRACE"),
        (&["replay", "no_such_trace"], "no_such_trace: no such file"),
        (&["replay", &bad], "line 3: block 0 is allocated while it is still live"),
        (&["replay", "Cargo.toml"], "not a trace"),
        (
            &["replay", "--schedule", "often", "synth_checkerboard"],
            "eager, lazy, lag:K or random:SEED",
        ),
        (&["replay", "--schedule", "lag:x", "synth_checkerboard"], "not a number"),
        (&["replay", "--device-memory", "much", "synth_checkerboard"], "not a size"),
        (
            &["replay", "--allocator", "driver", "--backing", "pages", "synth_checkerboard"],
            "--backing is a choice of Cuddy's",
        ),
    ];
    for (arguments, message) in cases {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains(message), "{arguments:?}: {}", ended.err);
        assert_eq!(ended.out, "", "{arguments:?}");
    }
}

#[test]
fn known_traces_are_listed() {
    let list = run(&["replay", "--list"]);
    assert_eq!(list.code, Some(0), "{}", list.err);
    for name in ["llama7b_train_bf16_s2048 ", "synth_tiny_storm ", "dlrm_train_b2048_multihot "] {
        assert!(list.out.contains(name), "{}", list.out);
    }
    let (folder, _) = file("only.gz", b"# gputrace 1\na 0 5 0\n");
    let list = Ended::of(cuddy(&["replay", "--list"]).env("CUDDY_TRACES", folder.path()));
    assert!(list.out.contains("only") && !list.out.contains("synth_"), "{}", list.out);
    assert_eq!(run(&["replay", "--list", "synth_checkerboard"]).code, Some(2));
}

#[test]
fn a_reader_who_stops_reading_ends_it_quietly() {
    for arguments in
        [&["doctor", "--on", "sim"][..], &["replay", "--list"], &["demo", "--on", "sim"]]
    {
        let mut child = cuddy(arguments)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the command starts");
        drop(child.stdout.take());
        let ended = child.wait_with_output().expect("our own child");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && said.is_empty(), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn a_full_disk_is_said_in_one_line() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let ended = Ended::of_parts(cuddy(&["replay", "--list"]).stdout(full));
    assert_eq!(ended.code, Some(2), "{}", ended.err);
    assert!(ended.err.starts_with("cuddy: cannot write") && ended.err.lines().count() == 1);
}

#[test]
fn the_bundled_traces_are_listed_wherever_the_program_runs() {
    let empty = tempfile::tempdir().expect("a temporary folder");
    let ended = Ended::of(cuddy(&["replay", "--list"]).env("CUDDY_TRACES", empty.path()));
    assert!(
        ended.code == Some(0) && ended.out.contains("bertlarge_mlm_amp_varlen"),
        "{}",
        ended.out
    );
}
