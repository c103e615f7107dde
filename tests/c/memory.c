/* Blocks: alignment, what is known about them, and reuse without the driver. */
#include "check.h"

static void alignments(void) {
    size_t alignment;
    for (alignment = 1; alignment <= 2 * MIB; alignment *= 2) {
        cuddy_request request;
        void *first = NULL, *second = NULL;
        memset(&request, 0, sizeof request);
        request.struct_size = sizeof request;
        request.bytes = 700;
        request.alignment = alignment;
        request.stream = STREAM;
        request.device = DEVICE;
        OK(cuddy_malloc_ex(&first, &request));
        OK(cuddy_malloc_ex(&second, &request));
        CHECK(first != second);
        SAME((uintptr_t)first % (alignment < 512 ? 512 : alignment), 0);
        SAME((uintptr_t)second % (alignment < 512 ? 512 : alignment), 0);
        SAME(block_of(second).requested, 700);
        OK(cuddy_free(first));
        OK(cuddy_free(second));
    }
}

static void about_blocks(void) {
    char *ptr = (char *)allocate(1000, CUDDY_STREAM_LEGACY);
    cuddy_block block = block_of(ptr);
    CHECK(block.address == ptr);
    SAME(block.bytes, 1024);
    SAME(block.requested, 1000);
    SAME(block.offset, 0);
    SAME(block.device, 0);
    CHECK(block.stream == CUDDY_STREAM_LEGACY);
    block = block_of(ptr + 1023);
    CHECK(block.address == ptr);
    SAME(block.offset, 1023);

    /* An older program's struct: only what it has room for is written. */
    memset(&block, 0x55, sizeof block);
    block.struct_size = 24;
    OK(cuddy_block_info(ptr, &block));
    SAME(block.struct_size, 24);
    SAME(block.bytes, 1024);
    SAME(block.requested, UINT64_C(0x5555555555555555));
    OK(cuddy_free(ptr));
}

static void reuse(void) {
    enum { COUNT = 200 };
    void *ptr[COUNT];
    uint64_t calls = 0;
    cuddy_stats before, after;
    int round, i;
    for (round = 0; round < 3; round++) {
        if (round == 1) calls = all_driver_calls();
        for (i = 0; i < COUNT; i++) ptr[i] = allocate((size_t)(i * 977 + 1), STREAM);
        for (i = 0; i < COUNT; i += 2) OK(cuddy_free(ptr[i]));
        for (i = 1; i < COUNT; i += 2) OK(cuddy_free(ptr[i]));
        if (round == 0) before = stats_of(DEVICE);
    }
    SAME(all_driver_calls(), calls);
    after = stats_of(DEVICE);
    SAME(after.allocated, 0);
    SAME(after.malloc_count, before.malloc_count + 2 * COUNT);
    SAME(after.hit_count, before.hit_count + 2 * COUNT);
    SAME(after.miss_count, before.miss_count);
    SAME(after.driver_call_count, before.driver_call_count);
    SAME(after.reserved, before.reserved);
}

static void giving_back(void) {
    size_t freed = 0;
    uint64_t reserved;
    void *ptr = allocate(100 * MIB, STREAM), *small = allocate(1, STREAM);
    OK(cuddy_free(ptr));
    reserved = cuddy_memory_reserved(DEVICE);
    CHECK(reserved >= 100 * MIB);
    OK(cuddy_trim(DEVICE, reserved, &freed));
    SAME(freed, 0);
    OK(cuddy_trim(DEVICE, 50 * MIB, &freed));
    SAME(cuddy_memory_reserved(DEVICE), reserved - freed);
    CHECK(cuddy_memory_reserved(DEVICE) <= 50 * MIB || freed >= 100 * MIB);
    OK(cuddy_empty_cache(DEVICE, &freed));
    CHECK(cuddy_memory_reserved(DEVICE) <= 20 * MIB);
    OK(cuddy_free(small));
    OK(cuddy_empty_cache(CUDDY_ALL_DEVICES, NULL));
    SAME(cuddy_memory_reserved(DEVICE), 0);
    SAME(DRIVER(uint64_t, "simcuda_used", (int), (DEVICE)), 0);
}

int main(void) {
    alignments();
    about_blocks();
    reuse();
    giving_back();
    return 0;
}
