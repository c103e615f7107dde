//! Side by side with other allocators: `tests/compare/run`, where `tests/clients/install` was run.

mod common;

use std::path::PathBuf;
use std::process::Command;

/// Whether the peers are installed, as `tests/clients/install` has it.
fn are_installed() -> bool {
    let named = std::env::var_os("CUDDY_CLIENTS").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let folder = named.or_else(|| Some(cache.or_else(home)?.join("cuddy/clients")));
    folder.is_some_and(|folder| {
        ["installed-torch", "installed-headers"].iter().all(|part| folder.join(part).exists())
    })
}

/// On S1 PyTorch's allocator raises out of memory with the memory at hand; Cuddy serves the request
/// after one wait. No other scenario makes Cuddy fail.
#[test]
fn cuddy_serves_with_one_wait_where_torch_is_out_of_memory() {
    if !are_installed() {
        let why = "tests/clients/install torch headers was not run (about 6 GB)";
        return common::skipped("PyTorch, RMM and Cuddy side by side", why);
    }
    let root = env!("CARGO_MANIFEST_DIR");
    let mut run = Command::new("tests/compare/run");
    let done = run.arg("--check").current_dir(root).output().expect("python3 is there");
    let said = String::from_utf8_lossy(&done.stdout);
    println!("{said}");
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(said.lines().last(), Some("compare: passed"));
    assert!(said.lines().filter(|line| line.starts_with("| ")).count() >= 12, "{said}");
}
