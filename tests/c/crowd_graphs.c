/* Threads that truly run at once: two capture, launch and destroy graphs over two streams each, two
   open streams, allocate and free. No capture is broken, and no use is unordered. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 25, BLOCKS = 12 };

typedef struct CUstream_st *CUstream;

static void *context;
static int (*memset_async)(uint64_t, unsigned char, size_t, CUstream);

static CUstream new_stream(void) {
    CUstream stream = NULL;
    SAME(DRIVER(int, "cuStreamCreate", (CUstream *, unsigned), (&stream, 1)), 0);
    return stream;
}

static void drop_stream(CUstream stream) {
    SAME(DRIVER(int, "cuStreamDestroy_v2", (CUstream), (stream)), 0);
}

/* What `after` is given from here on runs after what `before` has. */
static void order(CUstream before, CUstream after) {
    void *event = NULL;
    SAME(DRIVER(int, "cuEventCreate", (void **, unsigned), (&event, 2)), 0);
    SAME(DRIVER(int, "cuEventRecord", (void *, CUstream), (event, before)), 0);
    SAME(DRIVER(int, "cuStreamWaitEvent", (CUstream, void *, unsigned), (after, event, 0)), 0);
    SAME(DRIVER(int, "cuEventDestroy_v2", (void *), (event)), 0);
}

/* Blocks of two streams by turns: each is used; every other one is freed at once, the rest at the end. */
static void some_work(CUstream one, CUstream other, size_t salt) {
    void *kept[BLOCKS];
    int i, count = 0;
    for (i = 0; i < BLOCKS; i++) {
        CUstream stream = i % 3 ? one : other;
        size_t bytes = 1 + (salt * 7919 + (size_t)i * 104729) % (i % 5 ? 6000 : 3 * MIB);
        void *ptr = allocate(bytes, stream);
        SAME(memset_async((uint64_t)(uintptr_t)ptr, 1, bytes, stream), 0);
        if (i % 2) OK(cuddy_free(ptr));
        else kept[count++] = ptr;
    }
    while (count) OK(cuddy_free(kept[--count]));
}

static void *capture(void *number) {
    uintptr_t round;
    SAME(DRIVER(int, "cuCtxSetCurrent", (void *), (context)), 0);
    for (round = 0; round < ROUNDS; round++) {
        CUstream own = new_stream(), joined = new_stream();
        void *captured = NULL, *launchable = NULL;
        cuddy_graph graph;
        OK(cuddy_graph_begin(&graph, DEVICE, own, 0));
        SAME(DRIVER(int, "cuStreamBeginCapture_v2", (CUstream, int), (own, (int)(round % 3))), 0);
        order(own, joined);
        some_work(joined, own, (uintptr_t)number + round);
        order(joined, own);
        SAME(DRIVER(int, "cuStreamEndCapture", (CUstream, void **), (own, &captured)), 0);
        OK(cuddy_graph_end(graph));
        SAME(DRIVER(int, "cuGraphInstantiateWithFlags", (void **, void *, uint64_t),
                    (&launchable, captured, 0)), 0);
        SAME(DRIVER(int, "cuGraphLaunch", (void *, CUstream), (launchable, own)), 0);
        SAME(DRIVER(int, "cuGraphExecDestroy", (void *), (launchable)), 0);
        SAME(DRIVER(int, "cuGraphDestroy", (void *), (captured)), 0);
        OK(cuddy_graph_destroy(graph, own));
        drop_stream(joined);
        drop_stream(own);
    }
    return NULL;
}

static void *work(void *number) {
    uintptr_t round;
    SAME(DRIVER(int, "cuCtxSetCurrent", (void *), (context)), 0);
    for (round = 0; round < 4 * ROUNDS; round++) {
        CUstream stream = new_stream();
        OK(cuddy_stream_open(DEVICE, stream));
        some_work(stream, stream, (uintptr_t)number * 1000 + round);
        if (round % 8 == 7) OK(cuddy_trim(DEVICE, 8 * MIB, NULL));
        OK(cuddy_stream_retire(DEVICE, stream));
        drop_stream(stream);
    }
    return NULL;
}

int main(void) {
    pthread_t thread[THREADS];
    uintptr_t i;
    *(void (**)(void)) &memset_async = driver_function("cuMemsetD8Async");
    SAME(DRIVER(int, "cuInit", (unsigned), (0)), 0);
    SAME(DRIVER(int, "cuDevicePrimaryCtxRetain", (void **, int), (&context, DEVICE)), 0);
    SAME(DRIVER(int, "cuCtxSetCurrent", (void *), (context)), 0);
    for (i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&thread[i], NULL, i % 2 ? work : capture, (void *)i));
    for (i = 0; i < THREADS; i++) CHECK(!pthread_join(thread[i], NULL));
    SAME(stats_of(DEVICE).live_block_count, 0);
    OK(cuddy_empty_cache(DEVICE, NULL));
    SAME(cuddy_memory_reserved(DEVICE), 0);
    return 0;
}
