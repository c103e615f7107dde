"""Cuddy's counters under the keys of torch.cuda.memory_stats: every key that torch has.

What they mean here:

- Cuddy has one pool for blocks of any size, so `large_pool` is the same as `all`, and `small_pool` is 0.
- `allocation`, `allocated_bytes`, `requested_bytes`, `active_bytes`, `reserved_bytes`: as in torch.
- `active` counts blocks that are live or that a stream may still use; its peak is that of live blocks,
  or the value of now if that is more.
- `segment`, `inactive_split`, `oversize_*`: 0, as in torch itself with expandable segments; Cuddy
  takes back any page that no live block touches, so nothing is unreleasable by being split.
- `num_device_alloc`, `num_device_free`: pages of 2 MiB got from the driver, and given back.
- `num_sync_all_streams`: times that the host waited for a stream. Cuddy never waits for all.
- `freed`: `allocated` less what is there now; counted from the last reset_accumulated_memory_stats() of this
  package.
"""

from __future__ import annotations

import collections

_METRICS = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
_NAMES = ("current", "peak", "allocated", "freed")
_PAGE = 2 << 20
# What was there when the totals of a device were set to 0: requested, allocated, active, reserved.
_there: dict[int, tuple[int, int, int, int]] = {}


def totals_were_reset(device: int, stats: dict[str, int]) -> None:
    """Notes what was there then, so that what is freed later can be told."""
    _there[device] = (stats["requested"], stats["allocated"], stats["active"], stats["reserved"])


def torch_keys(device: int, stats: dict[str, int]) -> dict[str, int]:
    """The counters by torch's keys."""
    requested, allocated, active, reserved = _there.get(device, (0, 0, 0, 0))

    def freed(total: int, before: int, now: int) -> int:
        return max(total + before - now, 0)

    count = stats["live_block_count"] + stats["limbo_block_count"]
    reserved_freed = freed(stats["reserved_total"], reserved, stats["reserved"])
    values = {
        "allocation": (
            stats["live_block_count"],
            stats["live_block_peak_count"],
            stats["malloc_count"],
            stats["free_count"],
        ),
        "active": (
            count,
            max(count, stats["live_block_peak_count"]),
            stats["malloc_count"],
            max(stats["free_count"] - stats["limbo_block_count"], 0),
        ),
        "allocated_bytes": (
            stats["allocated"],
            stats["allocated_peak"],
            stats["allocated_total"],
            freed(stats["allocated_total"], allocated, stats["allocated"]),
        ),
        "active_bytes": (
            stats["active"],
            stats["active_peak"],
            stats["allocated_total"],
            freed(stats["allocated_total"], active, stats["active"]),
        ),
        "requested_bytes": (
            stats["requested"],
            stats["requested_peak"],
            stats["requested_total"],
            freed(stats["requested_total"], requested, stats["requested"]),
        ),
        "reserved_bytes": (
            stats["reserved"],
            stats["reserved_peak"],
            stats["reserved_total"],
            reserved_freed,
        ),
    }
    found: dict[str, int] = {}
    for metric in _METRICS:
        for name, value in zip(_NAMES, values.get(metric, (0, 0, 0, 0)), strict=True):
            found[f"{metric}.all.{name}"] = found[f"{metric}.large_pool.{name}"] = value
            found[f"{metric}.small_pool.{name}"] = 0
    for metric in ("oversize_allocations", "oversize_segments"):
        for name in _NAMES:
            found[f"{metric}.{name}"] = 0
    found["num_alloc_retries"] = stats["retry_count"]
    found["num_ooms"] = stats["out_of_memory_count"]
    found["num_sync_all_streams"] = stats["wait_count"]
    found["num_device_alloc"] = stats["reserved_total"] // _PAGE
    found["num_device_free"] = reserved_freed // _PAGE
    found["num_oom_rejections"] = 0
    found["max_split_size"] = -1
    return found


# Every key that torch.cuda.memory_stats of torch 2.9 to 2.15 has, without those of private pools.
_NOTHING = collections.defaultdict[str, int](int)
ALL = frozenset(torch_keys(0, _NOTHING))
