//! A caching CUDA memory allocator for every program.

pub mod abi;
pub mod error;
pub(crate) mod mutants;
pub mod options;
pub mod process;
pub mod size;
pub mod stats;
pub mod types;
