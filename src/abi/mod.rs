//! The face: every function that cuddy.h declares, one file a chapter, in the header's order.
//!
//! Each function converts its arguments, calls [`crate::process`] once, and converts what comes
//! back. Nothing is decided here. The text on a function and at the top of a chapter's file is
//! cuddy.h's own; build.rs puts it there.

// The texts are written for C and say in plain words what a pointer must be.
#![allow(clippy::missing_safety_doc)]

mod convert;
mod guard;
mod last_error;

// In the header's order; the blank lines keep rustfmt from sorting them.

pub mod version;

pub mod memory;

pub mod streams;

pub mod pools;

pub mod graphs;

pub mod cache;

pub mod limits;

pub mod statistics;

pub mod options;

pub mod host;

pub mod observers;

pub mod peers;
pub mod watching;

pub mod per_thread;
