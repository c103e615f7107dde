"""Cuddy under CuPy.

    import cuddy.cupy
    cuddy.cupy.enable()             # every array from now on; arrays of before stay what they are

CuPy's own pool is not between: Cuddy caches, by the stream that is current where an array is made.
"""

from __future__ import annotations

from typing import Any

import cupy

from . import _abi, _errors

_allocator: Any = None


def _take(size: int, device: int) -> int:
    stream = cupy.cuda.get_current_stream().ptr or _abi.STREAM_LEGACY
    status, address = _abi.malloc(size, device, stream)
    if status == _errors.Status.OUT_OF_MEMORY:
        # The type that CuPy's users catch, with Cuddy's words.
        raise cupy.cuda.memory.OutOfMemoryError(size, _abi.lib.cuddy_memory_allocated(device)) from (
            _errors.out_of_memory()
        )
    _errors.check(status)
    return address


def _give(address: int, device: int, _free: Any = _abi.lib.cuddy_free) -> None:
    _free(address)


def enable() -> None:
    """Makes Cuddy CuPy's device allocator in this process."""
    global _allocator
    _allocator = cupy.cuda.PythonFunctionAllocator(_take, _give)
    cupy.cuda.set_allocator(_allocator.malloc)
