/* Private pools through cuddy.h: scopes, limits, counters, misuse. */
#include "check.h"

static cuddy_pool make(size_t limit, uint32_t flags)
{
    cuddy_pool_options options;
    cuddy_pool pool = 0;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    options.limit = limit;
    options.flags = flags;
    OK(cuddy_pool_create(&options, &pool));
    CHECK(pool > CUDDY_POOL_DEFAULT);
    return pool;
}

static cuddy_stats look(cuddy_pool pool)
{
    cuddy_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    OK(cuddy_pool_stats(pool, &stats));
    return stats;
}

int main(void)
{
    const size_t mib = MIB;
    cuddy_pool_options options;
    cuddy_request request;
    cuddy_stats stats;
    void *a, *b, *c, *none = NULL;
    size_t freed = 0;
    cuddy_pool pool, other;

    memset(&options, 0, sizeof options);
    memset(&request, 0, sizeof request);
    memset(&stats, 0, sizeof stats);
    pool = make(8 * mib, CUDDY_POOL_USE_ON_OOM);
    other = make(0, 0);
    OK(cuddy_pool_push(pool));
    OK(cuddy_malloc(&a, 3 * mib, 0, NULL));
    OK(cuddy_pool_push(CUDDY_POOL_DEFAULT));
    OK(cuddy_malloc(&b, mib, 0, NULL));
    FAILS(CUDDY_ERROR_INVALID_POOL, cuddy_pool_pop(pool));
    OK(cuddy_pool_pop(CUDDY_POOL_DEFAULT));
    OK(cuddy_pool_pop(pool));
    FAILS(CUDDY_ERROR_INVALID_POOL, cuddy_pool_pop(pool));
    CHECK(look(pool).allocated == 3 * mib && look(pool).limit == 8 * mib);

    request.struct_size = sizeof request;
    request.bytes = 2 * mib;
    request.alignment = mib;
    request.pool = other;
    OK(cuddy_malloc_ex(&c, &request));
    CHECK((uintptr_t)c % mib == 0);
    CHECK(look(other).allocated == 2 * mib);
    request.bytes = 9 * mib;
    request.pool = pool;
    FAILS(CUDDY_ERROR_OUT_OF_MEMORY, cuddy_malloc_ex(&none, &request));
    CHECK(strstr(cuddy_last_error(), "cuddy_pool_set_limit()") != NULL);
    OK(cuddy_pool_set_limit(pool, CUDDY_NO_LIMIT));
    CHECK(look(pool).limit == UINT64_MAX);
    request.pool = pool + 100;
    FAILS(CUDDY_ERROR_INVALID_POOL, cuddy_malloc_ex(&none, &request));

    OK(cuddy_free(a));
    CHECK(look(pool).cached > 0 && look(pool).allocated_peak == 3 * mib);
    OK(cuddy_pool_reset_peak_stats(pool));
    CHECK(look(pool).allocated_peak == 0);
    OK(cuddy_pool_trim(pool, 0, &freed));
    CHECK(freed == 4 * mib && look(pool).reserved == 0);
    OK(cuddy_pool_trim(pool, 0, NULL));

    OK(cuddy_pool_destroy(pool));
    FAILS(CUDDY_ERROR_INVALID_POOL, cuddy_pool_destroy(pool));
    FAILS(CUDDY_ERROR_INVALID_POOL, cuddy_pool_push(pool));
    stats.struct_size = sizeof stats;
    FAILS(CUDDY_ERROR_INVALID_POOL, cuddy_pool_stats(pool, &stats));
    FAILS(CUDDY_ERROR_INVALID_POOL, cuddy_pool_trim(CUDDY_POOL_DEFAULT, 0, NULL));
    OK(cuddy_pool_destroy(other));
    OK(cuddy_free(c));
    OK(cuddy_free(b));

    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_pool_create(NULL, &pool));
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_pool_create(&options, &pool));
    options.struct_size = sizeof options;
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_pool_create(&options, NULL));
    options.flags = 2;
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_pool_create(&options, &pool));
    options.flags = 0;
    options.device = 99;
    FAILS(CUDDY_ERROR_INVALID_DEVICE, cuddy_pool_create(&options, &pool));
    OK(cuddy_empty_cache(CUDDY_ALL_DEVICES, NULL));
    stats.struct_size = sizeof stats;
    OK(cuddy_memory_stats(0, &stats));
    CHECK(stats.reserved == 0);
    return 0;
}
