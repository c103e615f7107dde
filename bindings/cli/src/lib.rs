//! The command `cuddy`: demo, replay of allocation traces, doctor.
pub mod gpu;
pub mod trace;
