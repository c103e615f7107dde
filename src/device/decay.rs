#![forbid(unsafe_code)]
//! Decay: memory that nobody needed for a time goes back, by a call that comes anyway: at the end of a
//! miss, or in a tick of an idle program. There is no thread, and a hit reads no clock.
//!
//! Time passes in *windows* of `decay_ms` or more. What was reserved beyond the most that was active at
//! once in a window was not needed in it: `floor == active peak of the window`, and down to that free
//! memory is given back whose last use is over. Nobody waits: what is still in use goes in a later call.

use std::time::{Duration, Instant};

use super::books::Books;
use super::reclaim::Stop;
use super::wait::{Until, Wait};
use super::work::{Turn, Work, latest};
use super::{Device, Store};
use crate::error::Error;
use crate::mutants::mutant;
use crate::options::Options;
use crate::types::Stamp;

/// Where a device stands in its window.
#[derive(Debug, Default)]
pub(super) struct Decay {
    /// When the window began.
    begun: Option<Instant>,
    /// The active peak that callers see goes on over the windows: that of before this one.
    peak_before: u64,
    /// Down to so many reserved bytes memory goes back.
    floor: Option<u64>,
}

impl Books {
    /// The most that was active at once since the peaks were reset.
    pub(super) fn active_peak(&self) -> u64 {
        self.stats.active_peak.max(self.decay.peak_before)
    }

    /// Every peak becomes what is now.
    pub(super) fn reset_peaks(&mut self) {
        // Inside a window the peak has to be kept for the window.
        self.stats.reset_peaks();
        self.decay.peak_before = 0;
        self.decay.begun = None;
    }

    /// Ends the window if it is old enough, and begins the next one. How far memory may go back.
    fn turn_window(&mut self, now: Instant, length: Duration, waste: u64) {
        let begun = self.decay.begun;
        if begun.is_some_and(|begun| now.saturating_duration_since(begun) < length) {
            return;
        }
        let (peak, reserved) = (self.stats.active_peak, self.stats.reserved);
        let peak = if mutant("decay-forgets-the-peak") { self.stats.active } else { peak };
        let unused = u128::from(reserved.saturating_sub(peak));
        let much = unused * 100 > u128::from(waste) * u128::from(reserved);
        self.decay.floor = (begun.is_some() && much).then_some(peak);
        self.decay.begun = Some(now);
        self.decay.peak_before = self.active_peak();
        self.stats.active_peak = self.stats.active;
    }

    /// How many bytes are to go back now.
    fn decayed(&mut self) -> u64 {
        let Some(floor) = self.decay.floor else { return 0 };
        // What this window has needed so far is needed.
        let excess = self.stats.reserved.saturating_sub(floor.max(self.stats.active_peak));
        if excess == 0 {
            self.decay.floor = None;
        }
        excess
    }
}

impl Device {
    /// Lets time pass for an idle program: what the driver failed to take back is tried again, what
    /// destroyed pools leave goes back, and so does what has decayed. Waits for nobody. How many
    /// bytes were given back.
    pub(crate) fn tick(&self) -> Result<u64, Error> {
        self.look_for_captures()?;
        let before = self.books.lock().stats.reserved;
        {
            let mut work = match Work::begin(self, None) {
                Ok(Turn::Mine(work)) => work,
                Ok(Turn::Reset) | Err(Error::Shutdown) => return Ok(0),
                Err(error) => return Err(error),
            };
            work.retry_stuck()?;
            work.reap()?;
            work.outcome()?;
        }
        match self.decay() {
            Ok(()) | Err(Error::Shutdown) => {
                Ok(before.saturating_sub(self.books.lock().stats.reserved))
            }
            Err(error) => Err(error),
        }
    }

    /// Gives back what has decayed, if anything has.
    pub(super) fn decay(&self) -> Result<(), Error> {
        let (decay_ms, decay_waste) = (self.options.decay_ms, self.options.decay_waste);
        // What a capture uses is not to be fenced.
        if decay_ms == Options::NO_LIMIT || self.may_capture() || mutant("decay-never") {
            return Ok(());
        }
        let (now, length) = (Instant::now(), Duration::from_millis(decay_ms));
        let old = |begun: Instant| now.saturating_duration_since(begun) >= length;
        let excess = {
            let mut books = self.books.lock();
            if books.decay.begun.is_none_or(old) {
                drop(books);
                // Every tally counts: what a shelf has served was needed.
                books = self.all_books();
                self.note_peaks(&mut books);
                books.turn_window(now, length, decay_waste);
            }
            books.decayed()
        };
        if excess == 0 {
            return Ok(());
        }
        match Work::begin(self, None)? {
            Turn::Mine(mut work) => match work.give_back_passed(excess) {
                Ok(()) => work.outcome(),
                Err(Stop::Reset) => Ok(()),
                Err(Stop::Failed(error)) => Err(error),
            },
            Turn::Reset => Ok(()),
        }
    }
}

impl Work<'_> {
    /// Gives back at least so many bytes, of what nobody uses any more; or all of that.
    fn give_back_passed(&mut self, bytes: u64) -> Result<(), Stop> {
        let device = self.device;
        let missing = bytes.saturating_sub(self.release_kept(bytes));
        if missing == 0 {
            return Ok(());
        }
        self.see_who_has_passed()?;
        let from = {
            let books = device.all_books();
            books.some_pools(books.pools.trimmable())?
        };
        let waits = mutant("decay-waits");
        let runs =
            device.claim(&from, missing, &|streams, stamp| streams.passed(stamp) || waits)?;
        if runs.is_empty() {
            return Ok(());
        }
        let taken = self.take(runs, if waits { Until::Over } else { Until::Now })?;
        if let Store::Pages(_) = device.store {
            self.release_kept(taken);
        }
        Ok(())
    }

    /// Asks which streams are done with what they freed; where there is no fence to ask, one is
    /// recorded for the next time, if that can be done.
    fn see_who_has_passed(&mut self) -> Result<(), Error> {
        let device = self.device;
        let mut stamps: Vec<Stamp> = Vec::new();
        {
            let books = device.all_books();
            for (_, pool) in books.pools.each() {
                for stream in pool.heap.streams_with_free() {
                    let stamp = Stamp { stream, epoch: books.streams.stamped(stream) };
                    if !books.streams.passed(stamp) && !books.streams.is_captured(stream) {
                        latest(&mut stamps, stamp)?;
                    }
                }
            }
        }
        for wait in device.waits_for(&stamps, None)? {
            match wait {
                Wait::Fence(_, fence) => device.recycle(fence),
                Wait::Context(home, stamps) => device.fence_if_unfenced(home, &stamps)?,
                Wait::Never => {}
            }
        }
        device.settle_passed(&self.inside).map(|_| ())
    }
}
