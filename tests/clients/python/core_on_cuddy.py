"""cuda.core on Cuddy: cuddy.cuda_core.MemoryResource."""

import gc

import cuddy
import numpy as np
from behaviour import behaviour, equal, raises, run, true
from cuda.core import Device, LegacyPinnedMemoryResource
from cuddy.cuda_core import MemoryResource

import sim

DEVICE = Device(0)
DEVICE.set_current()
MEMORY = MemoryResource(DEVICE)


@behaviour("buffers are Cuddy's, in their stream's order, and go back when closed or dropped")
def buffers():
    stream = DEVICE.create_stream()
    buffer = MEMORY.allocate(1 << 20, stream=stream)
    equal((buffer.size, cuddy.memory_allocated(0)), (1 << 20, 1 << 20), "size, live bytes")
    at = int(buffer.handle)
    equal(cuddy._abi.block_info(at)[1]["stream"], int(stream.handle), "its stream")
    buffer.close(stream)
    equal(cuddy.memory_allocated(0), 0, "live bytes after close()")
    again = MEMORY.allocate(1 << 20, stream=stream)
    equal(int(again.handle), at, "the same block")
    del again
    gc.collect()
    equal(cuddy.memory_allocated(0), 0, "live bytes after del")


@behaviour("data goes there and back; a close on another stream hands the block over")
def copies():
    sim.schedule("lazy")
    first, second = DEVICE.create_stream(), DEVICE.create_stream()
    pinned = LegacyPinnedMemoryResource()
    source, target = pinned.allocate(1 << 16, stream=first), pinned.allocate(1 << 16, stream=first)
    view = lambda buffer: np.from_dlpack(buffer).view(np.uint8)
    for step in range(8):
        view(source)[:], view(target)[:] = step + 1, 0
        buffer = MEMORY.allocate(1 << 16, stream=first)
        source.copy_to(buffer, stream=first)
        second.wait(first.record())
        buffer.copy_to(target, stream=second)
        buffer.close(second)
        second.sync()
        true((view(target) == step + 1).all(), f"data of step {step}")
    for each in (source, target):
        each.close(first)
    sim.schedule("eager")


@behaviour("it says what it is, takes a pool, and why there is no memory")
def tells():
    equal((MEMORY.is_device_accessible, MEMORY.is_host_accessible, MEMORY.device_id), (True, False, 0), "it")
    stream = DEVICE.create_stream()
    pool = cuddy.pool(0, limit=64 << 20)
    inside = MemoryResource(0, pool)
    buffer = inside.allocate(10 << 20, stream=stream)
    equal(pool.stats()["allocated"], 10 << 20, "the pool's live bytes")
    raises(cuddy.OutOfMemoryError, lambda: inside.allocate(100 << 20, stream=stream), "64.0 MiB")
    buffer.close(stream)


@behaviour("a Cuddy buffer takes a stream of cuda.core's")
def streams():
    stream = DEVICE.create_stream()
    with cuddy.empty(100, DEVICE, stream) as buffer:
        equal((buffer.stream, buffer.device), (int(stream.handle), 0), "its stream and device")


run()
