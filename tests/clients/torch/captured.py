"""torch.cuda.CUDAGraph on the simulated driver: captures, replays, and the memory of graphs, by torch's
own allocator in each of its modes and by Cuddy."""

import gc

from common import MIB, MODE, equal, pattern, same, sim, torch, true, upload

from behaviour import behaviour, raises, run

if MODE == "cuddy":
    import cuddy.torch

    cuddy.torch.enable()

SIZE = MIB
REPLAYS = 20


def captured(work, **options):
    """A graph of what a function does; and what that gave."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **options):
        result = work()
    return graph, result


def copy_of(source):
    return torch.empty_like(source).copy_(source)


def random_orders():
    """Some orders of the devices' work, one after another."""
    for schedule in ("lazy", "lag:2", "random:1", "random:2", "eager"):
        sim.schedule(schedule)
        yield schedule


@behaviour("captured copies are done at each replay and not before, on the data of that time")
def replays():
    static = upload(pattern(SIZE, 1))
    graph, result = captured(lambda: copy_of(copy_of(static)))
    torch.cuda.synchronize()
    before = sim.accesses()
    for seed in range(REPLAYS):
        static.copy_(pattern(SIZE, seed), non_blocking=True)
        graph.replay()
        same(result, pattern(SIZE, seed), f"replay {seed}")
    true(sim.accesses() - before >= REPLAYS * 8, "each copy of each replay is judged")
    equal(sim.objects("graph_allocations") > 0, MODE == "async", "cudaMallocAsync made memory nodes, and it alone")


@behaviour("a capture over two streams is replayed in its order, whatever runs first")
def forked():
    side, static = torch.cuda.Stream(), upload(pattern(SIZE, 1))

    def work():
        main = torch.cuda.current_stream()
        first = copy_of(static)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            left = copy_of(first)
        right = copy_of(first)
        main.wait_stream(side)
        return torch.cat((left[: SIZE // 2], right[SIZE // 2 :])), left, right

    graph, (_, left, right) = captured(work)
    for schedule in random_orders():
        for seed in range(8):
            static.copy_(pattern(SIZE, seed), non_blocking=True)
            graph.replay()
            same(left, pattern(SIZE, seed), f"{schedule}: the side stream's copy")
            same(right, pattern(SIZE, seed), f"{schedule}: the main stream's copy")


@behaviour("kernels whose uses are declared are judged at each replay")
def kernels():
    one, two = (torch.full((SIZE,), float(k), device="cuda") for k in (1, 2))
    graph, kept = captured(lambda: (one + two).add_(one))
    torch.cuda.synchronize()
    before, unknown = sim.accesses(), sim.unknown_launches()
    for _ in range(REPLAYS):
        graph.replay()
    torch.cuda.synchronize()
    del kept
    equal(sim.unknown_launches() - unknown, 0, "launches of unknown kernels")
    true(sim.accesses() - before >= REPLAYS * 6, f"{sim.accesses() - before} uses in {REPLAYS} replays of two kernels")


@behaviour("memory freed in a capture is no other tensor's while the graph can be replayed")
def kept():
    static = upload(pattern(SIZE, 3))
    graph, (result, at) = captured(lambda: (copy_of(middle := copy_of(static)), middle.data_ptr()))
    others = [upload(pattern(SIZE, 50 + k)) for k in range(8)]
    for _ in range(3):
        graph.replay()
    same(result, pattern(SIZE, 3), "what the graph made")
    for k, other in enumerate(others):
        true(not at <= other.data_ptr() < at + SIZE, "the graph's memory was handed out")
        same(other, pattern(SIZE, 50 + k), "another tensor")


@behaviour("graphs that share a pool are replayed in the order of their captures")
def shared():
    static = upload(pattern(SIZE, 1))
    first, middle = captured(lambda: copy_of(static))
    second, result = captured(lambda: copy_of(middle), pool=first.pool())
    for schedule in random_orders():
        for seed in range(5):
            static.copy_(pattern(SIZE, seed), non_blocking=True)
            first.replay()
            second.replay()
            same(result, pattern(SIZE, seed), f"{schedule}, {seed}")


@behaviour("a replay on another stream waits for it, and is waited for")
def elsewhere():
    side, static = torch.cuda.Stream(), upload(pattern(SIZE, 1))
    graph, result = captured(lambda: copy_of(static))
    for schedule in random_orders():
        for seed in range(5):
            static.copy_(pattern(SIZE, seed), non_blocking=True)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                graph.replay()
            torch.cuda.current_stream().wait_stream(side)
            same(result, pattern(SIZE, seed), f"{schedule}, {seed}")


@behaviour("a graph's end gives its memory back")
def end():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    static = upload(pattern(32 * MIB, 1))
    graph, result = captured(lambda: copy_of(static))
    graph.replay()
    same(result, pattern(32 * MIB, 1), "its data")
    del graph, result, static
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    true(torch.cuda.memory_reserved() <= before, f"reserved: {before} before, {torch.cuda.memory_reserved()} after")
    equal(sim.objects("graph_execs") <= 1, True, "executable graphs")


# torch says nothing of a capture that failed to its allocators; that of cudaMallocAsync does not survive it.
if MODE != "async":

    @behaviour("what cannot be captured fails, and ends the capture; the next one works")
    def refused():
        static = upload(pattern(SIZE, 9))
        # It has to outlive the next capture: torch's allocator goes on asking it.
        failed = torch.cuda.CUDAGraph()

        def wrong():
            with torch.cuda.graph(failed):
                copy_of(static)
                torch.cuda.current_stream().synchronize()

        raises(RuntimeError, wrong, "capture")
        graph, result = captured(lambda: copy_of(static))
        graph.replay()
        same(result, pattern(SIZE, 9), "after a capture that failed")


run()
