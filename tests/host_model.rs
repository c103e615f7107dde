//! Random programs on page-locked host memory against a shadow that knows only what an allocator
//! is: live blocks do not overlap, what was copied from them is what the host wrote, and they add
//! up to the counters. The checker judges the order of work.

#[macro_use]
mod machine;

use std::collections::BTreeMap;
use std::ffi::c_void;

use cuddy::error::Error;
use cuddy::process::{
    self, HOST_PORTABLE, HOST_STREAMS_RECORDED, host_empty_cache, host_free, host_malloc,
    host_record_stream, host_stats,
};
use machine::*;

/// Bytes at the ends and in the middle of a block that are written and copied.
const CELL: u64 = 64;

/// A stream, and the context that is to be current when work is given to it.
#[derive(Clone, Copy)]
struct Stream {
    handle: usize,
    context: usize,
    device: u64,
}

#[derive(Clone)]
struct Block {
    bytes: u64,
    value: u8,
    /// Only recorded streams are waited for.
    named: bool,
    recorded: bool,
    /// The streams that used it, by place.
    used: Vec<usize>,
    /// A stream writes to it: nobody else touches it again.
    received: bool,
}

struct Program<'m> {
    machine: &'m Machine,
    random: Random,
    streams: Vec<Stream>,
    live: BTreeMap<u64, Block>,
    /// What device memory must hold in the end: address and value.
    copies: Vec<(u64, u8)>,
    /// The next cell to copy to, for each device.
    next: [u64; 2],
    /// Memory of each device: copies go up from its start.
    targets: [u64; 2],
    most: u64,
    refused: u64,
    /// How many kinds of memory are asked for.
    kinds: u64,
    /// Calls of the driver fail now and then.
    faulty: bool,
}

/// Cells for copies, on each device.
const CELLS: u64 = 16 << 10;

impl Program<'_> {
    fn size(&mut self) -> u64 {
        match self.random.below(12) {
            0..5 => CELL + self.random.below(4096),
            5..9 => CELL + self.random.below(MIB),
            9 | 10 => CELL + self.random.below(5 * MIB),
            _ => 4 * MIB * (1 + self.random.below(4)),
        }
    }

    fn cells(bytes: u64) -> [u64; 3] {
        [0, (bytes - CELL) / 2 / 8 * 8, bytes - CELL]
    }

    fn malloc(&mut self) {
        let bytes = self.size();
        let named = self.random.below(2) == 0;
        let flags = [0, HOST_PORTABLE][self.random.below(self.kinds) as usize];
        if self.random.below(50) == 0 && !self.faulty {
            self.machine.sim.fault("cuMemHostAlloc", 1, 0, OUT_OF_MEMORY, false).expect("a fault");
        }
        let calls = self.machine.sim.calls("cuMemHostAlloc");
        let got = host_malloc(bytes, flags | if named { HOST_STREAMS_RECORDED } else { 0 });
        if !self.faulty {
            self.machine.sim.clear_faults();
        }
        let at = match got {
            Ok(at) => at,
            Err(Error::OutOfMemory(_)) => {
                // Nothing was there that could be waited for.
                assert_eq!(host_stats().expect("statistics").limbo_block_count, 0);
                self.refused += 1;
                return;
            }
            Err(Error::Driver(_)) if self.faulty => return,
            Err(error) => panic!("{error}"),
        };
        let before = self.live.range(..at).next_back();
        assert!(before.is_none_or(|(start, block)| start + block.bytes <= at), "overlap");
        let after = self.live.range(at..).next();
        assert!(after.is_none_or(|(start, _)| at + bytes <= *start), "overlap");
        let value = 1 + self.random.below(255) as u8;
        for cell in Self::cells(bytes) {
            self.machine.sim.host_write(at + cell, CELL, "the host").expect("page-locked");
            let to = std::ptr::with_exposed_provenance_mut::<u8>((at + cell) as usize);
            // SAFETY: the block is live memory of this process, and the cell lies in it.
            unsafe { to.write_bytes(value, CELL as usize) };
        }
        let stats = host_stats().expect("statistics");
        if self.machine.sim.calls("cuMemHostAlloc") == calls {
            assert!(stats.reserved <= self.most || stats.reserved <= stats.reserved_peak);
        }
        self.most = self.most.max(stats.active);
        let used = Vec::new();
        let block = Block { bytes, value, named, recorded: false, used, received: false };
        self.live.insert(at, block);
    }

    fn pick(&mut self) -> Option<u64> {
        let index = self.random.below(self.live.len().max(1) as u64) as usize;
        self.live.keys().nth(index).copied()
    }

    /// A stream copies from a block, or to it.
    fn copy(&mut self) {
        let Some(at) = self.pick() else { return };
        let which = self.random.below(self.streams.len() as u64) as usize;
        let Stream { handle, context, device } = self.streams[which];
        let block = self.live.get_mut(&at).expect("picked");
        if block.received || self.next[device as usize] + 3 > CELLS {
            return;
        }
        // What all work of the own context waits for, another device's work does not.
        let must = block.named || block.recorded || device == 1;
        // Once one is recorded, all are: those before were not.
        let may = block.recorded || block.used.is_empty() || block.named;
        let record = must || (may && self.random.below(2) == 0);
        if record && !may {
            return;
        }
        let receive = block.used.is_empty() && self.random.below(4) == 0;
        let (bytes, value) = (block.bytes, block.value);
        if record {
            match host_record_stream(at, handle) {
                Ok(()) => block.recorded = true,
                // Nobody uses what could not be recorded.
                Err(Error::Driver(_) | Error::InvalidStream(_)) if self.faulty => return,
                Err(error) => panic!("{error}"),
            }
        }
        block.used.push(which);
        block.received = receive;
        self.machine.set_context(context);
        for cell in Self::cells(bytes) {
            let place = self.next[device as usize];
            self.next[device as usize] += 1;
            let target = self.targets[device as usize] + place * CELL;
            let (host, length) = ((at + cell) as usize, CELL as usize);
            let code = match receive {
                true => cu!(self.machine, "cuMemcpyDtoHAsync_v2"(
                    host => usize, target => u64, length => usize, handle => usize
                )),
                false => cu!(self.machine, "cuMemcpyHtoDAsync_v2"(
                    target => u64, host => usize, length => usize, handle => usize
                )),
            };
            assert_eq!(code, 0);
            if !receive {
                self.copies.push((target + CELL - 1, value));
            }
        }
        self.machine.set_context(self.streams[0].context);
    }

    fn free(&mut self) {
        let Some(at) = self.pick() else { return };
        self.live.remove(&at);
        host_free(at).expect("live");
        if self.random.below(4) == 0 {
            assert!(host_free(at).is_err(), "a second free");
        }
    }

    fn finish(&mut self) {
        for context in [self.streams[4].context, self.streams[0].context] {
            self.machine.set_context(context);
            self.machine.synchronize_all();
        }
        for (at, value) in self.copies.drain(..) {
            assert_eq!(self.machine.byte(at), value, "copied from a block that was reused");
        }
    }

    fn check(&self) {
        let stats = host_stats().expect("statistics");
        let sum = |each: fn(&Block) -> u64| self.live.values().map(each).sum::<u64>();
        assert_eq!(stats.requested, sum(|block| block.bytes));
        assert_eq!(stats.allocated, sum(|block| block.bytes.div_ceil(512) * 512));
        assert_eq!(stats.live_block_count, self.live.len() as u64);
        assert_eq!(stats.malloc_count, stats.hit_count + stats.miss_count);
        assert_eq!(stats.malloc_count - stats.free_count, stats.live_block_count);
        assert!(stats.allocated <= stats.active && stats.active <= stats.reserved);
        assert_eq!(stats.cached, stats.reserved - stats.active - stats.quarantined);
        assert_eq!(stats.reserved, self.machine.sim.objects("host_allocation_bytes"));
        assert_eq!(stats.segment_count, self.machine.sim.objects("host_allocations"));
        assert_eq!(stats.out_of_memory_count, self.refused);
    }

    fn run(&mut self, steps: u32) {
        for step in 0..steps {
            match self.random.below(100) {
                0..40 => self.malloc(),
                40..62 => self.copy(),
                62..96 => self.free(),
                96 => assert!(host_empty_cache().is_ok() || self.faulty),
                97 => self.finish(),
                _ => self.machine.synchronize(self.streams[1].handle),
            }
            if step % 16 == 0 {
                self.check();
            }
        }
        while !self.live.is_empty() {
            self.free();
        }
        self.finish();
        self.check();
        self.machine.sim.clear_faults();
        host_empty_cache().expect("it works");
        let stats = host_stats().expect("statistics");
        assert_eq!((stats.active, stats.limbo_block_count), (0, 0));
        assert_eq!(stats.reserved, stats.quarantined);
        assert_eq!(self.machine.sim.objects("host_allocation_bytes"), stats.quarantined);
        if self.faulty {
            assert!(self.machine.sim.faults_fired() > 20);
            return;
        }
        assert_eq!(stats.quarantined, 0);
        assert!(stats.hit_count > stats.miss_count, "{stats:?}");
        // What is left of segments, and memory of one kind that is of no use to the other.
        let bound = stats.active_peak * 5 / 4 + 4 * MIB;
        assert!(stats.reserved_peak <= bound, "{} of {}", stats.reserved_peak, stats.active_peak);
    }
}

/// What only Cuddy calls while the program runs.
const FUNCTIONS: [&str; 8] = [
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuCtxRecordEvent",
    "cuThreadExchangeStreamCaptureMode",
];

#[test]
fn random_programs() {
    programs("random_programs", false);
}

#[test]
fn random_programs_with_failing_calls() {
    programs("random_programs_with_failing_calls", true);
}

fn programs(test: &str, faulty: bool) {
    let drivers = ["13000", "12040"];
    let schedules = ["eager", "lazy", "lag:20", "random:5", "random:6", "random:7"];
    for (seed, schedule) in (0..).zip(schedules) {
        for driver in drivers {
            let environment = [
                ("SIMCUDA_SCHEDULE", schedule),
                ("SIMCUDA_CHECKER", "log"),
                ("SIMCUDA_MEMORY", "1GiB"),
                ("SIMCUDA_DEVICES", "2"),
                ("SIMCUDA_DRIVER", driver),
            ];
            isolated(test, &environment, |machine| {
                machine.ends_within(100);
                let there = machine.use_device(1);
                let stream = |device: i32, open: bool| {
                    let stream = machine.stream();
                    if open {
                        process::stream_open(device, stream).expect("a stream");
                    }
                    stream
                };
                let far = Stream { handle: stream(1, true), context: there, device: 1 };
                let here = machine.use_device(0);
                let near = |handle| Stream { handle, context: here, device: 0 };
                let streams =
                    vec![near(0), near(stream(0, true)), near(stream(0, false)), near(2), far];
                let targets = [0, 1].map(|device| {
                    let at = malloc(CELLS * CELL, device).expect("room");
                    machine.set_context([here, there][device as usize]);
                    // Written once, so that copies to the host find something.
                    machine.fill(0, at, 0, CELLS * CELL);
                    machine.synchronize_all();
                    at
                });
                machine.set_context(here);
                let mut program = Program {
                    machine,
                    random: Random(seed),
                    streams,
                    live: BTreeMap::new(),
                    copies: Vec::new(),
                    next: [0, 0],
                    targets,
                    most: 0,
                    refused: 0,
                    kinds: 1 + seed % 2,
                    faulty,
                };
                for (number, function) in FUNCTIONS.iter().enumerate().filter(|_| faulty) {
                    let number = seed * 100 + number as u64;
                    machine.sim.fault_random(function, 20_000, number, UNKNOWN).expect("a fault");
                }
                program.run(3000);
                machine.assert_clean();
            });
        }
    }
}
