#![forbid(unsafe_code)]
//! Peers: other devices that may use this one's memory. Rights are a mapping's own: every page that is
//! mapped while a peer is enabled is the peer's to use before its address is handed out, and enabling
//! or disabling changes all that are there, or nothing.

use super::work::{Turn, Work};
use super::{Device, MOST_STARTS, Store};
use crate::driver::Access;
use crate::error::{DriverError, Error, sentence};
use crate::heap::PageRun;
use crate::mutants::mutant;
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
        if !matches!(self.store, Store::Pages(_)) {
            return Err(Error::NotSupported(sentence!(
                "memory of device {} comes in segments, whose use by other devices is their \
                 contexts' matter: call cudaDeviceEnablePeerAccess() or cuCtxEnablePeerAccess()",
                self.id.0
            )));
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
}

impl Work<'_> {
    fn set_peer(&mut self, peer: DeviceId, enabled: bool) -> Result<(), Error> {
        let peers = self.device.books.lock().peers;
        if peers.has(peer) == enabled {
            return Ok(());
        }
        let page = self.device.page();
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
        let mut books = self.device.books.lock();
        books.peers = if enabled { peers.with(peer) } else { peers.without(peer) };
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
