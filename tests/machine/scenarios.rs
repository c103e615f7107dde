//! A scenario: what a test does on a simulated machine of its own. Each runs in a process of its own,
//! since a process has one driver and one Cuddy.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Mutex;

use super::Machine;

/// How long a scenario may take, in seconds: one that waits for ever fails.
const PATIENCE: u32 = 60;

/// Runs a scenario under each of these schedules, as [`checked`] does.
pub fn under(
    schedules: &[&str],
    test: &str,
    environment: &[(&str, &str)],
    body: impl Fn(&Machine),
) {
    for schedule in schedules {
        let environment = [&[("SIMCUDA_SCHEDULE", *schedule)], environment].concat();
        checked(test, &environment, &body);
    }
}

/// Runs a scenario on device 0 with the checker on, which may find nothing.
pub fn checked(test: &str, environment: &[(&str, &str)], body: impl FnOnce(&Machine)) {
    let environment = [&[("SIMCUDA_CHECKER", "log")], environment].concat();
    isolated(test, &environment, |machine| {
        machine.ends_within(PATIENCE);
        machine.use_device(0);
        body(machine);
        machine.assert_no_reports();
    });
}

/// Runs `body` in a child process, as the test of this name, with these variables set. The child runs
/// the test up to its call of the same number: a test may call this again and again, each time with
/// another body, if it does so in the same order whenever it runs.
pub fn isolated(test: &str, environment: &[(&str, &str)], body: impl FnOnce(&Machine)) {
    const CHILD: &str = "CUDDY_TEST_CHILD";
    const DONE: &str = "the scenario ran to its end";
    let this = format!("{test}#{}", number_of_call(test));
    let wanted = std::env::var(CHILD).unwrap_or_default();
    if wanted.rsplit_once('#').is_some_and(|(child, _)| child == test) {
        if wanted != this {
            return;
        }
        body(&Machine::new());
        println!("{DONE}");
        std::process::exit(0);
    }
    let mut child = Command::new(std::env::current_exe().expect("the test's own file"));
    child
        .args(["--exact", test, "--nocapture", "--test-threads=1", "--include-ignored"])
        .env(CHILD, &this);
    child.env_remove("CUDDY_CONF").envs(environment.iter().copied());
    let output = child.output().expect("the test's own file runs");
    let text = format!(
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    if std::env::var_os("CUDDY_TEST_SHOW").is_some() {
        println!("{text}");
    }
    assert!(output.status.success(), "{test} failed in its own process:\n{text}");
    assert!(text.contains(DONE), "{test} did not run in its own process:\n{text}");
    // What a scenario prints for a reader.
    text.lines()
        .filter_map(|line| line.strip_prefix("shows: "))
        .for_each(|line| println!("{line}"));
}

/// How often a test has called [`isolated`] before.
fn number_of_call(test: &str) -> u32 {
    static CALLS: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());
    let mut calls = CALLS.lock().expect("nobody panics under it");
    let count = calls.entry(test.to_owned()).or_default();
    *count += 1;
    *count - 1
}
