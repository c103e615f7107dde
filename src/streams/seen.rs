#![forbid(unsafe_code)]
//! What one stream has *seen* of another, a vector clock: `seen[thief][donor] = e` says that the
//! thief's work from now on is ordered behind all that is stamped (donor, e) or earlier, by a wait of
//! the program's or of ours.

use super::{Kind, Streams};
use crate::error::Error;
use crate::mutants::mutant;
use crate::types::{Stamp, StreamSlot};

impl<E: Clone> Streams<E> {
    /// The thief was made to wait for all that the donor had been given: what the donor stamps later
    /// gets a new epoch, and the thief sees what the donor had seen.
    pub(crate) fn note_wait(&mut self, thief: StreamSlot, donor: StreamSlot) -> Result<(), Error> {
        if thief == donor {
            return Ok(());
        }
        let before = self.streams[donor.0 as usize].epoch;
        let mut told = std::mem::take(&mut self.streams[donor.0 as usize].seen);
        let seen = &mut self.streams[thief.0 as usize].seen;
        let room = seen.try_reserve(told.len() + 1);
        if room.is_ok() {
            for (&other, &epoch) in told.iter().filter(|(other, _)| **other != thief.0) {
                let known = seen.entry(other).or_insert(0);
                *known = (*known).max(epoch);
            }
            seen.insert(donor.0, before);
        }
        std::mem::swap(&mut self.streams[donor.0 as usize].seen, &mut told);
        room.map_err(|_| Error::HostOutOfMemory)?;
        if self.streams[donor.0 as usize].kind != Kind::Retired
            && !mutant("streams-seen-without-epoch")
        {
            self.streams[donor.0 as usize].epoch += 1;
        }
        Ok(())
    }

    /// The thief was made to wait for a fence of this stamp.
    pub(crate) fn saw(&mut self, thief: StreamSlot, fence: Stamp) -> Result<(), Error> {
        let seen = &mut self.streams[thief.0 as usize].seen;
        seen.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
        let known = seen.entry(fence.stream.0).or_insert(0);
        *known = (*known).max(fence.epoch);
        Ok(())
    }

    /// Whether the thief's work from now on is ordered behind what the stamp stands for.
    pub(crate) fn has_seen(&self, thief: StreamSlot, stamp: Stamp) -> bool {
        let seen = &self.streams[thief.0 as usize].seen;
        stamp.stream == thief
            || seen.get(&stamp.stream.0).is_some_and(|&epoch| {
                stamp.epoch <= epoch + u64::from(mutant("streams-seen-too-much"))
            })
    }
}
