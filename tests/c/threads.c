/* Many threads: blocks allocated here and freed there, figures read meanwhile, errors kept apart. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 6, ROUNDS = 300, SLOTS = 64 };

static void *shelf[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *swap(size_t slot, void *ptr) {
    void *old;
    pthread_mutex_lock(&lock);
    old = shelf[slot];
    shelf[slot] = ptr;
    pthread_mutex_unlock(&lock);
    return old;
}

static void *work(void *number) {
    uint64_t random = (uintptr_t)number * 2654435761u + 1;
    char *mine = (char *)number;
    int i;
    for (i = 0; i < ROUNDS; i++) {
        void *ptr;
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        ptr = allocate((size_t)(random >> 50) * 16 + 1, STREAM);
        /* Whoever comes by next frees it. */
        OK(cuddy_free(swap((size_t)(random >> 20) % SLOTS, ptr)));
        if (i % 16 == 0) stats_of(DEVICE);
        if (i % 100 == 50) OK(cuddy_empty_cache(DEVICE, NULL));
        if (i % 32 == 7) {
            char words[32];
            FAILS(CUDDY_ERROR_FOREIGN_POINTER, cuddy_free(mine));
            snprintf(words, sizeof words, "0x%" PRIxPTR " ", (uintptr_t)mine);
            SAYS(words);
        }
    }
    return NULL;
}

int main(void) {
    pthread_t thread[THREADS];
    cuddy_stats stats;
    uintptr_t i;
    for (i = 0; i < THREADS; i++) CHECK(!pthread_create(&thread[i], NULL, work, (void *)(i + 1)));
    for (i = 0; i < THREADS; i++) CHECK(!pthread_join(thread[i], NULL));
    for (i = 0; i < SLOTS; i++) OK(cuddy_free(shelf[i]));
    stats = stats_of(DEVICE);
    SAME(stats.malloc_count, THREADS * ROUNDS);
    SAME(stats.free_count, THREADS * ROUNDS);
    SAME(stats.hit_count + stats.miss_count, THREADS * ROUNDS);
    SAME(stats.live_block_count, 0);
    SAME(stats.allocated, 0);
    SAME(stats.requested_total == 0, 0);
    OK(cuddy_empty_cache(DEVICE, NULL));
    SAME(cuddy_memory_reserved(DEVICE), 0);
    return 0;
}
