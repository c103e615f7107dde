"""Pools as contexts: nested, temporary, of another device, in any order of ends (R16)."""

import gc
import unittest

import cuddy
from support import MIB, DeviceCase


def pools_of(pools, size=MIB):
    """In which pool an allocation lands now: its place in the list; None for the default one."""
    before = [pool.stats()["allocated"] for pool in pools]
    with cuddy.empty(size):
        grown = [pool.stats()["allocated"] > was for pool, was in zip(pools, before, strict=True)]
    return grown.index(True) if True in grown else None


class Pools(DeviceCase):
    def test_the_innermost_serves_and_leaving_restores(self):
        pools = [cuddy.Pool(), cuddy.Pool()]
        with pools[0]:
            self.assertEqual(pools_of(pools), 0)
            with pools[1]:
                self.assertEqual(pools_of(pools), 1)
                with pools[0]:
                    self.assertEqual(pools_of(pools), 0)
            self.assertEqual(pools_of(pools), 0)
        self.assertIsNone(pools_of(pools))
        with self.assertRaises(KeyError), pools[0], pools[1]:
            raise KeyError
        self.assertIsNone(pools_of(pools))

    def test_a_temporary_pool_dies_after_its_block(self):
        cuddy.empty_cache()
        base = cuddy.memory_reserved()
        with cuddy.pool() as temporary:
            kept = cuddy.empty(MIB)
        del temporary
        gc.collect()
        self.driver.fill(kept.ptr, 1, MIB, 1)
        del kept
        self.driver.synchronize()
        cuddy.empty_cache()
        self.assertEqual(cuddy.memory_reserved(), base)

    def test_another_devices_pool(self):
        pool = cuddy.Pool(1)
        with pool:  # it serves its own device, and no other
            with cuddy.empty(MIB, 0):
                self.assertEqual(pool.stats()["allocated"], 0)
            with cuddy.empty(MIB, 1):
                self.assertEqual(pool.stats()["allocated"], MIB)
        with self.assertRaises(cuddy.Error) as caught:
            cuddy.empty(MIB, 0, pool=pool)
        self.assertEqual(caught.exception.status, cuddy.Status.WRONG_DEVICE)

    def test_a_recorded_block_is_reused_inside(self):
        side = self.driver.stream()
        with cuddy.pool() as pool:
            first = cuddy.empty(2 * MIB)  # a page: the pool has no other
            first.record_stream(side)
            at = first.ptr
            reserved = pool.stats()["reserved"]
            del first
            self.driver.synchronize()
            second = cuddy.empty(2 * MIB)
            self.assertEqual(second.ptr, at)
            self.assertEqual(pool.stats()["reserved"], reserved)

    def test_a_limit_and_what_a_pool_tells(self):
        pool = cuddy.pool(limit=16 * MIB)
        with self.assertRaisesRegex(cuddy.OutOfMemoryError, "16.0 MiB"):
            cuddy.empty(20 * MIB, pool=pool)
        with cuddy.empty(10 * MIB, pool=pool):
            self.assertEqual(pool.stats()["limit"], 16 * MIB)
        pool.reset_peak_stats()
        self.assertEqual(pool.stats()["allocated_peak"], 0)
        self.assertGreaterEqual(pool.trim(), 10 * MIB)
        pool.set_limit(0)
        with cuddy.empty(20 * MIB, pool=pool):
            pass
        pool.destroy()
        pool.destroy()  # nothing
        self.assertIn("destroyed", repr(pool))
        with self.assertRaises(cuddy.Error) as caught, pool:
            pass
        self.assertEqual(caught.exception.status, cuddy.Status.INVALID_POOL)


if __name__ == "__main__":
    unittest.main()
