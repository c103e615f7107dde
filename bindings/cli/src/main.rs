//! The command `cuddy`.
fn main() {}
