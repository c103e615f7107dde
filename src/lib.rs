//! A caching CUDA memory allocator for every program.

pub mod abi;
pub(crate) mod device;
pub(crate) mod driver;
pub(crate) mod environment;
pub mod error;
mod graphs;
pub(crate) mod hash;
pub mod heap;
pub(crate) mod host;
pub(crate) mod journal;
pub(crate) mod limbo;
#[doc(hidden)]
pub mod mutants;
pub(crate) mod observers;
pub mod options;
pub(crate) mod owners;
pub mod process;
pub(crate) mod scopes;
pub(crate) mod shelf;
pub mod size;
pub mod stats;
pub(crate) mod streams;
pub(crate) mod sync;
pub mod types;
