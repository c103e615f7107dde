/* Two devices: the current one follows the context, and one that is not used is left alone. */
#include "check.h"

static void *context_of(int device) {
    void *context = NULL;
    SAME(DRIVER(int, "cuDevicePrimaryCtxRetain", (void **, int), (&context, device)), 0);
    return context;
}

static void *current(void) {
    void *context = NULL;
    SAME(DRIVER(int, "cuCtxGetCurrent", (void **), (&context)), 0);
    return context;
}

int main(void) {
    void *ptr = NULL, *first, *second, *far = NULL;
    OK(cuddy_malloc(&ptr, 1000, CUDDY_CURRENT_DEVICE, STREAM));
    SAME(block_of(ptr).device, 0);
    CHECK(current() == NULL); /* the caller's current context is the caller's */
    SAME(DRIVER(uint64_t, "simcuda_contexts_created", (int), (1)), 0);
    SAME(stats_of(1).reserved, 0);
    SAME(DRIVER(uint64_t, "simcuda_contexts_created", (int), (1)), 0);

    first = context_of(0);
    second = context_of(1);
    SAME(DRIVER(int, "cuCtxSetCurrent", (void *), (second)), 0);
    OK(cuddy_malloc(&far, 70000, CUDDY_CURRENT_DEVICE, STREAM));
    SAME(block_of(far).device, 1);
    SAME(cuddy_memory_allocated(CUDDY_CURRENT_DEVICE), 70144);
    SAME(cuddy_memory_allocated(0), 1024);
    SAME(cuddy_memory_allocated(1), 70144);
    OK(cuddy_free(ptr)); /* of the other device: no context needs to be current */
    CHECK(current() == second);
    SAME(DRIVER(int, "cuCtxSetCurrent", (void *), (first)), 0);
    SAME(cuddy_memory_allocated(CUDDY_CURRENT_DEVICE), 0);
    OK(cuddy_free(far));
    OK(cuddy_empty_cache(CUDDY_ALL_DEVICES, NULL));
    SAME(cuddy_memory_reserved(0) + cuddy_memory_reserved(1), 0);
    CHECK(current() == first);
    return 0;
}
