#![forbid(unsafe_code)]
//! What **waits**: freed blocks in limbo and behind fences, until they are clean.

use std::collections::VecDeque;

use super::{Cache, State};

/// Blocks by slot and address: one that has gone since answers to neither.
type Batch = Vec<(u32, u64)>;

/// A context's freed blocks that work may still use.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    pub limbo: Batch,
    /// By the number of the fence, oldest first.
    fenced: VecDeque<(u64, Batch)>,
    /// An empty list, kept for its memory.
    spare: Batch,
}

impl Cache {
    /// Puts all of a context's limbo behind one fence, which the caller records next; `None` if
    /// there is nothing in limbo.
    pub fn seal(&mut self, context: usize) -> Option<u64> {
        let waiting = &mut self.rooms.get_mut(context)?.waiting;
        let blocks = &mut self.blocks;
        let epoch = self.epoch + 1;
        waiting.limbo.retain(|(slot, address)| {
            let block = &mut blocks[*slot as usize];
            let is_there = block.address == *address
                && block.context == context
                && block.state == State::Limbo;
            if is_there {
                block.state = State::Fenced(epoch);
            }
            is_there
        });
        if waiting.limbo.is_empty() {
            return None;
        }
        self.epoch = epoch;
        let next = std::mem::take(&mut waiting.spare);
        let batch = std::mem::replace(&mut waiting.limbo, next);
        waiting.fenced.push_back((epoch, batch));
        Some(epoch)
    }

    /// The fence could not be recorded: its blocks are in limbo again.
    pub fn unseal(&mut self, context: usize, epoch: u64) {
        let Some(room) = self.rooms.get_mut(context) else { return };
        let waiting = &mut room.waiting;
        let Some(at) = waiting.fenced.iter().position(|(of, _)| *of == epoch) else { return };
        let Some((_, batch)) = waiting.fenced.remove(at) else { return };
        for (slot, address) in batch {
            // It may be listed twice: given back out of limbo, and given to us again by the driver.
            let block = &mut self.blocks[slot as usize];
            if block.address == address && block.state == State::Fenced(epoch) {
                block.state = State::Limbo;
                waiting.limbo.push((slot, address));
            }
        }
    }

    /// This fence has passed, and with it all that are older.
    pub fn passed(&mut self, context: usize, epoch: u64) {
        let Some(room) = self.rooms.get_mut(context) else { return };
        while room.waiting.fenced.front().is_some_and(|(of, _)| *of <= epoch) {
            let Some((of, mut batch)) = room.waiting.fenced.pop_front() else { return };
            for (slot, address) in batch.drain(..) {
                let block = &mut self.blocks[slot as usize];
                if block.address != address || block.state != State::Fenced(of) {
                    continue;
                }
                block.state = State::Clean;
                if let Some(bucket) = room.buckets.get_mut(block.capacity) {
                    bucket.waiting -= 1;
                    block.place = bucket.clean.len() as u32;
                    bucket.clean.push(slot);
                }
            }
            room.waiting.spare = batch;
        }
    }
}
