//! Real programs on the simulated driver: `tests/clients/run`, where `tests/clients/install` was run.

mod common;

use std::path::PathBuf;
use std::process::Command;

/// Where the programs are installed, as `tests/clients/install` has it.
fn installed() -> Option<PathBuf> {
    let named = std::env::var_os("CUDDY_CLIENTS").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let folder = named.or_else(|| Some(cache.or_else(home)?.join("cuddy/clients")))?;
    folder.join("installed-driver").exists().then_some(folder)
}

#[test]
fn real_programs_behave_on_the_simulated_driver() {
    const WHAT: &str = "real programs (numba-cuda, cuda-core, cudarc, torch, ...)";
    if std::env::var_os("CUDDY_TEST_CLIENTS").is_some_and(|value| value == "0") {
        return common::skipped(
            WHAT,
            "CUDDY_TEST_CLIENTS=0 says that tests/clients/run is run elsewhere",
        );
    }
    if installed().is_none() {
        return common::skipped(WHAT, "tests/clients/install was not run (about 6 GB)");
    }
    let root = env!("CARGO_MANIFEST_DIR");
    let done =
        Command::new("tests/clients/run").current_dir(root).output().expect("python3 is there");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    let last = said.lines().last().unwrap_or_default();
    assert!(last.contains(" passed, 0 failed"), "the last line is '{last}'");
}
