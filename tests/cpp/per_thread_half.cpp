// The half of per_thread.cpp that is compiled for per-thread default streams.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include <cuddy.hpp>

cuddy_stream stream_of_a_block_here() {
    cuddy::buffer<char> block(512);
    return cuddy::block_info(block.data()).stream;
}
