/* A machine without CUDA: a clear error from everything that needs it, and no other effect. */
#include "check.h"

int main(void) {
    void *ptr = NULL;
    size_t size = 7;
    int i;
    for (i = 0; i < 2; i++) {
        FAILS(CUDDY_ERROR_NO_DRIVER, cuddy_malloc(&ptr, 1000, DEVICE, STREAM));
        SAYS("libcuda.so.1");
        FAILS(CUDDY_ERROR_NO_DRIVER, cuddy_malloc(&ptr, 1000, CUDDY_CURRENT_DEVICE, STREAM));
        FAILS(CUDDY_ERROR_NO_DRIVER, cuddy_mem_get_info(DEVICE, &size, &size));
        FAILS(CUDDY_ERROR_FOREIGN_POINTER, cuddy_free(&ptr));
        SAME(cuddy_memory_allocated(DEVICE), 0);
    }
    CHECK(ptr == NULL);
    SAME(size, 7);
    OK(cuddy_free(NULL));
    OK(cuddy_set_option("caching", "off"));
    return 0;
}
