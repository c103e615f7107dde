//! **Fences**: events of ours behind all work of a context.
//!
//! One fence stands for all blocks that were in limbo when it was sealed, before it was recorded; it
//! is recorded when a request could use one of them. The host never waits for it.

use std::collections::VecDeque;

use crate::books::{Books, books};
use crate::captures;
use crate::doors::Home;
use crate::table::Address;

/// An event of ours, in its context.
type Mark = (usize, usize);

/// One fence: an event in the context that owns the memory, and in each other that may use it.
#[derive(Clone, Debug)]
struct Fence {
    epoch: u64,
    event: usize,
    others: Vec<Mark>,
}

/// A context's fences.
#[derive(Debug, Default)]
pub struct Fences {
    /// Those that have not passed, oldest first: the epoch, and an event in each context of users.
    pending: VecDeque<Fence>,
    /// Events of this context that nobody waits for.
    spare: Vec<usize>,
}

/// What is to be done about fences, outside of the lock.
#[derive(Debug)]
enum Step {
    /// Ask whether the oldest has passed.
    Ask(Fence),
    /// Put one behind what was in limbo, and ask it at once if it is the only one.
    Put { epoch: u64, event: Option<usize>, users: Vec<usize>, is_only: bool },
}

/// What came of it.
#[derive(Debug)]
enum Done {
    Asked { over: bool },
    Put { first: Option<usize>, others: Vec<Mark>, all: bool, over: bool },
}

/// Hands out a cached block of the current context, if one can be had without waiting. Where one
/// would fit that is not clean yet, fences are asked and put.
pub fn take(home: &Home, context: usize, bytes: u64) -> Option<Address> {
    let mut now = books();
    if let Some(address) = now.cache.take(context, bytes) {
        return Some(address);
    }
    // One thread at a time moves fences on; another takes new memory meanwhile.
    if now.fences_move || !home.can_fence() || !now.cache.waits(context, bytes) {
        return None;
    }
    let mut next = now.ask(context).or_else(|| now.put(context));
    let mut ready = None;
    now.fences_move = next.is_some();
    while let Some(step) = next {
        drop(now);
        let done = captures::unless_any(|| act(home, context, &step));
        now = books();
        let has_passed = now.learn(context, step, &done);
        if has_passed {
            ready = now.cache.take(context, bytes);
        }
        next = match done {
            Some(Done::Asked { over: true }) if ready.is_none() => {
                now.ask(context).or_else(|| now.put(context))
            }
            Some(Done::Asked { over: false }) => now.put(context),
            _ => None,
        };
        now.fences_move = next.is_some();
    }
    ready
}

/// Makes the driver calls of a step. `context` is current.
fn act(home: &Home, context: usize, step: &Step) -> Done {
    let is_over = |(user, event): &Mark| {
        home.inside_from(context, *user, || home.is_over(*event)).unwrap_or(false)
    };
    match step {
        Step::Ask(fence) => {
            Done::Asked { over: home.is_over(fence.event) && fence.others.iter().all(is_over) }
        }
        Step::Put { event, users, is_only, .. } => {
            let event = event.or_else(|| home.new_event());
            let recorded = event.is_some_and(|event| home.record(context, event));
            let others: Vec<Mark> = match recorded {
                true => users.iter().map_while(|user| mark(home, context, *user)).collect(),
                false => Vec::new(),
            };
            let all = recorded && others.len() == users.len();
            let over = all
                && *is_only
                && event.is_some_and(|event| home.is_over(event))
                && others.iter().all(is_over);
            Done::Put { first: event, others, over, all }
        }
    }
}

/// Records an event behind all work of another context.
fn mark(home: &Home, current: usize, user: usize) -> Option<Mark> {
    let recorded = home.inside_from(current, user, || {
        let spare = books().fences.or_insert(user, Fences::default).spare.pop();
        let event = spare.or_else(|| home.new_event())?;
        if home.record(user, event) {
            return Some((user, event));
        }
        books().fences.or_insert(user, Fences::default).spare.push(event);
        None
    });
    recorded.ok().flatten()
}

impl Books {
    fn ask(&self, context: usize) -> Option<Step> {
        self.fences.get(context)?.pending.front().cloned().map(Step::Ask)
    }

    fn put(&mut self, context: usize) -> Option<Step> {
        let epoch = self.cache.seal(context)?;
        let users = self.users_of(context);
        let fences = self.fences.or_insert(context, Fences::default);
        let (event, is_only) = (fences.spare.pop(), fences.pending.is_empty());
        Some(Step::Put { epoch, event, users, is_only })
    }

    /// Enters what came of a step; whether a fence has passed.
    fn learn(&mut self, context: usize, step: Step, done: &Option<Done>) -> bool {
        match (step, done) {
            (Step::Ask(fence), Some(Done::Asked { over: true })) => {
                let Some(fences) = self.fences.get_mut(context) else { return false };
                // The context may have ended meanwhile, and begun again.
                if fences.pending.front().is_none_or(|front| front.epoch != fence.epoch) {
                    return false;
                }
                fences.pending.pop_front();
                self.spare(context, Some(fence.event), &fence.others);
                self.cache.passed(context, fence.epoch);
                true
            }
            (Step::Put { epoch, .. }, Some(Done::Put { first, others, over: true, .. })) => {
                self.spare(context, *first, others);
                self.cache.passed(context, epoch);
                true
            }
            (
                Step::Put { epoch, .. },
                Some(Done::Put { first: Some(event), others, all: true, .. }),
            ) => {
                // A context that has ended meanwhile took its events along.
                if let Some(fences) = self.fences.get_mut(context) {
                    let fence = Fence { epoch, event: *event, others: others.clone() };
                    fences.pending.push_back(fence);
                }
                false
            }
            (Step::Put { epoch, event, .. }, failed) => {
                self.cache.unseal(context, epoch);
                match failed {
                    Some(Done::Put { first, others, .. }) => self.spare(context, *first, others),
                    _ => self.spare(context, event, &[]),
                }
                false
            }
            (Step::Ask(_), _) => false,
        }
    }

    /// Nobody waits for these any more.
    fn spare(&mut self, context: usize, event: Option<usize>, others: &[Mark]) {
        let first = event.map(|event| (context, event));
        for (user, event) in first.iter().chain(others) {
            if let Some(fences) = self.fences.get_mut(*user) {
                fences.spare.push(*event);
            }
        }
    }
}
