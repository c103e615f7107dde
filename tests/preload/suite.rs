//! `libcuddy_preload.so` under whole programs: what they see is what they see without it.
//!
//! Each program runs twice, alone and with the library, on the simulated driver with its checker on. Its
//! output must be the same but for its last line, which is what the driver was really asked for.

mod calls;
#[path = "../common/mod.rs"]
mod common;
mod doors;
mod life;
mod loading;
mod memory;
mod place;
mod speed;
mod watched;
