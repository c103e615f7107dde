//! The command `cuddy`: demo, replay of allocation traces, any program on simulated devices, doctor.
//!
//! One idea a file. Who uses whom: [`cli`] picks [`demo`], [`run`], [`simulate`], [`preload`], [`doctor`]
//! [`page`], [`top`] or [`manual`]. [`simulate`] and [`preload`] run a program of the user's; the others order [`job`]s of [`child`] processes, in
//! which [`replay`] plays a [`trace`] against an [`allocator`] on a [`machine`], through [`gpu`] and, where it is simulated, [`sim`]; a [`report`] comes back.

pub mod allocator;
pub mod bundled;
pub mod child;
pub mod cli;
pub mod demo;
pub mod doctor;
pub mod driver_pool;
pub mod find;
pub mod fit;
pub mod gpu;
pub mod job;
pub mod library;
pub mod machine;
pub mod manual;
pub mod meter;
pub mod out;
pub mod page;
pub mod preload;
pub mod print;
pub mod replay;
pub mod report;
pub mod run;
pub mod selftest;
pub mod sim;
pub mod simulate;
pub mod snapshot;
pub mod table;
pub mod top;
pub mod trace;
pub mod workload;
pub mod would_fit;
