//! **Capture**: streams whose work is not done but written down, as a graph.
//!
//! ```text
//! graph      nodes and edges; acyclic when `order` says so
//! sequence   which streams are being captured, into which graph, and what that forbids
//! plan       a graph laid out over streams: the same order, by streams and events alone
//! ```
//!
//! All of it is pure: nodes are numbers and whatever the caller keeps with them.
#![forbid(unsafe_code)]

mod graph;
mod plan;
mod sequence;

pub use graph::{EdgeError, Graph};
pub use plan::{Move, Plan};
pub use sequence::{Captures, Ended, Member, Mode, Sequence, Status, Waits};
