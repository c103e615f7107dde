/* The last error: what sets it, what clears it, whose it is; names, texts, versions; what is not
 * there says so. */
#include "runtime.h"
#include <pthread.h>

static void *elsewhere(void *unused) {
    (void)unused;
    IS(cudaPeekAtLastError(), 0);
    IS(cudaSetDevice(17), 101);
    IS(cudaGetLastError(), 101);
    return 0;
}

int main(void) {
    int version = 0, status = 9;
    OK(cudaRuntimeGetVersion(&version));
    IS(version, CUDA == 13 ? 13000 : 12080);
    OK(cudaDriverGetVersion(&version));
    IS(version, 13000);

    void *address;
    IS(cudaMalloc(&address, (size_t)1 << 50), 2);
    IS(cudaPeekAtLastError(), 2);
    OK(cudaFree(0));
    IS(cudaPeekAtLastError(), 2);
    pthread_t thread;
    IS(pthread_create(&thread, 0, elsewhere, 0), 0);
    IS(pthread_join(thread, 0), 0);
    IS(cudaGetLastError(), 2);
    IS(cudaGetLastError(), 0);
    IS(cudaEventQuery((cudaEvent_t)12345), 400);
    IS(cudaEventDestroy((cudaEvent_t)12345), 400);
    IS(cudaGetLastError(), 400);

    IS(strcmp(cudaGetErrorName(2), "cudaErrorMemoryAllocation"), 0);
    IS(strcmp(cudaGetErrorString(2), "out of memory"), 0);
    IS(strcmp(cudaGetErrorName(0), "cudaSuccess"), 0);
    IS(strcmp(cudaGetErrorString(12345), "unrecognized error code"), 0);

    void *entry = 0;
    OK(cudaGetDriverEntryPoint("cuMemAlloc", &entry, 0, &status));
    IS(status, 0);
    IS(entry == 0, 0);
    IS(entry == dlsym(dlopen("libcuda.so.1", 2), "cuMemAlloc_v2"), 1);
    OK(cudaGetDriverEntryPointByVersion("cuMemcpyHtoD", &entry, 12000, 2, &status));
    IS(entry == dlsym(dlopen("libcuda.so.1", 2), "cuMemcpyHtoD_v2_ptds"), 1);
    OK(cudaGetDriverEntryPoint("cuNoSuchThing", &entry, 0, &status));
    IS(status, 1);
    IS(entry, 0);

    IS(cudaMallocArray(&address, &version, 8, 8, 0), 801);
    IS(cudaGetLastError(), 801);
    return 0;
}
