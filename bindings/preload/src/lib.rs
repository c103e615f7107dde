//! **libcuddy_preload.so**: caching for CUDA programs that nobody can rebuild.
//!
//! `LD_PRELOAD=libcuddy_preload.so ./program`. The library stands between a program and the CUDA
//! driver: memory that the program frees is kept and handed out again, whole driver allocations at a
//! time, and everything else is the driver's as before. It exports the functions of `cuddy.h` too,
//! so that a program that also uses those has one copy of Cuddy.
//!
//! ```text
//! processor  runtime        functions that look at their caller, and become another
//! doors  lookup  loader     which function a program gets
//! table                     every hook, and the driver's own functions
//! memory  shortage  attributes  captures  contexts  pools     what a hook does
//! fences  books  process  report                              what is known
//! cache  few  settings         what is decided: no unsafe, no driver
//! ```
//!
//! Nothing happens when the library is loaded: no constructor, no thread, no output.

// Unit tests have `dlsym` and the driver's names for themselves: what is exported is not in them.
#![cfg_attr(test, allow(dead_code))]

mod attributes;
mod books;
mod cache;
mod captures;
mod contexts;
mod doors;
mod driver;
mod fences;
mod few;
mod loader;
mod lookup;
mod memory;
mod pools;
mod process;
mod processor;
mod report;
mod runtime;
mod settings;
mod shortage;
mod table;
