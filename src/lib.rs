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
//! [`Buffer`], [`Pool`], [`HeldStream`] and [`scope()`] own what they name. A [`Stream`] is made of a driver's
//! handle: that is the one promise which Rust cannot check, and so the one `unsafe` step. Everything may
//! be called from any thread. What has no Rust form yet is in [`abi`], the functions of `cuddy.h`.

pub mod abi;
pub(crate) mod device;
pub(crate) mod driver;
pub(crate) mod environment;
pub mod error;
mod graphs;
pub(crate) mod hash;
#[doc(hidden)]
pub mod heap;
pub(crate) mod host;
pub(crate) mod journal;
pub(crate) mod json;
pub(crate) mod limbo;
#[doc(hidden)]
pub mod mutants;
pub(crate) mod observers;
pub mod options;
pub mod owned;
pub(crate) mod owners;
#[doc(hidden)]
pub mod process;
pub(crate) mod scopes;
pub(crate) mod shelf;
#[doc(hidden)]
pub mod size;
pub mod stats;
pub(crate) mod streams;
pub(crate) mod sync;
#[doc(hidden)]
pub mod types;

pub use error::Error;
pub use owned::{Buffer, HeldStream, Pool, Request, Stream, scope};
pub use process::{ALL_DEVICES, CURRENT_DEVICE};
pub use process::{
    disable_peer_access, empty_cache, enable_peer_access, export_metrics, flight_recorder,
    last_out_of_memory, leaks, mem_get_info, memory_limit, prometheus, record_history,
    reset_accumulated_stats, reset_peak_stats, scopes, set_memory_fraction, set_memory_limit,
    snapshot, stats as memory_stats, summary as memory_summary, tick, trim,
};
pub use stats::cuddy_stats;
