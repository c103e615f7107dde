//! `cuddy --help` names every command, and each command's own explains it on lines that fit; the manual
//! pages say the same.

mod common;

use std::process::Command;

use common::{Ended, cuddy};

fn help(arguments: &[&str]) -> String {
    let ended = Ended::of(&mut cuddy(arguments));
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{arguments:?}");
    let widest = ended.out.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    assert!(widest <= 120, "{arguments:?}: a line of {widest} characters");
    ended.out
}

/// The commands that an overview lists.
fn commands(overview: &str) -> Vec<&str> {
    let list = overview.split_once("Commands:\n").expect("a list").1;
    list.lines().map_while(|line| line.split_whitespace().next()).collect()
}

#[test]
fn every_command_explains_itself() {
    let overview = help(&["--help"]);
    let commands = commands(&overview);
    assert!(commands.contains(&"demo") && commands.contains(&"run"), "{commands:?}");
    for command in commands {
        let text = help(&[command, "--help"]);
        assert!(text.contains("Exit code:") || text.contains("Example"), "{command}:\n{text}");
    }
    assert!(overview.contains("CUDDY_CONF"), "{overview}");
}

/// A page for each, which the formatter takes without a word.
#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let written = Ended::of(cuddy(&["man"]).arg(folder.path()));
    assert_eq!((written.code, written.out.as_str(), written.err.as_str()), (Some(0), "", ""));
    let overview = help(&["--help"]);
    let mut names: Vec<String> =
        commands(&overview).iter().map(|it| format!("cuddy-{it}.1")).collect();
    names.push("cuddy.1".to_owned());
    let files = std::fs::read_dir(folder.path()).expect("it is ours");
    let mut files: Vec<String> =
        files.map(|it| it.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    files.sort();
    names.sort();
    assert_eq!(files, names);
    for name in &names {
        let mut groff = Command::new("groff");
        groff.args(["-ww", "-man", "-Tascii", "-P-cbou"]).arg(folder.path().join(name));
        if groff.output().is_err() {
            return eprintln!("\nSKIPPED: the manual pages' looks: groff is not installed\n");
        }
        let page = Ended::of(&mut groff);
        assert_eq!((page.code, page.err.as_str()), (Some(0), ""), "{name}");
        for heading in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "SEE ALSO"] {
            assert!(
                page.out.lines().any(|line| line == heading),
                "{name}: {heading}\n{}",
                page.out
            );
        }
        let others = page.out.contains("cuddy(1)");
        assert!(!page.out.contains("EXTRA") && others == (name != "cuddy.1"), "{}", page.out);
    }
    let sim = std::fs::read_to_string(folder.path().join("cuddy-sim.1")).expect("it is there");
    for words in [".SH \"EXIT CODE\"", ".SH EXAMPLES", "86 if the checker reported something"] {
        assert!(sim.contains(words), "{words}\n{sim}");
    }
}
