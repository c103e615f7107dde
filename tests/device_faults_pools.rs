//! Driver calls that fail in a short program of pools and of a capture: each call in turn, before its
//! effect or after it. Whatever fails, the caller's context is what it was, no live block changes, the
//! capture is not spoilt by us, and in the end nothing is lost.

mod machine;

use std::collections::BTreeMap;

use cuddy::error::Error;
use cuddy::process::{self, PoolOptions};
use machine::*;

const PAGE: u64 = 2 * MIB;

/// The program, run again and again.
struct Program<'m> {
    machine: &'m Machine,
    context: usize,
    held: usize,
    borrowed: usize,
    errors: u32,
    /// Live blocks, with what they are filled with, if it was not in a capture.
    live: Vec<(u64, u64, Option<u8>)>,
}

impl<'m> Program<'m> {
    fn new(machine: &'m Machine) -> Self {
        let context = machine.use_device(0);
        let (held, borrowed) = (machine.stream(), machine.stream());
        let program = Self { machine, context, held, borrowed, errors: 0, live: Vec::new() };
        process::stream_open(0, held).expect("a stream");
        program
    }

    /// Counts an error, and checks what holds after every call.
    fn note<T>(&mut self, what: &str, outcome: Result<T, Error>) -> Option<T> {
        assert_eq!(
            self.machine.context(),
            self.context,
            "{what}: the caller's context has changed"
        );
        match outcome {
            Ok(value) => Some(value),
            Err(Error::Driver(error)) if error.code == UNKNOWN => {
                self.errors += 1;
                None
            }
            Err(other) => panic!("{what}: {other:?}"),
        }
    }

    fn malloc(&mut self, pool: u64, bytes: u64, stream: usize, fill: bool) -> Option<u64> {
        let outcome = process::malloc_in(pool, bytes, 0, 0, stream, None);
        let at = self.note("malloc", outcome)?;
        let value = fill.then_some(self.live.len() as u8 + 1);
        if let Some(value) = value {
            self.machine.fill(stream, at, value, bytes);
        }
        self.live.push((at, bytes, value));
        Some(at)
    }

    fn free(&mut self, at: Option<u64>) {
        let Some(at) = at else { return };
        let index = self.live.iter().position(|(start, ..)| *start == at).expect("it is live");
        let (_, bytes, value) = self.live.swap_remove(index);
        if let Some(value) = value {
            self.machine.synchronize_all();
            for at in (at..at + bytes).step_by(PAGE as usize).chain([at + bytes - 1]) {
                assert_eq!(self.machine.byte(at), value, "a live block has changed");
            }
        }
        assert_eq!(process::free(at), Ok(()), "a free may not fail");
        assert_eq!(self.machine.context(), self.context);
    }

    /// Pools: made, used, emptied, limited, destroyed before their last block and after it.
    fn pools(&mut self) {
        for early in [true, false] {
            let options = PoolOptions { device: 0, limit: 0, use_on_oom: true };
            let made = process::pool_create(options);
            let Some(pool) = self.note("pool_create", made) else { continue };
            let small = self.malloc(pool, 3000, 0, true);
            let large = self.malloc(pool, 5 * PAGE, self.held, true);
            let other = self.malloc(process::DEFAULT_POOL, 2 * PAGE, self.borrowed, true);
            if let Some(large) = large {
                let outcome = process::record_stream(large, self.borrowed);
                self.note("record_stream", outcome);
            }
            self.free(large);
            let again = self.malloc(pool, 3 * PAGE, self.borrowed, true);
            let outcome = process::pool_trim(pool, 4 * PAGE);
            self.note("pool_trim", outcome);
            let outcome = process::pool_set_limit(pool, 8 * PAGE);
            self.note("pool_set_limit", outcome);
            self.free(small);
            // As much as the pool may have: what other streams freed has to make room.
            let most = self.malloc(pool, 5 * PAGE, self.held, true);
            if early {
                assert_eq!(process::pool_destroy(pool), Ok(()));
            }
            for block in [again, most, other] {
                self.free(block);
            }
            if !early {
                assert_eq!(process::pool_destroy(pool), Ok(()));
            }
            assert_eq!(self.machine.context(), self.context);
        }
    }

    /// A capture: blocks of its own, one that it uses from outside, and frees beside it.
    fn capture(&mut self) {
        let outside = self.malloc(process::DEFAULT_POOL, PAGE, self.held, true);
        let begun = process::graph_begin(0, self.held, 0);
        let Some(graph) = self.note("graph_begin", begun) else { return self.free(outside) };
        self.machine.begin_capture(self.held);
        let first = self.malloc(0, PAGE, self.held, false);
        let second = self.malloc(0, 3000, self.held, false);
        for block in [first, second].into_iter().flatten() {
            self.machine.fill(self.held, block, 1, 512);
        }
        self.free(first);
        let third = self.malloc(0, PAGE, self.held, false);
        // Beside the capture: another stream's block that goes to limbo meanwhile.
        let beside = self.malloc(process::DEFAULT_POOL, 2 * PAGE, self.borrowed, false);
        if let Some(beside) = beside {
            let outcome = process::record_stream(beside, 0);
            self.note("record_stream", outcome);
        }
        self.free(beside);
        self.machine.end_capture(self.held);
        assert_eq!(process::graph_end(graph), Ok(()));
        self.free(outside);
        self.free(second);
        assert_eq!(process::graph_destroy(graph, self.held), Ok(()));
        self.free(third);
        let outcome = process::tick(0);
        self.note("tick", outcome);
    }

    fn run(&mut self) {
        self.pools();
        self.capture();
        let outcome = process::empty_cache(0);
        self.note("empty_cache", outcome);
        assert!(self.live.is_empty());
    }

    /// After the faults are gone: nothing is held.
    fn check(&mut self, what: &str) {
        self.machine.sim.clear_faults();
        self.machine.synchronize_all();
        assert!(process::empty_cache(0).is_ok());
        let now = stats(0);
        assert_eq!((now.requested, now.allocated, now.active), (0, 0, 0), "{what}");
        assert_eq!((now.live_block_count, now.limbo_block_count), (0, 0), "{what}");
        assert_eq!((now.reserved, now.quarantined, now.unmapped), (0, 0, 0), "{what}");
        assert_eq!(self.machine.holdings(), (0, 0, 0), "{what}");
        assert_eq!(self.machine.sim.objects("reservations"), 1, "{what}: addresses are lost");
        assert!(self.machine.sim.objects("events") <= 40, "{what}: events are lost");
    }
}

/// Fails each call of each function that the program makes.
fn sweep(test: &str, schedule: &str) {
    let environment =
        [("SIMCUDA_MEMORY", "1GiB"), ("SIMCUDA_SCHEDULE", schedule), ("SIMCUDA_CHECKER", "log")];
    isolated(test, &environment, |machine| {
        let mut program = Program::new(machine);
        program.run();
        assert_eq!(program.errors, 0);
        program.check("without a fault");
        let calls = || process::driver_calls().into_iter().collect::<BTreeMap<_, _>>();
        let before = calls();
        program.run();
        program.check("without a fault");
        let made: Vec<_> = calls()
            .into_iter()
            .map(|(name, count)| (name, count - before.get(name).copied().unwrap_or(0)))
            .filter(|(name, count)| *count > 0 && !NEVER_FAIL.contains(name))
            .collect();
        assert!(made.len() >= 12, "{made:?}");
        let mut struck = 0;
        for (function, count) in made {
            for after in [false, true] {
                // Enough of those that come by the dozen.
                for k in (1..=count).step_by(1 + count as usize / 25) {
                    match machine.sim.fault(function, k, 0, UNKNOWN, after) {
                        Ok(()) => {}
                        // It hands out an object, which nobody could give back.
                        Err(_) if after => break,
                        Err(error) => panic!("{function}: {error:?}"),
                    }
                    let fired = machine.sim.faults_fired();
                    program.run();
                    struck += machine.sim.faults_fired() - fired;
                    program.check(&format!("{function} {k} after: {after}"));
                }
            }
        }
        assert!(struck > 150, "only {struck} faults have struck");
        let reports = machine.sim.reports();
        assert!(reports.is_empty(), "{}", reports[0]);
    });
}

/// The program calls these by itself, in its checks.
const NEVER_FAIL: [&str; 2] = ["cuCtxGetCurrent", "cuCtxSynchronize"];

#[test]
fn every_call_in_pools_and_captures_fails_once() {
    sweep("every_call_in_pools_and_captures_fails_once", "eager");
}

#[test]
fn every_call_in_pools_and_captures_fails_once_on_a_lazy_device() {
    sweep("every_call_in_pools_and_captures_fails_once_on_a_lazy_device", "lazy");
}

#[test]
fn every_call_in_pools_and_captures_fails_once_in_random_order() {
    sweep("every_call_in_pools_and_captures_fails_once_in_random_order", "random:3");
}

#[test]
fn addresses_that_went_back_after_all_are_not_given_back_again() {
    let test = "addresses_that_went_back_after_all_are_not_given_back_again";
    isolated(test, &[("SIMCUDA_MEMORY", "1GiB")], |machine| {
        let make = || {
            let options = PoolOptions { device: 0, limit: 0, use_on_oom: false };
            process::pool_create(options).expect("room for a pool")
        };
        let malloc = |pool| process::malloc_in(pool, PAGE, 0, 0, 0, None);
        let first = make();
        let block = malloc(first).expect("fits");
        process::free(block).expect("live");
        machine.sim.fault("cuMemAddressFree", 1, 0, UNKNOWN, true).expect("a function");
        process::pool_destroy(first).expect("a pool");
        machine.sim.clear_faults();
        // The driver has taken them, whatever it said, and hands them out again.
        let second = make();
        assert_eq!(malloc(second), Ok(block));
        process::free(block).expect("live");
        process::pool_empty_cache(second).expect("the driver works");
        process::empty_cache(0).expect("the driver works");
        assert_eq!(malloc(second), Ok(block), "its addresses are its own");
        process::free(block).expect("live");
        process::pool_destroy(second).expect("a pool");
        process::empty_cache(0).expect("the driver works");
        assert_eq!(machine.sim.objects("reservations"), 1);
    });
}
