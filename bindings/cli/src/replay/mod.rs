//! The replay: a trace, played against an allocator, with every block really used.
//!
//! What a program would do to its memory is [`Workload`]'s, what the allocator's calls cost is
//! [`Meter`]'s; this is the loop between them. The replayer keeps its own books of what is live,
//! and believes the allocator nothing: addresses must be aligned and disjoint, counters must agree.

mod verdict;

use std::collections::BTreeMap;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

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

/// Does a job, in this process. The error is one of the replay's surroundings (trace, driver,
/// device); what the allocator does wrong is in the report.
pub fn run(job: &Job) -> Result<Report, String> {
    let trace = job.source.open().map_err(|error| format!("{}: {error}", job.source.label()))?;
    let machine = Machine::start(job, &trace)?;
    let start = Instant::now();
    let allocator = machine.allocator(job)?;
    let player = Player::new(job, &trace, &machine, allocator);
    let mut player = player.map_err(|error| error.to_string())?;
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
    /// Blocks that the allocator gave out, and how many of them it took back.
    given: u64,
    taken_back: u64,
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
    fn new(
        job: &'a Job,
        trace: &'a Trace,
        machine: &'a Machine,
        allocator: Box<dyn Allocator + 'a>,
    ) -> Result<Self, GpuError> {
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
        let meter = Meter::new(allocator, machine.simulator.as_ref());
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
            given: 0,
            taken_back: 0,
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
            Event::Wait { .. }
                if self.job.sabotage == Some(Sabotage::DropWait { event: index }) => {}
            Event::Wait { waiter, awaited } => {
                self.order(waiter, awaited).map_err(device(index))?
            }
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
        self.given += 1;
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
        self.taken_back += 1;
        self.requested.now -= block.region.bytes;
        self.allocated.now -= block.region.bytes.next_multiple_of(512);
        Ok(())
    }

    fn record(
        &mut self,
        index: usize,
        slot: usize,
        other: Option<StreamNumber>,
    ) -> Result<(), Stop> {
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
            // A byte that cannot be flipped is missed by the self-test, which says so.
            let _ = simulator.flip_byte(block.region.address);
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
    let bar = ProgressBar::new(trace.events.len() as u64).with_finish(ProgressFinish::AndClear);
    let style = ProgressStyle::with_template("{msg}  {wide_bar:.dim}  {percent:>3} %  {eta:>4}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(trace.name.clone());
    bar
}
