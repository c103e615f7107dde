// shim.cpp: Cuddy's functions in the shapes that torch's CUDAPluggableAllocator calls.
//
// It is compiled on the user's machine, for the torch that is there: an allocation that fails must throw
// c10::OutOfMemoryError, which only C++ can, and one of the hooks takes a std::function. Exceptions go
// from here to torch; none passes through Cuddy's functions, which are C and come by their addresses
// (of the copy of the library that Python uses), in the order of `Functions`.

#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace {

using Stream = void *; // cudaStream_t
using PoolId = std::pair<unsigned long long, unsigned long long>;
using Filter = std::function<bool(Stream)>;

struct Block { // cuddy_block
    std::uint64_t struct_size;
    void *address;
    std::uint64_t bytes, requested, offset;
    Stream stream;
    std::int32_t device;
    std::uint32_t reserved;
};

struct Functions {
    int (*malloc)(void **, std::size_t, int, Stream);
    int (*free)(void *);
    int (*record_stream)(void *, Stream);
    const char *(*last_error)();
    int (*empty_cache)(int, std::size_t *);
    int (*set_memory_fraction)(int, double);
    int (*block_info)(const void *, Block *);
    int (*graph_begin)(std::uint64_t *, int, Stream, std::uint64_t);
    int (*graph_end)(std::uint64_t);
    int (*graph_destroy)(std::uint64_t, Stream);
    int (*synchronize)(); // cuCtxSynchronize
} cuddy;

constexpr int out_of_memory = 2;
constexpr int all_devices = -2;

// What Cuddy knows of a capture, and the stream that it was told of.
struct Graph {
    std::uint64_t name;
    Stream stream;
};

// A graph's memory, by torch's name for it: routed while it is captured, kept until it is released.
struct Route {
    int device;
    PoolId id;
    Filter captures; // empty once the capture is over
    std::vector<Graph> graphs; // those of this capture last
    std::size_t ended = 0;     // how many of them are
};

std::mutex guard;
std::vector<Route> routes;
std::size_t capturing = 0; // how many routes have a filter; read without the lock by who finds 0 there

[[noreturn]] void raise(int status) {
    const std::string why = cuddy.last_error();
    if (status == out_of_memory)
        TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. ", why);
    TORCH_CHECK(false, why);
}

// The route's capture is over.
int close(Route &route) {
    if (route.captures)
        __atomic_fetch_sub(&capturing, 1, __ATOMIC_RELEASE);
    route.captures = {};
    for (; route.ended < route.graphs.size(); route.ended++)
        if (const int status = cuddy.graph_end(route.graphs[route.ended].name))
            return status;
    return 0;
}

// torch never says that a capture failed: it is over when its stream is captured anew.
int close_others(const Route &now, Stream stream) {
    for (Route &route : routes) {
        const bool open = &route != &now && route.device == now.device && route.ended < route.graphs.size();
        if (open && route.graphs.back().stream == stream)
            if (const int status = close(route))
                return status;
    }
    return 0;
}

// Tells Cuddy of the capture, the first time that one of its streams allocates: torch says only which
// streams belong to it.
void note_capture(int device, Stream stream) {
    const std::lock_guard<std::mutex> held(guard);
    for (Route &route : routes) {
        if (route.device != device || !route.captures || !route.captures(stream))
            continue;
        // A stream that joined the capture of another one is known to Cuddy by itself.
        if (route.graphs.size() > route.ended)
            return;
        if (const int status = close_others(route, stream))
            raise(status);
        std::uint64_t graph = 0;
        if (const int status = cuddy.graph_begin(&graph, device, stream, 0))
            raise(status);
        route.graphs.push_back({graph, stream});
        return;
    }
}

Route *find(int device, const PoolId &id) {
    for (Route &route : routes)
        if (route.device == device && route.id == id)
            return &route;
    return nullptr;
}

void *allocate(std::size_t bytes, int device, Stream stream, int *status) {
    if (__atomic_load_n(&capturing, __ATOMIC_ACQUIRE))
        note_capture(device, stream);
    void *block = nullptr;
    *status = cuddy.malloc(&block, bytes, device, stream);
    return block;
}

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void cuddy_torch_bind(void *const *addresses) {
    static_assert(sizeof(Functions) == 11 * sizeof(void *), "one address each");
    __builtin_memcpy(&cuddy, addresses, sizeof cuddy);
}

// For the global allocator: torch does not look at a null pointer.
EXPORT void *cuddy_torch_alloc(std::size_t bytes, int device, Stream stream) {
    int status = 0;
    void *block = allocate(bytes, device, stream, &status);
    if (status)
        raise(status);
    return block;
}

// For a MemPool: there torch has its own way down, and its own error, behind a null pointer.
EXPORT void *cuddy_torch_alloc_or_null(std::size_t bytes, int device, Stream stream) {
    int status = 0;
    return allocate(bytes, device, stream, &status);
}

EXPORT void cuddy_torch_free(void *block, std::size_t, int, Stream) {
    (void)cuddy.free(block); // at exit the driver may be gone; torch could do nothing about it
}

EXPORT void cuddy_torch_record_stream(void *block, Stream stream) {
    // torch passes any pointer into the block.
    Block found = {};
    found.struct_size = sizeof found;
    if (block == nullptr)
        return;
    if (const int status = cuddy.block_info(block, &found))
        raise(status);
    if (const int status = cuddy.record_stream(found.address, stream))
        raise(status);
}

EXPORT void cuddy_torch_init(int) {}

EXPORT void cuddy_torch_empty_cache() {
    if (const int status = cuddy.empty_cache(all_devices, nullptr))
        raise(status);
}

EXPORT void cuddy_torch_set_fraction(double fraction, int device) {
    if (const int status = cuddy.set_memory_fraction(device, fraction))
        raise(status);
}

EXPORT void *cuddy_torch_base(void *pointer, std::size_t *bytes) {
    Block found = {};
    found.struct_size = sizeof found;
    if (const int status = cuddy.block_info(pointer, &found))
        raise(status);
    if (bytes)
        *bytes = found.bytes;
    return found.address;
}

EXPORT void cuddy_torch_begin_pool(int device, PoolId id, Filter captures) {
    const std::lock_guard<std::mutex> held(guard);
    Route *route = find(device, id);
    if (!route)
        route = &routes.emplace_back(Route{device, id, {}, {}, 0});
    if (!route->captures)
        __atomic_fetch_add(&capturing, 1, __ATOMIC_RELEASE);
    route->captures = std::move(captures);
}

EXPORT void cuddy_torch_end_pool(int device, PoolId id) {
    const std::lock_guard<std::mutex> held(guard);
    Route *route = find(device, id);
    if (!route)
        return;
    if (const int status = close(*route))
        raise(status);
}

EXPORT void cuddy_torch_release_pool(int device, PoolId id) {
    cuddy_torch_end_pool(device, id);
    const std::lock_guard<std::mutex> held(guard);
    Route *route = find(device, id);
    if (!route)
        return;
    // On which stream it was launched last torch does not say: all of them.
    (void)cuddy.synchronize();
    for (const Graph &graph : route->graphs)
        (void)cuddy.graph_destroy(graph.name, nullptr);
    routes.erase(routes.begin() + (route - routes.data()));
}
