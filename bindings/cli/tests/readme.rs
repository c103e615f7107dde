//! What the README shows of the command is what it prints, but for times.

mod common;

use common::{Ended, cuddy, workspace};

/// The fenced text block after `marker`.
fn block<'a>(text: &'a str, marker: &str) -> &'a str {
    let rest = text.split_once(marker).unwrap_or_else(|| panic!("no `{marker}` in the README")).1;
    let body = rest.split_once("```text\n").expect("a block follows").1;
    body.split_once("```").expect("a block ends").0
}

/// Lines with each time (a number and its unit) and each run of blanks or dashes made the same.
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
            unit if UNITS.contains(&unit) && seen.last() == Some(&"TIME") => {}
            rule if rule.chars().all(|c| c == '-') => seen.push("-"),
            other => seen.push(other),
        }
    }
    seen.join(" ")
}

/// Holds the block after `marker` to what the command prints; `CUDDY_BLESS=1` writes it anew.
fn check(marker: &str, arguments: &[&str]) {
    let path = workspace().join("README.md");
    let readme = std::fs::read_to_string(&path).expect("there is a README");
    let ended = Ended::of(&mut cuddy(arguments));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let shown = block(&readme, marker);
    if masked(shown) == masked(&ended.out) {
        return;
    }
    if std::env::var("CUDDY_BLESS").as_deref() == Ok("1") {
        let fresh = readme.replacen(shown, &format!("{}\n", ended.out.trim_end()), 1);
        std::fs::write(&path, fresh).expect("the README can be written");
        return;
    }
    assert_eq!(masked(shown), masked(&ended.out), "CUDDY_BLESS=1 cargo test writes it anew");
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
