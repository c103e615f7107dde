//! A caching CUDA memory allocator for every program.

pub mod error;
pub mod heap;
pub(crate) mod mutants;
pub mod size;
pub mod stats;
pub mod types;
