//! Device memory, host memory, and what is known of an address.

mod common;
use common::{MIB, PAGE, Session, code::*, session};
use std::ffi::c_void;
use std::ptr::null_mut;

fn info(s: &Session) -> (usize, usize) {
    let (mut free, mut total) = (0, 0);
    ok!(s.cuMemGetInfo_v2(&mut free, &mut total));
    (free, total)
}

#[test]
fn what_is_free_is_the_total_less_the_others_less_what_is_used() {
    let s = session(&[("memory", "64MiB")]);
    assert_eq!(info(&s), (64 * MIB, 64 * MIB));
    let small = s.alloc(1);
    assert_eq!(info(&s).0, 64 * MIB - 512, "sizes round up to 512");
    let large = s.alloc(40 * MIB);
    s.sim.others_use(0, 20 << 20).expect("a device");
    assert_eq!(info(&s), (4 * MIB - 512, 64 * MIB));
    let mut address = 7;
    assert_eq!(s.cuMemAlloc_v2(&mut address, 4 * MIB), OUT_OF_MEMORY);
    assert_eq!(address, 7, "a failed call leaves its result alone");
    let exact = s.alloc(4 * MIB - 512);
    assert_eq!(info(&s).0, 0);
    assert_eq!(s.cuMemAlloc_v2(&mut address, 1), OUT_OF_MEMORY);
    let mut handle = 0;
    assert_eq!(s.cuMemCreate(&mut handle, PAGE, &common::properties(0, 0), 0), OUT_OF_MEMORY);
    for address in [small, large, exact] {
        ok!(s.cuMemFree_v2(address));
    }
    assert_eq!(s.sim.used(0), 0);
    assert_eq!(s.sim.used_peak(0), 44 << 20, "exactly the most that was held");
    s.sim.others_use(0, 1 << 40).expect("a device");
    assert_eq!(info(&s).0, 0, "never below zero");
    assert_eq!(s.cuMemAlloc_v2(&mut address, usize::MAX), OUT_OF_MEMORY);
}

#[test]
fn requests_of_a_size_are_refused_when_a_test_says_so() {
    let s = session(&[]);
    s.sim.oom_above(0, 32 << 20).expect("a device");
    let mut address = 0;
    assert_eq!(s.cuMemAlloc_v2(&mut address, 32 * MIB), OUT_OF_MEMORY);
    let kept = s.alloc(32 * MIB - 512);
    assert_eq!(s.cuMemCreate(&mut address, 32 * MIB, &common::properties(0, 0), 0), OUT_OF_MEMORY);
    s.sim.oom_above(0, 0).expect("a device");
    s.alloc(32 * MIB);
    ok!(s.cuMemFree_v2(kept));
    assert!(s.sim.oom_above(5, 1).is_err());
}

#[test]
fn wrong_arguments_of_alloc_and_free_change_nothing() {
    let s = session(&[]);
    let mut address = 0;
    assert_eq!(s.cuMemAlloc_v2(&mut address, 0), INVALID_VALUE);
    assert_eq!(s.cuMemAlloc_v2(null_mut(), 512), INVALID_VALUE);
    let block = s.alloc(4096);
    for wrong in [block + 1, block + 512, block + 4096, 1, 0x1000, u64::MAX] {
        assert_eq!(s.cuMemFree_v2(wrong), INVALID_VALUE, "{wrong:#x}");
    }
    ok!(s.cuMemFree_v2(0));
    assert_eq!(s.sim.objects("allocations"), 1);
    ok!(s.cuMemFree_v2(block));
    assert_eq!(s.cuMemFree_v2(block), INVALID_VALUE, "twice");
}

#[test]
fn addresses_are_aligned_apart_and_come_back() {
    let s = session(&[]);
    let blocks: Vec<_> =
        [1, 511, 512, 513, MIB, PAGE, 3 * PAGE + 1].map(|n| (s.alloc(n), n)).into();
    let mut ends: Vec<_> = blocks.iter().map(|(a, n)| (*a, a + *n as u64)).collect();
    ends.sort();
    assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0), "apart");
    assert!(blocks.iter().all(|(a, n)| a % if *n >= PAGE { PAGE as u64 } else { 512 } == 0));
    for (address, n) in &blocks {
        let (mut base, mut bytes) = (0, 0);
        ok!(s.cuMemGetAddressRange_v2(&mut base, &mut bytes, address + *n as u64 - 1));
        assert_eq!((base, bytes), (*address, *n), "the size that was asked for");
    }
    let middle = blocks[5].0;
    ok!(s.cuMemFree_v2(middle));
    assert_eq!(s.cuMemGetAddressRange_v2(null_mut(), null_mut(), middle), NOT_FOUND);
    assert_eq!(s.alloc(PAGE), middle, "the smallest hole that fits");
}

#[test]
fn memory_that_comes_back_is_zero_and_a_huge_device_costs_nothing() {
    let s = session(&[("memory", "1TiB")]);
    let block = s.alloc(64 * MIB);
    ok!(s.cuMemsetD8_v2(block, 0xee, 64 * MIB));
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.peek(block + 12345, 2), [0xee, 0xee]);
    ok!(s.cuMemFree_v2(block));
    let whole = s.alloc((1 << 40) - 512);
    assert_eq!(s.peek(whole, 1), [0]);
    let last = whole + (1 << 40) - 512 - 1;
    ok!(s.cuMemsetD8_v2(last, 5, 1));
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.peek(last, 1), [5]);
    assert!(s.sim.peek(last + 1, &mut [0]).is_err(), "nothing lies behind the end");
}

#[test]
fn a_pitch_pads_rows() {
    let s = session(&[]);
    let (mut address, mut pitch) = (0, 0);
    ok!(s.cuMemAllocPitch_v2(&mut address, &mut pitch, 1000, 10, 4));
    assert!(pitch >= 1000 && pitch % 512 == 0);
    assert_eq!(s.sim.used(0), (pitch * 10) as u64);
    assert_eq!(s.cuMemAllocPitch_v2(&mut address, &mut pitch, 1000, 10, 5), INVALID_VALUE);
    assert_eq!(s.cuMemAllocPitch_v2(&mut address, &mut pitch, usize::MAX, 10, 4), INVALID_VALUE);
    ok!(s.cuMemsetD2D8Async(address, pitch, 7, 3, 2, 0));
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.peek(address, 5), [7, 7, 7, 0, 0]);
    assert_eq!(s.peek(address + pitch as u64, 4), [7, 7, 7, 0]);
    assert_eq!(s.peek(address + 2 * pitch as u64, 1), [0]);
}

#[test]
fn host_memory_is_shared_with_the_device() {
    let s = session(&[]);
    let (mut device, mut flags) = (0, 0);
    let host = s.pinned(4096);
    ok!(s.cuMemHostGetDevicePointer_v2(&mut device, host, 0));
    assert_eq!(device, host);
    ok!(s.cuMemHostGetFlags(&mut flags, host));
    assert_eq!(flags & 2, 2);
    // SAFETY: 4096 bytes of page-locked memory of this test; no work uses them yet.
    unsafe { (host as *mut u8).write_bytes(3, 4096) };
    let block = s.alloc(4096);
    ok!(s.cuMemcpyAsync(block, host, 4096, 0));
    ok!(s.cuMemsetD8Async(host, 9, 10, 0));
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.peek(block, 2), [3, 3]);
    // SAFETY: as above; all work is done.
    let seen = unsafe { std::slice::from_raw_parts(host as *const u8, 11).to_vec() };
    assert_eq!(seen, [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 3]);
    assert_eq!(s.sim.used(0), 4096, "host memory is not the device's");
    assert_eq!(s.cuMemFreeHost(host + 8), INVALID_VALUE);
    assert_eq!(s.cuMemFree_v2(host), INVALID_VALUE);
    ok!(s.cuMemFreeHost(host));
    assert_eq!(s.cuMemFreeHost(host), INVALID_VALUE);
    assert_eq!(s.cuMemHostAlloc(&mut device, 0, 0), INVALID_VALUE);
    assert_eq!(s.cuMemHostAlloc(&mut device, 1, 8), INVALID_VALUE);
}

#[test]
fn a_program_registers_its_own_memory() {
    let s = session(&[]);
    let buffer = vec![1u8; 8192];
    let at = buffer.as_ptr() as u64;
    ok!(s.cuMemHostRegister_v2(at, 8192, 0));
    for (from, bytes) in [(at, 8192), (at + 8191, 100), (at - 1, 2), (at + 10, 10)] {
        assert_eq!(s.cuMemHostRegister_v2(from, bytes, 0), 712, "{bytes} bytes");
    }
    let mut flags = 0;
    assert_eq!(s.cuMemHostGetFlags(&mut flags, at), INVALID_VALUE, "only of what was allocated");
    let mut device = 0;
    ok!(s.cuMemHostGetDevicePointer_v2(&mut device, at + 100, 0));
    assert_eq!(device, at + 100);
    let block = s.alloc(8192);
    ok!(s.cuMemcpyAsync(block, at, 8192, 0));
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.peek(block + 8191, 1), [1]);
    assert_eq!(s.cuMemFreeHost(at), INVALID_VALUE);
    ok!(s.cuMemHostUnregister(at));
    assert_eq!(s.cuMemHostUnregister(at), 713);
    assert_eq!(s.cuMemHostRegister_v2(block, 10, 0), INVALID_VALUE, "a device's");
    assert_eq!(s.cuMemHostRegister_v2(0, 10, 0), INVALID_VALUE);
    ok!(s.cuMemHostRegister_v2(at, 8192, 8));
    ok!(s.cuMemsetD8Async(at, 1, 1, 0));
    assert_eq!(s.cuCtxSynchronize(), ILLEGAL_ADDRESS, "read-only for the device");
}

fn attribute<T: Default>(s: &Session, which: i32, address: u64) -> Result<T, i32> {
    let mut value = T::default();
    match s.cuPointerGetAttribute((&raw mut value).cast(), which, address) {
        0 => Ok(value),
        code => Err(code),
    }
}

#[test]
fn pointers_have_attributes() {
    let s = session(&[("devices", "2")]);
    let mut context = 0;
    ok!(s.cuCtxGetCurrent(&mut context));
    let (block, host) = (s.alloc(1000), s.pinned(64));
    assert_eq!(attribute(&s, 1, block + 999), Ok(context));
    assert_eq!(attribute(&s, 2, block), Ok(2u32));
    assert_eq!(attribute(&s, 2, host + 1), Ok(1u32));
    assert_eq!(attribute(&s, 3, block + 5), Ok(block + 5));
    assert_eq!(attribute::<u64>(&s, 4, block), Err(INVALID_VALUE));
    assert_eq!(attribute(&s, 4, host + 5), Ok(host + 5));
    assert_eq!(attribute(&s, 9, block), Ok(0u32));
    assert_eq!(attribute(&s, 11, block + 5), Ok(block));
    assert_eq!(attribute(&s, 12, block + 5), Ok(1000u64));
    assert_eq!(attribute(&s, 13, block), Ok(1u32));
    assert_eq!(attribute(&s, 8, block), Ok(0u32));
    assert_eq!(attribute::<u32>(&s, 2, block + 1000), Err(INVALID_VALUE), "past the end");
    assert_eq!(attribute::<u32>(&s, 99, block), Err(INVALID_VALUE));
    let buffer: u64 = attribute(&s, 7, block).expect("an id");
    ok!(s.cuMemFree_v2(block));
    let again = s.alloc(1000);
    assert_eq!(again, block, "the same address");
    assert_ne!(attribute(&s, 7, again), Ok(buffer), "another buffer");
    assert_eq!(attribute(&s, 6, again), Ok(0u32));
    ok!(s.cuPointerSetAttribute(&1, 6, again));
    assert_eq!(attribute(&s, 6, again), Ok(1u32));
    assert_eq!(s.cuPointerSetAttribute(&1, 7, again), INVALID_VALUE);
}

#[test]
fn many_attributes_at_once_and_of_a_stranger() {
    let s = session(&[]);
    let block = s.alloc(512);
    let ask = |address| {
        let (mut kind, mut device, mut context) = (9u32, 9i32, 9u64);
        let places: [*mut c_void; 3] =
            [(&raw mut kind).cast(), (&raw mut device).cast(), (&raw mut context).cast()];
        let code = s.cuPointerGetAttributes(3, [2, 9, 1].as_ptr(), places.as_ptr(), address);
        (code, kind, device, context != 0)
    };
    assert_eq!(ask(block), (0, 2, 0, true));
    let stranger = Box::new(5u8);
    assert_eq!(ask(&raw const *stranger as u64), (0, 0, -2, false));
}

#[test]
fn copies_between_devices_need_no_peer_access_but_kernels_do() {
    let s = session(&[("devices", "2")]);
    let first = s.alloc(4096);
    let mut zero = 0;
    ok!(s.cuCtxGetCurrent(&mut zero));
    let one = s.use_device(1);
    let second = s.alloc(4096);
    ok!(s.cuMemsetD8Async(second, 6, 4096, 0));
    ok!(s.cuMemcpyPeerAsync(first, zero, second, one, 4096, 0));
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.peek(first, 1), [6]);
    let mut can = 0;
    ok!(s.cuDeviceCanAccessPeer(&mut can, 1, 0));
    assert_eq!(can, 1);
    ok!(s.cuDeviceCanAccessPeer(&mut can, 1, 1));
    assert_eq!(can, 0);
    assert_eq!(s.cuCtxDisablePeerAccess(zero), 705);
    ok!(s.cuCtxEnablePeerAccess(zero, 0));
    assert_eq!(s.cuCtxEnablePeerAccess(zero, 0), 704);
    assert_eq!(s.cuCtxEnablePeerAccess(one, 0), 217);
    s.launch("simcuda_fill", &[first, 4096, 7], 0);
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.peek(first, 1), [7]);
    ok!(s.cuCtxDisablePeerAccess(zero));
    s.sim.checker("log").expect("a mode");
    s.launch("simcuda_fill", &[first, 4096, 8], 0);
    assert_eq!(s.cuCtxSynchronize(), ILLEGAL_ADDRESS);
    assert_eq!(s.peek(first, 1), [7]);
    let reports = s.sim.reports();
    assert!(reports.len() == 1 && reports[0].contains("another context"), "{reports:?}");
}

/// The last finding's text.
fn said(s: &Session) -> String {
    s.sim.reports().pop().expect("a finding")
}

#[test]
fn findings_name_the_allocation_the_calls_and_the_operations() {
    let s = session(&[("checker", "log")]);
    let (a, b) = (s.stream(), s.stream());
    let block = s.alloc(1000);
    let made = format!("cuMemAlloc(1000) = {block:#x}, call ");
    ok!(s.cuMemsetD8Async(block, 1, 1000, a));
    ok!(s.cuMemsetD8Async(block, 2, 1000, b));
    let text = said(&s);
    for part in [&*made, "(operation 1, stream ", "(operation 2, stream ", "host thread "] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // Illegal uses: their operation is the third and the fourth of the program.
    let s = {
        drop(s);
        session(&[("checker", "log")])
    };
    let block = s.alloc(1000);
    let made = format!("cuMemAlloc(1000) = {block:#x}, call ");
    ok!(s.cuMemsetD8Async(block, 1, 1000, 0));
    ok!(s.cuMemsetD8Async(block, 1, 2000, 0));
    let text = said(&s);
    assert!(text.contains("operation 2, ") && text.contains(&made), "beyond the end: {text}");
    let s = {
        drop(s);
        session(&[("checker", "log")])
    };
    let block = s.alloc(1000);
    ok!(s.cuMemFree_v2(block));
    ok!(s.cuMemsetD8Async(block, 1, 10, 0));
    let text = said(&s);
    let freed = format!("{block:#x}..{:#x} was taken away by cuMemFree (call ", block + 1000);
    let was = format!("it was cuMemAlloc(1000) = {block:#x}, call ");
    assert!(text.contains(&freed) && text.contains(&was), "after its free: {text}");
    let s = {
        drop(s);
        session(&[("checker", "log")])
    };
    let (stream, mut block) = (s.stream(), 0);
    ok!(s.cuMemAllocAsync(&mut block, 4096, stream));
    ok!(s.cuMemsetD8Async(block, 1, 4096, s.stream()));
    let text = said(&s);
    let mut id = 0;
    ok!(s.cuStreamGetId(stream, &mut id));
    let (begin, end) = (
        format!("cuMemAllocAsync(4096) = {block:#x}, call "),
        format!(", stream {id}; in 33554432"),
    );
    assert!(text.contains(&begin) && text.contains(&end), "a pool's block: {text}");
    ok!(s.cuMemFreeAsync(block, stream));
    ok!(s.cuMemsetD8Async(block, 1, 8, stream));
    let text = said(&s);
    assert!(
        text.contains("taken away by cuMemFreeAsync (call ") && text.contains(&begin),
        "{text}"
    );
}
