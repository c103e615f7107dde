//! What caching page-locked memory costs under loads of varied sizes: Cuddy beside two others that do
//! not cut blocks, one rounding to powers of two, one reusing a block for what is at most an eighth
//! smaller and keeping to Cuddy's bound. Cuddy locks less than the first, and takes less of the driver's
//! time than the second. The table:
//!
//! `CUDDY_TEST_SHOW=1 cargo test --test host_policy -- --nocapture`

mod machine;

use std::collections::BTreeMap;

use cuddy::process::{HOST_STREAMS_RECORDED, host_free, host_malloc, host_stats};
use machine::*;

/// What a load does: gets a block of so many bytes, or frees the one that it got so manyeth.
#[derive(Clone, Copy)]
enum Step {
    Get(u64),
    Free(usize),
}

/// Eight batches in flight, each of another size.
fn loader() -> Vec<Step> {
    let mut random = Random(1);
    let mut steps = Vec::new();
    for at in 0..3000 {
        steps.push(Step::Get(32 * MIB + random.below(32 * MIB)));
        if at >= 8 {
            steps.push(Step::Free(at - 8));
        }
    }
    steps
}

/// Batches padded to their longest sentence: ids, a mask and activations of each.
fn tokens() -> Vec<Step> {
    let mut random = Random(2);
    let mut steps = Vec::new();
    for at in 0..1000 {
        let length = 8 * (16 + random.below(240));
        steps.extend([8, 8, 4096].map(|width| Step::Get(64 * length * width)));
        if at >= 4 {
            steps.extend((3 * at - 12..3 * at - 9).map(Step::Free));
        }
    }
    steps
}

/// The same layers out and in again.
fn offload() -> Vec<Step> {
    let sizes =
        [64_300_000, 64_300_000, 172_000_000, 172_000_000, 2_100_000, 1_500_000, 129_700_000];
    let mut steps = Vec::new();
    for round in 0..60 {
        steps.extend(sizes.map(Step::Get));
        steps.extend((0..sizes.len()).rev().map(|at| Step::Free(round * sizes.len() + at)));
    }
    steps
}

/// Blocks of 2 MiB to 256 MiB that live as long as it happens.
fn swap() -> Vec<Step> {
    let mut random = Random(3);
    let (mut live, mut steps, mut count) = (Vec::new(), Vec::new(), 0);
    for _ in 0..4000 {
        if live.len() < 40 || random.below(2) == 0 {
            let scale = 21 + random.below(7);
            steps.push(Step::Get((1 << scale) + random.below(1 << scale)));
            live.push(count);
            count += 1;
        } else {
            let at = random.below(live.len() as u64) as usize;
            steps.push(Step::Free(live.swap_remove(at)));
        }
    }
    steps
}

/// A few large blocks, then many small ones.
fn checkpoints() -> Vec<Step> {
    let mut random = Random(4);
    let (mut steps, mut count, mut small) = (Vec::new(), 0, Vec::new());
    for _ in 0..6 {
        steps.extend((0..6).map(|_| Step::Get(300 * MIB + random.below(600 * MIB))));
        steps.extend((count..count + 6).map(Step::Free));
        count += 6;
        for _ in 0..200 {
            steps.push(Step::Get(2 * MIB + random.below(22 * MIB)));
            small.push(count);
            count += 1;
            if small.len() > 10 {
                steps.push(Step::Free(small.remove(0)));
            }
        }
    }
    steps
}

/// A cache of whole blocks.
#[derive(Default)]
struct Whole {
    powers: bool,
    free: BTreeMap<u64, u64>,
    reserved: u64,
    peak: u64,
    calls: u64,
    nanoseconds: u64,
}

impl Whole {
    fn pin(&mut self, bytes: u64) {
        self.reserved += bytes;
        self.peak = self.peak.max(self.reserved);
        self.calls += 1;
        self.nanoseconds += 200_000 + bytes * 100_000 / MIB;
    }

    fn get(&mut self, bytes: u64, most: u64) -> u64 {
        let wanted = match self.powers {
            true => bytes.next_power_of_two(),
            false => bytes.div_ceil(4096) * 4096,
        };
        let largest = if self.powers { wanted } else { wanted + (wanted / 8).max(2 * MIB) };
        if let Some((&found, _)) = self.free.range(wanted..=largest).next() {
            self.take(found);
            return found;
        }
        let bound = most + (most / 8).max(2 * MIB);
        while !self.powers && self.reserved + wanted > bound {
            let Some((&gone, _)) = self.free.last_key_value() else { break };
            self.take(gone);
            self.reserved -= gone;
            self.calls += 1;
            self.nanoseconds += 200_000;
        }
        self.pin(wanted);
        wanted
    }

    fn take(&mut self, bytes: u64) {
        let count = self.free.get_mut(&bytes).expect("found");
        *count -= 1;
        if *count == 0 {
            self.free.remove(&bytes);
        }
    }

    fn run(&mut self, steps: &[Step]) {
        let (mut got, mut now, mut most) = (Vec::new(), 0, 0);
        for step in steps {
            match *step {
                Step::Get(bytes) => {
                    now += bytes;
                    most = now.max(most);
                    got.push((self.get(bytes, most), bytes));
                }
                Step::Free(at) => {
                    let (held, bytes) = got[at];
                    now -= bytes;
                    *self.free.entry(held).or_insert(0) += 1;
                }
            }
        }
    }
}

/// The peak of what a load asks for.
fn peak(steps: &[Step]) -> u64 {
    let (mut got, mut now, mut most) = (Vec::new(), 0u64, 0);
    for step in steps {
        match *step {
            Step::Get(bytes) => {
                got.push(bytes);
                now += bytes;
            }
            Step::Free(at) => now -= got[at],
        }
        most = now.max(most);
    }
    most
}

#[test]
fn blocks_are_cut_for_a_reason() {
    let environment = [("SIMCUDA_CHECKER", "off"), ("SIMCUDA_MEMORY", "1GiB")];
    isolated("blocks_are_cut_for_a_reason", &environment, |machine| {
        machine.use_device(0);
        println!("load         allocator                locked/peak   driver calls   driver time");
        let loads = [
            ("loader", loader()),
            ("tokens", tokens()),
            ("offload", offload()),
            ("swap", swap()),
            ("checkpoints", checkpoints()),
        ];
        for (name, steps) in loads {
            let most = peak(&steps) as f64;
            let print = |who: &str, locked: u64, calls: u64, nanoseconds: u64| {
                let (ratio, time) = (locked as f64 / most, nanoseconds as f64 / 1e6);
                println!("{name:<12} {who:<24} {ratio:>11.3} {calls:>14} {time:>10.0} ms");
            };
            let others = [true, false].map(|powers| {
                let mut whole = Whole { powers, ..Whole::default() };
                whole.run(&steps);
                let who = if powers { "whole, powers of two" } else { "whole, bounded" };
                print(who, whole.peak, whole.calls, whole.nanoseconds);
                (whole.peak, whole.nanoseconds)
            });
            cuddy::process::host_empty_cache().expect("it works");
            cuddy::process::host_reset_peak_stats().expect("it works");
            machine.sim.clear_calls();
            let before = machine.sim.driver_time_ns();
            let mut got = Vec::new();
            for step in &steps {
                match *step {
                    Step::Get(bytes) => {
                        got.push(host_malloc(bytes, HOST_STREAMS_RECORDED).expect("memory"));
                    }
                    Step::Free(at) => host_free(got[at]).expect("live"),
                }
            }
            let calls = ["cuMemHostAlloc", "cuMemFreeHost"]
                .map(|name| machine.sim.calls(name))
                .iter()
                .sum();
            let stats = host_stats().expect("statistics");
            let time = machine.sim.driver_time_ns() - before;
            print("Cuddy", stats.reserved_peak, calls, time);
            assert!(stats.reserved_peak <= others[0].0, "{name}: more than powers of two");
            assert!(time <= others[1].1 * 21 / 20, "{name}: slower than whole blocks");
            assert!(stats.reserved_peak as f64 <= 1.3 * most, "{name}");
            let mut freed: Vec<bool> = vec![false; got.len()];
            for step in &steps {
                if let Step::Free(at) = *step {
                    freed[at] = true;
                }
            }
            let left = got.iter().zip(&freed).filter(|(_, freed)| !**freed);
            left.for_each(|(&block, _)| host_free(block).expect("live"));
        }
    });
}
