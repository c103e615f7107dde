/* Page-locked host memory through cuddy.h. */
#include "check.h"

static cuddy_host_stats look(void)
{
    cuddy_host_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    OK(cuddy_host_memory_stats(&stats));
    return stats;
}

int main(void)
{
    const size_t mib = MIB;
    const uint32_t flags = CUDDY_HOST_PORTABLE | CUDDY_HOST_STREAMS_RECORDED;
    cuddy_host_stats stats;
    void *block = NULL, *other = NULL, *device = NULL;
    size_t freed = 1;

    /* Before the first use, nothing is there. */
    SAME(look().reserved, 0);
    OK(cuddy_host_empty_cache(&freed));
    SAME(freed, 0);
    FAILS(CUDDY_ERROR_FOREIGN_POINTER, cuddy_host_free(&stats));

    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_host_malloc(NULL, 1, 0));
    SAYS("ptr");
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_host_malloc(&block, 1, 64));
    SAYS("flags");
    FAILS(CUDDY_ERROR_OUT_OF_MEMORY, cuddy_host_malloc(&block, (size_t)-1, 0));
    SAYS("page-locked");
    OK(cuddy_host_malloc(&block, 0, 0));
    CHECK(block == NULL);
    OK(cuddy_host_free(NULL));
    OK(cuddy_host_record_stream(NULL, STREAM));

    OK(cuddy_host_malloc(&block, 3 * mib + 1, flags));
    memset(block, 1, 3 * mib + 1);
    stats = look();
    SAME(stats.struct_size, sizeof stats);
    SAME(stats.requested, 3 * mib + 1);
    SAME(stats.allocated, 3 * mib + 512);
    SAME(stats.reserved, 3 * mib + 4096);
    SAME(stats.live_block_count, 1);
    OK(cuddy_host_record_stream(block, STREAM));
    OK(cuddy_host_record_stream(block, CUDDY_STREAM_ANY));
    FAILS(CUDDY_ERROR_INTERIOR_POINTER, cuddy_host_free((char *)block + 1));
    OK(cuddy_malloc(&device, mib, DEVICE, STREAM));
    FAILS(CUDDY_ERROR_FOREIGN_POINTER, cuddy_host_free(device));
    FAILS(CUDDY_ERROR_FOREIGN_POINTER, cuddy_free(block));
    OK(cuddy_free(device));
    OK(cuddy_host_free(block));
    FAILS(CUDDY_ERROR_DOUBLE_FREE, cuddy_host_free(block));
    FAILS(CUDDY_ERROR_DOUBLE_FREE, cuddy_host_record_stream(block, STREAM));

    /* A block that no stream uses comes back at once. */
    OK(cuddy_host_malloc(&block, mib, flags));
    OK(cuddy_host_free(block));
    OK(cuddy_host_malloc(&other, mib, flags));
    CHECK(other == block);
    OK(cuddy_host_free(other));
    OK(cuddy_host_reset_peak_memory_stats());
    OK(cuddy_host_reset_accumulated_memory_stats());
    stats = look();
    SAME(stats.malloc_count, 0);
    SAME(stats.requested_peak, 0);

    OK(cuddy_host_empty_cache(&freed));
    SAME(freed, stats.reserved);
    stats = look();
    SAME(stats.reserved, 0);
    SAME(stats.active, 0);
    SAME(stats.segment_count, 0);
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_host_memory_stats(NULL));
    return 0;
}
