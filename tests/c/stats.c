/* Counters are exact, and structs of other versions are respected. */
#include "check.h"

static void untouched(void) {
    SAME(cuddy_memory_allocated(DEVICE), 0);
    SAME(cuddy_memory_reserved(DEVICE), 0);
    SAME(cuddy_max_memory_allocated(CUDDY_CURRENT_DEVICE), 0);
    SAME(stats_of(DEVICE).malloc_count, 0);
    OK(cuddy_reset_peak_memory_stats(DEVICE));
    OK(cuddy_reset_accumulated_memory_stats(DEVICE));
    /* To ask is not to use. */
    SAME(DRIVER(uint64_t, "simcuda_contexts_created", (int), (DEVICE)), 0);
}

static void exact(void) {
    void *a = allocate(1000, STREAM), *b = allocate(5 * MIB + 1, STREAM), *c;
    cuddy_stats stats = stats_of(DEVICE);
    SAME(stats.requested, 1000 + 5 * MIB + 1);
    SAME(stats.allocated, 1024 + 5 * MIB + 512);
    SAME(stats.live_block_count, 2);
    SAME(stats.malloc_count, 2);
    SAME(stats.hit_count + stats.miss_count, 2);
    SAME(cuddy_memory_allocated(DEVICE), stats.allocated);
    SAME(cuddy_max_memory_allocated(DEVICE), stats.allocated_peak);
    SAME(cuddy_memory_reserved(DEVICE), stats.reserved);
    SAME(cuddy_max_memory_reserved(DEVICE), stats.reserved_peak);
    SAME(DRIVER(uint64_t, "simcuda_used", (int), (DEVICE)), stats.reserved);

    OK(cuddy_free(b));
    stats = stats_of(DEVICE);
    SAME(stats.allocated, 1024);
    SAME(stats.allocated_peak, 1024 + 5 * MIB + 512);
    SAME(stats.allocated_total, 1024 + 5 * MIB + 512);
    SAME(stats.live_block_peak_count, 2);
    SAME(stats.free_count, 1);

    OK(cuddy_reset_peak_memory_stats(DEVICE));
    stats = stats_of(DEVICE);
    SAME(stats.allocated_peak, 1024);
    SAME(stats.requested_peak, 1000);
    SAME(stats.reserved_peak, stats.reserved);
    SAME(stats.live_block_peak_count, 1);
    c = allocate(512, STREAM);
    SAME(cuddy_max_memory_allocated(DEVICE), 1536);
    OK(cuddy_free(c));
    SAME(cuddy_max_memory_allocated(DEVICE), 1536);

    OK(cuddy_reset_accumulated_memory_stats(DEVICE));
    stats = stats_of(DEVICE);
    SAME(stats.malloc_count, 0);
    SAME(stats.allocated_total, 0);
    SAME(stats.allocated, 1024);
    OK(cuddy_reset_peak_memory_stats(CUDDY_ALL_DEVICES));
    OK(cuddy_free(a));
    SAME(stats_of(DEVICE).allocated, 0);
    SAME(stats_of(DEVICE).requested, 0);
}

static void other_versions(void) {
    struct {
        cuddy_stats stats;
        uint64_t later[4];
    } newer;
    cuddy_stats older;
    memset(&older, 0x77, sizeof older);
    older.struct_size = 3 * sizeof(uint64_t);
    OK(cuddy_memory_stats(DEVICE, &older));
    SAME(older.struct_size, 3 * sizeof(uint64_t));
    SAME(older.requested, 0);
    SAME(older.requested_total, UINT64_C(0x7777777777777777));

    memset(&newer, 0x77, sizeof newer);
    newer.stats.struct_size = sizeof newer;
    OK(cuddy_memory_stats(DEVICE, &newer.stats));
    SAME(newer.stats.struct_size, sizeof newer.stats);
    SAME(newer.later[0], UINT64_C(0x7777777777777777));

    older.struct_size = 0;
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_memory_stats(DEVICE, &older));
    SAYS("sizeof(cuddy_stats)");
}

static void summary(void) {
    char small[16], *whole;
    size_t needed = 0, again = 0;
    void *ptr = allocate(3 * MIB, STREAM);
    OK(cuddy_memory_summary(DEVICE, NULL, 0, &needed));
    CHECK(needed > 100);
    whole = (char *)malloc(needed);
    CHECK(whole != NULL);
    OK(cuddy_memory_summary(DEVICE, whole, needed, &again));
    SAME(again, needed);
    SAME(strlen(whole) + 1, needed);
    CHECK(strstr(whole, "llocated") != NULL);
    memset(small, 'x', sizeof small);
    OK(cuddy_memory_summary(DEVICE, small, 8, NULL));
    CHECK(memcmp(small, whole, 7) == 0);
    CHECK(small[7] == 0 && small[8] == 'x');
    OK(cuddy_memory_summary(DEVICE, small, 1, &again));
    CHECK(small[0] == 0);
    OK(cuddy_memory_summary(CUDDY_ALL_DEVICES, NULL, 0, &again));
    free(whole);
    OK(cuddy_free(ptr));
}

int main(void) {
    untouched();
    exact();
    other_versions();
    summary();
    return 0;
}
