// One program of two halves: stream 0 is the legacy stream here, and the thread's own in the other.
#include "check.hpp"

cuddy_stream stream_of_a_block_here();

int main() {
    cuddy::buffer<char> block(512);
    CHECK(cuddy::block_info(block.data()).stream != CUDDY_STREAM_PER_THREAD);
    CHECK(stream_of_a_block_here() == CUDDY_STREAM_PER_THREAD);
    cuddy::buffer<char> again(512);
    CHECK(cuddy::block_info(again.data()).stream != CUDDY_STREAM_PER_THREAD);
    return 0;
}
