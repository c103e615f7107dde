"""Cuddy under PyTorch.

    import cuddy.torch
    cuddy.torch.enable()            # before the first use of CUDA: every tensor's memory is Cuddy's

    with torch.cuda.use_mem_pool(cuddy.torch.mem_pool()):    # or: only what is allocated in here
        ...

enable() makes Cuddy torch's allocator (CUDAPluggableAllocator, with all eight hooks), lets the functions of
`torch.cuda.memory` answer from Cuddy, and raises `torch.OutOfMemoryError`. mem_pool() keeps torch's own
allocator and its statistics, and takes the segments of one pool from Cuddy. A C++ compiler is needed the
first time: a small file is compiled for the torch that is there, and kept in ~/.cache/cuddy/torch
(CUDDY_TORCH_CACHE).

What torch does not offer to any other allocator does not work after enable(), and says so by torch's own
error: MemPool, CUDA tensors across processes, cudagraph trees (torch.compile's reduce-overhead mode),
cudnn.benchmark. torch.cuda.memory._record_memory_history() and _snapshot() give Cuddy's history, whose frames
are scopes (cuddy.scope()), not stacks.
"""

from __future__ import annotations

import collections
import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

from .. import _memory, _torch_keys, memory
from . import _shim

_HOOKS = {
    "set_init_fn": "cuddy_torch_init",
    "set_reset_fn": "cuddy_torch_empty_cache",
    "set_memory_fraction_fn": "cuddy_torch_set_fraction",
    "set_base_alloc_fn": "cuddy_torch_base",
    "set_record_stream_fn": "cuddy_torch_record_stream",
    "set_begin_allocate_to_pool": "cuddy_torch_begin_pool",
    "set_end_allocate_to_pool_fn": "cuddy_torch_end_pool",
    "set_release_pool": "cuddy_torch_release_pool",
}
_enabled: Any = None
_pools: Any = None


def enable() -> None:
    """Makes Cuddy the allocator of torch in this process. Again, it does nothing.

    Call it before the first use of CUDA: torch changes its allocator only until then, and RuntimeError
    says so later. Cuddy's option `streams` becomes `trusted` unless it was set: torch destroys no stream.
    """
    global _enabled
    if _enabled is not None:
        return
    if torch.cuda.is_initialized():
        raise RuntimeError(
            "cuddy.torch.enable() comes too late: torch has used CUDA in this process already, and cannot"
            " change its allocator any more. Call it first, right after the imports."
        )
    if _memory.options()["streams"]["source"] == "default":
        _memory.set_option("streams", "trusted")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        _shim.path(), "cuddy_torch_alloc", "cuddy_torch_free"
    )
    for hook, function in _HOOKS.items():
        install = getattr(allocator.allocator(), hook, None)
        if install is None:
            warnings.warn(f"this torch has no {hook}: what depends on it does not reach Cuddy", stacklevel=2)
        else:
            install(_shim.address(function))
    torch.cuda.memory.change_current_allocator(allocator)
    _enabled = allocator
    _answer()


def is_enabled() -> bool:
    """Whether enable() made Cuddy torch's allocator in this process."""
    return _enabled is not None


def mem_pool(**options: Any) -> Any:
    """A torch.cuda.MemPool whose segments come from Cuddy, for torch.cuda.use_mem_pool(). torch's own
    allocator, its statistics and its errors stay in charge.

    options: as torch.cuda.MemPool takes them (use_on_oom, ...).
    """
    global _pools
    if _enabled is not None:
        raise RuntimeError(
            "after cuddy.torch.enable() everything is Cuddy's already, and torch has no MemPool then;"
            " cuddy.pool() is a private pool of Cuddy's own"
        )
    if _pools is None:
        _pools = torch.cuda.memory.CUDAPluggableAllocator(
            _shim.path(), "cuddy_torch_alloc_or_null", "cuddy_torch_free"
        )
    return torch.cuda.MemPool(_pools.allocator(), **options)


# -- What torch answers ------------------------------------------------------------------------------


def _number(device: Any) -> int:
    """The device as torch means it: None is torch's current one."""
    if isinstance(device, (str, torch.device)):
        device = torch.device(device)
        if device.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {device}")
        device = device.index
    return torch.cuda.current_device() if device is None else int(device)


def _of_device(function: Callable[[Any], Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def answer(device: Any = None) -> Any:
        return function(_number(device))

    return answer


def _memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """Cuddy's table of its counters, for people."""
    return _memory.memory_summary(_number(device))


def _torch_stats(device: int) -> collections.OrderedDict[str, int]:
    """memory_stats() with torch's keys, sorted; empty before torch has used CUDA, as torch has it."""
    if not torch.cuda.is_initialized():
        return collections.OrderedDict()
    found = _memory.memory_stats(device)
    return collections.OrderedDict((key, found[key]) for key in found if key in _torch_keys.ALL)


def _nested(device: Any = None) -> dict[str, Any]:
    """memory_stats() as a tree."""
    tree: dict[str, Any] = {}
    for key, value in _torch_stats(_number(device)).items():
        *way, last = key.split(".")
        place = tree
        for step in way:
            place = place.setdefault(step, {})
        place[last] = value
    return tree


def _get_fraction(device: Any = None) -> float:
    """The share of a device's memory that may be reserved."""
    number = _number(device)
    limit = _memory.memory_limit(number)
    return 1.0 if limit is None else limit / _memory.mem_get_info(number)[1]


def _snapshot(device: Any = None, **_: Any) -> dict[str, Any]:
    """Cuddy's snapshot in torch's shape, of all devices."""
    return memory.torch_snapshot(memory.snapshot())


def _memory_snapshot(*_: Any) -> list[dict[str, Any]]:
    """Its segments."""
    segments: list[dict[str, Any]] = _snapshot()["segments"]
    return segments


def _record_memory_history(
    enabled: str | None = "all", *_: Any, max_entries: int = 1_000_000, **__: Any
) -> None:
    """Cuddy's history, without stacks; for None or "state" it ends, as in torch."""
    memory.record_history(enabled not in (None, False, "state"), min(max_entries, 1 << 24))


def _answer() -> None:
    """Puts Cuddy's answers in the place of torch's, under every name that they have."""
    reset_peak = _of_device(_memory.reset_peak_memory_stats)
    answers = {
        "memory_allocated": _of_device(_memory.memory_allocated),
        "max_memory_allocated": _of_device(_memory.max_memory_allocated),
        "memory_reserved": _of_device(_memory.memory_reserved),
        "max_memory_reserved": _of_device(_memory.max_memory_reserved),
        "memory_cached": _of_device(_memory.memory_reserved),
        "max_memory_cached": _of_device(_memory.max_memory_reserved),
        "memory_stats": _of_device(_torch_stats),
        "memory_stats_as_nested_dict": _nested,
        "memory_summary": _memory_summary,
        "reset_peak_memory_stats": reset_peak,
        "reset_max_memory_allocated": reset_peak,
        "reset_max_memory_cached": reset_peak,
        "reset_accumulated_memory_stats": _of_device(_memory.reset_accumulated_memory_stats),
        "get_per_process_memory_fraction": _get_fraction,
        "memory_snapshot": _memory_snapshot,
        "_snapshot": _snapshot,
        "_record_memory_history": _record_memory_history,
    }
    for place in ("torch.cuda", "torch.cuda.memory", "torch.accelerator", "torch.accelerator.memory"):
        module = sys.modules.get(place)
        for name, answer in answers.items():
            if module is not None and hasattr(module, name):
                setattr(module, name, answer)
