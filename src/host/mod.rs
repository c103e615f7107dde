#![forbid(unsafe_code)]
//! Page-locked host memory: its books joined to the drivers of the devices that it is of.
//!
//! One lock, over arithmetic alone; every call of a driver is made without it. A hit takes it once.
//! Memory that the host can see is handed out only when its last use is known to be over: an order
//! between streams would not hold the host back.
//!
//! The way down when the cache misses: what has been freed and is over; fresh memory, after so much
//! of the cache went back that what is reserved stays near the most that was ever in use; when the
//! driver refuses, all of the cache; a wait for the last users of one freed block; the observers of
//! that; and the error, in numbers. After each the search begins again.

mod books;
mod oom;
mod waits;

use self::books::{Books, Departure, Segment, segment_sizes};
use self::waits::{Freed, Use};
use crate::device::{Device, Named};
use crate::error::{DriverError, Error};
use crate::mutants::mutant;
use crate::observers::{self, Event};
use crate::size;
use crate::stats::cuddy_host_stats;
use crate::sync::Lock;
use crate::types::{Address, Stamp};

/// Rank of the lock around the books: below those of devices, whose streams they ask about.
const BOOKS: u8 = 3;

/// All page-locked memory of the process.
pub(crate) struct Host {
    books: Lock<Books, BOOKS>,
    /// Whether anything is kept; else each block is one allocation of the driver.
    caching: bool,
}

/// A request as it came in.
#[derive(Clone, Copy)]
pub(crate) struct Want {
    /// In bytes; not zero.
    pub bytes: u64,
    /// The flags of `cuMemHostAlloc`.
    pub flags: u32,
    /// The program records every stream that uses the block.
    pub named: bool,
}

/// How far down a request has come.
#[derive(Default)]
struct Descent {
    /// Memory was given back or waited for.
    helped: bool,
    refused: Option<DriverError>,
    /// Room that callbacks have made so far: what was live at the least.
    least_live: Option<u64>,
}

impl Host {
    /// Nothing is reserved.
    pub(crate) fn new(caching: bool) -> Result<Self, Error> {
        Ok(Self { books: Lock::new(Books::new()?), caching })
    }

    /// A block that nobody uses any more. `device` names the one whose context new memory is to be
    /// of.
    pub(crate) fn malloc(
        &self,
        want: Want,
        device: impl Fn() -> Result<&'static Device, Error>,
    ) -> Result<Address, Error> {
        let Some(bytes) = size::round_up(want.bytes) else {
            self.books.lock().stats.out_of_memory_count += 1;
            return Err(self.out_of_memory(want, None));
        };
        if let Some(found) = self.take(bytes, want)? {
            return Ok(found);
        }
        let served = self.descend(bytes, want, &device);
        self.tell_changes();
        served
    }

    fn descend(
        &self,
        bytes: u64,
        want: Want,
        device: &impl Fn() -> Result<&'static Device, Error>,
    ) -> Result<Address, Error> {
        let mut descent = Descent::default();
        // What cannot be asked now may be asked later, and is no reason to fail.
        let _ = self.notice_resets();
        loop {
            let _ = self.settle();
            if let Some(found) = self.take(bytes, want)? {
                return Ok(self.count_retry(&descent, found));
            }
            // Where only a wait shows that a block is over, it is what cuMemFreeHost() would have
            // done.
            let must_wait = self.books.lock().waits.must_be_waited_for(bytes);
            if must_wait && self.wait_for_one(bytes).unwrap_or(false) {
                continue;
            }
            if let Some(found) = self.grow(bytes, want, device()?, &mut descent)? {
                return Ok(self.count_retry(&descent, found));
            }
            if self.give_back(u64::MAX).0 > 0 || self.wait_for_one(bytes)? {
                descent.helped = true;
                continue;
            }
            if !self.call_for_help(want, &mut descent) {
                self.books.lock().stats.out_of_memory_count += 1;
                return Err(self.out_of_memory(want, descent.refused));
            }
        }
    }

    /// A block out of the cache.
    fn take(&self, bytes: u64, want: Want) -> Result<Option<Address>, Error> {
        let mut books = self.books.lock();
        let block = books.take(bytes, want.bytes, want.flags, want.named)?;
        if block.is_some() {
            books.stats.hit_count += 1;
            #[cfg(debug_assertions)]
            books.check();
        }
        Ok(block.map(|block| block.address))
    }

    fn count_retry(&self, descent: &Descent, found: Address) -> Address {
        self.books.lock().stats.retry_count += u64::from(descent.helped);
        found
    }

    /// Fresh memory for a block: of the driver, after the cache has made room. `None` if it
    /// refuses.
    fn grow(
        &self,
        bytes: u64,
        want: Want,
        device: &'static Device,
        descent: &mut Descent,
    ) -> Result<Option<Address>, Error> {
        let generation = device.generation()?;
        let sizes = segment_sizes(bytes, self.caching);
        for (at, &segment) in sizes.iter().enumerate() {
            if at > 0 && segment == sizes[0] {
                break;
            }
            let excess = self.books.lock().excess(bytes, segment);
            // What the driver fails to take back is no reason to fail.
            let _ = self.give_back(excess);
            // The driver takes the flags that it knows; the calling thread's memory policy holds.
            let ask = || device.within(|inside| inside.host_alloc(segment, want.flags));
            let answer = match mutant("host-grows-elsewhere") {
                true => std::thread::scope(|threads| threads.spawn(ask).join()).expect("it asks"),
                false => ask(),
            };
            match answer {
                Ok(start) => {
                    let held = Segment { bytes: segment, device, generation };
                    return self.enter(Address(start), held, bytes, want).map(Some);
                }
                Err(error) if error.is_out_of_memory() => descent.refused = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Enters a segment, and cuts the block from it before anybody else can.
    fn enter(
        &self,
        start: Address,
        segment: Segment,
        bytes: u64,
        want: Want,
    ) -> Result<Address, Error> {
        let mut books = self.books.lock();
        if let Err(error) = books.enter(start, want.flags, segment) {
            drop(books);
            // What cannot be entered goes back; what does not is the driver's until the end.
            let _ = segment.device.within(|inside| inside.host_free(start.0));
            return Err(error);
        }
        let block = books.take(bytes, want.bytes, want.flags, want.named)?;
        books.stats.miss_count += 1;
        #[cfg(debug_assertions)]
        books.check();
        let block = block.ok_or(Error::Internal("a new segment does not fit its request"))?;
        Ok(block.address)
    }

    /// Frees a block. Never waits; the driver is called when fences are due.
    pub(crate) fn free(&self, address: Address) -> Result<(), Error> {
        let freed = self.books.lock().free(address, !self.caching)?;
        if !self.caching {
            // The driver waits for whoever uses the block, as it always does.
            let (_, outcome) = self.give_back(u64::MAX);
            self.tell_changes();
            return outcome.or_else(|error| match error {
                Error::Shutdown => Ok(()),
                error => Err(error),
            });
        }
        if freed == (Freed::Waits { due: true }) {
            // What cannot be fenced now is fenced by the next miss.
            let _ = self.fence();
        }
        Ok(())
    }

    /// Notes that a stream uses a live block.
    pub(crate) fn record_stream(
        &self,
        address: Address,
        device: &'static Device,
        stream: Named,
    ) -> Result<(), Error> {
        let slot = device.begin_use(stream)?;
        let used = Use { device, stamp: Stamp { stream: slot, epoch: 0 } };
        let noted = self.books.lock().note(address, used);
        if noted != Ok(true) {
            device.end_use(slot);
        }
        noted.map(|_| ())
    }

    /// The device that a live block was allocated for.
    pub(crate) fn device_of(&self, address: Address) -> Option<&'static Device> {
        self.books.lock().device_of(address)
    }

    /// Records the fences that freed blocks lack.
    fn fence(&self) -> Result<(), Error> {
        let all = {
            let mut books = self.books.lock();
            books.waits.note_fenced();
            books.waits.stamps(None)?
        };
        all.iter().try_for_each(|(device, stamps)| device.fence_uses(stamps))
    }

    /// Asks for all freed blocks whether they are over; how many are.
    fn settle(&self) -> Result<usize, Error> {
        if self.books.lock().waits.len() == 0 {
            return Ok(0);
        }
        self.fence()?;
        let mut all = self.books.lock().waits.stamps(None)?;
        let asked = all.iter_mut().try_for_each(|(device, stamps)| device.ask_uses(stamps));
        let settled = self.books.lock().settle();
        asked.map(|()| settled)
    }

    /// Waits for the last users of the freed block that helps most; whether any block is free now.
    fn wait_for_one(&self, bytes: u64) -> Result<bool, Error> {
        let all = self.books.lock().waits.stamps(Some(bytes))?;
        if all.is_empty() || mutant("host-waits-for-nobody") {
            return Ok(false);
        }
        self.wait_for(&all)?;
        Ok(self.books.lock().settle() > 0)
    }

    fn wait_for(&self, all: &[(&'static Device, Vec<Stamp>)]) -> Result<(), Error> {
        for (device, stamps) in all {
            self.books.lock().stats.wait_count += 1;
            device.fence_uses(stamps)?;
            device.wait_uses(stamps)?;
        }
        Ok(())
    }

    /// Gives free segments of at least so many bytes back, or all that there are. How many bytes,
    /// and the last failure. Nothing while a graph is captured: the driver may wait for work there.
    fn give_back(&self, bytes: u64) -> (u64, Result<(), Error>) {
        let devices = self.books.lock().devices();
        let claimed = match devices {
            Ok(devices) if devices.iter().any(|device| is_capturing(device)) => {
                return (0, Ok(()));
            }
            Ok(_) => self.books.lock().claim(bytes),
            Err(error) => Err(error),
        };
        let (mut given, mut outcome) = (0, Ok(()));
        let leaving = claimed.unwrap_or_else(|error| {
            outcome = Err(error);
            Vec::new()
        });
        for one in &leaving {
            match self.give_back_one(one) {
                Ok(()) => given += one.run.bytes,
                Err(error) => outcome = Err(error),
            }
        }
        (given, outcome)
    }

    fn give_back_one(&self, leaving: &Departure) -> Result<(), Error> {
        let Segment { device, generation, .. } = leaving.segment;
        let freed = device.within(|inside| inside.host_free(leaving.run.address.0));
        // After a reset the driver has freed it by itself.
        let gone = freed.is_err() && device.generation().is_ok_and(|now| now != generation);
        let mut books = self.books.lock();
        match freed {
            Ok(()) => books.removed(leaving),
            Err(_) if gone => books.removed(leaving),
            // At the process's end everything has gone back already.
            Err(DriverError { code: 4, .. }) => books.unclaim(leaving).and(Err(Error::Shutdown)),
            Err(error) => {
                books.keep_stuck(leaving);
                Err(error.into())
            }
        }
    }

    /// Gives all that is free back to the driver, after a wait for what streams still use. How many
    /// bytes.
    pub(crate) fn empty_cache(&self) -> Result<u64, Error> {
        let before = self.books.lock().stats.reserved;
        let outcome = self.empty();
        let now = self.books.lock().stats.reserved;
        self.tell_changes();
        match outcome {
            Ok(()) | Err(Error::Shutdown) => Ok(before.saturating_sub(now)),
            Err(error) => Err(error),
        }
    }

    fn empty(&self) -> Result<(), Error> {
        self.notice_resets()?;
        self.settle()?;
        let all = self.books.lock().waits.stamps(None)?;
        self.wait_for(&all)?;
        self.books.lock().settle();
        self.give_back(u64::MAX).1
    }

    /// Forgets what was of contexts that are no more.
    fn notice_resets(&self) -> Result<(), Error> {
        let devices = self.books.lock().devices()?;
        for device in devices.into_iter().filter(|_| !mutant("host-reset-unnoticed")) {
            let generation = device.generation()?;
            self.books.lock().forget(device.id(), generation)?;
        }
        Ok(())
    }

    /// The counters, all of one moment.
    pub(crate) fn stats(&self) -> cuddy_host_stats {
        self.books.lock().counters()
    }

    /// Every peak becomes what is now.
    pub(crate) fn reset_peaks(&self) {
        self.books.lock().stats.reset_peaks();
    }

    /// Totals and counts of events start at zero again.
    pub(crate) fn reset_accumulated(&self) {
        self.books.lock().stats.reset_accumulated();
    }

    /// Calls the observers of what finds no memory. Whether the search is to begin again.
    fn call_for_help(&self, want: Want, descent: &mut Descent) -> bool {
        if !observers::wants(observers::OUT_OF_MEMORY) {
            return false;
        }
        let event = {
            let mut books = self.books.lock();
            let live = books.stats.allocated;
            if descent.least_live.is_some_and(|least| live >= least) {
                return false;
            }
            descent.least_live = Some(live);
            books.stats.callback_count += 1;
            event(&books.stats, observers::OUT_OF_MEMORY, want.bytes)
        };
        observers::tell(&event);
        descent.helped = true;
        true
    }

    /// Tells observers by how much what is reserved has changed.
    fn tell_changes(&self) {
        if observers::is_inside() {
            return;
        }
        let event = {
            let mut books = self.books.lock();
            let (before, now) = (books.reserved_told, books.stats.reserved);
            books.reserved_told = now;
            let kind = if now > before { observers::GROWTH } else { observers::RELEASE };
            (now != before).then(|| event(&books.stats, kind, now.abs_diff(before)))
        };
        if let Some(event) = event {
            observers::tell(&event);
        }
    }
}

/// Whether a graph may be captured on the device.
fn is_capturing(device: &Device) -> bool {
    device.is_capturing() && !mutant("host-gives-back-in-a-capture")
}

fn event(stats: &cuddy_host_stats, kind: u32, bytes: u64) -> Event {
    Event {
        kind,
        device: observers::HOST,
        bytes,
        allocated: stats.allocated,
        reserved: stats.reserved,
        limit: u64::MAX,
        stream: 0,
    }
}
