"""torch on Cuddy by the Python package: cuddy.torch.enable()."""

import gc
import pickle

import cuddy.torch
from common import MIB, equal, pattern, same, sim, torch, true, upload

from behaviour import behaviour, raises, run

cuddy.torch.enable()
cuddy.torch.enable()  # again: nothing


def tensor(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


@behaviour("tensors are Cuddy's, and torch's figures are Cuddy's")
def figures():
    equal(torch.cuda.memory_allocated(), 0, "before")
    kept = tensor(3 * MIB)
    equal(torch.cuda.memory_allocated(), 3 * MIB, "torch.cuda.memory_allocated()")
    equal(cuddy.memory_allocated(), 3 * MIB, "cuddy.memory_allocated()")
    equal(cuddy._abi.block_info(kept.data_ptr())[0], 0, "the status of its block")
    equal(torch.cuda.memory.memory_allocated("cuda:0"), 3 * MIB, "by a device's name")
    stats = torch.cuda.memory_stats()
    equal(stats["allocated_bytes.all.current"], 3 * MIB, "memory_stats()")
    equal(len(stats), 108 + 8 + 7, "torch's keys")
    equal(stats["allocation.all.current"], 1, "blocks")
    equal(torch.cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"], 3 * MIB, "nested")
    true(torch.cuda.memory_reserved() >= 3 * MIB, "reserved")
    true("reserved from the driver" in torch.cuda.memory_summary(), "the summary")
    equal(torch.accelerator.memory_allocated(), 3 * MIB, "torch.accelerator")
    del kept
    equal(torch.cuda.memory_allocated(), 0, "after")
    equal(torch.cuda.max_memory_allocated(), 3 * MIB, "the peak")
    torch.cuda.reset_peak_memory_stats()
    equal(torch.cuda.max_memory_allocated(), 0, "the peak, reset")


@behaviour("what is freed is served again with no driver call; empty_cache gives it back")
def again():
    del_me = tensor(10 * MIB)
    del del_me
    names = ("cuMemAlloc", "cuMemCreate", "cuMemMap", "cuMemFree", "cuMemUnmap")
    before = sum(map(sim.calls, names))
    for _ in range(100):
        del_me = tensor(10 * MIB)
        del del_me
    equal(sum(map(sim.calls, names)), before, "memory calls")
    true(sim.used() >= 10 * MIB, "something is kept")
    torch.cuda.empty_cache()
    equal((torch.cuda.memory_reserved(), sim.used()), (0, 0), "reserved, in use on the device")


@behaviour("record_stream is honoured, of a view too")
def recorded():
    sim.schedule("lazy")
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    host, other = pattern(8 * MIB, 1), pattern(8 * MIB, 2)
    for view in (False, True):
        source = upload(host)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            copy = torch.empty_like(source).copy_(source)
        (source[4096:] if view else source).record_stream(side)
        del source
        second = upload(other)
        with torch.cuda.stream(side):
            same(copy, host, "what the side stream copied")
        same(second, other, "what came after")
        torch.cuda.synchronize()
        del copy, second
    sim.schedule("eager")


@behaviour("no memory is torch.OutOfMemoryError, with Cuddy's words, and nothing is lost")
def no_memory():
    before = torch.cuda.memory_allocated()
    held = tensor(100 * MIB)
    try:
        tensor(1 << 40)
    except torch.OutOfMemoryError as error:
        said = str(error)
    true("CUDA out of memory. 1.00 TiB" in said, said)
    true("100.0 MiB" in said, said)
    raises(torch.cuda.OutOfMemoryError, lambda: tensor(1 << 41), "out of memory")
    equal(torch.cuda.memory_stats()["num_ooms"], 2, "num_ooms")
    del held
    equal(torch.cuda.memory_allocated(), before, "live bytes")
    small = upload(pattern(MIB, 3))
    same(small, pattern(MIB, 3), "what came after it")


@behaviour("a fraction is Cuddy's limit")
def fraction():
    torch.cuda.set_per_process_memory_fraction(0.25)
    equal(cuddy.memory_limit(0), 6 << 30, "the limit")
    equal(torch.cuda.get_per_process_memory_fraction(), 0.25, "the fraction")
    raises(torch.OutOfMemoryError, lambda: tensor(7 << 30), "limit")
    torch.cuda.set_per_process_memory_fraction(1.0)


@behaviour("streams and threads")
def streams():
    from concurrent.futures import ThreadPoolExecutor

    def loop(seed):
        with torch.cuda.stream(torch.cuda.Stream()):
            for step in range(50):
                host = pattern(1000 + 4096 * (step % 7), seed + step)
                same(upload(host).clone(), host, f"step {step}")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(loop, range(0, 400, 100)))


@behaviour("a captured graph keeps the memory that was freed in it, until it is destroyed")
def graphs():
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    host = pattern(4 * MIB, 11)
    source = upload(host)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        middle = torch.empty_like(source).copy_(source)
        result = torch.empty_like(source).copy_(middle)
        at = middle.data_ptr()
        del middle
    others = [upload(pattern(4 * MIB, seed)) for seed in (12, 13)]
    true(at not in [other.data_ptr() for other in others], "the graph's memory was handed out")
    for _ in range(3):
        graph.replay()
    same(result, host, "what the graph made")
    for seed, other in zip((12, 13), others):
        same(other, pattern(4 * MIB, seed), "the others")
    shared = torch.cuda.CUDAGraph()
    with torch.cuda.graph(shared, pool=graph.pool()):
        torch.empty_like(source).copy_(source)
    shared.replay()
    del graph, shared, result, others, source, other
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    # What torch keeps for random numbers in graphs stays.
    true(torch.cuda.memory_reserved() <= before + 2 * MIB, "the graph's memory came back")


@behaviour("DLPack: a Cuddy buffer is a tensor, and outlives its name")
def dlpack():
    before = torch.cuda.memory_allocated()
    buffer = cuddy.empty(1 << 20, 0, torch.cuda.current_stream())
    view = torch.from_dlpack(buffer)
    equal((view.data_ptr(), tuple(view.shape), view.dtype), (buffer.ptr, (1 << 20,), torch.uint8), "the tensor")
    del buffer
    view.copy_(pattern(1 << 20, 5))
    same(view, pattern(1 << 20, 5), "its data")
    equal(torch.cuda.memory_allocated(), before + (1 << 20), "live bytes")
    del view
    gc.collect()
    equal(torch.cuda.memory_allocated(), before, "live bytes after")


@behaviour("torch's own viewer reads Cuddy's history, and its totals are Cuddy's")
def viewer():
    from torch.cuda import _memory_viz

    torch.cuda.memory._record_memory_history()
    with cuddy.scope("viewed"):
        kept = [tensor(size * MIB) for size in (1, 3, 8)]
    del kept[0]
    raises(torch.OutOfMemoryError, lambda: tensor(1 << 40))
    torch.cuda.memory._dump_snapshot("viewed.pickle")
    with open("viewed.pickle", "rb") as file:
        data = pickle.load(file)
    torch.cuda.memory._record_memory_history(None)
    equal(sum(segment["allocated_size"] for segment in data["segments"]), torch.cuda.memory_allocated(), "the sum")
    total = _memory_viz.Bytes(torch.cuda.memory_allocated())
    true(f"total_allocated: {total}" in _memory_viz.segsum(data), "what the viewer sums up")
    told = _memory_viz.trace(data).splitlines()
    equal(len([line for line in told if ":3.0MiB]" in line]), 1, "allocations of 3 MiB in its trace")
    true(any(line.startswith("del a #") for line in told), "the free")
    failures = [line for line in told if "OutOfMemoryError" in line]
    true(any("raise OutOfMemoryError # 1.0TiB requested" in line for line in failures), f"the failure: {told[-6:]}")
    names = {frame["name"] for entry in data["device_traces"][0] for frame in entry["frames"]}
    true("viewed" in names, f"the scope is a frame: {names}")
    equal(len(torch.cuda.memory_snapshot()), len(data["segments"]), "segments")


@behaviour("what cannot work says so")
def cannot():
    raises(RuntimeError, cuddy.torch.mem_pool, "Cuddy's already")


@behaviour("at the end everything was given back")
def end():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    true(torch.cuda.memory_allocated() <= 2048, "live bytes: only torch's own state for graphs")


run()
