// A component with a budget of its own, which gives up its cache when the budget is spent.
#include <cuddy.hpp>

#include <cstdio>
#include <vector>

namespace {

// What could be computed again: thumbnails, say.
std::vector<cuddy::buffer<float>> thumbnails;

// Called when a request finds no memory, with no lock held. What it frees serves the request.
void give_up_the_cache(const cuddy_event *event, void *) {
    std::printf("short of %llu MiB: %zu thumbnails go\n",
                static_cast<unsigned long long>(event->bytes >> 20), thumbnails.size());
    thumbnails.clear();
}

} // namespace

int main() {
    cuddy_observer observer = 0;
    cuddy::check(cuddy_observe(&observer, CUDDY_EVENT_OUT_OF_MEMORY, give_up_the_cache, nullptr));

    cuddy::pool images(0, 256 << 20); // 256 MiB of device 0
    {
        cuddy::pool::guard in(images);
        for (int i = 0; i < 24; i++) thumbnails.emplace_back(2 << 20); // 8 MiB each
        cuddy::buffer<float> image(32 << 20);                          // 128 MiB, 64 are left
        std::printf("in the pool: %llu MiB\n",
                    static_cast<unsigned long long>(images.stats().allocated >> 20));
    }
    cuddy::buffer<float> other(128 << 20); // 512 MiB: not of the pool, so not of its budget
    std::printf("elsewhere: %zu MiB\n", other.size() * sizeof(float) >> 20);
    cuddy::check(cuddy_unobserve(observer));
    return 0;
}

// Prints:
// short of 128 MiB: 24 thumbnails go
// in the pool: 128 MiB
// elsewhere: 512 MiB
