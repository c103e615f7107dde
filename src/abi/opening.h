// cuddy.h: a caching allocator for CUDA device memory.
//
// cudaMalloc() costs tens of microseconds or more, cudaFree() waits for the device. Cuddy keeps what
// is freed and hands it out again with no driver call, in stream order, and gives it back to the
// driver when memory runs short. It needs no initialisation and no thread, takes nothing from a
// device that is not used, and tells at any time where the memory went.
//
// A program in full:
//
//     #include <stdio.h>
//     #include <cuddy.h>
//
//     int main(void) {
//         void *block;
//         size_t bytes = (size_t)64 << 20;
//         if (cuddy_malloc(&block, bytes, CUDDY_CURRENT_DEVICE, CUDDY_STREAM_LEGACY) != CUDDY_OK) {
//             fprintf(stderr, "no memory: %s\n", cuddy_last_error());
//             return 1;
//         }
//         // ... kernels and copies on that stream use the block ...
//         cuddy_free(block); // to the cache: later work on the stream may have it at once
//
//         cuddy_malloc(&block, bytes, CUDDY_CURRENT_DEVICE, CUDDY_STREAM_LEGACY); // no driver call
//         cuddy_free(block);
//         printf("%zu bytes in use, %zu kept\n", cuddy_memory_allocated(CUDDY_CURRENT_DEVICE),
//                cuddy_memory_reserved(CUDDY_CURRENT_DEVICE));
//         return 0;
//     }
//
// Build it with: cc program.c $(pkg-config --cflags --libs cuddy)
//
// What holds for every function:
// - Any thread may call it at any time, also during exit. Nothing aborts or throws. Nothing prints,
//   but for mistakes in CUDDY_CONF, which are said once on stderr.
// - Sizes are in bytes; text is UTF-8 and ends with 0.
// - A pointer argument must be valid for what the text says; NULL where it is not allowed is
//   CUDDY_ERROR_INVALID_ARGUMENT. Structs begin with their size, so that they can grow.
// - Besides the errors listed, CUDDY_ERROR_INTERNAL means a bug in Cuddy.
// - A child forked before the first use may use Cuddy; a child forked later gets CUDDY_ERROR_FORKED.
//
// Types come first, then the functions in chapters: version and errors, memory, streams, cache,
// limits, statistics, options, per-thread default streams. You may stop reading at any of them.
