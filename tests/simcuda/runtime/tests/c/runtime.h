/* What the programs of these tests call, declared as the public headers of the CUDA runtime declare
 * it. CUDA is the major version that the program is for, as a macro. */
#ifndef RUNTIME_H
#define RUNTIME_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int cudaError_t;
typedef void *cudaStream_t, *cudaEvent_t, *cudaGraph_t, *cudaGraphExec_t, *cudaMemPool_t;
typedef struct {
    unsigned x, y, z;
} dim3;

struct cudaPointerAttributes {
    int type;
    int device;
    void *devicePointer;
    void *hostPointer;
#if CUDA >= 13
    long reserved[8];
#endif
};

struct cudaMemLocation {
    int type;
    int id;
};

struct cudaMemPoolProps {
    int allocType, handleTypes;
    struct cudaMemLocation location;
    void *security;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
};

enum { ToDevice = 1, ToHost = 2, OnDevice = 3, Default = 4 };

cudaError_t cudaRuntimeGetVersion(int *), cudaDriverGetVersion(int *);
cudaError_t cudaGetLastError(void), cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t), *cudaGetErrorString(cudaError_t);
cudaError_t cudaGetDeviceCount(int *), cudaGetDevice(int *), cudaSetDevice(int);
cudaError_t cudaDeviceSynchronize(void), cudaDeviceReset(void);
cudaError_t cudaDeviceGetAttribute(int *, int, int);
#if CUDA >= 13
cudaError_t cudaGetDeviceProperties(void *, int);
#else
cudaError_t cudaGetDeviceProperties_v2(void *, int);
#define cudaGetDeviceProperties cudaGetDeviceProperties_v2
#endif
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned), cudaDeviceCanAccessPeer(int *, int, int);
cudaError_t cudaMalloc(void **, size_t), cudaFree(void *), cudaMemGetInfo(size_t *, size_t *);
cudaError_t cudaMallocHost(void **, size_t), cudaHostAlloc(void **, size_t, unsigned);
cudaError_t cudaFreeHost(void *), cudaHostRegister(void *, size_t, unsigned);
cudaError_t cudaHostUnregister(void *);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *, const void *);
cudaError_t cudaMemcpy(void *, const void *, size_t, int);
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, int, cudaStream_t);
cudaError_t cudaMemcpyAsync_ptsz(void *, const void *, size_t, int, cudaStream_t);
cudaError_t cudaMemcpyPeer(void *, int, const void *, int, size_t);
cudaError_t cudaMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int);
cudaError_t cudaMemset(void *, int, size_t), cudaMemsetAsync(void *, int, size_t, cudaStream_t);
cudaError_t cudaMemsetAsync_ptsz(void *, int, size_t, cudaStream_t);
cudaError_t cudaStreamCreate(cudaStream_t *), cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
cudaError_t cudaStreamSynchronize(cudaStream_t), cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamSynchronize_ptsz(cudaStream_t);
cudaError_t cudaStreamGetId(cudaStream_t, unsigned long long *);
cudaError_t cudaStreamGetId_ptsz(cudaStream_t, unsigned long long *);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned);
cudaError_t cudaEventCreate(cudaEvent_t *), cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *, unsigned);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t), cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float *, cudaEvent_t, cudaEvent_t);
cudaError_t cudaLaunchHostFunc(cudaStream_t, void (*)(void *), void *);
cudaError_t cudaMallocAsync(void **, size_t, cudaStream_t), cudaFreeAsync(void *, cudaStream_t);
cudaError_t cudaMallocFromPoolAsync(void **, size_t, cudaMemPool_t, cudaStream_t);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *, int);
cudaError_t cudaMemPoolCreate(cudaMemPool_t *, const struct cudaMemPoolProps *);
cudaError_t cudaMemPoolDestroy(cudaMemPool_t);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, int, void *);
cudaError_t cudaMallocArray(void **, const void *, size_t, size_t, unsigned);
cudaError_t cudaGetDriverEntryPoint(const char *, void **, unsigned long long, int *);
cudaError_t cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long long,
                                             int *);
cudaError_t cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t);
cudaError_t __cudaLaunchKernel(void *, dim3, dim3, void **, size_t, cudaStream_t);
cudaError_t __cudaGetKernel(void **, const void *);
cudaError_t cudaFuncGetAttributes(void *, const void *);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t);
cudaError_t __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);
void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **), __cudaUnregisterFatBinary(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *,
                            void *, void *, int *);

/* The driver's, by name, for what the runtime does not show. */
void *dlsym(void *, const char *);
void *dlopen(const char *, int);

#define IS(answer, expected)                                                                       \
    do {                                                                                           \
        long got = (long)(answer), want = (long)(expected);                                        \
        if (got != want) {                                                                         \
            fprintf(stderr, "%s:%d: %s is %ld, not %ld\n", __FILE__, __LINE__, #answer, got, want); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(answer) IS(answer, 0)

#endif
