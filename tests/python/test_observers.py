"""Observers, and the small functions: tick, pins, peers, how a pool shares."""

import gc
import sys
import threading
import unittest

import cuddy
from support import MIB, DeviceCase


class Observers(DeviceCase):
    def setUp(self):
        gc.collect()
        cuddy.empty_cache()

    def test_what_an_observer_frees_serves_the_request(self):
        spare = [cuddy.empty(300 * MIB)]
        told = []

        def free(event):
            told.append(event)
            spare.clear()

        with cuddy.observe(free):
            with cuddy.empty(400 * MIB) as got:
                self.assertEqual(got.nbytes, 400 * MIB)
        (event,) = told
        self.assertEqual((event.kind, event.device, event.bytes), ("out_of_memory", 0, 400 * MIB))
        self.assertEqual((event.allocated, event.limit, event.stream), (300 * MIB, None, 1))
        # It has ended.
        with cuddy.empty(300 * MIB), self.assertRaises(cuddy.OutOfMemoryError):
            cuddy.empty(400 * MIB)
        self.assertEqual(len(told), 1)

    def test_growth_and_release_add_up(self):
        told = []
        with cuddy.observe(told.append, ("growth", "release")), cuddy.empty(3 * MIB):
            pass
        held = sum(event.bytes for event in told)
        self.assertEqual({event.kind for event in told}, {"growth"})
        self.assertEqual(held, cuddy.memory_reserved())
        with cuddy.observe(told.append, "release"):
            self.assertEqual(cuddy.empty_cache(), held)
        self.assertEqual(sum(event.bytes for event in told if event.kind == "release"), held)

    def test_host_memory_is_no_device(self):
        told = []
        with cuddy.observe(told.append, ["growth"]):
            cuddy.HostBuffer(20 * MIB)
        self.assertEqual([event.device for event in told], [None])

    def test_an_exception_is_reported_and_changes_nothing(self):
        said = []
        hook, sys.unraisablehook = sys.unraisablehook, lambda what: said.append(str(what.exc_value))
        try:
            with cuddy.observe(lambda event: 1 / 0, "growth"), cuddy.empty(3 * MIB):
                pass
        finally:
            sys.unraisablehook = hook
        self.assertEqual(said, ["division by zero"])

    def test_other_threads_and_unknown_kinds(self):
        told = []
        with cuddy.observe(lambda event: told.append(threading.current_thread().name), "growth"):
            thread = threading.Thread(target=lambda: cuddy.empty(3 * MIB).free(), name="other")
            thread.start()
            thread.join()
        self.assertEqual(told, ["other"])
        with self.assertRaisesRegex(ValueError, "one of out_of_memory"):
            cuddy.observe(print, ["shrinking"])

    def test_an_observer_that_is_left_is_quiet_at_exit(self):
        self.quiet("""
            import cuddy
            told = []
            cuddy.observe(told.append, ("growth", "release"))
            kept = cuddy.empty(1 << 20)
            assert told
        """)


class Small(DeviceCase):
    def test_pinned_memory_stays(self):
        gc.collect()
        cuddy.empty_cache()
        with cuddy.empty(2 * MIB) as buffer:
            buffer.pin()
        cuddy.empty_cache()
        self.assertEqual(cuddy.memory_reserved(), 2 * MIB)
        buffer.unpin()
        cuddy.empty_cache()
        self.assertEqual(cuddy.memory_reserved(), 0)
        with self.assertRaises(cuddy.Error):
            buffer.unpin()

    def test_tick_gives_back_what_decayed(self):
        printed = self.quiet(
            """
            import cuddy, time
            cuddy.empty(2 << 20).free()
            freed, end = 0, time.monotonic() + 60
            while not freed and time.monotonic() < end:
                time.sleep(0.002)
                freed += cuddy.tick()
            print(freed, cuddy.memory_reserved())
            """,
            CUDDY_CONF="decay_ms:1",
        )
        self.assertEqual(printed, f"{2 << 20} 0\n")

    def test_peers(self):
        with cuddy.empty(MIB, 0):
            cuddy.enable_peer_access(0, 1)
            cuddy.enable_peer_access(0, 1)
            cuddy.disable_peer_access(0, 1)
        with self.assertRaises(cuddy.Error) as caught:
            cuddy.enable_peer_access(0, 0)
        self.assertEqual(caught.exception.status, cuddy.Status.INVALID_ARGUMENT)

    def test_a_pool_that_does_not_share(self):
        streams = [self.driver.stream(), self.driver.stream()]
        for share, shared in (("never", False), ("passed", True), (None, True)):
            with cuddy.pool() as pool:
                pool.set_share(share)
                with cuddy.empty(MIB, stream=streams[0]) as first:
                    at = first.ptr
                self.driver.synchronize()
                with cuddy.empty(MIB, stream=streams[1]) as second:
                    self.assertEqual(second.ptr == at, shared, share)


if __name__ == "__main__":
    unittest.main()
