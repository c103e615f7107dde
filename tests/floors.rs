//! Holds the source to its floors: a module uses lower floors only, never a neighbour on its own
//! floor, never a higher one. Also where `unsafe`, foreign crates, output and exports may be.

use std::fs;
use std::path::Path;

/// The floors, lowest first. The ground has steps in it: errors name addresses, locks give errors.
const FLOORS: [&[&str]; 8] = [
    &["environment", "hash", "mutants", "size", "types"],
    &["error"],
    &["json", "sync"],
    &[
        "driver",
        "graphs",
        "heap",
        "journal",
        "limbo",
        "observers",
        "options",
        "owners",
        "scopes",
        "shelf",
        "stats",
        "streams",
    ],
    &["device"],
    &["host"],
    &["process"],
    &["abi", "owned"],
];

/// Where code may be unsafe, and may name libc: the door to CUDA, the faces' pointers, the locks, and
/// what the process was given.
const UNSAFE: [&str; 6] = ["abi", "driver", "environment", "owned", "shelf", "sync"];

/// The only module that may name cudarc.
const CUDA: &str = "driver";

/// The only module that exports symbols.
const FACE: &str = "abi";

/// The only module that may read the environment through Rust's own (allocating) functions: it is
/// empty in ordinary builds.
const ENVIRONMENT: &str = "mutants";

fn floor_of(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&module))
}

struct Source {
    /// Below `src`, with slashes.
    path: String,
    text: String,
}

impl Source {
    /// The names of the module, from the crate's root: `heap/tree.rs` is `heap`, `tree`.
    fn module(&self) -> Vec<&str> {
        let stem = self.path.trim_end_matches(".rs").trim_end_matches("/mod");
        stem.split('/').collect()
    }

    /// The text without comments, the code for tests cut off.
    fn code(&self) -> String {
        without_comments(self.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default())
    }
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| match line.find("//") {
        // A colon before it: an address inside a string.
        Some(at) if !line[..at].ends_with(':') => &line[..at],
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The crate's modules that a text names: after `crate::`, alone or in braces.
fn used(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut name = String::new();
            for letter in group.chars() {
                match letter {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => names.push(std::mem::take(&mut name)),
                    _ if depth == 0 => name.push(letter),
                    _ => {}
                }
            }
            names.push(name);
        } else {
            names.push(rest.to_owned());
        }
    }
    let first = |name: &String| {
        let name = name.trim_start();
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
        name[..end].to_owned()
    };
    names.iter().map(first).filter(|name| !name.is_empty()).collect()
}

/// Every rule that a file breaks, in words.
fn broken_rules(source: &Source) -> Vec<String> {
    let module = source.module();
    let top = module[0];
    let Some(floor) = floor_of(top) else {
        return vec![format!("`{top}` has no floor: give it one in tests/floors.rs")];
    };
    let code = source.code();
    let mut broken = Vec::new();
    let all = without_comments(&source.text);
    for name in used(&all) {
        if name != top && floor_of(&name).is_none_or(|other| other >= floor) {
            broken.push(format!("`{top}` must not use `{name}`"));
        }
    }
    if code.contains(&"super::".repeat(module.len())) {
        broken.push("write crate:: to leave a module, so that the floor can be seen".to_owned());
    }
    if !UNSAFE.contains(&top) && !source.text.starts_with("#![forbid(unsafe_code)]\n") {
        broken.push("the first line must be #![forbid(unsafe_code)]".to_owned());
    }
    for (word, allowed) in [
        ("libc::", UNSAFE.contains(&top)),
        ("cudarc::", top == CUDA),
        ("no_mangle", top == FACE),
        ("export_name", top == FACE),
        ("std::env", top == ENVIRONMENT),
        ("env::var", top == ENVIRONMENT),
        ("println!", false),
        ("eprint", false),
        ("dbg!", false),
        ("todo!", false),
        ("unimplemented!", false),
        (".unwrap()", false),
    ] {
        if !allowed && code.contains(word) {
            broken.push(format!("`{word}` does not belong here"));
        }
    }
    broken
}

fn sources() -> Vec<Source> {
    fn read(folder: &Path, found: &mut Vec<Source>) {
        for entry in fs::read_dir(folder).expect("src can be read") {
            let path = entry.expect("src can be read").path();
            if path.is_dir() {
                read(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source can be read");
                let path = path.to_str().expect("a name in UTF-8")["src/".len()..].to_owned();
                found.push(Source { path, text });
            }
        }
    }
    let mut found = Vec::new();
    read(Path::new("src"), &mut found);
    found.retain(|source| source.path != "lib.rs");
    found
}

#[test]
fn every_file_keeps_the_rules() {
    let sources = sources();
    assert!(sources.len() > 10, "only {} files were read", sources.len());
    let mut broken = Vec::new();
    for source in &sources {
        broken.extend(broken_rules(source).iter().map(|rule| format!("{}: {rule}", source.path)));
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn every_module_of_the_list_exists() {
    let sources = sources();
    for module in FLOORS.concat() {
        assert!(sources.iter().any(|source| source.module()[0] == module), "`{module}` is gone");
    }
}

#[test]
fn each_rule_can_be_broken() {
    const FORBID: &str = "#![forbid(unsafe_code)]\n";
    let check = |path: &str, text: &str| {
        broken_rules(&Source { path: path.to_owned(), text: text.to_owned() }).len()
    };
    let clean = "use crate::size;\nuse crate::{error::Error, types::{Address, Stamp}};\n\
                 // crate::driver is somewhere else\n#[cfg(test)]\nmod tests {\n use super::*; x.unwrap(); }";
    assert_eq!(check("heap/mod.rs", &format!("{FORBID}{clean}")), 0);
    assert_eq!(check("heap/tree.rs", &format!("{FORBID}use super::words::Block;")), 0);
    for (path, line) in [
        ("heap/mod.rs", "use crate::driver::Driver;"),
        ("heap/mod.rs", "fn f() { crate::device::malloc() }"),
        ("heap/mod.rs", "use crate::{size, limbo::Limbo};"),
        ("heap/mod.rs", "use crate::{size::{a, b}, process};"),
        ("heap/mod.rs", "#[cfg(test)]\nmod tests { use crate::driver::Driver; }"),
        ("heap/mod.rs", "use super::driver;"),
        ("heap/tree.rs", "use super::super::driver;"),
        ("heap.rs", "fn f() { libc::abort() }"),
        ("heap.rs", "fn f() { println!() }"),
        ("heap.rs", "#[unsafe(no_mangle)] fn f() {}"),
        ("process.rs", "use std::env;"),
        ("process.rs", "use cudarc::driver::sys;"),
        ("process.rs", "fn f() { x.unwrap(); }"),
        ("unheard_of.rs", ""),
    ] {
        assert_eq!(check(path, &format!("{FORBID}{line}")), 1, "{path}: {line}");
    }
    assert_eq!(check("heap.rs", "//! No forbid."), 1);
    assert_eq!(check("driver/mod.rs", "//! May be unsafe. "), 0);
}
