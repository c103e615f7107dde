// The same sequence of calls through PyTorch's allocator, RMM's pool, and Cuddy, on the simulated
// driver: which requests it serves, what it waits for, and what it holds.
//
//   scenarios NAME: one line, `outcome <tab> host waits <tab> driver calls <tab> peak bytes <tab> findings`
//
// Only what happens inside the allocator's calls is counted. A stream that is held up does nothing
// until the allocator waits for something. PEER_TORCH, PEER_RMM or PEER_CUDDY says whose allocator it is.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

constexpr std::size_t MIB = std::size_t{1} << 20, GIB = MIB << 10;

[[noreturn]] static void die(const char *what) {
    std::fprintf(stderr, "scenarios: %s\n", what);
    std::exit(2);
}

#define OK(call) ((call) == cudaSuccess ? (void)0 : die(#call))

/// A function of the simulated driver.
template <typename Function> static Function *driver(const char *name) {
    auto found = reinterpret_cast<Function *>(dlsym(RTLD_DEFAULT, name));
    return found ? found : (die(name), nullptr);
}

// What each allocator is given: the most that it may hold; a block's other users are named in its
// own way. RMM has no word for another user: the block is freed on that user's stream instead.
#if defined(PEER_CUDDY)
#include <cuddy.h>
struct Peer {
    explicit Peer(std::size_t most) {
        if (cuddy_set_memory_limit(0, most) != CUDDY_OK) die(cuddy_last_error());
    }
    void open(cudaStream_t stream) { cuddy_stream_open(0, stream); }
    void *allocate(std::size_t bytes, cudaStream_t stream) {
        void *block = nullptr;
        return cuddy_malloc(&block, bytes, 0, stream) == CUDDY_OK ? block : nullptr;
    }
    void free(void *block, std::size_t, cudaStream_t, cudaStream_t user) {
        if (user) cuddy_record_stream(block, user);
        if (cuddy_free(block) != CUDDY_OK) die(cuddy_last_error());
    }
    void empty() { cuddy_empty_cache(0, nullptr); }
};
#elif defined(PEER_TORCH)
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
// Exported by libc10_cuda.so, and declared in none of its headers.
namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*)(c10::DeviceIndex));
}
namespace torch_cache = c10::cuda::CUDACachingAllocator;
struct Peer {
    explicit Peer(std::size_t most) {
        // As libtorch_cuda.so does, which is not here.
        c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
        torch_cache::init(1);
        std::size_t free_bytes, total;
        OK(cudaMemGetInfo(&free_bytes, &total));
        torch_cache::get()->setMemoryFraction(static_cast<double>(most) / static_cast<double>(total), 0);
    }
    void open(cudaStream_t) {}
    void *allocate(std::size_t bytes, cudaStream_t stream) {
        try {
            return torch_cache::raw_alloc_with_stream(bytes, stream);
        } catch (const c10::OutOfMemoryError &) {
            return nullptr;
        }
    }
    void free(void *block, std::size_t, cudaStream_t, cudaStream_t user) {
        if (user) {
            c10::Device device(c10::DeviceType::CUDA, 0);
            c10::DataPtr data(block, block, torch_cache::get()->raw_deleter(), device);
            torch_cache::recordStream(data, c10::cuda::getStreamFromExternal(user, 0));
            data.release_context();
        }
        torch_cache::raw_delete(block);
    }
    void empty() { torch_cache::emptyCache(); }
};
#else
#include "../clients/peers/peers.hpp"
struct Rmm : ::Peer {
    using ::Peer::Peer;
};
#define Peer RmmPeer
struct RmmPeer {
    // It grows as it is asked.
    explicit RmmPeer(std::size_t most) : pool(0, most) {}
    void open(cudaStream_t) {}
    void *allocate(std::size_t bytes, cudaStream_t stream) { return pool.allocate(bytes, stream); }
    void free(void *block, std::size_t bytes, cudaStream_t stream, cudaStream_t user) {
        pool.free(block, bytes, user ? user : stream);
    }
    void empty() {}
    Rmm pool;
};
#endif

/// One scenario under way.
struct Run {
    std::optional<Peer> peer;
    std::vector<cudaStream_t> streams;
    std::uint64_t waits = 0, calls = 0;
    std::atomic<std::uint64_t> gates{0}, entered{~std::uint64_t{0}};
    std::string failed;
    int requests = 0;

    static std::uint64_t count(const char *name) { return driver<std::uint64_t(const char *)>("simcuda_calls")(name); }
    /// Calls that wait for the device. cuMemFree does: for all work that there is.
    static std::uint64_t waited() {
        return count("cuStreamSynchronize") + count("cuEventSynchronize") + count("cuCtxSynchronize") + count("cuMemFree");
    }

    void begin(std::size_t most, int count = 3) {
        std::thread([this] { open_gates(); }).detach();
        streams.resize(count);
        for (auto &stream : streams) OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        peer.emplace(most);
        for (auto stream : streams) peer->open(stream);
    }

    /// Holds a stream up until the allocator waits.
    void hold(cudaStream_t stream) {
        static void *gate = [] {
            void *module, *function;
            driver<int(void **, const void *)>("cuModuleLoadData")(&module, "image");
            driver<int(void **, void *, const char *)>("cuModuleGetFunction")(&function, module, "simcuda_gate");
            return function;
        }();
        std::uint64_t number = ++gates;
        void *parameters[] = {&number};
        using Unsigned = unsigned;
        auto launch = driver<int(void *, Unsigned, Unsigned, Unsigned, Unsigned, Unsigned, Unsigned, Unsigned, cudaStream_t, void **, void **)>("cuLaunchKernel");
        if (launch(gate, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr)) die("no gate");
    }
    void let_go() {
        for (std::uint64_t gate = 1; gate <= gates; ++gate) driver<void(std::uint64_t)>("simcuda_gate_open")(gate);
    }
    /// Lets all streams go as soon as the allocator waits.
    void open_gates() {
        for (int turns = 0;; ++turns) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            if (waited() > entered || turns > 20000) let_go();
        }
    }

    /// A call of the allocator's.
    template <typename Call> auto inside(Call call) {
        const auto waits_before = waited(), calls_before = driver<std::uint64_t()>("simcuda_calls_total")();
        entered = waits_before;
        if constexpr (std::is_void_v<decltype(call())>) {
            call();
            add(waits_before, calls_before);
        } else {
            auto value = call();
            add(waits_before, calls_before);
            return value;
        }
    }
    void add(std::uint64_t waits_before, std::uint64_t calls_before) {
        entered = ~std::uint64_t{0};
        waits += waited() - waits_before;
        calls += driver<std::uint64_t()>("simcuda_calls_total")() - calls_before;
    }

    /// A block, or the scenario has failed: what comes after it is left out.
    void *get(std::size_t bytes, cudaStream_t stream) {
        ++requests;
        if (!failed.empty()) return nullptr;
        void *block = inside([&] { return peer->allocate(bytes, stream); });
        if (!block) failed = "out of memory at request " + std::to_string(requests);
        return block;
    }
    void use(void *block, std::size_t bytes, cudaStream_t stream) {
        if (block && failed.empty()) OK(cudaMemsetAsync(block, requests, bytes, stream));
    }
    void give(void *block, std::size_t bytes, cudaStream_t stream, cudaStream_t user = nullptr) {
        if (block) inside([&] { peer->free(block, bytes, stream, user); });
    }
    /// What `second` is given from now on comes after what `first` has been given.
    void order(cudaStream_t first, cudaStream_t second) {
        cudaEvent_t event;
        OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        OK(cudaEventRecord(event, first));
        OK(cudaStreamWaitEvent(second, event, 0));
        OK(cudaEventDestroy(event));
    }
};

/// A block that another stream still uses is all that is in the way.
static void spurious(Run &run) {
    run.begin(20 * MIB);
    auto [s0, s1] = std::pair(run.streams[0], run.streams[1]);
    void *a = run.get(4 * MIB, s0), *x = run.get(9 * MIB, s0);
    run.use(a, 4 * MIB, s0);
    run.order(s0, s1);
    run.hold(s1);
    run.use(x, 9 * MIB, s1);
    run.give(x, 9 * MIB, s0, s1);
    void *y = run.get(9 * MIB, s0);
    run.use(y, 9 * MIB, s0);
}

/// Of two blocks the one whose user is done was freed last.
static void head_of_line(Run &run) {
    run.begin(GIB);
    auto s0 = run.streams[0], slow = run.streams[1], quick = run.streams[2];
    void *x = run.get(64 * MIB, s0), *y = run.get(64 * MIB, s0);
    run.order(s0, slow);
    run.order(s0, quick);
    run.hold(slow);
    run.use(x, 64 * MIB, slow);
    run.use(y, 64 * MIB, quick);
    OK(cudaStreamSynchronize(quick));
    run.give(x, 64 * MIB, s0, slow);
    run.give(y, 64 * MIB, s0, quick);
    for (int round = 0; round < 20; ++round) {
        void *z = run.get(64 * MIB, s0);
        run.use(z, 64 * MIB, s0);
        run.give(z, 64 * MIB, s0);
    }
}

/// Thirty-two streams in turn, each done before the next begins.
static void stranded(Run &run) {
    run.begin(80 * GIB, 32);
    for (auto stream : run.streams) {
        void *p = run.get(GIB, stream), *q = run.get(GIB, stream);
        run.use(p, MIB, stream);
        run.use(q, MIB, stream);
        OK(cudaStreamSynchronize(stream));
        run.give(p, GIB, stream);
        run.give(q, GIB, stream);
    }
}

/// 60 GiB of 80 are cached; 70 are asked for.
static void own_cache(Run &run) {
    run.begin(80 * GIB);
    void *x = run.get(60 * GIB, run.streams[0]);
    run.use(x, MIB, run.streams[0]);
    run.give(x, 60 * GIB, run.streams[0]);
    run.use(run.get(70 * GIB, run.streams[0]), MIB, run.streams[0]);
}

/// Two streams' pending blocks side by side make room for a third and a fourth.
static void merged(Run &run) {
    run.begin(80 * MIB, 4);
    auto a = run.streams[0], b = run.streams[1], c = run.streams[2], d = run.streams[3];
    void *p1 = run.get(40 * MIB, b), *p2 = run.get(40 * MIB, d);
    run.hold(b);
    run.hold(d);
    run.use(p1, 40 * MIB, b);
    run.use(p2, 40 * MIB, d);
    run.give(p1, 40 * MIB, b);
    run.give(p2, 40 * MIB, d);
    void *x = run.get(60 * MIB, a), *y = run.get(20 * MIB, c);
    run.use(x, 60 * MIB, a);
    run.use(y, 20 * MIB, c);
}

/// A limit in eighths, then as a whole.
static void whole_limit(Run &run) {
    run.begin(640 * MIB);
    void *blocks[8];
    for (auto &block : blocks) block = run.get(80 * MIB, run.streams[0]);
    for (auto block : blocks) run.give(block, 80 * MIB, run.streams[0]);
    run.use(run.get(640 * MIB, run.streams[0]), 640 * MIB, run.streams[0]);
}

/// A hole between live blocks, on a device that has no more.
static void hole(Run &run) {
    run.begin(128 * MIB);
    auto stream = run.streams[0];
    run.use(run.get(16 * MIB, stream), 16 * MIB, stream);
    void *tmp = run.get(62 * MIB, stream);
    run.use(tmp, 62 * MIB, stream);
    run.give(tmp, 62 * MIB, stream);
    run.use(run.get(16 * MIB, stream), 16 * MIB, stream);
    run.use(run.get(16 * MIB, stream), 16 * MIB, stream);
    run.use(run.get(62 * MIB, stream), 62 * MIB, stream);
}

/// Each request is a little larger than the one before.
static void creeping(Run &run) {
    run.begin(GIB);
    auto stream = run.streams[0];
    for (std::size_t step = 0; step < 4096; ++step) {
        const std::size_t bytes = 16 * MIB + step * 4096;
        void *block = run.get(bytes, stream);
        run.use(block, 4096, stream);
        run.give(block, bytes, stream);
    }
}

/// Another stream's pending block is what is left of the limit.
static void pending_donor(Run &run) {
    run.begin(256 * MIB);
    auto s1 = run.streams[0], s2 = run.streams[1];
    void *a = run.get(128 * MIB, s1);
    run.use(run.get(64 * MIB, s2), 64 * MIB, s2);
    run.hold(s1);
    run.use(a, 128 * MIB, s1);
    run.give(a, 128 * MIB, s1);
    run.use(run.get(128 * MIB, s2), 128 * MIB, s2);
}

/// A large block and a wait, a thousand times.
static void synchronised(Run &run) {
    run.begin(GIB);
    for (int round = 0; round < 1000; ++round) {
        void *block = run.get(90'000'000, run.streams[0]);
        run.use(block, 4096, run.streams[0]);
        run.give(block, 90'000'000, run.streams[0]);
        OK(cudaStreamSynchronize(run.streams[0]));
    }
}

/// A hundred blocks that another stream still uses when they are freed.
static void recorded(Run &run) {
    run.begin(GIB);
    auto own = run.streams[0], other = run.streams[1];
    for (int round = 0; round < 100; ++round) {
        void *block = run.get(160 * MIB, own);
        run.use(block, 4096, own);
        run.order(own, other);
        run.use(block, 4096, other);
        run.give(block, 160 * MIB, own, other);
    }
}

/// Two streams that take turns with blocks of two sizes, under a limit that one of them needs whole.
static void two_streams(Run &run) {
    run.begin(192 * MIB);
    for (int round = 0; round < 50; ++round) {
        auto stream = run.streams[round % 2];
        void *large = run.get((96 + round % 3 * 16) * MIB, stream), *small = run.get(24 * MIB, stream);
        run.use(large, 96 * MIB, stream);
        run.use(small, 24 * MIB, stream);
        run.give(large, (96 + round % 3 * 16) * MIB, stream);
        run.give(small, 24 * MIB, stream);
    }
}

int main(int count, char **arguments) {
    const std::map<std::string, void (*)(Run &)> all = {
        {"spurious", spurious}, {"head_of_line", head_of_line}, {"stranded", stranded}, {"own_cache", own_cache},
        {"merged", merged}, {"whole_limit", whole_limit}, {"hole", hole}, {"creeping", creeping},
        {"pending_donor", pending_donor}, {"synchronised", synchronised}, {"recorded", recorded},
        {"two_streams", two_streams},
    };
    auto found = count == 2 ? all.find(arguments[1]) : all.end();
    if (found == all.end()) die("which scenario?");
    // What an allocator holds when the program ends is not what this is about.
    Run &run = *new Run;
    found->second(run);
    const auto peak = driver<std::uint64_t(int)>("simcuda_used_peak")(0);
    run.let_go();
    OK(cudaDeviceSynchronize());
    const auto findings = driver<std::uint64_t()>("simcuda_report_count")();
    std::printf("%s\t%llu\t%llu\t%llu\t%llu\n", run.failed.empty() ? "served" : run.failed.c_str(),
                (unsigned long long)run.waits, (unsigned long long)run.calls, (unsigned long long)peak,
                (unsigned long long)findings);
    std::fflush(stdout);
    std::_Exit(0);
}
