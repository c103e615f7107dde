#![forbid(unsafe_code)]
//! Waits: which streams use a block of host memory, and which freed blocks wait for them.
//!
//! A freed block waits for the streams that were recorded for it; if none was, for all work of the
//! context that its memory is of; and for nothing if the program said that it records all. It is
//! over once every stamp has passed, whatever other blocks wait for. Room for a wait is made before
//! its block is handed out, so that a free never fails.

use std::collections::HashMap;

use crate::device::Device;
use crate::error::Error;
use crate::hash::ByNumber;
use crate::mutants::mutant;
use crate::types::{Address, Stamp};

/// So many bytes, or blocks, that no fence stands behind are fenced together.
const UNFENCED: (u64, usize) = (1 << 20, 16);

/// A stream's use of a block; its epoch counts from the free on.
#[derive(Clone, Copy)]
pub(super) struct Use {
    pub device: &'static Device,
    pub stamp: Stamp,
}

/// A freed block.
struct Waiting {
    address: Address,
    bytes: u64,
    /// Recorded: each is to be ended by [`Device::end_use`].
    uses: Vec<Use>,
    /// All work of a context.
    whole: Option<Use>,
}

/// How a free ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freed {
    /// Nobody uses it any more.
    AtOnce,
    /// It waits; fences may be recorded later, or are due now.
    Waits { due: bool },
}

/// See the module.
#[derive(Default)]
pub(super) struct Waits {
    /// Of live blocks; an empty list says that nothing but what is recorded counts.
    noted: HashMap<u64, Vec<Use>, ByNumber>,
    waiting: Vec<Waiting>,
    /// What was freed since fences were recorded last: bytes and blocks.
    unfenced: (u64, usize),
}

impl Waiting {
    fn each(&self) -> impl Iterator<Item = &Use> {
        self.uses.iter().chain(&self.whole)
    }
}

impl Waits {
    /// Makes room for one more live block beside `live` others.
    pub fn reserve(&mut self, live: u64) -> Result<(), Error> {
        let host = |_| Error::HostOutOfMemory;
        self.waiting.try_reserve(live as usize + 1).map_err(host)?;
        self.noted.try_reserve(1).map_err(host)
    }

    /// The program records every stream that uses this block, which was just handed out.
    pub fn trust(&mut self, address: Address) {
        self.noted.insert(address.0, Vec::new());
    }

    /// Notes that a stream uses a live block. `false` if that is known.
    pub fn note(&mut self, address: Address, used: Use) -> Result<bool, Error> {
        let host = |_| Error::HostOutOfMemory;
        self.noted.try_reserve(1).map_err(host)?;
        let mut first = Vec::new();
        first.try_reserve(1).map_err(host)?;
        let uses = self.noted.entry(address.0).or_insert(first);
        let same = |known: &Use| {
            known.device.id() == used.device.id() && known.stamp.stream == used.stamp.stream
        };
        if uses.iter().any(same) {
            return Ok(false);
        }
        if mutant("host-record-forgotten") {
            return Ok(false);
        }
        uses.try_reserve(1).map_err(host)?;
        uses.push(used);
        Ok(true)
    }

    /// A block is freed; its memory is of the context of `device`.
    pub fn hold(&mut self, address: Address, bytes: u64, device: &'static Device) -> Freed {
        let noted = self.noted.remove(&address.0);
        let whole = match noted {
            None => Some(Use { device, stamp: device.stamp_everybody() }),
            Some(_) => None,
        };
        let mut uses = noted.unwrap_or_default();
        for used in &mut uses {
            used.stamp = used.device.stamp_use(used.stamp.stream);
        }
        if (uses.is_empty() && whole.is_none()) || mutant("host-free-at-once") {
            end(&uses);
            return Freed::AtOnce;
        }
        self.waiting.push(Waiting { address, bytes, uses, whole });
        let (all, blocks) = &mut self.unfenced;
        (*all, *blocks) = (*all + bytes, *blocks + 1);
        Freed::Waits { due: *all >= UNFENCED.0 || *blocks >= UNFENCED.1 }
    }

    /// A block is freed, and nobody here has to wait for its uses.
    pub fn let_go(&mut self, address: Address) -> Freed {
        end(&self.noted.remove(&address.0).unwrap_or_default());
        Freed::AtOnce
    }

    /// Fences have been recorded for all that waits.
    pub fn note_fenced(&mut self) {
        self.unfenced = (0, 0);
    }

    /// The stamps that blocks wait for, by device. With `only`, those of the block that is best
    /// waited for when so many bytes are wanted: the smallest that is enough, else the largest.
    pub fn stamps(&self, only: Option<u64>) -> Result<Vec<(&'static Device, Vec<Stamp>)>, Error> {
        let host = |_| Error::HostOutOfMemory;
        let some = match only.map(|bytes| self.best_for(bytes)) {
            None => &self.waiting[..],
            Some(None) => &[],
            Some(Some(at)) => &self.waiting[at..=at],
        };
        let mut all: Vec<(&'static Device, Vec<Stamp>)> = Vec::new();
        for Use { device, stamp } in some.iter().flat_map(Waiting::each) {
            let known = all.iter().position(|(other, _)| other.id() == device.id());
            let at = match known {
                Some(at) => at,
                None => {
                    all.try_reserve(1).map_err(host)?;
                    all.push((device, Vec::new()));
                    all.len() - 1
                }
            };
            let stamps = &mut all[at].1;
            // Blocks that were freed one after the other mostly wait for the same.
            if stamps.last() != Some(stamp) {
                stamps.try_reserve(1).map_err(host)?;
                stamps.push(*stamp);
            }
        }
        Ok(all)
    }

    fn best_for(&self, bytes: u64) -> Option<usize> {
        let can_wait = |waiting: &Waiting| {
            waiting.each().all(|used| !used.device.is_held_by_graph(used.stamp))
        };
        let order = |waiting: &Waiting| match waiting.bytes >= bytes {
            true => (false, waiting.bytes),
            false => (true, u64::MAX - waiting.bytes),
        };
        let able = self.waiting.iter().enumerate().filter(|(_, waiting)| can_wait(waiting));
        able.min_by_key(|(_, waiting)| order(waiting)).map(|(at, _)| at)
    }

    /// Whether a block waits that would be enough, and that nothing but a wait shows to be over.
    pub fn must_be_waited_for(&self, bytes: u64) -> bool {
        let lacks = |used: &Use| {
            !used.device.can_be_fenced(used.stamp) && !used.device.is_held_by_graph(used.stamp)
        };
        self.waiting.iter().any(|waiting| waiting.bytes >= bytes && waiting.each().any(lacks))
    }

    /// Takes out the blocks whose uses have all passed, and gives each to `due`; how many.
    pub fn settle(&mut self, mut due: impl FnMut(Address, u64)) -> usize {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| {
            let over = waiting.each().all(|used| used.device.is_passed(used.stamp));
            if over {
                end(&waiting.uses);
                due(waiting.address, waiting.bytes);
            }
            !over
        });
        before - self.waiting.len()
    }

    /// How many blocks wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// A block, live or waiting, is no more.
    pub fn forget(&mut self, address: Address) {
        end(&self.noted.remove(&address.0).unwrap_or_default());
        if let Some(at) = self.waiting.iter().position(|known| known.address == address) {
            end(&self.waiting.swap_remove(at).uses);
        }
    }
}

/// The slots of recorded uses may mean something else from now on.
fn end(uses: &[Use]) {
    uses.iter().for_each(|used| used.device.end_use(used.stamp.stream));
}
