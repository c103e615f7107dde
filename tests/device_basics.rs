//! One device, one stream: sizes, limits, growth, errors and counters on the simulated driver.

mod machine;

use cuddy::error::{Error, cuddy_status};
use cuddy::process;
use machine::*;

fn text(error: &Error) -> String {
    error.to_string()
}

fn status(error: &Error) -> cuddy_status {
    error.into()
}

#[test]
fn zero_bytes_is_no_block() {
    isolated("zero_bytes_is_no_block", &[], |machine| {
        assert_eq!(malloc(0, 0), Ok(0));
        assert_eq!(process::free(0), Ok(()));
        assert_eq!(process::record_stream(0, 2), Ok(()));
        assert_eq!(machine.sim.contexts_created(0), 0);
    });
}

#[test]
fn sizes_near_the_largest_are_refused_and_nothing_moves() {
    isolated("sizes_near_the_largest_are_refused_and_nothing_moves", &[], |_| {
        let cached = malloc(MIB, 0).expect("fits");
        process::free(cached).expect("live");
        let before = stats(0);
        for below in [0, 1, 7, 255, 510, 511, 512, 2 * MIB - 1, 2 * MIB, 1 << 63, 3 << 62] {
            let asked = u64::MAX - below;
            let error = malloc(asked, 0).expect_err("no device has it");
            assert_eq!(status(&error), cuddy_status::CUDDY_ERROR_OUT_OF_MEMORY);
            assert!(text(&error).contains(&asked.to_string()), "{error}");
        }
        let after = stats(0);
        assert_eq!(after.out_of_memory_count, before.out_of_memory_count + 11);
        assert_eq!(memory_only(after), memory_only(before));
        let (x, y) = (malloc(512, 0).expect("fits"), malloc(512, 0).expect("fits"));
        assert!(x.abs_diff(y) >= 512);
        assert_eq!((process::free(x), process::free(y)), (Ok(()), Ok(())));
    });
}

#[test]
fn every_wrong_free_has_its_own_status_and_changes_nothing() {
    isolated("every_wrong_free_has_its_own_status_and_changes_nothing", &[], |_| {
        assert_eq!(
            process::free(0x1234000),
            Err(Error::ForeignPointer(cuddy::types::Address(0x1234000)))
        );
        let live = malloc(4096, 0).expect("fits");
        let freed = malloc(512, 0).expect("fits");
        process::free(freed).expect("live");
        let before = stats(0);
        for (pointer, expected) in [
            (freed, cuddy_status::CUDDY_ERROR_DOUBLE_FREE),
            (freed + 256, cuddy_status::CUDDY_ERROR_DOUBLE_FREE),
            (live + 512, cuddy_status::CUDDY_ERROR_INTERIOR_POINTER),
            (live + 1, cuddy_status::CUDDY_ERROR_INTERIOR_POINTER),
            (0x1234000, cuddy_status::CUDDY_ERROR_FOREIGN_POINTER),
            (u64::MAX, cuddy_status::CUDDY_ERROR_FOREIGN_POINTER),
        ] {
            let error = process::free(pointer).expect_err("wrong");
            assert_eq!(status(&error), expected, "{pointer:#x}: {error}");
            let error = process::record_stream(pointer, 2).expect_err("wrong");
            assert_eq!(status(&error), expected, "{pointer:#x}: {error}");
        }
        assert_eq!(stats(0), before);
        let (x, y) = (malloc(512, 0).expect("fits"), malloc(512, 0).expect("fits"));
        assert_ne!(x, y);
        let other = std::thread::spawn(|| {
            for _ in 0..10 {
                process::free(malloc(512, 0).expect("fits")).expect("live");
            }
        });
        other.join().expect("the locks are free");
        for pointer in [x, y, live] {
            process::free(pointer).expect("live");
        }
        process::empty_cache(0).expect("the driver works");
        let after = stats(0);
        assert_eq!((after.reserved, after.cached, after.live_block_count), (0, 0, 0));
    });
}

#[test]
fn block_info_answers_for_interior_pointers_too() {
    isolated("block_info_answers_for_interior_pointers_too", &[], |machine| {
        machine.use_device(0);
        let stream = machine.stream();
        let block = malloc_on(1000, stream).expect("fits");
        for pointer in [block, block + 1023] {
            let info = process::block_info(pointer).expect("live");
            assert_eq!((info.address, info.bytes, info.requested), (block, 1024, 1000));
            assert_eq!((info.device, info.stream), (0, stream));
            assert_ne!(info.stream_id, 0);
        }
        assert!(process::block_info(block + 1024).is_err());
        process::free(block).expect("live");
        assert!(process::block_info(block).is_err());
    });
}

#[test]
fn alignments_are_kept_or_refused() {
    isolated("alignments_are_kept_or_refused", &[], |_| {
        for alignment in [0, 1, 2, 256, 512, 1024, 4096, 65536, 2 * MIB] {
            for _ in 0..3 {
                let block = process::malloc(700, alignment, 0, 0).expect("fits");
                assert_eq!(block % alignment.max(512), 0);
            }
        }
        for alignment in [3, 513, 4 * MIB, u64::MAX] {
            let error = process::malloc(700, alignment, 0, 0).expect_err("not an alignment");
            assert_eq!(status(&error), cuddy_status::CUDDY_ERROR_INVALID_ARGUMENT);
        }
    });
}

#[test]
fn growing_sizes_leave_one_block_behind() {
    for schedule in ["eager", "lazy", "lag:100"] {
        let environment = [
            ("SIMCUDA_MEMORY", "1GiB"),
            ("SIMCUDA_CHECKER", "log"),
            ("SIMCUDA_SCHEDULE", schedule),
        ];
        isolated("growing_sizes_leave_one_block_behind", &environment, |machine| {
            machine.use_device(0);
            for mib in 4..200 {
                let block = malloc(mib * MIB, 0).expect("one block fits");
                for offset in [0, mib * MIB / 2, mib * MIB - 1] {
                    machine.fill(0, block + offset, mib as u8, 1);
                }
                process::free(block).expect("live");
                let now = stats(0);
                assert!(now.reserved <= GIB && now.allocated == 0);
            }
            for step in 0..600 {
                let bytes = MIB + 1 + step * 512;
                let block = malloc(bytes, 0).expect("one block fits");
                machine.fill(0, block, step as u8, bytes);
                process::free(block).expect("live");
            }
            assert_eq!(stats(0).out_of_memory_count, 0);
            assert!(stats(0).reserved <= 200 * MIB, "{:?}", stats(0));
            process::empty_cache(0).expect("the driver works");
            assert_eq!((stats(0).reserved, machine.sim.used(0)), (0, 0));
            machine.assert_clean();
        });
    }
}

#[test]
fn creeping_sizes_create_little() {
    isolated("creeping_sizes_create_little", &[("SIMCUDA_MEMORY", "4GiB")], |machine| {
        for step in 0..4096 {
            let block = malloc(16 * MIB + step * 4096, 0).expect("fits");
            process::free(block).expect("live");
        }
        assert!(stats(0).reserved <= 34 * MIB, "{}", stats(0).reserved);
        assert!(machine.sim.calls("cuMemCreate") <= 32, "{}", machine.sim.calls("cuMemCreate"));
        process::trim(0, 0).expect("the driver works");
        assert_eq!(stats(0).reserved, 0);
        // Held blocks between: no variant of the growing one is left behind.
        let mut held = Vec::new();
        for step in 0..2048 {
            let bytes = 16 * MIB + step * 4096;
            let block = malloc(bytes, 0).expect("fits");
            process::free(block).expect("live");
            if step % 64 == 0 {
                held.push(malloc(MIB, 0).expect("fits"));
            }
            let now = stats(0);
            assert!(now.reserved as f64 <= 1.1 * (now.allocated + bytes) as f64 + 2.0 * MIB as f64);
        }
    });
}

#[test]
fn a_limit_filled_with_cache_is_no_obstacle() {
    isolated(
        "a_limit_filled_with_cache_is_no_obstacle",
        &[("SIMCUDA_MEMORY", "4GiB")],
        |machine| {
            process::set_memory_limit(0, GIB).expect("a device");
            let a = malloc(536_870_912, 0).expect("fits");
            process::free(a).expect("live");
            assert_eq!(stats(0).allocated, 0);
            let b = malloc(805_306_368, 0).expect("fits once the cache is used");
            assert!(machine.sim.used_peak(0) <= GIB);
            let error = malloc(536_870_912, 0).expect_err("beyond the limit");
            assert_eq!(status(&error), cuddy_status::CUDDY_ERROR_OUT_OF_MEMORY);
            for part in ["512.0 MiB (536870912 bytes)", "1.00 GiB (1073741824 bytes)", "805306368"]
            {
                assert!(text(&error).contains(part), "{part} is not in {error}");
            }
            assert_eq!(stats(0).out_of_memory_count, 1);
            process::free(b).expect("live");
            assert!(machine.sim.used_peak(0) <= GIB);
        },
    );
}

#[test]
fn what_cannot_be_grown_is_moved_and_counted_as_a_retry() {
    isolated(
        "what_cannot_be_grown_is_moved_and_counted_as_a_retry",
        &[("SIMCUDA_MEMORY", "4GiB")],
        |machine| {
            process::set_memory_limit(0, 64 * MIB).expect("a device");
            let blocks: Vec<u64> = (0..8).map(|_| malloc(8 * MIB, 0).expect("fits")).collect();
            assert_eq!(stats(0).reserved, 64 * MIB);
            // Every second one goes: the free memory lies in four places.
            for block in blocks.iter().step_by(2) {
                process::free(*block).expect("live");
            }
            let joined = malloc(32 * MIB, 0).expect("pages are moved together");
            assert_eq!(
                (stats(0).reserved, stats(0).retry_count, stats(0).harvest_count),
                (64 * MIB, 1, 1)
            );
            assert!(machine.sim.used_peak(0) <= 64 * MIB);
            let error = malloc(1, 0).expect_err("the limit is reached");
            assert!(text(&error).contains("limit"), "{error}");
            process::free(joined).expect("live");
            for block in blocks.iter().skip(1).step_by(2) {
                process::free(*block).expect("live");
            }
            assert_eq!(malloc(64 * MIB, 0).map(|_| ()), Ok(()));
        },
    );
}

#[test]
fn the_cap_is_reachable_to_the_byte() {
    isolated("the_cap_is_reachable_to_the_byte", &[("SIMCUDA_MEMORY", "1GiB")], |machine| {
        process::set_memory_limit(0, 64 * MIB).expect("a device");
        let eight: Vec<u64> = (0..8).map(|_| malloc(8 * MIB, 0).expect("fits")).collect();
        for block in eight {
            process::free(block).expect("live");
        }
        let all = malloc(64 * MIB, 0).expect("the whole limit");
        assert_eq!((stats(0).reserved, machine.sim.used_peak(0)), (64 * MIB, 64 * MIB));
        process::free(all).expect("live");
        let before = stats(0);
        let error = malloc(64 * MIB + 1, 0).expect_err("one byte over");
        assert!(text(&error).contains("67108865 bytes"), "{error}");
        assert_eq!(memory_only(stats(0)), memory_only(before), "a hopeless request moves nothing");
        // A fraction that stands for the same bytes.
        let total = GIB as f64;
        process::set_memory_fraction(0, (100 * MIB) as f64 / total).expect("a fraction");
        assert_eq!(process::memory_limit(0), Ok(100 * MIB));
        malloc(100 * MIB, 0).expect("exactly the limit");
        for fraction in [0.0, -1.0, 1.5, f64::NAN, f64::INFINITY] {
            assert!(process::set_memory_fraction(0, fraction).is_err());
        }
    });
}

#[test]
fn two_large_blocks_need_no_doubling() {
    isolated("two_large_blocks_need_no_doubling", &[("SIMCUDA_MEMORY", "32510MiB")], |_| {
        malloc(8 * GIB, 0).expect("fits");
        malloc(8 * GIB, 0).expect("fits");
        assert_eq!(stats(0).reserved, 16 * GIB);
    });
}

#[test]
fn a_small_limit_serves_small_blocks_for_ever() {
    isolated("a_small_limit_serves_small_blocks_for_ever", &[], |machine| {
        process::set_memory_limit(0, 2 * MIB).expect("a device");
        let before = machine.sim.used(0);
        for _ in 0..1000 {
            let block = malloc(400, 0).expect("one page is enough");
            process::free(block).expect("live");
            assert_eq!(process::empty_cache(0), Ok(2 * MIB));
        }
        assert_eq!((stats(0).reserved, machine.sim.used(0)), (0, before));
        assert_eq!((machine.sim.objects("handles"), machine.sim.objects("mappings")), (0, 0));
    });
}

#[test]
fn lowering_the_limit_gives_the_cache_back() {
    isolated("lowering_the_limit_gives_the_cache_back", &[], |machine| {
        let live = malloc(10 * MIB, 0).expect("fits");
        let cached = malloc(100 * MIB, 0).expect("fits");
        process::free(cached).expect("live");
        assert_eq!(stats(0).reserved, 110 * MIB);
        process::set_memory_limit(0, 20 * MIB).expect("a device");
        assert_eq!((stats(0).reserved, machine.sim.used(0)), (20 * MIB, 20 * MIB));
        process::set_memory_limit(0, MIB).expect("a device");
        assert_eq!(stats(0).reserved, 10 * MIB, "live memory stays");
        assert!(malloc(512, 0).is_err());
        process::free(live).expect("live");
        process::set_memory_limit(0, 0).expect("a device");
        assert_eq!(process::memory_limit(0), Ok(u64::MAX));
        malloc(200 * MIB, 0).expect("no limit");
    });
}

#[test]
fn trim_stops_at_its_floor() {
    isolated("trim_stops_at_its_floor", &[], |machine| {
        let block = malloc(100 * MIB, 0).expect("fits");
        let live = malloc(MIB, 0).expect("fits");
        process::free(block).expect("live");
        assert_eq!(stats(0).reserved, 102 * MIB);
        assert_eq!(process::trim(0, 50 * MIB), Ok(52 * MIB));
        assert_eq!((stats(0).reserved, machine.sim.used(0)), (50 * MIB, 50 * MIB));
        assert_eq!(process::trim(0, 50 * MIB), Ok(0));
        assert_eq!(process::empty_cache(0), Ok(48 * MIB));
        assert_eq!(stats(0).reserved, 2 * MIB);
        process::free(live).expect("live");
        assert_eq!(process::empty_cache(process::ALL_DEVICES), Ok(2 * MIB));
        assert_eq!((stats(0).reserved, machine.sim.used(0)), (0, 0));
    });
}

#[test]
fn a_hole_in_the_middle_is_given_back_and_live_memory_stays() {
    let environment = [("SIMCUDA_MEMORY", "128MiB"), ("SIMCUDA_CHECKER", "log")];
    isolated("a_hole_in_the_middle_is_given_back_and_live_memory_stays", &environment, |machine| {
        machine.use_device(0);
        let fill = |block, value: u8, mib: u64| machine.fill(0, block, value, mib * MIB);
        let out_a = malloc(16 * MIB, 0).expect("fits");
        fill(out_a, 1, 16);
        let temporary = malloc(64 * MIB, 0).expect("fits");
        fill(temporary, 2, 64);
        process::free(temporary).expect("live");
        let out_b = malloc(16 * MIB, 0).expect("fits");
        fill(out_b, 3, 16);
        let out_c = malloc(16 * MIB, 0).expect("fits");
        fill(out_c, 4, 16);
        let temporary = malloc(64 * MIB, 0).expect("112 of 128 MiB");
        fill(temporary, 5, 64);
        machine.synchronize_all();
        for (block, value, mib) in
            [(out_a, 1, 16), (out_b, 3, 16), (out_c, 4, 16), (temporary, 5, 64)]
        {
            for offset in [0, mib * MIB / 2, mib * MIB - 1] {
                assert_eq!(machine.byte(block + offset), value);
            }
        }
        assert!(machine.sim.used_peak(0) <= 128 * MIB);
        machine.assert_clean();
    });
}

#[test]
fn a_full_device_explains_itself() {
    isolated("a_full_device_explains_itself", &[("SIMCUDA_MEMORY", "1GiB")], |machine| {
        machine.use_device(0);
        machine.sim.others_use(0, 512 * MIB).expect("a device");
        let live = malloc(100 * MIB, 0).expect("fits");
        let cached = malloc(50 * MIB, 0).expect("fits");
        process::free(cached).expect("live");
        let error = malloc(600 * MIB, 0).expect_err("too large");
        for part in [
            "600.0 MiB (629145600 bytes) were asked for on device 0",
            "100.0 MiB (104857600 bytes) in 1 live block",
            "50.0 MiB (52428800 bytes) cached",
            "The largest free range is 50.0 MiB",
            "The device has 1.00 GiB (1073741824 bytes)",
            "512.0 MiB (536870912 bytes) are used outside Cuddy",
            "end other processes",
        ] {
            assert!(text(&error).contains(part), "{part} is not in {error}");
        }
        let summary = process::summary(0).expect("a device");
        assert!(summary.contains("not by this allocator: 512.0 MiB"), "{summary}");
        let (free, total) = process::mem_get_info(0).expect("a device");
        assert_eq!((free, total), (1024 * MIB - 512 * MIB - 100 * MIB, GIB));
        process::set_memory_limit(0, 120 * MIB).expect("a device");
        assert_eq!(process::mem_get_info(0).expect("a device").0, 20 * MIB);
        process::free(live).expect("live");
    });
}

#[test]
fn a_hopeless_request_asks_the_driver_for_nothing() {
    let environment = [("SIMCUDA_MEMORY", "512MiB")];
    isolated("a_hopeless_request_asks_the_driver_for_nothing", &environment, |machine| {
        let live = malloc(300 * MIB, 0).expect("fits");
        let before = (machine.sim.calls("cuMemCreate"), machine.sim.calls("cuMemAddressReserve"));
        for bytes in [213 * MIB, GIB, 1 << 50, 1 << 60, 1 << 62] {
            let error = malloc(bytes, 0).expect_err("the device is smaller");
            assert_eq!(status(&error), cuddy_status::CUDDY_ERROR_OUT_OF_MEMORY);
            assert!(text(&error).contains(&format!("({bytes} bytes) were asked for")), "{error}");
        }
        let after = (machine.sim.calls("cuMemCreate"), machine.sim.calls("cuMemAddressReserve"));
        assert_eq!(after, before);
        assert_eq!(stats(0).out_of_memory_count, 5);
        process::free(live).expect("live");
    });
}

#[test]
fn peaks_are_rebased_and_totals_stay() {
    isolated("peaks_are_rebased_and_totals_stay", &[], |_| {
        process::reset_peak_stats(0).expect("before first use");
        let keep = malloc(30 * MIB, 0).expect("fits");
        process::reset_peak_stats(0).expect("a device");
        assert_eq!((stats(0).allocated_peak, stats(0).allocated), (30 * MIB, 30 * MIB));
        let above = |stats: cuddy::stats::cuddy_stats| {
            (stats.allocated - 30 * MIB, stats.allocated_peak - 30 * MIB)
        };
        let four: Vec<u64> = (0..4).map(|_| malloc(256 * MIB, 0).expect("fits")).collect();
        four.into_iter().for_each(|block| process::free(block).expect("live"));
        assert_eq!(above(stats(0)), (0, 1024 * MIB));
        process::reset_peak_stats(0).expect("a device");
        let (a, b) = (malloc(256 * MIB, 0).expect("fits"), malloc(256 * MIB, 0).expect("fits"));
        process::free(a).expect("live");
        assert_eq!(above(stats(0)), (256 * MIB, 512 * MIB));
        process::free(b).expect("live");
        process::reset_peak_stats(0).expect("a device");
        process::free(keep).expect("live");
        assert_eq!((stats(0).allocated, stats(0).allocated_peak), (0, 30 * MIB));
        assert_eq!(stats(0).allocated_total, (30 + 6 * 256) * MIB);
        process::reset_accumulated_stats(0).expect("a device");
        assert_eq!((stats(0).allocated_total, stats(0).malloc_count), (0, 0));
        assert_eq!(stats(0).driver_call_count, 0);
    });
}

#[test]
fn a_hit_makes_no_driver_call() {
    isolated("a_hit_makes_no_driver_call", &[], |machine| {
        machine.use_device(0);
        let stream = machine.held_stream();
        for named in [0, 1, 2, stream] {
            let block = malloc_on(5000, named).expect("fits");
            process::free(block).expect("live");
            let (calls, hits) = (machine.sim.calls_total(), stats(0).hit_count);
            for bytes in [1, 512, 3000, 5000] {
                let block = malloc_on(bytes, named).expect("cached");
                process::free(block).expect("live");
            }
            assert_eq!(machine.sim.calls_total(), calls);
            assert_eq!(stats(0).hit_count, hits + 4);
        }
    });
}

#[test]
fn without_caching_every_call_reaches_the_driver() {
    let environment = [("CUDDY_CONF", "caching:off"), ("SIMCUDA_CHECKER", "log")];
    isolated("without_caching_every_call_reaches_the_driver", &environment, |machine| {
        machine.use_device(0);
        for round in 1..=10u64 {
            let block = malloc(1000 * round, 0).expect("fits");
            machine.fill(0, block, 1, 1000 * round);
            assert_eq!(machine.sim.calls("cuMemAlloc"), round);
            assert_eq!(machine.sim.objects("allocations"), 1);
            process::free(block).expect("live");
            assert_eq!(
                (machine.sim.calls("cuMemFree"), machine.sim.objects("allocations")),
                (round, 0)
            );
            assert_eq!(stats(0).reserved, 0);
        }
        assert_eq!((stats(0).hit_count, stats(0).miss_count), (0, 10));
        machine.assert_clean();
    });
}

#[test]
fn options_can_be_set_before_use_and_limits_after() {
    isolated("options_can_be_set_before_use_and_limits_after", &[], |_| {
        process::set_option(b"backing", b"segments").expect("no device is in use");
        let block = malloc(1000, 0).expect("fits");
        assert_eq!(process::device_facts(0).expect("a device").backing, "segments");
        assert!(process::set_option(b"backing", b"pages").is_err());
        process::set_option(b"memory_limit", b"64MiB").expect("a limit may change");
        assert_eq!(process::memory_limit(0), Ok(64 * MIB));
        assert!(malloc(100 * MIB, 0).is_err());
        assert!(process::set_option(b"no_such_key", b"1").is_err());
        process::free(block).expect("live");
    });
}
