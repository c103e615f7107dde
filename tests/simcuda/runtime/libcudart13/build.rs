//! Names the library: `libsimcudart13.so` carries the SONAME and the version node `libcudart.so.13`.

#[path = "../link.rs"]
mod link;

fn main() -> std::io::Result<()> {
    link::link(13)
}
