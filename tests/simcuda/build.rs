//! Names the driver: `libsimcuda.so` carries the SONAME `libcuda.so.1` and binds its own calls to itself.
//!
//! The file keeps its own name: a file called `libcuda.so.1` in the build folder would hide a real driver.
//! The flags are given to this crate's cdylib alone, so a library that depends on it keeps its own SONAME.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for flag in ["-soname,libcuda.so.1", "-Bsymbolic", "-z,nodelete"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{flag}");
    }
}
