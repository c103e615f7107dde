"""The memory functions of torch.cuda's names, and options."""

import unittest

import cuddy
from support import MIB, Case, Driver


class Memory(Case):
    def test_counters_peaks_and_giving_back(self):
        driver = Driver()
        driver.use_device()
        cuddy.empty_cache()
        cuddy.reset_peak_memory_stats()
        cuddy.reset_accumulated_memory_stats()
        base = driver.used()
        keep = cuddy.empty(30 * MIB)
        many = [cuddy.empty(8 * MIB) for _ in range(4)]
        self.assertEqual((cuddy.memory_allocated(), cuddy.max_memory_allocated()), (62 * MIB, 62 * MIB))
        many.clear()
        self.assertEqual((cuddy.memory_allocated(), cuddy.max_memory_allocated(0)), (30 * MIB, 62 * MIB))
        cuddy.reset_peak_memory_stats(0)
        self.assertEqual(cuddy.max_memory_allocated(), 30 * MIB)
        self.assertGreaterEqual(cuddy.memory_reserved(), 62 * MIB)
        self.assertEqual(cuddy.max_memory_reserved(), cuddy.memory_reserved())
        stats = cuddy.memory_stats()
        self.assertEqual((stats["malloc_count"], stats["free_count"], stats["live_block_count"]), (5, 4, 1))
        self.assertNotIn("struct_size", stats)
        free, total = cuddy.mem_get_info()
        self.assertEqual((free, total), (482 * MIB, 512 * MIB))
        self.assertEqual(cuddy.trim(50 * MIB), stats["reserved"] - 50 * MIB)
        self.assertGreater(cuddy.empty_cache(0), 0)
        del keep
        cuddy.empty_cache()
        self.assertEqual((cuddy.memory_reserved(), driver.used()), (0, base))
        table = cuddy.memory_summary()
        self.assertIn("reserved from the driver", table)
        self.assertEqual(cuddy.memory_stats(1)["reserved"], 0)

    def test_torchs_keys(self):
        cuddy.reset_accumulated_memory_stats()
        before = cuddy.memory_stats()
        kept = cuddy.empty(3 * MIB)
        with cuddy.empty(MIB + 1):
            pass
        stats = cuddy.memory_stats()
        grown = {key: stats[key] - before[key] for key in stats}
        keys = [key for key in stats if "." in key]
        self.assertEqual(len(keys), 108 + 8)
        self.assertEqual(grown["allocation.all.current"], 1)
        self.assertEqual((grown["allocation.all.allocated"], grown["allocation.all.freed"]), (2, 1))
        self.assertEqual(grown["requested_bytes.all.allocated"], 4 * MIB + 1)
        self.assertEqual(grown["requested_bytes.all.freed"], MIB + 1)
        self.assertEqual(grown["allocated_bytes.all.freed"], MIB + 512)
        self.assertEqual(grown["active_bytes.all.current"], 3 * MIB)
        for metric in {key.partition(".")[0] for key in keys if key.count(".") == 2}:
            for name in ("current", "peak", "allocated", "freed"):
                parts = [stats[f"{metric}.{pool}.{name}"] for pool in ("small_pool", "large_pool")]
                self.assertEqual(stats[f"{metric}.all.{name}"], sum(parts), metric)
        kept.free()
        after = cuddy.memory_stats()
        for metric in ("allocation", "allocated_bytes", "requested_bytes", "active_bytes"):
            current, allocated, freed = (after[f"{metric}.all.{n}"] for n in ("current", "allocated", "freed"))
            self.assertEqual(current, before[f"{metric}.all.current"] + allocated - freed)

    def test_limits(self):
        cuddy.set_per_process_memory_fraction(0.25)
        self.assertEqual(cuddy.memory_limit(), 128 * MIB)
        for wrong in (-0.1, 1.5, float("nan")):
            with self.assertRaises(cuddy.Error):
                cuddy.set_per_process_memory_fraction(wrong)
        self.assertEqual(cuddy.memory_limit(), 128 * MIB)
        with self.assertRaises(ValueError):
            cuddy.set_memory_limit(-1)
        cuddy.set_memory_limit(None)
        self.assertIsNone(cuddy.memory_limit())

    def test_options(self):
        table = cuddy.options()
        self.assertIn("memory_limit", table)
        self.assertEqual(set(table["memory_limit"]), {"value", "source", "accepts", "meaning"})
        cuddy.set_option("memory_limit", "100MiB")
        self.assertEqual(cuddy.get_option("memory_limit"), cuddy.options()["memory_limit"]["value"])
        cuddy.set_option("memory_limit", "none")
        with self.assertRaisesRegex(cuddy.Error, "memory_limit"):
            cuddy.set_option("memory_limt", "1")

    def test_asking_makes_no_context(self):
        printed = self.quiet("""
            import cuddy
            from support import Driver
            driver = Driver()
            cuddy.empty_cache(), cuddy.memory_stats(), cuddy.memory_summary(), cuddy.memory_allocated(1)
            cuddy.reset_peak_memory_stats(), cuddy.set_per_process_memory_fraction(0.5, 1), cuddy.options()
            print(driver.contexts(0), driver.contexts(1))
            buffer = cuddy.empty(100, 1)
            cuddy.empty_cache(), cuddy.memory_summary(0)
            print(driver.contexts(0), driver.contexts(1), buffer.device)
        """)
        self.assertEqual(printed, "0 0\n0 1 1\n")


if __name__ == "__main__":
    unittest.main()
