/* A test program in C that uses the control functions: makes one mistake by name, and prints what the
 * simulator says. Also a use of every part of simcuda.h that hands out text. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "simcuda.h"

typedef unsigned long long CUdeviceptr;
int cuInit(unsigned int flags);
int cuCtxCreate_v2(void **ctx, unsigned int flags, int dev);
int cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes);
int cuMemFree_v2(CUdeviceptr ptr);
int cuMemsetD8Async(CUdeviceptr ptr, unsigned char value, size_t count, void *stream);
int cuStreamCreate(void **stream, unsigned int flags);
int cuCtxSynchronize(void);
int cuDeviceGetCount(int *count);
int cuGetErrorName(int error, const char **name);

static int race(void) {
    CUdeviceptr block;
    void *a, *b;
    char text[2048];
    if (cuMemAlloc_v2(&block, 64) || cuStreamCreate(&a, 1) || cuStreamCreate(&b, 1)) return 3;
    if (cuMemsetD8Async(block, 1, 64, a) || cuMemsetD8Async(block, 2, 64, b)) return 3;
    if (simcuda_report_count() != 1 || simcuda_report_text(0, text, sizeof text)) return 4;
    puts(text);
    if (simcuda_report_text(1, text, sizeof text) != -1) return 5;
    if (simcuda_error(text, sizeof text)) return 6;
    puts(text);
    return 0;
}

/* A child forked from a process that uses CUDA cannot use it, and says so; the parent still can. */
static int forked(void) {
    CUdeviceptr block;
    int status = -1, count = 0;
    const char *name = NULL;
    pid_t child = fork();
    if (child == 0) {
        int code = cuMemAlloc_v2(&block, 64);
        if (code != 3 || cuInit(0) != 3 || cuDeviceGetCount(&count) != 3) _exit(1);
        _exit(cuGetErrorName(code, &name) || strcmp(name, "CUDA_ERROR_NOT_INITIALIZED"));
    }
    if (waitpid(child, &status, 0) != child || status != 0) return 7;
    return cuMemAlloc_v2(&block, 64);
}

int main(int argc, char **argv) {
    void *context;
    if (argc != 2) return 1;
    if (simcuda_configure("memory", "1GiB") || cuInit(0) || cuCtxCreate_v2(&context, 0, 0)) return 2;
    if (!strcmp(argv[1], "race")) return race();
    if (!strcmp(argv[1], "fork")) return forked();
    return 1;
}
