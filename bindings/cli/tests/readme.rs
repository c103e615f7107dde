//! What the README shows of the command is what it prints, but for times.

mod common;

use common::{Ended, compile, cuddy, workspace};

/// The fenced text block after `marker`.
fn block<'a>(text: &'a str, marker: &str) -> &'a str {
    let rest = text.split_once(marker).unwrap_or_else(|| panic!("no `{marker}` in the README")).1;
    let body = rest.split_once("```text\n").expect("a block follows").1;
    body.split_once("```").expect("a block ends").0
}

/// Lines with each time (a number and its unit), each word with an address in it, and each run of
/// blanks or dashes made the same.
fn masked(text: &str) -> Vec<String> {
    text.trim_end().lines().map(masked_line).collect()
}

fn masked_line(line: &str) -> String {
    const UNITS: [&str; 4] = ["ns", "us", "ms", "s"];
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut seen = Vec::new();
    for (i, word) in words.iter().enumerate() {
        let is_time = word.parse::<f64>().is_ok()
            && words.get(i + 1).is_some_and(|next| UNITS.contains(next));
        match *word {
            _ if is_time => seen.push("TIME"),
            address if address.contains("0x") => seen.push("ADDRESS"),
            unit if UNITS.contains(&unit) && seen.last() == Some(&"TIME") => {}
            _ if seen.last() == Some(&"call") => seen.push("NUMBER"),
            rule if rule.chars().all(|c| c == '-') => seen.push("-"),
            other => seen.push(other),
        }
    }
    seen.join(" ")
}

/// Holds the block after `marker` to what a command printed; `CUDDY_BLESS=1` writes it anew.
fn hold(marker: &str, printed: &str) {
    let path = workspace().join("README.md");
    let readme = std::fs::read_to_string(&path).expect("there is a README");
    let shown = block(&readme, marker);
    if masked(shown) == masked(printed) {
        return;
    }
    if std::env::var("CUDDY_BLESS").as_deref() == Ok("1") {
        let old = format!("```text\n{shown}```");
        let (before, after) = readme.split_once(marker).expect("found above");
        let fresh = after.replacen(&old, &format!("```text\n{}\n```", printed.trim_end()), 1);
        std::fs::write(&path, format!("{before}{marker}{fresh}")).expect("it can be written");
        return;
    }
    assert_eq!(masked(shown), masked(printed), "CUDDY_BLESS=1 cargo test writes it anew");
}

/// The same for standard output of this command.
fn check(marker: &str, arguments: &[&str]) {
    let ended = Ended::of(&mut cuddy(arguments));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    hold(marker, &ended.out);
}

#[test]
fn the_readme_shows_what_the_command_prints() {
    check("Here it printed:", &["demo", "--on", "sim"]);
    let replay = "cuddy replay --fit resnet50_train_b64_adam synth_checkerboard";
    check(
        replay,
        &["replay", "--on", "sim", "--fit", "resnet50_train_b64_adam", "synth_checkerboard"],
    );
}

#[test]
fn the_readme_shows_what_the_checker_says_of_its_wrong_program() {
    let readme = std::fs::read_to_string(workspace().join("README.md")).expect("a README");
    let section = readme.split_once("## Run any program without a GPU").expect("a section").1;
    let source = section.split_once("```c\n").and_then(|(_, rest)| rest.split_once("```"));
    let (_folder, program) = compile("race", source.expect("a C program").0);
    let command = "cuddy sim --devices 2 --memory 24GiB -- ./race";
    let ended = Ended::of(&mut cuddy(&["sim", "--devices", "2", "--memory", "24GiB", &program]));
    assert_eq!((ended.code, ended.out.as_str()), (Some(86), ""), "{}", ended.err);
    hold(command, &ended.err);
}

#[test]
fn the_readme_shows_what_a_preloaded_program_saves() {
    let readme = std::fs::read_to_string(workspace().join("README.md")).expect("a README");
    let section =
        readme.split_once("## Run a program that you cannot rebuild").expect("a section").1;
    let source = section.split_once("```c\n").and_then(|(_, rest)| rest.split_once("```"));
    let (_folder, program) = compile("steps", source.expect("a C program").0);
    let words =
        ["sim", "--", env!("CARGO_BIN_EXE_cuddy"), "run", "--mode", "fenced", "--", &program];
    let ended = Ended::of(&mut cuddy(&words));
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{}", ended.err);
    let (ours, sims) = ended.err.split_once("cuddy sim: ").expect("the simulator's verdict");
    assert_eq!(sims, "clean: 10 000 accesses checked\n");
    hold("cuddy run --mode fenced -- ./steps  ", ours);
}
