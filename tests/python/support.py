"""What the tests of the Python package share."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
import unittest

MIB = 1 << 20


class Driver:
    """The simulated driver of this process: its functions by name, and its controls."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        for name in ("used", "objects", "calls", "contexts_created", "report_count", "accesses_checked"):
            getattr(self.lib, f"simcuda_{name}").restype = ctypes.c_uint64

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self.lib, name)(*arguments)
        if code:
            raise AssertionError(f"{name} answered {code}")

    def use_device(self, device: int = 0) -> None:
        """Makes a device's primary context current."""
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def stream(self) -> int:
        """A new stream that does not wait for the legacy one."""
        made = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(made), 1)
        return made.value or 0

    def fill(self, at: int, value: int, nbytes: int, stream: int) -> None:
        self.call("cuMemsetD8Async", ctypes.c_uint64(at), value, ctypes.c_size_t(nbytes), ctypes.c_void_p(stream))

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")

    def schedule(self, text: str) -> None:
        self.call("simcuda_schedule", text.encode())

    def contexts(self, device: int = 0) -> int:
        return int(self.lib.simcuda_contexts_created(device))

    def used(self, device: int = 0) -> int:
        return int(self.lib.simcuda_used(device))


class Case(unittest.TestCase):
    """A test that can also run programs of their own."""

    def run_program(self, text: str, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs a program in a Python of its own, to its end."""
        return subprocess.run(
            [sys.executable, *flags, "-c", textwrap.dedent(text)],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def quiet(self, text: str, *flags: str, **environment: str) -> str:
        """Runs a program, which must succeed and say nothing on stderr; what it printed."""
        done = self.run_program(text, *flags, **environment)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout


class DeviceCase(Case):
    """A test that uses the device: its context is current in this thread."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.driver = Driver()
        cls.driver.use_device()
