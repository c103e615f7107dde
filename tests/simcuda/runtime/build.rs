//! Exports each `rt_NAME` of the source as `NAME`, under the version node and the SONAME of the
//! vendor's runtime: programs that were linked with that one find this one.
//!
//! The functions have another name in the source because rustc lists its own exports without a
//! version, and that list would come first.

use std::path::PathBuf;
use std::{env, fs, io};

const SONAME: &str = "libcudart.so.12";

fn main() -> io::Result<()> {
    let path = |key| env::var_os(key).map(PathBuf::from).ok_or(io::Error::other(key));
    let source = path("CARGO_MANIFEST_DIR")?.join("src");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=build.rs");
    let mut names = Vec::new();
    for entry in fs::read_dir(source)? {
        let text = fs::read_to_string(entry?.path())?;
        names.extend(text.split("fn rt_").skip(1).map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            rest[..end.unwrap_or(rest.len())].to_owned()
        }));
    }
    names.sort();
    let list: String = names.iter().map(|name| format!("    {name};\n")).collect();
    let script = path("OUT_DIR")?.join("exports.map");
    fs::write(&script, format!("{SONAME} {{\n  global:\n{list}}};\n"))?;
    let mut flags: Vec<_> = names.iter().map(|name| format!("--defsym={name}=rt_{name}")).collect();
    flags.push(format!("--version-script={}", script.display()));
    flags.extend([format!("-soname,{SONAME}"), "-Bsymbolic".into(), "-z,nodelete".into()]);
    for flag in flags {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{flag}");
    }
    Ok(())
}
