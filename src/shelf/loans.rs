//! Loans: the blocks of one device that can be freed and handed out again without its lock.
//!
//! To the heap a block on loan is live. Here it is *out* (a caller has it) or *shelved* (free, on some
//! thread's shelf). Whoever moves it from out to shelved, by an atomic exchange, has freed it: of two
//! that try, one fails. A block that other streams use too is *barred* from that way.
//!
//! Open addressing, linear probing, at most three quarters full. A place keeps its address for as
//! long as the table is what it is, so that a search without a lock never meets another block in it;
//! a block that comes on loan again finds its old place. What changes the table is done with every
//! thread stopped.

use std::alloc::{Layout, alloc_zeroed};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::gate::Stopped;
use crate::mutants::mutant;
use crate::types::{Address, StreamSlot};

/// Places that there is room for; they cost nothing before they are used. A block beyond three
/// quarters of them is not lent.
const MOST: usize = 1 << PLACE_BITS;
const PLACE_BITS: u32 = 22;
/// Places that a table begins with.
const FIRST: usize = 1 << 8;

/// Low bits of a granule's number in `Place::name`; the stream's slot is below.
const SLOT_BITS: u32 = 23;
/// One more than the largest slot that can be named.
pub(crate) const SLOTS: u32 = 1 << SLOT_BITS;

const STATE: u64 = 0b11;
const OUT: u64 = 1;
const SHELVED: u64 = 2;
const BARRED: u64 = 0b100;
/// Bytes beyond what was asked for: nine bits from here.
const SLACK_SHIFT: u32 = 3;
/// Granules of the block: the rest.
const SIZE_SHIFT: u32 = 12;
const GRANULE_BITS: u32 = 9;

/// Where a block is found: its address and stream; its state, size and slack. `name == 0` is an empty
/// place, a state of 0 a block that is not on loan.
#[derive(Debug)]
struct Place {
    name: AtomicU64,
    word: AtomicU64,
}

/// A block that changed hands here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lent {
    /// Its size, in bytes.
    pub bytes: u64,
    /// What was asked for, in bytes.
    pub requested: u64,
    /// The stream that it belongs to.
    pub stream: StreamSlot,
}

/// A block on a shelf: where it is, and where [`Loans`] has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept(u64);

impl Kept {
    pub(super) const NONE: Self = Self(0);

    #[inline]
    pub(super) fn new(address: Address, place: usize) -> Self {
        Self(granule(address) << PLACE_BITS | (place as u64 & (MOST as u64 - 1)))
    }

    #[inline]
    pub(crate) fn address(self) -> Address {
        Address(self.0 >> PLACE_BITS << GRANULE_BITS)
    }

    /// Where it was when the block was put on the shelf: the table may have been made anew since.
    #[inline]
    fn place(self) -> usize {
        (self.0 & (MOST as u64 - 1)) as usize
    }
}

/// The state of a block on loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A caller has it.
    Out(Lent),
    /// It is free, on a shelf.
    Shelved(Lent),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Loans {
    places: &'static [Place],
    /// The number of places in use, less one.
    mask: AtomicUsize,
    /// Places that have an address.
    named: AtomicUsize,
}

impl Loans {
    /// An empty table; one that never lends if there is no host memory for it.
    pub(crate) fn new() -> Self {
        let places = zeroed_places(MOST).unwrap_or(&[]);
        Self { places, mask: AtomicUsize::new(FIRST - 1), named: AtomicUsize::new(0) }
    }

    /// Puts a live block on loan, out: what a shelf calls it. Under the device's lock. `None` if it
    /// cannot be.
    pub(crate) fn lend(&self, address: Address, lent: Lent) -> Option<Kept> {
        let slack = lent.bytes - lent.requested;
        let named = lent.stream.0 < SLOTS && granule(address) >> (64 - SLOT_BITS) == 0;
        if !named || slack >= 1 << GRANULE_BITS {
            return None;
        }
        let (at, place) = self.probe(address)?;
        let granule = granule(address);
        if place.name.load(Ordering::Relaxed) == 0 {
            let named = self.named.load(Ordering::Relaxed) + 1;
            if named * 4 > (self.mask.load(Ordering::Relaxed) + 1) * 3 {
                return None;
            }
            self.named.store(named, Ordering::Relaxed);
        }
        place.name.store(granule << SLOT_BITS | u64::from(lent.stream.0), Ordering::Relaxed);
        place.word.store(word(OUT, lent.bytes, slack), Ordering::Release);
        Some(Kept::new(address, at))
    }

    /// Whether the table has to be made anew before more can be lent.
    pub(crate) fn is_full(&self) -> bool {
        !self.places.is_empty()
            && (self.named.load(Ordering::Relaxed) + 1) * 4
                > (self.mask.load(Ordering::Relaxed) + 1) * 3
    }

    /// Makes room: forgets the places of blocks that are not on loan, and has twice as many if that
    /// is not enough. Under the device's lock. What there is no host memory for is not done.
    pub(crate) fn make_room(&self, _stopped: &mut Stopped) {
        let size = self.mask.load(Ordering::Relaxed) + 1;
        let on_loan = |place: &&Place| place.word.load(Ordering::Relaxed) & STATE != 0;
        let count = self.places[..size].iter().filter(on_loan).count();
        let mut kept = Vec::new();
        if kept.try_reserve_exact(count).is_err() {
            return;
        }
        let old = self.places[..size].iter().filter(on_loan);
        kept.extend(
            old.map(|place| {
                (place.name.load(Ordering::Relaxed), place.word.load(Ordering::Relaxed))
            }),
        );
        let grown = if count * 2 > size { (size * 2).min(MOST) } else { size };
        for place in &self.places[..size] {
            place.name.store(0, Ordering::Relaxed);
            place.word.store(0, Ordering::Relaxed);
        }
        self.mask.store(grown - 1, Ordering::Relaxed);
        self.named.store(count, Ordering::Relaxed);
        for (name, word) in kept {
            let address = Address((name >> SLOT_BITS) << GRANULE_BITS);
            let Some((_, place)) = self.probe(address) else { continue };
            place.name.store(name, Ordering::Relaxed);
            place.word.store(word, Ordering::Relaxed);
        }
    }

    /// Nothing is on loan any more: the device was reset.
    pub(crate) fn forget_all(&self, _stopped: &mut Stopped) {
        let size = self.mask.load(Ordering::Relaxed) + 1;
        for place in self.places.iter().take(size) {
            place.name.store(0, Ordering::Relaxed);
            place.word.store(0, Ordering::Relaxed);
        }
        self.named.store(0, Ordering::Relaxed);
    }

    /// A block on loan, without changing it. Under the device's lock, or inside the gate.
    pub(crate) fn standing(&self, address: Address) -> Option<Standing> {
        let place = self.find(address)?;
        let (name, word) = (place.name.load(Ordering::Relaxed), place.word.load(Ordering::Acquire));
        match word & STATE {
            OUT => Some(Standing::Out(read(name, word))),
            SHELVED => Some(Standing::Shelved(read(name, word))),
            _ => None,
        }
    }

    /// Frees a block: from out to shelved, if `may` says so of what it is; and what a shelf calls it.
    /// Inside the gate. `alone` says that no other thread changes loans, but with this one stopped.
    #[inline(always)]
    pub(crate) fn shelve<R>(
        &self,
        address: Address,
        alone: bool,
        may: impl FnOnce(Lent) -> Option<R>,
    ) -> Option<(Kept, Lent, R)> {
        let (at, place) = self.find_at(address)?;
        let word = place.word.load(Ordering::Acquire);
        let name = place.name.load(Ordering::Relaxed);
        if word & (STATE | BARRED) != OUT {
            return None;
        }
        let lent = read(name, word);
        let allowed = may(lent)?;
        let shelved = word - OUT + SHELVED;
        if alone || mutant("shelf-free-not-atomic") {
            if !alone {
                std::thread::yield_now();
            }
            place.word.store(shelved, Ordering::Release);
            return Some((Kept::new(address, at), lent, allowed));
        }
        place.word.compare_exchange(word, shelved, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        if place.name.load(Ordering::Relaxed) != name {
            // Freed twice at once, and handed out to another stream in between: not by this way.
            place.word.store(word, Ordering::Release);
            return None;
        }
        Some((Kept::new(address, at), lent, allowed))
    }

    /// Hands a block of a shelf out again. By the thread whose shelf it was on, inside the gate.
    #[inline(always)]
    pub(crate) fn unshelve(&self, block: Kept, bytes: u64, requested: u64) {
        if let Some(place) = self.place(block) {
            debug_assert_eq!(place.word.load(Ordering::Relaxed) & STATE, SHELVED);
            place.word.store(word(OUT, bytes, bytes - requested), Ordering::Release);
        }
    }

    /// Ends the loan of a shelved block: it goes back to the heap. Under the device's lock, by whoever
    /// took it off its shelf.
    pub(crate) fn end_shelved(&self, block: Kept) {
        if let Some(place) = self.place(block) {
            debug_assert_eq!(place.word.load(Ordering::Relaxed) & STATE, SHELVED);
            place.word.store(0, Ordering::Release);
        }
    }

    /// Ends the loan of a block that is out: what it was. `None` if it is not, or is freed by another
    /// thread at this moment. Under the device's lock. `alone` as in [`Loans::shelve`].
    pub(crate) fn end_out(&self, address: Address, alone: bool) -> Option<Lent> {
        let place = self.find(address)?;
        let name = place.name.load(Ordering::Relaxed);
        if alone {
            let word = place.word.load(Ordering::Relaxed);
            place.word.store(if word & STATE == OUT { 0 } else { word }, Ordering::Relaxed);
            return (word & STATE == OUT).then(|| read(name, word));
        }
        let taken = place.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            (word & STATE == OUT).then_some(0)
        });
        taken.ok().map(|word| read(name, word))
    }

    /// From now on the block is freed under the device's lock only. `false` if it is not out.
    pub(crate) fn bar(&self, address: Address) -> bool {
        if mutant("shelf-takes-recorded") {
            return true;
        }
        self.find(address).is_some_and(|place| {
            let barred = place.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                (word & STATE == OUT).then_some(word | BARRED)
            });
            barred.is_ok()
        })
    }

    /// Every block on loan. Under the device's lock with every thread stopped.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn each(&self, _stopped: &mut Stopped, mut each: impl FnMut(Address, Standing)) {
        for place in self.places.iter().take(self.mask.load(Ordering::Relaxed) + 1) {
            let address =
                Address((place.name.load(Ordering::Relaxed) >> SLOT_BITS) << GRANULE_BITS);
            if let Some(standing) = self.standing(address) {
                each(address, standing);
            }
        }
    }

    /// The place of a block that is on a shelf.
    #[inline(always)]
    fn place(&self, block: Kept) -> Option<&'static Place> {
        let place = self.places.get(block.place())?;
        match place.name.load(Ordering::Relaxed) >> SLOT_BITS == granule(block.address()) {
            true => Some(place),
            false => self.find_anew(block),
        }
    }

    /// The same, in a table that was made anew since the block was put on the shelf.
    #[cold]
    #[inline(never)]
    fn find_anew(&self, block: Kept) -> Option<&'static Place> {
        self.find(block.address())
    }

    /// The place that has this address.
    #[inline]
    fn find(&self, address: Address) -> Option<&'static Place> {
        self.find_at(address).map(|(_, place)| place)
    }

    #[inline]
    fn find_at(&self, address: Address) -> Option<(usize, &'static Place)> {
        if !address.0.is_multiple_of(1 << GRANULE_BITS) {
            return None;
        }
        let (at, place) = self.probe(address)?;
        (place.name.load(Ordering::Relaxed) != 0).then_some((at, place))
    }

    /// The place that has this address, or the empty one where it would be. `None` if there was no
    /// host memory for a table.
    #[inline]
    fn probe(&self, address: Address) -> Option<(usize, &'static Place)> {
        let (granule, mask) = (granule(address), self.mask.load(Ordering::Relaxed));
        let mut at = (granule.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        loop {
            let place = self.places.get(at)?;
            let name = place.name.load(Ordering::Relaxed);
            if name == 0 || name >> SLOT_BITS == granule {
                return Some((at, place));
            }
            at = (at + 1) & mask;
        }
    }
}

#[inline]
fn granule(address: Address) -> u64 {
    address.0 >> GRANULE_BITS
}

#[inline]
fn word(state: u64, bytes: u64, slack: u64) -> u64 {
    (bytes >> GRANULE_BITS) << SIZE_SHIFT | slack << SLACK_SHIFT | state
}

#[inline]
fn read(name: u64, word: u64) -> Lent {
    let bytes = (word >> SIZE_SHIFT) << GRANULE_BITS;
    let slack = word >> SLACK_SHIFT & ((1 << GRANULE_BITS) - 1);
    let stream = StreamSlot(name as u32 & (SLOTS - 1));
    Lent { bytes, requested: bytes - slack, stream }
}

/// Places that read as zero and have no memory behind them yet, for ever.
fn zeroed_places(count: usize) -> Option<&'static [Place]> {
    let layout = Layout::array::<Place>(count).ok()?;
    // SAFETY: the layout has a size that is not zero.
    let first = unsafe { alloc_zeroed(layout) }.cast::<Place>();
    if first.is_null() {
        return None;
    }
    // SAFETY: `count` places lie there, never freed; zero is a value of both their numbers, which may
    // be changed through shared references.
    Some(unsafe { std::slice::from_raw_parts(first, count) })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Barrier;

    use super::*;
    use crate::shelf::stop_all;

    fn lent(bytes: u64, requested: u64, stream: u32) -> Lent {
        Lent { bytes, requested, stream: StreamSlot(stream) }
    }

    /// The same random steps on the table and on a map.
    #[test]
    fn it_is_a_map_whatever_becomes_of_the_table() {
        let loans = Loans::new();
        let mut model: HashMap<u64, Standing> = HashMap::new();
        let mut kept: HashMap<u64, Kept> = HashMap::new();
        let mut random = 1u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % bound
        };
        for step in 0..200_000u64 {
            let address = Address((1 << 40) + below(3000) * 512);
            let bytes = 512 * (1 + below(100));
            let new = lent(bytes, bytes - below(512), below(1000) as u32);
            let known = model.get(&address.0).copied();
            assert_eq!(loans.standing(address), known, "step {step}");
            assert_eq!(loans.standing(Address(address.0 + 1 + below(511))), None);
            match (below(6), known) {
                (0 | 1, None) => {
                    if loans.is_full() {
                        loans.make_room(&mut stop_all());
                    }
                    assert!(loans.lend(address, new).is_some());
                    model.insert(address.0, Standing::Out(new));
                }
                (0 | 1, Some(Standing::Out(it))) => {
                    let shelved = loans.shelve(address, false, |_| Some(()));
                    assert_eq!(
                        shelved.map(|(kept, lent, ())| (kept.address(), lent)),
                        Some((address, it))
                    );
                    kept.insert(address.0, shelved.expect("just seen").0);
                    model.insert(address.0, Standing::Shelved(it));
                }
                (0 | 1, Some(Standing::Shelved(it))) => {
                    assert_eq!(loans.shelve(address, false, |_| Some(())), None);
                    let requested = it.bytes - below(512);
                    loans.unshelve(kept[&address.0], it.bytes, requested);
                    model.insert(address.0, Standing::Out(Lent { requested, ..it }));
                }
                (2, Some(Standing::Shelved(_))) => {
                    loans.end_shelved(kept[&address.0]);
                    model.remove(&address.0);
                }
                (2, Some(Standing::Out(it))) => {
                    assert_eq!(loans.end_out(address, false), Some(it));
                    model.remove(&address.0);
                }
                (3, Some(Standing::Out(it))) => {
                    assert!(loans.bar(address));
                    assert_eq!(loans.shelve(address, false, |_| Some(())), None);
                    assert_eq!(loans.end_out(address, false), Some(it));
                    model.remove(&address.0);
                }
                (4, Some(Standing::Out(_))) => {
                    assert_eq!(loans.shelve(address, false, |_| None::<()>), None);
                }
                (_, None | Some(Standing::Shelved(_))) => {
                    assert_eq!(loans.end_out(address, false), None)
                }
                _ => {}
            }
        }
        let mut count = 0;
        loans.each(&mut stop_all(), |address, standing| {
            assert_eq!(model.get(&address.0), Some(&standing));
            count += 1;
        });
        assert_eq!(count, model.len());
        loans.forget_all(&mut stop_all());
        assert!(model.keys().all(|&address| loans.standing(Address(address)).is_none()));
    }

    #[test]
    fn of_two_threads_that_free_a_block_one_has_freed_it() {
        const ROUNDS: u32 = 20_000;
        let (loans, barrier, address) = (Loans::new(), Barrier::new(2), Address(1 << 40));
        let free_once = || {
            barrier.wait();
            let won = loans.shelve(address, false, |_| Some(())).is_some();
            barrier.wait();
            u32::from(won)
        };
        std::thread::scope(|scope| {
            let theirs = scope.spawn(|| (0..ROUNDS).map(|_| free_once()).sum::<u32>());
            let mut mine = 0;
            for _ in 0..ROUNDS {
                let kept = loans.lend(address, lent(512, 1, 0)).expect("there is room");
                mine += free_once();
                loans.end_shelved(kept);
            }
            assert_eq!(mine + theirs.join().expect("the thread lives"), ROUNDS);
        });
    }

    #[test]
    fn what_cannot_be_named_is_not_lent() {
        let loans = Loans::new();
        assert_eq!(loans.lend(Address(1 << 40), lent(1024, 512, 0)), None, "a slack of 512");
        assert_eq!(loans.lend(Address(1 << 40), lent(512, 512, SLOTS)), None);
        assert_eq!(loans.lend(Address(1 << 50), lent(512, 512, 0)), None);
        assert!(loans.lend(Address((1 << 50) - 512), lent(512, 1, SLOTS - 1)).is_some());
    }
}
