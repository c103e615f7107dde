/* driver.c: a C program on the driver API, compiled with the vendor's own cuda.h and linked with
 * -lcuda. Built a second time with per-thread default streams. */
#include "behaviour.h"
#include <cuda.h>
#include <pthread.h>

enum { MIB = 1 << 20 };

static CUdevice device;

static void devices(void) {
    int count, version;
    char name[128];
    size_t total;
    OK(cuDriverGetVersion(&version));
    HOLDS(version >= 12000);
    OK(cuDeviceGetCount(&count));
    HOLDS(count == 2);
    OK(cuDeviceGetName(name, sizeof name, device));
    HOLDS(strstr(name, "simcuda"));
    OK(cuDeviceTotalMem(&total, device));
    HOLDS(total == (size_t)24 << 30);
    behaved("devices, names and sizes");
}

static void copies(void) {
    unsigned char *from, *to;
    CUdeviceptr a, b;
    OK(cuMemHostAlloc((void **)&from, MIB, 0));
    OK(cuMemAllocHost((void **)&to, MIB));
    OK(cuMemAlloc(&a, MIB));
    OK(cuMemAlloc(&b, MIB));
    if (broken) return behaved("copies keep their data, all directions");
    for (int i = 0; i < MIB; i++) from[i] = (unsigned char)(i * 7 + i / 256);
    memset(to, 0, MIB);
    OK(cuMemcpyHtoDAsync(a, from, MIB, 0));
    OK(cuMemcpyDtoDAsync(b, a, MIB, 0));
    OK(cuMemcpyDtoHAsync(to, b, MIB, 0));
    OK(cuStreamSynchronize(0));
    HOLDS(memcmp(from, to, MIB) == 0);
    CUDA_MEMCPY2D rows = {0};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = a, rows.srcPitch = 1024, rows.dstDevice = b, rows.dstPitch = 512;
    rows.WidthInBytes = 512, rows.Height = 1024;
    OK(cuMemcpy2D(&rows));
    OK(cuMemcpyDtoH(to, b, MIB / 2));
    for (int row = 0; row < 1024; row++) HOLDS(memcmp(to + row * 512, from + row * 1024, 512) == 0);
    OK(cuMemFree(a));
    OK(cuMemFree(b));
    OK(cuMemFreeHost(from));
    OK(cuMemFreeHost(to));
    behaved("copies keep their data, all directions");
}

static void attributes(void) {
    CUdeviceptr memory, base;
    size_t size;
    unsigned type, ordinal;
    OK(cuMemAlloc(&memory, 3000));
    OK(cuMemGetAddressRange(&base, &size, memory + 1234));
    HOLDS(base == memory && size >= 3000);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 10));
    HOLDS(type == CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory));
    HOLDS(ordinal == 0);
    OK(cuMemFree(memory));
    GIVES(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAlloc(&memory, 0), CUDA_ERROR_INVALID_VALUE);
    GIVES(cuMemAlloc(&memory, (size_t)1 << 50), CUDA_ERROR_OUT_OF_MEMORY);
    const char *name;
    OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
    HOLDS(strcmp(name, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
    behaved("what a pointer is, and errors");
}

static void streams(void) {
    CUstream first, second;
    CUevent event;
    CUdeviceptr memory;
    int least, greatest;
    float milliseconds;
    CUevent begin;
    unsigned char *host;
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    OK(cuStreamCreateWithPriority(&first, CU_STREAM_NON_BLOCKING, greatest));
    OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuMemAlloc(&memory, MIB));
    OK(cuMemAllocHost((void **)&host, MIB));
    OK(cuEventRecord(begin, first));
    OK(cuMemsetD8Async(memory, 0x42, MIB, first));
    OK(cuEventRecord(event, first));
    OK(cuStreamWaitEvent(second, event, 0));
    OK(cuMemcpyDtoHAsync(host, memory, MIB, second));
    OK(cuStreamSynchronize(second));
    if (!broken) HOLDS(host[0] == 0x42 && host[MIB - 1] == 0x42);
    OK(cuEventQuery(event));
    OK(cuEventElapsedTime(&milliseconds, begin, event));
    HOLDS(milliseconds > 0);
    OK(cuStreamDestroy(first));
    OK(cuStreamDestroy(second));
    OK(cuEventDestroy(event));
    OK(cuEventDestroy(begin));
    OK(cuMemFree(memory));
    OK(cuMemFreeHost(host));
    behaved("streams and events order work");
}

static void virtual_memory(void) {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr space;
    size_t page;
    int word = 0;
    OK(cuMemGetAllocationGranularity(&page, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    OK(cuMemAddressReserve(&space, 4 * page, 0, 0, 0));
    OK(cuMemCreate(&handle, page, &prop, 0));
    OK(cuMemMap(space + page, page, 0, handle, 0));
    OK(cuMemRelease(handle));
    OK(cuMemSetAccess(space + page, page, &access, 1));
    OK(cuMemsetD32(space + page, 0x11223344, page / 4));
    OK(cuMemcpyDtoH(&word, space + 2 * page - 4, 4));
    HOLDS(word == 0x11223344);
    OK(cuMemUnmap(space + page, page));
    OK(cuMemAddressFree(space, 4 * page));
    behaved("virtual memory");
}

static void *worker(void *context) {
    CUdeviceptr memory;
    int word = 0;
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&memory, 4096));
    OK(cuMemsetD32Async(memory, 5, 1024, 0));
    OK(cuMemcpyDtoHAsync(&word, memory + 4092, 4, 0));
    OK(cuStreamSynchronize(0));
    HOLDS(word == 5);
    OK(cuMemFree(memory));
    return NULL;
}

static void threads(CUcontext context) {
    for (int i = 0; i < 8; i++) { /* one after the other: notes are not made for two at once */
        pthread_t thread;
        OK(pthread_create(&thread, NULL, worker, context));
        OK(pthread_join(thread, NULL));
    }
    behaved("host threads with their own current context");
}

/* A graph made of the vendor's structures: memory of its own, a fill, a kernel, a copy, and the free. */
static void graphs(CUcontext context) {
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode alloc, fill, kernel, copy, freed;
    CUmodule module;
    CUfunction function;
    CUstream stream;
    unsigned char *host;
    OK(cuMemHostAlloc((void **)&host, MIB, 0));
    OK(cuModuleLoadData(&module, "any image"));
    OK(cuModuleGetFunction(&function, module, "simcuda_fill"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuGraphCreate(&graph, 0));
    if (broken) return behaved("a graph made node by node");
    CUDA_MEM_ALLOC_NODE_PARAMS memory = {0};
    memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    memory.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    memory.poolProps.location.id = device;
    memory.bytesize = MIB;
    OK(cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &memory));
    HOLDS(memory.dptr != 0);
    CUDA_MEMSET_NODE_PARAMS filling = {.dst = memory.dptr, .value = 0x01020304, .elementSize = 4, .width = MIB / 4, .height = 1};
    OK(cuGraphAddMemsetNode(&fill, graph, &alloc, 1, &filling, context));
    CUdeviceptr half = memory.dptr + MIB / 2;
    unsigned long long bytes = MIB / 2;
    unsigned char value = 9;
    void *parameters[] = {&half, &bytes, &value};
    CUDA_KERNEL_NODE_PARAMS launch = {.func = function, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1, .kernelParams = parameters};
    OK(cuGraphAddKernelNode(&kernel, graph, &fill, 1, &launch));
    CUDA_MEMCPY3D copying = {0};
    copying.srcMemoryType = CU_MEMORYTYPE_DEVICE, copying.srcDevice = memory.dptr;
    copying.dstMemoryType = CU_MEMORYTYPE_HOST, copying.dstHost = host;
    copying.WidthInBytes = MIB, copying.Height = 1, copying.Depth = 1;
    OK(cuGraphAddMemcpyNode(&copy, graph, &kernel, 1, &copying, context));
    OK(cuGraphAddMemFreeNode(&freed, graph, &copy, 1, memory.dptr));
    OK(cuGraphInstantiate(&exec, graph, 0));
    for (int launches = 0; launches < 3; launches++) {
        memset(host, 0, MIB);
        OK(cuGraphLaunch(exec, stream));
        OK(cuStreamSynchronize(stream));
        HOLDS(host[0] == 4 && host[1] == 3 && host[MIB / 2 - 1] == 1 && host[MIB / 2] == 9 && host[MIB - 1] == 9);
    }
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    any.memset.dst = memory.dptr, any.memset.value = 7, any.memset.elementSize = 1;
    any.memset.width = MIB, any.memset.height = 1, any.memset.ctx = context;
    OK(cuGraphExecNodeSetParams(exec, fill, &any));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    HOLDS(host[0] == 7 && host[MIB - 1] == 9);
    CUDA_KERNEL_NODE_PARAMS shown;
    OK(cuGraphKernelNodeGetParams(kernel, &shown));
    HOLDS(shown.func == function && *(CUdeviceptr *)shown.kernelParams[0] == half);
    cuuint64_t reserved = 0;
    OK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    HOLDS(reserved >= MIB);
    OK(cuDeviceGraphMemTrim(device));
    OK(cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    HOLDS(reserved == 0);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy(stream));
    OK(cuModuleUnload(module));
    OK(cuMemFreeHost(host));
    behaved("a graph made node by node");
}

static void entry_points(void) {
    CUresult (*free_memory)(CUdeviceptr) = NULL;
    CUdriverProcAddressQueryResult status;
    OK(cuGetProcAddress("cuMemFree", (void **)&free_memory, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status));
    HOLDS(free_memory == cuMemFree);
    HOLDS(status == CU_GET_PROC_ADDRESS_SUCCESS);
    GIVES(cuGetProcAddress("cuNoSuchThing", (void **)&free_memory, 12000, 0, &status), 0);
    HOLDS(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    behaved("entry points by name and version");
}

int main(void) {
    CUcontext context;
    CUdeviceptr none;
    GIVES(cuMemAlloc(&none, 100), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    GIVES(cuMemAlloc(&none, 100), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    behaved("nothing works before cuInit and a context, then it does");
    devices();
    copies();
    attributes();
    streams();
    virtual_memory();
    threads(context);
    graphs(context);
    entry_points();
    OK(cuDevicePrimaryCtxRelease(device));
    behaved("the end: the primary context is released");
    return behaved_all();
}
