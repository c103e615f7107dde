// cuddy.hpp: device memory that frees itself, for C++17 and later.
//
// Owners (buffer, unique_ptr, pool) over the functions of cuddy.h, and nothing else: no state, no
// macro, no library of its own. A call that fails throws cuddy::error; destructors and what is
// marked noexcept never throw. cuddy.h is C: no exception ever passes through it.
//
//     #include <cuddy.hpp>
//
//     cuddy::buffer<float> weights(1 << 20);            // legacy stream, current device
//     cuddy::buffer<float> scratch(1 << 16, stream);    // any CUstream or cudaStream_t
//     kernel<<<grid, threads, 0, stream>>>(scratch.data(), scratch.size());
//     // scratch goes back to the cache here, in stream order: no wait, no driver call.
//
// What holds of everything: a buffer's memory is device memory, which the host must not touch; it
// belongs to its stream, and use on another stream is said by record_stream(); cuddy.h has the rules,
// the units (bytes, unless a name says count) and the errors. Objects are as thread-safe as an int:
// different ones may be used by different threads at once.

#ifndef CUDDY_HPP
#define CUDDY_HPP

#include <cuddy.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace cuddy {

// Code compiled for per-thread default streams means another stream by 0 (see cuddy.h); what is
// inline here must then be another function, for one program may have both.
#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM) || defined(__CUDA_API_PER_THREAD_DEFAULT_STREAM)
#define CUDDY_DEFAULT_STREAMS per_thread_default
#else
#define CUDDY_DEFAULT_STREAMS legacy_default
#endif
inline namespace CUDDY_DEFAULT_STREAMS {

// -------------------------------------------------------------------------------------------------
// Errors
// -------------------------------------------------------------------------------------------------

// A call of Cuddy that failed. what() is the sentence of cuddy_last_error(), with the figures.
class error : public std::runtime_error {
public:
    error(cuddy_status status, const std::string &what) : std::runtime_error(what), status_(status) {}

    // Which failure it was.
    cuddy_status status() const noexcept { return status_; }

    // Its name, for example "CUDDY_ERROR_DOUBLE_FREE".
    const char *name() const noexcept { return cuddy_status_name(status_); }

private:
    cuddy_status status_;
};

// No memory: everything reusable was tried first. what() explains where memory went.
class out_of_memory : public error {
public:
    using error::error;
};

// Throws what a status stands for; CUDDY_OK is nothing. For calls of cuddy.h on the same thread.
inline void check(cuddy_status status) {
    if (status == CUDDY_OK)
        return;
    if (status == CUDDY_ERROR_OUT_OF_MEMORY)
        throw out_of_memory(status, cuddy_last_error());
    throw error(status, cuddy_last_error());
}

// -------------------------------------------------------------------------------------------------
// Where and how to allocate
// -------------------------------------------------------------------------------------------------

// A stream, not owned: a CUstream or cudaStream_t, anything whose get() gives one (cuda::stream_ref),
// or one of those below.
class stream {
public:
    // The legacy default stream; where the program is compiled for per-thread ones, the thread's own.
    constexpr stream() noexcept = default;
    constexpr stream(cuddy_stream handle) noexcept : handle_(handle) {}
    constexpr stream(std::nullptr_t) noexcept {}
    template <class Ref, class = std::enable_if_t<std::is_convertible_v<
                             decltype(std::declval<const Ref &>().get()), cuddy_stream>>>
    constexpr stream(const Ref &ref) noexcept(noexcept(ref.get())) : handle_(ref.get()) {}
    stream(int) = delete; // a number is a device's

    constexpr cuddy_stream get() const noexcept { return handle_; }

    friend constexpr bool operator==(stream a, stream b) noexcept { return a.handle_ == b.handle_; }
    friend constexpr bool operator!=(stream a, stream b) noexcept { return !(a == b); }

private:
    cuddy_stream handle_ = nullptr;
};

// The legacy default stream, the calling thread's own one, and no stream in particular (as
// cudaMalloc() has it): see CUDDY_STREAM_LEGACY and its neighbours in cuddy.h.
inline stream legacy_stream() noexcept { return CUDDY_STREAM_LEGACY; }
inline stream per_thread_stream() noexcept { return CUDDY_STREAM_PER_THREAD; }
inline stream any_stream() noexcept { return CUDDY_STREAM_ANY; }

// How an allocation is to be, where more than a stream and a device has to be said.
struct options {
    cuddy::stream stream = {};
    int device = CUDDY_CURRENT_DEVICE;
    std::size_t alignment = 0;            // a power of two up to 2 MiB; 0 is 512
    cuddy_pool pool = CUDDY_POOL_CURRENT; // of cuddy::pool::id()
    bool no_wait = false;                 // rather fail than wait for a stream
    std::uint64_t wait_ms = 0;            // the longest wait; 0 is as the option wait_ms says
    const char *tag = nullptr;            // a label, as cuddy_annotate() gives one
};

// Allocates bytes; nullptr for 0. free() takes it back. Throws error, out_of_memory.
inline void *allocate(std::size_t bytes, const options &how) {
    cuddy_request request = {};
    request.struct_size = sizeof request;
    request.bytes = bytes;
    request.alignment = how.alignment;
    request.stream = how.stream.get();
    request.device = how.device;
    request.flags = how.no_wait ? CUDDY_REQUEST_NO_WAIT : 0u;
    request.pool = how.pool;
    request.wait_ms = how.wait_ms;
    request.tag = how.tag;
    void *block = nullptr;
    check(cuddy_malloc_ex(&block, &request));
    return block;
}

inline void *allocate(std::size_t bytes, stream on = {}, int device = CUDDY_CURRENT_DEVICE) {
    void *block = nullptr;
    check(cuddy_malloc(&block, bytes, device, on.get()));
    return block;
}

// Gives a block back in its own stream's order; nullptr does nothing. Throws error.
inline void free(void *block) { check(cuddy_free(block)); }

// What is known of the live block that a pointer lies in. Throws error.
inline cuddy_block block_info(const void *pointer) {
    cuddy_block block = {};
    block.struct_size = sizeof block;
    check(cuddy_block_info(pointer, &block));
    return block;
}

// -------------------------------------------------------------------------------------------------
// Owners
// -------------------------------------------------------------------------------------------------

namespace detail {

// Bytes of `count` elements; a product that does not fit is a size that no device has.
template <class T> std::size_t bytes_of(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
        throw out_of_memory(CUDDY_ERROR_OUT_OF_MEMORY,
                            std::to_string(count) + " elements of " + std::to_string(sizeof(T)) +
                                " bytes were asked for: more than the address space has");
    return count * sizeof(T);
}

} // namespace detail

// An array of `size()` elements in device memory, not initialised. It can be moved, not copied.
//
// Its destructor gives the memory back in the order of its stream, from whatever thread. A failure
// there is nobody's to hear; free() reports it.
template <class T> class buffer {
    static_assert(std::is_trivially_copyable_v<T>, "device memory holds plain data: no constructor runs there");
    static_assert(!std::is_const_v<T> && !std::is_reference_v<T>, "a buffer of plain elements");

public:
    using value_type = T;

    // An empty one: no memory, data() is nullptr.
    buffer() noexcept = default;

    explicit buffer(std::size_t count, cuddy::stream on = {}, int device = CUDDY_CURRENT_DEVICE)
        : data_(static_cast<T *>(allocate(detail::bytes_of<T>(count), on, device))), size_(count), stream_(on) {}

    buffer(std::size_t count, const options &how)
        : data_(static_cast<T *>(allocate(detail::bytes_of<T>(count), how))), size_(count), stream_(how.stream) {}

    buffer(buffer &&other) noexcept { swap(other); }
    buffer &operator=(buffer &&other) noexcept {
        buffer moved(std::move(other));
        swap(moved);
        return *this;
    }
    buffer(const buffer &) = delete;
    buffer &operator=(const buffer &) = delete;

    ~buffer() { (void)cuddy_free(data_); }

    // The elements, as the device sees them.
    T *data() noexcept { return data_; }
    const T *data() const noexcept { return data_; }

    std::size_t size() const noexcept { return size_; }
    std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
    bool empty() const noexcept { return size_ == 0; }

    // The stream that it was made for.
    cuddy::stream stream() const noexcept { return stream_; }

    // Says that another stream uses it too: it is not reused before that stream's work is over.
    void record_stream(cuddy::stream other) { check(cuddy_record_stream(data_, other.get())); }

    // Gives the memory back now; the buffer is empty then. After an error it is as it was.
    void free() {
        check(cuddy_free(data_));
        (void)release();
    }

    // Gives the memory to another stream, which the program has made wait for every use of it.
    void free_on(cuddy::stream next) {
        check(cuddy_free_on(data_, next.get()));
        (void)release();
    }

    // Gives the memory back once an event (CUevent, cudaEvent_t) is over.
    void free_after(void *event) {
        check(cuddy_free_after(data_, event));
        (void)release();
    }

    // Hands the block over to the caller, who frees it by cuddy_free(); the buffer is empty then.
    [[nodiscard]] T *release() noexcept {
        size_ = 0;
        return std::exchange(data_, nullptr);
    }

    void swap(buffer &other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(stream_, other.stream_);
    }
    friend void swap(buffer &a, buffer &b) noexcept { a.swap(b); }

private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
    cuddy::stream stream_ = {};
};

// Frees device memory for std::unique_ptr.
struct deleter {
    void operator()(const volatile void *block) const noexcept { (void)cuddy_free(const_cast<void *>(block)); }
};

// A std::unique_ptr to device memory: unique_ptr<T> or unique_ptr<T[]>. The host may not
// dereference it.
template <class T> using unique_ptr = std::unique_ptr<T, deleter>;

// One T, or `count` of them for T[], not initialised. Throws error, out_of_memory.
template <class T, class = std::enable_if_t<!std::is_array_v<T>>>
unique_ptr<T> make_unique(stream on = {}, int device = CUDDY_CURRENT_DEVICE) {
    static_assert(std::is_trivially_copyable_v<T>, "device memory holds plain data");
    return unique_ptr<T>(static_cast<T *>(allocate(sizeof(T), on, device)));
}

template <class T, class = std::enable_if_t<std::is_array_v<T> && std::extent_v<T> == 0>>
unique_ptr<T> make_unique(std::size_t count, stream on = {}, int device = CUDDY_CURRENT_DEVICE) {
    using element = std::remove_extent_t<T>;
    static_assert(std::is_trivially_copyable_v<element>, "device memory holds plain data");
    return unique_ptr<T>(static_cast<element *>(allocate(detail::bytes_of<element>(count), on, device)));
}

// A private pool: an isolated part of a device's memory. It can be moved, not copied. Blocks outlive
// it: its memory goes back to the driver with the last of them.
class pool {
public:
    // limit: the most bytes that it may reserve; use_on_oom: it may serve the default pool's last need.
    explicit pool(int device = CUDDY_CURRENT_DEVICE, std::size_t limit = 0, bool use_on_oom = false) {
        cuddy_pool_options how = {};
        how.struct_size = sizeof how;
        how.limit = limit;
        how.device = device;
        how.flags = use_on_oom ? CUDDY_POOL_USE_ON_OOM : 0u;
        check(cuddy_pool_create(&how, &id_));
    }

    pool(pool &&other) noexcept : id_(std::exchange(other.id_, none)) {}
    pool &operator=(pool &&other) noexcept {
        pool moved(std::move(other));
        std::swap(id_, moved.id_);
        return *this;
    }
    pool(const pool &) = delete;
    pool &operator=(const pool &) = delete;

    ~pool() {
        if (id_ != none)
            (void)cuddy_pool_destroy(id_);
    }

    // Its name, for options::pool and for cuddy.h.
    cuddy_pool id() const noexcept { return id_; }

    cuddy_stats stats() const {
        cuddy_stats stats = {};
        stats.struct_size = sizeof stats;
        check(cuddy_pool_stats(id_, &stats));
        return stats;
    }
    void reset_peak_stats() { check(cuddy_pool_reset_peak_stats(id_)); }

    // The most bytes that it may reserve; 0 for no limit.
    void set_limit(std::size_t bytes) { check(cuddy_pool_set_limit(id_, bytes)); }

    // Gives its free memory back to the driver, until at most so many bytes stay; the bytes given back.
    std::size_t trim(std::size_t keep_bytes = 0) {
        std::size_t freed = 0;
        check(cuddy_pool_trim(id_, keep_bytes, &freed));
        return freed;
    }

    // While a guard lives, this thread's allocations on the pool's device come from the pool. Guards
    // end in the reverse order of their beginning, on the thread that made them.
    class guard {
    public:
        explicit guard(const pool &entered) : id_(entered.id()) { check(cuddy_pool_push(id_)); }
        guard(const guard &) = delete;
        guard &operator=(const guard &) = delete;
        ~guard() { (void)cuddy_pool_pop(id_); }

    private:
        cuddy_pool id_;
    };

private:
    static constexpr cuddy_pool none = 0;
    cuddy_pool id_ = none;
};

// While it lives, what this thread allocates belongs to the scope of that name: cuddy_scopes() and
// cuddy_leaks() tell of it. Scopes end in the reverse order of their beginning, on the thread that
// began them.
class scope {
public:
    explicit scope(const char *name) { check(cuddy_scope_begin(name)); }
    explicit scope(const std::string &name) : scope(name.c_str()) {}
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;
    ~scope() { (void)cuddy_scope_end(nullptr); }
};

// Tells Cuddy that a stream lives as long as this object, which saves driver calls: make it after the
// stream, and let it end before the stream is destroyed.
class held_stream {
public:
    // device: the stream's; it must still be the current one at the end, unless it is named here.
    // flags: 0, or CUDDY_STREAM_CAPTURABLE.
    explicit held_stream(cuddy::stream held, int device = CUDDY_CURRENT_DEVICE, std::uint32_t flags = 0)
        : stream_(held), device_(device) {
        check(cuddy_stream_open_ex(device, held.get(), flags));
    }
    held_stream(const held_stream &) = delete;
    held_stream &operator=(const held_stream &) = delete;
    ~held_stream() { (void)cuddy_stream_retire(device_, stream_.get()); }

    cuddy_stream get() const noexcept { return stream_.get(); }

private:
    cuddy::stream stream_;
    int device_;
};

// -------------------------------------------------------------------------------------------------
// Watching and giving back
// -------------------------------------------------------------------------------------------------

// The counters of a device, all of one moment.
inline cuddy_stats memory_stats(int device = CUDDY_CURRENT_DEVICE) {
    cuddy_stats stats = {};
    stats.struct_size = sizeof stats;
    check(cuddy_memory_stats(device, &stats));
    return stats;
}

// Bytes of live blocks, the most of them, bytes held from the driver, the most of them.
inline std::size_t memory_allocated(int device = CUDDY_CURRENT_DEVICE) { return cuddy_memory_allocated(device); }
inline std::size_t max_memory_allocated(int device = CUDDY_CURRENT_DEVICE) { return cuddy_max_memory_allocated(device); }
inline std::size_t memory_reserved(int device = CUDDY_CURRENT_DEVICE) { return cuddy_memory_reserved(device); }
inline std::size_t max_memory_reserved(int device = CUDDY_CURRENT_DEVICE) { return cuddy_max_memory_reserved(device); }

inline void reset_peak_memory_stats(int device = CUDDY_CURRENT_DEVICE) { check(cuddy_reset_peak_memory_stats(device)); }

namespace detail {

// The text that a function writes into a buffer of a size, and says how much it needs.
template <class Write> std::string text_of(Write write) {
    std::string text;
    std::size_t needed = 0;
    check(write(nullptr, std::size_t{0}, &needed));
    while (needed > text.size() + 1) { // it may grow between two calls
        text.resize(needed - 1);
        check(write(text.data(), text.size() + 1, &needed));
    }
    text.resize(needed == 0 ? 0 : needed - 1);
    return text;
}

} // namespace detail

// A table of the counters, for people.
inline std::string memory_summary(int device = CUDDY_CURRENT_DEVICE) {
    return detail::text_of([device](char *to, std::size_t size, std::size_t *needed) {
        return cuddy_memory_summary(device, to, size, needed);
    });
}

// As JSON (see docs/SNAPSHOT.md): every scope; the live blocks of one, "" for all; everything.
inline std::string scopes() { return detail::text_of(cuddy_scopes); }
inline std::string leaks(const std::string &path = {}) {
    return detail::text_of([&path](char *to, std::size_t size, std::size_t *needed) {
        return cuddy_leaks(path.c_str(), to, size, needed);
    });
}
inline std::string snapshot() { return detail::text_of(cuddy_snapshot); }

// Keeps the last so many events for snapshots; 0 ends it.
inline void record_history(std::size_t events) { check(cuddy_record_history(events)); }

// Gives every free byte back to the driver; how many that were.
inline std::size_t empty_cache(int device = CUDDY_CURRENT_DEVICE) {
    std::size_t freed = 0;
    check(cuddy_empty_cache(device, &freed));
    return freed;
}

// The same, until at most so many bytes stay reserved.
inline std::size_t trim(std::size_t keep_bytes, int device = CUDDY_CURRENT_DEVICE) {
    std::size_t freed = 0;
    check(cuddy_trim(device, keep_bytes, &freed));
    return freed;
}

// The most that may be reserved on a device, in bytes; 0 or CUDDY_NO_LIMIT for none.
inline void set_memory_limit(std::size_t bytes, int device = CUDDY_CURRENT_DEVICE) {
    check(cuddy_set_memory_limit(device, bytes));
}

// What an allocation could still get, and what the device has.
struct memory_info {
    std::size_t free;
    std::size_t total;
};
inline memory_info mem_get_info(int device = CUDDY_CURRENT_DEVICE) {
    memory_info info = {};
    check(cuddy_mem_get_info(device, &info.free, &info.total));
    return info;
}

} // inline namespace
} // namespace cuddy

#endif
