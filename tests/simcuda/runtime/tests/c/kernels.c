/* What nvcc's code does: registers an image and its kernels, and launches them by their stubs. The
 * kernels are the simulated driver's own, which really work on memory. */
#include "runtime.h"

static const struct {
    int magic, version;
    const void *data;
    void *unused;
} image = {0x466243b1, 1, "device code", 0};

static void fill_stub(void) {}
static void unknown_stub(void) {}
static void stranger(void) {}

static void fill(void *at, uint64_t bytes, unsigned char value, void *kernel) {
    void *parameters[] = {&at, &bytes, &value};
    dim3 one = {1, 1, 1}, grid, block;
    size_t shared;
    cudaStream_t stream;
    /* As <<<...>>> does. */
    IS(__cudaPushCallConfiguration(one, one, 0, 0), 0);
    OK(__cudaPopCallConfiguration(&grid, &block, &shared, &stream));
    IS(grid.x + grid.y + grid.z, 3);
    if (kernel)
        OK(__cudaLaunchKernel(kernel, grid, block, parameters, shared, stream));
    else
        OK(cudaLaunchKernel((const void *)fill_stub, grid, block, parameters, shared, stream));
}

int main(void) {
    void **handle = __cudaRegisterFatBinary((void *)&image);
    __cudaRegisterFunction(handle, (const char *)fill_stub, "simcuda_fill", "simcuda_fill", -1, 0,
                           0, 0, 0, 0);
    __cudaRegisterFunction(handle, (const char *)unknown_stub, "mine", "mine", -1, 0, 0, 0, 0, 0);
    __cudaRegisterFatBinaryEnd(handle);

    unsigned char *at, host[256];
    dim3 one = {1, 1, 1}, none = {0, 1, 1};
    OK(cudaMalloc((void **)&at, sizeof host));
    fill(at, sizeof host, 7, 0);
    OK(cudaMemcpy(host, at, sizeof host, ToHost));
    IS(host[0], 7);
    IS(host[255], 7);
    void *kernel = 0;
    OK(__cudaGetKernel(&kernel, (const void *)fill_stub));
    fill(at, sizeof host, 9, kernel);
    OK(cudaMemcpy(host, at, sizeof host, ToHost));
    IS(host[255], 9);

    OK(cudaLaunchKernel((const void *)unknown_stub, one, one, 0, 0, 0));
    IS(cudaLaunchKernel((const void *)unknown_stub, none, one, 0, 0, 0), 9);
    IS(cudaLaunchKernel((const void *)stranger, one, one, 0, 0, 0), 98);
    IS(cudaGetLastError(), 98);
    dim3 grid;
    size_t shared;
    IS(__cudaPopCallConfiguration(&grid, &grid, &shared, &kernel), 52);

    /* sharedSizeBytes, constSizeBytes, localSizeBytes, then maxThreadsPerBlock. */
    struct {
        size_t sizes[3];
        int numbers[29], after;
    } attributes;
    attributes.after = 0x77;
    OK(cudaFuncGetAttributes(&attributes, (const void *)fill_stub));
    IS(attributes.numbers[0], 1024);

    /* After a reset the module is loaded anew. */
    OK(cudaDeviceReset());
    OK(cudaMalloc((void **)&at, sizeof host));
    fill(at, sizeof host, 11, 0);
    OK(cudaMemcpy(host, at, sizeof host, ToHost));
    IS(host[255], 11);

    uint64_t (*objects)(const char *) = (uint64_t(*)(const char *))dlsym(
        dlopen("libcuda.so.1", 2), "simcuda_objects");
    IS(objects("modules"), 1);
    __cudaUnregisterFatBinary(handle);
    IS(objects("modules"), 0);
    IS(cudaLaunchKernel((const void *)fill_stub, one, one, 0, 0, 0), 98);
    return 0;
}
