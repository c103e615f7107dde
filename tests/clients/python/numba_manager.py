"""numba-cuda's External Memory Manager: a manager of our own over the driver, as RMM and CuPy have."""

import ctypes

import numpy as np
from behaviour import behaviour, equal, run, true
from numba import cuda
from numba.cuda import GetIpcHandleMixin, HostOnlyCUDAMemoryManager, MemoryInfo, MemoryPointer

import sim

CUDA = ctypes.CDLL("libcuda.so.1")


class Manager(GetIpcHandleMixin, HostOnlyCUDAMemoryManager):
    """Gets device memory straight from cuMemAlloc, and counts."""

    live = {}

    def initialize(self):
        """Nothing to prepare; numba wants it said."""

    @property
    def interface_version(self):
        return 1

    def memalloc(self, size):
        address = ctypes.c_uint64()
        code = CUDA.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
        if code:
            raise MemoryError(f"cuMemAlloc answered {code}")
        Manager.live[address.value] = size

        def finalize():
            del Manager.live[address.value]
            CUDA.cuMemFree_v2(address)

        return MemoryPointer(cuda.current_context(), address.value, size, finalizer=finalize)

    def get_memory_info(self):
        return MemoryInfo(free=123, total=456)

cuda.set_memory_manager(Manager)


@behaviour("device arrays come from the manager")
def arrays():
    data = np.arange(5000, dtype=np.float64)
    array = cuda.to_device(data)
    equal(list(Manager.live.values()), [40_000], "sizes asked of the manager")
    true(int(array.gpu_data.device_pointer_value) in Manager.live, "its address")
    true((array.copy_to_host() == data).all(), "data")


@behaviour("each goes back to it exactly once")
def frees():
    equal(Manager.live, {}, "live")
    array = [cuda.device_array(n, dtype=np.uint8) for n in (1, 512, 4097)]
    equal(sorted(Manager.live.values()), [1, 512, 4097], "live")
    del array
    equal(Manager.live, {}, "live")
    equal(sim.used(), 0, "bytes in use")


@behaviour("its answer about memory is what numba says")
def information():
    equal(tuple(cuda.current_context().get_memory_info()), (123, 456), "free and total")


@behaviour("page-locked memory still comes from numba's host part")
def host():
    array = cuda.pinned_array(1000, dtype=np.int32)
    array[:] = 3
    true(sim.calls("cuMemHostAlloc") >= 1, "cuMemHostAlloc was not called")
    equal(Manager.live, {}, "live")


run()
