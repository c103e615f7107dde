//! Writes `include/cuddy.h` from `src/`, and gives the shared library its name.
//!
//! The header is cbindgen's output with what cbindgen cannot say put around it: the introduction,
//! the version, the stream type, and a banner before the first function of each file of `src/abi`.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    link();
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    for path in ["src/abi", "src/error.rs", "src/stats.rs"] {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rerun-if-changed=cbindgen.toml");
    match header(&root) {
        Ok(text) => {
            // The drift test compares this copy with the one in include/.
            fs::write(out.join("cuddy.h"), &text).expect("OUT_DIR can be written");
            publish(&root.join("include/cuddy.h"), &text);
        }
        // The library does not need its header; a source that does not parse, rustc explains better.
        Err(why) => println!("cargo::warning=include/cuddy.h is left as it is: {why}"),
    }
}

/// One soname for a major version: a program linked against 0.x never loads 1.x. And once loaded, the
/// library stays: the handlers that it leaves with fork and exit must not point into nothing.
///
/// Cargo hands a cdylib's link arguments on to every cdylib that depends on the crate, and a
/// stranger's library must not call itself libcuddy. So both are given only where
/// `CUDDY_SONAME` is set, which the repository's own `.cargo/config.toml` does: it is read when cargo
/// runs inside the repository, and never when somebody builds a crate that depends on this one.
/// (Members of this workspace do get it. The preload library wants it: a program that asks for
/// libcuddy.so.0 is to find the copy that is preloaded.)
fn link() {
    println!("cargo::rerun-if-env-changed=CUDDY_SONAME");
    let wanted = env::var_os("CUDDY_SONAME").is_some_and(|value| value == "1");
    if wanted && env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        let major = env!("CARGO_PKG_VERSION_MAJOR");
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuddy.so.{major}");
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}

/// Replaces the file if it differs. A source tree that cannot be written keeps what it has.
fn publish(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    let folder = path.parent().expect("the path has a folder");
    if let Err(error) = fs::create_dir_all(folder).and_then(|()| fs::write(path, text)) {
        println!("cargo::warning={} is out of date: {error}", path.display());
    }
}

fn header(root: &Path) -> Result<String, String> {
    let abi = root.join("src/abi");
    let mut config = cbindgen::Config::from_file(root.join("cbindgen.toml"))?;
    config.header = Some(read(&abi.join("opening.h"))?.trim_end().to_owned());
    config.after_includes =
        Some(format!("\n{}\n{}", version()?, read(&abi.join("types.h"))?.trim_end()));
    let modules = modules(&abi)?;
    let mut builder = cbindgen::Builder::new().with_config(config);
    // File by file: cbindgen would ask cargo for a crate's files, which needs a lock file that can
    // be written. Nothing else of the crate can slip into the header like this, either.
    builder = builder.with_src(root.join("src/error.rs"));
    for module in &modules {
        builder = builder.with_src(abi.join(format!("{module}.rs")));
    }
    builder = builder.with_src(root.join("src/stats.rs"));
    let bindings = builder.generate().map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    bindings.write(&mut text);
    let mut text = String::from_utf8(text).map_err(|error| error.to_string())?;
    for chapter in chapters(&abi, &modules)? {
        let at = start_of(&text, &chapter.first)
            .ok_or_else(|| format!("cbindgen did not write {}", chapter.first))?;
        text.insert_str(at, &chapter.banner);
    }
    // cbindgen's own `trailer` would stand behind the include guard.
    let end = text.rfind("#endif").ok_or("cbindgen wrote no include guard")?;
    text.insert_str(end, &format!("{}\n", read(&abi.join("closing.h"))?));
    Ok(text)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn version() -> Result<String, String> {
    let text = env!("CARGO_PKG_VERSION");
    let mut numbers = [0_u32; 3];
    for (number, part) in numbers.iter_mut().zip(text.split(['.', '-'])) {
        *number = part.parse().map_err(|_| format!("version {text} is not numbers"))?;
    }
    let [major, minor, patch] = numbers;
    let number = major * 10_000 + minor * 100 + patch;
    Ok(format!(
        "// The version of this header, as numbers and as text.\n\
         #define CUDDY_VERSION_MAJOR {major}\n\
         #define CUDDY_VERSION_MINOR {minor}\n\
         #define CUDDY_VERSION_PATCH {patch}\n\
         #define CUDDY_VERSION_STRING \"{text}\"\n\n\
         // The three in one number: major * 10000 + minor * 100 + patch.\n\
         #define CUDDY_VERSION {number}\n"
    ))
}

struct Chapter {
    /// The first function of the chapter.
    first: String,
    /// What stands before it.
    banner: String,
}

/// The files of `src/abi` that declare functions, in the order of `mod.rs`.
fn modules(abi: &Path) -> Result<Vec<String>, String> {
    let list = read(&abi.join("mod.rs"))?;
    let names = list.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    Ok(names.map(str::to_owned).collect())
}

/// One chapter a file; its `//!` text is the chapter's, the first line the title.
fn chapters(abi: &Path, modules: &[String]) -> Result<Vec<Chapter>, String> {
    let rule = format!("// {}\n", "-".repeat(97));
    let mut chapters = Vec::new();
    for module in modules {
        let source = read(&abi.join(format!("{module}.rs")))?;
        let mut lines = source.lines().map_while(|line| line.strip_prefix("//!"));
        let title = lines.next().unwrap_or_default().trim().trim_end_matches('.');
        let mut banner = format!("{rule}// {title}\n{rule}");
        // Writing to a String cannot fail.
        lines.for_each(|line| writeln!(banner, "//{line}").expect("a String"));
        banner.push('\n');
        let (_, rest) = source
            .split_once("extern \"C\" fn ")
            .ok_or_else(|| format!("src/abi/{module}.rs declares no function"))?;
        let first = rest.split('(').next().unwrap_or_default().to_owned();
        chapters.push(Chapter { first, banner });
    }
    Ok(chapters)
}

/// Where the text of a function begins: its comment's first line.
fn start_of(header: &str, function: &str) -> Option<usize> {
    let name = header.match_indices(&format!("{function}(")).map(|(at, _)| at).find(|&at| {
        let line = header[..at].rsplit('\n').next().unwrap_or_default();
        !line.trim_start().starts_with("//") && line.ends_with([' ', '*'])
    })?;
    let mut start = header[..name].rfind('\n').map_or(0, |at| at + 1);
    while let Some(before) = header[..start].strip_suffix('\n') {
        let line = before.rfind('\n').map_or(0, |at| at + 1);
        if !before[line..].starts_with("//") {
            break;
        }
        start = line;
    }
    Some(start)
}
