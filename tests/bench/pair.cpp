// What a pair of calls costs that a cache serves: allocate and free one size on one stream, over and
// over, in one thread. Prints `<bytes> <nanoseconds a pair> <driver calls a pair>`, one line a size.
// The time is the thread's own on a core, so that other programs do not count. PEER_CUDDY, PEER_TORCH,
// PEER_RMM or PEER_CUB says whose cache it is; PEER_MALLOC is the C library's malloc of 512 bytes of
// host memory, a yardstick for the machine.
#include <dlfcn.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#if defined(PEER_CUDDY)
#include <cuddy.h>
#include <cuda_runtime_api.h>
struct Peer {
    Peer(std::size_t, std::size_t) {}
    void *allocate(std::size_t bytes, cudaStream_t stream) {
        if (!open) open = cuddy_stream_open(0, stream) == CUDDY_OK;
        void *address = nullptr;
        return cuddy_malloc(&address, bytes, 0, stream) == CUDDY_OK ? address : nullptr;
    }
    void free(void *address, std::size_t, cudaStream_t) { cuddy_free(address); }
    bool open = false;
};
#elif defined(PEER_TORCH)
#include <c10/cuda/CUDACachingAllocator.h>
struct Peer {
    Peer(std::size_t, std::size_t) { c10::cuda::CUDACachingAllocator::init(1); }
    void *allocate(std::size_t bytes, cudaStream_t stream) {
        return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(bytes, stream);
    }
    void free(void *address, std::size_t, cudaStream_t) {
        c10::cuda::CUDACachingAllocator::raw_delete(address);
    }
};
#elif defined(PEER_MALLOC)
#include <cuda_runtime_api.h>
struct Peer {
    Peer(std::size_t, std::size_t) {}
    void *allocate(std::size_t, cudaStream_t) {
        void *block = std::malloc(512);
        asm volatile("" : : "r"(block) : "memory");
        return block;
    }
    void free(void *block, std::size_t, cudaStream_t) { std::free(block); }
};
#else
#include "../clients/peers/peers.hpp"
#endif

static double now_ns() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

int main(int count, char **arguments) {
    const long pairs = count > 1 ? std::atol(arguments[1]) : 200000;
    const auto calls = reinterpret_cast<std::uint64_t (*)()>(dlsym(RTLD_DEFAULT, "simcuda_calls_total"));
    if (calls == nullptr) {
        std::fprintf(stderr, "pair: runs on the simulated driver only: LD_PRELOAD=libsimcuda.so\n");
        return 2;
    }
    cudaStream_t stream;
    if (cudaSetDevice(0) || cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) return 1;
    Peer peer(1 << 28, std::size_t{1} << 31);
    for (std::size_t bytes : {std::size_t{512}, std::size_t{1} << 20, std::size_t{64} << 20}) {
        const auto pair = [&] {
            void *block = peer.allocate(bytes, stream);
            if (block == nullptr) std::exit(1);
            peer.free(block, bytes, stream);
        };
        for (long i = 0; i < pairs / 10 + 1; i++) pair();
        const std::uint64_t before = calls();
        const double begin = now_ns();
        for (long i = 0; i < pairs; i++) pair();
        const double took = now_ns() - begin;
        const double driver = static_cast<double>(calls() - before) / static_cast<double>(pairs);
        std::printf("%zu %.2f %.3f\n", bytes, took / static_cast<double>(pairs), driver);
    }
    std::fflush(stdout);
    std::_Exit(0);
}
