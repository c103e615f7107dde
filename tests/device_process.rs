//! The process: devices that are not used, forks, the end of the driver, a device reset under us.

mod machine;

use cuddy::error::Error;
use cuddy::process::{self, ALL_DEVICES, CURRENT_DEVICE};
use cuddy::stats::cuddy_stats;
use machine::*;

#[test]
fn looking_at_a_device_does_not_wake_it() {
    let environment = [("SIMCUDA_DEVICES", "3"), ("SIMCUDA_MEMORY", "8GiB")];
    isolated("looking_at_a_device_does_not_wake_it", &environment, |machine| {
        assert_eq!(process::empty_cache(ALL_DEVICES), Ok(0));
        assert_eq!(process::device_count(), Ok(3));
        let look = || {
            assert!(process::empty_cache(ALL_DEVICES).is_ok());
            assert!(process::trim(ALL_DEVICES, 0).is_ok());
            assert_eq!(process::empty_cache(0), Ok(0));
            let expected = cuddy_stats { limit: process::memory_limit(0).expect("0"), ..stats(2) };
            assert_eq!(stats(0), expected);
            assert!(process::summary(0).expect("a device").contains("not in use"));
            assert!(process::summary(ALL_DEVICES).is_ok());
            process::reset_peak_stats(0).expect("a device");
            process::reset_accumulated_stats(ALL_DEVICES).expect("devices");
            process::set_memory_limit(0, 64 * MIB).expect("a device");
            assert_eq!(process::memory_limit(0), Ok(64 * MIB));
            process::set_memory_fraction(0, 0.5).expect("a device");
            assert_eq!(process::memory_limit(0), Ok(4 * GIB));
            let facts = process::device_facts(0).expect("a device");
            assert!(!facts.in_use && facts.virtual_memory && facts.total_bytes == 8 * GIB);
            assert!(process::free(0x1234).is_err());
        };
        look();
        for device in 0..3 {
            assert_eq!(machine.sim.contexts_created(device), 0);
        }
        let block = malloc(4_000_000, 1).expect("fits");
        process::free(block).expect("live");
        look();
        process::empty_cache(1).expect("the driver works");
        let made: Vec<u64> = (0..3).map(|device| machine.sim.contexts_created(device)).collect();
        assert_eq!(made, [0, 1, 0]);
        assert_eq!((stats(1).reserved, machine.context()), (0, 0));
        // The limit set before its first use holds.
        assert!(malloc(5 * GIB, 0).is_err());
        assert!(machine.sim.used_peak(0) <= 4 * GIB);
    });
}

#[test]
fn numbers_that_are_no_device_are_refused() {
    let test = "numbers_that_are_no_device_are_refused";
    isolated(test, &[("SIMCUDA_DEVICES", "2")], |machine| {
        for device in [2, 100, i32::MAX, -3, i32::MIN] {
            let expected = Error::InvalidDevice { device: i64::from(device), count: 2 };
            assert_eq!(malloc(1, device), Err(expected.clone()));
            assert_eq!(process::stats(device), Err(expected.clone()));
            assert_eq!(process::empty_cache(device), Err(expected.clone()));
            assert_eq!(process::set_memory_limit(device, 0), Err(expected.clone()));
            assert_eq!(process::mem_get_info(device), Err(expected));
        }
        for outcome in [malloc(1, ALL_DEVICES).err(), process::stats(ALL_DEVICES).err()] {
            assert_eq!(outcome, Some(Error::InvalidDevice { device: -2, count: 2 }));
        }
        // The current device: that of the current context, or 0.
        let block = malloc(1000, CURRENT_DEVICE).expect("device 0");
        assert_eq!(process::block_info(block).expect("live").device, 0);
        machine.use_device(1);
        let block = malloc(1000, CURRENT_DEVICE).expect("device 1");
        assert_eq!(process::block_info(block).expect("live").device, 1);
        process::free(block).expect("live");
        process::set_memory_limit(ALL_DEVICES, GIB).expect("devices");
        assert_eq!((process::memory_limit(0), process::memory_limit(1)), (Ok(GIB), Ok(GIB)));
    });
}

#[test]
fn devices_do_not_mix() {
    let environment = [("SIMCUDA_DEVICES", "2"), ("SIMCUDA_MEMORY", "1GiB,256MiB")];
    isolated("devices_do_not_mix", &environment, |machine| {
        let (a, b) = (malloc(100 * MIB, 0).expect("fits"), malloc(100 * MIB, 1).expect("fits"));
        assert_eq!((stats(0).allocated, stats(1).allocated), (100 * MIB, 100 * MIB));
        assert!(malloc(200 * MIB, 1).is_err());
        process::free(b).expect("live");
        assert_eq!((stats(0).allocated, stats(1).allocated), (100 * MIB, 0));
        malloc(200 * MIB, 1).expect("its own cache is used");
        malloc(800 * MIB, 0).expect("fits");
        assert!(machine.sim.used_peak(1) <= 256 * MIB);
        process::free(a).expect("live");
    });
}

#[test]
fn the_callers_context_is_never_touched() {
    let environment = [("SIMCUDA_DEVICES", "2"), ("SIMCUDA_MEMORY", "1GiB")];
    isolated("the_callers_context_is_never_touched", &environment, |machine| {
        let work = |expected: usize| {
            let block = malloc(100 * MIB, 0).expect("fits");
            assert_eq!(machine.context(), expected);
            assert!(malloc(2 * GIB, 0).is_err());
            process::record_stream(block, 2).expect("live");
            process::free(block).expect("live");
            process::mem_get_info(0).expect("a device");
            process::summary(0).expect("a device");
            process::empty_cache(ALL_DEVICES).expect("the driver works");
            assert!(process::free(block).is_err());
            assert_eq!(machine.context(), expected);
        };
        work(0);
        let primary = machine.use_device(0);
        work(primary);
        work(machine.use_device(1));
        let own = machine.create_context(0);
        work(own);
        work(own);
        // A thread without a context.
        std::thread::scope(|scope| scope.spawn(|| work(0)).join()).expect("the thread lives");
    });
}

#[test]
fn a_child_forked_before_use_works() {
    isolated("a_child_forked_before_use_works", &[], |_| {
        assert_eq!(malloc(0, 0), Ok(0));
        in_fork(|| {
            let block = malloc(1000, 0).expect("a process of its own");
            process::free(block).expect("live");
        });
        // And so does the parent.
        let block = malloc(1000, 0).expect("fits");
        process::free(block).expect("live");
    });
}

#[test]
fn a_child_forked_after_use_gets_an_error_from_every_call() {
    let test = "a_child_forked_after_use_gets_an_error_from_every_call";
    isolated(test, &[("SIMCUDA_MEMORY", "8GiB")], |machine| {
        let block = malloc(1000, 0).expect("fits");
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Threads that hold the locks while the fork happens.
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let block = malloc(3 * MIB, 0).expect("fits");
                        process::free(block).expect("live");
                        process::empty_cache(0).expect("the driver works");
                        process::options().expect("no child").len();
                    }
                });
            }
            for _ in 0..50 {
                in_fork(|| {
                    assert_eq!(malloc(1000, 0), Err(Error::Forked));
                    assert_eq!(malloc(0, 0), Err(Error::Forked));
                    assert_eq!(process::free(block), Err(Error::Forked));
                    assert_eq!(process::record_stream(block, 2), Err(Error::Forked));
                    assert_eq!(process::block_info(block), Err(Error::Forked));
                    assert_eq!(process::stats(0), Err(Error::Forked));
                    assert_eq!(process::summary(0), Err(Error::Forked));
                    assert_eq!(process::empty_cache(ALL_DEVICES), Err(Error::Forked));
                    assert_eq!(process::set_memory_limit(0, 1), Err(Error::Forked));
                    assert_eq!(process::mem_get_info(0), Err(Error::Forked));
                    assert_eq!(process::device_count(), Err(Error::Forked));
                    assert_eq!(process::stream_open(0, 0x1000), Err(Error::Forked));
                    assert_eq!(process::set_option(b"caching", b"on"), Err(Error::Forked));
                    assert!(matches!(process::option(b"caching"), Err(Error::Forked)));
                    assert!(matches!(process::options(), Err(Error::Forked)));
                    assert!(matches!(process::rejected_options(), Err(Error::Forked)));
                });
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        process::free(block).expect("the parent goes on");
        assert!(machine.sim.calls_total() > 0);
    });
}

/// Runs `body` in a forked child, and fails if that fails or hangs.
fn in_fork(body: impl FnOnce()) {
    // SAFETY: the child runs `body` alone, which takes no lock that another thread may have held,
    // but for those whose misuse the test is there to find; it leaves through `_exit`.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::alarm(20);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            libc::_exit(i32::from(outcome.is_err()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(libc::WIFEXITED(status), "the child was killed, or hung: {status:#x}");
        assert_eq!(libc::WEXITSTATUS(status), 0, "the child has failed");
    }
}

#[test]
fn a_driver_that_has_shut_down_is_benign() {
    const DEINITIALIZED: i32 = 4;
    isolated("a_driver_that_has_shut_down_is_benign", &[], |machine| {
        machine.use_device(0);
        let held = machine.held_stream();
        let blocks: Vec<u64> = (0..4).map(|_| malloc(3 * MIB, 0).expect("fits")).collect();
        process::record_stream(blocks[0], held).expect("live");
        process::record_stream(blocks[1], 2).expect("live");
        for function in [
            "cuCtxGetCurrent",
            "cuCtxGetId",
            "cuCtxPushCurrent",
            "cuEventRecord",
            "cuEventCreate",
            "cuStreamGetId",
            "cuMemGetInfo",
        ] {
            machine.sim.fault(function, 1, 1, DEINITIALIZED, false).expect("a function");
        }
        for block in blocks {
            assert_eq!(process::free(block), Ok(()));
        }
        assert_eq!(process::empty_cache(0), Ok(0));
        assert_eq!(malloc(GIB, 0), Err(Error::Shutdown));
        assert_eq!(process::mem_get_info(0), Err(Error::Shutdown));
        assert!(process::summary(0).is_ok() && process::stats(0).is_ok());
        assert_eq!(stats(0).allocated, 0);
    });
}

#[test]
fn a_device_reset_under_us_is_noticed_at_the_next_miss() {
    let environment = [("SIMCUDA_MEMORY", "1GiB"), ("SIMCUDA_DEVICES", "2")];
    isolated("a_device_reset_under_us_is_noticed_at_the_next_miss", &environment, |machine| {
        machine.use_device(0);
        let stream = machine.held_stream();
        let other = malloc(1000, 1).expect("fits");
        let blocks: Vec<u64> = (0..10).map(|_| malloc(10 * MIB, 0).expect("fits")).collect();
        let cached = malloc(50 * MIB, 0).expect("fits");
        process::record_stream(blocks[0], stream).expect("live");
        process::free(blocks[0]).expect("live");
        process::free(cached).expect("live");
        machine.reset_device(0);
        machine.use_device(0);
        let fresh = malloc(300 * MIB, 0).expect("a new start");
        machine.fill(0, fresh, 1, 300 * MIB);
        machine.synchronize_all();
        assert_eq!(machine.byte(fresh), 1);
        let now = stats(0);
        assert_eq!((now.allocated, now.live_block_count, now.limbo_block_count), (300 * MIB, 1, 0));
        assert_eq!((now.reserved, machine.sim.used(0)), (300 * MIB, 300 * MIB));
        for &block in &blocks[1..] {
            if block != fresh {
                assert_eq!(process::free(block), Err(Error::DeviceReset(0)));
                assert_eq!(process::record_stream(block, 2), Err(Error::DeviceReset(0)));
            }
        }
        // The old stream is gone; a new one works, and so does the other device.
        assert!(process::stream_retire(0, stream).is_err());
        let stream = machine.stream();
        let block = malloc_on(MIB, stream).expect("fits");
        process::free(block).expect("live");
        process::free(other).expect("live");
        process::free(fresh).expect("live");
        process::empty_cache(ALL_DEVICES).expect("the driver works");
        assert_eq!((stats(0).reserved, machine.sim.used(0)), (0, 0));
        assert_eq!(machine.holdings(), (0, 0, 0));
    });
}

#[test]
fn there_may_be_no_driver_at_all() {
    // No simulated driver is loaded here, and a machine with a real one proves nothing.
    const CHILD: &str = "CUDDY_TEST_NO_DRIVER";
    if std::env::var_os(CHILD).is_some() {
        match process::device_count() {
            Err(Error::NoDriver(text)) => {
                assert!(text.contains("libcuda.so.1"), "{text}");
                assert!(matches!(malloc(1, 0), Err(Error::NoDriver(_))));
                assert_eq!(malloc(0, 0), Ok(0));
                assert!(matches!(process::free(4096), Err(Error::ForeignPointer(_))));
                assert_eq!(process::empty_cache(ALL_DEVICES), Ok(0));
            }
            other => println!("there is a driver here: {other:?}"),
        }
        std::process::exit(0);
    }
    let mut child = std::process::Command::new(std::env::current_exe().expect("this file"));
    child.args(["--exact", "there_may_be_no_driver_at_all", "--test-threads=1"]).env(CHILD, "1");
    let output = child.output().expect("this file runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn limits_may_come_from_the_environment() {
    let environment = [
        ("SIMCUDA_DEVICES", "2"),
        ("SIMCUDA_MEMORY", "1GiB,4GiB"),
        ("CUDDY_CONF", "memory_limit:1GiB,memory_fraction:0.5"),
    ];
    isolated("limits_may_come_from_the_environment", &environment, |_| {
        // The smaller of the two.
        assert_eq!((process::memory_limit(0), process::memory_limit(1)), (Ok(GIB / 2), Ok(GIB)));
        malloc(GIB / 2, 0).expect("the whole limit");
        assert!(malloc(1, 0).is_err());
        assert_eq!(process::options().expect("no child").len(), cuddy::options::COUNT);
        assert!(process::rejected_options().expect("no child").is_empty());
    });
}
