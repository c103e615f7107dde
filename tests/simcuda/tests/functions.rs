//! The table FUNCTIONS.md is complete and true: a row for each function that is simulated and for no
//! other, and each row names a test that exists, in a file that speaks of the function.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

macro_rules! not_supported {
    ($($symbol:ident)*) => { const UNIMPLEMENTED: &[&str] = &[$(stringify!($symbol),)*]; };
}
include!(concat!(env!("OUT_DIR"), "/unimplemented.rs"));

const TABLE: &str = include_str!("../FUNCTIONS.md");

/// Functions of which some variant is simulated, by base name.
fn simulated() -> BTreeSet<&'static str> {
    let rows = include_str!("../names/names.tsv").lines().skip(1);
    let cells = rows.filter_map(|row| row.split_once('\t'));
    let there = cells.filter(|(symbol, _)| !UNIMPLEMENTED.contains(symbol));
    there.filter_map(|(_, rest)| rest.split('\t').next()).collect()
}

/// The table's rows: function, what it is held to, test.
fn rows() -> Vec<[&'static str; 3]> {
    let rows = TABLE.lines().filter(|line| line.starts_with("| cu"));
    rows.map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        cells.try_into().unwrap_or_else(|cells| panic!("three cells in a row: {cells:?}"))
    })
    .collect()
}

#[test]
fn each_simulated_function_has_one_row() {
    let mut seen = BTreeMap::new();
    for [function, held_to, _] in rows() {
        *seen.entry(function).or_insert(0) += 1;
        assert!(held_to.len() >= 12, "{function}: '{held_to}' says nothing");
    }
    let (simulated, named) = (simulated(), seen.keys().copied().collect::<BTreeSet<_>>());
    let missing: Vec<_> = simulated.difference(&named).collect();
    let strangers: Vec<_> = named.difference(&simulated).collect();
    let twice: Vec<_> = seen.iter().filter(|(_, n)| **n > 1).collect();
    assert!(missing.is_empty(), "FUNCTIONS.md lacks rows for {missing:?}");
    assert!(strangers.is_empty(), "FUNCTIONS.md has rows for {strangers:?}, not simulated");
    assert!(twice.is_empty(), "FUNCTIONS.md has several rows for {twice:?}");
    assert!(simulated.len() > 150 && simulated.contains("cuMemAlloc"));
}

#[test]
fn each_row_names_a_test_that_exists_and_speaks_of_the_function() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    let common = read("common/mod.rs");
    for [function, _, test] in rows() {
        let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("{function}: '{test}'"));
        let text = read(file);
        let declared = text.split("#[test]\n").skip(1).any(|after| {
            let first = after.lines().find(|line| line.starts_with("fn ")).unwrap_or_default();
            first.starts_with(&format!("fn {name}("))
        });
        assert!(declared, "{function}: {file} has no test {name}");
        let spoken = [&text, &common].iter().any(|text| text.contains(function));
        assert!(spoken, "{function}: {file} does not speak of it");
    }
}
