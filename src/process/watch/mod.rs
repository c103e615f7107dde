#![forbid(unsafe_code)]
//! Watching: scopes and history. Off until a program asks for either; then every allocation and every
//! free goes this way.
//!
//! A block is *known* from its allocation to its free, if it was allocated while watching was on.

mod events;
mod text;

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use super::start::started_already;
use crate::error::{Error, sentence};
use crate::journal::{Entry, Journal, Kind};
use crate::mutants::mutant;
use crate::observers::{self, Event};
use crate::scopes::{Figures, Largest, OUTSIDE, Scopes};
use crate::sync::{Lock, refuse_after_fork, set_watched, thread_number};

pub(super) use self::events::{around, free, malloc, note_shortage};

/// Rank of the lock around what is watched: nothing else is locked under it.
const RANK: u8 = 21;
/// The most scopes that a thread is in at once.
const DEEPEST: usize = 63;
/// The most entries of history.
const MOST_EVENTS: usize = 1 << 28;

struct Watched {
    scopes: Option<Scopes>,
    journal: Journal,
    /// The observer of growth and release; 0 is none.
    observer: u64,
}

static WATCHED: Lock<Watched, RANK> =
    Lock::new(Watched { scopes: None, journal: Journal::new(), observer: 0 });

thread_local! {
    /// The scopes that this thread is in, and their runs: the first `DEPTH`. No destructor.
    static INSIDE: [Cell<(u32, u64)>; DEEPEST] =
        const { [const { Cell::new((OUTSIDE, 0)) }; DEEPEST] };
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// The scope that this thread is in, and which run of it.
fn innermost() -> (u32, u64) {
    match DEPTH.get() {
        0 => (OUTSIDE, 0),
        depth => INSIDE.with(|inside| inside[depth - 1].get()),
    }
}

/// Microseconds since 1970.
pub(super) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() * 1_000_000 + u64::from(since.subsec_micros())
}

/// An entry of now and of this thread.
#[inline]
fn entry(kind: Kind) -> Entry {
    Entry {
        time_us: now_us(),
        kind,
        device: 0,
        stream: 0,
        address: 0,
        bytes: 0,
        requested: 0,
        scope: innermost().0,
        thread: thread_number(),
    }
}

/// Memory was got from the driver, or given back.
fn reserved_changed(event: &Event, _function: usize, _user: usize) {
    let kind = if event.kind == observers::GROWTH { Kind::Growth } else { Kind::Release };
    let changed = Entry { device: event.device, bytes: event.bytes, scope: 0, ..entry(kind) };
    WATCHED.lock().journal.note(changed);
}

/// Begins a scope on this thread, inside the one that it is in.
pub fn scope_begin(name: &str) -> Result<(), Error> {
    refuse_after_fork()?;
    let depth = DEPTH.get();
    if depth == DEEPEST {
        let why = sentence!("this thread is in {DEEPEST} scopes already: end one first");
        return Err(Error::InvalidArgument { argument: "name", why });
    }
    if name.is_empty() || name.contains('/') {
        let why =
            sentence!("a scope's name is not empty, and has no slash: that stands between names");
        return Err(Error::InvalidArgument { argument: "name", why });
    }
    let begun = WATCHED.lock().scopes.get_or_insert_default().begin(innermost().0, name)?;
    INSIDE.with(|inside| inside[depth].set(begun));
    DEPTH.set(depth + 1);
    set_watched(true);
    Ok(())
}

/// Ends the scope that this thread began last, which must have that name; `None` is whichever it is.
pub fn scope_end(name: Option<&str>) -> Result<(), Error> {
    refuse_after_fork()?;
    let depth = DEPTH.get();
    if depth == 0 {
        let why = sentence!("this thread is in no scope");
        return Err(Error::InvalidArgument { argument: "name", why });
    }
    if let Some(name) = name {
        let mut watched = WATCHED.lock();
        let innermost = watched.scopes.get_or_insert_default().name(innermost().0).0;
        if innermost != name {
            let why = sentence!("the scope that this thread began last is \"{innermost}\"");
            return Err(Error::InvalidArgument { argument: "name", why });
        }
    }
    DEPTH.set(depth - 1);
    Ok(())
}

/// Says what a live block is for.
pub fn annotate(address: u64, label: &str) -> Result<(), Error> {
    let block = super::block_info(address)?;
    let mut watched = WATCHED.lock();
    match watched.scopes.get_or_insert_default().annotate(block.address, label)? {
        true => Ok(()),
        false => Err(Error::InvalidArgument {
            argument: "ptr",
            why: sentence!(
                "the block was allocated before scopes or history were in use: begin a scope, or record \
                 history, first"
            ),
        }),
    }
}

/// Serves a request, whose block has a label from the beginning. Where host memory has no room for
/// that, it goes without.
pub fn tagged(label: &str, serve: impl FnOnce() -> Result<u64, Error>) -> Result<u64, Error> {
    refuse_after_fork()?;
    set_watched(true);
    let address = serve()?;
    if address != 0 && !mutant("watch-tags-nothing") {
        let _ = annotate(address, label);
    }
    Ok(address)
}

/// Keeps the last `events` things that happen from now on; 0 ends it. What was kept is forgotten.
pub fn record_history(events: usize) -> Result<(), Error> {
    refuse_after_fork()?;
    if events > MOST_EVENTS {
        let why = sentence!("{events} are more than {MOST_EVENTS}");
        return Err(Error::InvalidArgument { argument: "events", why });
    }
    let old = {
        let mut watched = WATCHED.lock();
        watched.journal.resize(events)?;
        std::mem::replace(&mut watched.observer, 0)
    };
    if old != 0 {
        observers::remove(old)?;
    }
    if events > 0 {
        let kinds = observers::GROWTH | observers::RELEASE;
        let observer = observers::add(kinds, reserved_changed, 0, 0)?;
        WATCHED.lock().observer = observer;
        set_watched(true);
    } else if WATCHED.lock().scopes.as_ref().is_none_or(|scopes| scopes.each().count() < 2) {
        // No scope was ever begun: back to no cost. What was known of blocks is forgotten.
        set_watched(false);
        WATCHED.lock().scopes = None;
    }
    Ok(())
}

/// Every scope with its figures, as JSON.
pub fn scopes() -> Result<String, Error> {
    refuse_after_fork()?;
    text::scopes(&mut WATCHED.lock())
}

/// Every scope's path and figures, the outermost first.
pub(super) fn scope_figures() -> Result<Vec<(String, Figures)>, Error> {
    let watched = WATCHED.lock();
    let mut found = Vec::new();
    let Some(scopes) = &watched.scopes else { return Ok(found) };
    for (number, _, _, _, figures) in scopes.each() {
        found.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
        found.push((scopes.path(number), figures));
    }
    Ok(found)
}

/// The live blocks that were allocated in the scope of that path, or in one inside of it, as JSON; ""
/// is every known block.
pub fn leaks(path: &str) -> Result<String, Error> {
    refuse_after_fork()?;
    let mut watched = WATCHED.lock();
    let scopes = watched.scopes.get_or_insert_default();
    let found = if path.is_empty() { Some(OUTSIDE) } else { scopes.find(path) };
    let Some(scope) = found else {
        let why = sentence!(
            "there is no scope \"{path}\": it is named by all names from the outermost on"
        );
        return Err(Error::InvalidArgument { argument: "scope", why });
    };
    text::leaks(scopes, scope)
}

/// The scopes that most live bytes of a device were allocated in.
pub(super) fn largest_scopes(device: u32) -> Largest {
    let watched = WATCHED.lock();
    watched.scopes.as_ref().map_or_else(Largest::default, |scopes| scopes.largest(device))
}

/// A scope's names from the outermost on; "" is in none, or of one that is not known any more.
pub(super) fn path(scope: u32) -> String {
    WATCHED.lock().scopes.as_ref().map(|scopes| scopes.path(scope)).unwrap_or_default()
}

/// Everything that is known of memory now, as JSON.
pub fn snapshot() -> Result<String, Error> {
    refuse_after_fork()?;
    let devices = started_already().map(|process| process.devices_in_use());
    text::snapshot(devices.into_iter().flatten(), &WATCHED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::must_detour;

    /// A hit makes one test, whatever was on before.
    #[test]
    fn a_history_that_is_off_is_in_no_hits_way() {
        assert!(!must_detour());
        for _ in 0..2 {
            record_history(10).expect("host memory");
            assert!(must_detour(), "hits are told");
            record_history(0).expect("it was on");
            assert!(!must_detour() && WATCHED.lock().scopes.is_none());
        }
    }
}
