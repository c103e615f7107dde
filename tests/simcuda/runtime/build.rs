//! Names into code: the functions of names/names.tsv that no source file defines are written as
//! ones that refuse, and names/errors.tsv as a table.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let path = |key| env::var_os(key).map(PathBuf::from).ok_or(io::Error::other(key));
    let root = path("CARGO_MANIFEST_DIR")?;
    let (table, sources) = (root.join("names/names.tsv"), root.join("src"));
    for path in [&table, &sources, &root.join("build.rs")] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let mut defined = BTreeSet::new();
    collect_functions(&sources, &mut defined)?;
    let text = fs::read_to_string(&table)?;
    let named = text.lines().skip(1).flat_map(|line| line.split('\t').skip(1));
    let missing: BTreeSet<_> =
        named.filter(|name| *name != "-" && !defined.contains(*name)).collect();
    let mut code = String::from("not_supported! {\n");
    for name in missing {
        let _ = writeln!(code, "    {name}");
    }
    let out = path("OUT_DIR")?;
    fs::write(out.join("unimplemented.rs"), code + "}\n")?;
    let errors = root.join("names/errors.tsv");
    println!("cargo::rerun-if-changed={}", errors.display());
    fs::write(out.join("errors.rs"), error_table(&fs::read_to_string(errors)?)?)
}

fn error_table(text: &str) -> io::Result<String> {
    let mut code = String::from("static ERRORS: &[Row] = &[\n");
    for line in text.lines().skip(1) {
        let cells: Vec<_> = line.split('\t').collect();
        let [value, name, text] = cells[..] else {
            return Err(io::Error::other(format!("errors.tsv: '{line}' is no row")));
        };
        let _ = writeln!(code, "    ({value}, c{name:?}, c{text:?}),");
    }
    Ok(code + "];\n")
}

/// Adds the name after each `fn` in the Rust files of a folder.
fn collect_functions(folder: &Path, names: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_functions(&path, names)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            for line in fs::read_to_string(&path)?.lines() {
                let code = line.split("//").next().unwrap_or_default();
                let words: Vec<_> = code
                    .split(|c: char| !c.is_alphanumeric() && c != '_')
                    .filter(|word| !word.is_empty())
                    .collect();
                let after = words.windows(2).filter(|pair| pair[0] == "fn");
                names.extend(after.map(|pair| pair[1].to_owned()));
            }
        }
    }
    Ok(())
}
