/* Forks: before the first use both sides work; afterwards the child is told, and the parent goes on. */
#include "check.h"
#include <sys/types.h>
#include <sys/wait.h>

static void works(void) {
    void *ptr = allocate(5000, STREAM);
    OK(cuddy_free(ptr));
}

static void is_told(void *parents) {
    void *ptr = NULL;
    size_t size = 0;
    int i;
    /* A lock that another thread held must not stop us. */
    alarm(20);
    for (i = 0; i < 2; i++) {
        FAILS(CUDDY_ERROR_FORKED, cuddy_malloc(&ptr, 1000, DEVICE, STREAM));
        SAYS("fork");
        FAILS(CUDDY_ERROR_FORKED, cuddy_free(parents));
        FAILS(CUDDY_ERROR_FORKED, cuddy_record_stream(parents, STREAM));
        FAILS(CUDDY_ERROR_FORKED, cuddy_empty_cache(CUDDY_ALL_DEVICES, &size));
        FAILS(CUDDY_ERROR_FORKED, cuddy_stream_open(DEVICE, STREAM));
        FAILS(CUDDY_ERROR_FORKED, cuddy_mem_get_info(DEVICE, &size, &size));
    }
    CHECK(ptr == NULL);
    OK(cuddy_free(NULL));
}

static void in_child(void (*body)(void *), void *with) {
    int status = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        body(with);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void works_in_child(void *unused) {
    (void)unused;
    works();
}

int main(void) {
    void *kept;
    in_child(works_in_child, NULL);
    works();
    kept = allocate(1000, STREAM);
    in_child(is_told, kept);
    in_child(is_told, kept);
    works();
    SAME(block_of(kept).requested, 1000);
    OK(cuddy_free(kept));
    SAME(cuddy_memory_allocated(DEVICE), 0);
    return 0;
}
