"""torch's own allocator, and one MemPool of it on Cuddy: cuddy.torch.mem_pool()."""

import gc

import cuddy.torch
from common import MIB, equal, pattern, same, sim, torch, true, upload

from behaviour import behaviour, raises, run

POOL = cuddy.torch.mem_pool()


@behaviour("what is allocated in the pool is Cuddy's, and nothing else")
def inside():
    outside = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    equal(cuddy.memory_allocated(0), 0, "Cuddy's live bytes outside")
    with torch.cuda.use_mem_pool(POOL):
        kept = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    equal(cuddy.memory_allocated(0), 30 * MIB, "Cuddy's live bytes inside")
    equal(cuddy._abi.block_info(kept.data_ptr())[0], 0, "the status of its block")
    true(cuddy._abi.block_info(outside.data_ptr())[0] != 0, "the other block is torch's")
    equal(torch.cuda.memory_allocated(), 33 * MIB, "torch counts both")


@behaviour("Cuddy's statistics have every key of torch's own")
def keys():
    equal(sorted(torch.cuda.memory_stats().keys() - cuddy.memory_stats(0).keys()), [], "keys that Cuddy has not")
    true(len(torch.cuda.memory_stats()) > 100, "torch's own statistics")


@behaviour("data goes there and back")
def data():
    with torch.cuda.use_mem_pool(POOL):
        for step in range(300):
            host = pattern(100_000 + step, step)
            same(upload(host), host, f"step {step}")


@behaviour("no memory is torch's own error")
def no_memory():
    with torch.cuda.use_mem_pool(POOL):
        raises(torch.OutOfMemoryError, lambda: torch.empty(1 << 40, dtype=torch.uint8, device="cuda"), "out of memory")


@behaviour("enable() comes too late now, and says so")
def late():
    raises(RuntimeError, cuddy.torch.enable, "too late")


@behaviour("the pool's end gives it back to Cuddy")
def end():
    global POOL
    del POOL
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    equal(cuddy.memory_allocated(0), 0, "Cuddy's live bytes")
    cuddy.empty_cache()
    equal(cuddy.memory_reserved(0), 0, "Cuddy's reserved bytes")
    true(sim.accesses() > 0, "something was checked")


run()
