"""Cuddy: a caching allocator for CUDA device memory.

    import cuddy

    with cuddy.empty(64 << 20) as block:    # device memory, on the legacy default stream
        use(block.ptr, block.nbytes)
    print(cuddy.memory_summary())           # where memory is; memory_allocated() and so on

Blocks that are freed are handed out again, in stream order, with no driver call. Importing this touches no
device: the first allocation does. The functions of torch.cuda's memory API have their names and
meaning here; cuddy.torch, cuddy.numba, cuddy.cuda_core, cuddy.cupy and cuddy.rmm plug Cuddy into those.
"""

from . import memory
from ._abi import LIBRARY_PATH as library_path
from ._abi import lib as _lib
from ._buffer import Buffer, empty
from ._errors import Error, Explanation, OutOfMemoryError, Status
from ._host import (
    HostBuffer,
    host_empty_cache,
    host_memory_stats,
    reset_accumulated_host_memory_stats,
    reset_peak_host_memory_stats,
)
from ._memory import (
    disable_peer_access,
    empty_cache,
    enable_peer_access,
    export_metrics,
    export_prometheus,
    get_option,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_limit,
    memory_reserved,
    memory_stats,
    memory_summary,
    options,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_memory_limit,
    set_option,
    set_per_process_memory_fraction,
    tick,
    trim,
)
from ._observers import Event, Observer, observe
from ._pool import Pool, pool
from ._streams import ANY, LEGACY, PER_THREAD, note_wait, open_stream, retire_stream
from ._watch import LeakWatch, annotate, leaks, profile, scope, scopes, watch_leaks

__version__: str = _lib.cuddy_version_string().decode()

__all__ = [
    "ANY",
    "LEGACY",
    "PER_THREAD",
    "Buffer",
    "Error",
    "Event",
    "Explanation",
    "HostBuffer",
    "LeakWatch",
    "Observer",
    "OutOfMemoryError",
    "Pool",
    "Status",
    "__version__",
    "annotate",
    "disable_peer_access",
    "empty",
    "empty_cache",
    "enable_peer_access",
    "export_metrics",
    "export_prometheus",
    "get_option",
    "host_empty_cache",
    "host_memory_stats",
    "leaks",
    "library_path",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_limit",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "note_wait",
    "observe",
    "open_stream",
    "options",
    "pool",
    "profile",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "retire_stream",
    "scope",
    "scopes",
    "set_memory_limit",
    "set_option",
    "set_per_process_memory_fraction",
    "tick",
    "trim",
    "watch_leaks",
]
