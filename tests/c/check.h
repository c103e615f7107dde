/* What the test programs share: checks that say what failed, and the simulated driver's controls.
   Every program is C99 and C++17 at once. */
#ifndef CHECK_H
#define CHECK_H

#include <cuddy.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define DEVICE 0
#define STREAM CUDDY_STREAM_LEGACY

#define CHECK(condition) \
    do { \
        if (!(condition)) check_failed(__FILE__, __LINE__, #condition); \
    } while (0)

/* The call must succeed. */
#define OK(call) check_status(__FILE__, __LINE__, #call, (call), CUDDY_OK)

/* The call must fail in this way, and leave a sentence. */
#define FAILS(status, call) check_status(__FILE__, __LINE__, #call, (call), (status))

/* Two numbers must be equal. */
#define SAME(left, right) \
    check_same(__FILE__, __LINE__, #left " == " #right, (uint64_t)(left), (uint64_t)(right))

/* The last error must contain this. */
#define SAYS(words) \
    do { \
        if (!strstr(cuddy_last_error(), (words))) check_failed(__FILE__, __LINE__, "says " #words); \
    } while (0)

static inline void check_failed(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: %s\n  last error: %s\n", file, line, what, cuddy_last_error());
    fflush(stderr);
    _exit(1);
}

static inline void check_same(const char *file, int line, const char *what, uint64_t left,
                              uint64_t right) {
    if (left == right) return;
    fprintf(stderr, "%s:%d: %s: %" PRIu64 " and %" PRIu64 "\n", file, line, what, left, right);
    check_failed(file, line, what);
}

static inline void check_status(const char *file, int line, const char *call, int status,
                                int expected) {
    if (status != expected) {
        fprintf(stderr, "%s:%d: %s: %s, expected %s\n", file, line, call, cuddy_status_name(status),
                cuddy_status_name(expected));
        check_failed(file, line, call);
    }
    if (expected != CUDDY_OK && strlen(cuddy_last_error()) < 10) check_failed(file, line, call);
}

/* A function of the driver that is loaded: libcuda.so.1 as every program finds it. */
static inline void (*driver_function(const char *name))(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *address;
    void (*function)(void);
    if (!library) check_failed(__FILE__, __LINE__, "libcuda.so.1 can be loaded");
    address = dlsym(library, name);
    if (!address) check_failed(__FILE__, __LINE__, name);
    /* Strict C has no cast from the one kind of pointer to the other. */
    memcpy(&function, &address, sizeof function);
    return function;
}

/* Calls a function of the driver: DRIVER(int, "cuInit", (unsigned), (0)). */
#define DRIVER(result, name, types, arguments) \
    (((result(*) types)driver_function(name))arguments)

/* How many driver calls were made so far, of one kind or of all. */
static inline uint64_t driver_calls(const char *name) {
    return DRIVER(uint64_t, "simcuda_calls", (const char *), (name));
}

static inline uint64_t all_driver_calls(void) {
    return DRIVER(uint64_t, "simcuda_calls_total", (void), ());
}

/* Makes the device's own context current in this thread, as a program that uses CUDA has it. */
static inline void use_device(void) {
    void *context = NULL;
    SAME(DRIVER(int, "cuInit", (unsigned), (0)), 0);
    SAME(DRIVER(int, "cuDevicePrimaryCtxRetain", (void **, int), (&context, DEVICE)), 0);
    SAME(DRIVER(int, "cuCtxSetCurrent", (void *), (context)), 0);
}

/* A stream that does not wait for the legacy one. */
static inline cuddy_stream new_stream(void) {
    cuddy_stream stream = NULL;
    SAME(DRIVER(int, "cuStreamCreate", (cuddy_stream *, unsigned), (&stream, 1)), 0);
    CHECK(stream != NULL);
    return stream;
}

static inline void destroy_stream(cuddy_stream stream) {
    SAME(DRIVER(int, "cuStreamDestroy_v2", (cuddy_stream), (stream)), 0);
}

/* A use of memory that the checker sees. */
static inline void fill(void *ptr, unsigned char value, size_t bytes, cuddy_stream stream) {
    SAME(DRIVER(int, "cuMemsetD8Async", (uint64_t, unsigned char, size_t, cuddy_stream),
                ((uint64_t)(uintptr_t)ptr, value, bytes, stream)),
         0);
}

/* The program's own order: what `after` is given from here on runs after what `before` has. */
static inline void order(cuddy_stream before, cuddy_stream after) {
    void *event = NULL;
    SAME(DRIVER(int, "cuEventCreate", (void **, unsigned), (&event, 2)), 0);
    SAME(DRIVER(int, "cuEventRecord", (void *, cuddy_stream), (event, before)), 0);
    SAME(DRIVER(int, "cuStreamWaitEvent", (cuddy_stream, void *, unsigned), (after, event, 0)), 0);
    SAME(DRIVER(int, "cuEventDestroy_v2", (void *), (event)), 0);
}

static inline cuddy_stats stats_of(int device) {
    cuddy_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    OK(cuddy_memory_stats(device, &stats));
    SAME(stats.struct_size, sizeof stats);
    CHECK(stats.requested <= stats.allocated);
    CHECK(stats.allocated <= stats.active);
    CHECK(stats.active <= stats.reserved);
    CHECK(stats.reserved <= stats.reserved_peak);
    CHECK(stats.allocated <= stats.allocated_peak);
    SAME(stats.cached, stats.reserved - stats.active);
    return stats;
}

static inline cuddy_block block_of(const void *ptr) {
    cuddy_block block;
    memset(&block, 0, sizeof block);
    block.struct_size = sizeof block;
    OK(cuddy_block_info(ptr, &block));
    SAME(block.struct_size, sizeof block);
    return block;
}

static inline void *allocate(size_t bytes, cuddy_stream stream) {
    void *ptr = NULL;
    OK(cuddy_malloc(&ptr, bytes, DEVICE, stream));
    CHECK(ptr != NULL || bytes == 0);
    SAME((uintptr_t)ptr % 512, 0);
    return ptr;
}

#endif
