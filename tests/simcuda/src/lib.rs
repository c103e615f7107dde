//! **simcuda**: a CUDA driver whose devices are simulated in host memory.
//!
//! The library `libsimcuda.so` has the SONAME `libcuda.so.1`: a process that loads it finds it
//! wherever it then asks for the CUDA driver. It exports the driver API (`cu*`) and a control API
//! for tests (`simcuda_*`, `include/simcuda.h`).
//!
//! ```text
//!  api, control      what C calls; arguments are checked, nothing is decided
//!  call, submit      the lock, counts, faults, costs, waits
//!  state             one machine: devices, contexts, streams, events
//!  memory  machine   |  engine  checker        bytes and addresses | order and time
//! ```

pub mod api;
pub mod books;
pub mod by_handle;
pub mod call;
pub mod capture;
pub mod checker;
pub mod config;
pub mod control;
pub mod engine;
pub mod entries;
pub mod faults;
pub mod graphs;
pub mod hand_off;
pub mod host_touch;
pub mod journal;
pub mod kernels;
pub mod machine;
pub mod memory;
pub mod report;
pub mod slots;
pub mod state;
pub mod submit;
pub mod types;
pub mod work;
