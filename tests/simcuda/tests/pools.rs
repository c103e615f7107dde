//! Memory pools: what stream order promises, when freed memory is used again, what a pool keeps.

mod common;
use common::{MIB, SCHEDULES, Session, code::*, session};

const FOLLOW: i32 = 1;
const OPPORTUNISTIC: i32 = 2;
const INTERNAL: i32 = 3;
const THRESHOLD: i32 = 4;
const RESERVED: i32 = 5;
const RESERVED_HIGH: i32 = 6;
const USED: i32 = 7;
const USED_HIGH: i32 = 8;
const CHUNK: u64 = 32 << 20;

impl Session {
    fn default_pool(&self, device: i32) -> u64 {
        let mut pool = 0;
        ok!(self.cuDeviceGetDefaultMemPool(&mut pool, device));
        pool
    }

    fn current_pool(&self, device: i32) -> u64 {
        let mut pool = 0;
        ok!(self.cuDeviceGetMemPool(&mut pool, device));
        pool
    }

    /// A pool of its own, with room for `most` bytes (0: no limit) on a device.
    fn pool(&self, device: i32, most: usize) -> u64 {
        let mut pool = 0;
        ok!(self.cuMemPoolCreate(&mut pool, &asked(device, most, 0)));
        pool
    }

    fn get(&self, pool: u64, attribute: i32) -> u64 {
        let mut value = 0;
        ok!(self.cuMemPoolGetAttribute(pool, attribute, &mut value));
        value
    }

    fn set(&self, pool: u64, attribute: i32, value: u64) {
        ok!(self.cuMemPoolSetAttribute(pool, attribute, &value));
    }

    fn take(&self, bytes: usize, stream: u64) -> u64 {
        let mut address = 0;
        ok!(self.cuMemAllocAsync(&mut address, bytes, stream));
        address
    }

    fn take_from(&self, pool: u64, bytes: usize, stream: u64) -> u64 {
        let mut address = 0;
        ok!(self.cuMemAllocFromPoolAsync(&mut address, bytes, pool, stream));
        address
    }

    fn free_bytes(&self) -> u64 {
        let (mut free, mut total) = (0, 0);
        ok!(self.cuMemGetInfo_v2(&mut free, &mut total));
        free as u64
    }

    fn order(&self, first: u64, second: u64) {
        let event = self.event();
        ok!(self.cuEventRecord(event, first));
        ok!(self.cuStreamWaitEvent(second, event, 0));
        ok!(self.cuEventDestroy_v2(event));
    }
}

/// `CUmemPoolProps`.
fn asked(device: i32, most: usize, handle_types: u64) -> [u64; 11] {
    let mut properties = [0; 11];
    properties[0] = 1 | handle_types << 32;
    properties[1] = 1 | (device as u64) << 32;
    properties[3] = most as u64;
    properties
}

#[test]
fn a_device_has_a_default_and_a_current_pool() {
    let s = session(&[("devices", "2")]);
    let (default, other) = (s.default_pool(0), s.default_pool(1));
    assert_ne!(default, other);
    assert_eq!(s.current_pool(0), default);
    let mine = s.pool(0, 0);
    assert_eq!(s.cuDeviceSetMemPool(1, mine), INVALID_VALUE, "a pool of another device");
    ok!(s.cuDeviceSetMemPool(0, mine));
    assert_eq!((s.current_pool(0), s.current_pool(1)), (mine, other));
    let block = s.take(1000, 0);
    assert_eq!((s.get(mine, USED), s.get(default, USED)), (1024, 0));
    ok!(s.cuMemFreeAsync(block, 0));
    assert_eq!(s.cuMemPoolDestroy(default), INVALID_VALUE, "a default pool stays");
    ok!(s.cuMemPoolDestroy(mine));
    assert_eq!(s.current_pool(0), default, "the default pool takes the place of a destroyed one");
    let mut value = 0;
    assert_eq!(s.cuMemPoolGetAttribute(mine, USED, &mut value), INVALID_VALUE, "destroyed");
    assert_eq!(s.cuDeviceSetMemPool(0, mine), INVALID_VALUE);
}

#[test]
fn wrong_arguments_are_refused() {
    let s = session(&[]);
    let (mut pool, mut address) = (0, 0);
    assert_eq!(s.cuMemPoolCreate(&mut pool, &asked(7, 0, 0)), INVALID_DEVICE);
    assert_eq!(s.cuMemPoolCreate(&mut pool, &[0; 11]), INVALID_VALUE);
    assert_eq!(s.cuMemPoolCreate(&mut pool, &asked(0, 0, 2)), NOT_SUPPORTED);
    assert_eq!(s.cuMemPoolCreate(std::ptr::null_mut(), &asked(0, 0, 0)), INVALID_VALUE);
    assert_eq!(s.cuMemAllocAsync(&mut address, 0, 0), INVALID_VALUE);
    assert_eq!(s.cuMemAllocAsync(&mut address, 8, 0x1234), INVALID_HANDLE);
    assert_eq!(s.cuMemAllocAsync(std::ptr::null_mut(), 8, 0), INVALID_VALUE);
    assert_eq!(s.cuMemAllocAsync(&mut address, usize::MAX, 0), OUT_OF_MEMORY);
    assert_eq!(s.cuMemAllocFromPoolAsync(&mut address, 8, 0x77, 0), INVALID_VALUE);
    let block = s.take(4096, 0);
    assert_eq!(s.cuMemFreeAsync(block + 512, 0), INVALID_VALUE, "inside a block");
    assert_eq!(s.cuMemFree_v2(block + 512), INVALID_VALUE);
    assert_eq!(s.cuMemFreeAsync(s.pinned(64), 0), INVALID_VALUE, "no device memory");
    ok!(s.cuMemFreeAsync(block, 0));
    assert_eq!(s.cuMemFreeAsync(block, 0), INVALID_VALUE, "twice");
    assert_eq!(s.cuMemFree_v2(block), INVALID_VALUE, "twice");
    let default = s.default_pool(0);
    let one = 1;
    for fixed in [RESERVED, USED, 0, 99] {
        assert_eq!(s.cuMemPoolSetAttribute(default, fixed, &one), INVALID_VALUE, "{fixed}");
    }
    for high in [RESERVED_HIGH, USED_HIGH] {
        assert_eq!(s.cuMemPoolSetAttribute(default, high, &one), INVALID_VALUE, "only to zero");
    }
    assert_eq!(s.cuMemPoolTrimTo(1, 0), INVALID_VALUE);
}

#[test]
fn an_allocation_holds_its_data_on_every_schedule() {
    for schedule in SCHEDULES {
        let s = session(&[("checker", "log"), ("schedule", schedule)]);
        let stream = s.stream();
        let (a, b) = (s.take(3000, stream), s.take(3000, stream));
        ok!(s.cuMemsetD8Async(a, 7, 3000, stream));
        ok!(s.cuMemcpyDtoDAsync_v2(b, a, 3000, stream));
        ok!(s.cuMemFreeAsync(a, stream));
        let mut out = vec![0u8; 3000];
        ok!(s.cuMemcpyDtoHAsync_v2(out.as_mut_ptr().cast(), b, 3000, stream));
        ok!(s.cuMemFreeAsync(b, stream));
        ok!(s.cuStreamSynchronize(stream));
        assert_eq!(out, [7; 3000], "{schedule}");
        assert_eq!(s.sim.reports(), Vec::<String>::new(), "{schedule}");
        assert!(s.sim.accesses_checked() >= 8, "the checker saw both ends of both");
    }
}

#[test]
fn a_use_on_another_stream_needs_an_order_after_the_allocation() {
    let s = session(&[("checker", "log")]);
    let (a, b) = (s.stream(), s.stream());
    let block = s.take(4096, a);
    s.order(a, b);
    ok!(s.cuMemsetD8Async(block, 1, 4096, b));
    assert_eq!(s.sim.report_count(), 0);
    let block = s.take(4096, a);
    ok!(s.cuMemsetD8Async(block, 1, 4096, b));
    let reports = s.sim.reports();
    assert_eq!(reports.len(), 1, "{reports:?}");
    for part in ["nothing orders after its allocation", "cuMemAllocAsync(4096)", "cuMemsetD8Async"]
    {
        assert!(reports[0].contains(part), "{part}: {}", reports[0]);
    }
}

#[test]
fn a_use_after_the_stream_ordered_free_is_reported_and_harms_nothing() {
    let s = session(&[("checker", "log")]);
    let stream = s.stream();
    let block = s.take(4096, stream);
    ok!(s.cuMemFreeAsync(block, stream));
    s.launch("simcuda_fill", &[block + 64, 64, 1], stream);
    let reports = s.sim.reports();
    assert_eq!(reports.len(), 1, "{reports:?}");
    for part in ["use after free", "cuMemFreeAsync", "simcuda_fill"] {
        assert!(reports[0].contains(part), "{part}: {}", reports[0]);
    }
    assert_eq!(s.cuStreamQuery(stream), 0, "a GPU does not fault on memory that the pool keeps");
    ok!(s.cuStreamSynchronize(stream));
    s.launch("simcuda_fill", &[block + 64, 64, 1], stream);
    assert_eq!(s.cuStreamSynchronize(stream), ILLEGAL_ADDRESS, "and on what it gave back, it does");
}

#[test]
fn a_use_across_two_blocks_is_out_of_bounds() {
    let s = session(&[("checker", "log")]);
    let (a, b) = (s.take(512, 0), s.take(512, 0));
    assert_eq!(b, a + 512, "neighbours");
    ok!(s.cuMemsetD8Async(a + 500, 1, 13, 0));
    let reports = s.sim.reports();
    assert!(reports.len() == 1 && reports[0].contains("beyond the end"), "{reports:?}");
}

#[test]
fn a_free_that_nothing_orders_after_a_use_is_reported() {
    let s = session(&[("checker", "log")]);
    let (a, b) = (s.stream(), s.stream());
    let block = s.take(4096, a);
    s.order(a, b);
    ok!(s.cuMemsetD8Async(block, 1, 4096, b));
    ok!(s.cuMemFreeAsync(block, a));
    let reports = s.sim.reports();
    assert_eq!(reports.len(), 1, "{reports:?}");
    for part in ["taken away while work may still use it", "cuMemFreeAsync", "cuMemsetD8Async"] {
        assert!(reports[0].contains(part), "{part}: {}", reports[0]);
    }
}

#[test]
fn recycled_memory_holds_nothing() {
    let s = session(&[("checker", "log")]);
    s.sim.report_uninitialised(true);
    let stream = s.stream();
    let mut out = [0u8; 64];
    let first = s.take(64, stream);
    ok!(s.cuMemsetD8Async(first, 1, 64, stream));
    ok!(s.cuMemcpyDtoHAsync_v2(out.as_mut_ptr().cast(), first, 64, stream));
    assert_eq!(s.sim.report_count(), 0);
    ok!(s.cuMemFreeAsync(first, stream));
    let second = s.take(64, stream);
    assert_eq!(second, first);
    ok!(s.cuMemcpyDtoHAsync_v2(out.as_mut_ptr().cast(), second, 64, stream));
    assert!(s.sim.reports()[0].contains("never written"), "{:?}", s.sim.reports());
}

#[test]
fn a_stream_has_its_own_frees_back_at_once() {
    for (checker, schedule) in [("off", "lazy"), ("log", "lazy"), ("log", "eager")] {
        let s = session(&[("checker", checker), ("schedule", schedule)]);
        let pool = s.default_pool(0);
        for policy in [FOLLOW, OPPORTUNISTIC, INTERNAL] {
            s.set(pool, policy, 0);
        }
        let stream = s.stream();
        s.gate(1, stream);
        let first = s.take(1 << 20, stream);
        ok!(s.cuMemFreeAsync(first, stream));
        assert_eq!(s.take(1 << 20, stream), first);
        assert_eq!(s.get(pool, RESERVED), CHUNK);
        s.sim.gate_open(1);
        assert_eq!(s.sim.report_count(), 0);
    }
}

/// A block freed on one stream behind a shut gate; whether another stream's allocation gets it.
fn passes(s: &Session, policies: [u64; 3], ordered: bool, done: bool) -> bool {
    let pool = s.pool(0, 0);
    for (attribute, value) in (FOLLOW..).zip(policies) {
        s.set(pool, attribute, value);
    }
    let (a, b) = (s.stream(), s.stream());
    s.gate(pool, a);
    let first = s.take_from(pool, CHUNK as usize, a);
    ok!(s.cuMemFreeAsync(first, a));
    if ordered {
        s.order(a, b);
    }
    if done {
        s.sim.gate_open(pool);
        // Run it, and learn nothing.
        s.sim.schedule("eager").expect("a schedule");
    }
    let second = s.take_from(pool, CHUNK as usize, b);
    ok!(s.cuMemsetD8Async(second, 1, CHUNK as usize, b));
    s.sim.gate_open(pool);
    assert_eq!(s.sim.reports(), Vec::<String>::new());
    first == second
}

#[test]
fn each_policy_lets_memory_pass_exactly_when_it_says() {
    for checker in ["off", "log"] {
        let new = || session(&[("checker", checker), ("schedule", "lazy")]);
        // Nothing orders them and the free is not done: more memory is taken instead.
        assert!(!passes(&new(), [1, 1, 1], false, false));
        // An event orders them.
        assert!(passes(&new(), [1, 0, 0], true, false));
        assert!(!passes(&new(), [0, 1, 0], true, false));
        // The free happens to be done.
        assert!(passes(&new(), [0, 1, 0], false, true));
        assert!(!passes(&new(), [1, 0, 1], false, true));
    }
}

#[test]
fn what_the_host_waited_for_is_anybodys_whatever_the_policies() {
    for checker in ["off", "log"] {
        let s = session(&[("checker", checker), ("schedule", "lazy")]);
        let pool = s.default_pool(0);
        for policy in [FOLLOW, OPPORTUNISTIC, INTERNAL] {
            s.set(pool, policy, 0);
        }
        s.set(pool, THRESHOLD, u64::MAX);
        let (a, b) = (s.stream(), s.stream());
        let first = s.take(1 << 20, a);
        ok!(s.cuMemFreeAsync(first, a));
        ok!(s.cuStreamSynchronize(a));
        assert_eq!(s.take(1 << 20, b), first);
        assert_eq!(s.sim.report_count(), 0);
    }
}

#[test]
fn the_null_stream_orders_too() {
    let s = session(&[("checker", "log"), ("schedule", "lazy")]);
    s.set(s.default_pool(0), OPPORTUNISTIC, 0);
    let blocking = s.blocking_stream();
    let first = s.take(1 << 20, blocking);
    ok!(s.cuMemFreeAsync(first, blocking));
    assert_eq!(s.take(1 << 20, 0), first);
    assert_eq!(s.sim.report_count(), 0);
}

#[test]
fn an_internal_dependency_is_made_rather_than_failing() {
    for checker in ["off", "log"] {
        for allowed in [true, false] {
            let s = session(&[("checker", checker)]);
            let pool = s.pool(0, 2 * MIB);
            s.set(pool, INTERNAL, u64::from(allowed));
            let (a, b) = (s.stream(), s.stream());
            s.gate(1, a);
            let first = s.take_from(pool, 2 * MIB, a);
            ok!(s.cuMemsetD8Async(first, 1, 64, a));
            ok!(s.cuMemFreeAsync(first, a));
            let mut second = 0;
            let result = s.cuMemAllocFromPoolAsync(&mut second, 2 * MIB, pool, b);
            if !allowed {
                assert_eq!(result, OUT_OF_MEMORY);
                continue;
            }
            assert_eq!((result, second), (0, first));
            ok!(s.cuMemsetD8Async(second, 2, 64, b));
            assert_eq!(s.cuStreamQuery(b), NOT_READY, "it waits for the other stream");
            s.sim.gate_open(1);
            ok!(s.cuStreamSynchronize(b));
            assert_eq!(s.peek(second, 1), [2]);
            assert_eq!(s.sim.report_count(), 0);
        }
    }
}

#[test]
fn a_pool_shrinks_to_its_threshold_at_a_synchronisation() {
    let s = session(&[("schedule", "lazy")]);
    let (pool, stream, free) = (s.default_pool(0), s.stream(), s.free_bytes());
    let take_and_free = |bytes: usize| {
        let block = s.take(bytes, stream);
        ok!(s.cuMemFreeAsync(block, stream));
    };
    take_and_free(1000);
    assert_eq!((s.get(pool, RESERVED), free - s.free_bytes()), (CHUNK, CHUNK));
    ok!(s.cuStreamSynchronize(stream));
    assert_eq!((s.get(pool, RESERVED), free - s.free_bytes()), (0, 0), "the default keeps nothing");
    let syncs: [&dyn Fn(); 3] =
        [&|| ok!(s.cuStreamSynchronize(stream)), &|| ok!(s.cuCtxSynchronize()), &|| {
            let event = s.event();
            ok!(s.cuEventRecord(event, stream));
            ok!(s.cuEventSynchronize(event));
        }];
    for sync in syncs {
        for (threshold, left) in [(0, 0), (CHUNK - 1, 0), (CHUNK, CHUNK), (u64::MAX, 2 * CHUNK)] {
            s.set(pool, THRESHOLD, threshold);
            let (a, b) = (s.take(CHUNK as usize, stream), s.take(CHUNK as usize, stream));
            ok!(s.cuMemFreeAsync(a, stream));
            ok!(s.cuMemFreeAsync(b, stream));
            assert_eq!(s.get(pool, RESERVED), 2 * CHUNK);
            sync();
            assert_eq!(s.get(pool, RESERVED), left, "threshold {threshold}");
        }
        ok!(s.cuMemPoolTrimTo(pool, 0));
        assert_eq!(s.free_bytes(), free);
    }
}

#[test]
fn trimming_leaves_what_is_in_use_or_not_yet_free() {
    let s = session(&[]);
    let (pool, stream) = (s.default_pool(0), s.stream());
    s.set(pool, THRESHOLD, u64::MAX);
    let blocks: Vec<_> = (0..4).map(|_| s.take(CHUNK as usize, stream)).collect();
    ok!(s.cuMemFreeAsync(blocks[0], stream));
    ok!(s.cuMemFreeAsync(blocks[1], stream));
    s.gate(1, stream);
    ok!(s.cuMemFreeAsync(blocks[2], stream));
    ok!(s.cuMemPoolTrimTo(pool, 3 * CHUNK as usize));
    assert_eq!(s.get(pool, RESERVED), 3 * CHUNK);
    ok!(s.cuMemPoolTrimTo(pool, 0));
    assert_eq!(s.get(pool, RESERVED), 2 * CHUNK, "one is in use, one free is not done");
    s.sim.gate_open(1);
    ok!(s.cuStreamSynchronize(stream));
    ok!(s.cuMemPoolTrimTo(pool, 0));
    assert_eq!(s.get(pool, RESERVED), CHUNK);
    ok!(s.cuMemFreeAsync(blocks[3], stream));
}

#[test]
fn high_water_marks_begin_anew_when_they_are_reset() {
    let s = session(&[]);
    let (pool, stream) = (s.default_pool(0), s.stream());
    let block = s.take(CHUNK as usize + 1, stream);
    let used = CHUNK + 512;
    let four = || [RESERVED, RESERVED_HIGH, USED, USED_HIGH].map(|a| s.get(pool, a));
    assert_eq!(four(), [2 * CHUNK, 2 * CHUNK, used, used]);
    ok!(s.cuMemFreeAsync(block, stream));
    ok!(s.cuStreamSynchronize(stream));
    assert_eq!(four(), [0, 2 * CHUNK, 0, used]);
    let small = s.take(1, stream);
    s.set(pool, RESERVED_HIGH, 0);
    s.set(pool, USED_HIGH, 0);
    assert_eq!(four(), [CHUNK, CHUNK, 512, 512]);
    ok!(s.cuMemFreeAsync(small, stream));
}

#[test]
fn a_pool_takes_less_where_there_is_less_and_then_fails_without_loss() {
    let s = session(&[("memory", "50MiB"), ("checker", "log")]);
    let (pool, stream) = (s.default_pool(0), s.stream());
    let big = s.take(33 * MIB, stream);
    assert_eq!(s.get(pool, RESERVED), 34 * MIB as u64, "64 MiB are not there");
    let mut address = 0;
    assert_eq!(s.cuMemAllocAsync(&mut address, 17 * MIB, stream), OUT_OF_MEMORY);
    assert_eq!(s.get(pool, USED), 33 * MIB as u64);
    let rest = s.take(16 * MIB, stream);
    assert_eq!(s.free_bytes(), 0);
    ok!(s.cuMemFreeAsync(big, stream));
    ok!(s.cuMemFreeAsync(rest, stream));
    let all = s.take(50 * MIB, stream);
    assert_eq!(s.get(pool, RESERVED), 50 * MIB as u64, "free chunks make room for a larger one");
    ok!(s.cuMemFreeAsync(all, stream));
    let other = s.pool(0, 4 * MIB);
    assert_eq!(s.cuMemAllocFromPoolAsync(&mut address, 5 * MIB, other, stream), OUT_OF_MEMORY);
    ok!(s.cuStreamSynchronize(stream));
    let four = s.take_from(other, 4 * MIB, stream);
    assert_eq!(s.cuMemAllocFromPoolAsync(&mut address, 1, other, stream), OUT_OF_MEMORY);
    ok!(s.cuMemFreeAsync(four, stream));
    assert_eq!(s.sim.report_count(), 0);
}

#[test]
fn the_plain_free_waits_for_nothing_and_is_judged() {
    for waited in [true, false] {
        let s = session(&[("checker", "log"), ("schedule", "lazy")]);
        let pool = s.default_pool(0);
        let (stream, other) = (s.stream(), s.stream());
        let block = s.take(4096, stream);
        ok!(s.cuMemsetD8Async(block, 1, 4096, stream));
        if waited {
            ok!(s.cuStreamSynchronize(stream));
        }
        let before = s.sim.driver_time_ns();
        s.launch("simcuda_spin", &[9_000_000], other);
        ok!(s.cuMemFree_v2(block));
        assert!(s.sim.driver_time_ns() - before < 9_000_000, "no wait");
        assert_eq!(s.get(pool, USED), 0);
        let reports = s.sim.reports();
        assert_eq!(reports.len(), usize::from(!waited), "{reports:?}");
        assert!(waited || reports[0].contains("taken away"), "{reports:?}");
        assert_eq!(s.take(4096, other), block, "and it is anybody's");
        assert_eq!(s.sim.report_count(), reports.len() as u64);
    }
}

#[test]
fn plain_memory_may_be_freed_in_stream_order() {
    let s = session(&[("checker", "log"), ("schedule", "lazy")]);
    let (stream, free) = (s.stream(), s.free_bytes());
    let block = s.alloc(MIB);
    ok!(s.cuMemsetD8Async(block, 1, MIB, stream));
    ok!(s.cuMemFreeAsync(block, stream));
    assert_eq!(s.sim.report_count(), 0);
    assert_eq!(s.cuMemFree_v2(block), INVALID_VALUE, "it is no allocation any more");
    ok!(s.cuStreamSynchronize(stream));
    assert_eq!(s.free_bytes(), free);
    ok!(s.cuMemsetD8Async(block, 1, MIB, stream));
    assert!(s.sim.reports()[0].contains("use after free"), "{:?}", s.sim.reports());
}

#[test]
fn an_address_of_a_pool_says_where_it_belongs() {
    let s = session(&[]);
    let pool = s.pool(0, 0);
    let (_, block) = (s.take_from(pool, 100, 0), s.take_from(pool, 1000, 0));
    let attribute = |which: i32, at: u64| {
        let mut value = 0u64;
        let code = s.cuPointerGetAttribute((&raw mut value).cast(), which, at);
        (code, value)
    };
    assert_eq!(attribute(17, block + 999), (0, pool));
    assert_eq!(attribute(11, block + 999), (0, block));
    assert_eq!(attribute(12, block + 999), (0, 1000));
    assert_eq!(attribute(2, block), (0, 2));
    assert_eq!(attribute(9, block), (0, 0));
    assert_eq!(attribute(8, block), (0, 0));
    assert_eq!(attribute(11, block + 1000).0, INVALID_VALUE, "beyond it");
    let (mut base, mut bytes) = (0, 0);
    ok!(s.cuMemGetAddressRange_v2(&mut base, &mut bytes, block + 5));
    assert_eq!((base, bytes), (block, 1000));
    let id = attribute(7, block).1;
    ok!(s.cuMemFreeAsync(block, 0));
    assert_eq!(attribute(17, block).0, INVALID_VALUE, "freed");
    assert_eq!(s.take_from(pool, 1000, 0), block);
    assert_ne!(attribute(7, block).1, id, "a new allocation has a new id");
    let plain = s.alloc(64);
    assert_eq!(attribute(17, plain), (0, 0));
}

#[test]
fn another_device_needs_access_to_a_pool() {
    let s = session(&[("devices", "2"), ("checker", "log")]);
    let pool = s.default_pool(0);
    let access = |device: i32| {
        let mut flags = 9;
        ok!(s.cuMemPoolGetAccess(&mut flags, pool, &[1, device]));
        flags
    };
    assert_eq!((access(0), access(1)), (3, 0));
    assert_eq!(s.cuMemPoolSetAccess(pool, &[1, 0, 0], 1), INVALID_VALUE, "its own device's");
    assert_eq!(s.cuMemPoolSetAccess(pool, &[1, 5, 3], 1), INVALID_DEVICE);
    let block = s.take(4096, 0);
    ok!(s.cuCtxSynchronize());
    ok!(s.cuMemPoolSetAccess(pool, &[1, 1, 3], 1));
    assert_eq!(access(1), 3);
    s.use_device(1);
    s.launch("simcuda_fill", &[block, 64, 1], s.stream());
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.sim.report_count(), 0);
    ok!(s.cuMemPoolSetAccess(pool, &[1, 1, 0], 1));
    s.launch("simcuda_fill", &[block, 64, 1], s.stream());
    assert_eq!(s.sim.report_count(), 1, "{:?}", s.sim.reports());
    assert_eq!(s.cuCtxSynchronize(), ILLEGAL_ADDRESS);
}

#[test]
fn a_stream_may_allocate_from_another_devices_pool() {
    let s = session(&[("devices", "2"), ("checker", "log")]);
    let pool = s.default_pool(1);
    let stream = s.stream();
    let block = s.take_from(pool, 4096, stream);
    assert_eq!((s.get(pool, USED), s.get(s.default_pool(0), USED)), (4096, 0));
    ok!(s.cuMemFreeAsync(block, stream));
    assert_eq!(s.sim.report_count(), 0);
}

#[test]
fn a_destroyed_pool_lives_until_its_last_block_is_freed() {
    let s = session(&[("checker", "log")]);
    let (free, pools) = (s.free_bytes(), s.sim.objects("pools"));
    let (pool, stream) = (s.pool(0, 0), s.stream());
    let blocks = [s.take_from(pool, 4096, stream), s.take_from(pool, 4096, stream)];
    ok!(s.cuMemPoolDestroy(pool));
    let mut address = 0;
    assert_eq!(s.cuMemAllocFromPoolAsync(&mut address, 64, pool, stream), INVALID_VALUE);
    ok!(s.cuMemsetD8Async(blocks[0], 1, 4096, stream));
    ok!(s.cuMemFreeAsync(blocks[0], stream));
    ok!(s.cuStreamSynchronize(stream));
    assert_eq!(free - s.free_bytes(), CHUNK, "a block is still there");
    s.gate(1, stream);
    ok!(s.cuMemFreeAsync(blocks[1], stream));
    assert_eq!(free - s.free_bytes(), CHUNK, "its free is not done");
    s.sim.gate_open(1);
    ok!(s.cuStreamSynchronize(stream));
    assert_eq!((s.free_bytes(), s.sim.objects("pools")), (free, pools));
    assert_eq!(s.sim.report_count(), 0);
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ (z >> 27)
}

/// Streams that allocate, write a pattern, sometimes hand a block to another stream in order, check
/// the pattern and free; never a use that is not ordered. Whatever memory the pool recycles, the
/// pattern holds and the checker has nothing to say.
fn random_program(s: &Session, seed: u64, policies: u64) {
    let pool = s.default_pool(0);
    for bit in 0..3 {
        s.set(pool, FOLLOW + bit, policies >> bit & 1);
    }
    s.set(pool, THRESHOLD, [0, CHUNK, u64::MAX][(seed % 3) as usize]);
    let streams = [s.stream(), s.stream(), s.blocking_stream(), 0];
    let counter = s.alloc(8);
    ok!(s.cuMemsetD8_v2(counter, 0, 8));
    let [write, check] = ["cuddy_pattern_write", "cuddy_pattern_check"].map(|n| s.function(n));
    let mut state = seed;
    let mut blocks: Vec<(u64, usize, usize)> = Vec::new();
    for step in 0..300u64 {
        let random = split_mix(&mut state);
        let stream = (random % 4) as usize;
        let bytes = (1usize << (random >> 8 & 15)) * 700 + (random >> 16 & 511) as usize;
        if blocks.len() < 12 && random >> 32 & 1 == 0 {
            let block = s.take(bytes, streams[stream]);
            let values = [block, bytes as u64, 65536, block ^ 5];
            ok!(s.try_launch(write, &values, streams[stream]));
            blocks.push((block, bytes, stream));
        } else if !blocks.is_empty() {
            let (block, bytes, owner) = blocks.swap_remove((random >> 3) as usize % blocks.len());
            s.order(streams[owner], streams[stream]);
            let values = [block, bytes as u64, 65536, block ^ 5, counter];
            ok!(s.try_launch(check, &values, streams[stream]));
            ok!(s.cuMemFreeAsync(block, streams[stream]));
        }
        if step % 97 == 96 {
            ok!(s.cuStreamSynchronize(streams[stream]));
        }
    }
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.peek(counter, 8), [0; 8], "a pattern was overwritten");
}

#[test]
fn recycled_memory_is_never_anybody_elses() {
    for schedule in SCHEDULES {
        for seed in 0..8 {
            let s = session(&[("checker", "log"), ("schedule", schedule), ("memory", "512MiB")]);
            random_program(&s, seed, seed);
            assert_eq!(s.sim.reports(), Vec::<String>::new(), "{schedule} {seed}");
            assert!(s.sim.accesses_checked() > 300);
        }
    }
}

#[test]
fn the_pools_order_is_the_same_with_the_checker_off() {
    for schedule in ["lazy", "lag:3"] {
        let trace = |checker: &str| {
            let s = session(&[("checker", checker), ("schedule", schedule)]);
            let streams = [s.stream(), s.stream(), s.blocking_stream(), 0];
            let mut state = 5;
            let mut live = Vec::new();
            let mut addresses = Vec::new();
            let base = s.take(1, 0);
            for _ in 0..200 {
                let random = split_mix(&mut state);
                let stream = streams[(random % 4) as usize];
                match random >> 8 & 3 {
                    0 | 1 => {
                        live.push(s.take(1 << (random >> 16 & 21), stream));
                        addresses.push(live[live.len() - 1].wrapping_sub(base));
                    }
                    2 if !live.is_empty() => {
                        ok!(s
                            .cuMemFreeAsync(live.swap_remove(random as usize % live.len()), stream))
                    }
                    _ => s.order(stream, streams[(random >> 24 & 3) as usize]),
                }
            }
            addresses
        };
        assert_eq!(trace("off"), trace("log"), "{schedule}");
    }
}
