/* Allocates and frees by the way that is named, and says what it saw; the last line is what the
 * driver was asked. */
#include "ways.h"

int main(int count, char **words) {
    static const size_t sizes[4] = {512, 100000, (3 << 20) + 5, 2 << 20};
    size_t seen = 0;
    int codes = 0;
    start(count > 1 ? words[1] : "dlsym");
    for (int round = 0; round < 50; round++) {
        CUdeviceptr blocks[4], base;
        for (int i = 0; i < 4; i++) {
            size_t bytes = 0;
            CHECK(cuMemAlloc(&blocks[i], sizes[i]));
            REQUIRE(blocks[i] % 512 == 0);
            CHECK(cuMemsetD8(blocks[i], round, sizes[i]));
            CHECK(cuMemGetAddressRange(&base, &bytes, blocks[i] + sizes[i] - 1));
            REQUIRE(base == blocks[i] && bytes == sizes[i]);
            seen += bytes;
        }
        for (int i = 0; i < 4; i++) codes += cuMemFree(blocks[i]);
        codes += 1000 * cuMemFree(blocks[0]);
    }
    printf("seen %zu codes %d findings %llu\n", seen, codes,
           (unsigned long long)simcuda_report_count());
    say_driver_calls();
    return 0;
}
