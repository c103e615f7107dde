#![forbid(unsafe_code)]
//! The books of page-locked host memory: which parts of which driver allocations are whose.
//!
//! A segment is one allocation of the driver, cut into blocks by a heap. Its *kind* is what the
//! driver was told of it (flags), its *band* the power of two that its size lies above. A block is
//! cut only from a segment of its kind that is less than 16 times as large, or of 2 MiB: so a small
//! block never keeps a large segment from going back. To the heap each kind and band is a stream.
//!
//! `requested <= allocated <= active <= reserved`, `active - allocated` being what waits for
//! streams.

use std::collections::HashMap;

use super::waits::{Freed, Use, Waits};
use crate::device::Device;
use crate::error::Error;
use crate::hash::ByNumber;
use crate::heap::{Block, BlockState, FreeError, Heap, PageRun, Request, Standing};
use crate::mutants::mutant;
use crate::size::align_up;
use crate::stats::cuddy_host_stats;
use crate::types::{Address, DeviceId, Stamp, StreamSlot};

/// Small requests share segments of so many bytes.
const SHARED: u64 = 2 << 20;
/// Up to this a request is small.
const SMALL: u64 = 256 << 10;
/// Larger ones get segments of whole pages of the host, in bytes.
const HOST_PAGE: u64 = 4096;
/// log2 of how much larger than a block the segments' band may be that it is cut from.
const BANDS: u32 = 3;
/// Kinds of memory: the driver's three flags.
const KINDS: usize = 8;
/// Bands of one kind.
const ALL_BANDS: u32 = 64;
/// One allocation of the driver.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    pub bytes: u64,
    /// The device whose context it is of.
    pub device: &'static Device,
    /// How often that device had been reset.
    pub generation: u64,
}

/// A free segment on its way back to the driver.
#[derive(Clone, Copy)]
pub(super) struct Departure {
    /// No other has it.
    number: u64,
    pub run: PageRun,
    pub segment: Segment,
    /// The driver failed to take it.
    stuck: bool,
}

/// See the module.
pub(super) struct Books {
    heap: Heap,
    segments: HashMap<u64, Segment, ByNumber>,
    pub waits: Waits,
    /// Live blocks that a reset took away, and the device.
    lost: HashMap<u64, DeviceId, ByNumber>,
    /// Segments that are on their way to the driver, or that it failed to take.
    leaving: Vec<Departure>,
    /// How many there have been.
    departures: u64,
    /// For each kind a bit for each band that has ever had a segment.
    bands: [u64; KINDS],
    /// The most that was ever active.
    most: u64,
    pub stats: cuddy_host_stats,
    /// What was reserved when observers were told last.
    pub reserved_told: u64,
}

/// The bytes of a new segment for a block, first what is wanted, then what is enough.
/// Only what is shared is worth sharing.
pub(super) fn segment_sizes(bytes: u64, shared: bool) -> [u64; 2] {
    let exact = align_up(bytes, HOST_PAGE);
    [if bytes <= SMALL && shared { SHARED } else { exact }, exact]
}

fn slot(kind: u32, band: u32) -> StreamSlot {
    StreamSlot(kind * ALL_BANDS + band)
}

impl Books {
    pub fn new() -> Result<Self, Error> {
        Ok(Self {
            heap: Heap::new(HOST_PAGE)?,
            segments: HashMap::default(),
            waits: Waits::default(),
            lost: HashMap::default(),
            leaving: Vec::new(),
            departures: 0,
            bands: [0; KINDS],
            most: 0,
            stats: cuddy_host_stats {
                struct_size: size_of::<cuddy_host_stats>() as u64,
                ..cuddy_host_stats::default()
            },
            reserved_told: 0,
        })
    }

    /// The counters, with what follows from others.
    pub fn counters(&self) -> cuddy_host_stats {
        let stats = &self.stats;
        let cached = stats.reserved - stats.active - stats.quarantined;
        cuddy_host_stats { cached, ..*stats }
    }

    /// A block out of the smallest segments that have one. With `named` only recorded streams are
    /// waited for after its free.
    pub fn take(
        &mut self,
        bytes: u64,
        requested: u64,
        kind: u32,
        named: bool,
    ) -> Result<Option<Block>, Error> {
        // Room for the free is made now: it never fails.
        self.waits.reserve(self.stats.live_block_count)?;
        let band = bytes.ilog2();
        let most = SHARED.ilog2().max(band + BANDS).min(ALL_BANDS - 1);
        let most = if mutant("host-cuts-from-any-segment") { ALL_BANDS - 1 } else { most };
        let there = self.bands[kind as usize];
        for band in (band..=most).filter(|band| there >> band & 1 == 1) {
            let stamp = Stamp { stream: slot(kind, band), epoch: 0 };
            let request = Request { bytes, requested, alignment: 512, stamp };
            if let Some(block) = self.heap.take(&request)? {
                self.stats.served(block.bytes, block.requested);
                self.most = self.most.max(self.stats.active);
                self.lost.remove(&block.address.0);
                if named {
                    self.waits.trust(block.address);
                }
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// Enters a segment, all of it free.
    pub fn enter(&mut self, start: Address, kind: u32, segment: Segment) -> Result<(), Error> {
        self.end_departures(start, segment.bytes)?;
        self.segments.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
        self.leaving.try_reserve(self.segments.len() + 1).map_err(|_| Error::HostOutOfMemory)?;
        let band = segment.bytes.ilog2();
        let clean = Stamp { stream: slot(kind, band), epoch: 0 };
        self.heap.add_segment(start, segment.bytes, clean)?;
        self.bands[kind as usize] |= 1 << band;
        self.segments.insert(start.0, segment);
        self.stats.grew(segment.bytes);
        Ok(())
    }

    /// Notes that a stream uses a live block. `false` if that is known.
    pub fn note(&mut self, address: Address, used: Use) -> Result<bool, Error> {
        match self.heap.find(address) {
            Some(_) => self.waits.note(address, used),
            None => Err(self.explain(address)),
        }
    }

    /// Frees a live block; `at_once`: whoever frees its segment waits for its uses.
    pub fn free(&mut self, address: Address, at_once: bool) -> Result<Freed, Error> {
        let Some(block) = self.heap.find(address) else { return Err(self.explain(address)) };
        let device = self.device_of(address).ok_or(Error::Internal("a block of no segment"))?;
        let freed = self.heap.release_to_limbo(address, |_| 0);
        freed.map_err(|_| Error::Internal("a live block could not be freed"))?;
        self.stats.freed_to_limbo(block.bytes, block.requested);
        let freed = match at_once {
            true => self.waits.let_go(address),
            false => self.waits.hold(address, block.bytes, device),
        };
        if freed == Freed::AtOnce {
            self.end_limbo(address, block.bytes);
        }
        Ok(freed)
    }

    /// The device that a live block was allocated for.
    pub fn device_of(&self, address: Address) -> Option<&'static Device> {
        let run = self.heap.range_of(address)?;
        Some(self.segments.get(&run.address.0)?.device)
    }

    /// Makes the blocks free whose uses have all passed; how many.
    pub fn settle(&mut self) -> usize {
        let Self { waits, heap, stats, .. } = self;
        waits.settle(|address, bytes| {
            if heap.settle(address).is_ok() {
                stats.settled(bytes);
            }
        })
    }

    fn end_limbo(&mut self, address: Address, bytes: u64) {
        if self.heap.settle(address).is_ok() {
            self.stats.settled(bytes);
        }
    }

    /// By how many bytes the cache has to shrink before a segment of `segment` bytes is added for a
    /// block of `bytes`: what is reserved stays within what was ever active at once, and an eighth
    /// of it or 2 MiB more.
    pub fn excess(&self, bytes: u64, segment: u64) -> u64 {
        if mutant("host-grows-without-bound") {
            return 0;
        }
        let most = self.most.max(self.stats.active + bytes);
        let allowed = most + (most / 8).max(SHARED);
        (self.stats.reserved + segment).saturating_sub(allowed)
    }

    /// Claims free segments of at least so many bytes, or all that there are: nobody else sees them
    /// until their departure ends in one of three ways.
    pub fn claim(&mut self, bytes: u64) -> Result<Vec<Departure>, Error> {
        let mut claimed = Vec::new();
        if bytes == 0 {
            return Ok(claimed);
        }
        claimed.try_reserve(self.segments.len()).map_err(|_| Error::HostOutOfMemory)?;
        for run in self.heap.claim_segments(bytes, &|_| true)? {
            let segment = self.segments.get(&run.address.0).copied();
            let segment = segment.ok_or(Error::Internal("a claimed segment is in no book"))?;
            self.departures += 1;
            let leaving = Departure { number: self.departures, run, segment, stuck: false };
            self.leaving.push(leaving);
            claimed.push(leaving);
        }
        Ok(claimed)
    }

    /// The driver has taken the segment.
    pub fn removed(&mut self, departure: &Departure) -> Result<(), Error> {
        match self.departing(departure) {
            Some(at) => self.end_departure(at),
            // The driver was so quick to hand the addresses out again that this is known.
            None => Ok(()),
        }
    }

    /// The driver failed to take it: it is not used again.
    pub fn keep_stuck(&mut self, departure: &Departure) {
        if let Some(at) = self.departing(departure) {
            self.leaving[at].stuck = true;
            self.stats.quarantined += departure.run.bytes;
        }
    }

    /// It stays.
    pub fn unclaim(&mut self, departure: &Departure) -> Result<(), Error> {
        match self.departing(departure) {
            Some(at) => self.heap.abort_remove(self.leaving.swap_remove(at).run),
            None => Ok(()),
        }
    }

    fn departing(&self, departure: &Departure) -> Option<usize> {
        self.leaving.iter().position(|known| known.number == departure.number)
    }

    /// The driver has handed these addresses out, so what was leaving from there is gone: another
    /// thread has not said so yet, or the driver only seemed to fail.
    fn end_departures(&mut self, start: Address, bytes: u64) -> Result<(), Error> {
        let overlaps = |Departure { run, .. }: &Departure| {
            run.address.0 < start.0.saturating_add(bytes) && start.0 < run.address.0 + run.bytes
        };
        while let Some(at) = self.leaving.iter().position(overlaps) {
            self.end_departure(at)?;
        }
        Ok(())
    }

    fn end_departure(&mut self, at: usize) -> Result<(), Error> {
        let gone = self.leaving.swap_remove(at);
        if gone.stuck {
            self.stats.quarantined -= gone.run.bytes;
        }
        self.drop_segment(gone.run)
    }

    fn drop_segment(&mut self, run: PageRun) -> Result<(), Error> {
        self.heap.commit_remove(run)?;
        self.segments.remove(&run.address.0);
        self.stats.shrank(run.bytes);
        Ok(())
    }

    /// The devices that segments are of, each once.
    pub fn devices(&self) -> Result<Vec<&'static Device>, Error> {
        let mut devices: Vec<&'static Device> = Vec::new();
        for segment in self.segments.values() {
            if devices.iter().all(|known| known.id() != segment.device.id()) {
                devices.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
                devices.push(segment.device);
            }
        }
        Ok(devices)
    }

    /// A device was reset, and with it went all memory of its context: forgets the segments of
    /// other generations than this one. Their live blocks are lost.
    pub fn forget(&mut self, device: DeviceId, generation: u64) -> Result<(), Error> {
        let gone =
            |segment: &Segment| segment.device.id() == device && segment.generation != generation;
        if !self.segments.values().any(gone) {
            return Ok(());
        }
        let is_gone = |segments: &HashMap<u64, Segment, ByNumber>, start: u64| {
            segments.get(&start).is_some_and(gone)
        };
        let mut blocks = Vec::new();
        for view in self.heap.blocks().filter(|view| is_gone(&self.segments, view.segment.0)) {
            blocks.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
            blocks.push(view);
        }
        self.lost.try_reserve(blocks.len()).map_err(|_| Error::HostOutOfMemory)?;
        for view in blocks {
            match view.state {
                BlockState::Live => {
                    self.lost.insert(view.address.0, device);
                    self.waits.forget(view.address);
                    let _ = self.heap.release(view.address, |_| 0);
                    self.stats.freed_to_limbo(view.bytes, view.requested);
                    self.stats.settled(view.bytes);
                    self.stats.free_count -= 1;
                }
                BlockState::Limbo => {
                    self.waits.forget(view.address);
                    self.end_limbo(view.address, view.bytes);
                }
                _ => {}
            }
        }
        // What the driver failed to take it has lost now.
        while let Some(at) = self.leaving.iter().position(|it| it.stuck && gone(&it.segment)) {
            self.end_departure(at)?;
        }
        for run in self.heap.claim_segments(u64::MAX, &|_| true)? {
            match is_gone(&self.segments, run.address.0) {
                true => self.drop_segment(run)?,
                false => self.heap.abort_remove(run)?,
            }
        }
        Ok(())
    }

    /// Why there is no live block at an address.
    fn explain(&self, address: Address) -> Error {
        if let Some(&device) = self.lost.get(&address.0) {
            return Error::DeviceReset(device.0);
        }
        match self.heap.classify(address) {
            Standing::LiveInterior(block) => {
                Error::InteriorPointer { pointer: address, start: block.address }
            }
            Standing::Foreign => Error::ForeignPointer(address),
            _ => FreeError::AlreadyFree.at(address),
        }
    }

    /// Proves that the counters agree with the heap.
    #[cfg(debug_assertions)]
    pub fn check(&self) {
        let (figures, stats) = (self.heap.figures(), &self.stats);
        assert_eq!(figures.allocated, stats.allocated);
        assert_eq!(figures.active, stats.active);
        let segments: u64 = self.segments.values().map(|segment| segment.bytes).sum();
        assert_eq!((segments, self.segments.len() as u64), (stats.reserved, stats.segment_count));
        assert_eq!(self.waits.len() as u64, stats.limbo_block_count);
        assert!(stats.requested <= stats.allocated && stats.allocated <= stats.active);
        assert!(stats.active + stats.quarantined <= stats.reserved);
    }
}
