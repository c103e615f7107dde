"""What the Python programs of tests/gpu/check share: Cuddy by ctypes, figures, and how they end."""

import ctypes
import json
import os
import pathlib
import time

HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path(os.environ["CUDDY_GPU_BIN"])
SIMULATED = os.environ["CUDDY_GPU_SIMULATED"] == "1"
CUDDY = ctypes.CDLL(str(BIN / "libcuddy.so"), mode=ctypes.RTLD_GLOBAL)
CUDDY.cuddy_last_error.restype = ctypes.c_char_p
for _name in ("allocated", "reserved"):
    getattr(CUDDY, f"cuddy_memory_{_name}").restype = ctypes.c_size_t
_FIGURES = {}


def figure(name, value):
    """Notes a figure for the report."""
    _FIGURES[name] = value


def check(holds, what):
    """Fails the step unless something holds."""
    if not holds:
        raise SystemExit(f"not so: {what}")


def skip(why):
    """Ends the step as skipped."""
    print(json.dumps({"skipped": why}))
    raise SystemExit(0)


def pair_ns(make, count=20_000):
    """Nanoseconds that making something and dropping it takes: the best of five runs."""
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter_ns()
        for _ in range(count):
            make()
        best = min(best, (time.perf_counter_ns() - begin) / count)
    return round(best)


def malloc(size, device=-1, stream=1):
    """A block of Cuddy's; 0 if there is no memory."""
    at = ctypes.c_void_p()
    code = CUDDY.cuddy_malloc(ctypes.byref(at), ctypes.c_size_t(size), device, ctypes.c_void_p(stream))
    return 0 if code else at.value or 0


def free(address):
    """Gives it back."""
    check(CUDDY.cuddy_free(ctypes.c_void_p(address)) == 0, CUDDY.cuddy_last_error())


def allocated():
    """Bytes of live blocks."""
    return CUDDY.cuddy_memory_allocated(0)


def done():
    """Ends the step as passed, with its figures."""
    print(json.dumps({"figures": _FIGURES}))
