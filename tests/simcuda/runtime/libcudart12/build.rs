//! Names the library: `libsimcudart12.so` carries the SONAME and the version node `libcudart.so.12`.

#[path = "../link.rs"]
mod link;

fn main() -> std::io::Result<()> {
    link::link(12)
}
