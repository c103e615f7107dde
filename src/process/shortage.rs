#![forbid(unsafe_code)]
//! Shortages: requests that found no memory, kept as data after their error was told.
//!
//! Each thread has its last one, and the process has the last of any thread. Neither is forgotten.

use std::cell::Cell;
use std::fmt::Write;

use super::{Asked, recorder, watch};
use crate::device::{Scene, short, take_scene};
use crate::error::{Error, Words};
use crate::json::{Page, Quoted, put};
use crate::mutants::mutant;
use crate::scopes::{Largest, OUTSIDE};
use crate::sync::{Lock, refuse_after_fork};

/// Rank of the lock around the last shortage: nothing else is locked under it.
const RANK: u8 = 22;

/// A request that found no memory.
#[derive(Clone, Copy)]
pub(super) struct Shortage {
    time_us: u64,
    scene: Scene,
    /// Where live memory was allocated, as far as that is watched.
    scopes: Largest,
}

thread_local! {
    /// This thread's last one. No destructor.
    static MINE: Cell<Option<Shortage>> = const { Cell::new(None) };
}

/// The last one of any thread.
static LAST: Lock<Option<Shortage>, RANK> = Lock::new(None);

/// A request has found no memory, as `text` explains: notes it; the error, with what else is known.
#[cold]
pub(super) fn happened(text: String, asked: Asked) -> Error {
    let mut words = Words::from(text);
    let shortage = take_scene().map(|scene| Shortage {
        time_us: watch::now_us(),
        scene,
        scopes: watch::largest_scopes(scene.device()),
    });
    MINE.set(shortage);
    if let Some(shortage) = shortage {
        *LAST.lock() = Some(shortage);
        shortage.name_scopes(&mut words);
    }
    watch::note_shortage(asked);
    recorder::write(&mut words);
    Error::OutOfMemory(words.into_string())
}

impl Shortage {
    /// Where live memory was allocated, as a sentence; nothing where no scope has any.
    fn name_scopes(&self, words: &mut Words) {
        if self.scopes.iter().all(|&(scope, bytes)| scope == OUTSIDE || bytes == 0) {
            return;
        }
        let mut mark = " Live blocks by scope: ";
        for &(scope, bytes) in self.scopes.iter().filter(|(_, bytes)| *bytes > 0) {
            let path = watch::path(scope);
            let path = if scope == OUTSIDE { "no scope" } else { &path };
            // What host memory has no room for is cut.
            let _ = write!(words, "{mark}{path} {}", short(bytes));
            mark = ", ";
        }
        let _ = words.write_str(".");
    }

    /// An object.
    fn data(&self, page: &mut Page) {
        put!(page, "{{\"time_us\":{},", self.time_us);
        self.scene.data(page);
        put!(page, ",\"scopes\":[");
        let mut first = true;
        for &(scope, bytes) in self.scopes.iter().filter(|(_, bytes)| *bytes > 0) {
            page.next(&mut first);
            let path = watch::path(scope);
            put!(page, "{{\"scope\":{scope},\"path\":{},", Quoted(&path));
            put!(page, "\"live_bytes\":{bytes}}}");
        }
        let mut words = Words::from(self.scene.text());
        self.name_scopes(&mut words);
        put!(page, "],\"message\":{}}}", Quoted(&words.into_string()));
    }
}

/// Tells of a shortage; `null` if there was none.
fn tell(page: &mut Page, shortage: Option<Shortage>) {
    match shortage {
        Some(shortage) => shortage.data(page),
        None => put!(page, "null"),
    }
}

/// Tells of the last one of any thread.
pub(super) fn put_last(page: &mut Page) {
    let last = *LAST.lock();
    tell(page, last);
}

/// The last request of the calling thread that found no memory, as JSON; `null` if there was none.
pub fn last_out_of_memory() -> Result<String, Error> {
    refuse_after_fork()?;
    let mut page = Page::default();
    let mine = if mutant("shortage-is-anybodys") { *LAST.lock() } else { MINE.get() };
    tell(&mut page, mine);
    page.whole()
}
