/* Streams, events, host functions, the default streams of both conventions, memory pools. */
#include "runtime.h"

static int order;

static void first(void *seen) { *(int *)seen = ++order; }

int main(void) {
    cudaStream_t one, two;
    cudaEvent_t begun, done, plain;
    OK(cudaStreamCreate(&one));
    OK(cudaStreamCreateWithFlags(&two, 1));
    IS(cudaStreamCreateWithFlags(&two, 8), 1);
    OK(cudaEventCreate(&begun));
    OK(cudaEventCreate(&done));
    OK(cudaEventCreateWithFlags(&plain, 2));
    unsigned char *a, *b, host[4096];
    OK(cudaMalloc((void **)&a, 1 << 20));
    OK(cudaMalloc((void **)&b, 1 << 20));

    int seen = 0, later = 0;
    OK(cudaEventRecord(begun, one));
    OK(cudaMemsetAsync(a, 1, 1 << 20, one));
    OK(cudaLaunchHostFunc(one, first, &seen));
    OK(cudaEventRecord(done, one));
    OK(cudaStreamWaitEvent(two, done, 0));
    OK(cudaMemcpyAsync(b, a, 1 << 20, OnDevice, two));
    OK(cudaLaunchHostFunc(two, first, &later));
    IS(cudaEventQuery(done), 600);
    IS(cudaGetLastError(), 600);
    IS(cudaStreamQuery(two), 600);
    OK(cudaStreamSynchronize(two));
    OK(cudaEventQuery(done));
    IS(seen, 1);
    IS(later, 2);
    OK(cudaMemcpy(host, b, 4096, ToHost));
    IS(host[4095], 1);
    float ms = -1;
    OK(cudaEventElapsedTime(&ms, begun, done));
    IS(ms > 0, 1);
    OK(cudaEventRecord(plain, one));
    IS(cudaEventElapsedTime(&ms, begun, plain), 400);

    /* Stream 0 is the legacy stream, or in the other convention the thread's own: they have ids. */
    unsigned long long legacy, own, named_legacy, named_own;
    OK(cudaStreamGetId(0, &legacy));
    OK(cudaStreamGetId_ptsz(0, &own));
    OK(cudaStreamGetId((cudaStream_t)1, &named_legacy));
    OK(cudaStreamGetId((cudaStream_t)2, &named_own));
    IS(legacy, named_legacy);
    IS(own, named_own);
    IS(legacy == own, 0);
    OK(cudaMemsetAsync_ptsz(a, 2, 1 << 20, 0));
    OK(cudaMemcpyAsync_ptsz(b, a, 1 << 20, OnDevice, 0));
    OK(cudaStreamSynchronize_ptsz(0));
    OK(cudaMemcpy(host, b, 4096, ToHost));
    IS(host[0], 2);

    /* Memory in the order of a stream. */
    unsigned char *pooled, *again;
    OK(cudaMallocAsync((void **)&pooled, 1 << 20, one));
    OK(cudaMemsetAsync(pooled, 4, 1 << 20, one));
    OK(cudaFreeAsync(pooled, one));
    OK(cudaMallocAsync((void **)&again, 1 << 20, one));
    IS(again == pooled, 1);
    OK(cudaFreeAsync(again, one));
    OK(cudaFreeAsync(0, one));
    void *nothing = a;
    OK(cudaMallocAsync(&nothing, 0, one));
    IS(nothing, 0);
    cudaMemPool_t pool;
    uint64_t used = 1;
    struct cudaMemPoolProps wished = {1, 0, {1, 0}, 0, 0, 0, {0}};
    OK(cudaMemPoolCreate(&pool, &wished));
    OK(cudaMallocFromPoolAsync((void **)&pooled, 3 << 20, pool, two));
    OK(cudaMemPoolGetAttribute(pool, 7, &used));
    IS(used, 3 << 20);
    OK(cudaFreeAsync(pooled, two));
    OK(cudaStreamSynchronize(two));
    OK(cudaMemPoolDestroy(pool));

    OK(cudaEventDestroy(begun));
    OK(cudaEventDestroy(done));
    OK(cudaEventDestroy(plain));
    IS(cudaEventDestroy(plain), 400);
    OK(cudaStreamDestroy(one));
    OK(cudaStreamDestroy(two));
    OK(cudaFree(a));
    OK(cudaFree(b));
    return 0;
}
