#![forbid(unsafe_code)]
//! **Ends** of contexts: what is cached in one is taken out before, and put back if it lives on.

use super::{Block, Cache, NONE, Room, State};

/// The blocks of a context that may be about to end.
#[derive(Debug)]
pub struct Aside {
    context: usize,
    room: Room,
    blocks: Vec<Block>,
}

impl Cache {
    /// Takes everything of a context out, before the driver ends it. [`Cache::put_back`] undoes it.
    pub fn set_aside(&mut self, context: usize) -> Option<Aside> {
        let mut blocks = Vec::new();
        for slot in self.addresses.slots() {
            if self.blocks[slot as usize].context == context {
                blocks.push(self.blocks[slot as usize].clone());
                self.remove(slot);
            }
        }
        let room = self.rooms.remove(context)?;
        Some(Aside { context, room, blocks })
    }

    /// The context has not ended after all. What was behind a fence is in limbo again.
    pub fn put_back(&mut self, aside: Aside) {
        let Aside { context, room, blocks } = aside;
        let device = room.device;
        self.rooms.or_insert(context, || Room { device, ..Room::default() });
        for block in blocks {
            let (state, address, asked) = (block.state, block.address, block.asked);
            self.tally.held += block.capacity;
            self.enter(Block { state: State::Leaving, older: NONE, newer: NONE, ..block });
            match state {
                State::Live => {
                    self.tally.live += asked;
                    if let Some(slot) = self.leaving(address) {
                        self.blocks[slot as usize].state = State::Live;
                    }
                }
                State::Leaving => {}
                State::Clean => self.settle(address),
                State::Limbo | State::Fenced(_) => self.rest(address),
            }
            if matches!(state, State::Clean | State::Limbo | State::Fenced(_)) {
                self.tally.kept -= 1;
            }
        }
    }
}
