"""numba-cuda on Cuddy: cuddy.numba, by enable() or by NUMBA_CUDA_MEMORY_MANAGER."""

import gc
import os

import cuddy
import numpy as np
from behaviour import behaviour, equal, raises, run, true
from numba import cuda

import sim

if "NUMBA_CUDA_MEMORY_MANAGER" not in os.environ:
    import cuddy.numba

    cuddy.numba.enable()


def live():
    return cuddy.memory_allocated(0)


@behaviour("arrays are Cuddy's, hold data, and go back to it once")
def arrays():
    data = np.arange(1 << 18, dtype=np.float32)
    array = cuda.to_device(data)
    equal(live(), data.nbytes, "live bytes")
    true((array.copy_to_host() == data).all(), "data")
    del array
    gc.collect()
    equal(live(), 0, "live bytes after")
    stats = cuddy.memory_stats(0)
    equal(stats["malloc_count"], stats["free_count"], "mallocs and frees")


@behaviour("on any stream, with no word about it: the checker sees no race")
def streams():
    sim.schedule("lazy")
    first, second = cuda.stream(), cuda.stream()
    for step in range(10):
        data = np.full(100_000, step, np.uint8)
        on_first = cuda.to_device(data, stream=first)
        second_data = np.full(100_000, 50 + step, np.uint8)
        del on_first
        on_second = cuda.to_device(second_data, stream=second)
        second.synchronize()
        true((on_second.copy_to_host() == 50 + step).all(), f"data of step {step}")
        del on_second
    sim.schedule("eager")


@behaviour("a Cuddy buffer is an array of Numba's, by its interface")
def interface():
    buffer = cuddy.empty(4096, 0)
    view = cuda.as_cuda_array(buffer)
    view.copy_to_device(np.full(4096, 7, np.uint8))
    true((view.copy_to_host() == 7).all(), "data")
    del view
    buffer.free()
    equal(live(), 0, "live bytes")


@behaviour("it tells of memory, says why there is none, and has no IPC handle")
def tells():
    free, total = cuda.current_context().get_memory_info()
    equal(total, 24 << 30, "total")
    true(free > 23 << 30, "free")
    raises(cuddy.OutOfMemoryError, lambda: cuda.device_array(1 << 40, np.uint8), "1.00 TiB")
    kept = cuda.device_array(100, np.uint8)
    raises(RuntimeError, kept.get_ipc_handle, "no IPC handle")


@behaviour("a reset gives all back")
def end():
    gc.collect()
    equal(live(), 0, "live bytes")
    cuddy.empty_cache()
    equal(sim.used(), 0, "bytes in use")


run()
