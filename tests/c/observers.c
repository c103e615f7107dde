/* Observers through cuddy.h: a callback that frees, one that removes itself, misuse. */
#include "check.h"

static void *kept;
static cuddy_observer mine;
static int out_of_memory, growth, release;

static void watch(const cuddy_event *event, void *user)
{
    CHECK(event->struct_size == sizeof *event);
    CHECK(event->allocated <= event->reserved);
    CHECK(user == &kept);
    switch (event->kind) {
    case CUDDY_EVENT_OUT_OF_MEMORY:
        out_of_memory++;
        CHECK(event->device == 0 && event->limit == (uint64_t)8 << 20);
        OK(cuddy_free(kept)); /* freeing NULL does nothing */
        kept = NULL;
        break;
    case CUDDY_EVENT_GROWTH:
        growth++;
        CHECK(event->bytes > 0 && event->stream == NULL);
        break;
    default:
        CHECK(event->kind == CUDDY_EVENT_RELEASE);
        release++;
        OK(cuddy_unobserve(mine));
        break;
    }
}

int main(void)
{
    const size_t mib = MIB;
    const uint32_t all =
        CUDDY_EVENT_OUT_OF_MEMORY | CUDDY_EVENT_GROWTH | CUDDY_EVENT_RELEASE;
    cuddy_stats stats;
    void *block = NULL;

    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_observe(NULL, all, watch, NULL));
    SAYS("observer");
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_observe(&mine, all, NULL, NULL));
    SAYS("callback");
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_observe(&mine, 0, watch, NULL));
    SAYS("kinds");
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_observe(&mine, 64, watch, NULL));
    SAYS("kinds");
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_unobserve(1));
    SAYS("no observer");
    CHECK(mine == 0);

    OK(cuddy_observe(&mine, all, watch, &kept));
    OK(cuddy_set_memory_limit(0, 8 * mib));
    OK(cuddy_malloc(&kept, 6 * mib, 0, CUDDY_STREAM_LEGACY));
    CHECK(growth == 1);
    OK(cuddy_malloc(&block, 5 * mib, 0, CUDDY_STREAM_LEGACY));
    CHECK(out_of_memory == 1 && kept == NULL);
    OK(cuddy_memory_stats(0, &stats));
    CHECK(stats.rung_callback_count == 1 && stats.out_of_memory_count == 0);
    OK(cuddy_free(block));
    OK(cuddy_empty_cache(0, NULL));
    /* With segments the first block went back when its room was needed; then it was removed. */
    CHECK(release == 1);
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_unobserve(mine));
    SAYS("removed before");
    FAILS(CUDDY_ERROR_OUT_OF_MEMORY, cuddy_malloc(&block, 9 * mib, 0, CUDDY_STREAM_LEGACY));
    SAYS("limit");
    CHECK(out_of_memory == 1);
    return 0;
}
