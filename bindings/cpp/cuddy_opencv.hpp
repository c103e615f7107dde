// cuddy_opencv.hpp: Cuddy as the allocator of OpenCV's GPU matrices (cv::cuda::GpuMat), OpenCV 3 to 5.
//
//     #include <cuddy_opencv.hpp>
//
//     static cuddy::opencv_allocator memory;              // must outlive the last matrix
//     cv::cuda::GpuMat::setDefaultAllocator(&memory);     // every matrix from now on
//     cv::cuda::GpuMat frame(1080, 1920, CV_8UC3);        // or one: GpuMat frame(&memory)
//
// OpenCV's headers are needed, and its core library, as for every GpuMat.

#ifndef CUDDY_OPENCV_HPP
#define CUDDY_OPENCV_HPP

#include <cuddy.hpp>

#include <opencv2/core/cuda.hpp>

namespace cuddy {
inline namespace CUDDY_DEFAULT_STREAMS {

// Matrices on the current device of each call, or on the one that is named.
//
// OpenCV does not say which streams use a matrix. So a matrix is of no stream in particular, as with
// cudaMalloc(): any may use it at once, and its memory is reused when all work that the device had at
// its free is over, without a wait of the host. A program that uses one stream only can name it: then
// reuse is in its order, which is cheaper. Thread-safe.
class opencv_allocator : public cv::cuda::GpuMat::Allocator {
public:
    explicit opencv_allocator(stream on = any_stream(), int device = CUDDY_CURRENT_DEVICE) noexcept
        : stream_(on), device_(device) {}

    // Rows begin at multiples of this many bytes, as cudaMallocPitch() has them.
    static constexpr std::size_t pitch = 512;

    // Called by GpuMat::create(). False where there is no memory: OpenCV then tries its own allocator,
    // and throws if that has none; cuddy_last_error() explains.
    bool allocate(cv::cuda::GpuMat *matrix, int rows, int columns, std::size_t element_bytes) override {
        const std::size_t row = element_bytes * static_cast<std::size_t>(columns);
        // A single row or column is continuous: OpenCV relies on it.
        const std::size_t step = rows > 1 && columns > 1 ? (row + pitch - 1) / pitch * pitch : row;
        void *block = nullptr;
        const std::size_t bytes = step * static_cast<std::size_t>(rows);
        if (cuddy_malloc(&block, bytes, device_, stream_.get()) != CUDDY_OK)
            return false;
        int *count = nullptr;
        try {
            count = static_cast<int *>(cv::fastMalloc(sizeof *count));
        } catch (...) {
            (void)cuddy_free(block);
            throw;
        }
        matrix->data = static_cast<uchar *>(block);
        matrix->step = step;
        matrix->refcount = count; // OpenCV sets it to one
        return true;
    }

    // Called for the last matrix that shares the memory.
    void free(cv::cuda::GpuMat *matrix) override {
        (void)cuddy_free(matrix->datastart);
        cv::fastFree(matrix->refcount);
    }

private:
    stream stream_;
    int device_;
};

} // inline namespace
} // namespace cuddy

#endif
