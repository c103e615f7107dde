// tensorrt_allocator, called as TensorRT calls it: through its interface. Nothing of TensorRT runs.
#include "check.hpp"

#include <cuddy_tensorrt.hpp>

static uint64_t driver_calls() { return cuddy::memory_stats(DEVICE).driver_call_count; }

int main() {
    use_device();
    cuddy::tensorrt_allocator memory(DEVICE);
    nvinfer1::IGpuAllocator &seen = memory;
    CHECK(seen.allocateAsync(0, 0, 0, nullptr) == nullptr);
    CHECK(seen.deallocateAsync(nullptr, nullptr));

    // In the order of the stream that is named: what one step gives back the next one gets.
    cuddy_stream stream = new_stream();
    cuddy::held_stream held(stream, DEVICE);
    void *first = seen.allocateAsync(3 * MIB, 256, 0, reinterpret_cast<cudaStream_t>(stream));
    CHECK(first != nullptr);
    SAME(cuddy::block_info(first).stream, (uintptr_t)stream);
    CHECK(seen.deallocateAsync(first, reinterpret_cast<cudaStream_t>(stream)));
    const uint64_t calls = driver_calls();
    void *second = seen.allocateAsync(3 * MIB, 0, 0, reinterpret_cast<cudaStream_t>(stream));
    CHECK(second == first && driver_calls() == calls);

    // Given back to another stream, which the program has made wait: that one has it at once.
    CHECK(seen.deallocateAsync(second, nullptr));
    CHECK(seen.allocateAsync(3 * MIB, 0, 0, nullptr) == second);

    // A failure is an answer, not an exception; Cuddy's own words are there.
    CHECK(seen.allocateAsync(4096 * MIB, 0, 0, nullptr) == nullptr);
    SAYS("4.00 GiB");
    CHECK(!seen.deallocateAsync(static_cast<char *>(second) + 1, nullptr));
    SAYS("inside the block");
    CHECK(seen.deallocateAsync(second, nullptr));
    CHECK(!seen.deallocateAsync(second, nullptr));

    // From a pool of its own.
    cuddy::pool pool(DEVICE);
    cuddy::tensorrt_allocator pooled(DEVICE, pool.id());
    void *inside = pooled.allocateAsync(MIB, 0, 0, nullptr);
    SAME(pool.stats().allocated, MIB);
    CHECK(pooled.deallocateAsync(inside, nullptr));
    SAME(cuddy::memory_allocated(DEVICE), 0);
    return 0;
}
