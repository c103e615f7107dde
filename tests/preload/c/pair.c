/* Pairs of an allocation and a free, and what they cost: ns a pair with the library, and ns of the
 * driver calls that the library makes for one, as the program itself makes them. */
#include <time.h>

#include "ways.h"

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

/* One function of its own, so that a profiler finds it. */
__attribute__((noinline)) static void pairs(long many) {
    CUdeviceptr a;
    for (long i = 0; i < many; i++) {
        CHECK(cuMemAlloc(&a, 65536));
        CHECK(cuMemFree(a));
    }
}

int main(int count, char **words) {
    long many = count > 1 ? atol(words[1]) : 1000;
    void *context = start("dlsym"), *event, *now_current;
    int (*record)(void *, void *), (*query)(void *), (*wait)(void);
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&record = dlsym(library, "cuCtxRecordEvent");
    *(void **)&query = dlsym(library, "cuEventQuery");
    *(void **)&wait = dlsym(library, "cuCtxSynchronize"); /* hooked, for a few ns */
    const char *calls[] = {"cuCtxGetCurrent", "cuCtxRecordEvent", "cuEventQuery", "cuCtxSynchronize"};
    uint64_t before[4], made[4];
    pairs(100); /* what happens once */
    CHECK(cuEventCreate(&event, 2));
    for (int i = 0; i < 4; i++) before[i] = simcuda_calls(calls[i]);
    double begun = now();
    pairs(many);
    double all = now() - begun;
    for (int i = 0; i < 4; i++) made[i] = simcuda_calls(calls[i]) - before[i];
    begun = now();
    for (uint64_t i = 0; i < made[0]; i++) cuCtxGetCurrent(&now_current);
    for (uint64_t i = 0; i < made[1]; i++) record(context, event), query(event);
    for (uint64_t i = 0; i < made[3]; i++) wait();
    double theirs = now() - begun;
    for (int i = 0; i < 4; i++) printf("%s %.2f\n", calls[i], (double)made[i] / many);
    printf("pair %.1f driver %.1f\n", all / many, theirs / many);
    return 0;
}
