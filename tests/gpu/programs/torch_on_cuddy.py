"""PyTorch with Cuddy as its allocator: data, streams, record_stream, out of memory, cost of a pair."""

import ctypes
import gc

from common import BIN, CUDDY, SIMULATED, allocated, check, done, figure, pair_ns

import torch

SHIM = str(BIN / "libcuddy_torch.so")
C = ctypes.CDLL(SHIM)
allocator = torch.cuda.memory.CUDAPluggableAllocator(SHIM, "torch_alloc", "torch_free")
for hook, function in (("set_record_stream_fn", "torch_record"), ("set_reset_fn", "torch_reset")):
    getattr(allocator.allocator(), hook)(ctypes.cast(getattr(C, function), ctypes.c_void_p).value)
torch.cuda.memory.change_current_allocator(allocator)
figure("torch", torch.__version__)
figure("device", torch.cuda.get_device_name(0))

before = allocated()
tensor = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
check(allocated() - before == 3 << 20, "the tensor came from Cuddy")
del tensor
check(allocated() == before, "and went back to it")

host = torch.arange(1 << 20, dtype=torch.int32).pin_memory()
main, side = torch.cuda.current_stream(), torch.cuda.Stream()
for step in range(200):
    with torch.cuda.stream(side):
        batch = host.cuda(non_blocking=True)
    main.wait_stream(side)
    batch.record_stream(main)
    copy = batch.clone()
    del batch
    if step % 20 == 0:
        check(torch.equal(copy.cpu(), host), f"the data of step {step}")

if not SIMULATED:  # kernels compute only on a GPU
    left, right = torch.randn(1024, 1024, device="cuda"), torch.randn(1024, 1024, device="cuda")
    check(torch.allclose((left @ right).cpu(), left.cpu() @ right.cpu(), atol=1e-2), "a matrix product")
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)).cuda()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = torch.randn(512, 256, device="cuda")
    target = data.sum(1, keepdim=True)
    losses = []
    for _ in range(100):
        optimiser.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data), target)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    check(losses[-1] < losses[0] / 2, f"training learns: {losses[0]} to {losses[-1]}")
    figure("losses", [losses[0], losses[-1]])
    del left, right, model, optimiser, data, target, loss

figure("empty_and_drop_1MiB_ns", pair_ns(lambda: torch.empty(1 << 20, dtype=torch.uint8, device="cuda")))
del copy
gc.collect()
torch.cuda.synchronize()
torch.cuda.empty_cache()
figure("live_at_end", allocated())
figure("reserved_at_end", CUDDY.cuddy_memory_reserved(0))
done()
