// pool and its guard, and the functions that watch and give back.
#include "check.hpp"

#include <optional>
#include <thread>

static void pools() {
    cuddy::pool outer(DEVICE, 16 * MIB), inner(DEVICE);
    SAME(outer.stats().limit, 16 * MIB);
    std::optional<cuddy::buffer<char>> survivor;
    {
        cuddy::pool::guard in(outer);
        cuddy::buffer<char> a(3 * MIB);
        SAME(outer.stats().allocated, 3 * MIB);
        try {
            cuddy::pool::guard deeper(inner);
            survivor.emplace(MIB);
            SAME(inner.stats().allocated, MIB);
            // Another thread is not in it.
            std::thread([] { cuddy::buffer<char> elsewhere(2 * MIB); }).join();
            SAME(inner.stats().allocated_peak, MIB);
            throw 1;
        } catch (int) {
        }
        cuddy::buffer<char> b(MIB); // the outer one again
        SAME(outer.stats().allocated, 4 * MIB);
        throws<cuddy::out_of_memory>(CUDDY_ERROR_OUT_OF_MEMORY, "16.0 MiB", [] { cuddy::buffer<char> c(20 * MIB); });
    }
    SAME(outer.stats().allocated, 0);
    outer.reset_peak_stats();
    SAME(outer.stats().allocated_peak, 0);
    CHECK(outer.trim() >= 4 * MIB && outer.stats().reserved == 0);
    outer.set_limit(0);
    SAME(outer.stats().limit, UINT64_MAX);

    // By name, without a guard; and it ends before its block.
    cuddy::options how;
    how.pool = inner.id();
    how.alignment = MIB;
    cuddy::buffer<int> aligned(10, how);
    SAME((uintptr_t)aligned.data() % MIB, 0);
    const cuddy_pool id = inner.id();
    cuddy::pool moved = std::move(inner);
    CHECK(moved.id() == id && inner.id() == 0);
    moved = cuddy::pool(DEVICE);
    throws<cuddy::error>(CUDDY_ERROR_INVALID_POOL, "", [&] {
        cuddy::options gone;
        gone.pool = id;
        cuddy::buffer<int> none(1, gone);
    });
    SAME(cuddy::block_info(aligned.data()).requested, 40);
}

static void watching() {
    cuddy::empty_cache(CUDDY_ALL_DEVICES);
    SAME(cuddy::memory_reserved(), 0);
    cuddy::reset_peak_memory_stats();
    {
        cuddy::buffer<char> a(10 * MIB), b(MIB);
        SAME(cuddy::memory_allocated(), 11 * MIB);
        const cuddy_stats stats = cuddy::memory_stats();
        SAME(stats.allocated, 11 * MIB);
        SAME(stats.struct_size, sizeof stats);
        const std::string table = cuddy::memory_summary(DEVICE);
        CHECK(table.find("11.0 MiB") != table.npos && table.find('\0') == table.npos);
    }
    SAME(cuddy::max_memory_allocated(), 11 * MIB);
    CHECK(cuddy::max_memory_reserved() >= 11 * MIB);
    const size_t reserved = cuddy::memory_reserved();
    SAME(cuddy::trim(0), reserved);
    const cuddy::memory_info info = cuddy::mem_get_info();
    SAME(info.total, 512 * MIB);
    SAME(info.free, 512 * MIB);
    cuddy::set_memory_limit(8 * MIB);
    SAME(cuddy::mem_get_info().free, 8 * MIB);
    throws<cuddy::out_of_memory>(CUDDY_ERROR_OUT_OF_MEMORY, "8.00 MiB", [] { cuddy::buffer<char> c(9 * MIB); });
    cuddy::set_memory_limit(0);
    throws<cuddy::error>(CUDDY_ERROR_INVALID_DEVICE, "7", [] { cuddy::empty_cache(7); });
}

static void scopes() {
    cuddy::record_history(100);
    std::optional<cuddy::buffer<char>> kept;
    try {
        cuddy::scope outer("outer");
        cuddy::scope inner(std::string("inner"));
        kept.emplace(1000);
        throw 1;
    } catch (int) {
    }
    CHECK(cuddy::leaks("outer/inner").find("\"requested\":1000,") != std::string::npos);
    kept.reset();
    CHECK(cuddy::leaks("outer") == "[]");
    CHECK(cuddy::scopes().find("\"path\":\"outer/inner\",\"runs\":1,") != std::string::npos);
    CHECK(cuddy::snapshot().find("cuddy-snapshot") != std::string::npos);
    cuddy::record_history(0);
}

int main() {
    scopes();
    pools();
    watching();
    return 0;
}
