// onnxruntime_allocator, called as ONNX Runtime calls it: through OrtAllocator's functions.
#include "check.hpp"

#include <cuddy_onnxruntime.hpp>

int main() {
    use_device();
    int somewhere = 0; // stands for an OrtMemoryInfo, which is only handed through
    const auto *where = reinterpret_cast<const OrtMemoryInfo *>(&somewhere);
    cuddy::onnxruntime_allocator memory(where, DEVICE);
    OrtAllocator *seen = &memory;
    SAME(seen->version, ORT_API_VERSION);
    CHECK(seen->Info(seen) == where);

    void *block = seen->Alloc(seen, MIB);
    SAME(cuddy::block_info(block).requested, MIB);
    SAME(cuddy::block_info(block).stream, (uintptr_t)CUDDY_STREAM_ANY);
    seen->Free(seen, block);
    seen->Free(seen, nullptr);
    CHECK(seen->Alloc(seen, 0) == nullptr);
    CHECK(seen->Alloc(seen, 4096 * MIB) == nullptr);
    SAYS("4.00 GiB");
#if ORT_API_VERSION >= 18
    void *reserved = seen->Reserve(seen, MIB);
    SAME(cuddy::memory_allocated(DEVICE), MIB);
    seen->Free(seen, reserved);
#endif
#if ORT_API_VERSION >= 25
    CHECK(seen->Shrink(seen) == nullptr);
    SAME(cuddy::memory_reserved(DEVICE), 0);
#endif
    SAME(cuddy::memory_allocated(DEVICE), 0);
    return 0;
}
