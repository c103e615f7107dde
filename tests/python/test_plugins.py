"""cuddy.cupy and cuddy.rmm against stand-ins of those packages, which need a GPU: what the plug-ins hand
them, called as they call it. (tests/clients has torch, numba-cuda and cuda-core themselves.)"""

import importlib
import sys
import types
import unittest

import cuddy
from support import MIB, DeviceCase


class Stream:
    """As both packages have one, each by its own name."""

    def __init__(self, handle):
        self.ptr = handle


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total):
        super().__init__(f"{size} bytes, {total} held")


def stand_in(name, **content):
    module = types.ModuleType(name)
    vars(module).update(content)
    sys.modules[name] = module
    return module


class Plugins(DeviceCase):
    def tearDown(self):
        for name in ("cupy", "rmm", "rmm.mr", "cuddy.cupy", "cuddy.rmm"):
            sys.modules.pop(name, None)

    def test_cupy(self):
        current = Stream(0)
        set_to = []

        class PythonFunctionAllocator:
            def __init__(self, malloc_func, free_func):
                self.malloc, self.free = malloc_func, free_func

        memory = types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
        cuda = types.SimpleNamespace(
            PythonFunctionAllocator=PythonFunctionAllocator,
            set_allocator=set_to.append,
            get_current_stream=lambda: current,
            memory=memory,
        )
        stand_in("cupy", cuda=cuda)
        plugin = importlib.import_module("cuddy.cupy")
        plugin.enable()
        allocator = plugin._allocator
        self.assertEqual(set_to, [allocator.malloc])
        address = allocator.malloc(3 * MIB, 0)
        self.assertEqual(cuddy.memory_allocated(0), 3 * MIB)
        current.ptr = self.driver.stream()
        other = allocator.malloc(100, 0)
        self.assertEqual(cuddy._abi.block_info(other)[1]["stream"], current.ptr)
        allocator.free(address, 0)
        allocator.free(other, 0)
        self.assertEqual(cuddy.memory_allocated(0), 0)
        with self.assertRaises(OutOfMemoryError) as caught:
            allocator.malloc(1 << 40, 0)
        self.assertIsInstance(caught.exception.__cause__, cuddy.OutOfMemoryError)

    def test_rmm(self):
        set_to = []

        class CallbackMemoryResource:
            def __init__(self, allocate_func, deallocate_func):
                self.take, self.give = allocate_func, deallocate_func

        mr = stand_in(
            "rmm.mr", CallbackMemoryResource=CallbackMemoryResource, set_current_device_resource=set_to.append
        )
        stand_in("rmm", mr=mr)
        plugin = importlib.import_module("cuddy.rmm")
        plugin.enable()
        (resource,) = set_to
        first, second = Stream(self.driver.stream()), Stream(self.driver.stream())
        address = resource.take(MIB, first)
        self.driver.fill(address, 1, MIB, first.ptr)
        self.driver.synchronize()
        resource.give(address, MIB, second)  # to another stream, behind its uses
        again = resource.take(MIB, second)
        self.assertEqual(again, address)
        resource.give(again, MIB, second)
        self.assertEqual(cuddy.memory_allocated(0), 0)
        with self.assertRaises(MemoryError):
            resource.take(1 << 40, first)


if __name__ == "__main__":
    unittest.main()
