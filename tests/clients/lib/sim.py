"""The simulated driver that this process runs on: its control functions (simcuda.h), by ctypes."""

import ctypes

_LIBRARY = None


def library():
    """The driver; a process without the simulated one has no control functions."""
    global _LIBRARY
    if _LIBRARY is None:
        found = ctypes.CDLL("libcuda.so.1")
        if not hasattr(found, "simcuda_report_count"):
            raise RuntimeError("libcuda.so.1 is not the simulated driver: run this by tests/clients/run")
        for name in ("report_count", "accesses_checked", "unknown_launches", "calls_total", "time_ns"):
            getattr(found, f"simcuda_{name}").restype = ctypes.c_uint64
        for name in ("calls", "objects", "used", "used_peak", "call_count"):
            getattr(found, f"simcuda_{name}").restype = ctypes.c_uint64
        found.simcuda_call_count.argtypes = [ctypes.c_uint64]
        _LIBRARY = found
    return _LIBRARY


def calls(function):
    """Calls of a driver function so far."""
    return library().simcuda_calls(function.encode())


def objects(what):
    """Live objects of a kind."""
    return library().simcuda_objects(what.encode())


def used(device=0):
    """Bytes of device memory in use."""
    return library().simcuda_used(ctypes.c_int(device))


def accesses():
    """How many uses of memory were compared."""
    return library().simcuda_accesses_checked()


def unknown_launches():
    """Launches of kernels whose uses are not known."""
    return library().simcuda_unknown_launches()


def reports():
    """The checker's findings so far, as texts."""
    lib = library()
    texts = []
    for index in range(lib.simcuda_report_count()):
        buffer = ctypes.create_string_buffer(1 << 14)
        lib.simcuda_report_text(ctypes.c_uint64(index), buffer, ctypes.c_uint64(len(buffer)))
        texts.append(buffer.value.decode())
    return texts


def clear_reports():
    """Forgets the findings: for those that a program makes on purpose."""
    library().simcuda_reports_clear()


def schedule(text):
    """When queued work runs: eager, lazy, lag:K, random:SEED."""
    _accepted(library().simcuda_schedule(text.encode()))


def fault(function, first, code, every=0, after_effect=False):
    """The `first`-th call of a function from now on fails with a code."""
    _accepted(
        library().simcuda_fault(
            function.encode(), ctypes.c_uint64(first), ctypes.c_uint64(every), code, int(after_effect)
        )
    )


def clear_faults():
    """Ends all faults."""
    library().simcuda_faults_clear()


def others_use(size, device=0):
    """So many bytes are taken by other processes."""
    _accepted(library().simcuda_others_use(device, ctypes.c_uint64(size)))


def peek(address, size):
    """Device memory as it is now."""
    buffer = ctypes.create_string_buffer(size)
    _accepted(library().simcuda_peek(ctypes.c_uint64(address), buffer, ctypes.c_uint64(size)))
    return buffer.raw


def _accepted(result):
    if result != 0:
        buffer = ctypes.create_string_buffer(1024)
        library().simcuda_error(buffer, ctypes.c_uint64(len(buffer)))
        raise RuntimeError(buffer.value.decode())
