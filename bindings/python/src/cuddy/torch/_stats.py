"""Cuddy's counters under torch's keys."""

from __future__ import annotations

import collections

from .. import _memory

# What can be told of all blocks together: torch's metric, and where its current value, peak, and sums
# of what was added and taken away stand.
_METRICS = {
    "allocation": ("live_block_count", "live_block_peak_count", "malloc_count", "free_count"),
    "allocated_bytes": ("allocated", "allocated_peak", "allocated_total", None),
    "active_bytes": ("active", "active_peak", None, None),
    "reserved_bytes": ("reserved", "reserved_peak", "reserved_total", None),
    "requested_bytes": ("requested", "requested_peak", "requested_total", None),
}


def torch_stats(device: object = None) -> collections.OrderedDict[str, int]:
    """memory_stats() as torch has it: flat, sorted, every key that Cuddy can answer truly."""
    stats = _memory.memory_stats(device)
    found: dict[str, int] = {}
    for metric, names in _METRICS.items():
        for name, source in zip(("current", "peak", "allocated", "freed"), names, strict=True):
            if source is not None:
                found[f"{metric}.all.{name}"] = stats[source]
        if f"{metric}.all.allocated" in found and names[3] is None:
            found[f"{metric}.all.freed"] = found[f"{metric}.all.allocated"] - found[f"{metric}.all.current"]
    found["active.all.current"] = stats["live_block_count"] + stats["limbo_block_count"]
    found["num_alloc_retries"] = stats["retry_count"]
    found["num_ooms"] = stats["out_of_memory_count"]
    found["num_sync_all_streams"] = stats["wait_count"]
    found["max_split_size"] = -1
    return collections.OrderedDict(sorted(found.items()))
