// cuddy_mr.hpp: Cuddy as a memory resource of CCCL (cuda::mr), for Thrust, RMM, cuDF and whoever
// takes one.
//
//     #include <cuddy_mr.hpp>
//
//     cuddy::memory_resource cuddy_memory;                               // must outlive its users
//     cuda::mr::resource_ref<cuda::mr::device_accessible> memory{cuddy_memory};
//
// It has the functions that cuda::mr asks for in CCCL 3 (allocate on a stream, allocate_sync) and in
// CCCL 2 (allocate, allocate_async), so one class serves both; RMM 25.12 takes it too. It holds two
// numbers and can be copied. CCCL's headers are needed, CCCL has no library.

#ifndef CUDDY_MR_HPP
#define CUDDY_MR_HPP

#include <cuddy.hpp>

#if !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE // CCCL 2 hides cuda::mr behind it
#endif
#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include <new>

namespace cuddy {
inline namespace CUDDY_DEFAULT_STREAMS {

// No memory, as users of memory resources catch it; what() explains where memory went.
class bad_alloc : public std::bad_alloc {
public:
    explicit bad_alloc(const char *what) : error_(CUDDY_ERROR_OUT_OF_MEMORY, what) {}
    const char *what() const noexcept override { return error_.what(); }

private:
    out_of_memory error_; // copies without allocating
};

// Device memory of one device (the current one of each call, unless it is named) from one pool.
//
// allocate() throws cuddy::bad_alloc for want of memory, cuddy::error for the rest; deallocate() never
// throws. Thread-safe, as cuddy.h is.
class memory_resource {
public:
    static constexpr std::size_t default_alignment = 256;

    explicit memory_resource(int device = CUDDY_CURRENT_DEVICE, cuddy_pool pool = CUDDY_POOL_CURRENT) noexcept
        : device_(device), pool_(pool) {}

    // Memory for a stream: safe there at once.
    void *allocate(::cuda::stream_ref on, std::size_t bytes, std::size_t alignment = default_alignment) {
        return get(bytes, alignment, on.get());
    }

    // Gives memory to a stream, behind which all its uses are ordered: it may have been allocated for
    // another one.
    void deallocate(::cuda::stream_ref on, void *block, std::size_t, std::size_t = default_alignment) noexcept {
        (void)cuddy_free_on(block, on.get());
    }

    // Memory that any stream, or none, may use at once; and back, behind the work of all streams.
    void *allocate_sync(std::size_t bytes, std::size_t alignment = default_alignment) {
        return get(bytes, alignment, CUDDY_STREAM_ANY);
    }
    void deallocate_sync(void *block, std::size_t, std::size_t = default_alignment) noexcept {
        (void)cuddy_free(block);
    }

    // The names of CCCL 2.
    void *allocate(std::size_t bytes, std::size_t alignment = default_alignment) {
        return allocate_sync(bytes, alignment);
    }
    void deallocate(void *block, std::size_t bytes, std::size_t alignment = default_alignment) noexcept {
        deallocate_sync(block, bytes, alignment);
    }
    void *allocate_async(std::size_t bytes, std::size_t alignment, ::cuda::stream_ref on) {
        return allocate(on, bytes, alignment);
    }
    void *allocate_async(std::size_t bytes, ::cuda::stream_ref on) { return allocate(on, bytes); }
    void deallocate_async(void *block, std::size_t bytes, std::size_t alignment, ::cuda::stream_ref on) noexcept {
        deallocate(on, block, bytes, alignment);
    }
    void deallocate_async(void *block, std::size_t bytes, ::cuda::stream_ref on) noexcept {
        deallocate(on, block, bytes);
    }

    // What one of two equal resources has allocated the other can free: Cuddy frees any block anywhere,
    // but where it comes from differs.
    friend bool operator==(const memory_resource &a, const memory_resource &b) noexcept {
        return a.device_ == b.device_ && a.pool_ == b.pool_;
    }
    friend bool operator!=(const memory_resource &a, const memory_resource &b) noexcept { return !(a == b); }

    friend constexpr void get_property(const memory_resource &, ::cuda::mr::device_accessible) noexcept {}

private:
    void *get(std::size_t bytes, std::size_t alignment, cuddy_stream on) {
        options how;
        how.stream = on;
        how.device = device_;
        how.alignment = alignment;
        how.pool = pool_;
        try {
            return cuddy::allocate(bytes, how);
        } catch (const out_of_memory &why) {
            throw bad_alloc(why.what());
        }
    }

    int device_;
    cuddy_pool pool_;
};

// It is what it says.
#if defined(CCCL_MAJOR_VERSION) && CCCL_MAJOR_VERSION >= 3
static_assert(::cuda::mr::resource_with<memory_resource, ::cuda::mr::device_accessible>);
#else
static_assert(::cuda::mr::async_resource_with<memory_resource, ::cuda::mr::device_accessible>, "");
#endif

} // inline namespace
} // namespace cuddy

#endif
