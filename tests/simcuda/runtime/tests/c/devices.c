/* Devices: which is the thread's, when its context comes to be, properties, peers, a reset. */
#include "runtime.h"
#include <pthread.h>

static uint64_t (*contexts_created)(int);

static void *elsewhere(void *unused) {
    int device = 9;
    OK(cudaGetDevice(&device));
    IS(device, 0);
    return unused;
}

static long number(const char *at, size_t place) {
    int value;
    memcpy(&value, at + place, sizeof value);
    return value;
}

int main(void) {
    void *driver = dlopen("libcuda.so.1", 2);
    contexts_created = (uint64_t(*)(int))dlsym(driver, "simcuda_contexts_created");
    int count = 0, device = 9, can = 0;
    OK(cudaGetDeviceCount(&count));
    IS(count, 2);
    OK(cudaGetDevice(&device));
    IS(device, 0);
    IS(contexts_created(0), 0);
    OK(cudaSetDevice(1));
    IS(contexts_created(0), 0);
    IS(contexts_created(1), 1);
    OK(cudaGetDevice(&device));
    IS(device, 1);
    pthread_t thread;
    IS(pthread_create(&thread, 0, elsewhere, 0), 0);
    IS(pthread_join(thread, 0), 0);
    IS(cudaSetDevice(2), 101);
    IS(cudaSetDevice(-1), 101);
    OK(cudaGetDevice(&device));
    IS(device, 1);

    /* Somebody takes the context away: the next call makes it current again. */
    int (*set_current)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
    OK(set_current(0));
    void *on_1, *on_0;
    OK(cudaMalloc(&on_1, 1 << 20));
    struct cudaPointerAttributes what;
    OK(cudaPointerGetAttributes(&what, on_1));
    IS(what.device, 1);
    IS(contexts_created(1), 1);

    OK(cudaSetDevice(0));
    OK(cudaMalloc(&on_0, 1 << 20));
    OK(cudaDeviceCanAccessPeer(&can, 0, 1));
    IS(can, 1);
    OK(cudaDeviceEnablePeerAccess(1, 0));
    IS(cudaDeviceEnablePeerAccess(1, 0), 704);
    OK(cudaMemset(on_0, 3, 1 << 20));
    OK(cudaMemcpyPeer(on_1, 1, on_0, 0, 1 << 20));
    unsigned char byte = 0;
    OK(cudaMemcpy(&byte, (char *)on_1 + 1000, 1, ToHost));
    IS(byte, 3);

    /* Places as offsetof gives them with the headers of 12.8 and of 13.0. */
    char properties[2048];
    memset(properties, 0x77, sizeof properties);
    OK(cudaGetDeviceProperties(properties, 1));
    IS(strstr(properties, "Simulated GPU 1") == 0, 0);
#if CUDA >= 13
    size_t size = 1008, major = 360, processors = 384, bus = 568;
#else
    size_t size = 1032, major = 360, processors = 388, bus = 584;
#endif
    IS((unsigned char)properties[size - 1], 0);
    IS((unsigned char)properties[size], 0x77);
    IS(number(properties, major), 9);
    IS(number(properties, processors), 132);
    IS(number(properties, bus), 2);
    IS(cudaGetDeviceProperties(properties, 2), 101);

    /* A reset takes all of the device's, and the device is as new. */
    OK(cudaDeviceReset());
    IS(cudaFree(on_0), 1);
    OK(cudaMalloc(&on_0, 1 << 20));
    IS(contexts_created(0), 2);
    OK(cudaFree(on_0));
    OK(cudaSetDevice(1));
    OK(cudaFree(on_1));
    return 0;
}
