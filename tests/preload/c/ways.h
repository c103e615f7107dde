/* The driver functions that these programs call, by the way that a program has chosen. */
#ifndef WAYS_H
#define WAYS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long CUdeviceptr;

#define FUNCTIONS(F)                                                                               \
    F(cuInit, cuInit, 2000, (unsigned))                                                            \
    F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, (void **, int))                    \
    F(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, (int))                       \
    F(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000, (int))                           \
    F(cuCtxCreate, cuCtxCreate_v2, 3020, (void **, unsigned, int))                                 \
    F(cuCtxDestroy, cuCtxDestroy_v2, 4000, (void *))                                               \
    F(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (void *))                                            \
    F(cuCtxGetCurrent, cuCtxGetCurrent, 4000, (void **))                                           \
    F(cuCtxSynchronize, cuCtxSynchronize, 2000, (void))                                            \
    F(cuMemAlloc, cuMemAlloc_v2, 3020, (CUdeviceptr *, size_t))                                    \
    F(cuMemAllocPitch, cuMemAllocPitch_v2, 3020, (CUdeviceptr *, size_t *, size_t, size_t, unsigned)) \
    F(cuMemFree, cuMemFree_v2, 3020, (CUdeviceptr))                                                \
    F(cuMemGetInfo, cuMemGetInfo_v2, 3020, (size_t *, size_t *))                                   \
    F(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020, (CUdeviceptr *, size_t *, CUdeviceptr)) \
    F(cuPointerGetAttribute, cuPointerGetAttribute, 4000, (void *, int, CUdeviceptr))              \
    F(cuPointerGetAttributes, cuPointerGetAttributes, 7000,                                        \
      (unsigned, int *, void **, CUdeviceptr))                                                     \
    F(cuPointerSetAttribute, cuPointerSetAttribute, 6000, (const void *, int, CUdeviceptr))        \
    F(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (void *, CUdeviceptr))                           \
    F(cuMemAllocAsync, cuMemAllocAsync, 11020, (CUdeviceptr *, size_t, void *))                    \
    F(cuMemFreeAsync, cuMemFreeAsync, 11020, (CUdeviceptr, void *))                                \
    F(cuMemAllocManaged, cuMemAllocManaged, 6000, (CUdeviceptr *, size_t, unsigned))               \
    F(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, (void **, int))                 \
    F(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020, (void *, int, void *))                  \
    F(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020, (void *, int, void *))                  \
    F(cuMemsetD8, cuMemsetD8_v2, 3020, (CUdeviceptr, unsigned char, size_t))                       \
    F(cuMemsetD8Async, cuMemsetD8Async, 3020, (CUdeviceptr, unsigned char, size_t, void *))        \
    F(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020, (CUdeviceptr, CUdeviceptr, size_t, void *))   \
    F(cuMemcpyDtoH, cuMemcpyDtoH_v2, 3020, (void *, CUdeviceptr, size_t))                          \
    F(cuStreamCreate, cuStreamCreate, 2000, (void **, unsigned))                                   \
    F(cuStreamDestroy, cuStreamDestroy_v2, 4000, (void *))                                         \
    F(cuStreamSynchronize, cuStreamSynchronize, 2000, (void *))                                    \
    F(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010, (void *, int))                         \
    F(cuStreamEndCapture, cuStreamEndCapture, 10000, (void *, void **))                            \
    F(cuGraphDestroy, cuGraphDestroy, 10000, (void *))                                             \
    F(cuStreamIsCapturing, cuStreamIsCapturing, 10000, (void *, int *))                            \
    F(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030,                             \
      (void *, void *, void *, void *, size_t, int))                                               \
    F(cuGraphCreate, cuGraphCreate, 10000, (void **, unsigned))                                    \
    F(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, (void *, unsigned))                      \
    F(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, 4000, (void *))                              \
    F(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020,                                     \
      (CUdeviceptr *, size_t, void *, void *))                                                     \
    F(cuMemCreate, cuMemCreate, 10020, (unsigned long long *, size_t, const void *, unsigned long long)) \
    F(cuMemRelease, cuMemRelease, 10020, (unsigned long long))                                     \
    F(cuArrayCreate, cuArrayCreate_v2, 3020, (void **, const void *))                              \
    F(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070,                         \
      (void *, CUdeviceptr, size_t, int, unsigned long long))                                      \
    F(cuEventCreate, cuEventCreate, 2000, (void **, unsigned))                                     \
    F(cuEventRecord, cuEventRecord, 2000, (void *, void *))                                        \
    F(cuStreamWaitEvent, cuStreamWaitEvent, 3020, (void *, void *, unsigned))                      \
    F(cuEventDestroy, cuEventDestroy_v2, 4000, (void *))

#define DECLARE(name, symbol, version, arguments) static int(*name) arguments;
FUNCTIONS(DECLARE)
#undef DECLARE

/* The simulator's own functions: never hooked. */
static uint64_t (*simcuda_calls)(const char *);
static uint64_t (*simcuda_used)(int);
static uint64_t (*simcuda_report_count)(void);

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        if (code_) {                                                                               \
            printf("%s:%d: %s: %d\n", __FILE__, __LINE__, #call, code_);                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);                                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void *find_by_name(const char *symbol, void *library) {
    return dlsym(library, symbol);
}

/* Fills the functions by `cuGetProcAddress`, which is asked for itself first. */
static void find_by_address(void *library, int form) {
    int (*second)(const char *, void **, int, uint64_t, int *);
    int (*first)(const char *, void **, int, uint64_t);
    void *found;
    if (form == 2) {
        int status;
        *(void **)&second = dlsym(library, "cuGetProcAddress_v2");
        CHECK(second("cuGetProcAddress", &found, 12000, 0, &status));
        *(void **)&second = found;
        REQUIRE(second("cuNoSuchThing", &found, 12000, 0, &status) == 0 && !found && status == 1);
        CHECK(second("", &found, 12000, 0, &status));
#define ASK(name, symbol, version, arguments)                                                      \
    CHECK(second(#name, &found, version, 0, &status));                                             \
    *(void **)&name = found;
        FUNCTIONS(ASK)
#undef ASK
    } else {
        *(void **)&first = dlsym(library, "cuGetProcAddress");
        CHECK(first("cuGetProcAddress", &found, 11030, 0));
        *(void **)&first = found;
        REQUIRE(first("cuNoSuchThing", &found, 11030, 0) != 0 && !found);
#define ASK(name, symbol, version, arguments)                                                      \
    CHECK(first(#name, &found, version, 0));                                                       \
    *(void **)&name = found;
        FUNCTIONS(ASK)
#undef ASK
    }
}

#ifdef LINKED
extern int cuMemAlloc_v2(CUdeviceptr *, size_t), cuMemFree_v2(CUdeviceptr);
extern int cuMemGetAddressRange_v2(CUdeviceptr *, size_t *, CUdeviceptr);
extern int cuMemGetInfo_v2(size_t *, size_t *);
#endif

static void find_functions(const char *way) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | (strcmp(way, "deepbind") ? 0 : RTLD_DEEPBIND));
    REQUIRE(library);
#define FIND(name, symbol, version, arguments) *(void **)&name = find_by_name(#symbol, library);
    FUNCTIONS(FIND)
#undef FIND
    *(void **)&simcuda_calls = dlsym(library, "simcuda_calls");
    *(void **)&simcuda_used = dlsym(library, "simcuda_used");
    *(void **)&simcuda_report_count = dlsym(library, "simcuda_report_count");
    if (!strcmp(way, "address1")) find_by_address(library, 1);
    if (!strcmp(way, "address2")) find_by_address(library, 2);
    if (!strcmp(way, "whole")) { /* a handle of the whole program, with the driver in it */
        REQUIRE(dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL));
        *(void **)&cuMemAlloc = dlsym(dlopen(NULL, RTLD_NOW), "cuMemAlloc_v2");
        *(void **)&cuMemFree = dlsym(RTLD_DEFAULT, "cuMemFree_v2");
    }
#ifdef LINKED
    cuMemAlloc = cuMemAlloc_v2;
    cuMemFree = cuMemFree_v2;
    cuMemGetAddressRange = cuMemGetAddressRange_v2;
    cuMemGetInfo = cuMemGetInfo_v2;
#endif
}

static void *start(const char *way) {
    void *context;
    find_functions(way);
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    return context;
}

/* What the driver was really asked. */
static inline void say_driver_calls(void) {
    printf("driver %llu %llu\n", (unsigned long long)simcuda_calls("cuMemAlloc"),
           (unsigned long long)simcuda_calls("cuMemFree"));
}
#endif
