"""cuda-core: its memory resources, buffers, streams and events on the driver."""

import numpy as np
from behaviour import behaviour, equal, raises, run, true
from cuda.core import (
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    LegacyPinnedMemoryResource,
    StreamOptions,
    VirtualMemoryResource,
    VirtualMemoryResourceOptions,
)

import sim

DEVICE = Device(0)
DEVICE.set_current()


def host_view(buffer):
    """A numpy array over host memory of a buffer."""
    return np.from_dlpack(buffer).view(np.uint8)


@behaviour("devices, their names, sizes and contexts")
def devices():
    equal(len(Device.get_all_devices()), 2, "devices")
    true("simcuda" in DEVICE.name, DEVICE.name)
    equal(tuple(DEVICE.compute_capability), (9, 0), "compute capability")
    true(DEVICE.properties.multiprocessor_count > 0, "multiprocessors")


@behaviour("a device's own resource allocates from its pool, in stream order")
def pool():
    stream = DEVICE.create_stream()
    before = sim.calls("cuMemAllocFromPoolAsync") + sim.calls("cuMemAllocAsync")
    buffer = DEVICE.allocate(1 << 20, stream=stream)
    equal(buffer.size, 1 << 20, "size")
    true(sim.calls("cuMemAllocFromPoolAsync") + sim.calls("cuMemAllocAsync") > before, "no pool was used")
    buffer.close(stream)
    stream.sync()


@behaviour("pinned buffers hold host data, and copies to the device and back keep it")
def copies():
    stream = DEVICE.create_stream()
    pinned = LegacyPinnedMemoryResource()
    source, target = pinned.allocate(1 << 16, stream=stream), pinned.allocate(1 << 16, stream=stream)
    host_view(source)[:] = np.arange(1 << 16).astype(np.uint8)
    host_view(target)[:] = 0
    buffer = DEVICE.allocate(1 << 16, stream=stream)
    source.copy_to(buffer, stream=stream)
    buffer.copy_to(target, stream=stream)
    stream.sync()
    true((host_view(target) == host_view(source)).all(), "data")
    buffer.fill(np.uint8(0x5A), stream=stream)
    buffer.copy_to(target, stream=stream)
    stream.sync()
    true((host_view(target) == 0x5A).all(), "filled data")
    for each in (buffer, source, target):
        each.close(stream)


@behaviour("streams wait for events and for each other")
def events():
    sim.schedule("lazy")
    first, second = DEVICE.create_stream(), DEVICE.create_stream(options=StreamOptions(nonblocking=True))
    pinned = LegacyPinnedMemoryResource()
    source, target = pinned.allocate(4096, stream=first), pinned.allocate(4096, stream=first)
    host_view(source)[:], host_view(target)[:] = 9, 0
    buffer = DEVICE.allocate(4096, stream=first)
    source.copy_to(buffer, stream=first)
    event = first.record()
    second.wait(event)
    buffer.copy_to(target, stream=second)
    true(not (host_view(target) == 9).any(), "the lazy schedule ran work that nobody waited for")
    second.sync()
    true((host_view(target) == 9).all(), "data after the wait")
    true(event.is_done, "the event")
    for each in (buffer, source, target):
        each.close(second)
    second.sync()
    sim.schedule("eager")


@behaviour("a pool of its own: attributes and its largest size")
def own_pool():
    stream = DEVICE.create_stream()
    resource = DeviceMemoryResource(DEVICE, options=DeviceMemoryResourceOptions(max_size=64 << 20))
    buffer = resource.allocate(10 << 20, stream=stream)
    equal(resource.attributes.used_mem_current, 10 << 20, "used")
    true(resource.attributes.reserved_mem_current >= 10 << 20, "reserved")
    raises(Exception, lambda: resource.allocate(100 << 20, stream=stream), "OUT_OF_MEMORY")
    buffer.close(stream)
    stream.sync()
    equal(resource.attributes.used_mem_current, 0, "used after the free")
    resource.close()


@behaviour("virtual memory: a buffer grows in place and keeps its data")
def virtual():
    resource = VirtualMemoryResource(DEVICE, config=VirtualMemoryResourceOptions(gpu_direct_rdma=False))
    before = sim.calls("cuMemMap")
    buffer = resource.allocate(2 << 20)
    true(sim.calls("cuMemMap") > before, "nothing was mapped")
    stream = DEVICE.create_stream()
    buffer.fill(np.uint8(0x33), stream=stream)
    stream.sync()
    grown = resource.modify_allocation(buffer, 6 << 20)
    true(grown.size >= 6 << 20, "size")
    true(sim.peek(int(grown.handle), 2 << 20) == b"\x33" * (2 << 20), "data after growing")
    grown.close()
    # cuda-core 1.2.2 keeps a reference to each object, so memory stays in use; addresses do not.
    equal((sim.objects("mappings"), sim.objects("reservations")), (0, 0), "mappings and reservations")


@behaviour("out of memory is an error with its name")
def out_of_memory():
    stream = DEVICE.create_stream()
    raises(Exception, lambda: DEVICE.allocate(1 << 40, stream=stream), "OUT_OF_MEMORY")
    buffer = DEVICE.allocate(512, stream=stream)
    buffer.close(stream)
    stream.sync()


run()
