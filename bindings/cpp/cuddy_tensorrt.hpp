// cuddy_tensorrt.hpp: Cuddy as the GPU allocator of TensorRT 10 and later (IGpuAsyncAllocator).
//
//     #include <cuddy_tensorrt.hpp>
//
//     cuddy::tensorrt_allocator memory;         // must outlive everything that it is given to
//     runtime->setGpuAllocator(&memory);        // before an engine is deserialised
//     builder->setGpuAllocator(&memory);
//
// TensorRT then gets weights, activations and scratch from Cuddy, in the order of the stream that it
// names: no wait and, once warm, no driver call. TensorRT's headers are needed, no library of theirs.

#ifndef CUDDY_TENSORRT_HPP
#define CUDDY_TENSORRT_HPP

#include <cuddy.hpp>

#include <NvInferRuntime.h>

namespace cuddy {
inline namespace CUDDY_DEFAULT_STREAMS {

// Device memory of one device (the current one of each call, unless it is named) from one pool.
//
// TensorRT reads failures from the answers, and reports them in words of its own; what Cuddy has to
// say of one is cuddy_last_error() of the same thread. Thread-safe.
class tensorrt_allocator : public nvinfer1::IGpuAsyncAllocator {
public:
    explicit tensorrt_allocator(int device = CUDDY_CURRENT_DEVICE, cuddy_pool pool = CUDDY_POOL_CURRENT) noexcept
        : device_(device), pool_(pool) {}

    // Memory for a stream (0: the default one). nullptr for no bytes, and where there is none to be had.
    void *allocateAsync(std::uint64_t bytes, std::uint64_t alignment, nvinfer1::AllocatorFlags,
                        cudaStream_t on) noexcept override {
        cuddy_request request = {};
        request.struct_size = sizeof request;
        request.bytes = bytes;
        request.alignment = alignment;
        request.stream = on;
        request.device = device_;
        request.pool = pool_;
        void *block = nullptr;
        return cuddy_malloc_ex(&block, &request) == CUDDY_OK ? block : nullptr;
    }

    // Gives memory back at the point that the host has reached in the stream, behind every use of it.
    bool deallocateAsync(void *block, cudaStream_t on) noexcept override {
        return cuddy_free_on(block, on) == CUDDY_OK;
    }

private:
    int device_;
    cuddy_pool pool_;
};

} // inline namespace
} // namespace cuddy

#endif
