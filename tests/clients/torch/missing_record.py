"""A wrong program: a tensor is used on a side stream, freed with no record_stream, and its memory is
written again on the main stream while the side stream may still read it."""

from common import MIB, pattern, torch, upload

main, side = torch.cuda.current_stream(), torch.cuda.Stream()
first, second = pattern(8 * MIB, 1), pattern(8 * MIB, 2)
batch = upload(first)
side.wait_stream(main)
with torch.cuda.stream(side):
    result = torch.empty_like(batch).copy_(batch)
# Missing here: batch.record_stream(side)
del batch
batch = upload(second)
torch.cuda.synchronize()
for step in range(1000):
    upload(first[:512])
torch.cuda.synchronize()
print("passed the program runs to its end and notices nothing")
print("end 1")
