#![forbid(unsafe_code)]
//! Giving memory back to the driver, and keeping within a limit.
//!
//! `trim(keep)` ends with `reserved <= max(keep, what live blocks hold)`: first the pages kept
//! without an address, then free pages or segments, once their last users have finished.

use super::reclaim::Stop;
use super::take_back::total;
use super::wait::Until;
use super::work::{Turn, Waited, Work, latest};
use super::{Device, Store};
use crate::error::Error;
use crate::types::Stamp;

impl Device {
    /// Gives cached memory back until no more than `keep` bytes are reserved. Waits for the streams
    /// that used it last. How many bytes were given back.
    pub(crate) fn trim(&self, keep: u64) -> Result<u64, Error> {
        self.look_for_captures()?;
        let mut work = match Work::begin(self, None) {
            Ok(Turn::Mine(work)) => work,
            Ok(Turn::Reset) | Err(Error::Shutdown) => return Ok(0),
            Err(error) => return Err(error),
        };
        let before = self.books.lock().stats.reserved;
        let outcome = work.trim(keep).and_then(|()| Ok(work.reap()?));
        let outcome = outcome.and_then(|()| Ok(work.outcome()?));
        #[cfg_attr(not(debug_assertions), expect(unused_mut, reason = "only checks change it"))]
        let mut books = self.books.lock();
        #[cfg(debug_assertions)]
        if work.still_mine_in(&books) {
            self.check(&mut books);
        }
        let given = before.saturating_sub(books.stats.reserved);
        match outcome {
            // At the process's end the driver has already taken everything; after a reset too.
            Ok(()) | Err(Stop::Reset | Stop::Failed(Error::Shutdown)) => Ok(given),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    /// The most that may be reserved, in bytes; `u64::MAX` is no limit.
    pub(crate) fn limit(&self) -> u64 {
        self.books.lock().stats.limit
    }

    /// Sets the limit, and gives back what is cached above it. Live blocks stay, whatever they hold.
    pub(crate) fn set_limit(&self, bytes: u64) -> Result<(), Error> {
        let over = {
            // A miss under way has asked for the room that there was: it ends first.
            let _growth = self.growth.lock();
            let mut books = self.books.lock();
            books.stats.limit = bytes;
            books.stats.reserved > bytes
        };
        if over {
            self.trim(bytes)?;
        }
        Ok(())
    }

    /// The device's memory, in bytes.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

impl Work<'_> {
    /// See [`Device::trim`].
    fn trim(&mut self, keep: u64) -> Result<(), Stop> {
        let device = self.device;
        let excess = || device.books.lock().stats.reserved.saturating_sub(keep);
        self.retry_stuck()?;
        self.release_kept(excess());
        if excess() == 0 {
            return Ok(());
        }
        self.empty_limbo()?;
        let excess = excess();
        let from = {
            let books = device.all_books();
            books.some_pools(books.pools.trimmable())?
        };
        let runs = device.claim(&from, excess, &|_, _| true)?;
        if total(&runs) == 0 {
            return Ok(());
        }
        let taken = self.take(runs, Until::Over)?;
        if let Store::Pages(_) = device.store {
            self.release_kept(taken);
        }
        Ok(())
    }

    /// Waits until no freed block is in use by another stream.
    pub(super) fn empty_limbo(&mut self) -> Result<(), Stop> {
        let device = self.device;
        device.settle_passed(&self.inside)?;
        let mut stamps: Vec<Stamp> = Vec::new();
        let mut outcome = Ok(());
        let books = device.books.lock();
        let mut want = |stamp: Stamp| {
            if outcome.is_ok() && !books.streams.is_captured(stamp.stream) {
                outcome = latest(&mut stamps, stamp);
            }
        };
        books.limbo.waits(|_, stamp| want(stamp));
        // What graphs that are gone were launched for holds their memory back.
        for (_, pool) in books.pools.each().filter(|(_, pool)| pool.graphs == 0) {
            pool.launched.iter().for_each(|&stamp| want(stamp));
        }
        drop(books);
        outcome?;
        let waits = device.waits_for(&stamps, None)?;
        if self.wait(waits, Until::Over)? == Waited::Reset {
            return Err(Stop::Reset);
        }
        device.all_books().settle();
        Ok(())
    }
}
