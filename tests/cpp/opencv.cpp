// opencv_allocator, called as OpenCV's GpuMat calls it. An OpenCV without CUDA makes no matrix itself.
#include "check.hpp"

#include <cuddy_opencv.hpp>

static void get(cuddy::opencv_allocator &memory, cv::cuda::GpuMat &matrix, int rows, int columns, size_t element) {
    CHECK(memory.allocate(&matrix, rows, columns, element));
    matrix.datastart = matrix.data;
    *matrix.refcount = 1;
}

static void give(cuddy::opencv_allocator &memory, cv::cuda::GpuMat &matrix) {
    memory.free(&matrix);
    matrix.data = matrix.datastart = nullptr;
    matrix.refcount = nullptr;
}

int main() {
    use_device();
    cuddy::opencv_allocator memory;
    cv::cuda::GpuMat frame(&memory);
    get(memory, frame, 1080, 1919, 3);
    SAME(frame.step % cuddy::opencv_allocator::pitch, 0);
    CHECK(frame.step >= 1919 * 3);
    SAME(cuddy::block_info(frame.data).requested, frame.step * 1080);
    SAME(cuddy::block_info(frame.data).stream, (uintptr_t)CUDDY_STREAM_ANY);
    give(memory, frame);
    SAME(cuddy::memory_allocated(), 0);

    // A row, a column and nothing are continuous.
    for (auto [rows, columns] : {std::pair{1, 1000}, {1000, 1}, {0, 0}}) {
        get(memory, frame, rows, columns, 4);
        SAME(frame.step, columns * 4);
        give(memory, frame);
    }

    // Work that is under way when a matrix ends is over before its memory is used again: the checker
    // would abort. A second stream gets what the first one used.
    cuddy_stream first = new_stream(), second = new_stream();
    for (cuddy_stream stream : {first, second, first}) {
        get(memory, frame, 64, 64 << 10, 1);
        SAME(DRIVER(int, "cuMemsetD8Async", (uint64_t, unsigned char, size_t, cuddy_stream),
                    ((uint64_t)frame.data, 7, frame.step * 64, stream)),
             0);
        give(memory, frame);
    }

    // With one stream, in its order: the same memory at once.
    cuddy::opencv_allocator ordered(cuddy::legacy_stream(), DEVICE);
    get(ordered, frame, 100, 100, 1);
    const uchar *before = frame.data;
    give(ordered, frame);
    get(ordered, frame, 100, 100, 1);
    CHECK(frame.data == before);
    give(ordered, frame);

    // No memory: OpenCV is told, and nothing was touched.
    CHECK(!memory.allocate(&frame, 1 << 20, 1 << 20, 1));
    CHECK(frame.data == nullptr && frame.refcount == nullptr);
    SAME(cuddy::memory_allocated(), 0);
    return 0;
}
