//! Names the driver: `libsimcuda.so` carries the SONAME `libcuda.so.1` and binds its own calls to
//! itself; and turns the table of names into code.
//!
//! The file keeps its own name: a file called `libcuda.so.1` in the build folder would hide a real
//! driver. Cargo hands these flags on to a cdylib that has this crate as an ordinary dependency (not
//! to one that has it as a dev-dependency): no library may have it so, or it would be called
//! `libcuda.so.1` too.

mod build_names;

use std::path::PathBuf;
use std::{env, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    for flag in ["-soname,libcuda.so.1", "-Bsymbolic", "-z,nodelete"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{flag}");
    }
    let path = |key| env::var_os(key).map(PathBuf::from).ok_or(io::Error::other(key));
    build_names::generate(&path("CARGO_MANIFEST_DIR")?, &path("OUT_DIR")?)
}
