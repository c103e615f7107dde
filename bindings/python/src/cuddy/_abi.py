"""cuddy.h for Python: the only file that touches ctypes.

Every function of the header stands in SIGNATURES, every struct has its class; tests/python holds them
against the header. Addresses, streams and pools are plain ints here; a status that is no success is
returned, and what calls raises.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
from collections.abc import Callable, Iterator
from ctypes import (
    POINTER,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Final

CURRENT_DEVICE: Final = -1
ALL_DEVICES: Final = -2
STREAM_LEGACY: Final = 1
STREAM_PER_THREAD: Final = 2
STREAM_ANY: Final = (1 << 64) - 1
REQUEST_NO_WAIT: Final = 1
POOL_USE_ON_OOM: Final = 1
STREAM_CAPTURABLE: Final = 1
POOL_CURRENT: Final = 0
POOL_DEFAULT: Final = 1
NO_LIMIT: Final = (1 << 64) - 1
SHARE_AS_CONFIGURED: Final = 0
SHARE_WAIT: Final = 1
SHARE_PASSED: Final = 2
SHARE_NEVER: Final = 3
HOST_PORTABLE: Final = 1
HOST_MAPPED: Final = 2
HOST_WRITE_COMBINED: Final = 4
HOST_STREAMS_RECORDED: Final = 256
HOST_MEMORY: Final = -3
EVENT_OUT_OF_MEMORY: Final = 1
EVENT_GROWTH: Final = 2
EVENT_RELEASE: Final = 4


class Request(ctypes.Structure):
    """cuddy_request."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("bytes", c_uint64),
        ("alignment", c_uint64),
        ("stream", c_void_p),
        ("device", c_int32),
        ("flags", c_uint32),
        ("pool", c_uint64),
        ("wait_ms", c_uint64),
        ("tag", c_char_p),
    ]


class Block(ctypes.Structure):
    """cuddy_block."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("address", c_void_p),
        ("bytes", c_uint64),
        ("requested", c_uint64),
        ("offset", c_uint64),
        ("stream", c_void_p),
        ("device", c_int32),
        ("reserved", c_uint32),
    ]


class PoolOptions(ctypes.Structure):
    """cuddy_pool_options."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("limit", c_uint64),
        ("device", c_int32),
        ("flags", c_uint32),
    ]


class Stats(ctypes.Structure):
    """cuddy_stats."""

    _fields_ = [
        (name, c_uint64)
        for name in (
            "struct_size",
            "requested",
            "requested_peak",
            "requested_total",
            "allocated",
            "allocated_peak",
            "allocated_total",
            "active",
            "active_peak",
            "reserved",
            "reserved_peak",
            "reserved_total",
            "cached",
            "unmapped",
            "limit",
            "largest_free",
            "quarantined",
            "live_block_count",
            "live_block_peak_count",
            "malloc_count",
            "free_count",
            "hit_count",
            "miss_count",
            "harvest_count",
            "wait_count",
            "retry_count",
            "out_of_memory_count",
            "limbo_block_count",
            "driver_call_count",
            "crossing_count",
            "stream_wait_count",
            "rung_own_count",
            "rung_passed_count",
            "rung_growth_count",
            "rung_stream_wait_count",
            "rung_fresh_count",
            "rung_harvest_count",
            "rung_host_wait_count",
            "rung_callback_count",
        )
    ]


class HostStats(ctypes.Structure):
    """cuddy_host_stats."""

    _fields_ = [
        (name, c_uint64)
        for name in (
            "struct_size",
            "requested",
            "requested_peak",
            "requested_total",
            "allocated",
            "allocated_peak",
            "allocated_total",
            "active",
            "active_peak",
            "reserved",
            "reserved_peak",
            "reserved_total",
            "cached",
            "quarantined",
            "live_block_count",
            "live_block_peak_count",
            "limbo_block_count",
            "segment_count",
            "malloc_count",
            "free_count",
            "hit_count",
            "miss_count",
            "release_count",
            "wait_count",
            "retry_count",
            "out_of_memory_count",
            "callback_count",
        )
    ]


class Event(ctypes.Structure):
    """cuddy_event."""

    _fields_ = [
        ("struct_size", c_uint64),
        ("kind", c_uint32),
        ("device", c_int32),
        ("bytes", c_uint64),
        ("allocated", c_uint64),
        ("reserved", c_uint64),
        ("limit", c_uint64),
        ("stream", c_void_p),
    ]


# cuddy_callback.
CALLBACK: Final = ctypes.CFUNCTYPE(None, POINTER(Event), c_void_p)

STRUCTS: Final[dict[str, type[ctypes.Structure]]] = {
    "cuddy_request": Request,
    "cuddy_block": Block,
    "cuddy_pool_options": PoolOptions,
    "cuddy_stats": Stats,
    "cuddy_host_stats": HostStats,
    "cuddy_event": Event,
}

_TEXT = (POINTER(c_char), c_size_t, POINTER(c_size_t))

# What each function returns and takes. A status is a c_int.
SIGNATURES: Final[dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "cuddy_version": (c_int, ()),
    "cuddy_version_string": (c_char_p, ()),
    "cuddy_status_name": (c_char_p, (c_int,)),
    "cuddy_last_error": (c_char_p, ()),
    "cuddy_malloc": (c_int, (POINTER(c_void_p), c_size_t, c_int, c_void_p)),
    "cuddy_malloc_ex": (c_int, (POINTER(c_void_p), POINTER(Request))),
    "cuddy_free": (c_int, (c_void_p,)),
    "cuddy_free_on": (c_int, (c_void_p, c_void_p)),
    "cuddy_free_after": (c_int, (c_void_p, c_void_p)),
    "cuddy_record_stream": (c_int, (c_void_p, c_void_p)),
    "cuddy_block_info": (c_int, (c_void_p, POINTER(Block))),
    "cuddy_stream_open": (c_int, (c_int, c_void_p)),
    "cuddy_stream_open_ex": (c_int, (c_int, c_void_p, c_uint32)),
    "cuddy_stream_retire": (c_int, (c_int, c_void_p)),
    "cuddy_note_wait": (c_int, (c_int, c_void_p, c_void_p)),
    "cuddy_pool_create": (c_int, (POINTER(PoolOptions), POINTER(c_uint64))),
    "cuddy_pool_destroy": (c_int, (c_uint64,)),
    "cuddy_pool_push": (c_int, (c_uint64,)),
    "cuddy_pool_pop": (c_int, (c_uint64,)),
    "cuddy_pool_stats": (c_int, (c_uint64, POINTER(Stats))),
    "cuddy_pool_reset_peak_stats": (c_int, (c_uint64,)),
    "cuddy_pool_set_limit": (c_int, (c_uint64, c_size_t)),
    "cuddy_pool_set_share": (c_int, (c_uint64, c_int)),
    "cuddy_pool_trim": (c_int, (c_uint64, c_size_t, POINTER(c_size_t))),
    "cuddy_graph_begin": (c_int, (POINTER(c_uint64), c_int, c_void_p, c_uint64)),
    "cuddy_graph_end": (c_int, (c_uint64,)),
    "cuddy_graph_destroy": (c_int, (c_uint64, c_void_p)),
    "cuddy_empty_cache": (c_int, (c_int, POINTER(c_size_t))),
    "cuddy_enable_peer_access": (c_int, (c_int, c_int)),
    "cuddy_disable_peer_access": (c_int, (c_int, c_int)),
    "cuddy_pin": (c_int, (c_void_p, c_size_t)),
    "cuddy_unpin": (c_int, (c_void_p, c_size_t)),
    "cuddy_host_malloc": (c_int, (POINTER(c_void_p), c_size_t, c_uint32)),
    "cuddy_host_free": (c_int, (c_void_p,)),
    "cuddy_host_record_stream": (c_int, (c_void_p, c_void_p)),
    "cuddy_host_empty_cache": (c_int, (POINTER(c_size_t),)),
    "cuddy_host_memory_stats": (c_int, (POINTER(HostStats),)),
    "cuddy_host_reset_peak_memory_stats": (c_int, ()),
    "cuddy_host_reset_accumulated_memory_stats": (c_int, ()),
    "cuddy_observe": (c_int, (POINTER(c_uint64), c_uint32, CALLBACK, c_void_p)),
    "cuddy_unobserve": (c_int, (c_uint64,)),
    "cuddy_tick": (c_int, (c_int, POINTER(c_size_t))),
    "cuddy_trim": (c_int, (c_int, c_size_t, POINTER(c_size_t))),
    "cuddy_set_memory_limit": (c_int, (c_int, c_size_t)),
    "cuddy_set_memory_fraction": (c_int, (c_int, c_double)),
    "cuddy_memory_limit": (c_int, (c_int, POINTER(c_size_t))),
    "cuddy_mem_get_info": (c_int, (c_int, POINTER(c_size_t), POINTER(c_size_t))),
    "cuddy_memory_allocated": (c_size_t, (c_int,)),
    "cuddy_max_memory_allocated": (c_size_t, (c_int,)),
    "cuddy_memory_reserved": (c_size_t, (c_int,)),
    "cuddy_max_memory_reserved": (c_size_t, (c_int,)),
    "cuddy_memory_stats": (c_int, (c_int, POINTER(Stats))),
    "cuddy_reset_peak_memory_stats": (c_int, (c_int,)),
    "cuddy_reset_accumulated_memory_stats": (c_int, (c_int,)),
    "cuddy_memory_summary": (c_int, (c_int, *_TEXT)),
    "cuddy_scope_begin": (c_int, (c_char_p,)),
    "cuddy_scope_end": (c_int, (c_char_p,)),
    "cuddy_scopes": (c_int, _TEXT),
    "cuddy_leaks": (c_int, (c_char_p, *_TEXT)),
    "cuddy_annotate": (c_int, (c_void_p, c_char_p)),
    "cuddy_record_history": (c_int, (c_size_t,)),
    "cuddy_export_prometheus": (c_int, _TEXT),
    "cuddy_export_metrics": (c_int, (c_char_p, c_uint64)),
    "cuddy_last_out_of_memory": (c_int, _TEXT),
    "cuddy_flight_recorder": (c_int, (c_char_p, c_size_t)),
    "cuddy_snapshot": (c_int, _TEXT),
    "cuddy_set_option": (c_int, (c_char_p, c_char_p)),
    "cuddy_get_option": (c_int, (c_char_p, *_TEXT)),
    "cuddy_list_options": (c_int, _TEXT),
}

_SONAME = "libcuddy.so.0"
_CARRIED = pathlib.Path(__file__).parent / "lib" / _SONAME


def _load() -> ctypes.CDLL:
    """The library: the copy that is in this process already (linked, or preloaded), else the one that
    CUDDY_LIBRARY names, the one that the package carries, or the system's."""
    try:
        return ctypes.CDLL(_SONAME, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        pass
    named = os.environ.get("CUDDY_LIBRARY")
    for path in [named] if named else [str(_CARRIED), _SONAME]:
        if path == str(_CARRIED) and not _CARRIED.exists():
            continue
        try:
            return ctypes.CDLL(path)
        except OSError as why:
            if named:
                raise ImportError(f"CUDDY_LIBRARY names {path}, which cannot be loaded: {why}") from None
    raise ImportError(
        f"{_SONAME} is not carried by this package ({_CARRIED}) and not installed: install the package by"
        " 'pip install ./bindings/python', or name the library by CUDDY_LIBRARY"
    )


lib: Final = _load()
for _name, (_result, _arguments) in SIGNATURES.items():
    _function = getattr(lib, _name)
    _function.restype, _function.argtypes = _result, _arguments

LIBRARY_PATH: Final[str] = lib._name


def last_error() -> str:
    """The sentence of this thread's last failure."""
    return str(lib.cuddy_last_error().decode(errors="replace"))


def malloc(nbytes: int, device: int, stream: int) -> tuple[int, int]:
    """Status and address (0 for none)."""
    at = c_void_p()
    status: int = lib.cuddy_malloc(ctypes.byref(at), nbytes, device, stream)
    return status, at.value or 0


def malloc_ex(
    nbytes: int,
    alignment: int,
    device: int,
    stream: int,
    flags: int,
    pool: int,
    wait_ms: int,
    tag: bytes | None,
) -> tuple[int, int]:
    """Status and address."""
    request = Request(ctypes.sizeof(Request), nbytes, alignment, stream, device, flags, pool, wait_ms, tag)
    at = c_void_p()
    status: int = lib.cuddy_malloc_ex(ctypes.byref(at), ctypes.byref(request))
    return status, at.value or 0


def stats(function: Callable[..., int], which: int) -> tuple[int, dict[str, int]]:
    """Status and counters, of cuddy_memory_stats or cuddy_pool_stats."""
    found = Stats(struct_size=ctypes.sizeof(Stats))
    status = function(which, ctypes.byref(found))
    return status, {name: getattr(found, name) for name, _ in Stats._fields_[1:]}  # type: ignore[misc]


def host_malloc(nbytes: int, flags: int) -> tuple[int, int]:
    """Status and address (0 for none)."""
    at = c_void_p()
    status: int = lib.cuddy_host_malloc(ctypes.byref(at), nbytes, flags)
    return status, at.value or 0


def host_stats() -> tuple[int, dict[str, int]]:
    """Status and the counters of page-locked host memory."""
    found = HostStats(struct_size=ctypes.sizeof(HostStats))
    status: int = lib.cuddy_host_memory_stats(ctypes.byref(found))
    return status, {name: getattr(found, name) for name, _ in HostStats._fields_[1:]}  # type: ignore[misc]


def view(owner: object, address: int, nbytes: int) -> memoryview:
    """Bytes of host memory, which keep their owner alive."""
    kind: Any = type("HostMemory", (c_char * nbytes,), {})  # ctypes' own arrays take no attribute
    array = kind.from_address(address)
    array.owner = owner
    return memoryview(array).cast("B")


def observe(kinds: int, told: Callable[[dict[str, int]], None]) -> tuple[int, int, object]:
    """Status, the observer's name, and what has to live until cuddy_unobserve() returns."""

    def call(event: Any, _user: object) -> None:
        told({name: getattr(event.contents, name) or 0 for name, _ in Event._fields_[1:]})  # type: ignore[misc]

    function = CALLBACK(call)
    name = c_uint64()
    status: int = lib.cuddy_observe(ctypes.byref(name), kinds, function, None)
    return status, name.value, function


def block_info(address: int) -> tuple[int, dict[str, int]]:
    """Status and what is known of the block that an address lies in."""
    found = Block(struct_size=ctypes.sizeof(Block))
    status: int = lib.cuddy_block_info(address, ctypes.byref(found))
    names = ("address", "bytes", "requested", "offset", "stream", "device")
    return status, {name: getattr(found, name) or 0 for name in names}


def pool_create(device: int, limit: int, flags: int) -> tuple[int, int]:
    """Status and the pool's name."""
    options = PoolOptions(ctypes.sizeof(PoolOptions), limit, device, flags)
    pool = c_uint64()
    status: int = lib.cuddy_pool_create(ctypes.byref(options), ctypes.byref(pool))
    return status, pool.value


def one_size(function: Callable[..., int], *arguments: int) -> tuple[int, int]:
    """Status and the size that a function writes behind its arguments."""
    size = c_size_t()
    return function(*arguments, ctypes.byref(size)), size.value


def two_sizes(function: Callable[..., int], *arguments: int) -> tuple[int, tuple[int, int]]:
    """Status and two such sizes."""
    first, second = c_size_t(), c_size_t()
    status = function(*arguments, ctypes.byref(first), ctypes.byref(second))
    return status, (first.value, second.value)


def text(function: Callable[..., int], *arguments: object) -> tuple[int, str]:
    """Status and the text that a function writes; it may grow between two calls."""
    needed = c_size_t()
    status = function(*arguments, None, 0, ctypes.byref(needed))
    size = 0
    while status == 0 and needed.value > size:
        size = needed.value + 256
        buffer = ctypes.create_string_buffer(size)
        status = function(*arguments, buffer, size, ctypes.byref(needed))
    return status, buffer.value.decode(errors="replace") if status == 0 and size else ""


def address_of(name: str) -> int:
    """Where a function of the library is, for those who call it from C."""
    return ctypes.cast(getattr(lib, name), c_void_p).value or 0


def open_library(path: str) -> ctypes.CDLL:
    """Another library, for plug-ins."""
    return ctypes.CDLL(path)


def address_in(library: ctypes.CDLL, name: str) -> int:
    """Where one of its functions is."""
    return ctypes.cast(getattr(library, name), c_void_p).value or 0


def bind(library: ctypes.CDLL, function: str, addresses: list[int]) -> None:
    """Calls a function of a plug-in with an array of addresses."""
    getattr(library, function)((c_void_p * len(addresses))(*addresses))


# -- The driver itself, for the little that Cuddy has no function for ---------------------------------


def _call(driver: ctypes.CDLL, name: str, *arguments: Any) -> None:
    code = getattr(driver, name)(*arguments)
    if code:
        raise RuntimeError(f"{name} failed with CUDA code {code}")


@contextlib.contextmanager
def _context(device: int) -> Iterator[ctypes.CDLL]:
    """The driver, with the device's primary context current, which exists: Cuddy uses it."""
    driver = ctypes.CDLL("libcuda.so.1")
    context, popped = c_void_p(), c_void_p()
    _call(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), c_int(device))
    try:
        _call(driver, "cuCtxPushCurrent_v2", context)
        try:
            yield driver
        finally:
            driver.cuCtxPopCurrent_v2(ctypes.byref(popped))
    finally:
        driver.cuDevicePrimaryCtxRelease_v2(c_int(device))


def wait_for(device: int, thief: int, donor: int) -> None:
    """Makes one stream wait for what another has been given. RuntimeError if the driver will not."""
    if thief == donor:
        return
    with _context(device) as driver:
        event = c_void_p()
        _call(driver, "cuEventCreate", ctypes.byref(event), c_uint32(2))  # without timing
        try:
            _call(driver, "cuEventRecord", event, c_void_p(donor))
            _call(driver, "cuStreamWaitEvent", c_void_p(thief), event, c_uint32(0))
        finally:
            driver.cuEventDestroy_v2(event)


def current_device() -> int:
    """The number that CURRENT_DEVICE stands for: the current context's device, or 0."""
    device = c_int()
    try:
        code = ctypes.CDLL("libcuda.so.1").cuCtxGetDevice(ctypes.byref(device))
    except OSError:
        return 0  # what asks about it says that there is no driver
    return 0 if code else device.value


# -- DLPack ------------------------------------------------------------------------------------------


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", POINTER(ctypes.c_int64)),
        ("strides", POINTER(ctypes.c_int64)),
        ("byte_offset", c_uint64),
    ]


class _Managed(ctypes.Structure):
    """DLManagedTensor, the form before version 1."""

    _fields_ = [("tensor", _DLTensor), ("context", c_void_p), ("deleter", c_void_p)]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _DLTensor),
    ]


DLPACK_CUDA: Final = 2
# What is exported, and what it needs, until its consumer is done: by the struct's address.
_exported: dict[int, tuple[object, ...]] = {}

_DELETER = ctypes.CFUNCTYPE(None, c_void_p)
_DESTRUCTOR = ctypes.PYFUNCTYPE(None, c_void_p)
_python = ctypes.pythonapi
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_char_p, _DESTRUCTOR)(
    ("PyCapsule_New", _python)
)
_is_valid = ctypes.PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", _python))
_get_pointer = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", _python))
_NAMES: Final = (b"dltensor", b"dltensor_versioned")


# What they need is bound to them: they may be called while the interpreter ends.
def _delete(address: int, _exported: dict[int, tuple[object, ...]] = _exported) -> None:
    _exported.pop(address, None)


def _unconsumed(
    capsule: int,
    _exported: dict[int, tuple[object, ...]] = _exported,
    _is_valid: Any = _is_valid,
    _get_pointer: Any = _get_pointer,
    _names: tuple[bytes, ...] = _NAMES,
) -> None:
    for name in _names:  # a consumer renames it, and then deletes by itself
        if _is_valid(capsule, name):
            _exported.pop(_get_pointer(capsule, name), None)


_deleter = _DELETER(_delete)
_destructor = _DESTRUCTOR(_unconsumed)


def dlpack(owner: object, address: int, nbytes: int, device: int, versioned: bool) -> object:
    """A capsule with bytes of device memory, which keep their owner alive."""
    shape = (ctypes.c_int64 * 1)(nbytes)
    tensor = _DLTensor(address, DLPACK_CUDA, device, 1, 1, 8, 1, shape, None, 0)
    deleter = ctypes.cast(_deleter, c_void_p)
    managed = _Versioned(1, 0, None, deleter, 0, tensor) if versioned else _Managed(tensor, None, deleter)
    at = ctypes.addressof(managed)
    _exported[at] = (owner, managed, shape)
    return _new_capsule(at, _NAMES[versioned], _destructor)
