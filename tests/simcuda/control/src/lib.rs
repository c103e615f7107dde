//! Finds and loads the simulated CUDA driver.
