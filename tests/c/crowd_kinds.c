/* Threads at once, each another kind of program: graphs of random work over two streams, some with a
   pool of their own; private pools; page-locked host memory; and all of them with out-of-memory
   callbacks, trims and limits that change. Every use of memory is one that the checker sees.
   Argument: the seed. */
#include "crowd.h"

enum { STEPS = 250, LIVE = 60, CAPTURED = 24, HOST = 16 };

typedef struct {
    void *ptr;
    size_t bytes;
    cuddy_stream stream;
} block;

/* A few live blocks of one thread. */
typedef struct {
    block block[LIVE];
    int count;
} blocks;

static uint64_t seed;

/* A block of the stream, used there, if there is memory and room for it. */
static void get_one(blocks *live, size_t bytes, cuddy_stream stream) {
    block it = {NULL, bytes, stream};
    int status;
    if (live->count == LIVE) return;
    status = cuddy_malloc(&it.ptr, bytes, DEVICE, stream);
    if (status == CUDDY_ERROR_OUT_OF_MEMORY) return;
    SAME(status, CUDDY_OK);
    fill(it.ptr, 7, bytes, stream);
    live->block[live->count++] = it;
}

static void free_one(blocks *live, uint64_t *random) {
    int i = (int)draw(random, (uint64_t)live->count);
    OK(cuddy_free(live->block[i].ptr));
    live->block[i] = live->block[--live->count];
}

static void free_all(blocks *live) {
    while (live->count) OK(cuddy_free(live->block[--live->count].ptr));
}

static cuddy_pool new_pool(size_t limit) {
    cuddy_pool pool;
    cuddy_pool_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.limit = limit;
    OK(cuddy_pool_create(&options, &pool));
    return pool;
}

/* Random work of two streams, the second of which has joined the capture of the first. */
static void captured_work(blocks *live, cuddy_stream main_stream, cuddy_stream side, uint64_t *random) {
    int i;
    order(main_stream, side);
    for (i = 0; i < CAPTURED; i++) {
        const uint64_t kind = draw(random, 10);
        if (kind < 5) {
            get_one(live, some_size(random), draw(random, 2) ? main_stream : side);
        } else if (live->count && kind < 8) {
            free_one(live, random);
        } else if (live->count) {
            const block *it = &live->block[draw(random, (uint64_t)live->count)];
            fill(it->ptr, 8, it->bytes, it->stream);
        }
    }
    order(side, main_stream);
}

/* A graph captured, launched and destroyed; its blocks are freed before or after any of these. */
static void graph(uint64_t *random) {
    const int held = (int)draw(random, 2), frees = (int)draw(random, 3);
    const cuddy_stream own = new_stream(), side = new_stream();
    const cuddy_pool pool = draw(random, 3) ? 0 : new_pool(0);
    void *captured = NULL, *launchable = NULL;
    uint64_t launches = draw(random, 4);
    blocks live;
    cuddy_graph graph;
    live.count = 0;
    if (held) {
        OK(cuddy_stream_open(DEVICE, own));
        OK(cuddy_stream_open(DEVICE, side));
    }
    OK(cuddy_graph_begin(&graph, DEVICE, own, pool));
    SAME(DRIVER(int, "cuStreamBeginCapture_v2", (cuddy_stream, int), (own, (int)draw(random, 3))), 0);
    captured_work(&live, own, side, random);
    SAME(DRIVER(int, "cuStreamEndCapture", (cuddy_stream, void **), (own, &captured)), 0);
    OK(cuddy_graph_end(graph));
    if (frees == 0) free_all(&live);
    SAME(DRIVER(int, "cuGraphInstantiateWithFlags", (void **, void *, uint64_t),
                (&launchable, captured, 0)), 0);
    SAME(DRIVER(int, "cuGraphDestroy", (void *), (captured)), 0);
    while (launches--) SAME(DRIVER(int, "cuGraphLaunch", (void *, cuddy_stream), (launchable, own)), 0);
    /* What side's blocks are freed into has to be ordered behind the launches. */
    order(own, side);
    if (frees == 1) free_all(&live);
    SAME(DRIVER(int, "cuGraphExecDestroy", (void *), (launchable)), 0);
    OK(cuddy_graph_destroy(graph, own));
    free_all(&live);
    if (pool) OK(cuddy_pool_destroy(pool));
    if (held) {
        OK(cuddy_stream_retire(DEVICE, own));
        OK(cuddy_stream_retire(DEVICE, side));
    }
    destroy_stream(own);
    destroy_stream(side);
}

/* A pool for this thread's requests, destroyed before its blocks are freed or after. */
static void private_pool(cuddy_stream stream, uint64_t *random) {
    const cuddy_pool pool = new_pool(draw(random, 2) * 8 * MIB);
    const int early = (int)draw(random, 2);
    blocks live;
    int i;
    live.count = 0;
    OK(cuddy_pool_push(pool));
    for (i = 0; i < 10; i++) get_one(&live, some_size(random), stream);
    if (early) OK(cuddy_pool_destroy(pool));
    OK(cuddy_pool_pop(pool));
    free_all(&live);
    if (!early) OK(cuddy_pool_destroy(pool));
}

/* Host memory that a copy reads, freed while the copy may run. */
static void host_memory(const blocks *live, cuddy_stream stream, uint64_t *random) {
    const size_t bytes = some_size(random);
    void *host = NULL;
    OK(cuddy_host_malloc(&host, bytes, 0));
    memset(host, 5, bytes);
    if (live->count) {
        const block *to = &live->block[draw(random, (uint64_t)live->count)];
        SAME(DRIVER(int, "cuMemcpyHtoDAsync_v2", (uint64_t, const void *, size_t, cuddy_stream),
                    ((uint64_t)(uintptr_t)to->ptr, host, bytes < to->bytes ? bytes : to->bytes, stream)), 0);
        OK(cuddy_host_record_stream(host, stream));
    }
    OK(cuddy_host_free(host));
}

static void give_back(const cuddy_event *event, void *user) {
    (void)user;
    if (event->kind == CUDDY_EVENT_OUT_OF_MEMORY) OK(cuddy_empty_cache(DEVICE, NULL));
}

/* A request that may find no memory until the callback has given some back. */
static void watched(blocks *live, cuddy_stream stream) {
    cuddy_observer observer;
    OK(cuddy_observe(&observer, 7, give_back, NULL));
    get_one(live, 40 * MIB, stream);
    OK(cuddy_unobserve(observer));
}

static void upkeep(uint64_t *random) {
    switch (draw(random, 4)) {
    case 0: OK(cuddy_tick(DEVICE, NULL)); return;
    case 1: OK(cuddy_trim(DEVICE, 32 * MIB, NULL)); return;
    case 2: OK(cuddy_host_empty_cache(NULL)); return;
    default: OK(cuddy_set_memory_limit(DEVICE, (200 + draw(random, 400)) * MIB)); return;
    }
}

static void *work(void *number) {
    const uintptr_t kind = (uintptr_t)number;
    uint64_t random = seed * 1000 + kind;
    cuddy_stream stream;
    blocks live;
    int step;
    live.count = 0;
    use_device();
    stream = new_stream();
    OK(cuddy_stream_open(DEVICE, stream));
    for (step = 0; step < STEPS; step++) {
        if (kind < 2 && !draw(&random, 6)) graph(&random);
        else if (kind == 2 && !draw(&random, 15)) private_pool(stream, &random);
        else if (kind == 3 && !draw(&random, 8)) host_memory(&live, stream, &random);
        else if (!draw(&random, 30)) watched(&live, stream);
        else if (!draw(&random, 40)) upkeep(&random);
        else if (draw(&random, 2)) get_one(&live, some_size(&random), stream);
        else if (live.count) free_one(&live, &random);
    }
    free_all(&live);
    OK(cuddy_stream_retire(DEVICE, stream));
    destroy_stream(stream);
    return NULL;
}

int main(int count, char **words) {
    cuddy_stats stats;
    seed = count > 1 ? strtoull(words[1], NULL, 10) : 1;
    use_device();
    OK(cuddy_set_memory_limit(DEVICE, 400 * MIB));
    in_a_crowd(work);
    stats = stats_of(DEVICE);
    SAME(stats.live_block_count, 0);
    SAME(stats.quarantined, 0);
    OK(cuddy_empty_cache(DEVICE, NULL));
    SAME(cuddy_memory_reserved(DEVICE), 0);
    return 0;
}
