#![forbid(unsafe_code)]
//! One device: its books joined to its driver. It has pools, of which each request names one; the
//! default pool is there from the beginning.
//!
//! Two locks. `books` guards what a hit needs, and is never held across a driver call. `growth`
//! makes misses take turns; driver calls are made under it, but no wait for the GPU is: claims in
//! the heap keep others away from what a waiting miss will need. Order: growth before books.
//!
//! At every moment `allocated <= active <= reserved <= limit` (a limit set below what is reserved
//! holds from the next growth on).

mod books;
mod capturable;
mod capture;
mod decay;
mod fence;
mod fences;
mod front;
mod give_back;
mod graves;
mod grow;
mod human;
mod last_waits;
mod lending;
mod names;
mod observe;
mod oom;
mod open;
mod order;
mod pages;
mod peers;
mod pin;
mod pool;
mod pools;
mod private;
mod proofs;
mod reclaim;
mod segments;
mod share;
mod snapshot;
mod stuck;
mod take_back;
mod wait;
mod work;

pub(crate) use self::human::short;
pub(crate) use self::names::Named;
pub(crate) use self::snapshot::untouched;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Condvar, RwLock};

use self::books::Books;
use self::fence::Spares;
use self::front::Front;
use self::graves::Graves;
pub(crate) use self::oom::{Scene, take_scene};
use self::pages::Pages;
pub(crate) use self::pool::PoolTerms;
pub(crate) use self::pools::PoolName;
use self::stuck::Stuck;
use crate::driver::Driver;
use crate::error::Error;
pub(crate) use crate::graphs::GraphName;
use crate::heap::Request;
use crate::mutants::mutant;
use crate::options::Options;
use crate::owners::Owners;
use crate::size;
use crate::streams::{ANY, EVERYBODY};
use crate::sync::Lock;
use crate::types::{Address, DeviceId, PoolId, Stamp, StreamSlot};

/// How often one call starts anew on a device that is reset under it.
const MOST_STARTS: usize = 4;
/// Rank of the lock around looking for captures.
const LOOKING: u8 = 4;
/// Rank of the lock that makes misses take turns.
const GROWTH: u8 = 5;
/// Rank of the lock that keeps handles valid while they are recorded on.
const RECORDING: u8 = 6;
/// Rank of the lock around the books.
const BOOKS: u8 = 7;
/// Rank of the lock around the spare events.
const SPARES: u8 = 8;

/// What serves a device's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// Pages of this many bytes, mapped one by one into reserved addresses.
    Pages(u64),
    /// Whole driver allocations.
    Segments,
}

/// A device in use.
pub(crate) struct Device {
    id: DeviceId,
    driver: &'static Driver,
    owners: &'static Owners,
    options: Options,
    store: Store,
    total: u64,
    /// Whether the driver gives all that it calls free, and no more: not where the device shares
    /// the host's memory.
    shows_free_memory: bool,
    /// Driver calls made for this device.
    calls: AtomicU64,
    /// Graphs that are begun.
    captures: AtomicU32,
    /// Whether captures are to be looked for.
    looks: AtomicBool,
    looking: Lock<(), LOOKING>,
    growth: Lock<Growing, GROWTH>,
    /// Told when a miss that waited for the GPU has come back.
    returned: Condvar,
    /// Held from looking a stream's handle up to having recorded on it; retiring a stream waits for
    /// it, since the stream may be destroyed after that.
    recording: Lock<(), RECORDING>,
    /// Held shared by driver calls about a whole context, from having seen that nothing captures to
    /// their return: no capture begins amid them.
    whole_context: RwLock<()>,
    books: Lock<Books, BOOKS>,
    /// Events of the device's own context that nobody uses.
    spares: Lock<Spares, SPARES>,
    /// What needs no lock.
    front: Front,
}

/// What misses change, one at a time.
struct Growing {
    pages: Pages,
    /// What the driver failed to take back.
    stuck: Stuck,
    /// Addresses that blocks of before a reset may be known by.
    graves: Graves,
    /// Misses that wait for the GPU, holding claims.
    waiting: usize,
}

/// A request as it came in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    /// In bytes; not zero.
    pub bytes: u64,
    /// A power of two, at most a page; less than 512 means 512.
    pub alignment: u64,
    /// The stream that will use the block.
    pub stream: Named,
    /// The pool that the block is cut from.
    pub pool: PoolName,
    /// The longest that it may wait for memory, in milliseconds; `None` is as configured.
    pub wait_ms: Option<u64>,
}

/// A live block, for whoever asks.
pub(crate) struct Info {
    pub address: Address,
    pub bytes: u64,
    pub requested: u64,
    pub handle: usize,
    pub id: u64,
}

impl Device {
    /// A block that is safe on its stream at once, by the books.
    ///
    /// A hit takes one lock, for short arithmetic, and makes no driver call or system call.
    #[inline(never)]
    pub(crate) fn malloc(&self, want: Want) -> Result<Address, Error> {
        let Some(bytes) = size::round_up(want.bytes) else {
            return Err(self.beyond_reach(want.bytes));
        };
        self.look_for_captures()?;
        if let Some(address) = self.hand_out(&want, bytes) {
            return Ok(address);
        }
        let key = want.stream.key();
        let wait_ms = want.wait_ms.unwrap_or(self.options.wait_ms);
        let mut starts = 0;
        while starts < MOST_STARTS {
            let mut books = self.my_books();
            let vacated = books.streams.vacated();
            let mut slot = match books.streams.find(key) {
                Some(slot) => slot,
                None => {
                    drop(books);
                    let slot = self.meet(want.stream)?;
                    books = self.my_books();
                    slot
                }
            };
            let mut captured = None;
            if self.may_capture() {
                drop(books);
                captured = self.captured(want.stream, slot, vacated)?;
                books = self.my_books();
            }
            // Else the slot may have become another stream's.
            if books.streams.vacated() != vacated && !mutant("device-slot-of-before") {
                continue;
            }
            let mut pool = books.pools.open(self.id, want.pool)?;
            if let Some(captured) = captured {
                (pool, slot) = captured;
            }
            let request = Request {
                bytes,
                requested: want.bytes,
                alignment: want.alignment.max(size::GRANULE),
                stamp: Stamp { stream: slot, epoch: 0 },
            };
            if slot == ANY {
                books.pools[pool].heap.prepare(EVERYBODY)?;
                books.any_in_use = true;
            }
            let passing = (slot, want.stream.raw);
            if let Some(block) = books.take(pool, &request)? {
                books.hit(pool);
                let due = books.streams.is_due(slot);
                self.lend(&mut books, pool, block.address, want.stream);
                drop(books);
                if due {
                    self.tend(passing);
                }
                return Ok(block.address);
            }
            // The slot means this stream until the call ends.
            books.streams.pin(slot);
            books.pools[pool].users += 1;
            drop(books);
            let served = self.serve_with_help(pool, &request, passing, wait_ms);
            {
                let books = &mut *self.books.lock();
                books.streams.unpin(slot);
                books.pools[pool].users -= 1;
            }
            // `None`: the device was reset under us, and starts anew.
            if let Some(address) = served? {
                let mut books = self.books.lock();
                self.set_shelf_limit(&books);
                self.lend(&mut books, pool, address, want.stream);
                return Ok(address);
            }
            starts += 1;
        }
        Err(Error::DeviceReset(self.id.0))
    }

    /// Serves what is not in the stream's own cache as it stands: from limbo, from a shelf, from other
    /// streams' memory that is ready, or by the ladder. `None`: the device was reset under us.
    fn serve_slowly(
        &self,
        pool: PoolId,
        request: &Request,
        passing: (StreamSlot, usize),
        wait_ms: u64,
    ) -> Result<Option<Address>, Error> {
        if !self.books.lock().streams.is_captured(passing.0) {
            self.settle_for(request.bytes)?;
        }
        let mut books = self.all_books();
        let due = books.streams.is_due(passing.0) || books.streams.is_behind(passing.0);
        let mut found = books.take(pool, request)?;
        drop(books);
        if found.is_none() {
            found = self.adopt_ready(pool, request)?;
        }
        if due {
            self.tend(passing);
        }
        match found {
            Some(block) => {
                self.books.lock().hit(pool);
                Ok(Some(block.address))
            }
            None => reclaim::serve(self, pool, request, passing, wait_ms),
        }
    }

    /// Gives a block back at the point that the host has reached in the block's own stream, by the
    /// books.
    #[inline(never)]
    pub(crate) fn free(&self, pool: PoolId, address: Address) -> Result<(), Error> {
        self.look_for_captures()?;
        if self.take_back(address) {
            return Ok(());
        }
        let mut books = self.my_books();
        let pool = books.serving(self.id, address, pool)?;
        if self.may_capture() {
            drop(books);
            self.note_capture(pool, address)?;
            books = self.my_books();
        }
        self.know_me(&mut books);
        self.end_loan(&mut books, address)?;
        books.give_to_everybody(pool, address)?;
        let mut begun = Vec::new();
        books.note_eager_use(pool, address, &mut begun)?;
        if !books.limbo.is_noted(address) || mutant("device-no-limbo") {
            books.release(self.id, pool, address)
        } else {
            books.release_to_limbo(self.id, pool, address, &mut begun)
        }
        .map_err(|error| self.explain_shelved(error))?;
        let last = pool != PoolId::DEFAULT && books.pools[pool].is_idle();
        drop(books);
        self.record(&begun);
        if last {
            // The block is free. What cannot go back now does so later.
            let _ = self.reap();
        }
        match self.options.caching {
            true => Ok(()),
            // The block is free. What there is no host memory to give back now, the next call does.
            false => match self.pass_back(pool) {
                Err(Error::HostOutOfMemory) => Ok(()),
                outcome => outcome,
            },
        }
    }

    /// Notes that another stream uses the block: after its free it is not reused before the work
    /// that this stream had then is over.
    pub(crate) fn record_stream(
        &self,
        pool: PoolId,
        address: Address,
        stream: Named,
    ) -> Result<(), Error> {
        self.with_slot(stream, |books, slot| self.note_use(books, (pool, address), slot))
    }

    /// The live block that an address lies in.
    pub(crate) fn info(&self, pool: PoolId, address: Address) -> Result<Info, Error> {
        let books = self.books.lock();
        let pool = books.serving(self.id, address, pool)?;
        let block = books.live(self.id, pool, address)?;
        let (handle, id) = books.streams.names(block.stream);
        let (bytes, requested) = (block.bytes, self.requested(&block, address)?);
        Ok(Info { address: block.address, bytes, requested, handle, id })
    }

    /// The device's number.
    pub(crate) fn id(&self) -> DeviceId {
        self.id
    }
}
