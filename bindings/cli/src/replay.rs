//! The replay: a trace, played against an allocator, with every block really used.
//!
//! What a program would do to its memory is [`Workload`]'s, what the allocator's calls cost is
//! [`Meter`]'s; this is the loop between them. The replayer keeps its own books of what is live,
//! and believes the allocator nothing: addresses must be aligned and disjoint, counters must agree.

use std::collections::BTreeMap;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use crate::allocator::{Allocator, Refusal};
use crate::gpu::{EventHandle, Gpu, GpuError, Stream};
use crate::job::Job;
use crate::machine::Machine;
use crate::meter::Meter;
use crate::report::Report;
use crate::selftest::Sabotage;
use crate::table::bytes_text;
use crate::trace::{Event, StreamNumber, Trace};
use crate::workload::{Region, Workload};

/// Findings that a report spells out; the others are only counted.
const FINDINGS: usize = 10;

/// Does a job, in this process. The error is one of the replay's surroundings (trace, driver,
/// device); what the allocator does wrong is in the report.
pub fn run(job: &Job) -> Result<Report, String> {
    let trace = job.source.open().map_err(|error| format!("{}: {error}", job.source.label()))?;
    let machine = Machine::start(job, &trace)?;
    let start = Instant::now();
    let mut player = Player::new(job, &trace, &machine).map_err(|error| error.to_string())?;
    let outcome = player.play();
    let mut report = player.report(outcome);
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

/// Why a replay stopped before the end of its trace.
enum Stop {
    Allocator { event: usize, doing: String, refusal: Refusal },
    Device { event: usize, error: GpuError },
}

/// A live block, in the replayer's own books.
struct Live {
    region: Region,
    stream: StreamNumber,
    /// The event that allocated it.
    born: usize,
    /// Whether its range is in `placed`.
    placed: bool,
    /// Whether the self-test freed it before its time.
    gone: bool,
}

/// A stream of the trace, made real.
struct Lane {
    stream: Stream,
    event: EventHandle,
}

/// A sum and its highest value.
#[derive(Clone, Copy, Default)]
struct Level {
    now: u64,
    peak: u64,
}

impl Level {
    fn rise(&mut self, by: u64) {
        self.now += by;
        self.peak = self.peak.max(self.now);
    }
}

struct Player<'a> {
    job: &'a Job,
    trace: &'a Trace,
    machine: &'a Machine,
    gpu: &'a Gpu,
    meter: Meter<'a>,
    workload: Workload<'a>,
    lanes: Vec<Lane>,
    /// The stream behind `r ID -1`.
    elsewhere: Option<Lane>,
    /// Whether a further use must be ordered by the replayer, since the trace says no waits.
    orders_uses: bool,
    live: Vec<Option<Live>>,
    /// Live ranges: start to end and the event that allocated it.
    placed: BTreeMap<u64, (u64, usize)>,
    requested: Level,
    allocated: Level,
    /// Physical memory in use before the allocator got any.
    baseline: u64,
    /// On a GPU, where nobody else counts it: the most memory seen in use.
    sampled_peak: u64,
    /// For each reading of the workload: the event that allocated the block, and the reading's.
    readings: Vec<(usize, usize)>,
    misplaced: u64,
    findings: Vec<String>,
}

impl<'a> Player<'a> {
    fn new(job: &'a Job, trace: &'a Trace, machine: &'a Machine) -> Result<Self, GpuError> {
        let gpu = &machine.gpu;
        let reads = |event: &&Event| matches!(event, Event::Free { .. } | Event::Record { .. });
        // Blocks that are never freed are read at the end.
        let readings = trace.events.iter().filter(reads).count() + trace.slots as usize;
        let workload = Workload::new(gpu, readings)?;
        let mut lanes = Vec::new();
        for number in 0..trace.streams {
            let stream = if number == 0 { Stream::DEFAULT } else { gpu.stream()? };
            lanes.push(Lane { stream, event: gpu.event()? });
        }
        let meter = Meter::new(machine.allocator(job), machine.simulator.as_ref());
        Ok(Self {
            job,
            trace,
            machine,
            gpu,
            meter,
            workload,
            lanes,
            elsewhere: None,
            orders_uses: !trace.has_waits(),
            live: (0..trace.slots).map(|_| None).collect(),
            placed: BTreeMap::new(),
            requested: Level::default(),
            allocated: Level::default(),
            baseline: machine.used()?,
            sampled_peak: 0,
            readings: Vec::new(),
            misplaced: 0,
            findings: Vec::new(),
        })
    }

    fn play(&mut self) -> Result<(), Stop> {
        let bar = progress_bar(self.job, self.trace);
        for number in 1..self.trace.streams as usize {
            let stream = self.lanes[number].stream;
            let opened = self.meter.allocator.open_stream(stream);
            opened.map_err(refused(0, || "opening a stream".to_owned()))?;
        }
        let steady = self.trace.steady_state_from();
        for (index, event) in self.trace.events.iter().enumerate() {
            if steady == Some(index) {
                self.meter.begin_steady_state();
            }
            self.spoil_before(index).map_err(device(index))?;
            self.event(index, event)?;
            self.spoil_after(index)?;
            if index % 512 == 0 {
                bar.set_position(index as u64);
            }
        }
        let end = self.trace.events.len();
        self.read_survivors(end).map_err(device(end))?;
        bar.finish_and_clear();
        Ok(())
    }

    fn event(&mut self, index: usize, event: &Event) -> Result<(), Stop> {
        match *event {
            Event::Alloc { slot, stream, bytes } => {
                let block = self.alloc(index, stream, bytes)?;
                self.live[slot as usize] = Some(block);
            }
            Event::Free { slot, stream } => {
                if let Some(block) = self.live[slot as usize].take() {
                    self.free(index, stream, &block)?;
                }
            }
            Event::Record { slot, stream } => self.record(index, slot as usize, stream)?,
            Event::Wait { .. } if self.job.sabotage == Some(Sabotage::DropWait { event: index }) => {}
            Event::Wait { waiter, awaited } => self.order(waiter, awaited).map_err(device(index))?,
            Event::Synchronize => self.gpu.synchronize().map_err(device(index))?,
            Event::EmptyCache => {
                let emptied = self.meter.call(|allocator| allocator.empty_cache());
                emptied.map_err(refused(index, || "emptying the cache".to_owned()))?;
            }
            Event::Marker { .. } => {}
        }
        Ok(())
    }

    fn alloc(&mut self, index: usize, number: StreamNumber, bytes: u64) -> Result<Live, Stop> {
        let stream = self.lanes[number as usize].stream;
        let doing = || format!("allocating {bytes} bytes ({})", bytes_text(bytes));
        let address = self.meter.call(|allocator| allocator.malloc(bytes, stream));
        let address = address.map_err(refused(index, doing))?;
        self.requested.rise(bytes);
        self.allocated.rise(bytes.next_multiple_of(512));
        let seed = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let region = Region { address, bytes, seed };
        let placed = self.place(index, &region);
        self.sample().map_err(device(index))?;
        self.workload.write(&region, stream).map_err(device(index))?;
        Ok(Live { region, stream: number, born: index, placed, gone: false })
    }

    /// Enters a block into the books; `false`, and a finding, if it cannot be where it is said.
    fn place(&mut self, index: usize, region: &Region) -> bool {
        let Region { address, bytes, .. } = *region;
        let end = address.saturating_add(bytes);
        let before = self.placed.range(..end).next_back().filter(|(_, (end, _))| *end > address);
        let wrong = match before {
            _ if address == 0 => Some("a null pointer".to_owned()),
            _ if address % 512 != 0 => Some("an address that is not a multiple of 512".to_owned()),
            Some((_, &(_, born))) => Some(format!("memory of the block of {}", self.line(born))),
            None => None,
        };
        if let Some(wrong) = wrong {
            self.misplaced += 1;
            self.find(format!("{}: the block was given {wrong}, {address:#x}", self.line(index)));
            return false;
        }
        self.placed.insert(address, (end, index));
        true
    }

    fn free(&mut self, index: usize, number: StreamNumber, block: &Live) -> Result<(), Stop> {
        if number != block.stream {
            // The free follows another stream's order: make the block's own stream follow it too.
            self.order(block.stream, number).map_err(device(index))?;
        }
        self.read(index, block, self.lanes[block.stream as usize].stream).map_err(device(index))?;
        if block.placed {
            self.placed.remove(&block.region.address);
        }
        if !block.gone {
            self.give_back(index, block)?;
        }
        Ok(())
    }

    fn give_back(&mut self, index: usize, block: &Live) -> Result<(), Stop> {
        let address = block.region.address;
        let doing = || format!("freeing the block at {address:#x}");
        let freed = self.meter.call(|allocator| allocator.free(address));
        freed.map_err(refused(index, doing))?;
        self.requested.now -= block.region.bytes;
        self.allocated.now -= block.region.bytes.next_multiple_of(512);
        Ok(())
    }

    fn record(&mut self, index: usize, slot: usize, other: Option<StreamNumber>) -> Result<(), Stop> {
        let Some(block) = self.live[slot].take() else { return Ok(()) };
        let outcome = self.use_elsewhere(index, &block, other);
        self.live[slot] = Some(block);
        outcome
    }

    fn use_elsewhere(
        &mut self,
        index: usize,
        block: &Live,
        other: Option<StreamNumber>,
    ) -> Result<(), Stop> {
        let own = self.lanes[block.stream as usize].stream;
        let stream = match other {
            Some(number) => self.lanes[number as usize].stream,
            None => self.elsewhere(index)?,
        };
        if stream != own && (other.is_none() || self.orders_uses) {
            let event = self.lanes[block.stream as usize].event;
            self.gpu.order(stream, own, event).map_err(device(index))?;
        }
        self.read(index, block, stream).map_err(device(index))?;
        let address = block.region.address;
        let recorded = self.meter.call(|allocator| allocator.record_stream(address, stream));
        recorded.map_err(refused(index, || format!("recording a stream on {address:#x}")))
    }

    /// The stream of the replayer's own.
    fn elsewhere(&mut self, index: usize) -> Result<Stream, Stop> {
        if let Some(lane) = &self.elsewhere {
            return Ok(lane.stream);
        }
        let stream = self.gpu.stream().map_err(device(index))?;
        let event = self.gpu.event().map_err(device(index))?;
        let opened = self.meter.allocator.open_stream(stream);
        opened.map_err(refused(index, || "opening a stream".to_owned()))?;
        self.elsewhere = Some(Lane { stream, event });
        Ok(stream)
    }

    fn order(&self, waiter: StreamNumber, awaited: StreamNumber) -> Result<(), GpuError> {
        let (waiter, awaited) = (&self.lanes[waiter as usize], &self.lanes[awaited as usize]);
        self.gpu.order(waiter.stream, awaited.stream, awaited.event)
    }

    fn read(&mut self, index: usize, block: &Live, stream: Stream) -> Result<(), GpuError> {
        self.workload.check(&block.region, stream)?;
        self.readings.push((block.born, index));
        Ok(())
    }

    /// Reads what is still live at the end, and waits for all readings.
    fn read_survivors(&mut self, end: usize) -> Result<(), GpuError> {
        for slot in 0..self.live.len() {
            if let Some(block) = self.live[slot].take() {
                let stream = self.lanes[block.stream as usize].stream;
                self.read(end, &block, stream)?;
                self.live[slot] = Some(block);
            }
        }
        self.gpu.synchronize()
    }

    /// On a GPU under bare driver calls nobody counts what is held: asks the driver at each peak.
    fn sample(&mut self) -> Result<(), GpuError> {
        if self.machine.simulator.is_none()
            && self.allocated.now == self.allocated.peak
            && self.meter.allocator.account().is_none()
        {
            self.sampled_peak = self.sampled_peak.max(self.machine.used()?);
        }
        Ok(())
    }

    /// The self-test's mistakes that come before an event.
    fn spoil_before(&mut self, index: usize) -> Result<(), GpuError> {
        let Some(Sabotage::FlipByte { before }) = self.job.sabotage else { return Ok(()) };
        let Event::Free { slot, .. } = self.trace.events[index] else { return Ok(()) };
        if before == index
            && let (Some(block), Some(simulator)) =
                (&self.live[slot as usize], &self.machine.simulator)
        {
            self.gpu.synchronize()?;
            simulator.flip_byte(block.region.address);
        }
        Ok(())
    }

    /// The self-test's mistakes that come after an event.
    fn spoil_after(&mut self, index: usize) -> Result<(), Stop> {
        let Some(Sabotage::EarlyFree { slot, after }) = self.job.sabotage else { return Ok(()) };
        if after == index
            && let Some(mut block) = self.live[slot as usize].take()
        {
            self.give_back(index, &block)?;
            block.gone = true;
            self.live[slot as usize] = Some(block);
        }
        Ok(())
    }

    fn find(&mut self, finding: String) {
        if self.findings.len() < FINDINGS {
            self.findings.push(finding);
        }
    }

    /// How to name an event to the user.
    fn line(&self, event: usize) -> String {
        match self.trace.lines.get(event) {
            Some(0) => "before the history".to_owned(),
            Some(line) => format!("line {line}"),
            None => "the end of the trace".to_owned(),
        }
    }

    fn report(mut self, outcome: Result<(), Stop>) -> Report {
        let error = outcome.err().map(|stop| self.explain(stop));
        // After a stop, what was queued still has to be waited for before anything is read.
        let drained = self.gpu.synchronize();
        let error = error.or_else(|| drained.err().map(|error| format!("at the end: {error}")));
        let corrupt_blocks = self.corrupt_blocks();
        let account = self.meter.allocator.account();
        let simulator = self.machine.simulator.as_ref();
        let measured = simulator.map(|simulator| simulator.used_peak() - self.baseline);
        let peak_reserved = match account {
            Some(account) => account.reserved.1,
            None => measured.unwrap_or(self.sampled_peak.saturating_sub(self.baseline)),
        };
        let driver_calls = self.driver_calls();
        let mut wrong_counters = Vec::new();
        if self.job.sabotage.is_none() {
            self.audit(&driver_calls, &mut wrong_counters);
        }
        let mut findings = std::mem::take(&mut self.findings);
        if let Some(simulator) = simulator {
            findings.extend(simulator.reports(FINDINGS));
        }
        let total = simulator.map(|simulator| simulator.driver_time_ns());
        let own = total.map(|total| total.saturating_sub(self.meter.driver_ns()));
        Report {
            trace: self.trace.name.clone(),
            events: self.trace.events.len() as u64,
            completed: error.is_none(),
            error,
            peak_requested: self.requested.peak,
            peak_allocated: self.allocated.peak,
            peak_reserved,
            reserved_over_allocated: peak_reserved as f64 / self.allocated.peak.max(1) as f64,
            driver_calls,
            steady_state_driver_calls: self
                .trace
                .steady_state_from()
                .map(|_| self.meter.steady_calls),
            driver_time_us: self.meter.driver_ns() as f64 / 1e3,
            ns_per_op: self.meter.ns_per_op(),
            checker_reports: simulator.map(|simulator| simulator.report_count()),
            corrupt_blocks,
            allocator: self.job.who.to_string(),
            backing: self.job.backing.map(|backing| backing.to_string()),
            device: self.machine.name.clone(),
            simulated: simulator.is_some(),
            device_memory: self.machine.memory,
            schedule: simulator.map(|_| self.job.schedule.to_string()),
            operations: self.meter.operations,
            misplaced_blocks: self.misplaced,
            wrong_counters,
            bytes_written: self.workload.bytes_written,
            bytes_read_back: self.workload.bytes_read_back,
            accesses_checked: simulator.map(|simulator| simulator.accesses_checked()),
            unknown_launches: simulator.map(|simulator| simulator.unknown_launches()),
            replay_driver_calls: self.gpu.calls(),
            replay_driver_time_us: own.map(|ns| ns as f64 / 1e3),
            notes: self.trace.notes.clone(),
            findings,
            summary: self.meter.allocator.summary(),
            ..Report::default()
        }
    }

    fn explain(&mut self, stop: Stop) -> String {
        match stop {
            Stop::Allocator { event, doing, refusal } => {
                format!("{}, {doing}: {}", self.line(event), refusal.text)
            }
            Stop::Device { event, error } => format!("{}: {error}", self.line(event)),
        }
    }

    fn corrupt_blocks(&mut self) -> u64 {
        let wrong = self.workload.wrong_words();
        let mut blocks = std::collections::BTreeSet::new();
        for (reading, &words) in wrong.iter().enumerate().filter(|&(_, &words)| words > 0) {
            let (born, read) = self.readings[reading];
            if blocks.insert(born) {
                let (born, read) = (self.line(born), self.line(read));
                let words = if words == 1 { "1 wrong word".into() } else { format!("{words} wrong words") };
                self.find(format!("the block of {born} was read back with {words} at {read}"));
            }
        }
        blocks.len() as u64
    }

    /// The allocator's driver calls: all of the device's but the replayer's own.
    fn driver_calls(&self) -> BTreeMap<String, u64> {
        let Some(simulator) = &self.machine.simulator else {
            return self.meter.allocator.driver_calls();
        };
        let own = self.gpu.calls();
        let all = simulator.calls().into_iter();
        let rest = all.map(|(name, count)| {
            let own = own.get(&name).copied().unwrap_or(0);
            (name, count.saturating_sub(own))
        });
        rest.filter(|&(_, count)| count > 0).collect()
    }

    /// Compares the allocator's counters with the replayer's books and with the device.
    fn audit(&self, driver_calls: &BTreeMap<String, u64>, wrong: &mut Vec<String>) {
        let Some(account) = self.meter.allocator.account() else { return };
        let mut compare = |what: &str, says: u64, is: u64| {
            if says != is {
                wrong.push(format!("{what} is {is}, the allocator's counter says {says}"));
            }
        };
        compare("bytes requested", account.requested.0, self.requested.now);
        compare("the peak of bytes requested", account.requested.1, self.requested.peak);
        compare("bytes allocated", account.allocated.0, self.allocated.now);
        compare("the peak of bytes allocated", account.allocated.1, self.allocated.peak);
        if let Some(simulator) = &self.machine.simulator {
            compare("memory held", account.reserved.0, simulator.used() - self.baseline);
            compare("the peak of memory held", account.reserved.1, simulator.used_peak() - self.baseline);
            let counted = self.meter.allocator.driver_calls();
            for name in driver_calls.keys().chain(counted.keys()).collect::<std::collections::BTreeSet<_>>() {
                let of = |calls: &BTreeMap<String, u64>| calls.get(name).copied().unwrap_or(0);
                compare(&format!("the number of {name} calls"), of(&counted), of(driver_calls));
            }
        }
    }
}

fn refused(event: usize, doing: impl FnOnce() -> String) -> impl FnOnce(Refusal) -> Stop {
    move |refusal| Stop::Allocator { event, doing: doing(), refusal }
}

fn device(event: usize) -> impl Fn(GpuError) -> Stop {
    move |error| Stop::Device { event, error }
}

fn progress_bar(job: &Job, trace: &Trace) -> ProgressBar {
    if !job.progress {
        return ProgressBar::hidden();
    }
    // Drawn on stderr, and only where that is a terminal.
    let bar = ProgressBar::new(trace.events.len() as u64);
    let style = ProgressStyle::with_template("{msg}  {wide_bar:.dim}  {percent:>3} %  {eta:>4}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(trace.name.clone());
    bar
}
