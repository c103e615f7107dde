/* A plugin with its own symbols first, a driver in a namespace of its own, and the next library. */
#include "ways.h"

extern int answer(void);

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    void *plugin = dlopen(getenv("PLUGIN"), RTLD_NOW | (strcmp(what, "deepbind") ? 0 : RTLD_DEEPBIND));
    REQUIRE(plugin);
    start("address2");
    if (!strcmp(what, "deepbind") || !strcmp(what, "plugin")) {
        int (*plugin_alloc)(CUdeviceptr *, size_t);
        CUdeviceptr a;
        *(void **)&plugin_alloc = dlsym(plugin, "plugin_alloc");
        for (int i = 0; i < 10; i++) {
            CHECK(plugin_alloc(&a, 4096));
            CHECK(cuMemFree(a));
            CHECK(cuMemAlloc(&a, 4096));
            CHECK(cuMemFree(a));
        }
    }
    if (!strcmp(what, "namespace")) {
        CUdeviceptr a, b;
        void *context, *copy = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);
        int (*init)(unsigned), (*retain)(void **, int), (*set)(void *);
        int (*alloc)(CUdeviceptr *, size_t), (*free)(CUdeviceptr);
        uint64_t (*calls)(const char *);
        REQUIRE(copy);
        *(void **)&init = dlsym(copy, "cuInit");
        *(void **)&retain = dlsym(copy, "cuDevicePrimaryCtxRetain");
        *(void **)&set = dlsym(copy, "cuCtxSetCurrent");
        *(void **)&alloc = dlsym(copy, "cuMemAlloc_v2");
        *(void **)&free = dlsym(copy, "cuMemFree_v2");
        *(void **)&calls = dlsym(copy, "simcuda_calls");
        REQUIRE(calls != simcuda_calls);
        CHECK(init(0));
        CHECK(retain(&context, 0));
        CHECK(set(context));
        for (int i = 0; i < 10; i++) {
            CHECK(cuMemAlloc(&a, 4096));
            CHECK(alloc(&b, 8192));
            CHECK(cuMemFree(a));
            CHECK(free(b));
        }
        printf("the copy: %llu %llu\n", (unsigned long long)calls("cuMemAlloc"), (unsigned long long)calls("cuMemFree"));
    }
    if (!strcmp(what, "next")) printf("%d\n", answer());
    if (!strcmp(what, "versions")) {
        void *(*by_version)(void *, const char *, const char *);
        *(void **)&by_version = dlsym(plugin, "by_version");
        void *driver = dlopen("libcuda.so.1", RTLD_NOW), *libc = dlopen("libc.so.6", RTLD_NOW);
        printf("%d %d %d\n", by_version(driver, "cuMemAlloc_v2", "LIBCUDA_1") != NULL,
               by_version(libc, "memcpy", "GLIBC_2.14") != NULL,
               by_version(libc, "memcpy", "GLIBC_9.9") != NULL);
        printf("%d %s\n", dlsym(driver, "cuNoSuch") != NULL, dlerror() ? "an error" : "no error");
        printf("%d %s\n", dlsym(driver, "cuMemAlloc_v2") != NULL, dlerror() ? "an error" : "no error");
    }
    say_driver_calls();
    return 0;
}
