//! Several devices: who may use whose memory, and nothing made where nobody asked.

#[macro_use]
mod machine;

use std::ffi::c_void;

use cuddy::error::{Error, cuddy_status};
use cuddy::process;
use machine::*;

const PAGE: u64 = 2 * MIB;
const DEVICES: &str = "3";

fn scenario(test: &str, body: impl Fn(&Machine)) {
    let environment = [("SIMCUDA_MEMORY", "256MiB"), ("SIMCUDA_DEVICES", DEVICES)];
    under(&["eager", "lazy", "random:3"], test, &environment, body);
}

/// Whether a device may use every page of a block.
fn all(machine: &Machine, device: i32, block: u64, bytes: u64) -> bool {
    let mut pages = (block..block + bytes).step_by(PAGE as usize);
    let first = machine.may_use(device, block);
    assert!(pages.all(|page| machine.may_use(device, page) == first), "it may use a part");
    first
}

/// A call of the interface, and what came of it.
type Call<'c> = &'c dyn Fn() -> Result<(), Error>;

#[test]
fn a_peer_may_use_what_there_is_and_what_comes() {
    scenario("a_peer_may_use_what_there_is_and_what_comes", |machine| {
        let before = malloc(3 * PAGE, 0).expect("fits");
        process::enable_peer_access(0, 1).expect("there is a way");
        process::enable_peer_access(0, 1).expect("twice is once");
        let after = malloc(5 * PAGE, 0).expect("fits");
        for (block, bytes) in [(before, 3 * PAGE), (after, 5 * PAGE)] {
            assert!(all(machine, 0, block, bytes) && all(machine, 1, block, bytes));
            assert!(!all(machine, 2, block, bytes));
        }
        // Pages that are mapped elsewhere are the peer's there, too.
        process::free(before).expect("live");
        process::set_memory_limit(0, 8 * PAGE).expect("a device");
        let stream = machine.stream();
        let moved = malloc_on(3 * PAGE, stream).expect("what was freed");
        assert!(all(machine, 1, moved, 3 * PAGE));
        process::disable_peer_access(0, 1).expect("a device");
        process::disable_peer_access(0, 1).expect("twice is once");
        for (block, bytes) in [(moved, 3 * PAGE), (after, 5 * PAGE)] {
            assert!(all(machine, 0, block, bytes) && !all(machine, 1, block, bytes));
        }
        process::free(after).expect("live");
        process::empty_cache(0).expect("the driver works");
        let last = malloc(PAGE, 0).expect("fits");
        assert!(!all(machine, 1, last, PAGE));
        // Nothing was made on the peer, or on the device that nobody named.
        assert_eq!((machine.sim.contexts_created(1), machine.sim.contexts_created(2)), (0, 0));
        process::free(last).expect("live");
        process::free(moved).expect("live");
    });
}

#[test]
fn a_failure_changes_nothing() {
    scenario("a_failure_changes_nothing", |machine| {
        // Three runs of pages, with gaps between them.
        let blocks = [(); 5].map(|()| malloc(2 * PAGE, 0).expect("fits"));
        for at in [1, 3] {
            process::free(blocks[at]).expect("live");
        }
        machine.synchronize_all();
        process::empty_cache(0).expect("the driver works");
        let kept = [blocks[0], blocks[2], blocks[4]];
        let is = |peer: bool| {
            for block in kept {
                assert!(all(machine, 0, block, 2 * PAGE));
                assert_eq!(all(machine, 1, block, 2 * PAGE), peer);
            }
        };
        let before = memory_only(stats(0));
        for enable in [true, false] {
            let set = || match enable {
                true => process::enable_peer_access(0, 1),
                false => process::disable_peer_access(0, 1),
            };
            for after in [false, true] {
                for k in 1..=3 {
                    machine.sim.fault("cuMemSetAccess", k, 0, UNKNOWN, after).expect("there");
                    let error = set().expect_err("the driver fails").to_string();
                    assert!(error.contains("cuMemSetAccess"), "{error}");
                    machine.sim.clear_faults();
                    is(!enable);
                    let block = malloc(PAGE, 0).expect("fits");
                    assert_eq!(all(machine, 1, block, PAGE), !enable);
                    process::free(block).expect("live");
                    process::empty_cache(0).expect("the driver works");
                }
            }
            set().expect("the driver works");
            is(enable);
        }
        assert_eq!(memory_only(stats(0)), before);
        // A mapping that the peer cannot be let into is no mapping.
        process::enable_peer_access(0, 1).expect("there is a way");
        machine.sim.fault("cuMemSetAccess", 2, 0, UNKNOWN, false).expect("there");
        malloc(30 * PAGE, 0).expect_err("the peer's rights fail");
        machine.sim.clear_faults();
        assert_eq!(memory_only(stats(0)), before);
        let block = malloc(30 * PAGE, 0).expect("the driver works");
        assert!(all(machine, 1, block, 30 * PAGE));
    });
}

#[test]
fn memory_waits_for_the_work_of_a_peers_streams() {
    scenario("memory_waits_for_the_work_of_a_peers_streams", |machine| {
        let own = machine.context();
        process::enable_peer_access(0, 1).expect("there is a way");
        let block = malloc(4 * PAGE, 0).expect("fits");
        machine.fill(0, block, 1, 4 * PAGE);
        machine.synchronize_all();
        machine.use_device(1);
        let theirs = machine.stream();
        machine.gate(theirs, 1);
        machine.fill(theirs, block, 2, 4 * PAGE);
        process::record_stream(block, theirs).expect("a peer's stream");
        machine.set_context(own);
        process::free(block).expect("live");
        for _ in 0..3 {
            let other = malloc(4 * PAGE, 0).expect("fits");
            assert_ne!(other, block, "the peer is using it");
            machine.fill(0, other, 3, 4 * PAGE);
            process::free(other).expect("live");
        }
        assert_eq!(machine.context(), own);
        machine.sim.gate_open(1);
        process::empty_cache(0).expect("the driver works");
        assert_eq!((stats(0).reserved, machine.holdings().0), (0, 0));
        machine.assert_clean();
    });
}

#[test]
fn a_free_with_another_device_current_is_booked_where_it_belongs() {
    let test = "a_free_with_another_device_current_is_booked_where_it_belongs";
    scenario(test, |machine| {
        let block = malloc(PAGE, 0).expect("fits");
        let other = machine.use_device(1);
        process::free(block).expect("live");
        assert_eq!(machine.context(), other);
        assert_eq!((stats(0).allocated, stats(0).cached), (0, PAGE));
        assert_eq!((stats(1).allocated, stats(1).free_count), (0, 0));
    });
}

/// With each context current, and none: every function leaves it as it was, and makes nothing.
#[test]
fn the_callers_context_is_left_alone_by_every_function() {
    scenario("the_callers_context_is_left_alone_by_every_function", |machine| {
        let stream = machine.stream();
        let contexts = [machine.context(), machine.create_context(0), machine.use_device(1), 0];
        let block = malloc(PAGE, 0).expect("fits");
        let created = || [0, 1, 2].map(|device| machine.sim.contexts_created(device));
        let before = created();
        let pool =
            process::pool_create(process::PoolOptions { device: 0, limit: 0, use_on_oom: false });
        let pool = pool.expect("room");
        let calls: [(&str, Call<'_>); 22] = [
            ("malloc", &|| process::free(malloc(9 * PAGE, 0)?)),
            ("malloc on a stream", &|| process::free(malloc_on(PAGE, stream)?)),
            ("any stream", &|| process::free(malloc_on(512, process::ANY_STREAM)?)),
            ("record_stream", &|| process::record_stream(block, stream)),
            ("free_on", &|| process::free_on(malloc(512, 0)?, stream)),
            ("note_wait", &|| process::note_wait(0, 0, stream)),
            ("stream_open", &|| process::stream_open(0, stream)),
            ("stream_retire", &|| process::stream_retire(0, stream)),
            ("block_info", &|| process::block_info(block).map(drop)),
            ("in a pool", &|| process::free(process::malloc_in(pool, 512, 0, 0, stream, None)?)),
            ("pool_trim", &|| process::pool_trim(pool, 0).map(drop)),
            ("pin", &|| process::pin(block, 0)),
            ("unpin", &|| process::unpin(block, 0)),
            ("enable_peer_access", &|| process::enable_peer_access(0, 2)),
            ("disable_peer_access", &|| process::disable_peer_access(0, 2)),
            ("set_memory_limit", &|| process::set_memory_limit(0, 64 * PAGE)),
            ("mem_get_info", &|| process::mem_get_info(0).map(drop)),
            ("trim", &|| process::trim(0, PAGE).map(drop)),
            ("tick", &|| process::tick(process::ALL_DEVICES).map(drop)),
            ("stats", &|| process::stats(2).map(drop)),
            ("summary", &|| process::summary(process::ALL_DEVICES).map(drop)),
            ("empty_cache", &|| process::empty_cache(process::ALL_DEVICES).map(drop)),
        ];
        for context in contexts {
            machine.set_context(context);
            // Without one: whatever lies below on the thread's stack goes, too.
            while context == 0 && machine.context() != 0 {
                machine.set_context(0);
            }
            for (name, call) in calls {
                call().unwrap_or_else(|error| panic!("{name}: {error:?}"));
                assert_eq!(machine.context(), context, "{name}");
            }
        }
        assert_eq!(created(), before, "a context was made");
        process::pool_destroy(pool).expect("a pool");
        assert_eq!(machine.context(), 0);
    });
}

#[test]
fn what_cannot_be_is_refused() {
    isolated("what_cannot_be_is_refused", &[("SIMCUDA_DEVICES", "2")], |machine| {
        let status = |outcome: Result<(), Error>| cuddy_status::from(&outcome.expect_err("no"));
        let same = status(process::enable_peer_access(0, 0));
        assert_eq!(same, cuddy_status::CUDDY_ERROR_INVALID_ARGUMENT);
        let none = status(process::enable_peer_access(0, 2));
        assert_eq!(none, cuddy_status::CUDDY_ERROR_INVALID_DEVICE);
        assert_eq!(process::disable_peer_access(1, 0), Ok(()), "it was never used");
        assert_eq!(machine.sim.contexts_created(1), 0);
    });
}

/// Whether the context of a peer may use the allocations of another.
fn may_use_all(machine: &Machine, peer: usize, of: usize) -> bool {
    let current = machine.context();
    machine.set_context(peer);
    let ended = cu!(machine, "cuCtxDisablePeerAccess"(of => usize));
    if ended == 0 {
        assert_eq!(cu!(machine, "cuCtxEnablePeerAccess"(of => usize, 0 => u32)), 0);
    }
    machine.set_context(current);
    ended == 0
}

#[test]
fn a_peers_context_may_use_segments() {
    let segments = [("SIMCUDA_DEVICES", DEVICES), ("CUDDY_CONF", "backing:segments")];
    let schedules = ["eager", "lazy", "random:3"];
    under(&schedules, "a_peers_context_may_use_segments", &segments, |machine| {
        let own = machine.context();
        let before = malloc(3 * PAGE, 0).expect("fits");
        let error = process::enable_peer_access(0, 1).expect_err("nobody uses device 1");
        assert_eq!(cuddy_status::from(&error), cuddy_status::CUDDY_ERROR_NOT_SUPPORTED);
        assert!(error.to_string().contains("no primary context"), "{error}");
        process::disable_peer_access(0, 1).expect("nobody uses anything there");
        assert_eq!(machine.sim.contexts_created(1), 0);
        let peer = machine.use_device(1);
        let theirs = machine.stream();
        machine.set_context(own);
        for (function, enable) in
            [("cuCtxEnablePeerAccess", true), ("cuCtxDisablePeerAccess", false)]
        {
            let set = || match enable {
                true => process::enable_peer_access(0, 1),
                false => process::disable_peer_access(0, 1),
            };
            for has_effect in [false, true] {
                machine.sim.fault(function, 1, 1, UNKNOWN, has_effect).expect("a function");
                let error = set().expect_err("the driver fails").to_string();
                assert!(error.contains(function), "{error}");
                machine.sim.clear_faults();
                assert_eq!(may_use_all(machine, peer, own), !enable);
            }
            set().expect("the driver works");
            set().expect("twice is once");
            assert_eq!(may_use_all(machine, peer, own), enable);
            assert_eq!(machine.context(), own);
            if !enable {
                break;
            }
            let after = malloc(30 * PAGE, 0).expect("fits");
            machine.set_context(peer);
            for block in [before, after] {
                machine.fill(theirs, block, 7, 3 * PAGE);
                process::record_stream(block, theirs).expect("a peer's stream");
            }
            machine.synchronize(theirs);
            machine.set_context(own);
            assert_eq!((machine.byte(before), machine.byte(after + 3 * PAGE - 1)), (7, 7));
            process::free(after).expect("live");
        }
        assert_eq!((machine.sim.contexts_created(1), machine.sim.contexts_created(2)), (1, 0));
    });
}

#[test]
fn a_reset_leaves_peers_their_right_to_segments() {
    let segments = [("SIMCUDA_DEVICES", DEVICES), ("CUDDY_CONF", "backing:segments")];
    checked("a_reset_leaves_peers_their_right_to_segments", &segments, |machine| {
        let own = machine.context();
        let peers = [machine.use_device(1), machine.use_device(2)];
        machine.set_context(own);
        malloc(PAGE, 0).expect("fits");
        process::enable_peer_access(0, 1).expect("there is a way");
        process::enable_peer_access(0, 2).expect("there is a way");
        // The one that is reset loses it, and may have it again.
        machine.reset_device(2);
        let third = machine.use_device(2);
        let own = machine.use_device(0);
        assert!(may_use_all(machine, peers[0], own) && !may_use_all(machine, third, own));
        process::enable_peer_access(0, 2).expect("there is a way");
        assert!(may_use_all(machine, third, own));
        // What comes after the device's own reset is all peers' to use.
        machine.reset_device(0);
        let own = machine.use_device(0);
        process::empty_cache(0).expect("it starts anew");
        malloc(PAGE, 0).expect("fits");
        assert!(may_use_all(machine, peers[0], own) && may_use_all(machine, third, own));
    });
}
