//! A caching CUDA memory allocator for every program.
//!
//! ```no_run
//! use cuddy::Buffer;
//!
//! let weights = Buffer::<f32>::new(1 << 20)?; // device memory, of the legacy default stream
//! drop(weights); // back to the cache, in stream order: no wait, no driver call
//! println!("{}", cuddy::memory_summary(0)?);
//! # Ok::<(), cuddy::Error>(())
//! ```
//!
//! [`Buffer`], [`Pool`], [`Stream`] and [`scope()`] own what they name; [`process`] has every function of
//! `cuddy.h`, by numbers. Streams and events of the driver's are passed as its handles.

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
pub mod owned;
pub(crate) mod owners;
pub mod process;
pub(crate) mod scopes;
pub(crate) mod shelf;
pub mod size;
pub mod stats;
pub(crate) mod streams;
pub(crate) mod sync;
pub mod types;

pub use error::Error;
pub use owned::{Buffer, HeldStream, Options, Pool, Stream, scope};
pub use process::{
    empty_cache, leaks, mem_get_info, record_history, scopes, set_memory_limit, snapshot, tick,
    trim,
};
pub use process::{stats as memory_stats, summary as memory_summary};
