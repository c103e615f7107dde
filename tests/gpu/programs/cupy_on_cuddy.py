"""CuPy with Cuddy as its allocator."""

import gc

from common import SIMULATED, allocated, check, done, figure, free, malloc, pair_ns, skip

if SIMULATED:
    skip("CuPy has the vendor's runtime inside, which runs on a GPU only")
try:
    import cupy
except ImportError as why:
    skip(str(why))


def take(size, device):
    """For CuPy: an address, or its error."""
    address = malloc(size, device, cupy.cuda.get_current_stream().ptr or 1)
    if size and not address:
        raise cupy.cuda.memory.OutOfMemoryError(size, allocated())
    return address


def give(address, device):
    """Gives it back."""
    free(address)


cupy.cuda.set_allocator(cupy.cuda.PythonFunctionAllocator(take, give).malloc)
before = allocated()
left = cupy.arange(1 << 20, dtype=cupy.float32)
check(allocated() - before >= left.nbytes, "the array came from Cuddy")
check(abs(float((left % 7).sum()) - sum(k % 7 for k in range(1 << 20))) < 1, "a sum")
figure("cupy", cupy.__version__)
figure("empty_and_drop_1MiB_ns", pair_ns(lambda: cupy.empty(1 << 20, dtype=cupy.uint8), 5000))
del left
gc.collect()
figure("live_at_end", allocated() - before)
done()
