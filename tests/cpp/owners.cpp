// buffer and unique_ptr: they own, move, free once and in order, and say what went wrong.
#include "check.hpp"

#include <type_traits>
#include <vector>

using cuddy::buffer;

static_assert(!std::is_copy_constructible_v<buffer<int>> && !std::is_copy_assignable_v<buffer<int>>);
static_assert(std::is_nothrow_move_constructible_v<buffer<int>> && std::is_nothrow_move_assignable_v<buffer<int>>);
static_assert(std::is_nothrow_destructible_v<buffer<int>> && std::is_nothrow_default_constructible_v<buffer<int>>);
static_assert(!std::is_convertible_v<std::size_t, buffer<int>>, "a number is no buffer");
static_assert(!std::is_constructible_v<cuddy::stream, int>, "a device's number is no stream");
static_assert(sizeof(cuddy::unique_ptr<int>) == sizeof(int *), "the deleter is empty");

static size_t live() { return cuddy::memory_allocated(DEVICE); }

static void owning() {
    {
        buffer<float> a(1000, cuddy::legacy_stream(), DEVICE);
        SAME(a.size(), 1000);
        SAME(a.size_bytes(), 4000);
        SAME(live(), 4096);
        float *at = a.data();
        buffer<float> b = std::move(a);
        CHECK(b.data() == at && !a.data() && a.empty() && a.size_bytes() == 0);
        buffer<float> c(1, {}, DEVICE);
        c = std::move(b); // what c had is freed
        CHECK(c.data() == at && !b.data());
        SAME(live(), 4096);
        buffer<float> &same = c;
        c = std::move(same);
        CHECK(c.data() == at && c.size() == 1000);
        swap(b, c);
        CHECK(b.data() == at && c.empty());
        c.free(); // an empty one: nothing
        b.free();
        CHECK(b.empty() && live() == 0);
        b.free();
    }
    SAME(live(), 0);
    buffer<double> none(0);
    CHECK(!none.data() && none.empty());
    std::vector<buffer<char>> many;
    for (size_t i = 1; i <= 100; i++)
        many.emplace_back(i * 512);
    SAME(live(), 512 * 5050);
    many.clear();
    SAME(live(), 0);
    buffer<int> given(10);
    int *block = given.release();
    CHECK(given.empty() && live() == 512);
    cuddy::free(block);
    SAME(live(), 0);
}

static void pointers() {
    {
        auto one = cuddy::make_unique<double>();
        auto some = cuddy::make_unique<short[]>(5000, cuddy::any_stream());
        cuddy::unique_ptr<const short[]> kept = std::move(some);
        CHECK(one && kept && !some && live() == 512 + 10240);
        SAME(cuddy::block_info(kept.get()).requested, 10000);
    }
    SAME(live(), 0);
}

static void unwinding() {
    try {
        buffer<char> held(MIB);
        SAME(live(), MIB);
        buffer<char> more((size_t)1 << 40);
    } catch (const cuddy::out_of_memory &) {
    }
    SAME(live(), 0);
}

static void failing() {
    using cuddy::error;
    using cuddy::out_of_memory;
    throws<out_of_memory>(CUDDY_ERROR_OUT_OF_MEMORY, "2.00 GiB", [] { buffer<char> b((size_t)2 << 30); });
    throws<error>(CUDDY_ERROR_OUT_OF_MEMORY, "2.00 GiB", [] { cuddy::allocate((size_t)2 << 30); });
    // 2^61 doubles are 2^64 bytes: none.
    throws<out_of_memory>(CUDDY_ERROR_OUT_OF_MEMORY, "address space", [] { buffer<double> b((size_t)1 << 61); });
    throws<out_of_memory>(CUDDY_ERROR_OUT_OF_MEMORY, "address space",
                          [] { (void)cuddy::make_unique<int[]>((size_t)-1 / 2); });
    throws<error>(CUDDY_ERROR_INVALID_DEVICE, "7", [] { buffer<char> b(1, {}, 7); });
    throws<error>(CUDDY_ERROR_INVALID_ARGUMENT, "3", [] {
        cuddy::options how;
        how.alignment = 3;
        buffer<char> b(1, how);
    });
    int local = 0;
    throws<error>(CUDDY_ERROR_FOREIGN_POINTER, "", [&] { cuddy::free(&local); });
    buffer<char> twice(100);
    SAME(cuddy_free(twice.data()), CUDDY_OK);
    throws<error>(CUDDY_ERROR_DOUBLE_FREE, "", [&] { twice.free(); });
    CHECK(!twice.empty()); // as it was
    (void)twice.release();
    // The destructor of one that was freed behind its back says nothing.
    {
        buffer<char> behind(100);
        SAME(cuddy_free(behind.data()), CUDDY_OK);
    }
    SAME(live(), 0);
}

static void ordered() {
    const cuddy_stream main = new_stream(), side = new_stream();
    {
        cuddy::held_stream held(main);
        CHECK(held.get() == main);
        cuddy::held_stream captured(side, CUDDY_CURRENT_DEVICE, CUDDY_STREAM_CAPTURABLE);
        throws<cuddy::error>(CUDDY_ERROR_INVALID_ARGUMENT, "flags", [&] { cuddy::held_stream(main, 0, 2); });
        buffer<char> a(MIB, main);
        CHECK(a.stream() == main && a.stream() != side);
        char *at = a.data();
        fill(a, 1, main);
        a.free();
        buffer<char> again(MIB, main); // at once, on the same stream
        CHECK(again.data() == at);
        // Used on another stream: not reused before that is over. The checker watches.
        fill(again, 2, main);
        SAME(DRIVER(int, "cuStreamSynchronize", (cuddy_stream), (main)), 0);
        fill(again, 3, side);
        again.record_stream(side);
        again.free();
        buffer<char> third(MIB, main);
        fill(third, 4, main);
        // Given to the other stream, which waits for all its uses.
        SAME(DRIVER(int, "cuStreamSynchronize", (cuddy_stream), (main)), 0);
        SAME(DRIVER(int, "cuStreamSynchronize", (cuddy_stream), (side)), 0);
        at = third.data();
        third.free_on(side);
        buffer<char> fourth(MIB, side);
        CHECK(fourth.data() == at && third.empty());
        fill(fourth, 5, side);
        void *event = nullptr;
        SAME(DRIVER(int, "cuEventCreate", (void **, unsigned), (&event, 2)), 0);
        SAME(DRIVER(int, "cuEventRecord", (void *, cuddy_stream), (event, side)), 0);
        fourth.free_after(event);
        CHECK(fourth.empty());
        SAME(DRIVER(int, "cuEventDestroy_v2", (void *), (event)), 0);
    }
    throws<cuddy::error>(CUDDY_ERROR_INVALID_STREAM, "", [&] { cuddy::check(cuddy_stream_retire(DEVICE, main)); });
    for (cuddy_stream each : {main, side})
        destroy_stream(each);
}

// Lives longer than main.
static buffer<char> &outliving() {
    static buffer<char> kept(12345);
    return kept;
}

int main() {
    use_device();
    owning();
    pointers();
    unwinding();
    failing();
    ordered();
    SAME(outliving().size(), 12345);
    return 0;
}
