"""What goes wrong, as exceptions."""

from __future__ import annotations

import dataclasses
import enum
import json
from typing import Any

from . import _abi


class Status(enum.IntEnum):
    """What a call of Cuddy's library returns; cuddy.h says what each means."""

    OK = 0
    INVALID_ARGUMENT = 1
    OUT_OF_MEMORY = 2
    NO_DRIVER = 3
    INVALID_DEVICE = 4
    INVALID_STREAM = 5
    FOREIGN_POINTER = 6
    INTERIOR_POINTER = 7
    DOUBLE_FREE = 8
    WRONG_DEVICE = 9
    DRIVER = 10
    DEVICE_RESET = 11
    FORKED = 12
    SHUTDOWN = 13
    NOT_SUPPORTED = 14
    HOST_OUT_OF_MEMORY = 15
    INVALID_OPTION = 16
    INTERNAL = 17
    INVALID_POOL = 18
    INVALID_GRAPH = 19


class Error(RuntimeError):
    """A call of Cuddy that failed. Its text says what happened, with the figures.

    status: which failure it was (a Status; a plain int if the library is newer than this package).
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status: int = Status(status) if status in Status._value2member_map_ else status

    def __reduce__(self) -> tuple[type[Error], tuple[object, ...]]:
        return type(self), (str(self), self.status)


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Where a device's memory was when a request failed. All figures are bytes, unless a name ends in
    `_count`; None is not known, or without a limit.

    device:          the device's number.
    requested:       what was asked for.
    allocated:       in live blocks.
    active:          in live blocks, and in freed ones that a stream may still use.
    reserved:        held from the driver.
    cached:          of those, free for reuse.
    limit:           the most that may be reserved.
    largest_free:    the largest block that the cache could serve, on one stream.
    largest_free_own: the same on the stream that asked.
    live_block_count: live blocks.
    device_free:     free on the device, by the driver.
    device_total:    what the device has.
    used_elsewhere:  on the device, but not Cuddy's: contexts, libraries, other processes.
    cause:           "limit", "pool_limit", "driver" (it refused), "device" (its memory is used up) or
                     "addresses" (the driver gave none).
    waiting:         bytes of freed blocks by the stream (its handle) that they wait for: those with most.
    scopes:          live bytes by scope (its path, "" is none): those with most, if scopes or history are on.
    advice:          what to do.
    data:            all that is told, by the names of docs/SNAPSHOT.md.
    """

    device: int
    requested: int
    allocated: int
    active: int
    reserved: int
    cached: int
    limit: int | None
    largest_free: int
    largest_free_own: int
    live_block_count: int
    device_free: int | None
    device_total: int | None
    used_elsewhere: int | None
    cause: str
    waiting: dict[int, int]
    scopes: dict[str, int]
    advice: str
    data: dict[str, Any] = dataclasses.field(repr=False)


class OutOfMemoryError(Error, MemoryError):
    """No memory: everything reusable was tried first. Its text explains where memory went and what to
    do; `explanation` has the same figures as data (None if they could not be had)."""

    def __init__(
        self, message: str, status: int = Status.OUT_OF_MEMORY, explanation: Explanation | None = None
    ) -> None:
        super().__init__(message, status)
        self.explanation = explanation

    def __reduce__(self) -> tuple[type[Error], tuple[object, ...]]:
        return type(self), (str(self), self.status, self.explanation)


def check(status: int) -> None:
    """Raises what a status stands for."""
    if status:
        raise Error(_abi.last_error(), status)


def out_of_memory() -> OutOfMemoryError:
    """The error for a request that failed just now on this thread."""
    return OutOfMemoryError(_abi.last_error(), Status.OUT_OF_MEMORY, _explanation())


def _explanation() -> Explanation | None:
    status, text = _abi.text(_abi.lib.cuddy_last_out_of_memory)
    told = None if status else json.loads(text)
    if told is None:
        return None
    names = [field.name for field in dataclasses.fields(Explanation)]
    known = {name: told[name] for name in names if name in told}
    return Explanation(
        **known
        | {
            "waiting": {row["stream"]: row["bytes"] for row in told["waiting"]},
            "scopes": {row["path"]: row["live_bytes"] for row in told["scopes"]},
            "data": told,
        }
    )
