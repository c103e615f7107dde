/* Linked to the CUDA runtime dynamically. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int cudaMalloc(void **, size_t), cudaFree(void *), cudaMemset(void *, int, size_t);
int cudaMemGetInfo(size_t *, size_t *), cudaGetLastError(void), cudaPeekAtLastError(void);
int cudaMallocAsync(void **, size_t, void *), cudaFreeAsync(void *, void *);
int cudaDeviceReset(void), cudaDeviceSynchronize(void);

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        if (code_) {                                                                               \
            printf("%d: %s: %d\n", __LINE__, #call, code_);                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

int main(void) {
    size_t before, after, total;
    void *block, *other;
    uint64_t (*calls)(const char *);
    CHECK(cudaFree(NULL));
    CHECK(cudaMemGetInfo(&before, &total));
    for (int round = 0; round < 100; round++) {
        CHECK(cudaMalloc(&block, 5 << 20));
        CHECK(cudaMemset(block, round, 5 << 20));
        CHECK(cudaMalloc(&other, 1000));
        CHECK(cudaFree(block));
        CHECK(cudaFree(other));
    }
    CHECK(cudaMemGetInfo(&after, &total));
    printf("free memory is the same: %d\n", before == after);
    printf("double free %d, last error %d, then %d\n", cudaFree(other), cudaGetLastError(),
           cudaGetLastError());
    printf("too much %d, peeked %d", cudaMalloc(&block, total * 2), cudaPeekAtLastError());
    printf(", last error %d, then %d\n", cudaGetLastError(), cudaGetLastError());
    CHECK(cudaMallocAsync(&block, 1 << 20, NULL));
    CHECK(cudaFreeAsync(block, NULL));
    CHECK(cudaMalloc(&block, 1 << 20));
    CHECK(cudaFreeAsync(block, NULL));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMalloc(&block, 7 << 20));
    CHECK(cudaDeviceReset());
    printf("after a reset %d\n", cudaFree(block));
    CHECK(cudaMalloc(&block, 7 << 20));
    CHECK(cudaMemset(block, 1, 7 << 20));
    CHECK(cudaFree(block));
    *(void **)&calls = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "simcuda_calls");
    printf("driver %llu %llu\n", (unsigned long long)calls("cuMemAlloc"),
           (unsigned long long)calls("cuMemFree"));
    return 0;
}
