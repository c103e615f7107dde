"""Observers: functions that are called when memory runs out, is got from the driver, or goes back."""

from __future__ import annotations

import atexit
import dataclasses
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Literal

from . import _abi
from ._errors import check

Kind = Literal["out_of_memory", "growth", "release"]

_KINDS: dict[Kind, int] = {
    "out_of_memory": _abi.EVENT_OUT_OF_MEMORY,
    "growth": _abi.EVENT_GROWTH,
    "release": _abi.EVENT_RELEASE,
}
_NAMES: dict[int, Kind] = {number: kind for kind, number in _KINDS.items()}


@dataclasses.dataclass(frozen=True)
class Event:
    """What happened. Figures are bytes, of that moment.

    kind:      "out_of_memory", "growth" or "release".
    device:    the device's number; None is page-locked host memory.
    bytes:     asked for; or how many more or fewer are reserved now.
    allocated: in live blocks.
    reserved:  held from the driver.
    limit:     the most that may be reserved; None without a limit.
    stream:    the handle of the request's stream, when it found no memory; else 0.
    """

    kind: Kind
    device: int | None
    bytes: int
    allocated: int
    reserved: int
    limit: int | None
    stream: int


class Observer:
    """A function that is being called; until close(), the end of a `with`, or the end of the program."""

    __slots__ = ("__weakref__", "_function", "_name")

    def __init__(self, call: Callable[[Event], object], kinds: Iterable[Kind]) -> None:
        wanted = 0
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            if kind not in _KINDS:
                raise ValueError(f"{kind!r} is no kind of event: one of {', '.join(_KINDS)}")
            wanted |= _KINDS[kind]

        def told(event: dict[str, int]) -> None:
            call(
                Event(
                    kind=_NAMES[event["kind"]],
                    device=None if event["device"] == _abi.HOST_MEMORY else event["device"],
                    bytes=event["bytes"],
                    allocated=event["allocated"],
                    reserved=event["reserved"],
                    limit=None if event["limit"] == _abi.NO_LIMIT else event["limit"],
                    stream=event["stream"],
                )
            )

        self._name: list[int] = []
        status, name, self._function = _abi.observe(wanted, told)
        check(status)
        self._name.append(name)
        # Nothing of Python's may be called once the interpreter ends.
        atexit.register(self._end)

    def close(self) -> None:
        """Ends it: when this returns, the function is not running on another thread and is never called
        again (called inside an observer, it does not wait for those). Again, it does nothing."""
        atexit.unregister(self._end)
        check(self._end())

    def _end(self) -> int:
        try:
            return int(_abi.lib.cuddy_unobserve(self._name.pop()))
        except IndexError:
            return 0

    def __enter__(self) -> Observer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


def observe(call: Callable[[Event], object], kinds: Iterable[Kind] = ("out_of_memory",)) -> Observer:
    """Calls a function when certain things happen, on the thread that they happen to, with an Event.

    call:  for "out_of_memory", before the request fails: what it frees serves the request. It may call all
           of Cuddy. An exception of it is reported to sys.unraisablehook, and changes nothing.
    kinds: "out_of_memory", "growth" (memory was got from the driver), "release" (it was given back).
    """
    return Observer(call, kinds)
