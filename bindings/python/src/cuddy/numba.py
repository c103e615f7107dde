"""Cuddy under Numba: a plug-in of its External Memory Manager, interface version 1.

    import cuddy.numba
    cuddy.numba.enable()            # before the first use of CUDA

or, without a change to the program, NUMBA_CUDA_MEMORY_MANAGER=cuddy.numba in the environment.

Numba names no stream where it allocates, so its device memory is Cuddy's memory for any stream
(cuddy.ANY): safe on every stream at once, as cudaMalloc's is. Pinned and managed memory stay Numba's.
"""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda import HostOnlyCUDAMemoryManager, MemoryInfo, MemoryPointer

from . import _abi, _errors, _memory


def _finalizer(address: int) -> Any:
    # Bound now: it may run while the interpreter ends.
    free = _abi.lib.cuddy_free

    def finalize() -> None:
        free(address)

    return finalize


class CuddyMemoryManager(HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """Numba's device memory from Cuddy; one object for each context."""

    def initialize(self) -> None:
        """Numba calls it when a context is made ready: Cuddy needs nothing."""

    @property
    def interface_version(self) -> int:
        """The version of Numba's interface."""
        return 1

    def memalloc(self, size: int) -> Any:
        """Device memory for an array; OutOfMemoryError explains why there is none."""
        device = int(self.context.device.id)
        status, address = _abi.malloc(size, device, _abi.STREAM_ANY)
        if status == _errors.Status.OUT_OF_MEMORY:
            raise _errors.out_of_memory()
        _errors.check(status)
        return MemoryPointer(self.context, address, size, finalizer=_finalizer(address))

    def get_memory_info(self) -> Any:
        """What an allocation could still get, and what the device has."""
        free, total = _memory.mem_get_info(int(self.context.device.id))
        return MemoryInfo(free=free, total=total)

    def get_ipc_handle(self, memory: Any) -> Any:
        """Memory of Cuddy's cannot be opened by another process through the driver's old handles."""
        raise RuntimeError(
            "memory of Cuddy's has no IPC handle: allocate what other processes open without cuddy.numba"
        )


_numba_memory_manager = CuddyMemoryManager


def enable() -> None:
    """Makes Cuddy Numba's device memory manager in this process. Call it before the first use of CUDA:
    Numba asks for its manager once for each context."""
    cuda.set_memory_manager(CuddyMemoryManager)
