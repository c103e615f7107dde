"""Devices and streams, as callers name them."""

from __future__ import annotations

import operator
from typing import Protocol, SupportsIndex, Union, runtime_checkable

from . import _abi
from ._errors import check


@runtime_checkable
class _TorchStream(Protocol):
    @property
    def cuda_stream(self) -> int: ...


@runtime_checkable
class _HasProtocol(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...


# A stream: None (the legacy default stream), a handle (CUstream, cudaStream_t) as an int, or a stream
# of torch, cuda.core, CuPy or Numba.
StreamLike = Union[None, SupportsIndex, _TorchStream, _HasProtocol, object]
# A device: None (the current one), its number, or an object with `index` (torch), `device_id`
# (cuda.core) or `id` (CuPy, Numba).
DeviceLike = Union[None, SupportsIndex, object]

LEGACY: int = _abi.STREAM_LEGACY
PER_THREAD: int = _abi.STREAM_PER_THREAD
ANY: int = _abi.STREAM_ANY


def handle_of(stream: StreamLike) -> int:
    """The stream's handle; the legacy default stream for None and 0."""
    if stream is None:
        return LEGACY
    if isinstance(stream, SupportsIndex):
        handle = operator.index(stream)
    else:
        handle = _handle_of_object(stream)
    if not 0 <= handle <= ANY:
        raise ValueError(f"{handle} is no stream: a handle is a pointer, cuddy.LEGACY, PER_THREAD or ANY")
    return handle or LEGACY


def _handle_of_object(stream: object) -> int:
    if isinstance(stream, _TorchStream):
        return int(stream.cuda_stream)
    if isinstance(stream, _HasProtocol):
        return int(stream.__cuda_stream__()[1])
    for name in ("ptr", "handle", "value"):  # CuPy; Numba, whose handle is a c_void_p; RMM
        found = getattr(stream, name, None)
        found = found() if callable(found) else found
        if found is not None:
            found = getattr(found, "value", found)
            return int(found or 0)
    raise TypeError(
        f"a {type(stream).__name__} is no stream: pass a handle as an int, or a stream of torch, "
        "cuda.core, CuPy or Numba"
    )


def number_of(device: DeviceLike) -> int:
    """The device's number; -1, the current one, for None."""
    if device is None:
        return _abi.CURRENT_DEVICE
    if isinstance(device, SupportsIndex):
        return operator.index(device)
    for name in ("index", "device_id", "id"):
        if hasattr(device, name):
            number = getattr(device, name)
            return _abi.CURRENT_DEVICE if number is None else int(number)
    raise TypeError(f"a {type(device).__name__} is no device: pass its number")


def open_stream(stream: StreamLike, device: DeviceLike = None, *, capturable: bool = False) -> None:
    """Promises that a stream lives until retire_stream(): Cuddy may use its handle meanwhile, which
    saves driver calls and waits. Opening one twice changes nothing.

    stream: a stream of the device. device: its number; None is the current one.
    capturable: the stream may be captured into a CUDA graph, which then has the memory that is
    allocated on it meanwhile; every call asks the driver.
    """
    flags = _abi.STREAM_CAPTURABLE if capturable else 0
    check(_abi.lib.cuddy_stream_open_ex(number_of(device), handle_of(stream), flags))


def retire_stream(stream: StreamLike, device: DeviceLike = None) -> None:
    """Ends what open_stream() promised: call it before the stream is destroyed."""
    check(_abi.lib.cuddy_stream_retire(number_of(device), handle_of(stream)))


def note_wait(thief: StreamLike, donor: StreamLike, device: DeviceLike = None) -> None:
    """Tells that the program has made one stream (thief) wait for another (donor): what was freed on
    the donor may then go to the thief at once. Call it where the wait is put in."""
    check(_abi.lib.cuddy_note_wait(number_of(device), handle_of(thief), handle_of(donor)))
