//! A caching CUDA memory allocator for every program.
