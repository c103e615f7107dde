//! A simulated CUDA driver.
pub mod checker;
pub mod engine;
