// A buffer that two streams use: what Cuddy has to be told, in its two forms.
#include <cuddy.h>
#include <stdio.h>

// What <cuda.h> declares:
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuStreamCreate(cuddy_stream *, unsigned), cuStreamWaitEvent(cuddy_stream, void *, unsigned);
int cuEventCreate(void **, unsigned), cuEventRecord(void *, cuddy_stream);
int cuMemsetD8Async(unsigned long long, unsigned char, size_t, cuddy_stream);

enum { BYTES = 8 << 20 };

static void *get(cuddy_stream stream) {
    void *block = NULL;
    if (cuddy_malloc(&block, BYTES, 0, stream) != CUDDY_OK) fprintf(stderr, "%s\n", cuddy_last_error());
    return block;
}

// A kernel's stand-in.
static void use(void *block, cuddy_stream stream) {
    cuMemsetD8Async((unsigned long long)block, 1, BYTES, stream);
}

int main(void) {
    void *context, *event, *block, *next;
    cuddy_stream compute, copy;
    cuInit(0), cuDevicePrimaryCtxRetain(&context, 0), cuCtxSetCurrent(context);
    cuStreamCreate(&compute, 1), cuStreamCreate(&copy, 1), cuEventCreate(&event, 2);
    cuddy_stream_open(0, compute), cuddy_stream_open(0, copy); // they live long: saves driver calls

    // 1. The block is of `compute`, and `copy` uses it too. Record that before the free.
    block = get(compute);
    use(block, compute);
    cuEventRecord(event, compute), cuStreamWaitEvent(copy, event, 0); // copy goes after compute
    use(block, copy);
    cuddy_record_stream(block, copy);
    cuddy_free(block);
    next = get(compute); // not the same memory while `copy` may use it
    use(next, compute);
    cuddy_free(next);

    // 2. Or hand it over: from the wait on, every use is ordered before `copy`, so it may have it.
    block = get(compute);
    use(block, compute);
    cuEventRecord(event, compute), cuStreamWaitEvent(copy, event, 0);
    cuddy_free_on(block, copy);
    next = get(copy);
    use(next, copy);
    printf("handed over: %s\n", next == block ? "the same memory, at once" : "other memory");
    cuddy_free(next);

    cuddy_stream_retire(0, compute), cuddy_stream_retire(0, copy); // before they are destroyed
    return 0;
}

// Prints:
// handed over: the same memory, at once
