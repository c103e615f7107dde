//! `cuddy --help` names every command, and each command's own explains it on lines that fit.

mod common;

use common::{Ended, cuddy};

fn help(arguments: &[&str]) -> String {
    let ended = Ended::of(&mut cuddy(arguments));
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{arguments:?}");
    let widest = ended.out.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    assert!(widest <= 120, "{arguments:?}: a line of {widest} characters");
    ended.out
}

#[test]
fn every_command_explains_itself() {
    let overview = help(&["--help"]);
    let list = overview.split_once("Commands:\n").expect("a list").1;
    let commands = list.lines().map_while(|line| line.split_whitespace().next());
    let commands: Vec<_> = commands.collect();
    assert!(commands.contains(&"demo") && commands.contains(&"run"), "{commands:?}");
    for command in commands {
        let text = help(&[command, "--help"]);
        assert!(text.contains("Exit code:") || text.contains("Example"), "{command}:\n{text}");
    }
    assert!(overview.contains("CUDDY_CONF"), "{overview}");
}
