"""Where memory is, and giving it back: the names of torch.cuda's memory API, with their meaning.

A device is its number, an object of torch, cuda.core, CuPy or Numba, or None: the one of the calling
thread's current CUDA context, or device 0. Asking creates no context.
"""

from __future__ import annotations

import os
from typing import Literal

from . import _abi
from ._errors import check
from ._streams import DeviceLike, number_of
from ._torch_keys import torch_keys, totals_were_reset


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes of live blocks, after rounding to 512."""
    return int(_abi.lib.cuddy_memory_allocated(number_of(device)))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most bytes of live blocks since the start, or since reset_peak_memory_stats()."""
    return int(_abi.lib.cuddy_max_memory_allocated(number_of(device)))


def memory_reserved(device: DeviceLike = None) -> int:
    """Physical bytes held from the driver: live blocks, blocks that a stream may still use, and cache."""
    return int(_abi.lib.cuddy_memory_reserved(number_of(device)))


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most physical bytes held since the start, or since reset_peak_memory_stats()."""
    return int(_abi.lib.cuddy_max_memory_reserved(number_of(device)))


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """The counters of a device, all of one moment, sorted: by the names of cuddy_stats in cuddy.h (bytes,
    unless a name ends in `_count`), and by every key of torch.cuda.memory_stats, with the meaning that
    cuddy._torch_keys says. A device that Cuddy has not used has zeros."""
    number = number_of(device)
    number = _abi.current_device() if number == _abi.CURRENT_DEVICE else number
    status, stats = _abi.stats(_abi.lib.cuddy_memory_stats, number)
    check(status)
    return dict(sorted({**stats, **torch_keys(number, stats)}.items()))


def memory_summary(device: DeviceLike = None) -> str:
    """A table of the counters, for people."""
    status, text = _abi.text(_abi.lib.cuddy_memory_summary, number_of(device))
    check(status)
    return text


def export_prometheus() -> str:
    """The counters of every device in use, of page-locked host memory and of the scopes, in the text format
    of Prometheus: to be served, or written to a file for the textfile collector of its node exporter."""
    status, text = _abi.text(_abi.lib.cuddy_export_prometheus)
    check(status)
    return text


def export_metrics(filename: str | os.PathLike[str] | None, interval: float = 0.5) -> None:
    """Writes what export_prometheus() returns to a file, now and every `interval` seconds, from a thread of
    the library's own: for `cuddy top` and the textfile collector of Prometheus's node exporter.

    filename: the file; who reads it sees a whole one. "%p" in it is the process's number. None ends it.
    """
    path = None if filename is None else os.fsencode(filename)
    check(_abi.lib.cuddy_export_metrics(path, max(1, round(interval * 1000))))


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Starts every peak anew, from the value of now."""
    check(_abi.lib.cuddy_reset_peak_memory_stats(number_of(device)))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Starts every total, and every count of events, anew from 0."""
    number = number_of(device)
    number = _abi.current_device() if number == _abi.CURRENT_DEVICE else number
    status, stats = _abi.stats(_abi.lib.cuddy_memory_stats, number)
    check(status or _abi.lib.cuddy_reset_accumulated_memory_stats(number))
    totals_were_reset(number, stats)


def empty_cache(device: DeviceLike | Literal["all"] = "all") -> int:
    """Gives every free byte back to the driver, after a wait for the work that still uses it.

    device: as ever, or "all": every device in use. Returns how many bytes were given back.
    """
    number = _abi.ALL_DEVICES if device == "all" else number_of(device)
    status, freed = _abi.one_size(_abi.lib.cuddy_empty_cache, number)
    check(status)
    return freed


def trim(keep_bytes: int, device: DeviceLike | Literal["all"] = "all") -> int:
    """Gives free memory back to the driver until at most so many bytes are reserved (on each device).
    Returns how many bytes were given back."""
    number = _abi.ALL_DEVICES if device == "all" else number_of(device)
    status, freed = _abi.one_size(_abi.lib.cuddy_trim, number, _size(keep_bytes))
    check(status)
    return freed


def tick(device: DeviceLike | Literal["all"] = "all") -> int:
    """Lets time pass for an idle program: gives back what has decayed (options decay_ms, decay_waste).
    Waits for nobody. Returns how many bytes were given back."""
    number = _abi.ALL_DEVICES if device == "all" else number_of(device)
    status, freed = _abi.one_size(_abi.lib.cuddy_tick, number)
    check(status)
    return freed


def enable_peer_access(device: DeviceLike, peer: DeviceLike) -> None:
    """Lets another device use the memory that Cuddy allocates on a device: all that there is, and all that
    comes. Nothing is made on the peer. Enabling twice is once."""
    check(_abi.lib.cuddy_enable_peer_access(number_of(device), number_of(peer)))


def disable_peer_access(device: DeviceLike, peer: DeviceLike) -> None:
    """Ends enable_peer_access(). The peer's work with the memory has to be over."""
    check(_abi.lib.cuddy_disable_peer_access(number_of(device), number_of(peer)))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Bytes that an allocation could still get, and bytes that the device has. Unlike the driver's own
    figure, free memory that Cuddy keeps for reuse counts as free, and a limit counts too. This one asks
    the driver, and makes the device's primary context if there is none."""
    status, sizes = _abi.two_sizes(_abi.lib.cuddy_mem_get_info, number_of(device))
    check(status)
    return sizes


def set_memory_limit(nbytes: int | None, device: DeviceLike = None) -> None:
    """Sets the most bytes that may be reserved on a device; None for no limit."""
    check(_abi.lib.cuddy_set_memory_limit(number_of(device), 0 if nbytes is None else _size(nbytes)))


def memory_limit(device: DeviceLike = None) -> int | None:
    """The most bytes that may be reserved on a device; None without a limit."""
    status, limit = _abi.one_size(_abi.lib.cuddy_memory_limit, number_of(device))
    check(status)
    return None if limit == _abi.NO_LIMIT else limit


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Sets the most that may be reserved on a device, as a share of its memory: above 0, at most 1."""
    check(_abi.lib.cuddy_set_memory_fraction(number_of(device), float(fraction)))


def set_option(key: str, value: str) -> None:
    """Sets one option, as an entry of CUDDY_CONF would. It takes effect for devices that are not in use
    yet; limits for all. Raises Error, which says what is accepted."""
    check(_abi.lib.cuddy_set_option(key.encode(), value.encode()))


def get_option(key: str) -> str:
    """The value of one option, as set_option() takes it."""
    status, text = _abi.text(_abi.lib.cuddy_get_option, key.encode())
    check(status)
    return text


def options() -> dict[str, dict[str, str]]:
    """Every option: its value, its source (default, CUDDY_CONF or program), the values that it accepts,
    and its meaning."""
    status, text = _abi.text(_abi.lib.cuddy_list_options)
    check(status)
    names = ("value", "source", "accepts", "meaning")
    rows = (line.split("\t") for line in text.splitlines())
    return {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows}


def _size(nbytes: int) -> int:
    if not 0 <= nbytes < 1 << 64:
        raise ValueError(f"{nbytes} is no number of bytes")
    return nbytes
