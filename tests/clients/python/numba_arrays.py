"""numba-cuda on the driver: device arrays, streams, events, pinned and mapped memory."""

import numpy as np
from behaviour import behaviour, equal, raises, run, true
from numba import cuda
from numba.cuda.cudadrv import driver as numba_driver

import sim


def flush():
    """numba lets go of things in batches; all of them now."""
    context = cuda.current_context()
    context.deallocations.clear()
    context.memory_manager.deallocations.clear()


@behaviour("finds the device, which says that it is simulated")
def device():
    equal(len(cuda.gpus), 2, "devices")
    name = cuda.get_current_device().name
    name = name.decode() if isinstance(name, bytes) else name
    true("simcuda" in name, f"the device is named {name!r}")


@behaviour("copies to the device and back keep their data")
def copies():
    for dtype in (np.uint8, np.int32, np.float64):
        data = np.arange(100_003).astype(dtype)
        array = cuda.to_device(data)
        true((array.copy_to_host() == data).all(), f"{dtype} came back changed")
        true(sim.peek(array.device_ctypes_pointer.value, data.nbytes) == data.tobytes(), "device bytes")


@behaviour("strided and sliced device arrays copy the right bytes")
def slices():
    data = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    array = cuda.to_device(data)
    true((array[8:16].copy_to_host() == data[8:16]).all(), "rows")
    true((array.reshape(32, 64).copy_to_host() == data.reshape(32, 64)).all(), "reshaped")
    other = cuda.device_array_like(data)
    other.copy_to_device(array)
    true((other.copy_to_host() == data).all(), "device to device")


@behaviour("asynchronous copies on a stream, ordered by it and by events")
def streams():
    sim.schedule("lazy")
    first, second = cuda.stream(), cuda.stream()
    host = cuda.pinned_array(4096, dtype=np.int64)
    host[:] = np.arange(4096)
    back = cuda.pinned_array(4096, dtype=np.int64)
    array = cuda.device_array(4096, dtype=np.int64, stream=first)
    array.copy_to_device(host, stream=first)
    ready = cuda.event()
    ready.record(first)
    ready.wait(second)
    array.copy_to_host(back, stream=second)
    true(not (back == host).all(), "the lazy schedule ran work that nobody waited for")
    second.synchronize()
    true((back == host).all(), "the data after the wait")
    true(ready.query(), "the event is over")
    sim.schedule("eager")


@behaviour("events measure time on the virtual clock")
def time():
    stream = cuda.stream()
    begin, end = cuda.event(), cuda.event()
    begin.record(stream)
    array = cuda.device_array(1 << 24, dtype=np.uint8, stream=stream)
    array.copy_to_device(np.zeros(1 << 24, dtype=np.uint8), stream=stream)
    end.record(stream)
    end.synchronize()
    true(cuda.event_elapsed_time(begin, end) > 0, "no time passed")


@behaviour("mapped memory is seen by host and device")
def mapped():
    array = cuda.mapped_array(1024, dtype=np.uint32)
    array[:] = 7
    other = cuda.device_array(1024, dtype=np.uint32)
    numba_driver.device_to_device(other, array, array.nbytes)
    cuda.synchronize()
    true((other.copy_to_host() == 7).all(), "what the host wrote")


@behaviour("pinning an array of numpy's registers it, and lets go of it")
def pinned():
    before = sim.objects("host_registrations")
    data = np.arange(1 << 16, dtype=np.float32)
    with cuda.pinned(data):
        equal(sim.objects("host_registrations"), before + 1, "registrations")
        array = cuda.to_device(data, stream=cuda.stream())
        cuda.synchronize()
        true((array.copy_to_host() == data).all(), "data")
    flush()
    equal(sim.objects("host_registrations"), before, "registrations")


@behaviour("freed arrays give their memory back")
def frees():
    flush()
    before = sim.used()
    arrays = [cuda.device_array(1 << 20, dtype=np.uint8) for _ in range(16)]
    equal(sim.used() - before, 16 << 20, "bytes in use")
    equal(cuda.current_context().get_memory_info().total, 24 << 30, "total")
    del arrays
    flush()
    equal(sim.used(), before, "bytes in use after the free")


@behaviour("out of memory is an error, after its pending frees were tried")
def out_of_memory():
    sim.others_use((24 << 30) - (1 << 30) - sim.used())
    array = cuda.device_array(900 << 20, dtype=np.uint8)
    del array  # stays pending: the next allocation needs it
    array = cuda.device_array(900 << 20, dtype=np.uint8)
    error = raises(numba_driver.CudaAPIError, lambda: cuda.device_array(900 << 20, dtype=np.uint8))
    true("OUT_OF_MEMORY" in str(error), f"the error says {error}")
    del array, error
    sim.others_use(0)


@behaviour("two devices: data crosses between them through their own contexts")
def devices():
    with cuda.gpus[1]:
        data = np.arange(1000, dtype=np.int16)
        array = cuda.to_device(data)
        true((array.copy_to_host() == data).all(), "data on device 1")
        equal(cuda.current_context().device.id, 1, "device")
    equal(cuda.current_context().device.id, 0, "device")


run()
