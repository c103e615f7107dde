"""Page-locked host memory."""

import ctypes
import gc
import unittest

import cuddy
from support import MIB, DeviceCase


class Host(DeviceCase):
    def setUp(self):
        gc.collect()
        cuddy.host_empty_cache()

    def live(self):
        return cuddy.host_memory_stats()["allocated"]

    def test_bytes_that_can_be_written_and_read(self):
        with cuddy.HostBuffer(1000) as buffer:
            self.assertEqual((len(buffer), buffer.ptr % 512, self.live()), (1000, 0, 1024))
            view = buffer.view()
            view[:5] = b"hello"
            self.assertEqual((bytes(buffer.view()[:5]), len(view), view.readonly), (b"hello", 1000, False))
            view.release()
        self.assertEqual((buffer.ptr, buffer.nbytes, self.live()), (0, 0, 0))
        buffer.free()
        with self.assertRaisesRegex(ValueError, "was freed"):
            buffer.view()

    def test_a_view_keeps_it_alive(self):
        view = cuddy.HostBuffer(4096).view()
        gc.collect()
        self.assertEqual(self.live(), 4096)
        view[0] = 1
        del view
        gc.collect()
        self.assertEqual(self.live(), 0)

    def test_it_comes_back_when_its_streams_are_done(self):
        stream = self.driver.stream()
        device = cuddy.empty(MIB, stream=stream)
        self.driver.fill(device.ptr, 7, MIB, stream)
        first = cuddy.HostBuffer(MIB, streams_recorded=True)
        at = first.ptr
        self.driver.call("cuMemcpyDtoHAsync_v2", *map(ctypes.c_uint64, (at, device.ptr, MIB, stream)))
        first.record_stream(stream)
        first.free()
        self.driver.synchronize()
        with cuddy.HostBuffer(MIB, streams_recorded=True) as second:
            self.assertEqual((second.ptr, second.view()[0]), (at, 7))
        self.assertGreater(cuddy.host_memory_stats()["hit_count"], 0)
        self.driver.synchronize()
        self.assertGreaterEqual(cuddy.host_empty_cache(), MIB)
        cuddy.reset_accumulated_host_memory_stats()
        cuddy.reset_peak_host_memory_stats()
        self.assertEqual(cuddy.host_memory_stats()["malloc_count"], 0)
        self.assertEqual(cuddy.host_memory_stats()["reserved_peak"], cuddy.host_memory_stats()["reserved"])

    def test_sizes_that_are_none(self):
        self.assertEqual(len(cuddy.HostBuffer(0)), 0)
        self.assertEqual(bytes(cuddy.HostBuffer(0).view()), b"")
        with self.assertRaises(ValueError):
            cuddy.HostBuffer(-1)
        with self.assertRaises(cuddy.OutOfMemoryError):
            cuddy.HostBuffer(1 << 62)


if __name__ == "__main__":
    unittest.main()
