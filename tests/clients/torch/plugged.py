"""torch with another allocator plugged in. CUDDY_CLIENT_MODE: plain (a few lines of C over
cudaMalloc) or cuddy."""

import ctypes
import gc
import os

from behaviour import behaviour, run
from common import MIB, MODE, equal, pattern, same, sim, torch, true, upload

LIBRARY = os.path.join(os.environ["CUDDY_CLIENT_SCRATCH"], f"lib{MODE}_torch.so")
C = ctypes.CDLL(LIBRARY)
PREFIX = "plain" if MODE == "plain" else "torch"
ALLOCATOR = torch.cuda.memory.CUDAPluggableAllocator(LIBRARY, f"{PREFIX}_alloc", f"{PREFIX}_free")


def address_of(function):
    return ctypes.cast(getattr(C, function), ctypes.c_void_p).value


ALLOCATOR.allocator().set_record_stream_fn(address_of(f"{PREFIX}_record"))
if MODE == "cuddy":
    ALLOCATOR.allocator().set_reset_fn(address_of("torch_reset"))
torch.cuda.memory.change_current_allocator(ALLOCATOR)


def live():
    """Bytes that the allocator has given and not got back."""
    if MODE == "plain":
        return ctypes.c_long.in_dll(C, "live_bytes").value
    cuddy = ctypes.CDLL("libcuddy.so.0")
    cuddy.cuddy_memory_allocated.restype = ctypes.c_size_t
    return cuddy.cuddy_memory_allocated(0)


@behaviour("tensors come from the plugged allocator, and go back to it")
def plugged():
    before = live()
    tensor = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    equal(live() - before, 3 * MIB, "bytes")
    del tensor
    equal(live(), before, "bytes after the free")


@behaviour("data goes to the device and back, on three streams")
def copies():
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    for step in range(400):
        host = pattern(1000 + 4096 * (step % 7), step)
        with torch.cuda.stream(streams[step % 3]):
            same(upload(host).clone(), host, f"step {step}")


@behaviour("record_stream reaches the allocator, and memory is not reused too early")
def recorded():
    sim.schedule("lazy")
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    host, other = pattern(8 * MIB, 1), pattern(8 * MIB, 2)
    tensor = upload(host)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        copy = torch.empty_like(tensor).copy_(tensor)
    tensor.record_stream(side)
    del tensor
    second = upload(other)
    with torch.cuda.stream(side):
        same(copy, host, "what the side stream copied")
    same(second, other, "what came after")
    torch.cuda.synchronize()
    sim.schedule("eager")
    if MODE == "plain":
        true(ctypes.c_long.in_dll(C, "recorded").value > 0, "the hook was not called")


@behaviour("what is freed is served again: how many driver calls that takes")
def again():
    tensor = torch.empty(10 * MIB, dtype=torch.uint8, device="cuda")
    del tensor
    names = ("cuMemAlloc", "cuMemCreate", "cuMemMap", "cuMemFree", "cuMemUnmap")
    before = sum(sim.calls(name) for name in names)
    for _ in range(100):
        tensor = torch.empty(10 * MIB, dtype=torch.uint8, device="cuda")
        del tensor
    made = sum(sim.calls(name) for name in names) - before
    equal(made, 200 if MODE == "plain" else 0, "memory calls in 100 pairs")


@behaviour("at the end everything was given back")
def end():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    equal(live(), 0, "live bytes")
    equal(sim.used(), 0, "bytes in use on the device")


run()
