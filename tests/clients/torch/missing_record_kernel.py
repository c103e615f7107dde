"""A wrong program: a batch that a side stream fetched is used by kernels of the main stream and freed
with no record_stream, so that the next batch is copied over it while they may still run."""

from common import MIB, torch

main, side = torch.cuda.current_stream(), torch.cuda.Stream()
host = torch.full((MIB,), 1.0, pin_memory=True)
total = torch.zeros(MIB, device="cuda")
for step in range(500):
    with torch.cuda.stream(side):
        batch = host.cuda(non_blocking=True)
    main.wait_stream(side)
    # Missing here: batch.record_stream(main)
    total.add_(batch)
    del batch
torch.cuda.synchronize()
print("passed the program runs to its end and notices nothing")
print("end 1")
