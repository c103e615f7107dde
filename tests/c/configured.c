/* Each option does what it says: run with CUDDY_CONF set to the one entry that the argument names. */
#define _POSIX_C_SOURCE 199309L
#include "check.h"

#include <time.h>

static uint64_t reserved(void) { return cuddy_memory_reserved(DEVICE); }

static void backing_pages(void) {
    OK(cuddy_free(allocate(5 * MIB, STREAM)));
    SAME(driver_calls("cuMemAlloc"), 0);
    CHECK(driver_calls("cuMemCreate") > 0);
    SAME(reserved(), 6 * MIB);
}

static void backing_segments(void) {
    OK(cuddy_free(allocate(5 * MIB, STREAM)));
    SAME(driver_calls("cuMemAlloc"), 1);
    SAME(driver_calls("cuMemCreate"), 0);
    SAME(reserved(), 20 * MIB);
    OK(cuddy_free(allocate(1000, CUDDY_STREAM_PER_THREAD)));
    SAME(reserved(), 20 * MIB); /* the legacy stream is done with it: no further segment */
}

static void memory_limit(void) {
    void *ptr = NULL;
    OK(cuddy_malloc(&ptr, 64 * MIB, DEVICE, STREAM));
    FAILS(CUDDY_ERROR_OUT_OF_MEMORY, cuddy_malloc(&ptr, 1, DEVICE, STREAM));
    SAME(DRIVER(uint64_t, "simcuda_used_peak", (int), (DEVICE)), 64 * MIB);
}

static void memory_fraction(void) {
    size_t limit = 0;
    void *ptr = NULL;
    OK(cuddy_memory_limit(DEVICE, &limit));
    SAME(limit, 256 * MIB);
    FAILS(CUDDY_ERROR_OUT_OF_MEMORY, cuddy_malloc(&ptr, 300 * MIB, DEVICE, STREAM));
}

static void caching_off(void) {
    uint64_t calls = 0;
    int i;
    for (i = 0; i < 5; i++) {
        void *ptr;
        calls = all_driver_calls();
        ptr = allocate(3 * MIB, STREAM);
        CHECK(reserved() >= 3 * MIB);
        SAME(stats_of(DEVICE).cached, reserved() - stats_of(DEVICE).active);
        CHECK(all_driver_calls() > calls);
        calls = all_driver_calls();
        OK(cuddy_free(ptr));
        CHECK(all_driver_calls() > calls);
        SAME(reserved(), 0);
    }
    SAME(DRIVER(uint64_t, "simcuda_used", (int), (DEVICE)), 0);
    SAME(stats_of(DEVICE).hit_count, 0);
}

/* How often a handle's identity is asked for when a stream of the program's own is used. */
static uint64_t identity_calls(void) {
    cuddy_stream stream;
    int i;
    uint64_t calls;
    use_device();
    stream = new_stream();
    OK(cuddy_free(allocate(1000, stream)));
    calls = driver_calls("cuStreamGetId");
    for (i = 0; i < 10; i++) OK(cuddy_free(allocate(1000, stream)));
    return driver_calls("cuStreamGetId") - calls;
}

static void streams_checked(void) { CHECK(identity_calls() >= 10); }

static void streams_trusted(void) { SAME(identity_calls(), 0); }

static void address_range(void) {
    void *block[6];
    int i;
    for (i = 0; i < 6; i++) block[i] = allocate(40 * MIB, STREAM);
    CHECK(driver_calls("cuMemAddressReserve") >= 4);
    for (i = 0; i < 6; i++) OK(cuddy_free(block[i]));
    OK(cuddy_empty_cache(DEVICE, NULL));
    SAME(reserved(), 0);
    OK(cuddy_free(allocate(200 * MIB, STREAM)));
}

static void segment_small(void) {
    OK(cuddy_free(allocate(2 * MIB, STREAM)));
    SAME(reserved(), 4 * MIB);
}

static void segment_large(void) {
    OK(cuddy_free(allocate(3 * MIB, STREAM)));
    SAME(reserved(), 40 * MIB);
    OK(cuddy_empty_cache(DEVICE, NULL));
    OK(cuddy_free(allocate(21 * MIB, STREAM)));
    SAME(reserved(), 22 * MIB);
}

/* Memory that one stream has freed, with its work on it still to be done. */
static void freed_under_work(size_t bytes) {
    void *ptr;
    use_device();
    SAME(DRIVER(int, "simcuda_schedule", (const char *), ("lazy")), 0);
    ptr = allocate(bytes, STREAM);
    fill(ptr, 1, bytes, STREAM);
    OK(cuddy_free(ptr));
}

static void share(void) {
    OK(cuddy_free(allocate(64 * MIB, STREAM)));
    OK(cuddy_free(allocate(64 * MIB, CUDDY_STREAM_PER_THREAD)));
    SAME(reserved(), 128 * MIB);
}

static void share_growth(void) {
    freed_under_work(64 * MIB);
    OK(cuddy_free(allocate(64 * MIB, CUDDY_STREAM_PER_THREAD)));
    SAME(reserved(), 128 * MIB);
}

static void wait_ms(void) {
    void *ptr = NULL;
    freed_under_work(64 * MIB);
    FAILS(CUDDY_ERROR_OUT_OF_MEMORY, cuddy_malloc(&ptr, 64 * MIB, DEVICE, CUDDY_STREAM_PER_THREAD));
    OK(cuddy_free(allocate(64 * MIB, STREAM)));
}

/* Frees 64 MiB, and lets several windows of decay_ms:1 pass; how much was given back. */
static size_t decayed(void) {
    size_t freed = 0, now = 0;
    int i;
    OK(cuddy_free(allocate(64 * MIB, STREAM)));
    for (i = 0; i < 5; i++) {
        const struct timespec window = {0, 20 * 1000 * 1000};
        OK(cuddy_tick(DEVICE, &now));
        freed += now;
        nanosleep(&window, NULL);
    }
    return freed;
}

static void decay_ms(void) {
    SAME(decayed(), 64 * MIB);
    SAME(reserved(), 0);
}

static void decay_waste(void) {
    SAME(decayed(), 0);
    SAME(reserved(), 64 * MIB);
}

static void log_to(void) {
    char line[512];
    FILE *file;
    OK(cuddy_free(allocate(5 * MIB, STREAM)));
    file = fopen("cuddy.log", "r");
    CHECK(file && fgets(line, sizeof line, file) && strstr(line, " event=device device=0 "));
    CHECK(fgets(line, sizeof line, file) && strstr(line, " event=growth device=0 bytes=6291456 "));
    CHECK(!fgets(line, sizeof line, file));
    fclose(file);
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*check)(void);
    } CHECKS[] = {
        {"backing:pages", backing_pages},
        {"backing:segments", backing_segments},
        {"memory_limit:64MiB", memory_limit},
        {"memory_fraction:0.5", memory_fraction},
        {"caching:off", caching_off},
        {"streams:checked", streams_checked},
        {"streams:trusted", streams_trusted},
        {"address_range:64MiB", address_range},
        {"segment_small:4MiB", segment_small},
        {"segment_large:40MiB", segment_large},
        {"share:never", share},
        {"share_growth:1", share_growth},
        {"wait_ms:0", wait_ms},
        {"decay_ms:1", decay_ms},
        {"decay_waste:100", decay_waste},
        {"log:cuddy.log", log_to},
    };
    size_t i;
    CHECK(count == 2);
    for (i = 0; i < sizeof CHECKS / sizeof *CHECKS; i++) {
        if (strcmp(arguments[1], CHECKS[i].name) == 0) {
            CHECKS[i].check();
            return 0;
        }
    }
    CHECK(!"a check of that name");
    return 1;
}
