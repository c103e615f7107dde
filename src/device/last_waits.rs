#![forbid(unsafe_code)]
//! The waits of the way down: for the last users of memory that would be enough, and for nobody else.

use super::reclaim::{Miss, Stop};
use super::wait::Until;
use super::work::{Waited, latest};
use crate::types::Stamp;

impl Miss<'_> {
    /// Waits for the users of the one block in limbo that helps most, if limbo can help at all.
    pub(super) fn wait_for_limbo(&mut self) -> Result<bool, Stop> {
        let device = self.work.device;
        let figures = device.books.lock().pools.figures();
        let limbo = figures.active - figures.allocated;
        if limbo == 0 || !self.is_possible(limbo + figures.free) {
            return Ok(false);
        }
        let books = device.books.lock();
        let mut stamps: Vec<Stamp> = Vec::new();
        for stamp in
            books.limbo.best_for(self.request.bytes, |used| !books.streams.is_captured(used.stream))
        {
            latest(&mut stamps, stamp)?;
        }
        drop(books);
        self.drop_plan()?;
        let waits = device.waits_for(&stamps, self.work.passing)?;
        match self.work.wait(waits, self.until)? {
            Waited::Reset => return Err(Stop::Reset),
            Waited::TooShort => return Ok(false),
            Waited::ToTheEnd => {}
        }
        // Another miss that waited for the same may have settled it first: then it is free by now.
        device.all_books().settle();
        Ok(true)
    }

    /// Waits for the last launches of graphs that are gone: their memory is nobody's after that.
    pub(super) fn wait_for_launches(&mut self) -> Result<bool, Stop> {
        let device = self.work.device;
        let mut stamps: Vec<Stamp> = Vec::new();
        {
            let books = device.books.lock();
            for (_, pool) in books.pools.each().filter(|(_, pool)| pool.graphs == 0) {
                for &stamp in &pool.launched {
                    latest(&mut stamps, stamp)?;
                }
            }
        }
        if stamps.is_empty() {
            return Ok(false);
        }
        self.drop_plan()?;
        let waits = device.waits_for(&stamps, self.work.passing)?;
        match self.work.wait(waits, self.until)? {
            Waited::Reset => Err(Stop::Reset),
            Waited::TooShort => Ok(false),
            Waited::ToTheEnd => {
                device.all_books().settle();
                self.work.reap()?;
                Ok(device
                    .books
                    .lock()
                    .pools
                    .each()
                    .all(|(_, pool)| pool.graphs > 0 || pool.launched.is_empty()))
            }
        }
    }

    /// Lets a miss that waits for the GPU come back first, if there is one.
    pub(super) fn wait_for_others(&mut self) -> Result<bool, Stop> {
        if self.work.growing().waiting == 0 {
            return Ok(false);
        }
        self.drop_plan()?;
        let waited = self.work.wait_for_others();
        match self.work.still_mine() {
            true => Ok(waited),
            false => Err(Stop::Reset),
        }
    }

    pub(super) fn waits_at_all(&self) -> bool {
        self.until != Until::Now
    }

    /// Waits for what would be enough: a block as it stands, pages to harvest, a block in limbo.
    pub(super) fn wait_for_memory(&mut self) -> Result<bool, Stop> {
        if self.shares() && self.wait_for_spot()? {
            return Ok(true);
        }
        Ok(self.take_back()? || self.wait_for_limbo()? || self.wait_for_launches()?)
    }
}
