//! **Fences**: events of ours behind all work of a context.
//!
//! One fence stands for all blocks that were in limbo when it was sealed, before it was recorded; it
//! is recorded when a request could use one of them. The host never waits for it.

use std::collections::VecDeque;
use std::sync::{Mutex, TryLockError};

use crate::captures;
use crate::doors::Home;
use crate::memory::books;

/// A context's fences.
#[derive(Debug, Default)]
pub struct Fences {
    /// Those that have not passed, oldest first: the epoch, and an event in each context of users.
    pending: VecDeque<(u64, Vec<(usize, usize)>)>,
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
        let events = {
            let books = books();
            let oldest = books.fences.get(&context).and_then(|fences| fences.pending.front());
            let Some((_, events)) = oldest else { return any };
            events.clone()
        };
        let over = |(user, event): &(usize, usize)| {
            home.inside(*user, || home.is_over(*event)).unwrap_or(false)
        };
        if !events.iter().all(over) {
            return any;
        }
        let mut books = books();
        let Some(fences) = books.fences.get_mut(&context) else { return any };
        let Some((epoch, _)) = fences.pending.pop_front() else { return any };
        books.cache.passed(context, epoch);
        for (user, event) in events {
            books.fences.entry(user).or_default().spare.push(event);
        }
        any = true;
    }
}

/// Puts a fence behind what is in limbo; whether there is one.
fn put(home: &Home, context: usize) -> bool {
    let mut books_now = books();
    let Some(epoch) = books_now.cache.seal(context) else { return false };
    let users = books_now.users_of(context);
    drop(books_now);
    let mut events = Vec::new();
    for user in &users {
        let recorded = home.inside(*user, || {
            let spare = books().fences.entry(*user).or_default().spare.pop();
            let event = spare.or_else(|| home.new_event())?;
            events.push((*user, event));
            home.record(*user, event).then_some(())
        });
        if !matches!(recorded, Ok(Some(()))) {
            let mut books = books();
            books.cache.unseal(context, epoch);
            for (user, event) in events {
                books.fences.entry(user).or_default().spare.push(event);
            }
            return false;
        }
    }
    books().fences.entry(context).or_default().pending.push_back((epoch, events));
    true
}
