//! **Names into code**: turns names/names.tsv into the two files that `entries.rs` and
//! `api/unimplemented.rs` include. A part of the build script.
//!
//! `exported = defined in src + unimplemented`: a symbol is defined if some file of src has `fn
//! symbol`, whether plain or inside a macro call. One that is missed or taken for defined by
//! mistake shows as a symbol that is exported twice or not at all, which the linker or
//! tests/names.rs report.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

/// A line of the table.
struct Line<'a> {
    symbol: &'a str,
    base: &'a str,
    version: u32,
    per_thread: bool,
}

/// Writes `rows.rs` and `unimplemented.rs` to `out`, from the crate that lies in `root`.
pub fn generate(root: &Path, out: &Path) -> io::Result<()> {
    let (table, sources) = (root.join("names/names.tsv"), root.join("src"));
    for path in [&table, &sources, &root.join("build_names.rs")] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let text = fs::read_to_string(&table)?;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate().skip(1) {
        lines.push(parse(line).ok_or_else(|| {
            let why = format!("{}:{}: '{line}' is no row", table.display(), number + 1);
            io::Error::other(why)
        })?);
    }
    lines.sort_by_key(|line| (line.base, line.per_thread, line.version));
    let mut defined = BTreeSet::new();
    collect_functions(&sources, &mut defined)?;
    fs::write(out.join("rows.rs"), rows(&lines))?;
    fs::write(out.join("unimplemented.rs"), unimplemented(&lines, &defined))
}

fn parse(line: &str) -> Option<Line<'_>> {
    let cells: Vec<_> = line.split('\t').collect();
    let [symbol, base, version, flag] = cells[..] else { return None };
    let per_thread = match flag {
        "default" => false,
        "per-thread" => true,
        _ => return None,
    };
    Some(Line { symbol, base, version: version.parse().ok()?, per_thread })
}

fn rows(lines: &[Line]) -> String {
    let mut text = String::from("rows! {\n");
    for Line { symbol, base, version, per_thread } in lines {
        let _ = writeln!(text, "    \"{base}\" {per_thread} {version} {symbol},");
    }
    text + "}\n"
}

fn unimplemented(lines: &[Line], defined: &BTreeSet<String>) -> String {
    let mut text = String::from("not_supported! {\n");
    for line in lines.iter().filter(|line| !defined.contains(line.symbol)) {
        let _ = writeln!(text, "    {}", line.symbol);
    }
    text + "}\n"
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
                let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
                let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
                let after_fn =
                    words.windows(2).filter(|pair| pair[0] == "fn" && pair[1].starts_with("cu"));
                names.extend(after_fn.map(|pair| pair[1].to_owned()));
            }
        }
    }
    Ok(())
}
