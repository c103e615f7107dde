//! Observers: callbacks for requests that find no memory, for growth and for release. They are
//! called without any lock, may call anything, and may go at any time.

mod machine;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};

use cuddy::abi::observers::{
    CUDDY_EVENT_GROWTH, CUDDY_EVENT_OUT_OF_MEMORY, CUDDY_EVENT_RELEASE, cuddy_callback,
    cuddy_event, cuddy_observe, cuddy_unobserve,
};
use cuddy::error::{Error, cuddy_status};
use cuddy::process::{self, PoolOptions};
use machine::*;

const SCHEDULES: [&str; 5] = ["eager", "lazy", "lag:3", "random:1", "random:7"];

/// Runs a scenario under every schedule, with the checker on and this configuration.
fn observed(test: &str, configuration: &str, body: impl Fn(&Machine)) {
    let environment = [("SIMCUDA_MEMORY", "256MiB"), ("CUDDY_CONF", configuration)];
    under(&SCHEDULES, test, &environment, body);
}

/// What the callbacks of a scenario share: each runs in a process of its own.
static STASH: Mutex<Vec<u64>> = Mutex::new(Vec::new());
static EVENTS: Mutex<Vec<cuddy_event_copy>> = Mutex::new(Vec::new());
static MINE: AtomicU64 = AtomicU64::new(0);

/// An event without its stream's pointer, which is not `Send`.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
struct cuddy_event_copy {
    kind: u32,
    device: i32,
    bytes: u64,
    allocated: u64,
    reserved: u64,
    limit: u64,
    stream: usize,
}

/// Keeps a copy of what was told.
fn note(event: *const cuddy_event) {
    // SAFETY: it lives until the callback returns.
    let event = unsafe { *event };
    assert_eq!(event.struct_size, size_of::<cuddy_event>() as u64);
    assert!(event.allocated <= event.reserved, "{event:?}");
    let cuddy_event { kind, device, bytes, allocated, reserved, limit, stream, .. } = event;
    let stream = stream as usize;
    let copy = cuddy_event_copy { kind, device, bytes, allocated, reserved, limit, stream };
    EVENTS.lock().expect("no panic before").push(copy);
}

fn told(kind: u32) -> Vec<cuddy_event_copy> {
    let events = EVENTS.lock().expect("no panic before");
    events.iter().filter(|event| event.kind == kind).copied().collect()
}

fn observe(kinds: u32, callback: cuddy_callback, user: usize) -> u64 {
    let mut name = 0;
    // SAFETY: the callbacks here take what they are given.
    let status = unsafe { cuddy_observe(&mut name, kinds, callback, user as *mut c_void) };
    assert_eq!(status, cuddy_status::CUDDY_OK);
    MINE.store(name, Ordering::Relaxed);
    name
}

fn unobserve(name: u64) {
    assert_eq!(cuddy_unobserve(name), cuddy_status::CUDDY_OK);
}

fn stash(block: u64) {
    STASH.lock().expect("no panic before").push(block);
}

extern "C-unwind" fn frees_one(event: *const cuddy_event, _: *mut c_void) {
    note(event);
    let block = STASH.lock().expect("no panic before").pop();
    if let Some(block) = block {
        process::free(block).expect("live");
    }
}

/// The request that finds no memory gets what a callback frees, whoever used it last.
#[test]
fn a_callback_that_frees_makes_the_request_succeed() {
    observed("a_callback_that_frees_makes_the_request_succeed", "memory_limit:8MiB", |machine| {
        let [one, other] = machine.held_streams();
        let old = malloc_on(8 * MIB, one).expect("fits");
        machine.gate(one, 1);
        machine.fill(one, old, 0x11, 8 * MIB);
        stash(old);
        let name = observe(CUDDY_EVENT_OUT_OF_MEMORY, Some(frees_one), 0);
        let new = malloc_on(8 * MIB - 512, other).expect("what the callback freed");
        machine.fill(other, new, 0x22, 8 * MIB - 512);
        machine.sim.gate_open(1);
        machine.synchronize_all();
        assert_eq!(machine.byte(new), 0x22);
        let events = told(CUDDY_EVENT_OUT_OF_MEMORY);
        let [event] = events[..] else { panic!("{events:?}") };
        assert_eq!((event.device, event.bytes, event.stream), (0, 8 * MIB - 512, other));
        assert_eq!((event.allocated, event.limit), (8 * MIB, 8 * MIB));
        let stats = stats(0);
        assert_eq!((stats.rung_callback_count, stats.out_of_memory_count), (1, 0));
        assert_eq!((stats.malloc_count, stats.hit_count + stats.miss_count), (2, 2));
        unobserve(name);
        machine.assert_clean();
    });
}

/// They are called as long as they make room, and no longer.
#[test]
fn callbacks_are_called_while_they_make_room() {
    observed("callbacks_are_called_while_they_make_room", "memory_limit:8MiB", |machine| {
        for _ in 0..8 {
            let block = malloc(MIB, 0).expect("fits");
            machine.fill(0, block, 1, MIB);
            stash(block);
        }
        let name = observe(CUDDY_EVENT_OUT_OF_MEMORY, Some(frees_one), 0);
        let block = malloc(5 * MIB, 0).expect("five of them are freed");
        machine.fill(0, block, 2, 5 * MIB);
        assert!(told(CUDDY_EVENT_OUT_OF_MEMORY).len() >= 5);
        let rounds = stats(0).rung_callback_count;
        assert!((5..=7).contains(&rounds), "{rounds}");
        assert_eq!(stats(0).out_of_memory_count, 0);
        // Nothing that they free is enough for this, and then they have nothing.
        let Err(Error::OutOfMemory(text)) = malloc(8 * MIB, 0) else { panic!("5 MiB are live") };
        assert!(text.contains("out-of-memory callbacks were called"), "{text}");
        assert!(STASH.lock().expect("no panic").is_empty());
        assert_eq!(stats(0).out_of_memory_count, 1);
        let before = stats(0).rung_callback_count;
        assert!(is_out_of_memory(&malloc(8 * MIB, 0)));
        assert_eq!(stats(0).rung_callback_count, before + 1, "once, if nothing changes");
        assert_eq!(stats(0).out_of_memory_count, 2);
        unobserve(name);
        assert!(is_out_of_memory(&malloc(8 * MIB, 0)));
        assert_eq!(stats(0).rung_callback_count, before + 1, "nobody is there");
        machine.assert_clean();
    });
}

extern "C-unwind" fn allocates(event: *const cuddy_event, _: *mut c_void) {
    note(event);
    // Small blocks are there; what is too large fails without a call of this function.
    stash(malloc(512, 0).expect("there is room for it"));
    assert!(is_out_of_memory(&malloc(100 * MIB, 0)));
    process::empty_cache(0).expect("it works");
    assert!(process::stats(0).is_ok() && process::summary(0).is_ok());
    frees_one(event, std::ptr::null_mut());
    frees_one(event, std::ptr::null_mut());
}

/// A callback may call anything; a request that fails inside it calls nobody.
#[test]
fn a_callback_may_allocate_and_does_not_nest() {
    observed("a_callback_may_allocate_and_does_not_nest", "memory_limit:16MiB", |machine| {
        let old = malloc(14 * MIB, 0).expect("fits");
        machine.fill(0, old, 1, 14 * MIB);
        stash(old);
        let name = observe(CUDDY_EVENT_OUT_OF_MEMORY, Some(allocates), 0);
        let new = malloc(14 * MIB, 0).expect("what the callback freed");
        machine.fill(0, new, 2, 14 * MIB);
        assert_eq!(stats(0).rung_callback_count, 1);
        assert_eq!(stats(0).out_of_memory_count, 1, "the callback's own");
        unobserve(name);
        process::free(new).expect("live");
        assert_eq!(stats(0).allocated, 0);
        machine.synchronize_all();
        machine.assert_clean();
    });
}

extern "C-unwind" fn raises_the_limit(event: *const cuddy_event, _: *mut c_void) {
    note(event);
    process::set_memory_limit(0, 32 * MIB).expect("a limit");
}

#[test]
fn a_callback_may_raise_the_limit() {
    observed("a_callback_may_raise_the_limit", "memory_limit:8MiB", |machine| {
        observe(CUDDY_EVENT_OUT_OF_MEMORY, Some(raises_the_limit), 0);
        let block = malloc(20 * MIB, 0).expect("within the new limit");
        machine.fill(0, block, 1, 20 * MIB);
        assert_eq!((stats(0).limit, stats(0).rung_callback_count), (32 * MIB, 1));
        assert!(is_out_of_memory(&malloc(20 * MIB, 0)));
        machine.synchronize_all();
        machine.assert_clean();
    });
}

/// A pool's own limit is made room under by its own blocks.
#[test]
fn a_callback_helps_a_private_pool() {
    observed("a_callback_helps_a_private_pool", "", |machine| {
        let pool =
            process::pool_create(PoolOptions { device: 0, limit: 4 * MIB, use_on_oom: false });
        let pool = pool.expect("a pool");
        let malloc_in = |bytes| process::malloc_in(pool, bytes, 0, 0, 0, None);
        let old = malloc_in(4 * MIB).expect("fits");
        machine.fill(0, old, 1, 4 * MIB);
        stash(old);
        observe(CUDDY_EVENT_OUT_OF_MEMORY, Some(frees_one), 0);
        let new = malloc_in(3 * MIB).expect("what the callback freed");
        machine.fill(0, new, 2, 3 * MIB);
        assert_eq!(process::pool_stats(pool).expect("a pool").out_of_memory_count, 0);
        assert!(malloc_in(2 * MIB).is_err());
        assert_eq!(process::pool_stats(pool).expect("a pool").out_of_memory_count, 1);
        machine.synchronize_all();
        machine.assert_clean();
    });
}

extern "C-unwind" fn removes_itself(event: *const cuddy_event, user: *mut c_void) {
    frees_one(event, user);
    unobserve(MINE.load(Ordering::Relaxed));
}

#[test]
fn an_observer_may_remove_itself() {
    observed("an_observer_may_remove_itself", "memory_limit:8MiB", |machine| {
        for _ in 0..2 {
            let block = malloc(4 * MIB, 0).expect("fits");
            machine.fill(0, block, 1, 4 * MIB);
            stash(block);
        }
        let name = observe(CUDDY_EVENT_OUT_OF_MEMORY, Some(removes_itself), 0);
        malloc(4 * MIB, 0).expect("what the callback freed");
        assert!(is_out_of_memory(&malloc(4 * MIB, 0)), "it is not called again");
        assert_eq!(cuddy_unobserve(name), cuddy_status::CUDDY_ERROR_INVALID_ARGUMENT);
        assert_eq!(STASH.lock().expect("no panic").len(), 1);
        machine.synchronize_all();
        machine.assert_clean();
    });
}

static INSIDE: Barrier = Barrier::new(2);
static GO_ON: Barrier = Barrier::new(2);
static OVER: AtomicBool = AtomicBool::new(false);

extern "C-unwind" fn waits_for_another_thread(event: *const cuddy_event, _: *mut c_void) {
    note(event);
    INSIDE.wait();
    GO_ON.wait();
    OVER.store(true, Ordering::Release);
}

/// While a callback runs, nobody else is held up: neither hits, nor misses, nor frees.
#[test]
fn a_callback_holds_nobody_up() {
    observed("a_callback_holds_nobody_up", "memory_limit:64MiB", |machine| {
        let name = observe(CUDDY_EVENT_OUT_OF_MEMORY, Some(waits_for_another_thread), 0);
        std::thread::scope(|scope| {
            let asker = scope.spawn(|| is_out_of_memory(&malloc(65 * MIB, 0)));
            INSIDE.wait();
            for round in 0..1000 {
                let block = malloc((1 + round % 7) * MIB + round * 512, 0).expect("room");
                process::free(block).expect("live");
            }
            process::empty_cache(0).expect("it works");
            // Whoever removes it waits for the call.
            let remover = scope.spawn(move || {
                unobserve(name);
                OVER.load(Ordering::Acquire)
            });
            let _ = machine;
            GO_ON.wait();
            assert!(asker.join().expect("no panic"));
            assert!(remover.join().expect("no panic"), "removed before the call was over");
        });
        assert!(stats(0).malloc_count == 1000 && stats(0).miss_count > 1);
    });
}

extern "C-unwind" fn notes(event: *const cuddy_event, _: *mut c_void) {
    note(event);
}

/// What must be reserved by what was told, from `before` on.
fn balance(before: u64) -> u64 {
    let sum = |kind| told(kind).iter().map(|event| event.bytes).sum::<u64>();
    before + sum(CUDDY_EVENT_GROWTH) - sum(CUDDY_EVENT_RELEASE)
}

/// What is told adds up to what is reserved, whatever made it change.
#[test]
fn growth_and_release_add_up() {
    for backing in ["backing:pages", "backing:segments", "caching:off"] {
        observed("growth_and_release_add_up", backing, |machine| {
            let before = malloc(3 * MIB, 0).expect("room");
            let reserved = stats(0).reserved;
            observe(CUDDY_EVENT_GROWTH | CUDDY_EVENT_RELEASE, Some(notes), 0);
            let mut random = Random(3);
            let mut blocks = vec![before];
            for _ in 0..200 {
                match random.below(5) {
                    0..3 => {
                        let block = malloc(1 + random.below(6 * MIB), 0).expect("room");
                        machine.fill(0, block, 1, 1);
                        blocks.push(block);
                    }
                    3 if !blocks.is_empty() => {
                        let block = blocks.swap_remove(random.below(blocks.len() as u64) as usize);
                        process::free(block).expect("live");
                    }
                    _ => drop(process::trim(0, random.below(16 * MIB)).expect("it works")),
                }
                assert_eq!(balance(reserved), stats(0).reserved);
                if blocks.len() > 20 {
                    blocks.drain(..).for_each(|block| process::free(block).expect("live"));
                }
            }
            let pool = process::pool_create(PoolOptions { device: 0, limit: 0, use_on_oom: false })
                .expect("a pool");
            let block = process::malloc_in(pool, 5 * MIB, 0, 0, 0, None).expect("room");
            process::free(block).expect("live");
            process::pool_destroy(pool).expect("a pool");
            assert_eq!(balance(reserved), stats(0).reserved);
            let last = EVENTS.lock().expect("no panic").last().copied().expect("events");
            assert_eq!(last.reserved, stats(0).reserved);
            let counts = [CUDDY_EVENT_GROWTH, CUDDY_EVENT_RELEASE].map(|kind| told(kind).len());
            assert!(counts.iter().all(|&count| count >= 3), "{backing}: {counts:?}");
            machine.synchronize_all();
            machine.assert_clean();
        });
    }
}

/// What the cache serves is told to nobody, and costs no driver call.
#[test]
fn hits_are_told_to_nobody() {
    observed("hits_are_told_to_nobody", "", |_| {
        let all = CUDDY_EVENT_GROWTH | CUDDY_EVENT_RELEASE | CUDDY_EVENT_OUT_OF_MEMORY;
        observe(all, Some(notes), 0);
        for bytes in [4096, MIB] {
            process::free(malloc(bytes, 0).expect("room")).expect("live");
            let calls = stats(0).driver_call_count;
            let events = EVENTS.lock().expect("no panic").len();
            for _ in 0..10_000 {
                process::free(malloc(bytes, 0).expect("room")).expect("live");
            }
            assert_eq!(stats(0).driver_call_count, calls);
            assert_eq!(EVENTS.lock().expect("no panic").len(), events);
        }
    });
}

static CONTEXTS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

extern "C-unwind" fn notes_the_context(event: *const cuddy_event, user: *mut c_void) {
    // SAFETY: the test passes its machine, which outlives the observer.
    let machine = unsafe { &*user.cast::<Machine>() };
    CONTEXTS.lock().expect("no panic").push(machine.context());
    frees_one(event, std::ptr::null_mut());
}

/// A callback finds the caller's context current, and not Cuddy's.
#[test]
fn a_callback_runs_in_the_callers_context() {
    observed("a_callback_runs_in_the_callers_context", "memory_limit:8MiB", |machine| {
        let all = CUDDY_EVENT_GROWTH | CUDDY_EVENT_RELEASE | CUDDY_EVENT_OUT_OF_MEMORY;
        observe(all, Some(notes_the_context), &raw const *machine as usize);
        machine.set_context(0);
        assert!(is_out_of_memory(&malloc(9 * MIB, 0)));
        let block = malloc(8 * MIB, 0).expect("room");
        process::free(block).expect("live");
        process::empty_cache(0).expect("it works");
        let seen = CONTEXTS.lock().expect("no panic");
        assert!(seen.len() >= 3 && seen.iter().all(|&context| context == 0), "{seen:x?}");
    });
}

extern "C-unwind" fn panics(event: *const cuddy_event, _: *mut c_void) {
    note(event);
    panic!("on purpose");
}

#[test]
fn a_panic_of_a_callback_is_not_ours() {
    observed("a_panic_of_a_callback_is_not_ours", "memory_limit:8MiB", |machine| {
        let name = observe(CUDDY_EVENT_OUT_OF_MEMORY, Some(panics), 0);
        assert!(is_out_of_memory(&malloc(9 * MIB, 0)));
        let block = malloc(8 * MIB, 0).expect("room");
        machine.fill(0, block, 1, MIB);
        assert_eq!(told(CUDDY_EVENT_OUT_OF_MEMORY).len(), 1);
        unobserve(name);
        machine.synchronize_all();
        machine.assert_clean();
    });
}

/// A captured stream's requests fail without any call.
#[test]
fn nobody_is_called_in_a_capture() {
    observed("nobody_is_called_in_a_capture", "memory_limit:8MiB", |machine| {
        let stream = machine.held_stream();
        stash(malloc(6 * MIB, 0).expect("room"));
        observe(CUDDY_EVENT_OUT_OF_MEMORY, Some(frees_one), 0);
        let graph = process::graph_begin(0, stream, 0).expect("the stream is free");
        assert!(is_out_of_memory(&malloc_on(4 * MIB, stream)));
        assert_eq!(told(CUDDY_EVENT_OUT_OF_MEMORY).len(), 0);
        process::graph_end(graph).expect("begun");
        malloc_on(4 * MIB, stream).expect("what the callback freed");
        assert_eq!(told(CUDDY_EVENT_OUT_OF_MEMORY).len(), 1);
    });
}

/// What the threads of the next test hold, of which callbacks free some.
static HELD: Mutex<BTreeMap<u64, (u64, usize)>> = Mutex::new(BTreeMap::new());
static HELPED: AtomicU64 = AtomicU64::new(0);

extern "C-unwind" fn frees_somebodys(_: *const cuddy_event, _: *mut c_void) {
    let taken = HELD.lock().expect("no panic").pop_first();
    if let Some((block, _)) = taken {
        process::free(block).expect("live");
        HELPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Threads that allocate, free, observe and cease to: the books agree at the end.
#[test]
fn threads_with_observers_that_come_and_go() {
    observed("threads_with_observers_that_come_and_go", "memory_limit:32MiB", |machine| {
        let context = machine.context();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    machine.set_context(context);
                    let stream = machine.held_stream();
                    let mut random = Random(thread);
                    let mut names = Vec::new();
                    for _ in 0..300 {
                        match random.below(10) {
                            0 => names.push(observe(
                                CUDDY_EVENT_OUT_OF_MEMORY,
                                Some(frees_somebodys),
                                0,
                            )),
                            1 => names.drain(..).for_each(unobserve),
                            2..4 => frees_somebodys(std::ptr::null(), std::ptr::null_mut()),
                            _ => {
                                let bytes = 1 + random.below(4 * MIB);
                                match malloc_on(bytes, stream) {
                                    Ok(block) => {
                                        machine.fill(stream, block, thread as u8, bytes);
                                        let mut held = HELD.lock().expect("no panic");
                                        assert!(held.insert(block, (bytes, stream)).is_none());
                                    }
                                    Err(Error::OutOfMemory(_)) => {}
                                    Err(error) => panic!("{error}"),
                                }
                            }
                        }
                    }
                    names.drain(..).for_each(unobserve);
                });
            }
        });
        let held = std::mem::take(&mut *HELD.lock().expect("no panic"));
        let live: u64 = held.values().map(|(bytes, _)| bytes.div_ceil(512) * 512).sum();
        assert_eq!(stats(0).allocated, live);
        held.keys().for_each(|&block| process::free(block).expect("live"));
        assert!(HELPED.load(Ordering::Relaxed) > 0 && stats(0).rung_callback_count > 0);
        process::empty_cache(0).expect("it works");
        assert_eq!((stats(0).reserved, stats(0).active), (0, 0));
        machine.synchronize_all();
        machine.assert_clean();
    });
}

static WHAT: AtomicU64 = AtomicU64::new(0);

extern "C-unwind" fn ends_a_pool(event: *const cuddy_event, _: *mut c_void) {
    frees_one(event, std::ptr::null_mut());
    process::pool_destroy(WHAT.load(Ordering::Relaxed)).expect("a pool");
}

extern "C-unwind" fn retires_a_stream(event: *const cuddy_event, _: *mut c_void) {
    frees_one(event, std::ptr::null_mut());
    process::stream_retire(0, WHAT.load(Ordering::Relaxed) as usize).expect("open");
}

extern "C-unwind" fn resets_the_device(event: *const cuddy_event, user: *mut c_void) {
    note(event);
    // SAFETY: the test passes its machine, which outlives the observer.
    let machine = unsafe { &*user.cast::<Machine>() };
    machine.reset_device(0);
}

/// A callback may end the pool, the stream or the context that the request is for.
#[test]
fn a_callback_may_end_what_the_request_is_for() {
    observed("a_callback_may_end_what_the_request_is_for", "memory_limit:64MiB", |machine| {
        let pool = PoolOptions { device: 0, limit: 4 * MIB, use_on_oom: false };
        let pool = process::pool_create(pool).expect("a pool");
        let malloc_in = |bytes| process::malloc_in(pool, bytes, 0, 0, 0, None);
        let old = malloc_in(4 * MIB).expect("fits");
        machine.fill(0, old, 1, 4 * MIB);
        stash(old);
        WHAT.store(pool, Ordering::Relaxed);
        let name = observe(CUDDY_EVENT_OUT_OF_MEMORY, Some(ends_a_pool), 0);
        if let Ok(block) = malloc_in(3 * MIB) {
            machine.fill(0, block, 2, 3 * MIB);
            process::free(block).expect("live");
        }
        unobserve(name);
        assert!(malloc_in(MIB).is_err(), "it is gone");

        let stream = machine.held_stream();
        let old = malloc_on(64 * MIB, stream).expect("fits");
        machine.fill(stream, old, 1, 64 * MIB);
        stash(old);
        WHAT.store(stream as u64, Ordering::Relaxed);
        let name = observe(CUDDY_EVENT_OUT_OF_MEMORY, Some(retires_a_stream), 0);
        let new = malloc_on(60 * MIB, stream).expect("what was freed");
        machine.fill(stream, new, 2, 60 * MIB);
        // Retired, it is the program's own business what it is given.
        machine.synchronize(stream);
        process::free(new).expect("live");
        unobserve(name);
        process::empty_cache(0).expect("it works");
        assert_eq!((stats(0).reserved, stats(0).active), (0, 0));
        machine.synchronize_all();
        machine.assert_clean();

        let lost = malloc(64 * MIB, 0).expect("fits");
        let user = &raw const *machine as usize;
        let name = observe(CUDDY_EVENT_OUT_OF_MEMORY, Some(resets_the_device), user);
        let block = malloc(64 * MIB, 0).expect("on the device that starts anew");
        unobserve(name);
        assert!(matches!(process::free(lost), Err(Error::DeviceReset(0)) | Ok(())));
        assert_eq!(stats(0).live_block_count, u64::from(lost != block));
    });
}
