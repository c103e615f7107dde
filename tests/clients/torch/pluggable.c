/* pluggable.c: the smallest allocator that torch can be given: each tensor is a cudaMalloc. */
#include <cuda_runtime_api.h>
#include <stdio.h>

long allocations, frees, recorded, live_bytes;

void *plain_alloc(size_t bytes, int device, cudaStream_t stream) {
    void *block = NULL;
    (void)stream;
    if (cudaSetDevice(device) != cudaSuccess || (bytes && cudaMalloc(&block, bytes) != cudaSuccess))
        return NULL;
    allocations++;
    live_bytes += (long)bytes;
    return block;
}

void plain_free(void *block, size_t bytes, int device, cudaStream_t stream) {
    (void)device, (void)stream;
    if (cudaFree(block) != cudaSuccess)
        fprintf(stderr, "cudaFree failed\n");
    frees++;
    live_bytes -= (long)bytes;
}

void plain_record(void *block, cudaStream_t stream) {
    (void)block, (void)stream;
    recorded++;
}
