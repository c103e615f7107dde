//! Locks with ranks, and what a fork does to a process that has used CUDA.
//!
//! A thread takes locks in rising rank only; debug builds check it. No lock is poisoned: a panic is
//! turned into an error at the C boundary, and what a lock guards is put right before it can panic.
