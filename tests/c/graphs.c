/* Graphs through cuddy.h: begun, ended, destroyed, and misused. */
#include "check.h"

int main(void)
{
    cuddy_graph graph = 0, shared = 0;
    cuddy_pool pool = 0;
    cuddy_pool_options options;
    cuddy_stats stats;
    void *first, *again, *outside;

    OK(cuddy_malloc(&outside, MIB, DEVICE, CUDDY_STREAM_PER_THREAD));
    FAILS(CUDDY_ERROR_INVALID_STREAM, cuddy_graph_begin(&graph, DEVICE, CUDDY_STREAM_LEGACY, 0));
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT,
          cuddy_graph_begin(NULL, DEVICE, CUDDY_STREAM_PER_THREAD, 0));
    OK(cuddy_graph_begin(&graph, DEVICE, CUDDY_STREAM_PER_THREAD, 0));
    FAILS(CUDDY_ERROR_INVALID_GRAPH,
          cuddy_graph_begin(&shared, DEVICE, CUDDY_STREAM_PER_THREAD, 0));
    OK(cuddy_malloc(&first, 3 * MIB, DEVICE, CUDDY_STREAM_PER_THREAD));
    OK(cuddy_free(first));
    OK(cuddy_malloc(&again, 3 * MIB, DEVICE, CUDDY_STREAM_PER_THREAD));
    CHECK(again == first);
    OK(cuddy_free(again));
    OK(cuddy_graph_end(graph));
    FAILS(CUDDY_ERROR_INVALID_GRAPH, cuddy_graph_end(graph));
    OK(cuddy_malloc(&again, 3 * MIB, DEVICE, CUDDY_STREAM_PER_THREAD));
    CHECK(again != first);
    OK(cuddy_free(again));
    OK(cuddy_graph_destroy(graph, CUDDY_STREAM_PER_THREAD));
    FAILS(CUDDY_ERROR_INVALID_GRAPH, cuddy_graph_destroy(graph, CUDDY_STREAM_PER_THREAD));
    SAYS("destroyed");

    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    OK(cuddy_pool_create(&options, &pool));
    FAILS(CUDDY_ERROR_INVALID_POOL,
          cuddy_graph_begin(&graph, DEVICE, CUDDY_STREAM_PER_THREAD, CUDDY_POOL_DEFAULT));
    OK(cuddy_graph_begin(&graph, DEVICE, CUDDY_STREAM_PER_THREAD, pool));
    OK(cuddy_malloc(&first, MIB, DEVICE, CUDDY_STREAM_PER_THREAD));
    OK(cuddy_free(first));
    OK(cuddy_graph_end(graph));
    OK(cuddy_graph_begin(&shared, DEVICE, CUDDY_STREAM_PER_THREAD, pool));
    OK(cuddy_malloc(&again, MIB, DEVICE, CUDDY_STREAM_PER_THREAD));
    CHECK(again == first);
    OK(cuddy_free(again));
    OK(cuddy_graph_destroy(shared, CUDDY_STREAM_PER_THREAD));
    OK(cuddy_graph_destroy(graph, CUDDY_STREAM_PER_THREAD));
    OK(cuddy_pool_destroy(pool));
    OK(cuddy_free(outside));
    OK(cuddy_empty_cache(DEVICE, NULL));
    OK(cuddy_empty_cache(DEVICE, NULL));
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    OK(cuddy_memory_stats(DEVICE, &stats));
    SAME(stats.reserved, 0);
    return 0;
}
