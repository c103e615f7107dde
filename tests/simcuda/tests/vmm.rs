//! Virtual memory management.

mod common;
use common::{PAGE, Session, code::*, properties, session};
use std::ptr::null;

const SPAN: u64 = PAGE as u64;

#[test]
fn data_moves_with_its_page() {
    let s = session(&[]);
    let range = s.reserve(4 * PAGE);
    let (a, b) = (s.create(PAGE, 0), s.create(PAGE, 0));
    s.map(range, PAGE, a);
    s.map(range + SPAN, PAGE, b);
    ok!(s.cuMemsetD8Async(range, 0xaa, PAGE, 0));
    ok!(s.cuMemsetD8Async(range + SPAN, 0xbb, PAGE, 0));
    ok!(s.cuCtxSynchronize());
    ok!(s.cuMemUnmap(range, 2 * PAGE));
    s.map(range + 2 * SPAN, PAGE, b);
    s.map(range + 3 * SPAN, PAGE, a);
    assert_eq!(s.peek(range + 3 * SPAN - 1, 2), [0xbb, 0xaa]);
    assert!(s.sim.peek(range, &mut [0]).is_err());
    assert_eq!(s.sim.used(0), 2 * SPAN);
}

#[test]
fn two_addresses_may_show_one_page() {
    let s = session(&[]);
    let range = s.reserve(2 * PAGE);
    let page = s.create(PAGE, 0);
    s.map(range, PAGE, page);
    s.map(range + SPAN, PAGE, page);
    ok!(s.cuMemsetD8_v2(range + 100, 5, 1));
    s.launch("simcuda_copy", &[range + SPAN + 101, range + SPAN + 100, 1], 0);
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.peek(range + 100, 3), [5, 5, 0]);
    assert_eq!(s.sim.used(0), SPAN, "counted once");
}

#[test]
fn aliased_bytes_are_the_same_bytes_to_the_checker() {
    let s = session(&[("checker", "log"), ("schedule", "lazy")]);
    let range = s.reserve(2 * PAGE);
    let page = s.create(PAGE, 0);
    s.map(range, PAGE, page);
    s.map(range + SPAN, PAGE, page);
    let (one, two) = (s.stream(), s.stream());
    ok!(s.cuMemsetD8Async(range, 1, 64, one));
    ok!(s.cuMemsetD8Async(range + SPAN + 64, 2, 64, two));
    assert_eq!(s.sim.report_count(), 0, "bytes apart");
    ok!(s.cuMemsetD8Async(range + SPAN + 63, 3, 1, two));
    let reports = s.sim.reports();
    assert!(reports.len() == 1 && reports[0].contains("race"), "{reports:?}");
    assert!(reports[0].contains("cuMemsetD8Async") && reports[0].contains("cuMemCreate"));
}

#[test]
fn a_physical_object_lives_while_it_has_a_handle_or_a_mapping() {
    let s = session(&[]);
    let range = s.reserve(PAGE);
    let page = s.create(PAGE, 0);
    s.map(range, PAGE, page);
    ok!(s.cuMemRelease(page));
    assert_eq!((s.sim.used(0), s.sim.objects("handles")), (SPAN, 0));
    assert_eq!(s.cuMemRelease(page), INVALID_VALUE);
    assert_eq!(s.cuMemMap(range, PAGE, 0, page, 0), INVALID_VALUE);
    let mut again = 0;
    ok!(s.cuMemRetainAllocationHandle(&mut again, range + 77));
    assert_ne!(again, page, "a stale value is never valid again");
    ok!(s.cuMemUnmap(range, PAGE));
    assert_eq!(s.sim.used(0), SPAN, "the new handle holds it");
    ok!(s.cuMemRelease(again));
    assert_eq!((s.sim.used(0), s.sim.objects("objects")), (0, 0));
    assert_eq!(s.sim.used_peak(0), SPAN);
}

#[test]
fn a_retained_handle_is_released_as_often() {
    let s = session(&[]);
    let range = s.reserve(PAGE);
    let (page, mut again) = (s.create(PAGE, 0), 0);
    s.map(range, PAGE, page);
    ok!(s.cuMemRetainAllocationHandle(&mut again, range));
    assert_eq!((again, s.sim.objects("handles")), (page, 2));
    ok!(s.cuMemRelease(page));
    ok!(s.cuMemUnmap(range, PAGE));
    assert_eq!(s.sim.used(0), SPAN);
    ok!(s.cuMemRelease(page));
    assert_eq!(s.sim.used(0), 0);
    assert_eq!(s.cuMemRetainAllocationHandle(&mut again, range), INVALID_VALUE);
    let block = s.alloc(512);
    assert_eq!(s.cuMemRetainAllocationHandle(&mut again, block), INVALID_VALUE);
}

#[test]
fn reservations_have_rules() {
    let s = session(&[]);
    let mut at = 0;
    for (bytes, align, flags) in
        [(0, 0, 0), (PAGE + 1, 0, 0), (4096, 0, 0), (PAGE, 3, 0), (PAGE, 0, 1)]
    {
        let code = s.cuMemAddressReserve(&mut at, bytes, align, 0, flags);
        assert_eq!(code, INVALID_VALUE, "{bytes} {align} {flags}");
    }
    ok!(s.cuMemAddressReserve(&mut at, PAGE, 1 << 30, 0, 0));
    assert_eq!(at % (1 << 30), 0);
    let mut wish = 0;
    ok!(s.cuMemAddressReserve(&mut wish, PAGE, 0, at + (5 << 30), 0));
    assert_eq!(wish, at + (5 << 30), "a free wish is granted");
    ok!(s.cuMemAddressReserve(&mut wish, PAGE, 0, at, 0));
    assert_ne!(wish, at, "a taken one is not");
    assert_eq!(s.cuMemAddressReserve(&mut wish, 1 << 62, 0, 0, 0), OUT_OF_MEMORY);
    let page = s.create(PAGE, 0);
    s.map(at, PAGE, page);
    assert_eq!(s.cuMemAddressFree(at, PAGE), INVALID_VALUE, "something is mapped");
    ok!(s.cuMemUnmap(at, PAGE));
    for (start, bytes) in [(at, 2 * PAGE), (at + SPAN, PAGE), (0, PAGE)] {
        assert_eq!(s.cuMemAddressFree(start, bytes), INVALID_VALUE);
    }
    ok!(s.cuMemAddressFree(at, PAGE));
    assert_eq!(s.cuMemAddressFree(at, PAGE), INVALID_VALUE);
    assert_eq!(s.cuMemMap(at, PAGE, 0, page, 0), INVALID_VALUE, "not reserved any more");
}

#[test]
fn mappings_have_rules() {
    let s = session(&[]);
    let range = s.reserve(8 * PAGE);
    let (one, two) = (s.create(PAGE, 0), s.create(2 * PAGE, 0));
    for (at, bytes, offset, handle, flags) in [
        (range + 1, PAGE, 0, one, 0),
        (range, 2 * PAGE, 0, one, 0),
        (range, PAGE, 0, two, 0),
        (range, PAGE, PAGE, two, 0),
        (range + 8 * SPAN, PAGE, 0, one, 0),
        (range + 7 * SPAN, 2 * PAGE, 0, two, 0),
        (range, PAGE, 0, 12345, 0),
        (range, PAGE, 0, one, 1),
    ] {
        assert_eq!(s.cuMemMap(at, bytes, offset, handle, flags), INVALID_VALUE);
    }
    s.map(range, 2 * PAGE, two);
    assert_eq!(s.cuMemMap(range + SPAN, PAGE, 0, one, 0), INVALID_VALUE, "taken");
    s.map(range + 2 * SPAN, PAGE, one);
    for (at, bytes) in [
        (range, PAGE),
        (range + SPAN, PAGE),
        (range, 3 * PAGE + 4096),
        (range, 4 * PAGE),
        (range + 3 * SPAN, PAGE),
        (range, 0),
    ] {
        assert_eq!(s.cuMemUnmap(at, bytes), INVALID_VALUE, "whole mappings only");
        assert_eq!(s.cuMemSetAccess(at, bytes, &[1, 0, 3], 1), INVALID_VALUE);
    }
    assert_eq!(s.sim.objects("mappings"), 2);
    ok!(s.cuMemUnmap(range, 3 * PAGE));
    assert_eq!(s.sim.objects("mappings"), 0);
    let block = s.alloc(PAGE);
    assert_eq!(s.cuMemUnmap(block, PAGE), INVALID_VALUE, "cuMemAlloc's");
}

#[test]
fn creation_has_rules() {
    let s = session(&[("memory", "1GiB")]);
    let (mut handle, mut grain) = (0, 0);
    let good = properties(0, 0);
    assert_eq!(s.cuMemCreate(&mut handle, PAGE + 4096, &good, 0), INVALID_VALUE);
    assert_eq!(s.cuMemCreate(&mut handle, 0, &good, 0), INVALID_VALUE);
    assert_eq!(s.cuMemCreate(&mut handle, PAGE, &good, 1), INVALID_VALUE);
    assert_eq!(s.cuMemCreate(&mut handle, PAGE, null(), 0), INVALID_VALUE);
    assert_eq!(s.cuMemCreate(&mut handle, PAGE, &properties(1, 0), 0), INVALID_DEVICE);
    assert_eq!(s.cuMemCreate(&mut handle, PAGE, &[2, 0, 1, 0, 0, 0, 0, 0], 0), INVALID_VALUE);
    assert_eq!(s.cuMemCreate(&mut handle, PAGE, &[1, 0, 77, 0, 0, 0, 0, 0], 0), INVALID_VALUE);
    assert_eq!(s.cuMemCreate(&mut handle, PAGE, &[1, 8, 1, 0, 0, 0, 0, 0], 0), NOT_SUPPORTED);
    ok!(s.cuMemGetAllocationGranularity(&mut grain, &good, 0));
    assert_eq!(grain, PAGE);
    assert_eq!(s.cuMemGetAllocationGranularity(&mut grain, &good, 2), INVALID_VALUE);
    handle = s.create(PAGE, 0);
    let mut back = [0; 8];
    ok!(s.cuMemGetAllocationPropertiesFromHandle(&mut back, handle));
    assert_eq!(back, good);
    let other = session_with_granularity(s);
    assert_eq!(other, (64 << 10, 0));
}

fn session_with_granularity(old: Session) -> (usize, i32) {
    drop(old);
    let s = session(&[("granularity", "64KiB")]);
    let (mut grain, mut handle) = (0, 0);
    ok!(s.cuMemGetAllocationGranularity(&mut grain, &properties(0, 0), 0));
    (grain, s.cuMemCreate(&mut handle, 192 << 10, &properties(0, 0), 0))
}

#[test]
fn access_must_be_set_before_use() {
    let s = session(&[("checker", "log")]);
    let range = s.reserve(PAGE);
    let page = s.create(PAGE, 0);
    ok!(s.cuMemMap(range, PAGE, 0, page, 0));
    let mut flags = 9;
    ok!(s.cuMemGetAccess(&mut flags, &[1, 0], range));
    assert_eq!(flags, 0);
    ok!(s.cuMemsetD8Async(range, 1, 1, 0));
    assert_eq!(s.cuCtxSynchronize(), ILLEGAL_ADDRESS);
    assert_eq!(s.peek(range, 1), [0]);
    let reports = s.sim.reports();
    assert!(reports.len() == 1 && reports[0].contains("cuMemSetAccess"), "{reports:?}");
    let mut address = 0;
    assert_eq!(s.cuMemAlloc_v2(&mut address, 512), ILLEGAL_ADDRESS, "the context stays spoilt");
}

#[test]
fn read_only_access_is_for_reading() {
    let s = session(&[("checker", "log")]);
    let range = s.reserve(PAGE);
    let page = s.create(PAGE, 0);
    ok!(s.cuMemMap(range, PAGE, 0, page, 0));
    s.grant(range, PAGE, 0, 1);
    s.launch("simcuda_touch", &[range, SPAN, 0], 0);
    ok!(s.cuCtxSynchronize());
    s.launch("simcuda_touch", &[range, 1, 1], 0);
    assert_eq!(s.cuCtxSynchronize(), ILLEGAL_ADDRESS, "read-only");
}

#[test]
fn access_is_a_devices_own() {
    let s = session(&[("devices", "2")]);
    let range = s.reserve(PAGE);
    let page = s.create(PAGE, 0);
    ok!(s.cuMemMap(range, PAGE, 0, page, 0));
    ok!(s.cuMemSetAccess(range, PAGE, [[1, 0, 3], [1, 1, 1]].as_ptr(), 2));
    let mut flags = [9, 9];
    for (device, flags) in (0..).zip(&mut flags) {
        ok!(s.cuMemGetAccess(flags, &[1, device], range + 4096));
    }
    assert_eq!(flags, [3, 1]);
    s.use_device(1);
    s.launch("simcuda_touch", &[range, SPAN, 0], 0);
    ok!(s.cuCtxSynchronize());
    s.launch("simcuda_touch", &[range, SPAN, 1], 0);
    assert_eq!(s.cuCtxSynchronize(), ILLEGAL_ADDRESS);
    for wanted in [[1, 2, 3], [1, -1, 3]] {
        assert_eq!(s.cuMemSetAccess(range, PAGE, &wanted, 1), INVALID_DEVICE);
    }
    for wanted in [[2, 0, 3], [1, 0, 2], [1, 0, 99]] {
        assert_eq!(s.cuMemSetAccess(range, PAGE, &wanted, 1), INVALID_VALUE);
    }
    assert_eq!(s.cuMemSetAccess(range, PAGE, &[1, 0, 0], 0), INVALID_VALUE);
}

#[test]
fn unmapping_does_not_wait_and_later_work_finds_nothing_there() {
    let s = session(&[("checker", "log"), ("schedule", "lazy")]);
    let range = s.reserve(PAGE);
    let page = s.create(PAGE, 0);
    s.map(range, PAGE, page);
    ok!(s.cuMemsetD8Async(range, 1, 16, 0));
    ok!(s.cuMemUnmap(range, PAGE));
    let reports = s.sim.reports();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].contains("taken away") && reports[0].contains("cuMemUnmap"), "{reports:?}");
    assert_eq!(s.cuCtxSynchronize(), ILLEGAL_ADDRESS);
    assert_eq!(s.sim.report_count(), 1, "one mistake, one report");
}

#[test]
fn unmapping_after_a_wait_is_right() {
    let s = session(&[("checker", "log"), ("schedule", "lazy")]);
    let range = s.reserve(PAGE);
    let page = s.create(PAGE, 0);
    s.map(range, PAGE, page);
    ok!(s.cuMemsetD8Async(range, 1, 16, 0));
    ok!(s.cuStreamSynchronize(0));
    ok!(s.cuMemUnmap(range, PAGE));
    s.map(range, PAGE, page);
    ok!(s.cuMemsetD8Async(range, 2, 16, s.stream()));
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.sim.reports(), Vec::<String>::new());
    assert!(s.sim.accesses_checked() >= 3);
}

#[test]
fn use_of_what_was_unmapped_names_who_did_it() {
    let s = session(&[("checker", "log")]);
    let range = s.reserve(2 * PAGE);
    let page = s.create(PAGE, 0);
    s.map(range, PAGE, page);
    ok!(s.cuMemUnmap(range, PAGE));
    s.launch("simcuda_fill", &[range + 64, 8, 1], 0);
    let reports = s.sim.reports();
    assert!(
        reports[0].contains("use after free") && reports[0].contains("cuMemUnmap"),
        "{reports:?}"
    );
    assert!(reports[0].contains("simcuda_fill"), "{reports:?}");
    assert_eq!(s.cuStreamSynchronize(0), ILLEGAL_ADDRESS);
}

#[test]
fn use_of_what_was_never_mapped_is_told_from_use_after_free() {
    let s = session(&[("checker", "log")]);
    let range = s.reserve(2 * PAGE);
    s.launch("simcuda_fill", &[range + SPAN, 8, 1], 0);
    assert_eq!(s.cuCtxSynchronize(), ILLEGAL_ADDRESS);
    assert!(s.sim.reports()[0].contains("unmapped"), "{:?}", s.sim.reports());
    drop(s);
    let s = session(&[("checker", "log")]);
    let old = s.reserve(PAGE);
    ok!(s.cuMemAddressFree(old, PAGE));
    assert_eq!(s.reserve(PAGE), old);
    s.launch("simcuda_fill", &[old, 8, 1], 0);
    assert!(s.sim.reports()[0].contains("unmapped"), "reserved anew: {:?}", s.sim.reports());
}

#[test]
fn half_a_million_pages_fit_in_one_process() {
    let s = session(&[("memory", "1TiB")]);
    const PAGES: usize = 1 << 19;
    let range = s.reserve(PAGES * PAGE);
    let handles: Vec<_> = (0..PAGES).map(|_| s.create(PAGE, 0)).collect();
    for (i, handle) in handles.iter().enumerate() {
        let at = range + ((i * 7919) % PAGES) as u64 * SPAN;
        ok!(s.cuMemMap(at, PAGE, 0, *handle, 0));
    }
    s.grant(range, PAGES * PAGE, 0, 3);
    assert_eq!(s.sim.used(0), 1 << 40);
    let parameters = [range, 1 << 40, 64 << 30, 99, s.alloc_counter(range)];
    s.launch("cuddy_pattern_write", &parameters[..4], 0);
    s.launch("cuddy_pattern_check", &parameters, 0);
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.peek(parameters[4], 8), [0; 8]);
    ok!(s.cuMemUnmap(range, PAGES * PAGE));
    handles.iter().for_each(|handle| ok!(s.cuMemRelease(*handle)));
    assert_eq!(s.sim.used(0), 0);
}

trait Counter {
    fn alloc_counter(&self, range: u64) -> u64;
}

impl Counter for Session {
    /// The device is full: the counter lies in a byte range that the pattern leaves alone.
    fn alloc_counter(&self, range: u64) -> u64 {
        range + SPAN
    }
}

#[test]
fn an_object_is_shared_by_its_file() {
    let s = session(&[("devices", "2")]);
    let (mut handle, mut fd, mut imported) = (0, -1, 0);
    ok!(s.cuMemCreate(&mut handle, PAGE, &properties(1, 1), 0));
    let plain = s.create(PAGE, 0);
    assert_eq!(
        s.cuMemExportToShareableHandle(&mut fd, plain, 1, 0),
        INVALID_VALUE,
        "not asked for"
    );
    assert_eq!(s.cuMemExportToShareableHandle(&mut fd, handle, 2, 0), INVALID_VALUE);
    ok!(s.cuMemExportToShareableHandle(&mut fd, handle, 1, 0));
    ok!(s.cuMemImportFromShareableHandle(&mut imported, fd as usize, 1));
    assert_ne!(imported, handle);
    assert_eq!(s.sim.used(1), SPAN, "one object, counted once");
    let range = s.reserve(2 * PAGE);
    for (at, handle) in [(range, handle), (range + SPAN, imported)] {
        ok!(s.cuMemMap(at, PAGE, 0, handle, 0));
        s.grant(at, PAGE, 0, 3);
    }
    ok!(s.cuMemsetD8_v2(range, 4, 8));
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.peek(range + SPAN, 9), [4, 4, 4, 4, 4, 4, 4, 4, 0]);
    ok!(s.cuMemRelease(handle));
    ok!(s.cuMemRelease(imported));
    ok!(s.cuMemUnmap(range, 2 * PAGE));
    assert_eq!(s.sim.used(1), 0);
    // SAFETY: the descriptor came from the export and is this test's.
    unsafe { libc::close(fd) };
    for wrong in [fd, -1, 0] {
        let code = s.cuMemImportFromShareableHandle(&mut imported, wrong as usize, 1);
        assert_eq!(code, INVALID_VALUE, "descriptor {wrong}");
    }
}

/// The other process of the next test: this test again, given a descriptor.
fn child(fd: i32) {
    let s = session(&[]);
    let mut handle = 0;
    ok!(s.cuMemImportFromShareableHandle(&mut handle, fd as usize, 1));
    assert_eq!(s.sim.used(0), 0, "the exporting process has it");
    let range = s.reserve(PAGE);
    s.map(range, PAGE, handle);
    assert_eq!(s.peek(range + 17, 2), [0x5a, 0x5a]);
    ok!(s.cuMemsetD8_v2(range, 0x77, 16));
    ok!(s.cuCtxSynchronize());
}

#[test]
fn an_object_is_shared_with_another_process() {
    if let Ok(fd) = std::env::var("SIMCUDA_TEST_FD") {
        return child(fd.parse().expect("a number"));
    }
    let s = session(&[]);
    let (mut handle, mut fd) = (0, -1);
    ok!(s.cuMemCreate(&mut handle, PAGE, &properties(0, 1), 0));
    let range = s.reserve(PAGE);
    s.map(range, PAGE, handle);
    ok!(s.cuMemsetD8_v2(range, 0x5a, PAGE));
    ok!(s.cuCtxSynchronize());
    ok!(s.cuMemExportToShareableHandle(&mut fd, handle, 1, 0));
    // SAFETY: the descriptor is ours; the child is to inherit it.
    unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    let output = std::process::Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "an_object_is_shared_with_another_process", "--nocapture"])
        .env("SIMCUDA_TEST_FD", fd.to_string())
        .output()
        .expect("this program runs again");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!(s.peek(range + 15, 2), [0x77, 0x5a], "what the other wrote is here");
}

#[test]
fn device_memory_cannot_be_touched_by_the_host() {
    let s = session(&[]);
    let (block, range) = (s.alloc(4096), s.reserve(PAGE));
    let page = s.create(PAGE, 0);
    s.map(range, PAGE, page);
    for address in [block, range] {
        let mut pipe = [0; 2];
        // SAFETY: a pipe of this test's; `write` reads from the address in the kernel, which answers EFAULT where a
        // load by this program would be killed.
        let answer = unsafe {
            assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
            let answer = libc::write(pipe[1], address as *const libc::c_void, 8);
            libc::close(pipe[0]);
            libc::close(pipe[1]);
            answer
        };
        assert_eq!(answer, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
    }
}
