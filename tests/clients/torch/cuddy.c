/* cuddy.c: Cuddy behind torch's pluggable allocator: its functions in the shape that torch calls. */
#include <cuddy.h>
#include <stdio.h>

void *torch_alloc(size_t bytes, int device, cuddy_stream stream) {
    void *block = NULL;
    if (cuddy_malloc(&block, bytes, device, stream) != CUDDY_OK)
        fprintf(stderr, "%s\n", cuddy_last_error());
    return block;
}

void torch_free(void *block, size_t bytes, int device, cuddy_stream stream) {
    (void)bytes, (void)device, (void)stream;
    if (cuddy_free(block) != CUDDY_OK)
        fprintf(stderr, "%s\n", cuddy_last_error());
}

void torch_record(void *block, cuddy_stream stream) {
    if (cuddy_record_stream(block, stream) != CUDDY_OK)
        fprintf(stderr, "%s\n", cuddy_last_error());
}

void torch_reset(void) {
    cuddy_empty_cache(CUDDY_ALL_DEVICES, NULL);
}
