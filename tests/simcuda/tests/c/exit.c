/* A test program in C: what a program finds when it calls the driver while the process ends. Handlers
 * run in the reverse order of their registration, and the driver shuts down between these two. */
#include <stdio.h>
#include <stdlib.h>

int cuInit(unsigned int flags);
int cuCtxCreate_v2(void **ctx, unsigned int flags, int dev);
int cuMemAlloc_v2(unsigned long long *ptr, size_t bytes);
int cuMemFree_v2(unsigned long long ptr);
int cuDriverGetVersion(int *version);

static unsigned long long block;

static void after_the_driver(void) {
    int version;
    printf("after %d %d\n", cuMemFree_v2(block), cuDriverGetVersion(&version));
    fflush(stdout);
}

static void before_the_driver(void) {
    printf("before %d\n", cuMemFree_v2(block));
    fflush(stdout);
}

int main(void) {
    void *context;
    atexit(after_the_driver);
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0) || cuMemAlloc_v2(&block, 64)) return 3;
    atexit(before_the_driver);
    return 0;
}
