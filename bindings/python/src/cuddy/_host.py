"""Page-locked host memory, which devices copy from and to without the program waiting."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import SupportsIndex

from . import _abi
from ._errors import OutOfMemoryError, Status, check
from ._owner import Owner
from ._streams import StreamLike, handle_of


class HostBuffer(Owner):
    """Bytes of page-locked host memory. They go back to the cache when the object and every view of it are
    gone, at free(), or at the end of a `with`, and are used again when the work of its streams is over.

    nbytes:           how many bytes; 0 gives a buffer without memory.
    portable:         every context of the process sees it as page-locked, not only the current one.
    mapped:           devices can use it by its address, too.
    write_combined:   faster for devices to read over PCIe, very slow for the host to read.
    streams_recorded: record_stream() is called for each stream that uses it; then nobody else is waited
                      for, and a buffer that none used is free again at once.

    Raises OutOfMemoryError; ValueError for a negative size.
    """

    __slots__ = ()

    def __init__(
        self,
        nbytes: SupportsIndex,
        *,
        portable: bool = False,
        mapped: bool = False,
        write_combined: bool = False,
        streams_recorded: bool = False,
    ) -> None:
        super().__init__()
        size = operator.index(nbytes)
        if not 0 <= size < 1 << 64:
            raise ValueError(f"{size} is no number of bytes")
        flags = portable * _abi.HOST_PORTABLE | mapped * _abi.HOST_MAPPED
        flags |= write_combined * _abi.HOST_WRITE_COMBINED | streams_recorded * _abi.HOST_STREAMS_RECORDED
        status, address = _abi.host_malloc(size, flags)
        if status == Status.OUT_OF_MEMORY:
            raise OutOfMemoryError(_abi.last_error())
        check(status)
        self._own(address, size)

    def view(self) -> memoryview:
        """The bytes, for reading and writing: `numpy.frombuffer(buffer.view(), dtype)`. A view keeps the
        buffer alive; after free() it must not be used any more."""
        return _abi.view(self, self._live(), self._nbytes) if self._nbytes else memoryview(b"")

    def record_stream(self, stream: StreamLike) -> None:
        """Says that a stream copies from or to it: after its free it is not reused before the work that the
        stream had been given by then is over."""
        check(_abi.lib.cuddy_host_record_stream(self._live(), handle_of(stream)))

    def free(self) -> None:
        """Gives the memory back now. Again, it does nothing. After an error the buffer is as it was."""
        self._give_back(_abi.lib.cuddy_host_free)

    def __del__(self, _free: Callable[[int], int] = _abi.lib.cuddy_host_free) -> None:
        self._drop(_free)

    def __repr__(self) -> str:
        state = f"{self._nbytes} bytes at {self._ptr:#x}" if self._owned else "no memory"
        return f"<cuddy.HostBuffer: {state}>"

    def __reduce__(self) -> str:
        raise TypeError("page-locked memory cannot be pickled or copied: copy its bytes")


def host_memory_stats() -> dict[str, int]:
    """The counters of page-locked host memory, all of one moment, by the names of cuddy_host_stats."""
    status, stats = _abi.host_stats()
    check(status)
    return stats


def host_empty_cache() -> int:
    """Gives all host memory that is free back to the driver, after a wait for the work that still uses it.
    Returns how many bytes."""
    status, freed = _abi.one_size(_abi.lib.cuddy_host_empty_cache)
    check(status)
    return freed


def reset_peak_host_memory_stats() -> None:
    """Starts every peak of host memory anew, from the value of now."""
    check(_abi.lib.cuddy_host_reset_peak_memory_stats())


def reset_accumulated_host_memory_stats() -> None:
    """Starts every total of host memory, and every count of events, anew from 0."""
    check(_abi.lib.cuddy_host_reset_accumulated_memory_stats())
