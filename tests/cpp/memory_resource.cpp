// The memory resource: it is one, in the CCCL that it is compiled with, and keeps stream order.
#include <cuddy_mr.hpp>

#include "check.hpp"

#if CCCL_MAJOR_VERSION >= 3
using resource_ref = cuda::mr::resource_ref<cuda::mr::device_accessible>;
#else
using resource_ref = cuda::mr::async_resource_ref<cuda::mr::device_accessible>;
#endif

// What a library does that was handed some resource.
static void *take(resource_ref memory, size_t bytes, size_t alignment, cuddy_stream on) {
#if CCCL_MAJOR_VERSION >= 3
    return memory.allocate(cuda::stream_ref(on), bytes, alignment);
#else
    return memory.allocate_async(bytes, alignment, on);
#endif
}

static void give(resource_ref memory, void *block, size_t bytes, size_t alignment, cuddy_stream on) {
#if CCCL_MAJOR_VERSION >= 3
    memory.deallocate(cuda::stream_ref(on), block, bytes, alignment);
#else
    memory.deallocate_async(block, bytes, alignment, on);
#endif
}

int main() {
    use_device();
    cuddy::memory_resource memory(DEVICE), same(DEVICE), other(DEVICE, CUDDY_POOL_DEFAULT);
    CHECK(memory == same && memory != other);
    const cuddy_stream stream = new_stream(), side = new_stream();

    void *block = take(memory, 3 * MIB, 256, stream);
    SAME(cuddy::memory_allocated(DEVICE), 3 * MIB);
    CHECK(cuddy::block_info(block).stream == stream);
    give(memory, block, 3 * MIB, 256, stream);
    SAME(cuddy::memory_allocated(DEVICE), 0);
    CHECK(take(memory, 3 * MIB, 256, stream) == block);
    // Given back on another stream, which its user has made wait: that one has it next.
    SAME(DRIVER(int, "cuStreamSynchronize", (cuddy_stream), (stream)), 0);
    give(same, block, 3 * MIB, 256, side);
    CHECK(take(memory, 3 * MIB, 1, side) == block);
    give(memory, block, 3 * MIB, 1, side);

    void *aligned = take(memory, 100, MIB, stream);
    SAME((uintptr_t)aligned % MIB, 0);
    give(memory, aligned, 100, MIB, stream);

    void *anywhere = memory.allocate_sync(100, 8);
    CHECK(cuddy::block_info(anywhere).stream == CUDDY_STREAM_ANY);
    memory.deallocate_sync(anywhere, 100, 8);
    memory.deallocate(memory.allocate(100, 8), 100, 8); // the names of CCCL 2
    memory.deallocate_async(memory.allocate_async(100, 8, stream), 100, 8, stream);
    SAME(cuddy::memory_allocated(DEVICE), 0);

    bool caught = false;
    try {
        take(memory, (size_t)2 << 30, 256, stream);
    } catch (const std::bad_alloc &why) {
        caught = strstr(why.what(), "2.00 GiB") != nullptr;
    }
    CHECK(caught);
    throws<cuddy::error>(CUDDY_ERROR_INVALID_ARGUMENT, "", [&] { take(memory, 1, 3, stream); });

    cuddy::pool pool(DEVICE);
    cuddy::memory_resource pooled(DEVICE, pool.id());
    void *of_pool = take(pooled, MIB, 256, stream);
    SAME(pool.stats().allocated, MIB);
    give(pooled, of_pool, MIB, 256, stream);

    // Nobody frees a block twice, or one that is not ours; nothing is thrown, as the concept wants.
    give(memory, block, 1, 1, stream);
    for (cuddy_stream each : {stream, side})
        destroy_stream(each);
    return 0;
}
