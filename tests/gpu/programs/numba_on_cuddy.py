"""numba-cuda with Cuddy as its memory manager (EMM plugin): arrays, a kernel on a GPU, frees."""

import gc

from common import CUDDY, SIMULATED, allocated, check, done, figure, free, malloc

import numpy as np
from numba import cuda
from numba.cuda import GetIpcHandleMixin, HostOnlyCUDAMemoryManager, MemoryInfo, MemoryPointer


class Manager(GetIpcHandleMixin, HostOnlyCUDAMemoryManager):
    def initialize(self):
        """Cuddy needs none."""

    @property
    def interface_version(self):
        return 1

    def memalloc(self, size):
        address = malloc(size)
        if size and not address:
            raise MemoryError(CUDDY.cuddy_last_error().decode())
        return MemoryPointer(cuda.current_context(), address, size, finalizer=lambda: free(address))

    def get_memory_info(self):
        import ctypes

        free_bytes, total = ctypes.c_size_t(), ctypes.c_size_t()
        CUDDY.cuddy_mem_get_info(-1, ctypes.byref(free_bytes), ctypes.byref(total))
        return MemoryInfo(free=free_bytes.value, total=total.value)


cuda.set_memory_manager(Manager)
before = allocated()
data = np.arange(1 << 18, dtype=np.float32)
array = cuda.to_device(data)
check(allocated() - before == data.nbytes, "the array came from Cuddy")
check((array.copy_to_host() == data).all(), "its data")
if not SIMULATED:

    @cuda.jit
    def double(values):
        at = cuda.grid(1)
        if at < values.size:
            values[at] *= 2

    double[(data.size + 255) // 256, 256](array)
    check((array.copy_to_host() == 2 * data).all(), "the data that a kernel made")
del array
gc.collect()
cuda.current_context().deallocations.clear()
cuda.current_context().memory_manager.deallocations.clear()
check(allocated() == before, f"the array went back to Cuddy: {allocated()} bytes are live, {before} were")
figure("total", cuda.current_context().get_memory_info().total)
done()
