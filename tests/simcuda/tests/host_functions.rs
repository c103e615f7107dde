//! Host functions.

mod common;
use common::{SCHEDULES, code::*, session};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

extern "C" fn add_one(data: *mut c_void) {
    // SAFETY: the tests pass a counter that outlives the work.
    unsafe { &*data.cast::<AtomicU64>() }.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn callback(stream: u64, status: i32, data: *mut c_void) {
    // SAFETY: as above.
    unsafe { &*data.cast::<AtomicU64>() }.store(stream + status as u64, Ordering::SeqCst);
}

#[test]
fn host_functions_run_in_stream_order() {
    for schedule in SCHEDULES {
        let s = session(&[("schedule", schedule)]);
        let (stream, block) = (s.stream(), s.alloc(8));
        let (count, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        let data = &raw const count as u64;
        s.gate(1, stream);
        ok!(s.cuLaunchHostFunc(stream, add_one as *const () as u64, data));
        ok!(s.cuStreamAddCallback(stream, callback as *const () as u64, &raw const seen as u64, 0));
        ok!(s.cuMemsetD8Async(block, 1, 8, stream));
        assert_eq!(count.load(Ordering::SeqCst), 0);
        s.sim.gate_open(1);
        ok!(s.cuStreamSynchronize(stream));
        assert_eq!((count.load(Ordering::SeqCst), seen.load(Ordering::SeqCst)), (1, stream));
        assert_eq!(s.peek(block, 1), [1]);
        assert_eq!(s.cuLaunchHostFunc(stream, 0, 0), INVALID_VALUE);
    }
}

/// A host function that waits for its program: flag 0 is set by the program, answer 1 by it.
extern "C" fn wait_for_program(data: *mut c_void) {
    // SAFETY: the test passes two words that outlive the work.
    let words = unsafe { &*data.cast::<[AtomicU64; 2]>() };
    while words[0].load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    words[1].store(1, Ordering::SeqCst);
}

#[test]
fn a_host_function_may_wait_for_the_thread_that_launched_it() {
    let s = session(&[]);
    let (stream, other) = (s.stream(), s.stream());
    let words = [AtomicU64::new(0), AtomicU64::new(0)];
    ok!(s.cuLaunchHostFunc(stream, wait_for_program as *const () as u64, &raw const words as u64));
    let block = s.alloc(8);
    ok!(s.cuMemsetD8Async(block, 1, 8, other));
    ok!(s.cuStreamSynchronize(other));
    assert_eq!(s.cuStreamQuery(stream), NOT_READY);
    words[0].store(1, Ordering::SeqCst);
    ok!(s.cuStreamSynchronize(stream));
    assert_eq!(words[1].load(Ordering::SeqCst), 1);
}

static DRIVER_CALL: AtomicU64 = AtomicU64::new(0);

extern "C" fn call_the_driver(data: *mut c_void) {
    // SAFETY: the address of cuMemAlloc, whose signature this is; the result goes to a local.
    let alloc: unsafe extern "C" fn(*mut u64, usize) -> i32 = unsafe { std::mem::transmute(data) };
    let mut address = 0;
    // SAFETY: as above.
    DRIVER_CALL.store(unsafe { alloc(&mut address, 512) } as u64, Ordering::SeqCst);
}

#[test]
fn a_host_function_may_not_call_the_driver() {
    let s = session(&[]);
    let alloc = s.sim.symbol("cuMemAlloc_v2").expect("exported");
    ok!(s.cuLaunchHostFunc(0, call_the_driver as *const () as u64, alloc as u64));
    ok!(s.cuCtxSynchronize());
    assert_eq!(DRIVER_CALL.load(Ordering::SeqCst), NOT_PERMITTED as u64);
    assert_eq!(s.sim.objects("allocations"), 0);
}
