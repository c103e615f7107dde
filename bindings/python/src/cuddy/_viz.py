"""A snapshot in the shape of torch.cuda.memory._snapshot(), which PyTorch's viewers read."""

from __future__ import annotations

from typing import Any

# What is being moved ("claimed") is nobody's.
_STATES = {"live": "active_allocated", "limbo": "active_pending_free"}


def torch_snapshot(snapshot: dict[str, Any]) -> dict[str, Any]:
    """The segments, blocks and traces of one of Cuddy's snapshots, by torch's names.

    A segment is what is mapped without a gap in one pool. A scope stands as a frame, its run as the line.
    torch's `segment_*` actions are left out: Cuddy's history has growth without addresses.
    """
    paths = {row["scope"]: row["path"] for row in snapshot["scopes"]}

    def frames(scope: int, run: int = 0) -> list[dict[str, Any]]:
        return [{"filename": "scope", "line": run, "name": paths[scope]}] if paths.get(scope) else []

    segments = []
    for device in snapshot["devices"]:
        segments += [_segment(device["device"], segment, frames) for segment in device["segments"]]
    segments.sort(key=lambda segment: (segment["device"], segment["address"]))
    columns = snapshot["history"]["columns"]
    events = [dict(zip(columns, row, strict=True)) for row in snapshot["history"]["events"]]
    count = 1 + max([0, *(d["device"] for d in snapshot["devices"]), *(e["device"] for e in events)])
    traces: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    for event in events:
        if event["device"] >= 0:
            traces[event["device"]] += _entries(event, frames)
    return {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "max_split_size": -1,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": True,
            "pinned_num_register_threads": 1,
            "release_lock_on_cudamalloc": False,
            "pinned_use_cuda_host_register": False,
            "roundup_power2_divisions": {str(1 << power): 0 for power in range(16)},
        },
        "external_annotations": [],
    }


def _segment(device: int, segment: dict[str, Any], frames: Any) -> dict[str, Any]:
    blocks, at = [], segment["address"]
    for block in segment["blocks"]:
        blocks.append(
            {
                "address": at,
                "size": block["bytes"],
                "requested_size": block["requested"],
                "state": _STATES.get(block["state"], "inactive"),
                "frames": frames(block["scope"], block["run"]),
            }
        )
        at += block["bytes"]

    def total(size: str, *states: str) -> int:
        return sum(block[size] for block in blocks if not states or block["state"] in states)

    return {
        "device": device,
        "address": segment["address"],
        "total_size": total("size"),
        "allocated_size": total("size", "active_allocated"),
        "active_size": total("size", "active_allocated", "active_pending_free"),
        "requested_size": total("requested_size", "active_allocated"),
        "stream": segment["blocks"][0]["stream"],
        "segment_type": "large",
        "segment_pool_id": (0, segment["pool"]),
        "is_expandable": True,
        "frames": [],
        "blocks": blocks,
    }


def _entries(event: dict[str, Any], frames: Any) -> list[dict[str, Any]]:
    base = {
        "addr": event["address"],
        "size": event["requested"],
        "stream": event["stream"],
        "time_us": event["time_us"],
        "pool_id": (0, 0),
        "compile_context": "N/A",
        "user_metadata": "",
        "frames": frames(event["scope"]),
    }
    if event["kind"] == "alloc":
        return [{**base, "action": "alloc"}]
    if event["kind"] == "free":
        # A block that other streams use is taken for free here a little early.
        return [{**base, "action": "free_requested"}, {**base, "action": "free_completed"}]
    if event["kind"] == "out_of_memory":
        return [{**base, "action": "oom", "device_free": 0}]
    return []
