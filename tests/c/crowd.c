/* Threads that truly run at once, on streams they share, under a limit that is too small: every use
   of memory is one that the checker sees; blocks are freed, recorded and used by whoever has them.
   Arguments: "held" opens the streams, a number is the seed. */
#include "crowd.h"

enum { STEPS = 2500, STREAMS = 5, LIVE = 160, SLOTS = 32 };

typedef struct {
    void *ptr;
    size_t bytes;
    int home; /* which of the streams it was allocated on */
} block;

static cuddy_stream streams[STREAMS + 1]; /* the first is the legacy one */
static uint64_t seed;
static block mailbox[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void use(const block *it, int stream) { fill(it->ptr, 7, it->bytes, streams[stream]); }

static block take_out(block *live, int *count, uint64_t *random) {
    int i = (int)draw(random, (uint64_t)*count);
    block it = live[i];
    live[i] = live[--*count];
    return it;
}

/* Leaves a block for another thread, and takes what one has left. */
static block swap(uint64_t slot, block mine) {
    block theirs;
    pthread_mutex_lock(&lock);
    theirs = mailbox[slot];
    mailbox[slot] = mine;
    pthread_mutex_unlock(&lock);
    return theirs;
}

/* A use on another stream, recorded. What its own stream is given later does not wait for it. */
static void lend(const block *it, int stream) {
    order(streams[it->home], streams[stream]);
    use(it, stream);
    OK(cuddy_record_stream(it->ptr, streams[stream]));
}

static void *work(void *number) {
    uint64_t random = seed * 1000 + 1 + (uintptr_t)number, kind;
    block live[LIVE], it;
    int count = 0, step;
    use_device();
    for (step = 0; step < STEPS; step++) {
        kind = draw(&random, 100);
        if (kind < 45 && count < LIVE) {
            int status;
            it.bytes = some_size(&random);
            it.home = (int)draw(&random, STREAMS + 1);
            status = cuddy_malloc(&it.ptr, it.bytes, DEVICE, streams[it.home]);
            if (status == CUDDY_OK) {
                use(&it, it.home);
                live[count++] = it;
            } else {
                SAME(status, CUDDY_ERROR_OUT_OF_MEMORY);
                if (count) OK(cuddy_free(take_out(live, &count, &random).ptr));
            }
        } else if (kind < 75 && count) {
            OK(cuddy_free(take_out(live, &count, &random).ptr));
        } else if (kind < 83 && count) {
            int stream = (int)draw(&random, STREAMS + 1);
            it = take_out(live, &count, &random);
            lend(&it, stream);
            if (draw(&random, 2)) {
                order(streams[stream], streams[it.home]);
                live[count++] = it;
            } else {
                OK(cuddy_free(it.ptr));
            }
        } else if (kind < 92 && count) {
            it = swap(draw(&random, SLOTS), take_out(live, &count, &random));
            if (it.ptr && draw(&random, 2)) {
                use(&it, it.home);
                live[count++] = it;
            } else {
                OK(cuddy_free(it.ptr));
            }
        } else if (kind < 95 && count) {
            it = live[draw(&random, (uint64_t)count)];
            CHECK(block_of(it.ptr).requested == it.bytes);
        } else if (kind == 95 && draw(&random, 20) == 0) {
            OK(cuddy_empty_cache(DEVICE, NULL));
        } else if (kind == 96) {
            stats_of(DEVICE);
        }
    }
    while (count) OK(cuddy_free(live[--count].ptr));
    return NULL;
}

int main(int count, char **words) {
    const int held = count > 1 && !strcmp(words[1], "held");
    cuddy_stats stats;
    uintptr_t i;
    seed = count > 2 ? strtoull(words[2], NULL, 10) : 1;
    use_device();
    for (i = 1; i <= STREAMS; i++) {
        streams[i] = new_stream();
        if (held) OK(cuddy_stream_open(DEVICE, streams[i]));
    }
    OK(cuddy_set_memory_limit(DEVICE, 320 * MIB));
    in_a_crowd(work);
    for (i = 0; i < SLOTS; i++) OK(cuddy_free(mailbox[i].ptr));
    stats = stats_of(DEVICE);
    SAME(stats.live_block_count, 0);
    SAME(stats.malloc_count, stats.free_count);
    SAME(stats.allocated, 0);
    CHECK(stats.hit_count > THREADS * STEPS / 4);
    OK(cuddy_empty_cache(DEVICE, NULL));
    SAME(cuddy_memory_reserved(DEVICE), 0);
    return 0;
}
