/* Two processes and one allocation: the parent exports it, frees it and goes on; the child reads it
 * all the while. The child starts this program once more, preloaded or not. */
#include <sys/wait.h>
#include <unistd.h>

#include "ways.h"

#define BYTES (1 << 20)

struct handle {
    char bytes[64];
};

static int said_to_child[2], said_to_parent[2];

static void tell(int to, const void *what, size_t bytes) {
    REQUIRE(write(to, what, bytes) == (ssize_t)bytes);
}

static void hear(int from, void *what, size_t bytes) {
    REQUIRE(read(from, what, bytes) == (ssize_t)bytes);
}

static int import(int from, int to) {
    int (*open)(CUdeviceptr *, struct handle, unsigned), (*close)(CUdeviceptr);
    struct handle handle;
    CUdeviceptr a;
    static unsigned char bytes[BYTES];
    char go;
    start("address2");
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&open = dlsym(library, "cuIpcOpenMemHandle_v2");
    *(void **)&close = dlsym(library, "cuIpcCloseMemHandle");
    for (int round = 0; round < 20; round++) {
        hear(from, &handle, sizeof handle);
        CHECK(open(&a, handle, 1));
        for (int look = 0; look < 2; look++) {
            CHECK(cuMemcpyDtoH(bytes, a, BYTES));
            for (int i = 0; i < BYTES; i++) REQUIRE(bytes[i] == round + 1);
            tell(to, "k", 1);
            hear(from, &go, 1);
        }
        CHECK(close(a));
        tell(to, "k", 1);
    }
    return 0;
}

static void export(void) {
    struct handle handle;
    char heard;
    int inside = 0;
    for (int round = 0; round < 20; round++) {
        CUdeviceptr a, all[4], now;
        size_t bytes;
        CHECK(cuMemAlloc(&a, BYTES));
        CHECK(cuMemsetD8(a, round + 1, BYTES));
        CHECK(cuCtxSynchronize());
        CHECK(cuIpcGetMemHandle(&handle, a));
        tell(said_to_child[1], &handle, sizeof handle);
        hear(said_to_parent[0], &heard, 1);
        /* Memory of the same size comes and goes: none of it is what the child reads. */
        for (int i = 0; i < 4; i++) {
            CHECK(cuMemAlloc(&all[i], BYTES));
            CHECK(cuMemsetD8(all[i], 99, BYTES));
        }
        for (int i = 0; i < 4; i++) {
            REQUIRE(all[i] != a);
            CHECK(cuMemFree(all[i]));
        }
        CHECK(cuCtxSynchronize());
        tell(said_to_child[1], "g", 1);
        hear(said_to_parent[0], &heard, 1);
        tell(said_to_child[1], "g", 1);
        hear(said_to_parent[0], &heard, 1);
        CHECK(cuMemFree(a));
        /* Freed, it is the driver's: nothing of ours has it. */
        inside += cuMemGetAddressRange(&now, &bytes, a) == 0;
    }
    printf("freed and still known: %d\n", inside);
}

int main(int count, char **words) {
    int status;
    if (count > 2) return import(atoi(words[1]), atoi(words[2]));
    REQUIRE(!pipe(said_to_child) && !pipe(said_to_parent));
    pid_t child = fork();
    if (!child) {
        char from[16], to[16];
        snprintf(from, sizeof from, "%d", said_to_child[0]);
        snprintf(to, sizeof to, "%d", said_to_parent[1]);
        if (count > 1 && !strcmp(words[1], "alone")) unsetenv("LD_PRELOAD");
        execl("/proc/self/exe", words[0], from, to, NULL);
        _exit(3);
    }
    start("address2");
    export();
    waitpid(child, &status, 0);
    printf("importer %d\nfindings %llu\n", WEXITSTATUS(status), (unsigned long long)simcuda_report_count());
    say_driver_calls();
    return 0;
}
