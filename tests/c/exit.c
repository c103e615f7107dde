/* The end of a process: blocks live, handlers and destructors that still call, a thread at work. */
#include "check.h"
#include <pthread.h>

static void *kept;
static pthread_barrier_t working;

static void last_words(void) {
    void *ptr = NULL;
    /* Either works or says that it is over; never crashes, never hangs. */
    int status = cuddy_malloc(&ptr, 1000, DEVICE, STREAM);
    CHECK(status == CUDDY_OK || status == CUDDY_ERROR_SHUTDOWN);
    if (status == CUDDY_OK) CHECK(cuddy_free(ptr) == CUDDY_OK);
    status = cuddy_free(kept);
    CHECK(status == CUDDY_OK || status == CUDDY_ERROR_SHUTDOWN);
    kept = NULL;
    cuddy_memory_allocated(DEVICE);
    status = cuddy_empty_cache(CUDDY_ALL_DEVICES, NULL);
    CHECK(status == CUDDY_OK || status == CUDDY_ERROR_SHUTDOWN);
}

__attribute__((destructor)) static void after_main(void) { last_words(); }

static void *work(void *unused) {
    (void)unused;
    pthread_barrier_wait(&working);
    for (;;) {
        void *ptr = NULL;
        if (cuddy_malloc(&ptr, 5000, DEVICE, STREAM) == CUDDY_OK) cuddy_free(ptr);
    }
    return NULL;
}

int main(int count, char **arguments) {
    int i;
    CHECK(atexit(last_words) == 0);
    for (i = 0; i < 10; i++) allocate((size_t)i * MIB + 1, STREAM);
    kept = allocate(1000, STREAM);
    CHECK(atexit(last_words) == 0);
    if (count > 1 && strcmp(arguments[1], "thread") == 0) {
        pthread_t thread;
        CHECK(!pthread_barrier_init(&working, NULL, 2));
        CHECK(!pthread_create(&thread, NULL, work, NULL));
        pthread_barrier_wait(&working);
    }
    return 0;
}
