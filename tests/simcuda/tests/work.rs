//! Copies, fills, kernels and modules.

mod common;
use common::{PAGE, code::*, session};
use std::ffi::CStr;

#[test]
fn copies_from_pageable_memory_take_it_at_the_call() {
    let s = session(&[("schedule", "lazy")]);
    let (stream, block) = (s.stream(), s.alloc(16));
    s.gate(1, stream);
    let mut bytes = [5u8; 16];
    ok!(s.cuMemcpyHtoDAsync_v2(block, bytes.as_ptr().cast(), 16, stream));
    bytes.fill(6);
    s.sim.gate_open(1);
    ok!(s.cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), block, 16, stream));
    assert_eq!(bytes, [5; 16], "to pageable memory: there when the call returns");
}

#[test]
fn copies_from_pinned_memory_take_it_when_they_run() {
    let s = session(&[("schedule", "lazy")]);
    let (stream, block, host) = (s.stream(), s.alloc(16), s.pinned(16));
    // SAFETY: 16 bytes of this test's page-locked memory.
    let write = |value| unsafe { (host as *mut u8).write_bytes(value, 16) };
    write(5);
    ok!(s.cuMemcpyAsync(block, host, 16, stream));
    write(6);
    ok!(s.cuStreamSynchronize(stream));
    assert_eq!(s.peek(block, 1), [6], "a program that does this has a race");
}

#[test]
fn the_host_races_with_work_on_page_locked_memory() {
    let s = session(&[("checker", "log"), ("schedule", "lazy")]);
    let (stream, block, host) = (s.stream(), s.alloc(16), s.pinned(16));
    s.sim.host_write(host, 16, "fill the buffer").expect("pinned");
    ok!(s.cuMemcpyAsync(block, host, 16, stream));
    s.sim.host_read(host, 16, "look at it").expect("pinned");
    assert_eq!(s.sim.reports(), Vec::<String>::new(), "two readers");
    s.sim.host_write(host + 15, 1, "reuse the buffer").expect("pinned");
    let reports = s.sim.reports();
    assert!(reports.len() == 1 && reports[0].contains("reuse the buffer"), "{reports:?}");
    assert!(s.sim.host_write(block, 16, "a device's").is_err());
    assert!(s.sim.host_write(host, 17, "too long").is_err());
}

#[test]
fn rectangles_are_copied_row_by_row() {
    let s = session(&[]);
    let (block, pitch) = (s.alloc(4096), 64u64);
    let bytes: Vec<u8> = (0..48).collect();
    // From host rows of 12 bytes, columns 2..5 of rows 1..4, to device column 3 of row 2.
    let mut what = [0u64; 16];
    what[..7].copy_from_slice(&[2, 1, 1, bytes.as_ptr() as u64, 0, 0, 12]);
    what[7..].copy_from_slice(&[3, 2, 2, 0, block, 0, pitch, 3, 3]);
    ok!(s.cuMemcpy2DAsync_v2(&what, 0));
    ok!(s.cuCtxSynchronize());
    for row in 0..3u64 {
        let at = block + (row + 2) * pitch + 3;
        let first = (row as u8 + 1) * 12 + 2;
        assert_eq!(s.peek(at - 1, 5), [0, first, first + 1, first + 2, 0]);
    }
    what[2] = 3;
    assert_eq!(s.cuMemcpy2DAsync_v2(&what, 0), NOT_SUPPORTED, "arrays");
    what[2] = 9;
    assert_eq!(s.cuMemcpy2DAsync_v2(&what, 0), INVALID_VALUE);
}

#[test]
fn wide_fills_repeat_their_element() {
    let s = session(&[]);
    let range = s.reserve(2 * PAGE);
    for i in 0..2 {
        let page = s.create(PAGE, 0);
        s.map(range + (i * PAGE) as u64, PAGE, page);
    }
    let edge = range + PAGE as u64;
    ok!(s.cuMemsetD32Async(edge - 4, 0x0403_0201, 2, 0));
    ok!(s.cuMemsetD16Async(edge + 8, 0x0605, 2, 0));
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.peek(edge - 4, 8), [1, 2, 3, 4, 1, 2, 3, 4]);
    assert_eq!(s.peek(edge + 8, 5), [5, 6, 5, 6, 0]);
    assert_eq!(s.cuMemsetD32Async(edge + 2, 0, 1, 0), INVALID_VALUE, "not aligned");
    ok!(s.cuMemsetD8Async(edge, 0, 0, 0));
}

#[test]
fn known_kernels_work_on_memory() {
    let s = session(&[]);
    let (a, b, c, counter) = (s.alloc(4096), s.alloc(4096), s.alloc(4096), s.alloc(8));
    s.launch("simcuda_fill", &[a, 4096, 0x33], 0);
    s.launch("simcuda_copy", &[b + 1, a, 100], 0);
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.peek(b, 3), [0, 0x33, 0x33]);
    let floats: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|f| f.to_le_bytes()).collect();
    ok!(s.cuMemcpyHtoD_v2(a, floats.as_ptr().cast(), 8));
    s.launch("simcuda_add", &[c, a, a, 2], 0);
    ok!(s.cuCtxSynchronize());
    let sum: Vec<u8> = [3.0f32, -4.0].iter().flat_map(|f| f.to_le_bytes()).collect();
    assert_eq!(s.peek(c, 8), sum);
    for bytes in [3, 8, 100, 4096] {
        s.launch("cuddy_pattern_write", &[a, bytes, 24, 77], 0);
        s.launch("cuddy_pattern_check", &[a, bytes, 24, 77, counter], 0);
        ok!(s.cuCtxSynchronize());
        assert_eq!(s.peek(counter, 8), [0; 8], "{bytes}");
    }
    s.launch("cuddy_pattern_check", &[a, 4096, 24, 78, counter], 0);
    ok!(s.cuCtxSynchronize());
    let words = (4096u64 - 16) / 24 + 2;
    assert_eq!(s.peek(counter, 8), words.to_le_bytes(), "every word is wrong for another seed");
    // The word at offset 24 of seed 77, worked out as SplitMix64 is written down.
    let mut z: u64 = (77 ^ 24) + 0x9E37_79B9_7F4A_7C15;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    assert_eq!(s.peek(a + 24, 8), (z ^ (z >> 31)).to_le_bytes());
}

#[test]
fn unknown_kernels_do_nothing_and_are_counted() {
    let s = session(&[("checker", "log")]);
    let f = s.function("some_kernel_of_a_program");
    assert_eq!(s.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, 0, std::ptr::null(), std::ptr::null()), 0);
    assert_eq!(s.sim.unknown_launches(), 1);
    assert_eq!(
        s.cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, 0, std::ptr::null(), std::ptr::null()),
        INVALID_VALUE
    );
    assert_eq!(
        s.cuLaunchKernel(f, 1, 1, 1, 1025, 1, 1, 0, 0, std::ptr::null(), std::ptr::null()),
        INVALID_VALUE
    );
    assert_eq!(s.try_launch(f + 64, &[], 0), INVALID_HANDLE);
    let mut name = std::ptr::null();
    ok!(s.cuFuncGetName(&mut name, f));
    // SAFETY: the driver gave a C string that lives as long as its module.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"some_kernel_of_a_program");
    let fill = s.function("simcuda_fill");
    let none = s.cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, 0, std::ptr::null(), std::ptr::null());
    assert_eq!(none, INVALID_VALUE, "a known kernel needs its parameters");
}

#[test]
fn parameters_may_come_in_one_buffer() {
    let s = session(&[]);
    let block = s.alloc(64);
    let buffer = [block, 64, 0x44];
    let size = size_of_val(&buffer);
    let extra = [1, buffer.as_ptr() as u64, 2, &raw const size as u64, 0];
    let f = s.function("simcuda_fill");
    ok!(s.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, std::ptr::null(), &extra));
    ok!(s.cuCtxSynchronize());
    assert_eq!(s.peek(block, 64), [0x44; 64]);
}

#[test]
fn a_module_takes_its_functions_with_it() {
    let s = session(&[]);
    let (mut module, mut f, mut again) = (0, 0, 0);
    ok!(s.cuModuleLoadData(&mut module, c"x".as_ptr()));
    ok!(s.cuModuleGetFunction(&mut f, module, c"k".as_ptr()));
    ok!(s.cuModuleGetFunction(&mut again, module, c"k".as_ptr()));
    assert_eq!(f, again);
    ok!(s.cuModuleUnload(module));
    assert_eq!(s.try_launch(f, &[], 0), INVALID_HANDLE);
    assert_eq!(s.cuModuleUnload(module), INVALID_HANDLE);
    assert_eq!(s.cuModuleLoadData(&mut module, std::ptr::null()), INVALID_VALUE);
}

#[test]
fn planes_beyond_all_addresses_are_refused() {
    let s = session(&[]);
    let at = s.alloc(1 << 20) as usize;
    // CUDA_MEMCPY2D of device memory: x, y, kind, host, address, array, pitch, of both sides; the size.
    let plane = |x: usize, pitch: usize, width: usize, rows: usize| {
        let side = |at| [x, 0, 2, 0, at, 0, pitch];
        let sizes = [width, rows];
        let words = [&side(at)[..], &side(at + (1 << 19)), &sizes].concat();
        let words: Vec<u64> = words.into_iter().map(|word| word as u64).collect();
        s.cuMemcpy2DAsync_v2(words.as_ptr().cast(), 0)
    };
    ok!(plane(0, 4096, 512, 4));
    for (x, pitch, width, rows) in [
        (usize::MAX, 4096, 512, 4),
        (1, usize::MAX, usize::MAX, 2),
        (0, 1 << 31, 512, 2),
        (0, 4096, 512, usize::MAX),
        (0, 512, 513, 2),
    ] {
        assert_eq!(plane(x, pitch, width, rows), INVALID_VALUE, "{x} {pitch} {width} {rows}");
    }
}
