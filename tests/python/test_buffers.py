"""Buffers: they own, free once and in order, and say what went wrong (R15)."""

import ctypes
import gc
import pickle
import threading
import unittest

import cuddy
from support import MIB, DeviceCase


class Buffers(DeviceCase):
    def setUp(self):
        gc.collect()
        self.assertEqual(cuddy.memory_allocated(), 0)

    def tearDown(self):
        self.driver.synchronize()
        gc.collect()
        self.assertEqual(cuddy.memory_allocated(), 0)
        self.assertEqual(self.driver.lib.simcuda_report_count(), 0)

    def test_freed_by_del_free_and_with(self):
        a = cuddy.empty(1000)
        self.assertEqual((a.nbytes, len(a), a.device, a.stream), (1000, 1000, 0, cuddy.LEGACY))
        self.assertEqual(cuddy.memory_allocated(), 1024)
        at = a.ptr
        self.assertEqual(at % 512, 0)
        del a
        self.assertEqual(cuddy.memory_allocated(), 0)
        b = cuddy.empty(1000)
        self.assertEqual(b.ptr, at)
        b.free()
        self.assertEqual((b.ptr, b.nbytes, bool(b), cuddy.memory_allocated()), (0, 0, False, 0))
        b.free()  # nothing
        with cuddy.empty(5000, 0, cuddy.ANY) as c:
            self.assertEqual(cuddy.memory_allocated(), 5120)
            self.assertTrue(c)
        self.assertFalse(c)
        with self.assertRaises(KeyError), cuddy.empty(1):
            raise KeyError
        self.assertIn("freed", repr(c))
        none = cuddy.empty(0)
        self.assertEqual((none.ptr, none.nbytes, bool(none)), (0, 0, False))
        none.free()

    def test_a_cycle_and_a_copy(self):
        ring = [cuddy.empty(64)]
        ring.append(ring)
        del ring
        gc.collect()
        self.assertEqual(cuddy.memory_allocated(), 0)
        with cuddy.empty(8) as buffer, self.assertRaisesRegex(TypeError, "copy its bytes"):
            pickle.dumps(buffer)

    def test_threads_free_once(self):
        for _ in range(50):
            buffer = cuddy.empty(MIB)
            threads = [threading.Thread(target=buffer.free) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        stats = cuddy.memory_stats()
        self.assertEqual(stats["malloc_count"], stats["free_count"])

    def test_sizes_and_devices_that_are_none(self):
        for wrong, error in ((-1, ValueError), (1 << 64, ValueError), (1.5, TypeError), ("8", TypeError), (None, TypeError)):
            with self.assertRaises(error):
                cuddy.empty(wrong)
        for device in (7, -3):
            with self.assertRaises(cuddy.Error) as caught:
                cuddy.empty(8, device)
            self.assertEqual(caught.exception.status, cuddy.Status.INVALID_DEVICE)
        with self.assertRaises(TypeError):
            cuddy.empty(8, stream="0")
        with self.assertRaises(ValueError):
            cuddy.empty(8, stream=-1)
        with self.assertRaises(cuddy.Error) as caught:
            cuddy.empty(8, alignment=3)
        self.assertEqual(caught.exception.status, cuddy.Status.INVALID_ARGUMENT)
        with cuddy.empty(8, alignment=MIB) as aligned:
            self.assertEqual(aligned.ptr % MIB, 0)

    def test_out_of_memory_carries_figures(self):
        held = cuddy.empty(100 * MIB)
        self.driver.call("simcuda_others_use", 0, 50 * MIB)
        try:
            cuddy.empty(1 << 40)
        except cuddy.OutOfMemoryError as caught:
            error = caught
        self.driver.call("simcuda_others_use", 0, 0)
        self.assertIsInstance(error, MemoryError)
        self.assertIsInstance(error, cuddy.Error)
        self.assertIsNone(error.__context__)
        self.assertIn("1.00 TiB", str(error))
        facts = error.explanation
        self.assertEqual((facts.requested, facts.allocated, facts.device_total), (1 << 40, 100 * MIB, 512 * MIB))
        self.assertEqual(facts.used_elsewhere, 50 * MIB)
        self.assertEqual(facts.device_free + facts.reserved + facts.used_elsewhere, facts.device_total)
        self.assertIsNone(facts.limit)
        self.assertEqual((facts.cause, facts.waiting), ("device", {}))
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(again), again.status, again.explanation), (str(error), error.status, facts))
        held.free()

    def test_a_limit_is_in_the_explanation(self):
        cuddy.empty_cache()
        cuddy.set_memory_limit(8 * MIB)
        try:
            with self.assertRaises(cuddy.OutOfMemoryError) as caught:
                cuddy.empty(9 * MIB)
        finally:
            cuddy.set_memory_limit(None)
        facts = caught.exception.explanation
        self.assertEqual((facts.limit, facts.cause, facts.data["requested"]), (8 * MIB, "limit", 9 * MIB))
        self.assertIn("raise the limit", facts.advice)

    def test_each_thread_has_its_own_explanation(self):
        with self.assertRaises(cuddy.OutOfMemoryError) as mine:
            cuddy.empty(1 << 40)

        def other():
            with self.assertRaises(cuddy.OutOfMemoryError) as theirs:
                cuddy.empty(1 << 41)
            self.assertEqual(theirs.exception.explanation.requested, 1 << 41)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        self.assertEqual(cuddy._errors.out_of_memory().explanation, mine.exception.explanation)

    def test_misuse_is_an_error_and_changes_nothing(self):
        buffer = cuddy.empty(100)
        other = cuddy.Buffer.__new__(cuddy.Buffer)
        del other  # half-built: silent
        self.assertEqual(cuddy._abi.lib.cuddy_free(buffer.ptr), 0)
        with self.assertRaises(cuddy.Error) as caught:
            buffer.free()
        self.assertEqual(caught.exception.status, cuddy.Status.DOUBLE_FREE)
        with self.assertRaises(ValueError):
            freed = cuddy.empty(8)
            freed.free()
            freed.record_stream(cuddy.LEGACY)

    def test_order_between_streams(self):
        driver = self.driver
        cuddy.empty_cache()
        driver.schedule("lazy")
        main, side = driver.stream(), driver.stream()
        cuddy.open_stream(main)
        a = cuddy.empty(2 * MIB, stream=main)
        first = a.ptr
        driver.fill(a.ptr, 1, 2 * MIB, main)
        driver.synchronize()
        driver.fill(a.ptr, 2, 2 * MIB, side)
        a.record_stream(side)
        a.free()
        b = cuddy.empty(2 * MIB, stream=main)
        driver.fill(b.ptr, 3, 2 * MIB, main)
        driver.synchronize()
        at = b.ptr
        b.free_on(side)
        c = cuddy.empty(2 * MIB, stream=side)
        self.assertIn(c.ptr, (first, at))
        driver.fill(c.ptr, 4, 2 * MIB, side)
        c.free()
        cuddy.retire_stream(main)
        with self.assertRaises(cuddy.Error) as caught:
            cuddy.retire_stream(main)
        self.assertEqual(caught.exception.status, cuddy.Status.INVALID_STREAM)
        driver.schedule("eager")

    def test_a_capturable_stream_tells_of_its_capture(self):
        driver = self.driver
        cuddy.empty_cache()
        stream, captured = driver.stream(), ctypes.c_void_p()
        cuddy.open_stream(stream, capturable=True)
        driver.call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), 0)
        with cuddy.empty(2 * MIB, stream=stream) as graphs:
            at = graphs.ptr
        driver.call("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(captured))
        with cuddy.empty(2 * MIB, stream=stream) as eager:
            self.assertNotEqual(eager.ptr, at)
        driver.call("cuGraphDestroy", captured)
        cuddy.retire_stream(stream)
        with self.assertRaises(cuddy.Error):
            cuddy.open_stream(cuddy.LEGACY, capturable=True)

    def test_streams_of_others(self):
        class OfTorch:
            cuda_stream = 0

        class OfCuPy:
            ptr = 2

        class OfCore:
            def __cuda_stream__(self):
                return 0, 1

        for stream, handle in ((OfTorch(), 1), (OfCuPy(), 2), (OfCore(), 1), (0, 1), (cuddy.ANY, cuddy.ANY)):
            with cuddy.empty(8, stream=stream) as buffer:
                self.assertEqual(buffer.stream, handle)

        class OfTorchDevice:
            index = None

        class OfCoreDevice:
            device_id = 1

        for device, number in ((OfTorchDevice(), 0), (OfCoreDevice(), 1), (1, 1)):
            with cuddy.empty(8, device) as buffer:
                self.assertEqual(buffer.device, number)

    def test_the_array_interface(self):
        stream = self.driver.stream()
        with cuddy.empty(100, stream=stream) as buffer:
            said = buffer.__cuda_array_interface__
            self.assertEqual((said["shape"], said["typestr"], said["version"]), ((100,), "|u1", 3))
            self.assertEqual((said["data"], said["stream"], said["strides"]), ((buffer.ptr, False), stream, None))
        with self.assertRaises(ValueError):
            _ = buffer.__cuda_array_interface__
        with cuddy.empty(1) as legacy, cuddy.empty(1, stream=cuddy.ANY) as anyone:
            self.assertEqual(legacy.__cuda_array_interface__["stream"], 1)
            self.assertIsNone(anyone.__cuda_array_interface__["stream"])

    def test_dlpack_keeps_the_buffer_and_orders_the_consumer(self):
        driver = self.driver
        driver.schedule("lazy")
        writer, reader = driver.stream(), driver.stream()
        buffer = cuddy.empty(MIB, stream=writer)
        at = buffer.ptr
        driver.fill(at, 1, MIB, writer)
        capsule = buffer.__dlpack__(stream=reader)
        self.assertIn('"dltensor"', repr(capsule))
        driver.fill(at, 2, MIB, reader)  # behind the writer, or the checker says so
        del buffer
        self.assertEqual(cuddy.memory_allocated(), MIB)  # the capsule holds it
        del capsule  # never consumed
        self.assertEqual(cuddy.memory_allocated(), 0)
        again = cuddy.empty(MIB, stream=writer)
        driver.fill(again.ptr, 3, MIB, writer)  # behind the reader
        versioned = again.__dlpack__(stream=-1, max_version=(1, 1))
        self.assertIn('"dltensor_versioned"', repr(versioned))
        self.assertEqual(again.__dlpack_device__(), (2, 0))
        with self.assertRaises(BufferError):
            again.__dlpack__(copy=True)
        with self.assertRaises(BufferError):
            again.__dlpack__(dl_device=(1, 0))
        with self.assertRaises(ValueError):
            again.__dlpack__(stream=0)
        driver.schedule("eager")


if __name__ == "__main__":
    unittest.main()
