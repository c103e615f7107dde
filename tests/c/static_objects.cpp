// Objects that live longer than main: their destructors free in whatever order they come.
#include "check.h"

#include <memory>
#include <thread>
#include <vector>

namespace {
struct Buffer {
    void *ptr = nullptr;
    explicit Buffer(size_t bytes) { OK(cuddy_malloc(&ptr, bytes, DEVICE, STREAM)); }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    ~Buffer() {
        const cuddy_status status = cuddy_free(ptr);
        CHECK(status == CUDDY_OK || status == CUDDY_ERROR_SHUTDOWN);
    }
};

// Before main, before Cuddy was ever called from it.
Buffer before_main(1000);
std::vector<std::unique_ptr<Buffer>> many;

Buffer &first_use() {
    static Buffer buffer(5000);
    return buffer;
}

thread_local std::unique_ptr<Buffer> of_thread;
} // namespace

int main() {
    first_use();
    for (size_t i = 1; i < 20; i++) many.push_back(std::make_unique<Buffer>(i * MIB));
    of_thread = std::make_unique<Buffer>(7);
    std::thread([] { of_thread = std::make_unique<Buffer>(3000); }).join();
    SAME(stats_of(DEVICE).live_block_count, 22);
    return 0;
}
