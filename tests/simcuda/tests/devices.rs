//! Devices and contexts.

mod common;
use common::{Session, code::*, fresh, session};

#[test]
fn nothing_works_before_init_and_everything_says_so() {
    let s = fresh(&[]);
    let (mut n, mut long, mut size) = (0, 0, 0);
    assert_eq!(s.cuDeviceGetCount(&mut n), NOT_INITIALIZED);
    assert_eq!(s.cuDeviceGet(&mut n, 0), NOT_INITIALIZED);
    assert_eq!(s.cuDevicePrimaryCtxRetain(&mut long, 0), NOT_INITIALIZED);
    assert_eq!(s.cuMemAlloc_v2(&mut long, 512), NOT_INITIALIZED);
    assert_eq!(s.cuCtxGetCurrent(&mut long), NOT_INITIALIZED);
    assert_eq!(s.cuMemAddressReserve(&mut long, 2 << 20, 0, 0, 0), NOT_INITIALIZED);
    assert_eq!(s.cuStreamSynchronize(0), NOT_INITIALIZED);
    assert_eq!(s.cuEventQuery(64), NOT_INITIALIZED);
    let null = std::ptr::null_mut();
    assert_eq!(s.cuMemAlloc_v2(null, 512), NOT_INITIALIZED, "before its arguments are looked at");
    assert_eq!(s.cuMemHostAlloc(null, 512, 0), NOT_INITIALIZED);
    assert_eq!(s.cuModuleLoadData(null, std::ptr::null()), NOT_INITIALIZED);
    assert_eq!(s.cuMemcpy2DAsync_v2(std::ptr::null(), 0), NOT_INITIALIZED);
    assert_eq!(s.cuMemGetInfo_v2(&mut size, &mut size.clone()), NOT_INITIALIZED);
    ok!(s.cuDriverGetVersion(&mut n));
    assert_eq!(n, 13000);
    assert_eq!(s.cuInit(1), INVALID_VALUE);
    ok!(s.cuInit(0));
    ok!(s.cuInit(0));
    assert_eq!(s.cuMemAlloc_v2(&mut long, 512), INVALID_CONTEXT);
    assert_eq!(s.cuStreamSynchronize(0), INVALID_CONTEXT);
}

#[test]
fn devices_are_what_the_configuration_says() {
    let s = fresh(&[("devices", "3"), ("memory", "8GiB,1GiB"), ("driver", "12080")]);
    ok!(s.cuInit(0));
    let (mut count, mut version) = (0, 0);
    ok!(s.cuDeviceGetCount(&mut count));
    ok!(s.cuDriverGetVersion(&mut version));
    assert_eq!((count, version), (3, 12080));
    let mut identities = std::collections::BTreeSet::new();
    for (device, gib) in [(0, 8), (1, 1), (2, 1)] {
        let (mut total, mut name, mut uuid) = (0, [1u8; 64], [0; 16]);
        ok!(s.cuDeviceTotalMem_v2(&mut total, device));
        assert_eq!(total, gib << 30);
        ok!(s.cuDeviceGetName(name.as_mut_ptr(), 64, device));
        let expected = format!("Simulated GPU {device} (simcuda)\0");
        assert_eq!(&name[..expected.len()], expected.as_bytes());
        assert_eq!(name[expected.len()], 1, "nothing is written beyond the end");
        ok!(s.cuDeviceGetUuid_v2(&mut uuid, device));
        let (mut id, mut found) = ([0u8; 16], -1);
        ok!(s.cuDeviceGetPCIBusId(id.as_mut_ptr(), 16, device));
        ok!(s.cuDeviceGetByPCIBusId(&mut found, id.as_ptr().cast()));
        assert_eq!(found, device);
        identities.insert((uuid, id));
    }
    assert_eq!(identities.len(), 3);
    let mut short = [7u8; 6];
    ok!(s.cuDeviceGetName(short.as_mut_ptr(), 5, 0));
    assert_eq!(&short, b"Simu\0\x07");
    let mut value = 0;
    for device in [-1, 3, i32::MAX] {
        assert_eq!(s.cuDeviceGetAttribute(&mut value, 75, device), INVALID_DEVICE);
    }
    ok!(s.cuDeviceGetAttribute(&mut value, 75, 0));
    assert_eq!(value, 9);
    assert_eq!(s.cuDeviceGetAttribute(&mut value, 100_000, 0), INVALID_VALUE);
    assert_eq!(s.cuDeviceGetAttribute(std::ptr::null_mut(), 75, 0), INVALID_VALUE);
}

#[test]
fn no_devices_and_wrong_configurations() {
    let s = fresh(&[("devices", "0")]);
    assert_eq!(s.cuInit(0), NO_DEVICE);
    assert!(
        s.sim.configure("memory", "1GiB").expect_err("too late").to_string().contains("cuInit")
    );
    s.sim.reset();
    let why = s.sim.configure("memory", "lots").expect_err("no size").to_string();
    assert!(why.contains("lots") && why.contains("80GiB"), "{why}");
}

#[test]
fn a_primary_context_lives_while_it_is_retained() {
    let s = fresh(&[]);
    ok!(s.cuInit(0));
    let (mut flags, mut active, mut first, mut second) = (9, 9, 0, 0);
    ok!(s.cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    assert_eq!((flags, active), (0, 0));
    assert_eq!(s.cuDevicePrimaryCtxRelease_v2(0), INVALID_CONTEXT);
    ok!(s.cuDevicePrimaryCtxRetain(&mut first, 0));
    ok!(s.cuDevicePrimaryCtxRetain(&mut second, 0));
    assert_eq!(first, second);
    ok!(s.cuDevicePrimaryCtxSetFlags_v2(0, 4));
    ok!(s.cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    assert_eq!((flags, active), (4, 1));
    let (mut id, mut later) = (0, 0);
    ok!(s.cuCtxGetId(first, &mut id));
    ok!(s.cuCtxSetCurrent(first));
    ok!(s.cuDevicePrimaryCtxRelease_v2(0));
    let address = s.alloc(1024);
    assert_eq!(s.sim.objects("allocations"), 1);
    ok!(s.cuDevicePrimaryCtxRelease_v2(0));
    ok!(s.cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
    assert_eq!(active, 0);
    assert_eq!((s.sim.objects("allocations"), s.sim.used(0)), (0, 0), "memory goes with it");
    assert_eq!(s.cuMemFree_v2(address), CONTEXT_IS_DESTROYED);
    ok!(s.cuDevicePrimaryCtxRetain(&mut first, 0));
    ok!(s.cuCtxGetId(first, &mut later));
    assert_ne!(id, later, "another context, though the handle may be the same");
    assert_eq!(s.cuMemFree_v2(address), INVALID_VALUE);
    assert_eq!(s.sim.contexts_created(0), 2);
    ok!(s.cuDevicePrimaryCtxReset_v2(0));
    assert_eq!(s.sim.objects("contexts"), 0);
}

#[test]
fn each_thread_has_a_stack_of_contexts() {
    let s = session(&[("devices", "2")]);
    let (mut made, mut top, mut popped, mut device, mut primary) = (0, 0, 0, 0, 0);
    ok!(s.cuCtxGetCurrent(&mut primary));
    ok!(s.cuCtxCreate_v2(&mut made, 0, 1));
    ok!(s.cuCtxGetCurrent(&mut top));
    ok!(s.cuCtxGetDevice(&mut device));
    assert_eq!((top, device), (made, 1));
    ok!(s.cuCtxPushCurrent_v2(primary));
    ok!(s.cuCtxGetDevice(&mut device));
    assert_eq!(device, 0);
    std::thread::scope(|threads| {
        let other = threads.spawn(|| {
            let mut top = 7;
            assert_eq!(s.cuCtxGetCurrent(&mut top), 0);
            top
        });
        assert_eq!(other.join().expect("no panic"), 0, "another thread has no context");
    });
    ok!(s.cuCtxPopCurrent_v2(&mut popped));
    assert_eq!(popped, primary);
    ok!(s.cuCtxDestroy_v2(made));
    ok!(s.cuCtxGetCurrent(&mut top));
    assert_eq!(top, primary, "a destroyed context leaves the stack of its thread");
    ok!(s.cuCtxPopCurrent_v2(&mut popped));
    assert_eq!(s.cuCtxPopCurrent_v2(&mut popped), INVALID_CONTEXT);
    assert_eq!(s.cuCtxDestroy_v2(made), INVALID_CONTEXT);
    assert_eq!(s.cuCtxDestroy_v2(primary), INVALID_CONTEXT, "a primary context is released");
    assert_eq!(s.cuCtxSetCurrent(made), INVALID_CONTEXT);
}

#[test]
fn a_context_takes_its_streams_events_and_memory_with_it() {
    let s = session(&[]);
    let (before, mut made) = (s.sim.objects("streams"), 0);
    ok!(s.cuCtxCreate_v2(&mut made, 0, 0));
    let (stream, event, address, host) = (s.stream(), s.event(), s.alloc(4096), s.pinned(100));
    ok!(s.cuMemsetD8Async(address, 1, 4096, stream));
    ok!(s.cuCtxDestroy_v2(made));
    for what in ["events", "allocations", "host_allocations", "objects"] {
        assert_eq!(s.sim.objects(what), 0, "{what}");
    }
    assert_eq!(s.sim.objects("streams"), before);
    assert_eq!(s.cuStreamQuery(stream), INVALID_HANDLE);
    assert_eq!(s.cuEventQuery(event), INVALID_HANDLE);
    assert_eq!(s.cuMemFreeHost(host), INVALID_VALUE);
    assert_eq!(s.sim.objects("nonsense"), u64::MAX);
}

#[test]
fn the_capture_mode_of_a_thread_is_exchanged() {
    let s = session(&[]);
    let mut mode = 2;
    ok!(s.cuThreadExchangeStreamCaptureMode(&mut mode));
    assert_eq!(mode, 0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut mode = 1;
            ok!(s.cuThreadExchangeStreamCaptureMode(&mut mode));
            assert_eq!(mode, 0, "each thread has its own");
        });
    });
    ok!(s.cuThreadExchangeStreamCaptureMode(&mut mode));
    assert_eq!(mode, 2);
    mode = 3;
    assert_eq!(s.cuThreadExchangeStreamCaptureMode(&mut mode), INVALID_VALUE);
    let mut status = 9;
    ok!(s.cuStreamIsCapturing(0, &mut status));
    assert_eq!(status, 0);
}

#[test]
fn a_device_without_vmm_says_so() {
    let s = session(&[("vmm", "0")]);
    let (mut value, mut long) = (9, 0);
    ok!(s.cuDeviceGetAttribute(&mut value, 102, 0));
    assert_eq!(value, 0);
    assert_eq!(s.cuMemAddressReserve(&mut long, 2 << 20, 0, 0, 0), NOT_SUPPORTED);
    assert_eq!(s.cuMemCreate(&mut long, 2 << 20, &common::properties(0, 0), 0), NOT_SUPPORTED);
    s.alloc(512);
}

#[test]
fn an_older_driver_lacks_what_is_newer() {
    let s = session(&[("driver", "11040")]);
    let (mut context, mut id) = (0, 0);
    ok!(s.cuCtxGetCurrent(&mut context));
    assert_eq!(s.cuCtxGetId(context, &mut id), NOT_SUPPORTED);
    assert_eq!(s.cuCtxRecordEvent(context, s.event()), NOT_SUPPORTED);
    s.alloc(512);
}

#[test]
fn visible_devices_keep_their_identity_in_the_programs_order() {
    let name = |s: &Session, device| {
        let mut name = [0u8; 64];
        ok!(s.cuDeviceGetName(name.as_mut_ptr(), 64, device));
        String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned()
    };
    let s =
        fresh(&[("devices", "3"), ("memory", "1GiB,2GiB,3GiB"), ("visible_devices", "2,0,9,1")]);
    ok!(s.cuInit(0));
    let (mut count, mut bytes) = (0, 0);
    ok!(s.cuDeviceGetCount(&mut count));
    ok!(s.cuDeviceTotalMem_v2(&mut bytes, 0));
    assert_eq!((count, bytes >> 30), (2, 3));
    assert!(name(&s, 0).contains("GPU 2") && name(&s, 1).contains("GPU 0"));
    let (mut found, mut id) = (9, [0u8; 16]);
    ok!(s.cuDeviceGetPCIBusId(id.as_mut_ptr(), 16, 0));
    ok!(s.cuDeviceGetByPCIBusId(&mut found, id.as_ptr().cast()));
    assert_eq!(found, 0);
    drop(s);
    let s = fresh(&[("visible_devices", "")]);
    assert_eq!(s.cuInit(0), NO_DEVICE);
}

#[test]
fn limits_are_clamped_or_refused_as_the_documentation_says() {
    let s = session(&[]);
    let limit = |number: i32, value: usize| {
        let mut now = 0;
        // SAFETY: the driver's functions, with the types of cuda.h.
        unsafe {
            let set = s.sim.symbol("cuCtxSetLimit").expect("it is exported");
            let set: unsafe extern "C" fn(i32, usize) -> i32 = std::mem::transmute(set);
            let get = s.sim.symbol("cuCtxGetLimit").expect("it is exported");
            let get: unsafe extern "C" fn(*mut usize, i32) -> i32 = std::mem::transmute(get);
            (set(number, value), get(&mut now, number), now)
        }
    };
    assert_eq!(limit(0, 4096), (0, 0, 4096), "a stack's size");
    assert_eq!(limit(5, 4096), (0, 0, 128), "the granularity of fetches");
    assert_eq!(limit(5, 32), (0, 0, 32));
    assert_eq!(limit(6, 1 << 20), (0, 0, 0), "no cache is set aside");
    assert_eq!(limit(3, 4).0, 215, "not from compute capability 9.0 on");
}
