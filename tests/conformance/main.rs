//! **Conformance**: what PyTorch's own tests assert of an allocator, and what users of other ones
//! reported. `tests/CONFORMANCE.md` says for each which test of ours shows it; here are those that
//! have no place elsewhere, and the test that keeps the table true.

#[macro_use]
#[path = "../machine/mod.rs"]
mod machine;

mod graphs;
mod memory;
mod reports;
mod streams;

use std::fs;
use std::path::Path;

/// Runs a scenario on a device of so much memory.
fn on(memory: &str, test: &str, body: impl FnOnce(&machine::Machine)) {
    machine::checked(test, &[("SIMCUDA_MEMORY", memory)], body);
}

/// What stands in a row in place of a test that cannot be there yet, and in place of one that never
/// will.
const WAITS: &str = "waits: ";
const NOT_OURS: &str = "not ours: ";

/// How many rows wait. A row that waits no more lowers it.
const WAITING: usize = 0;

/// Each row has a name, an assertion, and a test that exists, or says what it waits for.
#[test]
fn the_table_is_complete_and_its_tests_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(root.join("tests/CONFORMANCE.md")).expect("the table");
    let (mut rows, mut waiting, mut not_ours) = (0, 0, 0);
    for line in table.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        if cells[0] == "name" || cells[0].starts_with("---") {
            continue;
        }
        let [name, what, test] = cells[..] else { panic!("not three cells: {line}") };
        assert!(!name.is_empty() && what.len() > 10, "an empty cell: {line}");
        rows += 1;
        if let Some(why) = test.strip_prefix(WAITS) {
            assert!(why.len() > 10, "it waits for nothing: {line}");
            waiting += 1;
        } else if let Some(why) = test.strip_prefix(NOT_OURS) {
            assert!(why.len() > 10, "no reason: {line}");
            not_ours += 1;
        } else {
            let named: Vec<&str> = test.split('`').skip(1).step_by(2).collect();
            assert!(!named.is_empty(), "no test: {line}");
            named.iter().for_each(|test| assert_exists(root, test));
        }
    }
    assert!(rows > 80, "{rows} rows");
    assert_eq!(waiting, WAITING, "rows that wait");
    println!("{rows} rows: {waiting} wait, {not_ours} are not ours");
}

/// What the FAQ answers has a row, so each answer has a test; and no row is of a question that is gone.
#[test]
fn every_question_has_its_row() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("it is committed");
    let (answers, table) = (read("docs/FAQ.md"), read("tests/CONFORMANCE.md"));
    let question = |line: &str| Some(line.strip_prefix("**")?.split_once("**")?.0.to_owned());
    let questions: Vec<_> = answers.lines().filter_map(question).collect();
    let rows = table.split_once("\n## Questions\n").expect("the chapter").1;
    let rows = rows.lines().skip_while(|line| !line.starts_with("| ---")).skip(1);
    let name = |line: &str| line.strip_prefix("| ")?.split(" | ").next().map(str::to_owned);
    assert_eq!(questions, rows.filter_map(name).collect::<Vec<_>>());
    assert!(questions.len() > 10);
}

/// `file::name`, where the file lies in `tests/` and has a test of that name; or a script's path.
fn assert_exists(root: &Path, test: &str) {
    let Some((file, name)) = test.split_once("::") else {
        return assert!(root.join("tests").join(test).exists(), "there is no tests/{test}");
    };
    let text = fs::read_to_string(root.join("tests").join(file));
    let text = text.unwrap_or_else(|error| panic!("{test}: {error}"));
    let python = format!("def {name}(");
    let found = text.contains(&python)
        || text
            .match_indices(&format!("fn {name}("))
            .any(|(at, _)| text[..at].trim_end().ends_with(']') && text[..at].contains("#[test]"));
    assert!(found, "there is no test {test}");
}
