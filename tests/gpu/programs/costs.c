/* costs.c: what driver calls cost on this machine: the median of repeated calls, in nanoseconds, as
 * one JSON object {"cuMemAlloc 2MiB": 12345, ...}. Needs nothing but libcuda.so.1. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 25, MIB = 1 << 20 };
typedef unsigned long long address;
struct location { int kind, id; };
struct properties {
    int kind, handle_types;
    struct location location;
    void *unused;
    unsigned char flags[8];
};
struct access { struct location location; int flags; };

#define FUNCTIONS(X)                                                                               \
    X(cuInit, "cuInit", (unsigned))                                                                \
    X(cuDeviceGetName, "cuDeviceGetName", (char *, int, int))                                      \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (void **, int))                        \
    X(cuCtxSetCurrent, "cuCtxSetCurrent", (void *))                                                \
    X(cuCtxGetCurrent, "cuCtxGetCurrent", (void **))                                               \
    X(cuCtxSynchronize, "cuCtxSynchronize", (void))                                                \
    X(cuMemGetInfo, "cuMemGetInfo_v2", (size_t *, size_t *))                                       \
    X(cuMemAlloc, "cuMemAlloc_v2", (address *, size_t))                                            \
    X(cuMemFree, "cuMemFree_v2", (address))                                                        \
    X(cuMemAllocAsync, "cuMemAllocAsync", (address *, size_t, void *))                             \
    X(cuMemFreeAsync, "cuMemFreeAsync", (address, void *))                                         \
    X(cuMemHostAlloc, "cuMemHostAlloc", (void **, size_t, unsigned))                               \
    X(cuMemFreeHost, "cuMemFreeHost", (void *))                                                    \
    X(cuMemAddressReserve, "cuMemAddressReserve", (address *, size_t, size_t, address, address))   \
    X(cuMemAddressFree, "cuMemAddressFree", (address, size_t))                                     \
    X(cuMemCreate, "cuMemCreate", (address *, size_t, const struct properties *, address))         \
    X(cuMemRelease, "cuMemRelease", (address))                                                     \
    X(cuMemMap, "cuMemMap", (address, size_t, size_t, address, address))                           \
    X(cuMemUnmap, "cuMemUnmap", (address, size_t))                                                 \
    X(cuMemSetAccess, "cuMemSetAccess", (address, size_t, const struct access *, size_t))          \
    X(cuStreamCreate, "cuStreamCreate", (void **, unsigned))                                       \
    X(cuStreamQuery, "cuStreamQuery", (void *))                                                    \
    X(cuStreamWaitEvent, "cuStreamWaitEvent", (void *, void *, unsigned))                          \
    X(cuEventCreate, "cuEventCreate", (void **, unsigned))                                         \
    X(cuEventRecord, "cuEventRecord", (void *, void *))                                            \
    X(cuEventQuery, "cuEventQuery", (void *))

#define DECLARE(name, symbol, arguments) static int (*name) arguments;
FUNCTIONS(DECLARE)

static int printed;
static double samples[ROUNDS];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void must(int code, const char *what) {
    if (code == 0)
        return;
    fprintf(stderr, "%s failed with CUDA error %d\n", what, code);
    exit(1);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *what, size_t bytes, double *all) {
    qsort(all, ROUNDS, sizeof *all, compare);
    printf("%s\"%s", printed++ ? ",\n " : "{", what);
    if (bytes)
        printf(" %zuMiB", bytes / MIB);
    printf("\": %.0f", all[ROUNDS / 2]);
}

/* Times a call in each round; `before` and `after` are not timed. */
#define COST(what, bytes, before, call, after)                                                     \
    do {                                                                                           \
        for (int round = 0; round < ROUNDS; round++) {                                             \
            before;                                                                                \
            double begin = now();                                                                  \
            must(call, what);                                                                      \
            samples[round] = now() - begin;                                                        \
            after;                                                                                 \
        }                                                                                          \
        print(what, bytes, samples);                                                               \
    } while (0)

static void memory(void) {
    static const size_t SIZES[] = {2, 20, 200, 1024};
    address block = 0;
    void *host = NULL;
    for (unsigned i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        size_t bytes = SIZES[i] * MIB;
        COST("cuMemAlloc", bytes, , cuMemAlloc(&block, bytes), must(cuMemFree(block), "cuMemFree"));
        COST("cuMemFree", bytes, must(cuMemAlloc(&block, bytes), "cuMemAlloc"), cuMemFree(block), );
    }
    for (unsigned i = 0; i < 2; i++) {
        size_t bytes = SIZES[i] * MIB;
        COST("cuMemHostAlloc", bytes, , cuMemHostAlloc(&host, bytes, 0), must(cuMemFreeHost(host), "cuMemFreeHost"));
    }
    if (cuMemAllocAsync && cuMemAllocAsync(&block, 2 * MIB, NULL) == 0) {
        must(cuMemFreeAsync(block, NULL), "cuMemFreeAsync");
        COST("cuMemAllocAsync", 2 * MIB, , cuMemAllocAsync(&block, 2 * MIB, NULL), must(cuMemFreeAsync(block, NULL), "cuMemFreeAsync"));
        COST("cuMemFreeAsync", 2 * MIB, must(cuMemAllocAsync(&block, 2 * MIB, NULL), "cuMemAllocAsync"), cuMemFreeAsync(block, NULL), );
    }
}

static void virtual_memory(void) {
    static const size_t SIZES[] = {2, 32, 256};
    struct properties prop = {.kind = 1, .location = {1, 0}};
    struct access access = {{1, 0}, 3};
    address space, handle = 0;
    must(cuMemAddressReserve(&space, (size_t)256 * MIB, 0, 0, 0), "cuMemAddressReserve");
    for (unsigned i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        size_t bytes = SIZES[i] * MIB;
        COST("cuMemCreate", bytes, , cuMemCreate(&handle, bytes, &prop, 0), must(cuMemRelease(handle), "cuMemRelease"));
        COST("cuMemRelease", bytes, must(cuMemCreate(&handle, bytes, &prop, 0), "cuMemCreate"), cuMemRelease(handle), );
        must(cuMemCreate(&handle, bytes, &prop, 0), "cuMemCreate");
        COST("cuMemMap", bytes, , cuMemMap(space, bytes, 0, handle, 0), must(cuMemUnmap(space, bytes), "cuMemUnmap"));
        COST("cuMemSetAccess", bytes, must(cuMemMap(space, bytes, 0, handle, 0), "cuMemMap"), cuMemSetAccess(space, bytes, &access, 1),
             must(cuMemUnmap(space, bytes), "cuMemUnmap"));
        COST("cuMemUnmap", bytes, must(cuMemMap(space, bytes, 0, handle, 0), "cuMemMap");
             must(cuMemSetAccess(space, bytes, &access, 1), "cuMemSetAccess"), cuMemUnmap(space, bytes), );
        must(cuMemRelease(handle), "cuMemRelease");
    }
    must(cuMemAddressFree(space, (size_t)256 * MIB), "cuMemAddressFree");
}

static void order(void) {
    void *stream, *other, *event, *context;
    size_t free_bytes, total;
    must(cuStreamCreate(&stream, 1), "cuStreamCreate");
    must(cuStreamCreate(&other, 1), "cuStreamCreate");
    must(cuEventCreate(&event, 2), "cuEventCreate");
    COST("cuEventRecord", 0, , cuEventRecord(event, stream), );
    must(cuCtxSynchronize(), "cuCtxSynchronize");
    COST("cuEventQuery", 0, , cuEventQuery(event), );
    COST("cuStreamWaitEvent", 0, , cuStreamWaitEvent(other, event, 0), );
    must(cuCtxSynchronize(), "cuCtxSynchronize");
    COST("cuStreamQuery", 0, , cuStreamQuery(stream), );
    COST("cuCtxGetCurrent", 0, , cuCtxGetCurrent(&context), );
    COST("cuCtxSynchronize", 0, , cuCtxSynchronize(), );
    COST("cuMemGetInfo", 0, , cuMemGetInfo(&free_bytes, &total), );
}

int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    char name[128];
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
#define FIND(name, symbol, arguments) *(void **)&name = dlsym(driver, symbol);
    FUNCTIONS(FIND)
    must(cuInit(0), "cuInit");
    must(cuDeviceGetName(name, sizeof name, 0), "cuDeviceGetName");
    must(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    memory();
    virtual_memory();
    order();
    printf("}\n");
    return 0;
}
