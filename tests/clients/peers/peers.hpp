// The peers: allocators of others that a C++ program can have, with one face.
//
// RMM's pool is its template, over cudaMalloc, with raw streams: of librmm.so, which has the vendor's
// runtime inside, it takes helpers that call no CUDA (alignment, exceptions, the view of a stream).
// CUB's is its caching allocator with its usual bins.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <new>
#include <stdexcept>

#if defined(PEER_RMM)
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>


class Peer {
  public:
    static constexpr const char *name = "RMM pool";

    Peer(std::size_t initial, std::size_t most) : pool(&upstream, initial, most) {}

    void *allocate(std::size_t bytes, cudaStream_t stream) {
        try {
            return pool.allocate(rmm::cuda_stream_view{stream}, bytes);
        } catch (const rmm::bad_alloc &) {
            return nullptr;
        }
    }

    void free(void *address, std::size_t bytes, cudaStream_t stream) {
        pool.deallocate(rmm::cuda_stream_view{stream}, address, bytes);
    }

  private:
    rmm::mr::cuda_memory_resource upstream;
    rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource> pool;
};
#elif defined(PEER_CUB)
#include <cub/util_allocator.cuh>

class Peer {
  public:
    static constexpr const char *name = "CUB CachingDeviceAllocator";

    // Bins of 512 B (8^3) to 128 MiB (8^9); it grows as it is asked.
    Peer(std::size_t, std::size_t most) : pool(8, 3, 9, most) {}

    void *allocate(std::size_t bytes, cudaStream_t stream) {
        void *address = nullptr;
        return pool.DeviceAllocate(&address, bytes, stream) == cudaSuccess ? address : nullptr;
    }

    void free(void *address, std::size_t, cudaStream_t) { pool.DeviceFree(address); }

  private:
    cub::CachingDeviceAllocator pool;
};
#else
#error "which peer? -DPEER_RMM or -DPEER_CUB"
#endif
