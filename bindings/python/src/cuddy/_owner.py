"""What buffers of every kind have in common: memory that is theirs until it is given back, once."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from ._errors import check

_Self = TypeVar("_Self", bound="Owner")


class Owner:
    """Memory at an address. Whoever derives from it frees it: by free(), and silently in `__del__`."""

    __slots__ = ("__weakref__", "_nbytes", "_owned", "_ptr")

    def __init__(self) -> None:
        # One entry while the memory is ours. A list's pop happens once, whatever the threads do.
        self._owned: list[int] = []

    def _own(self, address: int, nbytes: int) -> None:
        self._ptr, self._nbytes = address, nbytes
        if address:
            self._owned.append(address)

    @property
    def ptr(self) -> int:
        """The address; 0 if it has no memory (any more)."""
        return self._ptr if self._owned else 0

    @property
    def nbytes(self) -> int:
        """Bytes, as they were asked for; 0 after free()."""
        return self._nbytes if self._owned else 0

    def free(self) -> None:
        """Gives the memory back now. Again, it does nothing. After an error the buffer is as it was."""
        raise NotImplementedError

    def _give_back(self, function: Callable[..., int], *order: int) -> None:
        try:
            address = self._owned.pop()
        except IndexError:
            return
        status = function(address, *order)
        if status:
            self._owned.append(address)
            check(status)

    def _drop(self, function: Callable[[int], int]) -> None:
        # Nobody could hear of an error, and at exit, or in a forked child, there is one.
        owned = getattr(self, "_owned", None)
        if owned:
            try:
                function(owned.pop())
            except IndexError:
                pass

    def _live(self) -> int:
        if not self._owned and self._nbytes:
            raise ValueError("the buffer was freed")
        return self._ptr

    def __enter__(self: _Self) -> _Self:
        self._live()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.free()

    def __len__(self) -> int:
        return self.nbytes
