/* An illegal access breaks the context: every call says so from then on, and the last error stays. */
#include "runtime.h"

int main(void) {
    void *a, *b;
    OK(cudaMalloc(&a, 1 << 20));
    OK(cudaMalloc(&b, 1 << 20));
    OK(cudaFree(b));
    cudaMemsetAsync(b, 0, 1 << 20, 0);
    IS(cudaDeviceSynchronize(), 700);
    IS(cudaGetLastError(), 700);
    IS(cudaGetLastError(), 700);
    IS(cudaMalloc(&b, 1), 700);
    IS(cudaPeekAtLastError(), 700);
    return 0;
}
