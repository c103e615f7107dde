//! **Functions into a runtime**: how a thin crate's library gets its exported names. A part of the
//! build scripts of libcudart12 and libcudart13.
//!
//! `exported name @@ libcudart.so.N = simrt_<function of column N>`, for each row of names/names.tsv
//! that has a function there. The names are made by the linker (`--defsym`), since rustc puts what it
//! exports itself out of reach of a version script; two version scripts in one link need LLD, which
//! is rustc's linker on this platform.
//!
//! The file keeps its own name: a file called `libcudart.so.N` in the build folder could hide a real
//! runtime, since cargo puts that folder on `LD_LIBRARY_PATH`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs, io};

/// Tells cargo the linker's flags for CUDA `major`.
pub fn link(major: usize) -> io::Result<()> {
    let path = |key| env::var_os(key).map(PathBuf::from).ok_or(io::Error::other(key));
    let table = path("CARGO_MANIFEST_DIR")?.join("../names/names.tsv");
    println!("cargo::rerun-if-changed={}", table.display());
    println!("cargo::rerun-if-changed=../link.rs");
    println!("cargo::rerun-if-changed=build.rs");
    let soname = format!("libcudart.so.{major}");
    let (mut names, mut flags) = (String::new(), String::new());
    for line in fs::read_to_string(&table)?.lines().skip(1) {
        let cells: Vec<_> = line.split('\t').collect();
        let [symbol, function] = [0, major - 11].map(|i| cells.get(i).copied().unwrap_or("-"));
        if function != "-" {
            let _ = writeln!(names, "        {symbol};");
            let _ = writeln!(flags, "-Wl,--defsym={symbol}=simrt_{function}");
        }
    }
    let out = path("OUT_DIR")?;
    let (script, arguments) = (out.join("version.map"), out.join("names.args"));
    fs::write(&script, format!("{soname} {{\n    global:\n{names}}};\n"))?;
    fs::write(&arguments, flags)?;
    println!("cargo::rustc-cdylib-link-arg=@{}", arguments.display());
    let script = format!("--version-script={}", script.display());
    for flag in [&format!("-soname,{soname}"), "-Bsymbolic", &script] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{flag}");
    }
    Ok(())
}
