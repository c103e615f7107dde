"""The C++ part of cuddy.torch: compiled once for each torch, and kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Any

import torch

from .. import _abi

_SOURCE = pathlib.Path(__file__).with_name("shim.cpp")
# In the order of `Functions` in shim.cpp; the last is the driver's.
_FUNCTIONS = (
    "cuddy_malloc",
    "cuddy_free",
    "cuddy_record_stream",
    "cuddy_last_error",
    "cuddy_empty_cache",
    "cuddy_set_memory_fraction",
    "cuddy_block_info",
    "cuddy_graph_begin",
    "cuddy_graph_end",
    "cuddy_graph_destroy",
)
_loaded: tuple[str, Any] | None = None


def path() -> str:
    """The compiled shim, loaded and bound to Cuddy's functions."""
    return _ready()[0]


def address(name: str) -> int:
    """Where one of its functions is."""
    return _abi.address_in(_ready()[1], name)


def _ready() -> tuple[str, Any]:
    global _loaded
    if _loaded is None:
        file = str(_compiled())
        library = _abi.open_library(file)
        addresses = [_abi.address_of(name) for name in _FUNCTIONS]
        addresses.append(_abi.address_in(_abi.open_library("libcuda.so.1"), "cuCtxSynchronize"))
        _abi.bind(library, "cuddy_torch_bind", addresses)
        _loaded = (file, library)
    return _loaded


def _compiled() -> pathlib.Path:
    home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = pathlib.Path(os.environ.get("CUDDY_TORCH_CACHE") or home / "cuddy" / "torch")
    torch_is = f"{torch.__version__} {torch.compiled_with_cxx11_abi()} {torch.__file__}"
    what = _SOURCE.read_bytes() + torch_is.encode()
    file = folder / f"libcuddy_torch-{hashlib.sha256(what).hexdigest()[:16]}.so"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _compile(file)
    return file


def _compile(file: pathlib.Path) -> None:
    compiler = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), None)
    if compiler is None:
        raise RuntimeError(
            "cuddy.torch compiles a small file of C++ at its first use, so that torch can raise its"
            " OutOfMemoryError, and there is no compiler here: install g++, or name one by CXX. (Without it"
            " torch would make tensors at address 0 when memory runs out.)"
        )
    root = pathlib.Path(torch.__file__).parent
    # Under a name of its own first: two processes may do this at once.
    with tempfile.TemporaryDirectory(dir=file.parent) as place:
        fresh = pathlib.Path(place) / file.name
        command = [
            *compiler.split(),
            "-std=c++17",
            "-O2",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
            "-isystem",
            str(root / "include"),
            str(_SOURCE),
            "-L",
            str(root / "lib"),
            "-lc10",
            "-o",
            str(fresh),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            said = f"{' '.join(command)}\n{done.stderr}"
            raise RuntimeError(f"the C++ part of cuddy.torch does not compile:\n{said}")
        fresh.replace(file)
