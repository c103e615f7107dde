#![forbid(unsafe_code)]
//! Peers: other devices that may use this one's memory. A page's rights are its mapping's own: every
//! one that is mapped while a peer is enabled is the peer's to use before its address is handed out,
//! and enabling or disabling changes all that are there, or nothing. Segments are their context's: the
//! peer's primary context may use all of them, or none.

use super::work::{Turn, Work};
use super::{Device, MOST_STARTS, Store};
use crate::driver::{Access, Context};
use crate::error::{DriverError, Error, sentence};
use crate::heap::PageRun;
use crate::mutants::mutant;
use crate::streams::Home;
use crate::types::{Address, DeviceId};

/// A set of devices, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Peers(u64);

impl Peers {
    fn with(self, peer: DeviceId) -> Self {
        Self(self.0 | 1 << peer.0)
    }

    fn without(self, peer: DeviceId) -> Self {
        Self(self.0 & !(1 << peer.0))
    }

    fn has(self, peer: DeviceId) -> bool {
        self.0 >> peer.0 & 1 == 1
    }

    /// Each of them.
    pub(super) fn each(self) -> impl Iterator<Item = DeviceId> {
        (0..u64::BITS).map(DeviceId).filter(move |peer| self.has(*peer))
    }
}

impl Device {
    /// Whether another device may use this one's memory.
    pub(super) fn is_peer(&self, other: DeviceId) -> bool {
        self.books.lock().peers.has(other)
    }

    /// Lets another device use this one's memory, what there is and what comes; or no more.
    pub(crate) fn set_peer(&self, peer: DeviceId, enabled: bool) -> Result<(), Error> {
        if peer == self.id {
            let why = sentence!("device {} uses its own memory always", peer.0);
            return Err(Error::InvalidArgument { argument: "peer", why });
        }
        if enabled && !self.driver.can_access(peer, self.id)? {
            return Err(Error::NotSupported(sentence!(
                "device {} cannot use memory of device {}: the driver knows no way between them",
                peer.0,
                self.id.0
            )));
        }
        for _ in 0..MOST_STARTS {
            if let Turn::Mine(mut work) = Work::begin(self, None)? {
                return work.set_peer(peer, enabled);
            }
        }
        Err(Error::DeviceReset(self.id.0))
    }

    /// Lets the peer's primary context use the memory of a context of this device; or no more.
    fn let_context_use(&self, peer: DeviceId, of: Home, enabled: bool) -> Result<(), Error> {
        let Some(theirs) = self.driver.primary_in_use(peer)? else {
            // What is not there uses nothing.
            return if !enabled { Ok(()) } else { Err(no_context(self.id, peer)) };
        };
        let (own, changes) = (Context(of.context), self.is_peer(peer) != enabled);
        let entered = self.driver.enter(theirs, peer, &self.calls);
        let set = entered.and_then(|inside| {
            if enabled && mutant("peer-forgets-segments") {
                return Ok(());
            }
            // A call that fails may have had its effect.
            inside.use_memory_of(own, enabled).inspect_err(|_| {
                let _ = changes.then(|| inside.use_memory_of(own, !enabled));
            })
        });
        // The peer's own user keeps it.
        let _ = self.driver.primary_release(peer);
        Ok(set?)
    }

    /// The device begins anew with another context, which nobody may use so far.
    pub(super) fn enable_peers_anew(&self, home: Home) {
        if self.store != Store::Segments {
            return;
        }
        let peers = self.books.lock().peers;
        let lost = |peer: &DeviceId| self.let_context_use(*peer, home, true).is_err();
        let left = peers.each().filter(lost).fold(peers, Peers::without);
        self.books.lock().peers = left;
    }
}

#[cold]
fn no_context(device: DeviceId, peer: DeviceId) -> Error {
    Error::NotSupported(sentence!(
        "memory of device {} comes in segments, which are for contexts to use, and device {} has no \
         primary context: use that device first",
        device.0,
        peer.0
    ))
}

impl Work<'_> {
    fn set_peer(&mut self, peer: DeviceId, enabled: bool) -> Result<(), Error> {
        let (peers, home) = {
            let books = self.device.books.lock();
            (books.peers, books.home)
        };
        match self.device.store {
            // A reset of the peer has ended it, and nobody was told: asks again.
            Store::Segments => self.device.let_context_use(peer, home, enabled)?,
            Store::Pages(_) if peers.has(peer) == enabled => return Ok(()),
            Store::Pages(page) => self.set_rights(peer, enabled, page)?,
        }
        let mut books = self.device.books.lock();
        books.peers = if enabled { peers.with(peer) } else { peers.without(peer) };
        Ok(())
    }

    /// Changes a peer's rights to all that is mapped, or nothing.
    fn set_rights(&mut self, peer: DeviceId, enabled: bool, page: u64) -> Result<(), Error> {
        let runs = self.growing().pages.mapped_runs(page)?;
        let (now, before) = match enabled {
            true => (Access::ReadWrite, Access::None),
            false => (Access::None, Access::ReadWrite),
        };
        for (done, run) in runs.iter().enumerate() {
            if mutant("peer-sees-new-mappings-only") {
                break;
            }
            if let Err(error) = self.inside.set_access(run.address.0, run.bytes, peer, now) {
                // The call may have had its effect. What cannot be put back is harmless: a peer that
                // is enabled loses nothing, and one that is not has no address that it may use.
                for run in runs[..=done].iter().rev().filter(|_| !mutant("peer-half-way")) {
                    let undo = || self.inside.set_access(run.address.0, run.bytes, peer, before);
                    let _ = undo().or_else(|_| undo());
                }
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Lets the device, and all its peers, use a mapped range.
    pub(super) fn allow(&self, run: PageRun) -> Result<(), DriverError> {
        self.inside.allow(run.address.0, run.bytes)?;
        let peers = self.device.books.lock().peers;
        for peer in peers.each().filter(|_| !mutant("peer-forgets-new-mappings")) {
            self.inside.set_access(run.address.0, run.bytes, peer, Access::ReadWrite)?;
        }
        Ok(())
    }
}

/// Pages that follow each other, as runs.
pub(super) fn joined(mut pages: Vec<u64>, page: u64) -> Result<Vec<PageRun>, Error> {
    pages.sort_unstable();
    let mut runs: Vec<PageRun> = Vec::new();
    for at in pages {
        match runs.last_mut() {
            Some(run) if run.address.0 + run.bytes == at => run.bytes += page,
            _ => {
                runs.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
                runs.push(PageRun { address: Address(at), bytes: page });
            }
        }
    }
    Ok(runs)
}
