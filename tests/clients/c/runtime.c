/* runtime.c: a C program on the runtime API, compiled with the vendor's own cuda_runtime_api.h and
 * linked with -lcudart. */
#include "behaviour.h"
#include <cuda_runtime_api.h>
#include <pthread.h>

enum { MIB = 1 << 20 };

static void devices(void) {
    int count, driver, runtime;
    struct cudaDeviceProp properties;
    OK(cudaGetDeviceCount(&count));
    HOLDS(count == 2);
    OK(cudaDriverGetVersion(&driver));
    OK(cudaRuntimeGetVersion(&runtime));
    HOLDS(driver >= 12000 && runtime / 1000 == 12);
    OK(cudaGetDeviceProperties(&properties, 1));
    HOLDS(strstr(properties.name, "simcuda") && properties.totalGlobalMem == (size_t)24 << 30);
    behaved("devices, versions and properties");
}

static void copies(void) {
    unsigned char *from, *to, *a, *b;
    OK(cudaHostAlloc((void **)&from, MIB, cudaHostAllocDefault));
    OK(cudaMallocHost((void **)&to, MIB));
    OK(cudaMalloc((void **)&a, MIB));
    OK(cudaMalloc((void **)&b, MIB));
    if (broken) return behaved("copies keep their data, all directions");
    for (int i = 0; i < MIB; i++) from[i] = (unsigned char)(i * 7 + i / 256);
    for (int round = 0; round < 100; round++) {
        memset(to, 0, MIB);
        OK(cudaMemcpyAsync(a, from, MIB, cudaMemcpyHostToDevice, 0));
        OK(cudaMemcpyAsync(b, a, MIB, cudaMemcpyDefault, 0));
        OK(cudaMemcpy(to, b, MIB, cudaMemcpyDeviceToHost));
        HOLDS(memcmp(from, to, MIB) == 0);
    }
    struct cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, a + 100));
    HOLDS(attributes.type == cudaMemoryTypeDevice && attributes.device == 0);
    OK(cudaPointerGetAttributes(&attributes, from));
    HOLDS(attributes.type == cudaMemoryTypeHost);
    OK(cudaFree(a));
    OK(cudaFree(b));
    OK(cudaFreeHost(from));
    OK(cudaFreeHost(to));
    behaved("copies keep their data, all directions");
}

static void streams(void) {
    cudaStream_t first, second;
    cudaEvent_t event;
    unsigned char *memory, *host;
    OK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    OK(cudaStreamCreate(&second));
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    OK(cudaMallocHost((void **)&host, MIB));
    if (broken) return behaved("streams, events and memory in stream order");
    for (int round = 0; round < 100; round++) {
        OK(cudaMallocAsync((void **)&memory, MIB, first));
        OK(cudaMemsetAsync(memory, round, MIB, first));
        OK(cudaEventRecord(event, first));
        OK(cudaStreamWaitEvent(second, event, 0));
        OK(cudaMemcpyAsync(host, memory, MIB, cudaMemcpyDeviceToHost, second));
        OK(cudaFreeAsync(memory, second));
        OK(cudaStreamSynchronize(second));
        HOLDS(host[0] == round && host[MIB - 1] == round);
    }
    OK(cudaFreeHost(host));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(first));
    OK(cudaStreamDestroy(second));
    behaved("streams, events and memory in stream order");
}

static void graphs(void) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned char *memory, *host;
    size_t nodes = 0;
    OK(cudaStreamCreate(&stream));
    OK(cudaMallocHost((void **)&host, MIB));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaMallocAsync((void **)&memory, MIB, stream));
    OK(cudaMemsetAsync(memory, 5, MIB, stream));
    OK(cudaMemcpyAsync(host, memory, MIB, cudaMemcpyDeviceToHost, stream));
    OK(cudaFreeAsync(memory, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphGetNodes(graph, NULL, &nodes));
    HOLDS(nodes == 4);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    if (broken) return behaved("a captured graph with memory of its own");
    for (int launches = 0; launches < 100; launches++) {
        host[0] = host[MIB - 1] = 0;
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaStreamSynchronize(stream));
        HOLDS(host[0] == 5 && host[MIB - 1] == 5);
    }
    OK(cudaDeviceGraphMemTrim(0));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaFreeHost(host));
    OK(cudaStreamDestroy(stream));
    behaved("a captured graph with memory of its own");
}

static void errors(void) {
    void *memory;
    OK(cudaGetLastError());
    GIVES(cudaMalloc(&memory, (size_t)1 << 50), cudaErrorMemoryAllocation);
    GIVES(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
    GIVES(cudaGetLastError(), cudaErrorMemoryAllocation);
    OK(cudaGetLastError());
    GIVES(cudaSetDevice(7), cudaErrorInvalidDevice);
    HOLDS(strcmp(cudaGetErrorName(cudaGetLastError()), "cudaErrorInvalidDevice") == 0);
    GIVES(cudaFree((void *)64), cudaErrorInvalidValue);
    GIVES(cudaGetLastError(), cudaErrorInvalidValue);
    behaved("an error is the last one until it is asked for");
}

static void *elsewhere(void *unused) {
    int device = -1;
    (void)unused;
    OK(cudaGetDevice(&device));
    HOLDS(device == 0);
    OK(cudaSetDevice(1));
    return NULL;
}

static void threads(void) {
    pthread_t thread;
    int device = -1;
    OK(cudaSetDevice(0));
    OK(pthread_create(&thread, NULL, elsewhere, NULL));
    OK(pthread_join(thread, NULL));
    OK(cudaGetDevice(&device));
    HOLDS(device == 0);
    behaved("each thread has a device of its own");
}

int main(void) {
    devices();
    copies();
    streams();
    graphs();
    errors();
    threads();
    OK(cudaDeviceReset());
    behaved("the end: the device is reset");
    return behaved_all();
}
