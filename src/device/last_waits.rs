#![forbid(unsafe_code)]
//! The waits of the way down: for the last users of memory that would be enough, and for nobody else.

use super::fence::Fence;
use super::reclaim::{Miss, Stop};
use super::wait::Until;
use super::work::{Waited, latest};
use crate::mutants::mutant;
use crate::streams::Streams;
use crate::types::Stamp;

/// What may be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// Streams that can be waited for by themselves.
    Own,
    /// Any.
    Any,
}

impl Miss<'_> {
    /// Waits for the users of the one block in limbo that helps most, if limbo can help at all.
    fn wait_for_limbo(&mut self, aim: Aim) -> Result<bool, Stop> {
        let device = self.work.device;
        let mut stamps: Vec<Stamp> = Vec::new();
        let figures = {
            let books = device.books.lock();
            let may_wait = |used| self.may_wait(&books.streams, used, aim);
            for stamp in books.limbo.best_for(self.request.bytes, may_wait) {
                latest(&mut stamps, stamp)?;
            }
            books.pools.figures()
        };
        let limbo = figures.active - figures.allocated;
        // What is left in limbo waits for graphs.
        let nobody = stamps.is_empty() && !mutant("ladder-waits-for-nothing");
        if limbo == 0 || nobody || !self.is_possible(limbo + figures.free) {
            return Ok(false);
        }
        if !self.wait_for_stamps(&stamps)? {
            return Ok(false);
        }
        // Another miss that waited for the same may have settled it first: then it is free by now.
        device.all_books().settle();
        Ok(true)
    }

    /// Waits for the last launches of graphs that are gone: their memory is nobody's after that.
    fn wait_for_launches(&mut self) -> Result<bool, Stop> {
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
        if stamps.is_empty() || !self.wait_for_stamps(&stamps)? {
            return Ok(false);
        }
        device.all_books().settle();
        self.work.reap()?;
        let books = device.books.lock();
        Ok(books.pools.each().all(|(_, pool)| pool.graphs > 0 || pool.launched.is_empty()))
    }

    /// Waits, on the host, until all the stamps have passed; `false` if the time was up first. The
    /// place for the block is given up meanwhile.
    pub(super) fn wait_for_stamps(&mut self, stamps: &[Stamp]) -> Result<bool, Stop> {
        self.drop_plan()?;
        let waits = self.work.device.waits_for(stamps, self.work.passing)?;
        match self.work.wait(waits, self.until)? {
            Waited::Reset => Err(Stop::Reset),
            Waited::TooShort => Ok(false),
            Waited::ToTheEnd => Ok(true),
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

    /// Waits for what would be enough: a block as it stands, pages to harvest, a block in limbo. First
    /// for what has fences of its own; only if that is not enough, for what needs one over the whole
    /// context, which unrelated work may hold up.
    pub(super) fn wait_for_memory(&mut self) -> Result<bool, Stop> {
        for aim in [Aim::Own, Aim::Any] {
            if aim == Aim::Own && mutant("device-waits-wide-first") {
                continue;
            }
            if self.shares() && self.wait_for_spot(aim)? {
                return Ok(true);
            }
            if self.take_back(aim)? || self.wait_for_limbo(aim)? {
                return Ok(true);
            }
        }
        self.wait_for_launches()
    }

    /// Whether a stamp may be waited for.
    pub(super) fn may_wait(&self, streams: &Streams<Fence>, stamp: Stamp, aim: Aim) -> bool {
        let device = self.work.device;
        !streams.is_captured(stamp.stream)
            && (aim == Aim::Any || device.is_aimed(streams, stamp, self.work.passing))
    }
}
