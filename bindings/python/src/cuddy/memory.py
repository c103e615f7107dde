"""History and snapshots: what happened to memory, and where everything is.

cuddy.memory.record_history()              # from now on
...
cuddy.memory.dump_snapshot("memory.pickle")  # for pytorch.org/memory_viz and torch.cuda._memory_viz
cuddy.memory.dump_snapshot("memory.json")    # for `cuddy report`, and your own programs
"""

from __future__ import annotations

import json
import os
import pathlib
import pickle
from typing import Any, Literal

from . import _abi
from ._errors import check
from ._viz import torch_snapshot

__all__ = ["dump_snapshot", "flight_recorder", "record_history", "snapshot", "torch_snapshot"]


def record_history(enabled: bool = True, max_entries: int = 1_000_000) -> None:
    """Keeps what happens to memory from now on; what was kept before is forgotten.

    enabled:     False ends it.
    max_entries: how many of the last events to keep, 64 bytes of host memory each.
    """
    check(_abi.lib.cuddy_record_history(max_entries if enabled else 0))


def flight_recorder(filename: str | os.PathLike[str] | None, max_entries: int = 100_000) -> None:
    """Keeps what happens to memory from now on, and writes a snapshot where a request finds no memory: the
    error's text says where it is. `cuddy report FILE` shows it, `cuddy replay --fit FILE` tells what would
    have fitted.

    filename:    the file, written at most every ten seconds over the one before; "%p" in it is the process's
                 number. None ends the recorder, and history.
    max_entries: how many of the last events to keep, 64 bytes of host memory each.
    """
    path = None if filename is None else os.fsencode(filename)
    check(_abi.lib.cuddy_flight_recorder(path, max_entries))


def snapshot() -> dict[str, Any]:
    """All that is known of memory, as docs/SNAPSHOT.md describes: the devices with their counters and every
    block, the scopes, and the history that was kept."""
    status, text = _abi.text(_abi.lib.cuddy_snapshot)
    check(status)
    found: dict[str, Any] = json.loads(text)
    return found


def dump_snapshot(
    filename: str | os.PathLike[str] = "dump_snapshot.pickle", form: Literal["json", "torch"] | None = None
) -> None:
    """Writes a snapshot to a file.

    form: "json", Cuddy's own; or "torch", the pickle that PyTorch's viewers read. None goes by the name: one
          that ends in .json is JSON.
    """
    path = pathlib.Path(filename)
    if form is None:
        form = "json" if path.suffix == ".json" else "torch"
    status, text = _abi.text(_abi.lib.cuddy_snapshot)
    check(status)
    if form == "json":
        path.write_text(text)
    else:
        with path.open("wb") as file:
            pickle.dump(torch_snapshot(json.loads(text)), file)
