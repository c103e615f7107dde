// The allocators of the benchmarks, with one face: allocate, free, name another stream that uses a block.
// PEER_CUDDY, PEER_TORCH, PEER_RMM, PEER_CUB, PEER_DRIVER, PEER_ASYNC or PEER_MALLOC says which.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdlib>

#if defined(PEER_CUDDY)
#include <cuddy.h>
struct Allocator {
    Allocator(std::size_t, std::size_t) {}
    void open(cudaStream_t stream) { cuddy_stream_open(0, stream); }
    void *allocate(std::size_t bytes, cudaStream_t stream) {
        void *address = nullptr;
        return cuddy_malloc(&address, bytes, 0, stream) == CUDDY_OK ? address : nullptr;
    }
    void free(void *address, std::size_t, cudaStream_t) { cuddy_free(address); }
    bool record(void *address, cudaStream_t user) { return cuddy_record_stream(address, user) == CUDDY_OK; }
};
#elif defined(PEER_TORCH)
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
// Exported by libc10_cuda.so, and declared in none of its headers.
namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*)(c10::DeviceIndex));
}
struct Allocator {
    Allocator(std::size_t, std::size_t) {
        // As libtorch_cuda.so does, which is not here.
        c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
        c10::cuda::CUDACachingAllocator::init(1);
    }
    void open(cudaStream_t) {}
    void *allocate(std::size_t bytes, cudaStream_t stream) {
        try {
            return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, stream);
        } catch (const c10::Error &) {
            return nullptr;
        }
    }
    void free(void *address, std::size_t, cudaStream_t) { c10::cuda::CUDACachingAllocator::raw_delete(address); }
    bool record(void *address, cudaStream_t user) {
        c10::DataPtr data(address, address, c10::cuda::CUDACachingAllocator::get()->raw_deleter(), c10::Device(c10::DeviceType::CUDA, 0));
        c10::cuda::CUDACachingAllocator::recordStream(data, c10::cuda::getStreamFromExternal(user, 0));
        data.release_context();
        return true;
    }
};
#elif defined(PEER_MALLOC)
// The C library's malloc of 512 bytes of host memory: a yardstick for the machine.
struct Allocator {
    Allocator(std::size_t, std::size_t) {}
    void open(cudaStream_t) {}
    void *allocate(std::size_t, cudaStream_t) {
        void *block = std::malloc(512);
        asm volatile("" : : "r"(block) : "memory");
        return block;
    }
    void free(void *block, std::size_t, cudaStream_t) { std::free(block); }
    bool record(void *, cudaStream_t) { return false; }
};
#elif defined(PEER_DRIVER)
struct Allocator {
    Allocator(std::size_t, std::size_t) {}
    void open(cudaStream_t) {}
    void *allocate(std::size_t bytes, cudaStream_t) {
        void *address = nullptr;
        return cudaMalloc(&address, bytes) == cudaSuccess ? address : nullptr;
    }
    void free(void *address, std::size_t, cudaStream_t) { cudaFree(address); }
    bool record(void *, cudaStream_t) { return false; }
};
#elif defined(PEER_ASYNC)
// The default pool, told to keep what is freed.
struct Allocator {
    Allocator(std::size_t, std::size_t) {
        cudaMemPool_t pool;
        unsigned long long all = ~0ULL;
        if (cudaDeviceGetDefaultMemPool(&pool, 0) || cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all)) std::abort();
    }
    void open(cudaStream_t) {}
    void *allocate(std::size_t bytes, cudaStream_t stream) {
        void *address = nullptr;
        return cudaMallocAsync(&address, bytes, stream) == cudaSuccess ? address : nullptr;
    }
    void free(void *address, std::size_t, cudaStream_t stream) { cudaFreeAsync(address, stream); }
    bool record(void *, cudaStream_t) { return false; }
};
#else
#include "../clients/peers/peers.hpp"
struct Allocator : Peer {
    using Peer::Peer;
    void open(cudaStream_t) {}
    bool record(void *, cudaStream_t) { return false; }
};
#endif
