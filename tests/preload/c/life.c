/* How processes begin and end, with the library in them. */
#ifdef WITHOUT_DLOPEN
#include <stdio.h>
int main(void) { return puts("a program without a loader") < 0; }
#else
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ways.h"

static CUdeviceptr kept[8];

static int use(void) {
    CUdeviceptr block;
    for (int i = 0; i < 8; i++) {
        CHECK(cuMemAlloc(&block, 1 << 20));
        CHECK(cuMemsetD8(block, 1, 1 << 20));
        CHECK(cuMemFree(block));
    }
    return 0;
}

static void at_the_end(void) {
    /* The driver may be gone: whatever it says, nothing crashes. */
    for (int i = 0; i < 8; i++) cuMemFree(kept[i]);
}

static void of_a_thread(void *block) {
    if (cuMemFree(*(CUdeviceptr *)block)) abort();
}

static pthread_key_t key;

static void *thread(void *context) {
    static __thread CUdeviceptr block;
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuMemAlloc(&block, 12345));
    pthread_setspecific(key, &block);
    return NULL;
}

static volatile int busy = 1;

static void *hammer(void *context) {
    CUdeviceptr block;
    CHECK(cuCtxSetCurrent(context));
    while (busy) {
        CHECK(cuMemAlloc(&block, 4096));
        CHECK(cuMemFree(block));
    }
    return NULL;
}

/* Children are forked while other threads are in the middle of calls. */
static int fork_busy(void *context) {
    pthread_t threads[3];
    int status;
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, hammer, context);
    for (int i = 0; i < 300; i++) {
        if (fork() == 0) {
            CUdeviceptr base;
            size_t bytes;
            alarm(20);
            _exit(cuMemGetAddressRange(&base, &bytes, 512) == 3 ? 0 : 7);
        }
        wait(&status);
        REQUIRE(status == 0);
    }
    busy = 0;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    return 0;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    int status = 0;
    if (!strcmp(what, "fork-before")) {
        if (fork() == 0) {
            start("dlsym");
            exit(use());
        }
        wait(&status);
        REQUIRE(status == 0);
        start("dlsym");
        return use();
    }
    if (!strcmp(what, "lookup-then-fork")) {
        find_functions("address2");
        if (fork() == 0) {
            start("address2");
            exit(use());
        }
        wait(&status);
        REQUIRE(status == 0);
        start("address2");
        return use();
    }
    void *context = start("address2");
    if (!strcmp(what, "fork-after")) {
        use();
        CHECK(cuMemAlloc(&kept[0], 4096));
        if (fork() == 0) {
            CUdeviceptr block;
            size_t free, total;
            int codes = cuMemAlloc(&block, 1 << 20) == 3 && cuMemFree(kept[0]) == 3;
            codes &= cuMemGetInfo(&free, &total) == 3 && cuInit(0) == 3;
            codes &= cuMemGetAddressRange(&block, &free, kept[0]) == 3;
            exit(codes ? 0 : 7);
        }
        wait(&status);
        REQUIRE(status == 0);
        return use();
    }
    if (!strcmp(what, "fork-busy")) return fork_busy(context);
    if (!strcmp(what, "exec")) {
        use();
        execl(words[0], words[0], "plain", (char *)NULL);
        return 9;
    }
    if (!strcmp(what, "threads")) {
        pthread_t threads[8];
        pthread_key_create(&key, of_a_thread);
        for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, thread, context);
        for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
        return use();
    }
    if (!strcmp(what, "static")) {
        for (int i = 0; i < 8; i++) CHECK(cuMemAlloc(&kept[i], 1000 * (i + 1)));
        atexit(at_the_end);
        return use();
    }
    return use();
}
#endif
