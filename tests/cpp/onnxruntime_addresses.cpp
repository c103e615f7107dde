// The three addresses for ONNX Runtime's CUDA provider, called as it calls them: read back from text.
#define CUDDY_ONNXRUNTIME_ADDRESSES_ONLY
#include "check.hpp"

#include <cuddy_onnxruntime.hpp>

template <class Function> Function *read(const std::string &text) {
    return reinterpret_cast<Function *>(std::stoull(text));
}

int main() {
    use_device();
    const cuddy::onnxruntime_addresses addresses;
    auto *alloc = read<void *(size_t)>(addresses.alloc);
    auto *free = read<void(void *)>(addresses.free);
    auto *empty_cache = read<void()>(addresses.empty_cache);

    void *block = alloc(MIB);
    SAME(cuddy::block_info(block).requested, MIB);
    free(block);
    free(nullptr);
    SAME(cuddy::memory_allocated(), 0);
    CHECK(cuddy::memory_reserved() >= MIB);
    empty_cache();
    SAME(cuddy::memory_reserved(), 0);
    CHECK(alloc(0) == nullptr);
    CHECK(alloc(4096 * MIB) == nullptr);
    SAYS("4.00 GiB");
    return 0;
}
