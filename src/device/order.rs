#![forbid(unsafe_code)]
//! Order that the program tells: which stream a block is given back to, behind which event, and which
//! stream waits for which.

use super::books::Books;
use super::names::created;
use super::{Device, Named};
use crate::driver::{Context, StreamHandle};
use crate::error::{Error, sentence};
use crate::heap::Block;
use crate::mutants::mutant;
use crate::streams::{ANY, EVERYBODY, Home};
use crate::sync::thread_number;
use crate::types::{Address, PoolId, StreamSlot};

/// How many streams of our own carry waits for callers' events: so many events may be late without
/// holding each other up.
const MOST_HELPERS: usize = 8;

impl Device {
    /// Gives a block back as if it had been made for `stream`: its later work may use it at once.
    pub(crate) fn free_on(
        &self,
        pool: PoolId,
        address: Address,
        stream: Named,
    ) -> Result<(), Error> {
        self.with_slot(stream, |books, slot| {
            let pool = books.serving(self.id, address, pool)?;
            self.start_of(books, pool, address)?;
            self.end_loan(books, address)?;
            let slot = if slot == ANY { EVERYBODY } else { slot };
            if mutant("device-free-on-own") {
                return Ok(());
            }
            books.pools[pool].heap.give_to(address, slot).map(|_| ())
        })?;
        self.free(pool, address)
    }

    /// Gives a block back once an event of the caller's is over: what was recorded in it by now.
    pub(crate) fn free_after(
        &self,
        pool: PoolId,
        address: Address,
        event: usize,
    ) -> Result<(), Error> {
        let home = {
            let books = self.books.lock();
            let pool = books.serving(self.id, address, pool)?;
            self.start_of(&books, pool, address)?;
            books.home
        };
        let inside = self.driver.enter(Context(home.context), self.id, &self.calls)?;
        // This refuses an event that is none, and one of a capture, which could never be waited for.
        if !inside.foreign_event_is_done(event)? || mutant("device-free-after-at-once") {
            let (slot, handle) = self.helper(home)?;
            if !mutant("device-free-after-at-once") {
                inside.stream_wait_foreign(handle, event)?;
            }
            self.note_use(&mut self.books.lock(), (pool, address), slot)?;
        }
        drop(inside);
        self.free(pool, address)
    }

    /// Notes that the program has made `thief` wait for all that `donor` had been given.
    pub(crate) fn note_wait(&self, thief: Named, donor: Named) -> Result<(), Error> {
        if [thief, donor].iter().any(|named| named.is_any()) {
            return Err(Error::InvalidStream(sentence!(
                "CUDDY_STREAM_ANY is no stream that waits or is waited for: name both streams"
            )));
        }
        self.with_slot(thief, |books, thief| {
            books.streams.pin(thief);
            Ok(thief)
        })
        .and_then(|thief| {
            let noted = self.with_slot(donor, |books, donor| {
                // What this thread freed so far is what was waited for.
                self.clear_my_shelf(books, donor);
                books.streams.note_wait(thief, donor)
            });
            self.books.lock().streams.unpin(thief);
            noted
        })
    }

    /// The slot of a stream, and the books, both of one moment.
    pub(super) fn with_slot<R>(
        &self,
        stream: Named,
        act: impl FnOnce(&mut Books, StreamSlot) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.look_for_captures()?;
        self.with_slot_by(|| self.slot(stream), act)
    }

    /// The same for a stream's own work, whether the stream is captured or not.
    pub(super) fn with_eager_slot<R>(
        &self,
        stream: Named,
        act: impl FnOnce(&mut Books, StreamSlot) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.with_slot_by(|| self.eager_slot(stream), act)
    }

    fn with_slot_by<R>(
        &self,
        find: impl Fn() -> Result<StreamSlot, Error>,
        act: impl FnOnce(&mut Books, StreamSlot) -> Result<R, Error>,
    ) -> Result<R, Error> {
        loop {
            let vacated = self.books.lock().streams.vacated();
            let slot = find()?;
            let mut books = self.books.lock();
            // Else the slot may have become another stream's.
            if books.streams.vacated() == vacated {
                return act(&mut books, slot);
            }
        }
    }

    /// Fails unless a live block starts at the address.
    fn start_of(&self, books: &Books, pool: PoolId, address: Address) -> Result<Block, Error> {
        let block = books.live(self.id, pool, address)?;
        if block.address != address {
            let interior = Error::InteriorPointer { pointer: address, start: block.address };
            return Err(self.explain_shelved(interior));
        }
        self.requested(&block, address)?;
        Ok(block)
    }

    /// Notes that a stream uses a block, beside the block's own.
    pub(super) fn note_use(
        &self,
        books: &mut Books,
        (pool, address): (PoolId, Address),
        slot: StreamSlot,
    ) -> Result<(), Error> {
        let pool = books.serving(self.id, address, pool)?;
        if self.start_of(books, pool, address)?.stream == slot {
            return Ok(());
        }
        self.bar(books, address)?;
        books.limbo.note(address, slot)
    }

    /// Vacates a slot whose stream is gone or idle and owns nothing but free memory, if there is one.
    pub(super) fn vacate_idle(&self, books: &mut Books) {
        let Some(slot) = books.streams.idle() else { return };
        let owns = books.pools.each().any(|(_, pool)| pool.heap.holding(slot).held_blocks > 0);
        let used = books.limbo.mentions(slot) || books.helpers.contains(&slot);
        if !(owns || used) {
            self.front.end_era();
            books.streams.vacate(slot);
        }
    }

    /// A stream of our own that waits for nothing now; if all do, the next one in turn.
    fn helper(&self, home: Home) -> Result<(StreamSlot, StreamHandle), Error> {
        {
            let books = &mut *self.books.lock();
            let idle = books.helpers.iter().position(|slot| !books.streams.has_fences(*slot));
            if let Some(at) = idle.or((books.helpers.len() >= MOST_HELPERS).then_some(0)) {
                // The next one in turn is another.
                let slot = books.helpers.remove(at);
                books.helpers.push(slot);
                return Ok((slot, StreamHandle(books.streams.names(slot).0)));
            }
            books.helpers.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
        }
        let handle = {
            let inside = self.driver.enter(Context(home.context), self.id, &self.calls)?;
            inside.stream_create()?
        };
        let id = if self.driver.has_stream_ids() { self.stream_id(handle)? } else { 0 };
        let mut books = self.books.lock();
        let slot = books.streams.hold(handle.0, id, home)?;
        books.helpers.push(slot);
        Ok((slot, handle))
    }

    /// In a call that passes a stream: records the fence that it owes, if it owes one.
    pub(super) fn tend(&self, passing: (StreamSlot, usize)) {
        let slot = passing.0;
        let recording = self.recording.lock();
        let mut books = self.books.lock();
        let handle = books.streams.recordable(slot, thread_number(), Some(passing));
        let home = books.streams.home(slot);
        if let Some(handle) =
            handle.filter(|_| books.streams.is_due(slot) || books.streams.is_behind(slot))
        {
            let begun = books.streams.begin_fence(slot);
            drop(books);
            self.record_on(begun, StreamHandle(handle), home);
        }
        drop(recording);
    }

    /// Asks the fences that blocks in limbo wait for, if one of those could serve the request.
    pub(super) fn settle_for(&self, bytes: u64) -> Result<(), Error> {
        let home = {
            let books = self.books.lock();
            if !books.limbo.could_serve(bytes) || mutant("device-limbo-by-misses-only") {
                return Ok(());
            }
            books.home
        };
        let inside = self.driver.enter(Context(home.context), self.id, &self.calls)?;
        self.settle_passed(&inside).map(|_| ())
    }
}

impl Books {
    /// A block that was anybody's: its free is behind the work of everybody.
    #[inline]
    pub(super) fn give_to_everybody(
        &mut self,
        pool: PoolId,
        address: Address,
    ) -> Result<(), Error> {
        if !self.any_in_use || mutant("device-any-freed-as-own") {
            return Ok(());
        }
        let heap = &mut self.pools[pool].heap;
        match heap.find(address) {
            Some(block) if block.stream == ANY => heap.give_to(address, EVERYBODY).map(|_| ()),
            _ => Ok(()),
        }
    }
}

impl Named {
    /// Whether it names no stream in particular.
    pub(crate) fn is_any(self) -> bool {
        self.raw == Self::ANY
    }

    /// Fails for what is no stream that could be opened or retired.
    pub(super) fn created_or_built_in(self) -> Result<Option<StreamHandle>, Error> {
        match self.is_any() {
            true => Err(Error::InvalidStream(sentence!(
                "CUDDY_STREAM_ANY is no stream: there is nothing to open or to retire"
            ))),
            false => Ok(created(self)),
        }
    }
}
