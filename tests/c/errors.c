/* Every misuse has a status of its own, a sentence, and no effect. */
#include "check.h"

static void *const UNTOUCHED = (void *)0x123;

static void versions(void) {
    SAME(cuddy_version(), CUDDY_VERSION);
    SAME(CUDDY_VERSION,
         CUDDY_VERSION_MAJOR * 10000 + CUDDY_VERSION_MINOR * 100 + CUDDY_VERSION_PATCH);
    CHECK(strcmp(cuddy_version_string(), CUDDY_VERSION_STRING) == 0);
}

static void null_arguments(void) {
    size_t bytes = 7;
    void *ptr = UNTOUCHED;
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_malloc(NULL, 1, DEVICE, STREAM));
    SAYS("`ptr`");
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_malloc_ex(&ptr, NULL));
    SAYS("`request`");
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_block_info(&ptr, NULL));
    SAYS("`info`");
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_memory_stats(DEVICE, NULL));
    SAYS("`stats`");
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_memory_limit(DEVICE, NULL));
    SAYS("`bytes`");
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_mem_get_info(DEVICE, NULL, &bytes));
    SAYS("`free_bytes`");
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_mem_get_info(DEVICE, &bytes, NULL));
    SAYS("`total_bytes`");
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_memory_summary(DEVICE, NULL, 10, &bytes));
    SAYS("`buffer`");
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_set_option(NULL, "on"));
    SAYS("`key`");
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_set_option("caching", NULL));
    SAYS("`value`");
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_get_option(NULL, NULL, 0, &bytes));
    SAME(bytes, 7);
    CHECK(ptr == UNTOUCHED);
}

static void sized_structs(void) {
    struct {
        cuddy_request request;
        unsigned char later[16];
    } newer;
    cuddy_request request;
    void *ptr = UNTOUCHED;

    memset(&request, 0, sizeof request);
    request.bytes = 1000;
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_malloc_ex(&ptr, &request));
    SAYS("struct_size");
    SAYS("sizeof(cuddy_request)");
    request.struct_size = UINT64_MAX;
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_malloc_ex(&ptr, &request));
    request.struct_size = sizeof request;
    request.flags = 4;
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_malloc_ex(&ptr, &request));
    SAYS("0x4");
    request.flags = 0;
    request.alignment = 768;
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_malloc_ex(&ptr, &request));
    SAYS("alignment");
    request.alignment = 4 * MIB;
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_malloc_ex(&ptr, &request));
    CHECK(ptr == UNTOUCHED);

    /* A program of the future that uses nothing new is served; one that does is told. */
    memset(&newer, 0, sizeof newer);
    newer.request.struct_size = sizeof newer;
    newer.request.bytes = 1000;
    OK(cuddy_malloc_ex(&ptr, &newer.request));
    OK(cuddy_free(ptr));
    ptr = UNTOUCHED;
    newer.later[9] = 1;
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_malloc_ex(&ptr, &newer.request));
    CHECK(ptr == UNTOUCHED);

    /* A program of the past: no alignment, no stream, no device. */
    memset(&request, 0xff, sizeof request);
    request.struct_size = 16;
    request.bytes = 1000;
    OK(cuddy_malloc_ex(&ptr, &request));
    OK(cuddy_free(ptr));
}

static void pointers(void) {
    int on_the_stack = 0;
    char *block = (char *)allocate(3000, STREAM);
    cuddy_stats before = stats_of(DEVICE);
    cuddy_stats after;
    cuddy_block info;

    FAILS(CUDDY_ERROR_INTERIOR_POINTER, cuddy_free(block + 512));
    SAYS("512 bytes inside");
    FAILS(CUDDY_ERROR_INTERIOR_POINTER, cuddy_free(block + 1));
    FAILS(CUDDY_ERROR_INTERIOR_POINTER, cuddy_record_stream(block + 2999, STREAM));
    FAILS(CUDDY_ERROR_FOREIGN_POINTER, cuddy_free(&on_the_stack));
    FAILS(CUDDY_ERROR_FOREIGN_POINTER, cuddy_free((void *)1));
    FAILS(CUDDY_ERROR_FOREIGN_POINTER, cuddy_free((void *)UINTPTR_MAX));
    FAILS(CUDDY_ERROR_FOREIGN_POINTER, cuddy_record_stream(&on_the_stack, STREAM));
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    FAILS(CUDDY_ERROR_FOREIGN_POINTER, cuddy_block_info(&on_the_stack, &info));
    FAILS(CUDDY_ERROR_FOREIGN_POINTER, cuddy_block_info(NULL, &info));
    SAME(info.bytes, 0);
    after = stats_of(DEVICE);
    SAME(memcmp(&before, &after, sizeof before), 0);

    OK(cuddy_free(block));
    FAILS(CUDDY_ERROR_DOUBLE_FREE, cuddy_free(block));
    FAILS(CUDDY_ERROR_DOUBLE_FREE, cuddy_record_stream(block, STREAM));
    FAILS(CUDDY_ERROR_DOUBLE_FREE, cuddy_block_info(block, &info));
    SAME(stats_of(DEVICE).allocated, before.allocated - 3072);
    SAME(stats_of(DEVICE).free_count, before.free_count + 1);

    OK(cuddy_free(NULL));
    OK(cuddy_record_stream(NULL, STREAM));
    block = (char *)UNTOUCHED;
    OK(cuddy_malloc((void **)&block, 0, DEVICE, STREAM));
    CHECK(block == NULL);
}

static void devices(void) {
    static const int WRONG[] = {1, 99, -3, -1000, 0x7fffffff};
    cuddy_stats stats;
    size_t size = 7;
    size_t i;
    for (i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        void *ptr = UNTOUCHED;
        FAILS(CUDDY_ERROR_INVALID_DEVICE, cuddy_malloc(&ptr, 1000, WRONG[i], STREAM));
        CHECK(ptr == UNTOUCHED);
        FAILS(CUDDY_ERROR_INVALID_DEVICE, cuddy_empty_cache(WRONG[i], &size));
        FAILS(CUDDY_ERROR_INVALID_DEVICE, cuddy_trim(WRONG[i], 0, &size));
        FAILS(CUDDY_ERROR_INVALID_DEVICE, cuddy_set_memory_limit(WRONG[i], 0));
        FAILS(CUDDY_ERROR_INVALID_DEVICE, cuddy_set_memory_fraction(WRONG[i], 0.5));
        FAILS(CUDDY_ERROR_INVALID_DEVICE, cuddy_memory_limit(WRONG[i], &size));
        FAILS(CUDDY_ERROR_INVALID_DEVICE, cuddy_mem_get_info(WRONG[i], &size, &size));
        FAILS(CUDDY_ERROR_INVALID_DEVICE, cuddy_reset_peak_memory_stats(WRONG[i]));
        FAILS(CUDDY_ERROR_INVALID_DEVICE, cuddy_reset_accumulated_memory_stats(WRONG[i]));
        FAILS(CUDDY_ERROR_INVALID_DEVICE, cuddy_memory_summary(WRONG[i], NULL, 0, &size));
        FAILS(CUDDY_ERROR_INVALID_DEVICE, cuddy_stream_open(WRONG[i], STREAM));
        FAILS(CUDDY_ERROR_INVALID_DEVICE, cuddy_stream_retire(WRONG[i], STREAM));
        memset(&stats, 0, sizeof stats);
        stats.struct_size = sizeof stats;
        FAILS(CUDDY_ERROR_INVALID_DEVICE, cuddy_memory_stats(WRONG[i], &stats));
        SAME(stats.struct_size, sizeof stats);
        SAME(cuddy_memory_allocated(WRONG[i]), 0);
        SAYS("no device");
    }
    SAME(size, 7);
}

static void sizes(void) {
    static const size_t TOO_LARGE[] = {SIZE_MAX, SIZE_MAX - 510, SIZE_MAX / 2, (size_t)1 << 62,
                                       ((size_t)1 << 62) + 1, (size_t)1 << 50};
    size_t i;
    for (i = 0; i < sizeof TOO_LARGE / sizeof *TOO_LARGE; i++) {
        void *ptr = UNTOUCHED;
        FAILS(CUDDY_ERROR_OUT_OF_MEMORY, cuddy_malloc(&ptr, TOO_LARGE[i], DEVICE, STREAM));
        CHECK(ptr == UNTOUCHED);
    }
    SAME(cuddy_memory_allocated(DEVICE), 0);
}

static void fractions(void) {
    static const double WRONG[] = {0.0, -0.1, 1.01, 1e300, -1e300};
    double zero = 0.0;
    size_t i;
    for (i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_set_memory_fraction(DEVICE, WRONG[i]));
        SAYS("fraction");
    }
    FAILS(CUDDY_ERROR_INVALID_ARGUMENT, cuddy_set_memory_fraction(DEVICE, zero / zero));
}

int main(void) {
    CHECK(strcmp(cuddy_last_error(), "") == 0);
    versions();
    null_arguments();
    sized_structs();
    pointers();
    devices();
    sizes();
    fractions();
    OK(cuddy_empty_cache(DEVICE, NULL));
    SAME(cuddy_memory_reserved(DEVICE), 0);
    return 0;
}
