//! The command's manners: help, exit codes, where messages go.

mod common;

use common::{Ended, cuddy, file, run};

#[test]
fn help_says_what_there_is() {
    let help = run(&["--help"]);
    assert_eq!(help.code, Some(0));
    for word in ["demo", "replay", "doctor"] {
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
    let cases: [(&[&str], &str); 10] = [
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
            &["replay", "--allocator", "driver-async", "synth_checkerboard"],
            "driver-async is not built yet",
        ),
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
    assert!(list.out.contains("only") && !list.out.contains("llama"), "{}", list.out);
    assert_eq!(run(&["replay", "--list", "synth_checkerboard"]).code, Some(2));
}
