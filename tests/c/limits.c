/* Limits hold exactly, and an out-of-memory error explains itself in numbers. */
#include "check.h"

static uint64_t used(void) { return DRIVER(uint64_t, "simcuda_used_peak", (int), (DEVICE)); }

int main(void) {
    size_t bytes = 7, free_bytes = 0, total_bytes = 0, freed;
    void *block[64];
    int count = 0, i;

    OK(cuddy_memory_limit(DEVICE, &bytes));
    SAME(bytes, CUDDY_NO_LIMIT);
    OK(cuddy_set_memory_limit(DEVICE, 64 * MIB));
    OK(cuddy_memory_limit(DEVICE, &bytes));
    SAME(bytes, 64 * MIB);

    /* As many as fit, and not one more. */
    while (count < 64 && cuddy_malloc(&block[count], 4 * MIB, DEVICE, STREAM) == CUDDY_OK) count++;
    CHECK(count >= 10 && count <= 16);
    CHECK(cuddy_max_memory_reserved(DEVICE) <= 64 * MIB);
    CHECK(used() <= 64 * MIB);
    block[count] = NULL;
    FAILS(CUDDY_ERROR_OUT_OF_MEMORY, cuddy_malloc(&block[count], 30 * MIB, DEVICE, STREAM));
    CHECK(block[count] == NULL);
    CHECK(strlen(cuddy_last_error()) > 100);
    SAYS("limit");
    SAYS("MiB");
    CHECK(stats_of(DEVICE).out_of_memory_count >= 1);
    OK(cuddy_mem_get_info(DEVICE, &free_bytes, &total_bytes));
    CHECK(free_bytes < 64 * MIB - (size_t)count * 4 * MIB + 1);
    CHECK(total_bytes >= 256 * MIB);

    /* What is freed serves what was refused, whatever its shape. */
    for (i = 0; i < count; i++) OK(cuddy_free(block[i]));
    OK(cuddy_malloc(&block[0], 30 * MIB, DEVICE, STREAM));
    OK(cuddy_malloc(&block[1], 30 * MIB, DEVICE, STREAM));
    CHECK(used() <= 64 * MIB);

    /* A lower limit gives back what is free and leaves what is not. */
    OK(cuddy_free(block[1]));
    OK(cuddy_set_memory_limit(CUDDY_ALL_DEVICES, 1 * MIB));
    CHECK(cuddy_memory_reserved(DEVICE) <= 34 * MIB);
    FAILS(CUDDY_ERROR_OUT_OF_MEMORY, cuddy_malloc(&block[1], 20 * MIB, DEVICE, STREAM));
    SAME(block_of(block[0]).requested, 30 * MIB);
    OK(cuddy_free(block[0]));

    /* A share of the device; the lower limit holds. */
    OK(cuddy_set_memory_limit(DEVICE, 0));
    OK(cuddy_set_memory_fraction(DEVICE, 0.25));
    OK(cuddy_memory_limit(DEVICE, &bytes));
    CHECK(bytes <= total_bytes / 4 && bytes + 1024 >= total_bytes / 4);
    FAILS(CUDDY_ERROR_OUT_OF_MEMORY, cuddy_malloc(&block[0], total_bytes / 2, DEVICE, STREAM));
    OK(cuddy_set_memory_limit(DEVICE, 8 * MIB));
    OK(cuddy_memory_limit(DEVICE, &bytes));
    SAME(bytes, 8 * MIB);
    OK(cuddy_set_memory_fraction(DEVICE, 1.0));
    OK(cuddy_set_memory_limit(DEVICE, CUDDY_NO_LIMIT));
    OK(cuddy_malloc(&block[0], total_bytes / 2, DEVICE, STREAM));
    OK(cuddy_free(block[0]));

    /* Without a limit the device is the limit; free memory in the cache counts as free. */
    OK(cuddy_empty_cache(DEVICE, &freed));
    OK(cuddy_mem_get_info(DEVICE, &free_bytes, &total_bytes));
    OK(cuddy_malloc(&block[0], 100 * MIB, DEVICE, STREAM));
    OK(cuddy_free(block[0]));
    OK(cuddy_mem_get_info(DEVICE, &bytes, &total_bytes));
    SAME(bytes, free_bytes);
    FAILS(CUDDY_ERROR_OUT_OF_MEMORY, cuddy_malloc(&block[0], total_bytes + 1, DEVICE, STREAM));
    return 0;
}
