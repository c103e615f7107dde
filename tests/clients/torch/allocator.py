"""torch's own allocator in each of its modes; CUDDY_CLIENT_MODE says which: native, expandable,
async."""

import gc

from behaviour import behaviour, raises, run
from common import MIB, MODE, download, equal, pattern, same, sim, torch, true, upload

GIB = 1024 * MIB


def fresh():
    """Nothing live, nothing cached."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def with_statistics(name):
    """A behaviour that torch does not promise over the driver's own pools."""
    return (lambda check: check) if MODE == "async" else behaviour(name)


@behaviour("torch finds two devices, which say that they are simulated")
def devices():
    true(torch.cuda.is_available(), "CUDA is not available to torch")
    equal(torch.cuda.device_count(), 2, "devices")
    true("simcuda" in torch.cuda.get_device_name(0), torch.cuda.get_device_name(0))
    equal(torch.cuda.get_device_properties(0).total_memory, 24 * GIB, "memory")
    equal(torch.cuda.mem_get_info()[1], 24 * GIB, "total")


@behaviour("the mode is in force: the driver's calls say so")
def mode():
    tensors = [torch.empty(n, dtype=torch.uint8, device="cuda") for n in (512, 3 * MIB, 30 * MIB)]
    plain, mapped = sim.calls("cuMemAlloc"), sim.calls("cuMemMap")
    pooled = sim.calls("cuMemAllocAsync") + sim.calls("cuMemAllocFromPoolAsync")
    called = {"native": plain > 0, "expandable": mapped > 0, "async": pooled > 0}
    equal([name for name, yes in called.items() if yes], [MODE], f"{plain}, {mapped}, {pooled} calls")
    del tensors


@behaviour("data of every type and size goes to the device and back")
def copies():
    for dtype in (torch.uint8, torch.int16, torch.float32, torch.float64, torch.complex64):
        data = (torch.arange(10_007) % 251).to(dtype)
        true(torch.equal(data.cuda().cpu(), data), f"{dtype}")
    for size in (1, 511, 512, 513, MIB, MIB + 1, 20 * MIB + 3):
        host = pattern(size, seed=size)
        same(upload(host), host, f"{size} bytes")


@behaviour("copies between tensors and between views of them")
def between():
    host = pattern(4 * MIB)
    first = upload(host)
    second = torch.empty_like(first).copy_(first)
    same(second, host, "a copy")
    second[MIB : 2 * MIB].copy_(first[:MIB])
    true(torch.equal(download(second)[MIB : 2 * MIB], host[:MIB]), "a view")
    same(first.clone(), host, "a clone")
    same(first.cuda(1).to("cuda:0"), host, "through the other device")


@behaviour("thousands of allocations, copies and frees on three streams, all data right")
def churn():
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    hosts = [pattern(size, seed=size) for size in (512, 5000, 70_000, MIB + 512)]
    live, state = [], 12345
    for step in range(1500):
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        stream, host = streams[(state >> 33) % 3], hosts[(state >> 40) % 4]
        with torch.cuda.stream(stream):
            live.append((upload(host), host, stream))
        if len(live) > 20:
            tensor, host, stream = live.pop((state >> 45) % 20)
            with torch.cuda.stream(stream):
                same(tensor, host, f"step {step}")
            del tensor


@behaviour("a tensor used on another stream, with record_stream, is not reused too early")
def recorded():
    sim.schedule("lazy")
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    host, other = pattern(8 * MIB, 1), pattern(8 * MIB, 2)
    fresh()
    tensor = upload(host)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        copy = torch.empty_like(tensor).copy_(tensor)
    tensor.record_stream(side)
    address = tensor.data_ptr()
    del tensor
    second = upload(other)
    if MODE != "async":
        true(second.data_ptr() != address, "the memory was reused before the side stream was done")
    with torch.cuda.stream(side):
        same(copy, host, "what the side stream copied")
    same(second, other, "what came after")
    torch.cuda.synchronize()
    if MODE == "native":
        del second
        again = [torch.empty(8 * MIB, dtype=torch.uint8, device="cuda") for _ in range(2)]
        true(address in [t.data_ptr() for t in again], "the memory was not reused afterwards")
    sim.schedule("eager")


@behaviour("events order two streams, and a wait of the host is enough too")
def events():
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    host = pattern(2 * MIB, 5)
    done = torch.cuda.Event()
    with torch.cuda.stream(side):
        tensor = upload(host)
        done.record()
    done.wait(main)
    tensor.record_stream(main)
    same(tensor, host, "by an event")
    with torch.cuda.stream(side):
        other = upload(host)
    side.synchronize()
    true(side.query(), "the stream is not done after its synchronize")
    same(other, host, "by the host")
    other.record_stream(main)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    upload(pattern(20 * MIB))
    end.record()
    end.synchronize()
    true(begin.elapsed_time(end) > 0, "no virtual time passed")


@behaviour("page-locked memory is reused only after the copies from it")
def pinned():
    torch.cuda.synchronize()
    sim.schedule("lazy")
    first = pattern(3 * MIB, 3)
    wanted, address = first.clone(), first.data_ptr()
    tensor = upload(first)
    del first
    second = torch.empty(3 * MIB, dtype=torch.uint8, pin_memory=True)
    true(second.data_ptr() != address, "page-locked memory was reused under a copy")
    second.fill_(0)
    torch.cuda.synchronize()
    same(tensor, wanted, "what was copied")
    true(second.is_pinned() and not torch.empty(9).is_pinned(), "is_pinned")
    sim.schedule("eager")


@behaviour("memory statistics: 256 floats are 1024 bytes, and go away again")
def statistics():
    if MODE == "async":
        before = torch.cuda.memory_allocated()
        tensor = torch.empty(256, device="cuda")
        true(torch.cuda.memory_allocated() >= before + 1024, "allocated")
        return
    fresh()
    before = torch.cuda.memory_stats()
    tensor = torch.empty(256, device="cuda")
    after = torch.cuda.memory_stats()
    for key, grown in (("active_bytes.all.current", 1024), ("allocation.all.allocated", 1), ("requested_bytes.all.current", 1024)):
        equal(after[key] - before[key], grown, key)
    del tensor
    equal(torch.cuda.memory_allocated(), before["allocated_bytes.all.current"], "allocated after the free")
    true("GPU reserved" in torch.cuda.memory_summary(), "the summary")


@with_statistics("reserved is what the driver gave, and empty_cache gives it back")
def reserved():
    fresh()
    free, taken = torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved()
    tensor = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
    equal(free - torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved() - taken, "bytes")
    del tensor
    fresh()
    equal(torch.cuda.mem_get_info()[0], free, "free after empty_cache")


@behaviour("cached memory is handed out again with no memory call of the driver")
def cached():
    fresh()
    tensor = torch.empty(10 * MIB, dtype=torch.uint8, device="cuda")
    del tensor
    names = ("cuMemAlloc", "cuMemFree", "cuMemCreate", "cuMemMap", "cuMemUnmap")
    before = [sim.calls(name) for name in names]
    for _ in range(100):
        tensor = torch.empty(10 * MIB, dtype=torch.uint8, device="cuda")
        del tensor
    equal([sim.calls(name) for name in names], before, "calls")


@behaviour("too much is an OutOfMemoryError with figures, and a program survives it")
def out_of_memory():
    fresh()
    error = raises(torch.cuda.OutOfMemoryError, lambda: torch.empty(30 * GIB, dtype=torch.uint8, device="cuda"))
    true("30.00 GiB" in str(error) or MODE == "async", str(error))
    host = pattern(MIB)
    same(upload(host), host, "afterwards")
    keep = torch.empty(14 * GIB, dtype=torch.uint8, device="cuda")
    raises(torch.cuda.OutOfMemoryError, lambda: torch.empty(14 * GIB, dtype=torch.uint8, device="cuda"))
    del keep
    torch.cuda.synchronize()
    keep = torch.empty(14 * GIB, dtype=torch.uint8, device="cuda")
    del keep


@with_statistics("short of memory, it gives its cache back to the driver and tries again")
def retry():
    fresh()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        tensor = torch.empty(15 * GIB, dtype=torch.uint8, device="cuda")
        del tensor  # cached for the side stream
    before = torch.cuda.memory_stats()["num_alloc_retries"]
    tensor = torch.empty(15 * GIB, dtype=torch.uint8, device="cuda")
    equal(torch.cuda.memory_stats()["num_alloc_retries"], before + 1, "retries")
    del tensor


@with_statistics("an injected failure of the driver is retried; a second one is an OutOfMemoryError")
def injected():
    function = {"native": "cuMemAlloc", "expandable": "cuMemCreate"}[MODE]
    fresh()
    before = torch.cuda.memory_stats()["num_alloc_retries"]
    sim.fault(function, 1, 2)
    tensor = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
    equal(torch.cuda.memory_stats()["num_alloc_retries"], before + 1, "retries")
    del tensor
    fresh()
    sim.fault(function, 1, 2, every=1)
    raises(torch.cuda.OutOfMemoryError, lambda: torch.empty(40 * MIB, dtype=torch.uint8, device="cuda"))
    sim.clear_faults()
    host = pattern(40 * MIB)
    same(upload(host), host, "afterwards")


@with_statistics("a memory fraction is a limit")
def fraction():
    fresh()
    torch.cuda.set_per_process_memory_fraction(0.25)
    raises(torch.cuda.OutOfMemoryError, lambda: torch.empty(7 * GIB, dtype=torch.uint8, device="cuda"))
    torch.cuda.set_per_process_memory_fraction(1.0)
    tensor = torch.empty(7 * GIB, dtype=torch.uint8, device="cuda")
    del tensor


@with_statistics("history and snapshot name each allocation and each free")
def history():
    fresh()
    torch.cuda.memory._record_memory_history(max_entries=10_000)
    tensor = torch.empty(77 * 512, dtype=torch.uint8, device="cuda")
    address = tensor.data_ptr()
    snapshot = torch.cuda.memory._snapshot()
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    mine = [b for b in blocks if b["address"] == address and b["requested_size"] == 77 * 512]
    equal([block["state"] for block in mine], ["active_allocated"], "the block")
    true(any("history" in frame["name"] for frame in mine[0]["frames"]), "its frames")
    del tensor
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    actions = [entry["action"] for entry in trace if entry["addr"] == address]
    equal([a for a in actions if a in ("alloc", "free_completed")], ["alloc", "free_completed"], "its trace")
    segments = torch.cuda.memory_snapshot()
    equal({s["is_expandable"] for s in segments if s["total_size"]}, {MODE == "expandable"}, "is_expandable")
    torch.cuda.memory._record_memory_history(enabled=None)


@behaviour("two host threads, each with its own stream")
def threads():
    import threading

    wrong = []

    def work(seed):
        with torch.cuda.stream(torch.cuda.Stream()):
            for step in range(40):
                host = pattern(100_000, seed + step)
                if not torch.equal(download(upload(host)), host):
                    wrong.append((seed, step))

    started = [threading.Thread(target=work, args=(seed,)) for seed in (100, 200)]
    for each in started:
        each.start()
    for each in started:
        each.join()
    equal(wrong, [], "wrong data")


run()
