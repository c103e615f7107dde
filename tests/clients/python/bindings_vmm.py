"""cuda-bindings: the driver API as it is, virtual memory management included."""

import numpy as np
from behaviour import behaviour, equal, run, true
from cuda.bindings import driver as cu

import sim

MIB = 1 << 20


def ok(result, *, code=cu.CUresult.CUDA_SUCCESS):
    """What a call gave besides its code, which must be as said."""
    equal(result[0], code, "result")
    values = result[1:]
    return values[0] if len(values) == 1 else values


ok(cu.cuInit(0))
DEVICE = ok(cu.cuDeviceGet(0))
ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(DEVICE))))


def properties():
    """Of pinned memory on device 0."""
    prop = cu.CUmemAllocationProp()
    prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = 0
    prop.requestedHandleTypes = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return prop


def access():
    """Read and write from device 0."""
    desc = cu.CUmemAccessDesc()
    desc.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    desc.location.id = 0
    desc.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    return [desc]


@behaviour("versions, devices and their attributes")
def devices():
    equal(ok(cu.cuDriverGetVersion()), 13000, "driver version")
    equal(ok(cu.cuDeviceGetCount()), 2, "devices")
    true(b"simcuda" in ok(cu.cuDeviceGetName(100, DEVICE)), "name")
    vmm = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    equal(ok(cu.cuDeviceGetAttribute(vmm, DEVICE)), 1, "VMM")


@behaviour("memory, copies and fills of each width")
def memory():
    address = ok(cu.cuMemAlloc(MIB))
    data = np.arange(MIB, dtype=np.uint32).astype(np.uint8)
    ok(cu.cuMemcpyHtoD(address, data.ctypes.data, MIB))
    back = np.zeros_like(data)
    ok(cu.cuMemcpyDtoH(back.ctypes.data, address, MIB))
    true((back == data).all(), "data")
    ok(cu.cuMemsetD8(address, 1, 16))
    ok(cu.cuMemsetD16(int(address) + 16, 0x0203, 8))
    ok(cu.cuMemsetD32(int(address) + 32, 0x04050607, 4))
    ok(cu.cuMemcpyDtoH(back.ctypes.data, address, 48))
    equal(back[:48].tobytes(), b"\1" * 16 + b"\3\2" * 8 + b"\7\6\5\4" * 4, "filled bytes")
    base, size = ok(cu.cuMemGetAddressRange(int(address) + 100))
    equal((int(base), size), (int(address), MIB), "address range")
    ok(cu.cuMemFree(address))
    ok(cu.cuMemFree(address), code=cu.CUresult.CUDA_ERROR_INVALID_VALUE)


@behaviour("virtual memory: one object at two addresses, data moves with it")
def aliases():
    prop = properties()
    flag = cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    page = ok(cu.cuMemGetAllocationGranularity(prop, flag))
    equal(page, 2 * MIB, "granularity")
    space = ok(cu.cuMemAddressReserve(8 * page, 0, 0, 0))
    handle = ok(cu.cuMemCreate(page, prop, 0))
    second = int(space) + 4 * page
    for address in (int(space), second):
        ok(cu.cuMemMap(address, page, 0, handle, 0))
        ok(cu.cuMemSetAccess(address, page, access(), 1))
    data = np.random.default_rng(1).integers(0, 256, page, dtype=np.uint8)
    ok(cu.cuMemcpyHtoD(int(space), data.ctypes.data, page))
    back = np.zeros_like(data)
    ok(cu.cuMemcpyDtoH(back.ctypes.data, second, page))
    true((back == data).all(), "data by the other address")
    ok(cu.cuMemUnmap(int(space), page))
    ok(cu.cuMemMap(int(space) + page, page, 0, handle, 0))
    ok(cu.cuMemSetAccess(int(space) + page, page, access(), 1))
    back[:] = 0
    ok(cu.cuMemcpyDtoH(back.ctypes.data, int(space) + page, page))
    true((back == data).all(), "data at the third address")
    ok(cu.cuMemRelease(handle))
    for address in (int(space) + page, second):
        ok(cu.cuMemUnmap(address, page))
    ok(cu.cuMemAddressFree(space, 8 * page))
    equal(sim.used(), 0, "bytes in use")


@behaviour("an object goes through a file descriptor, and comes back as the same memory")
def export():
    page = 2 * MIB
    handle = ok(cu.cuMemCreate(page, properties(), 0))
    kind = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    fd = ok(cu.cuMemExportToShareableHandle(handle, kind, 0))
    again = ok(cu.cuMemImportFromShareableHandle(int(fd), kind))
    space = ok(cu.cuMemAddressReserve(2 * page, 0, 0, 0))
    ok(cu.cuMemMap(space, page, 0, handle, 0))
    ok(cu.cuMemMap(int(space) + page, page, 0, again, 0))
    ok(cu.cuMemSetAccess(space, 2 * page, access(), 1))
    ok(cu.cuMemsetD8(space, 0xAB, page))
    ok(cu.cuCtxSynchronize())
    true(sim.peek(int(space) + page, page) == b"\xab" * page, "data of the imported one")
    ok(cu.cuMemUnmap(space, 2 * page))
    for each in (handle, again):
        ok(cu.cuMemRelease(each))
    ok(cu.cuMemAddressFree(space, 2 * page))


@behaviour("streams, events and host functions")
def streams():
    sim.schedule("lazy")
    flags = cu.CUstream_flags.CU_STREAM_NON_BLOCKING
    first, second = ok(cu.cuStreamCreate(flags)), ok(cu.cuStreamCreate(flags))
    true(ok(cu.cuStreamGetId(first)) != ok(cu.cuStreamGetId(second)), "ids")
    address = ok(cu.cuMemAlloc(MIB))
    event = ok(cu.cuEventCreate(0))
    ok(cu.cuMemsetD8Async(address, 5, MIB, first))
    ok(cu.cuEventRecord(event, first))
    ok(cu.cuEventQuery(event), code=cu.CUresult.CUDA_ERROR_NOT_READY)
    ok(cu.cuStreamWaitEvent(second, event, 0))
    host = np.zeros(MIB, dtype=np.uint8)
    ok(cu.cuMemcpyDtoHAsync(host.ctypes.data, address, MIB, second))
    ok(cu.cuStreamSynchronize(second))
    true((host == 5).all(), "data")
    ok(cu.cuEventQuery(event))
    for each in (first, second):
        ok(cu.cuStreamDestroy(each))
    ok(cu.cuEventDestroy(event))
    ok(cu.cuMemFree(address))
    sim.schedule("eager")


@behaviour("pools: stream-ordered memory, attributes, trim")
def pools():
    stream = ok(cu.cuStreamCreate(0))
    pool = ok(cu.cuDeviceGetDefaultMemPool(DEVICE))
    ids = cu.CUmemPool_attribute
    threshold = cu.cuuint64_t(1 << 40)
    ok(cu.cuMemPoolSetAttribute(pool, ids.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, threshold))
    address = ok(cu.cuMemAllocAsync(10 * MIB, stream))
    ok(cu.cuMemsetD8Async(address, 1, 10 * MIB, stream))
    equal(int(ok(cu.cuMemPoolGetAttribute(pool, ids.CU_MEMPOOL_ATTR_USED_MEM_CURRENT))), 10 * MIB, "used")
    ok(cu.cuMemFreeAsync(address, stream))
    ok(cu.cuStreamSynchronize(stream))
    true(int(ok(cu.cuMemPoolGetAttribute(pool, ids.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT))) >= 10 * MIB, "kept")
    ok(cu.cuMemPoolTrimTo(pool, 0))
    equal(int(ok(cu.cuMemPoolGetAttribute(pool, ids.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT))), 0, "reserved")
    ok(cu.cuStreamDestroy(stream))


@behaviour("what the driver does not have is an error, not a crash")
def missing():
    code, _ = cu.cuGetExportTable(cu.CUuuid())
    true(code != cu.CUresult.CUDA_SUCCESS, "an export table was given")


run()
