"""Cuddy under RMM, and so under cuDF, cuML and cuGraph.

    import cuddy.rmm
    cuddy.rmm.enable()              # the current device's resource from now on

The call goes through Python, which costs a microsecond or two; C++ programs take cuddy_mr.hpp.
"""

from __future__ import annotations

from typing import Any

import rmm.mr

from . import _abi, _errors
from ._streams import handle_of


def _take(size: int, stream: Any) -> int:
    status, address = _abi.malloc(size, _abi.CURRENT_DEVICE, handle_of(stream))
    if status == _errors.Status.OUT_OF_MEMORY:
        raise _errors.out_of_memory()  # a MemoryError, as RMM's users catch
    _errors.check(status)
    return address


def _give(address: int, size: int, stream: Any, _free_on: Any = _abi.lib.cuddy_free_on) -> None:
    _free_on(address, handle_of(stream))


def memory_resource() -> Any:
    """An rmm.mr.CallbackMemoryResource over Cuddy, for the device that is current where it is used."""
    return rmm.mr.CallbackMemoryResource(_take, _give)


def enable() -> None:
    """Makes Cuddy the current device's memory resource of RMM."""
    rmm.mr.set_current_device_resource(memory_resource())
