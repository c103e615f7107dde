//! Managed memory: used by host and devices at one address; advice and prefetches in the books.

mod common;
use common::{Session, code::*, session};

const BYTES: usize = 10 * 4096;

impl Session {
    fn managed(&self, bytes: usize) -> u64 {
        let mut address = 0;
        ok!(self.cuMemAllocManaged(&mut address, bytes, 1));
        address
    }

    fn of_range(&self, attribute: i32, address: u64, bytes: usize) -> i32 {
        let mut value = 99;
        ok!(self.cuMemRangeGetAttribute(&mut value, 4, attribute, address, bytes));
        value
    }
}

/// `CUmemLocation` by value.
fn location(kind: i32, id: i32) -> u64 {
    kind as u32 as u64 | (id as u32 as u64) << 32
}

#[test]
fn host_and_devices_use_one_address() {
    let s = session(&[("devices", "2"), ("checker", "log")]);
    let block = s.managed(BYTES);
    // SAFETY: managed memory is the host's too; no work of a device is queued.
    let bytes = unsafe { std::slice::from_raw_parts_mut(block as *mut u8, BYTES) };
    assert!(bytes.iter().all(|b| *b == 0));
    bytes[7] = 42;
    s.launch("simcuda_copy", &[block + 8, block + 7, 1], 0);
    ok!(s.cuCtxSynchronize());
    assert_eq!(bytes[8], 42);
    s.use_device(1);
    s.launch("simcuda_fill", &[block, 4, 9], 0);
    ok!(s.cuCtxSynchronize());
    assert_eq!((bytes[3], bytes[4]), (9, 0));
    assert_eq!(s.sim.report_count(), 0, "{:?}", s.sim.reports());
    let other = s.stream();
    s.launch("simcuda_fill", &[block, 4, 1], other);
    s.launch("simcuda_fill", &[block, 4, 2], s.stream());
    assert_eq!(s.sim.report_count(), 1, "its uses are judged as any");
}

#[test]
fn it_says_what_it_is_and_is_freed() {
    let s = session(&[("checker", "log")]);
    let block = s.managed(1000);
    let attribute = |which: i32| {
        let mut value = 0u64;
        (s.cuPointerGetAttribute((&raw mut value).cast(), which, block + 999), value)
    };
    assert_eq!((attribute(8), attribute(11), attribute(12)), ((0, 1), (0, block), (0, 1000)));
    assert_eq!((attribute(3), attribute(4)), ((0, block + 999), (0, block + 999)));
    assert_eq!(s.cuMemFreeAsync(block, 0), INVALID_VALUE);
    let mut address = 0;
    assert_eq!(s.cuMemAllocManaged(&mut address, 0, 1), INVALID_VALUE);
    assert_eq!(s.cuMemAllocManaged(&mut address, 8, 4), INVALID_VALUE);
    assert_eq!(s.cuMemAllocManaged(std::ptr::null_mut(), 8, 1), INVALID_VALUE);
    ok!(s.cuMemFree_v2(block));
    assert_eq!(s.sim.objects("managed_allocations"), 0);
    s.launch("simcuda_fill", &[block, 4, 1], 0);
    assert!(s.sim.reports()[0].contains("use after free"), "{:?}", s.sim.reports());
}

#[test]
fn advice_holds_for_the_pages_it_was_given_for() {
    let s = session(&[("devices", "3")]);
    let block = s.managed(BYTES);
    let (middle, page) = (block + 3 * 4096, 4096);
    ok!(s.cuMemAdvise(middle + 5, 2 * page - 10, 1, 0));
    for (at, bytes, all) in [(middle, 2 * page, 1), (middle - 1, 2, 0), (middle + 8191, 2, 0)] {
        assert_eq!(s.of_range(1, at, bytes), all, "{at:#x}");
    }
    assert_eq!(s.of_range(1, block, BYTES), 0);
    ok!(s.cuMemAdvise(middle, page, 2, 0));
    assert_eq!((s.of_range(1, middle, page), s.of_range(1, middle + 4096, page)), (0, 1));

    assert_eq!(s.of_range(2, block, BYTES), -2, "no device");
    ok!(s.cuMemAdvise(block, BYTES, 3, 1));
    assert_eq!(s.of_range(2, block, BYTES), 1);
    ok!(s.cuMemAdvise_v2(middle, page, 3, location(3, 2)));
    assert_eq!((s.of_range(2, middle, page), s.of_range(5, middle, page)), (-1, 3));
    assert_eq!((s.of_range(6, middle, page), s.of_range(2, block, BYTES)), (2, -2));
    ok!(s.cuMemAdvise(block, BYTES, 4, 77));
    assert_eq!(s.of_range(2, middle, page), -2);

    for device in [2, -1, 0] {
        ok!(s.cuMemAdvise(block, BYTES, 5, device));
    }
    ok!(s.cuMemAdvise(middle, page, 6, 0));
    let mut devices = [0; 4];
    ok!(s.cuMemRangeGetAttribute(devices.as_mut_ptr(), 16, 3, block, BYTES));
    assert_eq!(devices, [-1, 2, -2, -2]);

    let free = s.alloc(64);
    for (at, bytes, advice, device) in [
        (free, 64, 1, 0),
        (block, BYTES + 1, 1, 0),
        (block, 0, 1, 0),
        (block, BYTES, 0, 0),
        (block, BYTES, 7, 0),
    ] {
        assert_eq!(s.cuMemAdvise(at, bytes, advice, device), INVALID_VALUE, "{advice} {bytes}");
    }
    assert_eq!(s.cuMemAdvise(block, BYTES, 3, 5), INVALID_DEVICE);
    assert_eq!(s.cuMemAdvise_v2(block, BYTES, 3, location(9, 0)), INVALID_VALUE);
}

#[test]
fn a_prefetch_is_work_of_its_stream() {
    let s = session(&[("devices", "2")]);
    let (block, stream) = (s.managed(BYTES), s.stream());
    assert_eq!(s.of_range(4, block, BYTES), -2);
    s.gate(1, stream);
    ok!(s.cuMemPrefetchAsync(block, BYTES, 1, stream));
    assert_eq!(s.cuStreamQuery(stream), NOT_READY);
    s.sim.gate_open(1);
    ok!(s.cuStreamSynchronize(stream));
    assert_eq!(s.of_range(4, block, BYTES), 1);
    ok!(s.cuMemPrefetchAsync_v2(block, 4096, location(2, 0), 0, stream));
    assert_eq!((s.of_range(4, block, 4096), s.of_range(7, block, 4096)), (-1, 2));
    assert_eq!(s.of_range(4, block, BYTES), -2, "not all pages");
    assert_eq!(s.cuMemPrefetchAsync_v2(block, 4096, location(2, 0), 1, stream), INVALID_VALUE);
    assert_eq!(s.cuMemPrefetchAsync(block, BYTES, 2, stream), INVALID_DEVICE);
    assert_eq!(s.cuMemPrefetchAsync(s.alloc(64), 64, 0, stream), INVALID_VALUE);
    let (mut a, mut b) = (0, 0);
    let all = [&raw mut a, &raw mut b];
    ok!(s.cuMemRangeGetAttributes(all.as_ptr(), [4, 4].as_ptr(), [4, 1].as_ptr(), 2, block, 4096));
    assert_eq!((a, b), (-1, 0));
    assert_eq!(s.cuMemRangeGetAttribute(&mut a, 8, 4, block, 4096), INVALID_VALUE, "no list");
    assert_eq!(s.cuMemRangeGetAttribute(&mut a, 4, 99, block, 4096), INVALID_VALUE);
}

#[test]
fn memory_is_attached_whole_and_in_stream_order() {
    let s = session(&[]);
    let (block, stream) = (s.managed(BYTES), s.stream());
    ok!(s.cuStreamAttachMemAsync(stream, block, 0, 4));
    ok!(s.cuStreamAttachMemAsync(stream, block, BYTES, 1));
    assert_eq!(s.cuStreamAttachMemAsync(0, block, 0, 4), INVALID_VALUE, "one stream, and not null");
    for (at, bytes, flags) in
        [(block + 4096, 0, 4), (block, 4096, 4), (block, 0, 3), (s.alloc(64), 0, 4)]
    {
        assert_eq!(s.cuStreamAttachMemAsync(stream, at, bytes, flags), INVALID_VALUE);
    }
    s.gate(1, stream);
    ok!(s.cuStreamAttachMemAsync(stream, block, 0, 2));
    assert_eq!(s.cuStreamQuery(stream), NOT_READY);
    s.sim.gate_open(1);
    ok!(s.cuStreamSynchronize(stream));
}

#[test]
fn it_goes_with_its_context() {
    let s = session(&[]);
    let mut context = 0;
    ok!(s.cuCtxCreate_v2(&mut context, 0, 0));
    let block = s.managed(BYTES);
    ok!(s.cuMemAdvise(block + 4096, 4096, 1, 0));
    assert_eq!(s.sim.objects("managed_stretches"), 3);
    ok!(s.cuCtxDestroy_v2(context));
    assert_eq!(s.sim.objects("managed_allocations"), 0);
    assert_eq!(s.sim.objects("managed_stretches"), 0, "what was advised is forgotten");
    assert_eq!(s.sim.objects("objects"), 0);
}
