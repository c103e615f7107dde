/* Streams: opened, borrowed and built-in ones; blocks that several streams use. */
#include "check.h"

static void opened(void) {
    cuddy_stream stream = new_stream(), other = new_stream();
    char *ptr, *again;
    OK(cuddy_stream_open(DEVICE, stream));
    OK(cuddy_stream_open(CUDDY_CURRENT_DEVICE, stream));
    OK(cuddy_stream_open(DEVICE, other));
    ptr = (char *)allocate(4000, stream);
    CHECK(block_of(ptr).stream == stream);
    fill(ptr, 7, 4000, stream);
    OK(cuddy_free(ptr));
    again = (char *)allocate(4000, stream);
    CHECK(again == ptr);

    /* Used by another stream too: not reused before that one is done. */
    SAME(DRIVER(int, "cuStreamSynchronize", (cuddy_stream), (stream)), 0);
    fill(again, 7, 4000, other);
    OK(cuddy_record_stream(again, other));
    OK(cuddy_free(again));
    CHECK(stats_of(DEVICE).active >= 4096 || stats_of(DEVICE).limbo_block_count == 0);
    SAME(stats_of(DEVICE).allocated, 0);
    ptr = (char *)allocate(4000, stream);
    fill(ptr, 7, 4000, stream);
    OK(cuddy_free(ptr));

    OK(cuddy_stream_retire(DEVICE, other));
    OK(cuddy_stream_retire(DEVICE, stream));
    FAILS(CUDDY_ERROR_INVALID_STREAM, cuddy_stream_retire(DEVICE, stream));
    destroy_stream(stream);
    destroy_stream(other);
}

static void never_opened(void) {
    cuddy_stream stream = new_stream();
    FAILS(CUDDY_ERROR_INVALID_STREAM, cuddy_stream_retire(DEVICE, stream));
    destroy_stream(stream);
}

/* A stream may be destroyed at any time when Cuddy was not told of it, its blocks still live. */
static void borrowed(void) {
    int i;
    for (i = 0; i < 20; i++) {
        cuddy_stream stream = new_stream(), other = new_stream();
        void *ptr = allocate(3 * MIB, stream);
        fill(ptr, 7, 3 * MIB, stream);
        fill(ptr, 7, 3 * MIB, stream);
        SAME(DRIVER(int, "cuStreamSynchronize", (cuddy_stream), (stream)), 0);
        fill(ptr, 7, 100, other);
        OK(cuddy_record_stream(ptr, other));
        destroy_stream(other);
        destroy_stream(stream);
        OK(cuddy_free(ptr));
    }
    /* All of it comes back, whatever became of the streams. */
    OK(cuddy_empty_cache(DEVICE, NULL));
    SAME(cuddy_memory_reserved(DEVICE), 0);
}

static void built_in(void) {
    cuddy_stream legacy = CUDDY_STREAM_LEGACY, none = NULL;
    void *ptr, *again;
    OK(cuddy_stream_open(DEVICE, legacy));
    OK(cuddy_stream_open(DEVICE, CUDDY_STREAM_PER_THREAD));
    ptr = allocate(4000, legacy);
    OK(cuddy_record_stream(ptr, none)); /* its own stream, by its other name */
    OK(cuddy_free(ptr));
    again = allocate(4000, none);
    CHECK(again == ptr);
    fill(again, 7, 4000, none);
    OK(cuddy_free(again));

    ptr = allocate(4000, CUDDY_STREAM_PER_THREAD);
    fill(ptr, 7, 4000, CUDDY_STREAM_PER_THREAD);
    OK(cuddy_record_stream(ptr, legacy));
    OK(cuddy_free(ptr));
    SAME(stats_of(DEVICE).allocated, 0);
}

int main(void) {
    use_device();
    opened();
    never_opened();
    borrowed();
    built_in();
    OK(cuddy_empty_cache(DEVICE, NULL));
    SAME(cuddy_memory_reserved(DEVICE), 0);
    return 0;
}
