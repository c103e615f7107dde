"""Scopes and leaks: which part of a program has which memory."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from . import _abi
from ._errors import check

_P = ParamSpec("_P")
_R = TypeVar("_R")


@contextlib.contextmanager
def scope(name: str) -> Iterator[None]:
    """`with cuddy.scope("epoch"):` what this thread allocates inside belongs to that scope.

    Scopes nest; those of one name in the same scope are one, and how often it was begun is counted. So a
    loop takes "step", not "step 17". name: not empty, without a slash, which stands between names.
    """
    text = name.encode()
    check(_abi.lib.cuddy_scope_begin(text))
    try:
        yield
    finally:
        check(_abi.lib.cuddy_scope_end(text))


def profile(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """`@cuddy.profile`: each call of the function is a scope of its name."""

    @functools.wraps(function)
    def scoped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with scope(function.__qualname__.replace("/", "_")):
            return function(*args, **kwargs)

    return scoped


def scopes() -> dict[str, dict[str, Any]]:
    """Every scope by its path ("" is all, "epoch/step" a scope in another): `runs`, how often it was begun;
    `live_bytes` and `live_count`, what is live of it; `peak_bytes`; `total_bytes` and `total_count`, what was
    allocated over time. Bytes as they were asked for; the scopes inside are included."""
    status, text = _abi.text(_abi.lib.cuddy_scopes)
    check(status)
    return {row["path"]: row for row in json.loads(text)}


def leaks(path: str = "") -> list[dict[str, Any]]:
    """The live blocks that were allocated in a scope, or in one inside it: `address`, `bytes`, `requested`,
    `device`, `stream`, `scope` (its path), `run` (which run of it), `label`. Asked when the scope has ended,
    these are what it leaked.

    path: "" is every block that was allocated since scopes or history were first used.
    """
    status, text = _abi.text(_abi.lib.cuddy_leaks, path.encode())
    check(status)
    found: list[dict[str, Any]] = json.loads(text)
    return found


class LeakWatch:
    """What watch_leaks() gives: `leaks` after the block, `bytes` in all."""

    def __init__(self) -> None:
        self.leaks: list[dict[str, Any]] = []

    @property
    def bytes(self) -> int:
        """Bytes that are live and were allocated inside, as they were asked for."""
        return sum(int(block["requested"]) for block in self.leaks)


@contextlib.contextmanager
def watch_leaks(name: str = "watched") -> Iterator[LeakWatch]:
    """`with cuddy.watch_leaks() as watch:` what this thread allocates inside and is still live at the end
    stands in `watch.leaks` after it."""
    found = LeakWatch()
    with scope(name):
        before = {block["address"] for block in leaks() if block["scope"].split("/")[-1] == name}
        try:
            yield found
        finally:
            here = [block for block in leaks() if name in block["scope"].split("/")]
            found.leaks = [block for block in here if block["address"] not in before]


def annotate(buffer: Any, label: str) -> None:
    """Says what a buffer (or the block at an address) is for: leaks and snapshots tell it. The block must
    have been allocated while scopes or history were in use."""
    address = getattr(buffer, "ptr", buffer)
    check(_abi.lib.cuddy_annotate(int(address), label.encode()))
