/* Threads that truly run at once: two capture, launch and destroy graphs over two streams each, two
   open streams, allocate and free. No capture is broken, and no use is unordered. */
#include "crowd.h"

enum { ROUNDS = 25, BLOCKS = 12 };

/* Blocks of two streams by turns: each is used; every other one is freed at once, the rest at the end. */
static void some_work(cuddy_stream one, cuddy_stream other, size_t salt) {
    void *kept[BLOCKS];
    int i, count = 0;
    for (i = 0; i < BLOCKS; i++) {
        cuddy_stream stream = i % 3 ? one : other;
        size_t bytes = 1 + (salt * 7919 + (size_t)i * 104729) % (i % 5 ? 6000 : 3 * MIB);
        void *ptr = allocate(bytes, stream);
        fill(ptr, 7, bytes, stream);
        if (i % 2) OK(cuddy_free(ptr));
        else kept[count++] = ptr;
    }
    while (count) OK(cuddy_free(kept[--count]));
}

static void *capture(void *number) {
    uintptr_t round;
    use_device();
    for (round = 0; round < ROUNDS; round++) {
        cuddy_stream own = new_stream(), joined = new_stream();
        void *captured = NULL, *launchable = NULL;
        cuddy_graph graph;
        OK(cuddy_graph_begin(&graph, DEVICE, own, 0));
        SAME(DRIVER(int, "cuStreamBeginCapture_v2", (cuddy_stream, int), (own, (int)(round % 3))), 0);
        order(own, joined);
        some_work(joined, own, (uintptr_t)number + round);
        order(joined, own);
        SAME(DRIVER(int, "cuStreamEndCapture", (cuddy_stream, void **), (own, &captured)), 0);
        OK(cuddy_graph_end(graph));
        SAME(DRIVER(int, "cuGraphInstantiateWithFlags", (void **, void *, uint64_t),
                    (&launchable, captured, 0)), 0);
        SAME(DRIVER(int, "cuGraphLaunch", (void *, cuddy_stream), (launchable, own)), 0);
        SAME(DRIVER(int, "cuGraphExecDestroy", (void *), (launchable)), 0);
        SAME(DRIVER(int, "cuGraphDestroy", (void *), (captured)), 0);
        OK(cuddy_graph_destroy(graph, own));
        destroy_stream(joined);
        destroy_stream(own);
    }
    return NULL;
}

static void *work(void *number) {
    uintptr_t round;
    use_device();
    for (round = 0; round < 4 * ROUNDS; round++) {
        cuddy_stream stream = new_stream();
        OK(cuddy_stream_open(DEVICE, stream));
        some_work(stream, stream, (uintptr_t)number * 1000 + round);
        if (round % 8 == 7) OK(cuddy_trim(DEVICE, 8 * MIB, NULL));
        OK(cuddy_stream_retire(DEVICE, stream));
        destroy_stream(stream);
    }
    return NULL;
}

static void *work_or_capture(void *number) {
    return (uintptr_t)number % 2 ? work(number) : capture(number);
}

int main(void) {
    use_device();
    in_a_crowd(work_or_capture);
    SAME(stats_of(DEVICE).live_block_count, 0);
    OK(cuddy_empty_cache(DEVICE, NULL));
    SAME(cuddy_memory_reserved(DEVICE), 0);
    return 0;
}
