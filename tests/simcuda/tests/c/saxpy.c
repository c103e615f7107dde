/* A program of the CUDA driver API that knows nothing of the simulator: it declares what it uses, as
 * cuda.h would, and links the driver. Adds two vectors and checks the sum; 0 if all is well. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;

CUresult cuInit(unsigned int flags);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetName(char *name, int len, CUdevice dev);
CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev);
CUresult cuCtxDestroy_v2(CUcontext ctx);
CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr ptr);
CUresult cuMemHostAlloc(void **ptr, size_t bytes, unsigned int flags);
CUresult cuMemFreeHost(void *ptr);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CUresult cuStreamCreate(CUstream *stream, unsigned int flags);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags);
CUresult cuEventCreate(CUevent *event, unsigned int flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(CUfunction *f, CUmodule module, const char *name);
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void **params, void **extra);
CUresult cuGetErrorName(CUresult error, const char **name);

static void check(CUresult result, const char *what) {
    const char *name = "?";
    if (result == 0) return;
    cuGetErrorName(result, &name);
    fprintf(stderr, "%s: %s\n", what, name);
    exit(1);
}
#define CHECK(call) check((call), #call)

enum { N = 1000 };

int main(void) {
    CUdevice device;
    CUcontext context;
    CUdeviceptr a, b, sum;
    CUstream copies, kernels;
    CUevent event;
    CUmodule module;
    CUfunction add;
    float *host;
    char name[64];
    unsigned long long n = N;
    int i;

    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDeviceGetName(name, sizeof name, device));
    CHECK(cuCtxCreate_v2(&context, 0, device));
    CHECK(cuMemAlloc_v2(&a, N * sizeof *host));
    CHECK(cuMemAlloc_v2(&b, N * sizeof *host));
    CHECK(cuMemAlloc_v2(&sum, N * sizeof *host));
    CHECK(cuMemHostAlloc((void **)&host, N * sizeof *host, 0));
    CHECK(cuStreamCreate(&copies, 1));
    CHECK(cuStreamCreate(&kernels, 1));
    CHECK(cuEventCreate(&event, 2));
    CHECK(cuModuleLoadData(&module, "image"));
    CHECK(cuModuleGetFunction(&add, module, "simcuda_add"));

    for (i = 0; i < N; i++) host[i] = (float)i;
    CHECK(cuMemcpyHtoDAsync_v2(a, host, N * sizeof *host, copies));
    CHECK(cuMemcpyHtoDAsync_v2(b, host, N * sizeof *host, copies));
    CHECK(cuEventRecord(event, copies));
    CHECK(cuStreamWaitEvent(kernels, event, 0));
    {
        void *params[] = {&sum, &a, &b, &n};
        CHECK(cuLaunchKernel(add, 4, 1, 1, 256, 1, 1, 0, kernels, params, NULL));
    }
    CHECK(cuStreamSynchronize(kernels));
    memset(host, 0, N * sizeof *host);
    CHECK(cuMemcpyDtoHAsync_v2(host, sum, N * sizeof *host, kernels));
    CHECK(cuStreamSynchronize(kernels));
    for (i = 0; i < N; i++) {
        if (host[i] != (float)(2 * i)) {
            fprintf(stderr, "element %d is %g\n", i, (double)host[i]);
            return 2;
        }
    }
    CHECK(cuEventDestroy_v2(event));
    CHECK(cuStreamDestroy_v2(copies));
    CHECK(cuStreamDestroy_v2(kernels));
    CHECK(cuMemFreeHost(host));
    CHECK(cuMemFree_v2(a));
    CHECK(cuMemFree_v2(b));
    CHECK(cuMemFree_v2(sum));
    CHECK(cuCtxDestroy_v2(context));
    printf("%s\n", name);
    return 0;
}
