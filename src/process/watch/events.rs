#![forbid(unsafe_code)]
//! Allocations and frees while something is watched.
//!
//! A block is noted before its address is told, and forgotten before its address can be another's.
//! What a shelf serves is served by it here too: watching costs a lock, a clock and a table's entry.

use super::super::start::started_already;
use super::{WATCHED, Watched, entry, innermost};
use crate::error::Error;
use crate::journal::{Entry, Kind};
use crate::mutants::mutant;
use crate::process::{self, Asked};
use crate::scopes::{Known, OUTSIDE};
use crate::size;
use crate::sync::{is_watched, refuse_after_fork};

/// What was known of a block, and its label.
type Taken = (Known, Option<String>);

/// An allocation, noted.
#[inline(never)]
pub(in crate::process) fn malloc(asked: Asked) -> Result<u64, Error> {
    refuse_after_fork()?;
    let Asked { bytes, device, stream, .. } = asked;
    if asked.is_plain()
        && let Some(address) = process::shelf_serves(bytes, device, stream)
        && let Some(rounded) = size::round_up(bytes)
    {
        // The legacy stream has two names, of which 1 is told.
        let (device, stream) = (device as u32, stream.max(1) as u64);
        if !mutant("watch-shelf-hits-unseen") {
            handed_out(address, known(device, stream, rounded, bytes));
        }
        return Ok(address);
    }
    let address = process::serve(asked)?;
    // Zero bytes are no block.
    if let Ok(it) = process::block_info(address) {
        handed_out(address, known(it.device, it.stream as u64, it.bytes, it.requested));
    }
    Ok(address)
}

/// A block of this moment, in the scope that this thread is in.
#[inline]
fn known(device: u32, stream: u64, bytes: u64, requested: u64) -> Known {
    let (scope, run) = innermost();
    Known { scope, device, run, stream, bytes, requested }
}

#[inline]
fn handed_out(address: u64, block: Known) {
    let mut watched = WATCHED.lock();
    watched.note(Kind::Alloc, address, &block);
    watched.scopes.get_or_insert_default().add(address, block);
}

impl Watched {
    /// Notes what happened to a block, if history is kept.
    #[inline]
    fn note(&mut self, kind: Kind, address: u64, it: &Known) {
        if self.journal.capacity() == 0 {
            return;
        }
        self.journal.note(Entry {
            device: it.device as i32,
            stream: it.stream,
            address,
            bytes: it.bytes,
            requested: it.requested,
            scope: it.scope,
            ..entry(kind)
        });
    }

    #[inline]
    fn take(&mut self, address: u64) -> Option<Taken> {
        self.scopes.as_mut()?.remove(address)
    }
}

/// A request found no memory: notes it, if history is kept.
#[cold]
pub(in crate::process) fn note_shortage(asked: Asked) {
    let Asked { bytes, device, stream, .. } = asked;
    let id = started_already().and_then(|process| process.id(device).ok());
    let device = id.map_or(device, |id| id.0 as i32);
    let (requested, stream) = (bytes, stream as u64);
    let failed = Entry { device, requested, stream, ..entry(Kind::OutOfMemory) };
    WATCHED.lock().journal.note(failed);
}

/// A free, noted: to the shelf if it takes the block, else as usual.
#[inline(never)]
pub(in crate::process) fn free(address: u64) -> Result<(), Error> {
    refuse_after_fork()?; // another thread of the parent may have held the lock
    let mut watched = WATCHED.lock();
    let taken = watched.take(address);
    // Nobody notes anything of the address before the lock is let go.
    if let Some((block, _)) = &taken
        && process::shelf_takes(address)
    {
        watched.note(Kind::Free, address, block);
        return Ok(());
    }
    drop(watched);
    give(address, taken, || process::give(address))
}

/// A way of giving a block back, watched if anything is.
#[inline(never)]
pub(in crate::process) fn around(
    address: u64,
    how: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    if !is_watched() {
        return how();
    }
    refuse_after_fork()?;
    let taken = WATCHED.lock().take(address);
    give(address, taken, how)
}

/// Gives a block back. It is not known any more: once it is given back, its address may be another
/// block's at once. If it is live after all, it is known as before.
fn give(
    address: u64,
    taken: Option<Taken>,
    how: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    let told = match &taken {
        Some((known, _)) => Some(*known),
        None => process::block_info(address).ok().map(|it| Known {
            scope: OUTSIDE,
            run: 0,
            device: it.device,
            stream: it.stream as u64,
            bytes: it.bytes,
            requested: it.requested,
        }),
    };
    let given = how();
    // With caching off, a block whose free the driver failed is free all the same.
    let is_free = given.is_ok() || process::block_info(address).is_err();
    let mut watched = WATCHED.lock();
    match (is_free && !mutant("watch-frees-nothing"), taken, told) {
        (true, _, Some(told)) => watched.note(Kind::Free, address, &told),
        (false, Some(taken), _) => {
            watched.scopes.get_or_insert_default().put_back(address, taken);
        }
        _ => {}
    }
    given
}
