/* Memory, copies and fills, page-locked and pageable; what is known of an address. */
#include "runtime.h"

#define BYTES (1 << 20)

static unsigned char from[BYTES], to[BYTES];

int main(void) {
    unsigned char *a, *b, *pinned;
    size_t free_bytes, total, left;
    OK(cudaFree(0));
    OK(cudaMemGetInfo(&free_bytes, &total));
    OK(cudaMalloc((void **)&a, BYTES));
    OK(cudaMalloc((void **)&b, BYTES));
    OK(cudaMemGetInfo(&left, &total));
    IS(free_bytes - left, 2 * BYTES);
    void *nothing = a;
    OK(cudaMalloc(&nothing, 0));
    IS(nothing, 0);
    IS(cudaMalloc(0, 1), 1);

    for (int i = 0; i < BYTES; i++) from[i] = (unsigned char)(i * 7 + i / 251);
    OK(cudaMemcpy(a, from, BYTES, ToDevice));
    OK(cudaMemcpy(b, a, BYTES, OnDevice));
    OK(cudaMemcpy(to, b, BYTES, ToHost));
    IS(memcmp(from, to, BYTES), 0);
    OK(cudaMemset(b, 0x5a, 100));
    OK(cudaMemcpy(to, b, BYTES, Default));
    IS(to[99], 0x5a);
    IS(to[100], from[100]);
    OK(cudaMemcpy2D(b, 64, from, 1000, 32, 10, ToDevice));
    OK(cudaMemcpy(to, b, 640, ToHost));
    for (int row = 0; row < 10; row++) IS(memcmp(to + 64 * row, from + 1000 * row, 32), 0);
    IS(cudaMemcpy2D(b, 16, from, 1000, 32, 10, ToDevice), 12);
    IS(cudaMemcpy(a, b, 1, 5), 21);
    OK(cudaMemcpy(a, b, 0, OnDevice));

    /* A copy from pageable memory has read it when it returns. */
    cudaStream_t stream;
    OK(cudaStreamCreate(&stream));
    OK(cudaMemcpyAsync(a, from, BYTES, ToDevice, stream));
    unsigned char first = from[0];
    memset(from, 0, BYTES);
    OK(cudaMemcpyAsync(to, a, BYTES, ToHost, stream));
    OK(cudaStreamSynchronize(stream));
    IS(to[0], first);
    IS(to[7], (unsigned char)49);

    struct cudaPointerAttributes what;
    memset(&what, 0xff, sizeof what);
    OK(cudaPointerGetAttributes(&what, a + 5));
    IS(what.type, 2);
    IS(what.device, 0);
    IS((char *)what.devicePointer - (char *)a, 5);
    IS(what.hostPointer, 0);
#if CUDA >= 13
    for (int i = 0; i < 8; i++) IS(what.reserved[i], 0);
#endif
    OK(cudaMallocHost((void **)&pinned, 4096));
    OK(cudaPointerGetAttributes(&what, pinned));
    IS(what.type, 1);
    IS((char *)what.hostPointer - (char *)pinned, 0);
    OK(cudaPointerGetAttributes(&what, to));
    IS(what.type, 0);
    IS(what.device, -2);
    OK(cudaHostRegister(to, 8192, 0));
    IS(cudaHostRegister(to, 8192, 0), 712);
    OK(cudaHostUnregister(to));
    IS(cudaHostUnregister(to), 713);
    OK(cudaFreeHost(pinned));
    OK(cudaFreeHost(0));

    OK(cudaFree(a));
    OK(cudaFree(b));
    IS(cudaFree(b), 1);
    IS(cudaGetLastError(), 1);
    OK(cudaStreamDestroy(stream));
    OK(cudaMemGetInfo(&left, &total));
    IS(left, free_bytes);
    return 0;
}
