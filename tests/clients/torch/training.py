"""A training loop as people write it: batches prefetched on a side stream from page-locked memory,
elementwise forward and backward, an optimiser step. Its kernels' uses are declared (kernels.txt), so
the checker judges them as it does copies."""

from behaviour import behaviour, run
from common import MIB, equal, sim, torch, true

FLOATS = MIB
SIDE = torch.cuda.Stream()


def steps(count):
    """Runs so many; gives the last loss tensor."""
    main, side = torch.cuda.current_stream(), SIDE
    hosts = [torch.full((FLOATS,), float(k), pin_memory=True) for k in range(3)]
    weight = torch.zeros(FLOATS, device="cuda")
    momentum = torch.zeros(FLOATS, device="cuda")

    def fetch(step):
        with torch.cuda.stream(side):
            return hosts[step % 3].cuda(non_blocking=True)

    batch = fetch(0)
    for step in range(count):
        main.wait_stream(side)
        batch.record_stream(main)
        now, batch = batch, fetch(step + 1)
        hidden = torch.relu(now * weight)
        loss = hidden + now
        half = loss.half()
        gradient = loss * now
        momentum.mul_(0.9).add_(gradient)
        weight.add_(momentum, alpha=-0.01)
        del hidden, gradient, half, now
    torch.cuda.synchronize()
    return loss


@behaviour("a loop with prefetching by streams runs, and each of its kernels is judged")
def loop():
    before, unknown = sim.accesses(), sim.unknown_launches()
    steps(100)
    equal(sim.unknown_launches() - unknown, 0, "launches of unknown kernels")
    true(sim.accesses() - before > 1500, f"{sim.accesses() - before} accesses were checked")


@behaviour("after its second step the loop makes no memory call of the driver")
def steady():
    steps(2)
    names = ("cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemCreate", "cuMemMap")
    before = [sim.calls(name) for name in names]
    steps(20)
    equal([sim.calls(name) for name in names], before, "calls")


@behaviour("the same in a random order of the devices' work")
def random():
    for seed in (1, 2, 3):
        sim.schedule(f"random:{seed}")
        steps(20)
    sim.schedule("eager")


run()
