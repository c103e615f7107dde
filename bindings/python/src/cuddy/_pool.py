"""Private pools: isolated parts of a device's memory."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Literal

from . import _abi
from ._errors import check
from ._streams import DeviceLike, number_of

_SHARES: Final = {
    None: _abi.SHARE_AS_CONFIGURED,
    "wait": _abi.SHARE_WAIT,
    "passed": _abi.SHARE_PASSED,
    "never": _abi.SHARE_NEVER,
}


class Pool:
    """An isolated part of a device's memory. What is freed in it serves later requests to it, and nobody
    else; it can have a limit, it has counters of its own, and it is given back as a whole.

    `with pool:` makes it the calling thread's current one: buffers on its device come from it, until the
    block ends, by an exception too. It may be entered again, and over other pools; each thread has
    its own. Its blocks outlive it: its memory goes back to the driver with the last of them.

    device:     the device's number; None is the current one.
    limit:      the most bytes that it may reserve; 0 for no limit.
    use_on_oom: before a request to the default pool fails, this pool's free memory may serve it.
    """

    __slots__ = ("__weakref__", "_id", "_owned")

    def __init__(self, device: DeviceLike = None, *, limit: int = 0, use_on_oom: bool = False) -> None:
        self._owned: list[int] = []
        flags = _abi.POOL_USE_ON_OOM if use_on_oom else 0
        status, self._id = _abi.pool_create(number_of(device), limit, flags)
        check(status)
        self._owned.append(self._id)

    @property
    def id(self) -> int:
        """The pool's name, as the C functions have it. It is never used again."""
        return self._id

    def stats(self) -> dict[str, int]:
        """The pool's counters, all of one moment, by the names of cuddy_stats."""
        status, stats = _abi.stats(_abi.lib.cuddy_pool_stats, self._id)
        check(status)
        return stats

    def reset_peak_stats(self) -> None:
        """Makes every peak of the pool what is now."""
        check(_abi.lib.cuddy_pool_reset_peak_stats(self._id))

    def set_limit(self, nbytes: int) -> None:
        """Sets the most bytes that may be reserved in the pool; 0 for no limit."""
        check(_abi.lib.cuddy_pool_set_limit(self._id, nbytes))

    def set_share(self, share: Literal["wait", "passed", "never"] | None) -> None:
        """Sets how a stream gets memory of the pool that another stream freed, as the option `share` does
        for all; None is as that says. It holds for the requests from now on."""
        check(_abi.lib.cuddy_pool_set_share(self._id, _SHARES[share]))

    def trim(self, keep_bytes: int = 0) -> int:
        """Gives free memory back to the driver until at most so many bytes are reserved; how much went."""
        status, freed = _abi.one_size(_abi.lib.cuddy_pool_trim, self._id, keep_bytes)
        check(status)
        return freed

    def destroy(self) -> None:
        """Ends the pool: nothing more is allocated in it. Its blocks stay valid. Again, it does nothing."""
        try:
            pool = self._owned.pop()
        except IndexError:
            return
        check(_abi.lib.cuddy_pool_destroy(pool))

    def __del__(self) -> None:
        owned = getattr(self, "_owned", None)
        if owned:
            try:
                _abi.lib.cuddy_pool_destroy(owned.pop())
            except (IndexError, AttributeError):  # _abi may be gone at exit
                pass

    def __enter__(self) -> Pool:
        check(_abi.lib.cuddy_pool_push(self._id))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        check(_abi.lib.cuddy_pool_pop(self._id))

    def __repr__(self) -> str:
        return f"<cuddy.Pool {self._id}{'' if self._owned else ': destroyed'}>"


def pool(device: DeviceLike = None, *, limit: int = 0, use_on_oom: bool = False) -> Pool:
    """A new private pool, for `with cuddy.pool():`. See Pool."""
    return Pool(device, limit=limit, use_on_oom=use_on_oom)
