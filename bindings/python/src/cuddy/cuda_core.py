"""Cuddy under cuda.core: a MemoryResource.

from cuda.core import Device
from cuddy.cuda_core import MemoryResource

memory = MemoryResource()                          # device 0
stream = Device(0).create_stream()
buffer = memory.allocate(1 << 20, stream=stream)   # a cuda.core.Buffer, in that stream's order
"""

from __future__ import annotations

from typing import Any

import cuda.core

from . import _abi, _errors
from ._pool import Pool
from ._streams import handle_of


class MemoryResource(cuda.core.MemoryResource):  # type: ignore[misc]
    """Device memory of one device from Cuddy.

    device: its number, or a cuda.core.Device. pool: a cuddy.Pool of it; None is the thread's current one.
    """

    def __init__(self, device: Any = 0, pool: Pool | None = None) -> None:
        self._number = int(getattr(device, "device_id", device))
        self._pool = pool

    def allocate(self, size: int, *, stream: Any = None) -> Any:
        """A cuda.core.Buffer, safe on the stream at once (the legacy default stream for None).
        OutOfMemoryError explains why there is none."""
        pool = _abi.POOL_CURRENT if self._pool is None else self._pool.id
        status, address = _abi.malloc_ex(size, 0, self._number, handle_of(stream), 0, pool, 0, None)
        if status == _errors.Status.OUT_OF_MEMORY:
            raise _errors.out_of_memory()
        _errors.check(status)
        order = {} if stream is None else {"stream": stream}
        return cuda.core.Buffer.from_handle(address, size, self, **order)

    def deallocate(self, ptr: Any, size: int, *, stream: Any = None) -> None:
        """Gives memory back; cuda.core calls it when a buffer is closed or goes. With a stream, to that
        one, behind which its user has ordered every use."""
        address = int(ptr)
        if stream is None:
            status = _abi.lib.cuddy_free(address)
        else:
            status = _abi.lib.cuddy_free_on(address, handle_of(stream))
        if status not in (_errors.Status.SHUTDOWN, _errors.Status.FORKED):
            _errors.check(status)

    @property
    def is_device_accessible(self) -> bool:
        """It is."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """It is not."""
        return False

    @property
    def device_id(self) -> int:
        """The device's number."""
        return self._number
