"""Scopes, leaks, history and snapshots."""

import json
import pathlib
import pickle
import re
import tempfile
import threading
import unittest

import cuddy
from support import MIB, DeviceCase


class Watch(DeviceCase):
    def test_scopes_nest_and_count(self):
        with cuddy.scope("outer"):
            a = cuddy.empty(1000)
            for _ in range(3):
                with cuddy.scope("inner"):
                    b = cuddy.empty(2000)
                    cuddy.empty(500).free()
        found = cuddy.scopes()
        inner, outer = found["outer/inner"], found["outer"]
        self.assertEqual((inner["runs"], outer["runs"]), (3, 1))
        self.assertEqual((inner["live_bytes"], inner["live_count"]), (2000, 1))
        self.assertEqual((outer["live_bytes"], outer["live_count"]), (3000, 2))
        self.assertEqual((inner["total_bytes"], inner["total_count"]), (7500, 6))
        self.assertEqual(inner["peak_bytes"], 4000)  # the next is there before the last goes
        self.assertGreaterEqual(found[""]["live_bytes"], 3000)
        left = cuddy.leaks("outer")
        self.assertEqual({block["address"] for block in left}, {a.ptr, b.ptr})
        (last,) = cuddy.leaks("outer/inner")
        self.assertEqual((last["run"], last["requested"], last["bytes"], last["device"]), (3, 2000, 2048, 0))
        del a, b
        self.assertEqual(cuddy.leaks("outer"), [])

    def test_an_exception_ends_a_scope_and_threads_have_their_own(self):
        with self.assertRaises(KeyError), cuddy.scope("failing"):
            raise KeyError
        with cuddy.scope("main"):
            held = []
            thread = threading.Thread(target=lambda: held.append(cuddy.empty(10)))
            thread.start()
            thread.join()
            self.assertEqual(cuddy.scopes()["main"]["live_count"], 0)
            mine = cuddy.empty(10)
        self.assertEqual([block["address"] for block in cuddy.leaks("main")], [mine.ptr])

    def test_misuse(self):
        for name in ("", "a/b"):
            with self.assertRaises(cuddy.Error) as caught, cuddy.scope(name):
                pass
            self.assertEqual(caught.exception.status, cuddy.Status.INVALID_ARGUMENT)
        self.assertNotEqual(cuddy._abi.lib.cuddy_scope_end(None), 0)
        with cuddy.scope("one"):
            self.assertNotEqual(cuddy._abi.lib.cuddy_scope_end(b"other"), 0)
            self.assertIn('"one"', cuddy._abi.last_error())
        with self.assertRaises(cuddy.Error):
            cuddy.leaks("no/such")
        deep = 0
        while cuddy._abi.lib.cuddy_scope_begin(b"deep") == 0:
            deep += 1
        for _ in range(deep):
            self.assertEqual(cuddy._abi.lib.cuddy_scope_end(b"deep"), 0)
        self.assertEqual(deep, 63)

    def test_leaks_are_watched_and_labelled(self):
        with cuddy.watch_leaks() as clean:
            cuddy.empty(100).free()
        self.assertEqual((clean.leaks, clean.bytes), ([], 0))
        for _ in range(2):
            with cuddy.watch_leaks("step") as watch:
                kept = cuddy.empty(100)
                cuddy.annotate(kept, 'the "kept" one')
            self.assertEqual((len(watch.leaks), watch.bytes), (1, 100))
            self.assertEqual(watch.leaks[0]["label"], 'the "kept" one')

        with cuddy.watch_leaks("tagged") as watch:
            kept = cuddy.empty(100, tag="weights")
        self.assertEqual([block["label"] for block in watch.leaks], ["weights"])

        @cuddy.profile
        def forward():
            return cuddy.empty(300)

        result = forward()
        (path,) = [path for path in cuddy.scopes() if path.endswith("forward")]
        self.assertEqual([block["address"] for block in cuddy.leaks(path)], [result.ptr])

    def test_failing_frees_change_nothing(self):
        with cuddy.scope("failing frees"):
            block = cuddy.empty(100)
        self.assertNotEqual(cuddy._abi.lib.cuddy_free(block.ptr + 8), 0)
        self.assertNotEqual(cuddy._abi.lib.cuddy_free(12345), 0)
        self.assertEqual(cuddy.scopes()["failing frees"]["live_count"], 1)
        other = self.driver.stream()
        self.driver.synchronize()
        block.free_on(other)
        self.assertEqual(cuddy.scopes()["failing frees"]["live_count"], 0)

    def test_history_is_bounded_and_true(self):
        cuddy.empty_cache()
        cuddy.memory.record_history(max_entries=1000)
        stream = self.driver.stream()
        with cuddy.scope("recorded"):
            a = cuddy.empty(3 * MIB, stream=stream)
            at = a.ptr
            a.free()
        with self.assertRaises(cuddy.OutOfMemoryError):
            cuddy.empty(1 << 40)
        cuddy.empty_cache()
        taken = cuddy.memory.snapshot()
        history = taken["history"]
        events = [dict(zip(history["columns"], row, strict=True)) for row in history["events"]]
        self.assertEqual((history["noted"], history["lost"]), (len(events), 0))
        kinds = [event["kind"] for event in events]
        self.assertEqual(kinds, ["growth", "alloc", "free", "out_of_memory", "release"])
        grown, alloc, free, failed, released = events
        self.assertEqual((alloc["address"], alloc["bytes"], alloc["requested"]), (at, 3 * MIB, 3 * MIB))
        self.assertEqual((alloc["stream"], alloc["device"]), (stream, 0))
        self.assertEqual((free["address"], free["bytes"], free["scope"]), (at, 3 * MIB, alloc["scope"]))
        self.assertEqual(failed["requested"], 1 << 40)
        self.assertEqual(grown["bytes"], released["bytes"])
        times = [event["time_us"] for event in events]
        self.assertEqual(times, sorted(times))
        for _ in range(2000):
            cuddy.empty(1)
        history = cuddy.memory.snapshot()["history"]
        self.assertEqual((len(history["events"]), history["noted"], history["lost"]), (1000, 4006, 3006))  # and a growth
        cuddy.memory.record_history(False)
        self.assertEqual(cuddy.memory.snapshot()["history"]["events"], [])

    def test_a_snapshot_has_every_block_and_its_sums_are_the_counters(self):
        kept = [cuddy.empty(size) for size in (1, 5000, 3 * MIB)]
        holes = [cuddy.empty(4096) for _ in range(10)]
        del holes[::2]
        with cuddy.pool() as pool:
            inside = cuddy.empty(MIB)
        taken = cuddy.memory.snapshot()
        self.assertEqual((taken["format"], taken["version"]), ("cuddy-snapshot", 1))
        (device,) = [device for device in taken["devices"] if device["device"] == 0]
        blocks = {}
        for segment in device["segments"]:
            at = segment["address"]
            for block in segment["blocks"]:
                blocks[at] = (segment["pool"], block)
                at += block["bytes"]
        sums = {"live": 0, "limbo": 0, "free": 0}
        for _, block in blocks.values():
            sums[block["state"]] += block["bytes"]
        stats = device["stats"]
        self.assertEqual(sums["live"], stats["allocated"])
        self.assertEqual(sums["live"] + sums["limbo"], stats["active"])
        self.assertEqual(sum(sums.values()), stats["reserved"] - stats["unmapped"] - stats["quarantined"])
        for buffer in (*kept, *holes, inside):
            self.assertEqual(blocks[buffer.ptr][1]["requested"], buffer.nbytes)
        self.assertNotEqual(blocks[inside.ptr][0], blocks[kept[0].ptr][0])
        del pool

    def test_every_name_is_documented(self):
        cuddy.memory.record_history(max_entries=10)
        block = cuddy.empty(100)
        cuddy.annotate(block, "x")
        taken = cuddy.memory.snapshot()
        cuddy.memory.record_history(False)
        with self.assertRaises(cuddy.OutOfMemoryError), cuddy.pool():
            cuddy.empty(1 << 40)
        taken = cuddy.memory.snapshot()
        text = (pathlib.Path(__file__).parents[2] / "docs" / "SNAPSHOT.md").read_text()
        documented = {name for row in re.findall(r"^\| (`[^|]*) \|", text, re.M) for name in re.findall(r"`(\w+)`", row)}

        def names(part):
            if isinstance(part, list):
                return set().union(*map(names, part))
            if not isinstance(part, dict):
                return set()
            return set(part).union(*(names(value) for key, value in part.items() if key not in ("stats", "options")))

        self.assertIn("driver_error", documented)  # told where the driver itself refuses
        self.assertEqual(documented - {"driver_error"}, names(taken) | set(taken["history"]["columns"]))
        stats = next(device["stats"] for device in taken["devices"] if device["device"] == 0)
        self.assertEqual(set(stats), {name for name, _ in cuddy._abi.Stats._fields_})

    def test_the_pickle_of_torchs_viewer(self):
        cuddy.memory.record_history()
        with cuddy.scope("viewed"):
            kept = cuddy.empty(3 * MIB)
        cuddy.empty(100).free()
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            cuddy.memory.dump_snapshot(place / "a.pickle")
            cuddy.memory.dump_snapshot(place / "a.json")
            for_torch = pickle.loads((place / "a.pickle").read_bytes())
            ours = json.loads((place / "a.json").read_text())
        cuddy.memory.record_history(False)
        total = sum(segment["allocated_size"] for segment in for_torch["segments"] if segment["device"] == 0)
        self.assertEqual(total, cuddy.memory_allocated(0))
        self.assertEqual(ours["devices"][0]["stats"]["allocated"], total)
        blocks = [block for segment in for_torch["segments"] for block in segment["blocks"]]
        (mine,) = [block for block in blocks if block["address"] == kept.ptr]
        self.assertEqual((mine["state"], mine["frames"][0]["name"]), ("active_allocated", "viewed"))
        actions = [entry["action"] for entry in for_torch["device_traces"][0]]
        self.assertEqual(actions, ["alloc", "alloc", "free_requested", "free_completed"])

    def test_the_counters_for_prometheus(self):
        kept = cuddy.empty(3 * MIB)
        text = cuddy.export_prometheus()
        self.assertIn(f'cuddy_allocated_bytes{{device="0"}} {cuddy.memory_allocated(0)}\n', text)
        del kept

    def test_a_failure_leaves_a_file_and_says_where_memory_was(self):
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder) / "oom.json"
            cuddy.memory.flight_recorder(place)
            with cuddy.scope("kept"):
                kept = cuddy.empty(3 * MIB)
            with self.assertRaises(cuddy.OutOfMemoryError) as caught:
                cuddy.empty(1 << 40)
            cuddy.memory.flight_recorder(None)
            written = json.loads(place.read_text())
        facts = caught.exception.explanation
        self.assertEqual(facts.scopes["kept"], 3 * MIB)
        self.assertIn("kept 3.00 MiB", str(caught.exception))
        self.assertIn(f"cuddy replay --fit {place}", str(caught.exception))
        self.assertEqual(written["out_of_memory"], facts.data)
        self.assertEqual(written["history"]["events"][-1][1], "out_of_memory")
        self.assertEqual(written["options"]["share"], "wait")
        kept.free()

    def test_it_is_off_until_somebody_asks(self):
        printed = self.quiet("""
            import cuddy
            early = cuddy.empty(100)
            print(cuddy.leaks(), cuddy.memory.snapshot()["history"]["noted"])
            with cuddy.scope("s"):
                late = cuddy.empty(100)
            print(len(cuddy.leaks()))
            try:
                cuddy.annotate(early, "x")
            except cuddy.Error as error:
                print("before scopes" in str(error))
            early.free()
            print(len(cuddy.leaks()), cuddy.scopes()[""]["live_count"])
        """)
        self.assertEqual(printed, "[] 0\n1\nTrue\n1 1\n")


if __name__ == "__main__":
    unittest.main()
