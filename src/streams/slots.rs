#![forbid(unsafe_code)]
//! Slots that come and go: a slot may be *vacated* once its stream is gone or idle, owns no block, and
//! all that was stamped with it has passed. Whoever gets it next goes on with the next epoch, so that
//! no old stamp means anything but "passed".

use super::{Kind, Streams};
use crate::types::StreamSlot;

impl<E: Clone> Streams<E> {
    /// A slot that could be vacated as far as is known here, from where the last look ended; `None`
    /// if none is among the next few.
    pub(crate) fn idle(&mut self) -> Option<StreamSlot> {
        const FEW: usize = 8;
        for _ in 0..FEW.min(self.streams.len()) {
            let slot = StreamSlot(self.next % self.streams.len() as u32);
            self.next = slot.0 + 1;
            let stream = &self.streams[slot.0 as usize];
            let may_go = matches!(stream.kind, Kind::Retired | Kind::Borrowed | Kind::PerThread(_));
            let over = stream.stamped.get() <= stream.passed && stream.fences.is_empty();
            let old = stream.kind != Kind::Retired || stream.passed >= stream.epoch;
            if may_go && over && old && stream.pins == 0 && !self.vacant.contains(&slot) {
                return Some(slot);
            }
        }
        None
    }

    /// Makes a slot of [`Streams::idle`] another stream's next: nothing but free memory that has
    /// passed may be stamped with it, and that goes with it.
    pub(crate) fn vacate(&mut self, slot: StreamSlot) {
        self.slots.retain(|_, known| *known != slot);
        self.streams[slot.0 as usize].kind = Kind::Retired;
        self.vacant.push(slot);
        self.vacated += 1;
    }

    /// How often a slot came to mean nothing.
    pub(crate) fn vacated(&self) -> u64 {
        self.vacated
    }

    /// The slot keeps its meaning until [`Streams::unpin`].
    pub(crate) fn pin(&mut self, slot: StreamSlot) {
        self.streams[slot.0 as usize].pins += 1;
    }

    /// Ends a [`Streams::pin`].
    pub(crate) fn unpin(&mut self, slot: StreamSlot) {
        let pins = &mut self.streams[slot.0 as usize].pins;
        *pins = pins.saturating_sub(1);
    }
}
