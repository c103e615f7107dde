//! **Functions into a runtime**: how a thin crate's library gets its exported names. A part of the
//! build scripts of libcudart12 and libcudart13.
//!
//! `exported name @@ libcudart.so.N = simrt_<function of column N>`, for each row of names/names.tsv
//! that has a function there. The names are made by the linker (`--defsym`), since rustc puts what it
//! exports itself out of reach of a version script; two version scripts in one link need LLD, which
//! is rustc's linker on this platform.
//!
//! The file keeps its own name: a file called `libcudart.so.N` in the build folder could hide a real
//! runtime, since cargo puts that folder on `LD_LIBRARY_PATH`. `cuddy sim` finds it in the folder
//! `cudart` beside it, where this lays a link of the vendor's name.

use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
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
    lay(&out, &soname, &format!("../deps/libsimcudart{major}.so"))
}

/// Links `cudart/<name>` in the folder of this build to the library, replacing what was there.
fn lay(out: &Path, name: &str, to: &str) -> io::Result<()> {
    // <folder>/build/<crate>-<hash>/out
    let folder =
        out.ancestors().nth(3).ok_or(io::Error::other("OUT_DIR lies in no build folder"))?;
    let folder = folder.join("cudart");
    fs::create_dir_all(&folder)?;
    let fresh = folder.join(format!("{name}.new"));
    let _ = fs::remove_file(&fresh);
    symlink(to, &fresh)?;
    fs::rename(fresh, folder.join(name))
}
