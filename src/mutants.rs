#![forbid(unsafe_code)]
//! Deliberate faults, one at a time, to see the tests fail.
//!
//! `mutant("name")` is `false`, and the code behind it is gone, unless the crate is built with
//! `RUSTFLAGS=--cfg=mutants`; then it is true for the one fault that `CUDDY_MUTANT` names.

/// Whether the fault of this name is switched on. A constant in ordinary builds.
#[cfg(not(mutants))]
#[inline(always)]
pub const fn mutant(_name: &str) -> bool {
    false
}

/// Whether the fault of this name is switched on: the environment is read once.
#[cfg(mutants)]
pub fn mutant(name: &str) -> bool {
    use std::sync::OnceLock;
    static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("CUDDY_MUTANT").ok()).as_deref() == Some(name)
}

/// The same for a fault that shows only where threads meet: it takes its time.
#[inline(always)]
pub fn slow_mutant(name: &str) -> bool {
    let chosen = mutant(name);
    if chosen {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    chosen
}
