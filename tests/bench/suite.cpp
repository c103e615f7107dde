// One benchmark after the other, in one process: `suite QUICK BENCH...` prints a line for each,
//
//   bench <tab> nanoseconds <tab> driver calls <tab> value
//
// `nanoseconds` is of the thread's own time on a core for one operation, so that other programs count
// little; `value` is what the bench's comment says. What an allocator cannot do it leaves out.
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "allocators.hpp"

constexpr std::size_t KIB = 1024, MIB = KIB << 10, GIB = MIB << 10;
static std::uint64_t (*calls)();
static std::uint64_t (*used_peak)(int);
static void (*used_peak_reset)(int);
static Allocator *allocator;
static std::vector<cudaStream_t> streams;
static long rounds;

[[noreturn]] static void die(const char *what) {
    std::fprintf(stderr, "suite: %s\n", what);
    std::_Exit(1);
}
static double clock_ns(clockid_t which = CLOCK_THREAD_CPUTIME_ID) {
    timespec now;
    clock_gettime(which, &now);
    return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}
static void *get(std::size_t bytes, cudaStream_t stream) {
    void *block = allocator->allocate(bytes, stream);
    if (block == nullptr) die("out of memory");
    return block;
}
static void pair(std::size_t bytes, cudaStream_t stream) { allocator->free(get(bytes, stream), bytes, stream); }

struct Result {
    double ns, calls, value;
    bool can = true;
};
/// What `many` operations cost, after a tenth of them to warm up.
template <typename Operation> static Result each(long many, Operation operation) {
    for (long i = 0; i < many / 10 + 1; i++) operation();
    const std::uint64_t before = calls();
    const double begin = clock_ns();
    for (long i = 0; i < many; i++) operation();
    const double took = clock_ns() - begin, all = static_cast<double>(many);
    return {took / all, static_cast<double>(calls() - before) / all, 0};
}

static Result cached(std::size_t bytes) {
    return each(rounds, [=] { pair(bytes, streams[0]); });
}

/// A random one of the live blocks is freed and one of another size allocated. Value: bytes of host
/// memory that became resident for a live block.
static Result random_live(std::size_t live, std::size_t most) {
    std::mt19937_64 random(7);
    std::vector<std::pair<void *, std::size_t>> blocks(live, {nullptr, 1});
    const auto resident = [] {
        long pages = 0;
        if (std::FILE *file = std::fopen("/proc/self/statm", "r")) {
            if (std::fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
            std::fclose(file);
        }
        return static_cast<double>(pages * sysconf(_SC_PAGESIZE));
    };
    const double before = resident();
    for (auto &[block, bytes] : blocks) block = get(bytes = 1 + random() % most, streams[0]);
    const double grew = (resident() - before) / static_cast<double>(live);
    Result result = each(rounds, [&] {
        auto &[block, bytes] = blocks[random() % live];
        allocator->free(block, bytes, streams[0]);
        block = get(bytes = 1 + random() % most, streams[0]);
    });
    for (auto [block, bytes] : blocks) allocator->free(block, bytes, streams[0]);
    result.value = grew;
    return result;
}

static Result two_streams() {
    long turn = 0;
    return each(rounds, [&] { pair(MIB, streams[turn++ & 1]); });
}

/// Value: throughput of two threads over that of one. By the threads' own time on their cores, so a
/// lock that sleeps is not seen in it; the nanoseconds are the clock's on the wall, for a pair.
static Result two_threads(bool same) {
    const auto loop = [](cudaStream_t stream, double *took) {
        for (long i = 0; i < rounds / 10; i++) pair(MIB, stream);
        const double begin = clock_ns();
        for (long i = 0; i < rounds; i++) pair(MIB, stream);
        *took = clock_ns() - begin;
    };
    double alone, first, second;
    std::thread(loop, streams[0], &alone).join();
    const double begin = clock_ns(CLOCK_MONOTONIC);
    std::thread a(loop, streams[0], &first), b(loop, streams[same ? 0 : 1], &second);
    a.join();
    b.join();
    const double wall = clock_ns(CLOCK_MONOTONIC) - begin;
    return {wall / 2.2 / static_cast<double>(rounds), 0, alone / first + alone / second};
}

/// One thread allocates, another frees: what a free costs.
static Result remote_free() {
    const long batch = 1000;
    std::vector<void *> blocks(batch);
    double took = 0;
    long freed = 0;
    for (long round = 0; round < rounds / batch + 1; round++) {
        for (auto &block : blocks) block = get(4 * KIB, streams[0]);
        std::thread([&] {
            const double begin = clock_ns();
            for (auto block : blocks) allocator->free(block, 4 * KIB, streams[0]);
            if (round) took += clock_ns() - begin, freed += batch;
        }).join();
    }
    return {freed ? took / static_cast<double>(freed) : 0, 0, 0, freed > 0};
}

/// The median of batches of 16 pairs of 61 sizes.
static double median_pair() {
    std::vector<double> times;
    std::size_t turn = 0;
    for (long i = 0; i < rounds / 64 + 8; i++) {
        const double begin = clock_ns(CLOCK_MONOTONIC);
        for (int j = 0; j < 16; j++) pair(512 * (1 + turn++ % 61), streams[0]);
        times.push_back((clock_ns(CLOCK_MONOTONIC) - begin) / 16);
    }
    std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
    return times[times.size() / 2];
}
/// With free holes between live blocks. Value: times the figure without them.
static Result holes(std::size_t many) {
    const double empty = median_pair();
    std::vector<std::pair<void *, std::size_t>> kept, gone;
    for (std::size_t i = 0; i < 2 * many; i++) {
        const std::size_t bytes = 512 * (1 + i / 2 % 61);
        (i % 2 ? gone : kept).push_back({get(bytes, streams[0]), bytes});
    }
    for (auto [block, bytes] : gone) allocator->free(block, bytes, streams[0]);
    const double full = median_pair();
    for (auto [block, bytes] : kept) allocator->free(block, bytes, streams[0]);
    return {full, 0, full / empty};
}

static Result record_free() {
    void *probe = get(MIB, streams[0]);
    const bool can = allocator->record(probe, streams[1]);
    allocator->free(probe, MIB, streams[0]);
    if (!can) return {0, 0, 0, false};
    return each(rounds / 10, [] {
        void *block = get(MIB, streams[0]);
        allocator->record(block, streams[1]);
        allocator->free(block, MIB, streams[0]);
    });
}

/// Blocks that one stream freed and whose work is over are allocated on another, to and fro. The
/// first request of a batch pays for the proof. Value: MiB held at the most, where 64 are needed.
static Result steal() {
    const std::size_t many = 64;
    std::vector<void *> blocks(many);
    double took = 0;
    std::uint64_t asked = 0;
    const long batches = rounds / 640 + 4;
    used_peak_reset(0);
    for (long batch = 0; batch < batches; batch++) {
        cudaStream_t stream = streams[batch & 1];
        const std::uint64_t before = calls();
        const double begin = clock_ns();
        for (auto &block : blocks) block = get(MIB, stream);
        if (batch > 1) took += clock_ns() - begin, asked += calls() - before;
        for (auto block : blocks) allocator->free(block, MIB, stream);
        cudaStreamSynchronize(stream);
    }
    const double all = static_cast<double>((batches - 2) * static_cast<long>(many));
    return {took / all, static_cast<double>(asked) / all, static_cast<double>(used_peak(0)) / static_cast<double>(MIB)};
}

/// Random sizes up to a bound, a coin for allocate or free, on some streams, within a budget.
static Result mixed(std::size_t least, std::size_t most, std::size_t budget, std::size_t lanes, bool logarithmic) {
    struct Block {
        void *at;
        std::size_t bytes;
        cudaStream_t stream;
    };
    std::mt19937_64 random(11);
    std::vector<Block> live;
    std::size_t held = 0;
    const auto drop = [&] {
        std::swap(live[random() % live.size()], live.back());
        allocator->free(live.back().at, live.back().bytes, live.back().stream);
        held -= live.back().bytes;
        live.pop_back();
    };
    int octaves = 0;
    while ((least << (octaves + 1)) <= most) octaves++;
    Result result = each(rounds / 10, [&] {
        const std::size_t top = logarithmic ? least << (random() % static_cast<unsigned>(octaves + 1)) : most;
        const std::size_t bytes = std::max(least, 1 + random() % top);
        while (!live.empty() && held + bytes > budget) drop();
        if (!live.empty() && random() % 2) return drop();
        cudaStream_t stream = streams[random() % lanes];
        live.push_back({get(bytes, stream), bytes, stream});
        held += bytes;
    });
    while (!live.empty()) drop();
    return result;
}

/// Each request a little larger than the one before, 16 to 32 MiB. Value: the most held, over 32 MiB.
static Result creeping() {
    used_peak_reset(0);
    std::size_t step = 0;
    for (; step < 4096; step++) pair(16 * MIB + step * 4 * KIB, streams[0]);
    return {0, 0, static_cast<double>(used_peak(0)) / (32.0 * static_cast<double>(MIB))};
}
/// Weights that end a little behind a page of 20 or 2 MiB. Value: the most held, over what is live.
static Result tails() {
    used_peak_reset(0);
    std::vector<void *> blocks;
    const std::size_t sizes[] = {11 * MIB + 512, 20 * MIB + 512, 2 * MIB + 4096, 45 * MIB + 3 * KIB};
    std::size_t live = 0;
    for (int i = 0; i < 200; i++) blocks.push_back(get(sizes[i % 4], streams[0])), live += sizes[i % 4];
    const double most = static_cast<double>(used_peak(0));
    for (int i = 0; i < 200; i++) allocator->free(blocks[static_cast<std::size_t>(i)], sizes[i % 4], streams[0]);
    return {0, 0, most / static_cast<double>(live)};
}
/// Steps of alternating sequence length. Value: the most held, over what the longest step needs.
static Result alternating() {
    used_peak_reset(0);
    std::size_t need = 0;
    for (int step = 0; step < 200; step++) {
        const std::size_t length = step % 2 ? 1000 + static_cast<std::size_t>(step % 7) * 100 : 300;
        std::vector<std::pair<void *, std::size_t>> blocks;
        std::size_t live = 0;
        for (std::size_t layer = 0; layer < 24; layer++) {
            const std::size_t bytes = length * (1 + layer % 3) * 4 * KIB;
            blocks.push_back({get(bytes, streams[0]), bytes});
            live += bytes;
        }
        need = std::max(need, live);
        for (auto [block, bytes] : blocks) allocator->free(block, bytes, streams[0]);
    }
    return {0, 0, static_cast<double>(used_peak(0)) / static_cast<double>(need)};
}

int main(int count, char **arguments) {
    if (count < 2) die("suite QUICK BENCH...");
    rounds = std::atol(arguments[1]) ? 20000 : 200000;
    const auto driver = [](const char *name) { return dlsym(RTLD_DEFAULT, name); };
    calls = reinterpret_cast<std::uint64_t (*)()>(driver("simcuda_calls_total"));
    used_peak = reinterpret_cast<std::uint64_t (*)(int)>(driver("simcuda_used_peak"));
    used_peak_reset = reinterpret_cast<void (*)(int)>(driver("simcuda_used_peak_reset"));
    if (!calls || !used_peak || !used_peak_reset) die("runs on the simulated driver only: LD_PRELOAD=libsimcuda.so");
    streams.resize(8);
    if (cudaSetDevice(0)) die("no device");
    for (auto &stream : streams)
        if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)) die("no stream");
    allocator = new Allocator(0, std::size_t{76} * GIB);
    for (auto stream : streams) allocator->open(stream);
    const std::map<std::string, std::function<Result()>> all = {
        {"pair_512B", [] { return cached(512); }},
        {"pair_4KiB", [] { return cached(4 * KIB); }},
        {"pair_1MiB", [] { return cached(MIB); }},
        {"pair_64MiB", [] { return cached(64 * MIB); }},
        {"random_2048", [] { return random_live(2048, MIB); }},
        {"two_streams", two_streams},
        {"two_threads_own", [] { return two_threads(false); }},
        {"two_threads_same", [] { return two_threads(true); }},
        {"remote_free", remote_free},
        {"holes_4k", [] { return holes(4096); }},
        {"holes_16k", [] { return holes(16384); }},
        {"holes_65k", [] { return holes(65536); }},
        {"record_free", record_free},
        {"steal", steal},
        {"rmm_random", [] { return mixed(MIB, 4 * GIB, 40 * GIB, 1, false); }},
        {"rmm_streams", [] { return mixed(MIB, 256 * MIB, 8 * GIB, 8, false); }},
        {"cub_bins", [] { return mixed(512, 128 * MIB, 4 * GIB, 1, true); }},
        {"creeping", creeping},
        {"tails", tails},
        {"alternating", alternating},
        {"live_1e3", [] { return random_live(1000, 512); }},
        {"live_1e4", [] { return random_live(10000, 512); }},
        {"live_1e5", [] { return random_live(100000, 512); }},
        {"live_1e6", [] { return random_live(1000000, 512); }},
    };
    for (int i = 2; i < count; i++) {
        const auto found = all.find(arguments[i]);
        if (found == all.end()) die("which bench?");
        const Result result = found->second();
        if (result.can) std::printf("%s\t%.3f\t%.4f\t%.4f\n", arguments[i], result.ns, result.calls, result.value);
        std::fflush(stdout);
    }
    std::_Exit(0);
}
