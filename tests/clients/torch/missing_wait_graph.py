"""A wrong program: the input of a graph is written on a side stream while the graph may be replayed."""

from behaviour import behaviour, run
from common import MIB, pattern, torch, upload

SIZE = 4 * MIB


@behaviour("a graph is replayed while its input is written")
def wrong():
    static, side = upload(pattern(SIZE, 1)), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(500):
            result = torch.empty_like(static).copy_(static)
    host = pattern(SIZE, 2)
    side.wait_stream(torch.cuda.current_stream())
    graph.replay()
    with torch.cuda.stream(side):
        static.copy_(host, non_blocking=True)  # side.wait_stream(...) belongs above this line
    torch.cuda.synchronize()
    del result


run()
