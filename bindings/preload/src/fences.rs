//! **Fences**: events of ours behind all work of a context.
//!
//! One fence stands for all blocks that were in limbo when it was sealed, before it was recorded; it
//! is recorded when a request could use one of them. The host never waits for it.

use std::collections::VecDeque;
use std::sync::{Mutex, TryLockError};

use crate::captures;
use crate::doors::Home;
use crate::memory::{Books, books};

/// An event of ours, in its context.
type Mark = (usize, usize);

/// One fence: an event in the context that owns the memory, and in each other that may use it.
#[derive(Clone, Debug)]
struct Fence {
    epoch: u64,
    first: Mark,
    others: Vec<Mark>,
}

impl Fence {
    fn marks(&self) -> impl Iterator<Item = &Mark> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

/// A context's fences.
#[derive(Debug, Default)]
pub struct Fences {
    /// Those that have not passed, oldest first: the epoch, and an event in each context of users.
    pending: VecDeque<Fence>,
    /// Events of this context that nobody waits for.
    spare: Vec<usize>,
}

/// One thread at a time moves fences on; another takes new memory meanwhile.
static MOVING: Mutex<()> = Mutex::new(());

/// Makes clean what has passed; if nothing has, puts a fence behind what is in limbo.
pub fn advance(home: &Home, context: usize) {
    if !home.can_fence() {
        return;
    }
    let _one = match MOVING.try_lock() {
        Ok(held) => held,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    captures::unless_any(|| {
        if !poll(home, context) && put(home, context) {
            poll(home, context);
        }
    });
}

/// Asks the events, oldest first; whether any fence has passed.
fn poll(home: &Home, context: usize) -> bool {
    let mut any = false;
    loop {
        let oldest = {
            let books = books();
            books.fences.get(&context).and_then(|fences| fences.pending.front()).cloned()
        };
        let Some(fence) = oldest else { return any };
        let over =
            |(user, event): &Mark| home.inside(*user, || home.is_over(*event)).unwrap_or(false);
        if !fence.marks().all(over) {
            return any;
        }
        let mut books = books();
        let Some(fences) = books.fences.get_mut(&context) else { return any };
        if fences.pending.pop_front().is_none() {
            return any;
        }
        books.cache.passed(context, fence.epoch);
        spare(&mut books, fence.marks());
        any = true;
    }
}

/// Nobody waits for these any more.
fn spare<'m>(books: &mut Books, marks: impl Iterator<Item = &'m Mark>) {
    for (user, event) in marks {
        books.fences.entry(*user).or_default().spare.push(*event);
    }
}

/// Records an event behind all work of a context.
fn mark(home: &Home, user: usize) -> Option<Mark> {
    let recorded = home.inside(user, || {
        let spare = books().fences.entry(user).or_default().spare.pop();
        let event = spare.or_else(|| home.new_event())?;
        if home.record(user, event) {
            return Some((user, event));
        }
        books().fences.entry(user).or_default().spare.push(event);
        None
    });
    recorded.ok().flatten()
}

/// Puts a fence behind what is in limbo; whether there is one.
fn put(home: &Home, context: usize) -> bool {
    let mut books_now = books();
    let Some(epoch) = books_now.cache.seal(context) else { return false };
    let users = books_now.users_of(context);
    drop(books_now);
    let first = mark(home, context);
    let others: Vec<Mark> = users.iter().map_while(|user| mark(home, *user)).collect();
    let mut books = books();
    match first {
        Some(first) if others.len() == users.len() => {
            let fence = Fence { epoch, first, others };
            books.fences.entry(context).or_default().pending.push_back(fence);
            true
        }
        first => {
            books.cache.unseal(context, epoch);
            spare(&mut books, first.iter().chain(&others));
            false
        }
    }
}
