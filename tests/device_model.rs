//! Random programs against a shadow that knows only what an allocator is: live blocks do not
//! overlap, keep their contents, and add up to the counters. The checker judges the order of work.

mod machine;

use std::collections::BTreeMap;
use std::sync::Mutex;

use cuddy::error::Error;
use cuddy::process;
use machine::*;

/// What the shadow knows about a live block.
#[derive(Clone, Copy)]
struct Block {
    bytes: u64,
    value: u8,
    stream: usize,
    other: Option<usize>,
}

impl Block {
    fn rounded(self) -> u64 {
        self.bytes.div_ceil(512) * 512
    }
}

/// A program and its shadow.
struct Program<'m> {
    machine: &'m Machine,
    random: Random,
    streams: Vec<usize>,
    live: BTreeMap<u64, Block>,
    limit: u64,
    refused: u32,
}

impl Program<'_> {
    fn size(&mut self) -> u64 {
        match self.random.below(10) {
            0..5 => 1 + self.random.below(4096),
            5..8 => 1 + self.random.below(MIB),
            8 => 1 + self.random.below(6 * MIB),
            _ => 2 * MIB * (1 + self.random.below(4)),
        }
    }

    fn stream(&mut self) -> usize {
        let index = self.random.below(self.streams.len() as u64) as usize;
        self.streams[index]
    }

    fn probes(bytes: u64) -> [u64; 3] {
        [0, bytes / 2, bytes - 1]
    }

    fn malloc(&mut self) {
        let (bytes, stream) = (self.size(), self.stream());
        let alignment = [0, 0, 0, 4096, 2 * MIB][self.random.below(5) as usize];
        let at = match process::malloc(bytes, alignment, 0, stream) {
            Ok(at) => at,
            Err(Error::OutOfMemory(_)) => {
                self.refused += 1;
                let live: u64 = self.live.values().map(|block| block.rounded()).sum();
                // With pages, what is refused is what the live blocks' pages leave no room for.
                assert!(live + bytes + 4 * MIB * (self.live.len() as u64 + 2) > self.limit);
                return;
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(at % alignment.max(512), 0);
        let block = Block { bytes, value: self.random.next() as u8, stream, other: None };
        let before = self.live.range(..at).next_back();
        assert!(before.is_none_or(|(start, block)| start + block.rounded() <= at), "overlap");
        let after = self.live.range(at..).next();
        assert!(after.is_none_or(|(start, _)| at + block.rounded() <= *start), "overlap");
        for probe in Self::probes(bytes) {
            self.machine.fill(stream, at + probe, block.value, 1);
        }
        self.live.insert(at, block);
    }

    fn pick(&mut self) -> Option<u64> {
        let index = self.random.below(self.live.len().max(1) as u64) as usize;
        self.live.keys().nth(index).copied()
    }

    fn cross(&mut self) {
        let Some(at) = self.pick() else { return };
        let other = self.stream();
        let block = self.live.get_mut(&at).expect("picked");
        if block.other.is_some() || block.stream == other {
            return;
        }
        self.machine.order(block.stream, other);
        for probe in Self::probes(block.bytes) {
            self.machine.fill(other, at + probe, block.value.wrapping_add(1), 1);
        }
        block.value = block.value.wrapping_add(1);
        block.other = Some(other);
        process::record_stream(at, other).expect("live");
    }

    fn free(&mut self) {
        let Some(at) = self.pick() else { return };
        let block = self.live.remove(&at).expect("picked");
        if self.random.below(3) == 0 {
            self.machine.synchronize(block.stream);
            if let Some(other) = block.other {
                self.machine.synchronize(other);
            }
            for probe in Self::probes(block.bytes) {
                assert_eq!(self.machine.byte(at + probe), block.value, "a corrupt block");
            }
        }
        process::free(at).expect("live");
        if self.random.below(4) == 0 {
            assert!(process::free(at).is_err(), "a second free");
        }
    }

    fn check(&self) {
        let stats = stats(0);
        let sum = |each: fn(&Block) -> u64| self.live.values().map(each).sum::<u64>();
        assert_eq!(stats.allocated, sum(|block| block.rounded()));
        assert_eq!(stats.requested, sum(|block| block.bytes));
        assert_eq!(stats.live_block_count, self.live.len() as u64);
        assert_eq!(stats.malloc_count, stats.hit_count + stats.miss_count);
        assert_eq!(stats.malloc_count - stats.free_count, stats.live_block_count);
        assert!(stats.allocated <= stats.active && stats.active <= stats.reserved);
        assert!(stats.reserved <= stats.limit && stats.reserved <= stats.reserved_peak);
        assert_eq!(stats.reserved, self.machine.sim.used(0), "reserved is what the driver gave");
        assert_eq!(stats.out_of_memory_count, u64::from(self.refused));
    }

    fn run(&mut self, steps: u32) {
        for step in 0..steps {
            match self.random.below(100) {
                0..48 => self.malloc(),
                48..60 => self.cross(),
                60..97 => self.free(),
                97 => drop(process::trim(0, self.random.below(self.limit)).expect("it works")),
                98 => drop(process::empty_cache(0).expect("it works")),
                _ => self.machine.synchronize_all(),
            }
            if step % 16 == 0 {
                self.check();
            }
        }
        while !self.live.is_empty() {
            self.free();
        }
        self.check();
        process::empty_cache(0).expect("it works");
        let stats = stats(0);
        assert_eq!((stats.reserved, stats.active, stats.limbo_block_count), (0, 0, 0));
        assert_eq!(self.machine.holdings(), (0, 0, 0));
    }
}

fn program(test: &str, vmm: &str) {
    for (seed, schedule) in (0..).zip(["eager", "lazy", "lag:20", "random:5", "random:6"]) {
        let environment = [
            ("SIMCUDA_SCHEDULE", schedule),
            ("SIMCUDA_CHECKER", "log"),
            ("SIMCUDA_MEMORY", "8GiB"),
            ("SIMCUDA_VMM", vmm),
            ("CUDDY_CONF", "memory_limit:192MiB"),
        ];
        isolated(test, &environment, |machine| {
            machine.use_device(0);
            let (held, borrowed) = (machine.held_stream(), machine.stream());
            let mut program = Program {
                machine,
                random: Random(seed),
                streams: vec![0, 2, held, borrowed],
                live: BTreeMap::new(),
                limit: 192 * MIB,
                refused: 0,
            };
            program.run(3000);
            machine.assert_clean();
        });
    }
}

#[test]
fn random_programs_on_pages() {
    program("random_programs_on_pages", "1");
}

#[test]
fn random_programs_on_segments() {
    program("random_programs_on_segments", "0");
}

#[test]
fn threads_on_streams_of_their_own_and_shared_ones() {
    for schedule in ["eager", "lazy", "lag:50", "random:11"] {
        let environment = [
            ("SIMCUDA_SCHEDULE", schedule),
            ("SIMCUDA_CHECKER", "log"),
            ("SIMCUDA_MEMORY", "8GiB"),
            ("CUDDY_CONF", "memory_limit:512MiB"),
        ];
        let test = "threads_on_streams_of_their_own_and_shared_ones";
        isolated(test, &environment, |machine| {
            let context = machine.use_device(0);
            let held = machine.held_stream();
            let handed_over = Mutex::new(Vec::new());
            let served: u64 = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8)
                    .map(|_| scope.spawn(|| one_thread(machine, context, held, &handed_over)))
                    .collect();
                threads.into_iter().map(|thread| thread.join().expect("it lives")).sum()
            });
            for block in handed_over.into_inner().expect("nobody panicked") {
                process::free(block).expect("live");
            }
            let now = stats(0);
            assert_eq!((now.allocated, now.requested, now.live_block_count), (0, 0, 0));
            assert_eq!((now.malloc_count, now.free_count), (served, served));
            assert_eq!((now.hit_count + now.miss_count, now.out_of_memory_count), (served, 0));
            assert!(machine.sim.used_peak(0) <= 512 * MIB);
            process::empty_cache(0).expect("it works");
            let now = stats(0);
            assert_eq!((now.reserved, now.active, now.limbo_block_count), (0, 0, 0));
            assert_eq!(machine.holdings(), (0, 0, 0));
            machine.assert_clean();
        });
    }
}

/// What each of the threads does; how many blocks it got.
fn one_thread(
    machine: &Machine,
    context: usize,
    held: usize,
    handed_over: &Mutex<Vec<u64>>,
) -> u64 {
    machine.set_context(context);
    let own = machine.stream();
    let streams = [0, 2, held, own];
    let mut random = Random(own as u64);
    let mut live: Vec<u64> = Vec::new();
    let mut served = 0;
    for _ in 0..400 {
        match random.below(10) {
            0..5 => {
                let stream = streams[random.below(4) as usize];
                let most = [2000, 300_000, 3 * MIB][random.below(3) as usize];
                let bytes = 1 + random.below(most);
                // 8 threads hold at most 9 blocks of 3 MiB, and 16 lie between: there is room.
                let block = malloc_on(bytes, stream).expect("it fits");
                served += 1;
                machine.fill(stream, block, 1, bytes);
                let other = streams[random.below(4) as usize];
                if random.below(4) == 0 && other != stream {
                    machine.order(stream, other);
                    machine.fill(other, block, 2, bytes);
                    process::record_stream(block, other).expect("live");
                }
                live.push(block);
            }
            5 if !live.is_empty() => {
                // Another thread will free it.
                let block = live.swap_remove(random.below(live.len() as u64) as usize);
                let mut between = handed_over.lock().expect("nobody panics");
                match between.len() {
                    0..16 => between.push(block),
                    _ => process::free(block).expect("live"),
                }
            }
            6 => {
                let theirs = handed_over.lock().expect("nobody panics").pop();
                theirs.into_iter().for_each(|block| process::free(block).expect("live"));
            }
            7 if random.below(20) == 0 => drop(process::empty_cache(0).expect("it works")),
            _ => {}
        }
        while live.len() > 8 || (random.below(2) == 0 && !live.is_empty()) {
            let block = live.swap_remove(random.below(live.len() as u64) as usize);
            process::free(block).expect("live");
        }
    }
    live.into_iter().for_each(|block| process::free(block).expect("live"));
    machine.synchronize(own);
    machine.destroy_stream(own);
    served
}

#[test]
fn streams_come_and_go_while_their_memory_is_taken() {
    let schedules = ["eager", "lazy", "lag:30", "random:21"];
    for (schedule, share) in schedules.iter().flat_map(|s| [(s, "wait"), (s, "never")]) {
        let configuration = format!("memory_limit:80MiB,share:{share}");
        let environment = [
            ("SIMCUDA_SCHEDULE", *schedule),
            ("SIMCUDA_CHECKER", "log"),
            ("SIMCUDA_MEMORY", "8GiB"),
            ("CUDDY_CONF", &configuration),
        ];
        let test = "streams_come_and_go_while_their_memory_is_taken";
        isolated(test, &environment, |machine| {
            let context = machine.use_device(0);
            std::thread::scope(|scope| {
                for seed in 0..4 {
                    scope.spawn(move || {
                        machine.set_context(context);
                        let mut random = Random(seed);
                        for _ in 0..60 {
                            come_and_go(machine, &mut random);
                        }
                    });
                }
            });
            let never = share == "never";
            let stats = stats(0);
            assert!(never || stats.crossing_count > 0, "{stats:?}");
            assert!(!never || stats.harvest_count > 0 && stats.crossing_count == 0, "{stats:?}");
            process::empty_cache(0).expect("it works");
            assert_eq!((machine::stats(0).reserved, machine.holdings()), (0, (0, 0, 0)));
            machine.assert_clean();
        });
    }
}

/// A stream's life: opened or borrowed, used, with a block freed before its end and one after.
fn come_and_go(machine: &Machine, random: &mut Random) {
    let stream = machine.stream();
    let open = random.below(3) > 0;
    if open {
        process::stream_open(0, stream).expect("a stream");
    }
    let bytes = 1 + random.below(6 * MIB);
    let blocks = [0, 1].map(|_| malloc_on(bytes, stream).expect("4 threads fit"));
    for block in blocks {
        machine.fill(stream, block, 1, 1);
        machine.fill(stream, block + bytes - 1, 1, 1);
    }
    process::free(blocks[0]).expect("live");
    if open {
        process::stream_retire(0, stream).expect("it is open");
    }
    machine.destroy_stream(stream);
    process::free(blocks[1]).expect("live");
}
