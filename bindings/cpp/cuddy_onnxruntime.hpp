// cuddy_onnxruntime.hpp: Cuddy as the device memory of ONNX Runtime, in its two ways.
//
// As an allocator of the C interface, for tensors of the program's own and for sessions that take
// the environment's allocators (session.use_env_allocators):
//
//     #include <cuddy_onnxruntime.hpp>
//
//     Ort::MemoryInfo where("Cuda", OrtDeviceAllocator, 0, OrtMemTypeDefault);
//     cuddy::onnxruntime_allocator memory(where, 0);                // both must outlive its users
//     Ort::ThrowOnError(Ort::GetApi().RegisterAllocator(env, &memory));
//
// As what the CUDA provider allocates with, by three addresses in its options:
//
//     const cuddy::onnxruntime_addresses addresses;
//     const char *keys[] = {"gpu_external_alloc", "gpu_external_free", "gpu_external_empty_cache"};
//     const char *values[] = {addresses.alloc.c_str(), addresses.free.c_str(), addresses.empty_cache.c_str()};
//     Ort::ThrowOnError(Ort::GetApi().UpdateCUDAProviderOptions(options, keys, values, 3));
//
// ONNX Runtime does not say which streams use a block, nor on which one it is freed. So blocks are of
// no stream in particular, as with cudaMalloc(): any may use them at once, and their memory is reused
// when all work that the device had at their free is over, without a wait of the host.
//
// ONNX Runtime's C header is needed for the first (1.7 or later), nothing of it for the second.

#ifndef CUDDY_ONNXRUNTIME_HPP
#define CUDDY_ONNXRUNTIME_HPP

#include <cuddy.hpp>

#include <string>

#if !defined(CUDDY_ONNXRUNTIME_ADDRESSES_ONLY)
#include <onnxruntime_c_api.h>
#endif

namespace cuddy {
inline namespace CUDDY_DEFAULT_STREAMS {

namespace detail {

// Memory that any stream may use; nullptr where there is none.
inline void *onnxruntime_alloc(int device, std::size_t bytes) noexcept {
    void *block = nullptr;
    return cuddy_malloc(&block, bytes, device, CUDDY_STREAM_ANY) == CUDDY_OK ? block : nullptr;
}

// The three functions of the CUDA provider, which names no device: the current one's memory.
inline void *external_alloc(std::size_t bytes) noexcept { return onnxruntime_alloc(CUDDY_CURRENT_DEVICE, bytes); }
inline void external_free(void *block) noexcept { (void)cuddy_free(block); }
inline void external_empty_cache() noexcept { (void)cuddy_empty_cache(CUDDY_CURRENT_DEVICE, nullptr); }

template <class Function> std::string address_of(Function *function) {
    return std::to_string(reinterpret_cast<std::uintptr_t>(function));
}

} // namespace detail

// The addresses of the CUDA provider's options, as the text that those take.
struct onnxruntime_addresses {
    std::string alloc = detail::address_of(&detail::external_alloc);
    std::string free = detail::address_of(&detail::external_free);
    std::string empty_cache = detail::address_of(&detail::external_empty_cache);
};

#if !defined(CUDDY_ONNXRUNTIME_ADDRESSES_ONLY)

// The memory of one device as an OrtAllocator. It stays where it is: ONNX Runtime keeps its address.
// A block that cannot be had is nullptr; cuddy_last_error() of the thread explains. Thread-safe.
class onnxruntime_allocator : public OrtAllocator {
public:
    // where: what ONNX Runtime shall know of this memory (not owned): "Cuda", OrtDeviceAllocator, the
    // device's number, OrtMemTypeDefault.
    explicit onnxruntime_allocator(const OrtMemoryInfo *where, int device = CUDDY_CURRENT_DEVICE) noexcept
        : OrtAllocator{}, where_(where), device_(device) {
        version = ORT_API_VERSION;
        Alloc = [](OrtAllocator *self, std::size_t bytes) noexcept { return of(self).alloc(bytes); };
        Free = [](OrtAllocator *, void *block) noexcept { (void)cuddy_free(block); };
        Info = [](const OrtAllocator *self) noexcept {
            return static_cast<const onnxruntime_allocator *>(self)->where_;
        };
#if ORT_API_VERSION >= 18
        Reserve = Alloc; // what a session needs for as long as it lives: nothing is rounded up for growth
#endif
#if ORT_API_VERSION >= 25
        Shrink = [](OrtAllocator *self) noexcept -> OrtStatusPtr {
            (void)cuddy_empty_cache(of(self).device_, nullptr);
            return nullptr;
        };
#endif
    }
    onnxruntime_allocator(const onnxruntime_allocator &) = delete;
    onnxruntime_allocator &operator=(const onnxruntime_allocator &) = delete;

private:
    static onnxruntime_allocator &of(OrtAllocator *self) noexcept { return *static_cast<onnxruntime_allocator *>(self); }
    void *alloc(std::size_t bytes) noexcept { return detail::onnxruntime_alloc(device_, bytes); }

    const OrtMemoryInfo *where_;
    int device_;
};

#endif

} // inline namespace
} // namespace cuddy

#endif
