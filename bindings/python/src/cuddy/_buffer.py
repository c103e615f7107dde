"""A buffer: device memory that is freed with its object."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, SupportsIndex

from . import _abi, _errors
from ._errors import Status
from ._owner import Owner
from ._streams import DeviceLike, StreamLike, handle_of, number_of

if TYPE_CHECKING:
    from ._pool import Pool


def empty(
    nbytes: SupportsIndex,
    device: DeviceLike = None,
    stream: StreamLike = None,
    *,
    alignment: int = 0,
    pool: Pool | None = None,
    no_wait: bool = False,
    wait_ms: int = 0,
    tag: str | None = None,
) -> Buffer:
    """Allocates device memory, not initialised.

    nbytes:    how many bytes; 0 gives a buffer without memory.
    device:    the device's number; None is the one of the current CUDA context, or device 0.
    stream:    the stream that uses it first: None (the legacy default stream), a handle, or a stream of
               torch, cuda.core, CuPy or Numba; or cuddy.PER_THREAD, cuddy.ANY.
    alignment: the address is to be a multiple of this, a power of two up to 2 MiB; 0 means 512.
    pool:      the pool that it comes from; None is the thread's current one (see Pool).
    no_wait:   rather fail than wait for a stream to finish with memory.
    wait_ms:   the longest that the call may wait for that; 0 is as the option wait_ms says.
    tag:       what it is for, as annotate() would say; leaks and snapshots tell it.

    Raises OutOfMemoryError; Error for a device or stream that is none; ValueError for a negative size.
    """
    return Buffer(
        nbytes, device, stream, alignment=alignment, pool=pool, no_wait=no_wait, wait_ms=wait_ms, tag=tag
    )


class Buffer(Owner):
    """Bytes of device memory. They go back to the cache when the object goes, at free(), or at the end
    of a `with`: in the order of the buffer's stream, with no wait and no driver call.

    It can be given to whoever takes `__cuda_array_interface__` (Numba, CuPy, torch.as_tensor) or DLPack
    (`torch.from_dlpack`): they see bytes, and keep the buffer alive.
    """

    __slots__ = ("_alignment", "_device", "_stream")

    def __init__(
        self,
        nbytes: SupportsIndex,
        device: DeviceLike = None,
        stream: StreamLike = None,
        *,
        alignment: int = 0,
        pool: Pool | None = None,
        no_wait: bool = False,
        wait_ms: int = 0,
        tag: str | None = None,
    ) -> None:
        super().__init__()
        size, number, handle = operator.index(nbytes), number_of(device), handle_of(stream)
        if size < 0:
            raise ValueError(f"{size} bytes cannot be allocated: a size is 0 or more")
        if size >> 64:
            raise ValueError(f"{size} bytes are more than an address space has")
        if alignment or pool is not None or no_wait or wait_ms or tag is not None:
            name = _abi.POOL_CURRENT if pool is None else pool.id
            flags = _abi.REQUEST_NO_WAIT if no_wait else 0
            label = None if tag is None else tag.encode()
            status, address = _abi.malloc_ex(size, alignment, number, handle, flags, name, wait_ms, label)
        else:
            status, address = _abi.malloc(size, number, handle)
        if status:
            if status == Status.OUT_OF_MEMORY:
                raise _errors.out_of_memory()
            _errors.check(status)
        self._stream, self._device = handle, number
        self._own(address, size)

    @property
    def stream(self) -> int:
        """The handle of its stream."""
        return self._stream

    @property
    def device(self) -> int:
        """The number of its device."""
        if self._device < 0 and self._owned:
            status, block = _abi.block_info(self._ptr)
            _errors.check(status)
            self._device = block["device"]
        return self._device

    def record_stream(self, stream: StreamLike) -> None:
        """Says that another stream uses the memory too: after its free it is not reused before the work
        that this stream had been given by then is over."""
        _errors.check(_abi.lib.cuddy_record_stream(self._live(), handle_of(stream)))

    def pin(self) -> None:
        """Keeps the memory where it is until unpin(), after its free too: for what is registered with a
        network card, or known to another process. Pins are counted."""
        _errors.check(_abi.lib.cuddy_pin(self._live(), self._nbytes))

    def unpin(self) -> None:
        """Ends what one pin() began."""
        _errors.check(_abi.lib.cuddy_unpin(self._ptr, self._nbytes))

    def free(self) -> None:
        """Gives the memory back now. Again, it does nothing. After an error the buffer is as it was."""
        self._give_back(_abi.lib.cuddy_free)

    def free_on(self, stream: StreamLike) -> None:
        """Gives the memory to another stream, which the program has made wait for every use of it."""
        self._give_back(_abi.lib.cuddy_free_on, handle_of(stream))

    def free_after(self, event: SupportsIndex) -> None:
        """Gives the memory back once an event (its handle as an int) is over."""
        self._give_back(_abi.lib.cuddy_free_after, operator.index(event))

    def __del__(self, _free: Callable[[int], int] = _abi.lib.cuddy_free) -> None:
        # The function is bound here: at exit a module's names may be gone.
        self._drop(_free)

    def __bool__(self) -> bool:
        return bool(self._owned)

    def __repr__(self) -> str:
        if not self._owned:
            return "<cuddy.Buffer: no memory>" if not self._nbytes else "<cuddy.Buffer: freed>"
        where = "current device" if self._device < 0 else f"device {self._device}"
        return f"<cuddy.Buffer: {self._nbytes} bytes at {self._ptr:#x} of {where}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("device memory cannot be pickled or copied: copy its bytes")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3: an array of bytes; `stream` is the one that a user has to order itself behind."""
        address = self._live()
        return {
            "shape": (self._nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
            "stream": None if self._stream == _abi.STREAM_ANY else self._stream,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind of memory (2, CUDA) and the device's number."""
        self._live()
        return _abi.DLPACK_CUDA, max(self.device, 0)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A DLPack capsule of the bytes, for a consumer.

        stream: the consumer's stream (None and 1: the legacy one, 2: the thread's own, -1: it orders
        itself). It is made to wait for the buffer's stream, and recorded as a user of the memory.
        """
        address = self._live()
        if copy:
            raise BufferError("Cuddy makes no copy: export the buffer, and copy there")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the memory is on device {self.__dlpack_device__()}, not on {dl_device}")
        if stream == 0:
            raise ValueError("stream 0 says too little: 1 is the legacy default stream, 2 the thread's own")
        if stream != -1 and address:
            user = handle_of(stream)
            if self._stream != _abi.STREAM_ANY:
                _abi.wait_for(self.device, user, self._stream)
            self.record_stream(user)
        versioned = max_version is not None and max_version[0] >= 1
        return _abi.dlpack(self, address, self._nbytes, max(self.device, 0), versioned)
