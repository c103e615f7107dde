/* Compiled for per-thread default streams: stream 0 is the thread's own. */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1
#include "check.h"
#include <pthread.h>

static void *work(void *unused) {
    cuddy_request request;
    void *ptr = NULL;
    (void)unused;
    ptr = allocate(4000, NULL);
    CHECK(block_of(ptr).stream == CUDDY_STREAM_PER_THREAD);
    OK(cuddy_record_stream(ptr, NULL));
    OK(cuddy_free(ptr));
    memset(&request, 0, sizeof request);
    request.struct_size = sizeof request;
    request.bytes = 5;
    OK(cuddy_malloc_ex(&ptr, &request));
    CHECK(block_of(ptr).stream == CUDDY_STREAM_PER_THREAD);
    OK(cuddy_free(ptr));
    OK(cuddy_stream_open(DEVICE, NULL));
    return NULL;
}

int main(void) {
    pthread_t thread;
    cuddy_status (*by_address)(void **, size_t, int, cuddy_stream) = cuddy_malloc;
    void *ptr = NULL;
    work(NULL);
    CHECK(!pthread_create(&thread, NULL, work, NULL));
    CHECK(!pthread_join(thread, NULL));
    OK(by_address(&ptr, 1, DEVICE, NULL));
    CHECK(block_of(ptr).stream == CUDDY_STREAM_PER_THREAD);
    OK(cuddy_free(ptr));
    SAME(cuddy_memory_allocated(DEVICE), 0);
    return 0;
}
