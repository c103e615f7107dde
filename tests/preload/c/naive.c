/* Allocates and frees ten buffers each step, as many programs do. */
#include "ways.h"

int main(int count, char **words) {
    int steps = count > 1 ? atoi(words[1]) : 1000;
    void *streams[2];
    start("dlsym");
    CHECK(cuStreamCreate(&streams[0], 1));
    CHECK(cuStreamCreate(&streams[1], 1));
    for (int step = 0; step < steps; step++) {
        CUdeviceptr buffers[10];
        for (int i = 0; i < 10; i++) {
            CHECK(cuMemAlloc(&buffers[i], (size_t)(i + 1) * 300000));
            CHECK(cuMemsetD8Async(buffers[i], step, (size_t)(i + 1) * 300000, streams[i % 2]));
        }
        for (int i = 0; i < 10; i++) CHECK(cuMemFree(buffers[i]));
    }
    printf("findings %llu\n", (unsigned long long)simcuda_report_count());
    say_driver_calls();
    return 0;
}
